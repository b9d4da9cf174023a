//! The task that this thread polls, whether that task has woken itself, and the source to which
//! wake-ups on this thread are attributed.
//!
//! `task::id()`, shields and wakers need the current task. Wakers also attribute each wake-up to
//! the task that is polled, or, between polls, to the activity of the thread.
//!
//! While the output of a completed task is dropped, no task is current, but `task::id()` returns
//! the id of that task.
//!
//! Writers: `cell` around each poll, each drop of a future or output, and the wake-up of the
//! joiner; wakers on the same thread; the thread itself, for its kind. Readers: ids, shields,
//! wake-ups on this thread, and `cell::run` at the end of the poll.
//!
//! Invariants:
//! * *Alive while current*: the pointer is set only while the runner owns a reference.
//! * *Own poll*: the record of a poll (whether the task woke itself, and what it waits for) is
//!   about the current poll only. It is saved while another task is polled inside that poll, and
//!   restored afterwards.
//! * *Read once it is over*: `Current::leave` reads the record and ends the poll in one step. If
//!   the task wakes itself before that step, the wake-up is recorded; if it does so after it, the
//!   wake-up changes the task word. No wake-up is lost, wherever user code runs in the poll: in the
//!   future, in destructors, and in the `tracing` subscribers that are called when the poll's spans
//!   are entered and left.

use std::cell::Cell;
use std::mem::{self, ManuallyDrop};
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::task::Waker;

use volt_telemetry::recording::event::Waker as By;

use super::details::awaits::{Awaits, Note};
use super::header::{Header, Task};
use super::id::Id;

/// The record of one poll.
#[derive(Clone, Copy)]
struct Running {
    task: Option<NonNull<Header>>,
    marks: Marks,
}

/// The actions of the task in the poll: `| what it waits for | has it woken itself 1 |`.
#[derive(Clone, Copy)]
struct Marks(u32);

impl Marks {
    const NOTHING: Self = Self(0);
    const HAS_WOKEN_ITSELF: u32 = 1;

    #[inline]
    fn has_woken_itself(self) -> bool {
        self.0 & Self::HAS_WOKEN_ITSELF != 0
    }

    #[inline]
    fn awaits(self) -> Note {
        Note::from_bits(u64::from(self.0 >> 1))
    }

    fn with_awaits(self, awaits: Note) -> Self {
        Self((awaits.to_bits() as u32) << 1 | self.0 & Self::HAS_WOKEN_ITSELF)
    }
}

const NOTHING: Running = Running { task: None, marks: Marks::NOTHING };

/// The activity of this thread, in one thread-local: a wake-up reads most of it.
struct Here {
    // The record of the present poll.
    task: Cell<Option<NonNull<Header>>>,
    marks: Cell<Marks>,
    /// The kind of this thread, or its activity between two polls.
    by: Cell<By>,
}

thread_local! {
    static HERE: Here = const {
        Here {
            task: Cell::new(NOTHING.task),
            marks: Cell::new(NOTHING.marks),
            by: Cell::new(By::Outside),
        }
    };
    /// The completed task whose output is being dropped on this thread.
    static ENDED: Cell<Option<Id>> = const { Cell::new(None) };
}

impl Here {
    #[inline]
    fn running(&self) -> Running {
        Running { task: self.task.get(), marks: self.marks.get() }
    }

    #[inline]
    fn set_running(&self, running: Running) {
        self.task.set(running.task);
        self.marks.set(running.marks);
    }

    fn set_awaits(&self, awaits: Note) {
        self.marks.set(self.marks.get().with_awaits(awaits));
    }

    #[inline]
    fn replace_running(&self, running: Running) -> Running {
        let former = self.running();
        self.set_running(running);
        former
    }
}

/// Replaces the record of the poll on this thread.
#[inline]
fn replace(running: Running) -> Running {
    HERE.with(|here| here.replace_running(running))
}

/// The source of wake-ups on this thread at the moment.
pub(super) struct WakesHere<'a> {
    /// The kind of the thread, or what it does between two polls.
    pub(super) by: By,
    /// The task that is being polled, or whose poll has just ended.
    pub(super) task: Option<&'a Header>,
}

/// Calls `f` with the source of wake-ups on this thread at the moment.
#[inline]
pub(super) fn with_waker<R>(f: impl FnOnce(WakesHere<'_>) -> R) -> R {
    HERE.with(|here| {
        let task = here.task.get();
        // SAFETY: Alive while current.
        let task = task.as_ref().map(|task| unsafe { task.as_ref() });
        f(WakesHere { by: here.by.get(), task })
    })
}

/// Attributes wake-ups outside of polls on this thread to `by` from now on. Returns the former
/// value.
#[inline]
pub(crate) fn wake_as(by: By) -> By {
    HERE.with(|here| here.by.replace(by))
}

/// Makes `task` current until this is dropped. Then the former one is current again.
#[must_use = "the task is current only while this lives"]
pub(super) struct Current<'a> {
    former: Running,
    _task: &'a Task,
}

