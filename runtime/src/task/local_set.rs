//! [`LocalSet`]: tasks that stay on one thread, for futures that are not `Send`.
//!
//! A `LocalSet` is itself a future. Whenever it is polled, it polls its own tasks on the same
//! thread. It contains a queue of woken tasks and a map of all tasks that have not completed.
//!
//! Wakers may be called on any thread. A waker pushes its task to the queue, under a lock, and then
//! wakes the future of the set.
//!
//! Invariants:
//! * SAME THREAD: only the thread that owns the set polls and drops the tasks' futures. The set is
//!   not `Send`, runs tasks only in its own `poll`, and cancels all of them before it is dropped.
//!   Other threads have at most wakers of a task, which can only free its memory.
//! * CLOSED FOR GOOD: once the set is dropped, a waker finds the queue closed and drops its task
//!   reference.
//! * IT ENDS: while the set is dropped, destructors may spawn up to [`SPAWNS_AT_END`] more tasks,
//!   which are cancelled like the others. Beyond that limit, the future of each new task is leaked,
//!   because its destructor might spawn the next one. Its handle reports that the task was
//!   cancelled.
//! * SET WHILE POLLED: [`CURRENT`] points to a set only while a [`CurrentSet`] further up the same
//!   thread's stack borrows that set. `CURRENT` has no destructor, so a set may be dropped together
//!   with the other thread-locals of its thread, in any order.
//! * UNLOCKED WAKERS: no waker is called, cloned or dropped under the lock, because that runs
//!   foreign code, which may wake or spawn a task of this set.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use volt_core::config::{BUDGET_PER_TICK, COOP_BUDGET};
use volt_core::context;
use volt_core::coop;
use volt_core::handle::Handle;
use volt_core::task::cell::{Schedule, new_task_of_thread};
use volt_core::task::header::{Header, Notified, Ran, Task};
use volt_core::task::id::Id;
use volt_core::task::join::JoinHandle;
use volt_shim::Mutex;

/// Number of tasks that destructors may spawn while their set is dropped; far more than any orderly
/// shutdown needs.
const SPAWNS_AT_END: u32 = 1_000;

thread_local! {
    /// The set that this thread is polling, or null.
    static CURRENT: Cell<*const Shared> = const { Cell::new(ptr::null()) };
}

/// A set of tasks that run on one thread, the thread that polls the set.
///
/// The tasks' futures do not have to be `Send`. They make progress only while the set runs, in
/// [`block_on`](Self::block_on), in [`run_until`](Self::run_until), or when the set itself is
/// awaited. Dropping the set cancels all its tasks.
///
/// ```
/// use std::rc::Rc;
///
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let local = volt::task::LocalSet::new();
/// let sum = local.block_on(runtime.handle(), async {
///     let shared = Rc::new(20);
///     let other = shared.clone();
///     let task = volt::task::spawn_local(async move { *other + 1 });
///     *shared + task.await.unwrap()
/// });
/// assert_eq!(sum, 41);
/// ```
pub struct LocalSet {
    shared: Shared,
    /// Makes the set `!Send`: SAME THREAD.
    _not_send: PhantomData<*const ()>,
}

/// State shared between the set and its tasks.
#[derive(Clone)]
struct Shared(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    woken: VecDeque<Notified>,
    alive: HashMap<u64, Task>,
    waker: Option<Waker>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    /// `Drop` of the set is running.
    Closing { spawns_left: u32 },
    /// The set has been dropped.
    Closed,
}

impl State {
    /// Counts a task that is about to be spawned. Returns `false` if the limit of IT ENDS is
    /// reached.
    fn may_spawn(&mut self) -> bool {
        let Phase::Closing { spawns_left } = &mut self.phase else { return self.phase == Phase::Open };
        let may_spawn = *spawns_left > 0;
        *spawns_left = spawns_left.saturating_sub(1);
        may_spawn
    }
}

impl Schedule for Shared {
    /// The polls of these tasks are part of a poll of the task that polls the set.
    const IS_COUNTED: bool = false;