impl<'a> Current<'a> {
    #[inline]
    pub(super) fn enter(task: &'a Task) -> Self {
        let running = Running { task: Some(task.as_raw()), ..NOTHING };
        Self { former: replace(running), _task: task }
    }

    /// Ends the poll: the former task is current again. Returns whether this task has woken itself
    /// since the poll began, and the wait that it recorded last. See *Read once it is over*.
    #[inline]
    pub(super) fn leave(self) -> (bool, Note) {
        let ended = replace(self.former);
        // The destructor would reset the current task a second time.
        mem::forget(self);
        (ended.marks.has_woken_itself(), ended.marks.awaits())
    }
}

impl Drop for Current<'_> {
    #[inline]
    fn drop(&mut self) {
        replace(self.former);
    }
}

/// Runs `f` with no task current, and with its wake-ups attributed to `by`. For worker threads that
/// are simulated inside another task's poll.
pub(crate) fn run_outside_tasks(by: By, f: impl FnOnce()) {
    struct Reset(Running, By);
    impl Drop for Reset {
        fn drop(&mut self) {
            replace(self.0);
            wake_as(self.1);
        }
    }
    let _reset = Reset(replace(NOTHING), wake_as(by));
    f();
}

/// Runs `f`, which blocks in the middle of a poll. The task stays current, and the thread counts as
/// one outside the runtime. What a `block_on` inside `f` waits for is not recorded for the poll.
pub(crate) fn run_blocking(f: impl FnOnce()) {
    struct Reset(Note, By);
    impl Drop for Reset {
        fn drop(&mut self) {
            HERE.with(|here| here.set_awaits(self.0));
            wake_as(self.1);
        }
    }
    let _reset = Reset(HERE.with(|here| here.marks.get().awaits()), wake_as(By::Outside));
    f();
}

/// Runs `f`, which drops the output of the task `id`, with that task's id as the current one. No
/// task is current meanwhile: the ended one has no runner that could keep it alive.
pub(super) fn run_as_ended(id: Id, f: impl FnOnce()) {
    struct Reset(Running, Option<Id>);
    impl Drop for Reset {
        fn drop(&mut self) {
            replace(self.0);
            ENDED.set(self.1);
        }
    }
    let _reset = Reset(replace(NOTHING), ENDED.replace(Some(id)));
    f();
}

/// Records the wake-up and returns true if this thread polls `task`; its runner will then
/// reschedule it. Returns false if the wake-up is for another task.
#[inline]
pub(super) fn has_noted_own_wake(task: NonNull<Header>) -> bool {
    HERE.with(|here| {
        let is_own = here.task.get() == Some(task);
        if is_own {
            here.marks.set(Marks(here.marks.get().0 | Marks::HAS_WOKEN_ITSELF));
        }
        is_own
    })
}

impl Awaits {
    /// Records that the task polled on this thread waits for this, at that code location, unless it
    /// waits for a lock or permits in this poll, and this is neither.
    pub fn note(self, at: &'static Location<'static>) {
        let awaits = Note::of(self, at);
        HERE.with(|here| {
            if awaits.has_holder() || !here.marks.get().awaits().has_holder() {
                here.set_awaits(awaits);
            }
        });
    }

    /// Withdraws the record that [`note`](Self::note) made for this operation, if no other one has
    /// replaced it: the operation is dropped although it is pending, and the task goes on without
    /// it.
    #[cold]
    pub fn withdraw(self, at: &'static Location<'static>) {
        let awaits = Note::of(self, at);
        // Destructors of other thread-locals may drop futures after this one was destroyed.
        let _gone = HERE.try_with(|here| {
            if here.marks.get().awaits() == awaits {
                here.set_awaits(Note::from_bits(0));
            }
        });
    }
}

/// Returns whether this is the waker of the task that this thread polls, and not one that a
/// combinator made for one of its futures.
#[inline]
pub(super) fn is_woken_by(waker: &Waker) -> bool {
    let data = waker.data().cast();
    HERE.with(|here| here.task.get().is_some_and(|task| ptr::eq(task.as_ptr(), data)))
}

/// Returns whether the task that this thread polls has woken itself since the poll began.
#[cfg(test)]
fn has_woken_itself() -> bool {
    HERE.with(|here| here.marks.get().has_woken_itself())
}

/// Calls `f` with the task that this thread polls, if there is one.
pub(crate) fn with<R>(f: impl FnOnce(Option<&Task>) -> R) -> R {
    match HERE.try_with(|here| here.task.get()).ok().flatten() {
        None => f(None),
        Some(raw) => {
            // SAFETY: Alive while current; ManuallyDrop borrows the runner's reference and does not
            // release it.
            let task = ManuallyDrop::new(unsafe { Task::from_raw(raw) });
            f(Some(&task))
        }
    }
}