    fn schedule(&self, task: Notified) {
        let mut state = self.0.lock();
        if state.phase == Phase::Closed {
            drop(state);
            // CLOSED FOR GOOD. The task has completed, or is about to.
            drop(task);
            return;
        }
        state.woken.push_back(task);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The set cancels its tasks itself.
    fn is_closing(&self) -> bool {
        false
    }

    /// Nothing to do: `spawn_on` has already added the task to `alive`.
    fn keep(&self, _task: &Task) {}

    fn release(&self, task: &Header) -> Option<Task> {
        self.0.lock().alive.remove(&task.id.as_u64())
    }
}

impl Shared {
    fn pop(&self) -> Option<Notified> {
        self.0.lock().woken.pop_front()
    }
}

impl LocalSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { shared: Shared(Arc::new(Mutex::new(State::default()))), _not_send: PhantomData }
    }

    /// Spawns a task onto this set. The task runs while the set is awaited.
    #[track_caller]
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        spawn_on(&self.shared, future, Location::caller())
    }

    /// Runs the set and `future` on the current thread until `future` completes.
    ///
    /// Tasks that have not completed by then stay in the set.
    ///
    /// As [`Handle::block_on`], this does not run the tasks, timers and sockets of a
    /// [current-thread runtime](crate::Builder::new_current_thread). There, use
    /// `runtime.block_on(set.run_until(future))`.
    ///
    /// # Panics
    /// Same as [`Handle::block_on`].
    #[track_caller]
    pub fn block_on<F: Future>(&self, handle: &Handle, future: F) -> F::Output {
        handle.block_on(self.run_until(future))
    }

    /// Runs the set until `future` completes.
    ///
    /// Tasks that have not completed by then stay in the set.
    ///
    /// # Cancel safety
    /// Same as `future`; the tasks stay in the set.
    pub async fn run_until<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        std::future::poll_fn(|cx| {
            let _current = CurrentSet::enter(&self.shared);
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            // The result does not matter here: `future` is pending, with or without tasks.
            let _has_ended = self.poll_tasks(cx);
            Poll::Pending
        })
        .await
    }

    /// Runs woken tasks, at most one tick's budget of polls. Ready when the set has no tasks.
    fn poll_tasks(&self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &self.shared;
        // UNLOCKED WAKERS.
        let waker = cx.waker().clone();
        let former = shared.0.lock().waker.replace(waker);
        drop(former);
        let (polls, operations) = budgets();
        for _poll in 0..polls {
            let Some(task) = shared.pop() else {
                return if shared.0.lock().alive.is_empty() { Poll::Ready(()) } else { Poll::Pending };
            };
            let ran = coop::limited(operations, || task.run(0));
            if let Ran::Woken { task, .. } = ran {
                shared.0.lock().woken.push_back(task);
            }
        }
        // More tasks are woken. Yield, so that other tasks of the runtime run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Future for LocalSet {
    type Output = ();

    /// Ready when all tasks of the set have completed.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let _current = CurrentSet::enter(&self.shared);
        self.poll_tasks(cx)
    }
}

impl Default for LocalSet {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for LocalSet {
    fn drop(&mut self) {
        let _current = CurrentSet::enter(&self.shared);
        let mut state = self.shared.0.lock();
        state.phase = Phase::Closing { spawns_left: SPAWNS_AT_END };
        let waker = state.waker.take();
        drop(state);
        // UNLOCKED WAKERS.
        drop(waker);
        // Repeats until the set is empty, because a destructor may spawn another task here. Shields
        // do not delay the cancellation: after this, no thread may poll these tasks.
        loop {
            let alive: Vec<Task> = self.shared.0.lock().alive.values().cloned().collect();
            if alive.is_empty() {
                break;
            }
            alive.iter().for_each(Task::cancel_unshielded);
            drop(alive);
            while let Some(task) = self.shared.pop() {
                task.cancel_now();
            }
        }
        self.shared.0.lock().phase = Phase::Closed;
    }
}

impl fmt::Debug for LocalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSet").field("alive", &self.shared.0.lock().alive.len()).finish()
    }
}

/// Spawns a task onto the [`LocalSet`] that the current thread is running.
///
/// # Panics
/// Panics if called outside a `LocalSet`.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let local = volt::task::LocalSet::new();
/// let text = local.block_on(runtime.handle(), async {
///     let text = std::rc::Rc::new("here");
///     volt::task::spawn_local(async move { *text }).await.unwrap()
/// });
/// assert_eq!(text, "here");
/// ```
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    // SAFETY: SET WHILE POLLED.
    let Some(shared) = (unsafe { CURRENT.get().as_ref() }) else {
        panic!("spawn_local must be called inside a LocalSet: in its block_on, in its run_until, or in a task of it");
    };
    spawn_on(shared, future, Location::caller())
}

fn spawn_on<F>(shared: &Shared, future: F, location: &'static Location<'static>) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let may_spawn = shared.0.lock().may_spawn();
    if !may_spawn {
        return refuse(shared, future, location);
    }
    let id = Id::next();
    // SAFETY: SAME THREAD. This is the set's thread, since neither the set nor CURRENT leaves its
    // thread, and only the set runs its tasks.
    let (notified, join) = unsafe { new_task_of_thread(future, shared.clone(), id, location, None) };
    shared.0.lock().alive.insert(id.as_u64(), notified.task().clone());
    shared.schedule(notified);
    join
}

/// Returns the handle of a task that is cancelled before its first poll and whose future is leaked;
/// see IT ENDS.
#[cold]
fn refuse<F>(shared: &Shared, future: F, location: &'static Location<'static>) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    /// Wraps a future that is neither polled nor dropped.
    struct Leaked<F>(#[allow(dead_code, reason = "it is leaked")] ManuallyDrop<F>);
    impl<F: Future> Future for Leaked<F> {
        type Output = F::Output;

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<F::Output> {
            unreachable!("a set that is dropped cancels the task")
        }
    }
    tracing::error!(
        target: "volt", spawn = %location,
        "destructors keep starting tasks on a LocalSet that is being dropped: after {SPAWNS_AT_END} of them, the futures are leaked"
    );
    let leaked = Leaked(ManuallyDrop::new(future));
    // SAFETY: SAME THREAD. `cancel_now` below completes the task on this thread, and it never runs
    // again.
    let (notified, join) = unsafe { new_task_of_thread(leaked, shared.clone(), Id::next(), location, None) };
    notified.cancel_now();
    join
}