/// Returns the id of the calling task.
///
/// # Panics
/// Panics if called outside a task. The future of a `block_on` that was not called by a task counts
/// as outside. See [`try_id`].
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let task = runtime.spawn(async { volt::task::id() });
/// let id = task.id();
/// assert_eq!(runtime.block_on(task).unwrap(), id);
/// assert_eq!(volt::task::try_id(), None);
/// ```
#[track_caller]
pub fn id() -> Id {
    try_id().expect("volt::task::id() must be called in a task: spawn one, or use try_id()")
}

/// Returns the id of the calling task, or `None` outside a task. The destructors of a task's future
/// and of its output, which may run after the task has completed, count as inside.
pub fn try_id() -> Option<Id> {
    with(|task| task.map(|task| task.header().id)).or_else(|| ENDED.try_with(Cell::get).ok().flatten())
}

/// Returns whether the task that this thread polls was cancelled.
pub(super) fn is_cancelled() -> bool {
    with(|task| task.is_some_and(|task| task.header().state.cancellation().is_requested))
}

/// Returns whether the task that this thread polls was cancelled and is not shielded, so that it is
/// dropped after this poll.
pub fn is_cancellation_effective() -> bool {
    with(|task| task.is_some_and(|task| task.header().state.cancellation().is_effective))
}

/// Runs `f` as if in a poll of `task`.
#[cfg(test)]
pub(super) fn run_as(task: &Task, f: impl FnOnce()) {
    let _current = Current::enter(task);
    f();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::cell::{Nowhere, new_task};

    fn task() -> Task {
        let (notified, _join) = new_task(async {}, Nowhere, Id::next(), Location::caller(), None);
        notified.task().clone()
    }

    #[test]
    fn a_nested_poll_records_only_its_own_self_wakes() {
        let (outer, inner) = (task(), task());
        assert!(!has_noted_own_wake(outer.as_raw()), "nothing is polled");
        let polled = Current::enter(&outer);
        assert!(!has_noted_own_wake(inner.as_raw()));
        {
            let _inner = Current::enter(&inner);
            assert!(!has_noted_own_wake(outer.as_raw()), "not the poll that is at its end next");
            assert!(!has_woken_itself());
            assert!(has_noted_own_wake(inner.as_raw()));
            assert!(has_woken_itself());
            run_outside_tasks(By::Worker, || assert!(!has_noted_own_wake(inner.as_raw())));
            assert!(has_woken_itself());
        }
        assert!(!has_woken_itself());
        assert!(has_noted_own_wake(outer.as_raw()));
        assert!(polled.leave().0);
        assert!(!has_noted_own_wake(outer.as_raw()), "its poll is over");
        assert!(!has_woken_itself());
    }

    #[test]
    fn a_block_in_a_poll_keeps_the_task_and_its_wait() {
        let polled = task();
        let current = Current::enter(&polled);
        Awaits::Message.note(Location::caller());
        let former = wake_as(By::Worker);
        run_blocking(|| {
            Awaits::Lock.note(Location::caller());
            assert!(has_noted_own_wake(polled.as_raw()));
            with_waker(|waker| assert_eq!(waker.by, By::Outside));
        });
        assert_eq!(wake_as(former), By::Worker);
        let (has_woken_itself, awaits) = current.leave();
        assert!(has_woken_itself, "wherever that was");
        assert_eq!(awaits.read().map(|(wait, _)| wait), Some(Awaits::Message), "not that of the block");
    }

    #[test]
    fn a_lock_is_reported_before_any_other_wait_of_the_poll() {
        let polled = task();
        let reported = |waits: &[Awaits]| {
            let current = Current::enter(&polled);
            waits.iter().for_each(|wait| wait.note(Location::caller()));
            current.leave().1.read().map(|(wait, _)| wait)
        };
        use Awaits::{Lock, Notice, Others, Permits};
        assert_eq!(reported(&[Lock, Notice]), Some(Lock));
        assert_eq!(reported(&[Notice, Lock, Others]), Some(Lock));
        assert_eq!(reported(&[Lock, Permits, Notice]), Some(Permits), "the last one of these");
        assert_eq!(reported(&[Others, Notice]), Some(Notice), "the first may be polled no more");
        let current = Current::enter(&polled);
        Lock.note(Location::caller());
        Lock.withdraw(Location::caller());
        assert!(current.leave().1.read().is_some(), "of another line");
    }

    #[test]
    fn the_waker_source_is_the_polled_task_or_the_threads_activity() {
        let here = || with_waker(|waker| (waker.by, waker.task.map(|task| task.id)));
        assert_eq!(here(), (By::Outside, None));
        let polled = task();
        let id = Some(polled.header().id);
        {
            let _polled = Current::enter(&polled);
            assert_eq!(here(), (By::Outside, id));
            run_outside_tasks(By::Worker, || {
                assert_eq!(wake_as(By::Io), By::Worker);
                assert_eq!(here(), (By::Io, None));
            });
            assert_eq!(here(), (By::Outside, id));
        }
        let former = wake_as(By::Blocking);
        {
            let _job = Current::enter(&polled);
            assert_eq!(here(), (By::Blocking, id));
        }
        wake_as(former);
        assert_eq!(here(), (By::Outside, None));
    }
}