/// Returns the maximum polls per turn and operations per poll, as configured in the current
/// runtime.
fn budgets() -> (u32, u32) {
    context::try_handle().map_or((BUDGET_PER_TICK, COOP_BUDGET), |handle| {
        let config = &handle.shared().config;
        (config.budget_per_tick, config.coop_budget)
    })
}

/// Makes a set the current one while it is polled, and restores the former one when dropped.
struct CurrentSet<'a> {
    former: *const Shared,
    _shared: &'a Shared,
}

impl<'a> CurrentSet<'a> {
    fn enter(shared: &'a Shared) -> Self {
        Self { former: CURRENT.replace(shared), _shared: shared }
    }
}

impl Drop for CurrentSet<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.former);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::{pending, poll_fn};
    use std::rc::Rc;
    use volt_core::task::shield::Shield;

    fn poll(set: &mut LocalSet) -> Poll<()> {
        Pin::new(set).poll(&mut Context::from_waker(Waker::noop()))
    }

    fn finish<T>(mut task: JoinHandle<T>) -> Result<T, crate::task::JoinError> {
        match Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the task has ended"),
        }
    }

    #[test]
    fn futures_that_are_not_send_run_and_start_others() {
        let mut set = LocalSet::new();
        let log = Rc::new(Cell::new(0));
        let task = set.spawn_local({
            let log = log.clone();
            async move {
                log.set(log.get() + 1);
                spawn_local(async move { log.set(log.get() + 10) });
                Rc::new("output")
            }
        });
        assert_eq!(poll(&mut set), Poll::Ready(()));
        assert_eq!(log.get(), 11);
        assert_eq!(*finish(task).unwrap(), "output");
    }

    #[test]
    fn a_waker_on_another_thread_wakes_a_task_that_stays_on_its_own() {
        let mut set = LocalSet::new();
        let kept: Arc<std::sync::Mutex<Option<Waker>>> = Arc::default();
        let mut polls = 0;
        let here = std::thread::current().id();
        let task = set.spawn_local(poll_fn({
            let kept = kept.clone();
            move |cx| {
                assert_eq!(std::thread::current().id(), here);
                polls += 1;
                *kept.lock().unwrap() = Some(cx.waker().clone());
                if polls == 2 { Poll::Ready(Rc::new(polls)) } else { Poll::Pending }
            }
        }));
        assert!(poll(&mut set).is_pending());
        let waker = kept.lock().unwrap().take().unwrap();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        assert_eq!(poll(&mut set), Poll::Ready(()));
        assert_eq!(*finish(task).unwrap(), 2);
    }

    #[test]
    fn dropping_a_local_set_drops_its_tasks_on_its_own_thread() {
        struct OnThread(std::thread::ThreadId, Rc<Cell<u32>>);
        impl Drop for OnThread {
            fn drop(&mut self) {
                assert_eq!(std::thread::current().id(), self.0);
                self.1.set(self.1.get() + 1);
            }
        }
        let set = LocalSet::new();
        let drops = Rc::new(Cell::new(0));
        let kept: Arc<std::sync::Mutex<Vec<Waker>>> = Arc::default();
        let tasks = [false, true].map(|is_shielded| {
            let (kept, guard) = (kept.clone(), OnThread(std::thread::current().id(), drops.clone()));
            set.spawn_local(async move {
                let _guard = guard;
                let _shield = is_shielded.then(|| Shield::new().unwrap());
                poll_fn(|cx| {
                    kept.lock().unwrap().push(cx.waker().clone());
                    Poll::<()>::Pending
                })
                .await;
            })
        });
        let mut set = set;
        assert!(poll(&mut set).is_pending());
        drop(set);
        assert_eq!(drops.get(), 2);
        let wakers = std::mem::take(&mut *kept.lock().unwrap());
        std::thread::spawn(move || wakers.into_iter().for_each(Waker::wake)).join().unwrap();
        assert!(tasks.into_iter().all(|task| finish(task).unwrap_err().is_cancelled()));
    }

    #[test]
    fn a_task_started_by_a_destructor_ends_with_the_set_too() {
        struct Spawns;
        impl Drop for Spawns {
            fn drop(&mut self) {
                spawn_local(pending::<()>());
            }
        }
        let mut set = LocalSet::new();
        set.spawn_local(async {
            let _spawns = Spawns;
            pending::<()>().await;
        });
        assert!(poll(&mut set).is_pending());
        let shared = set.shared.clone();
        drop(set);
        assert!(shared.0.lock().alive.is_empty());
        assert_eq!(Arc::strong_count(&shared.0), 1, "no task holds the set any more");
    }
}
