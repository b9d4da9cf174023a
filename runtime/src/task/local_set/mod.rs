//! [`LocalSet`]: tasks that stay on one thread, for futures that are not `Send`.
//!
//! A `LocalSet` is itself a future. Whenever it is polled, it polls its own tasks on the same
//! thread. It contains a queue of woken tasks and a map of all tasks that have not completed.
//!
//! Wakers may be called on any thread. A waker pushes its task to the queue, under a lock, and then
//! wakes the future of the set.
//!
//! A dump polls the future that runs the set with a traced waker. In such a poll, the set also
//! polls its waiting tasks with traced wakers, so that their stacks become branches of the chain of
//! that future. Each task is claimed by the transition that dumps use (`task::state`), and a
//! wake-up in this poll is recorded as in any other.
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
//! * UNLOCKED WAKERS: no waker is called, cloned or dropped under the lock, because that runs
//!   foreign code, which may wake or spawn a task of this set.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use volt_core::Runtime;
use volt_core::config::{BUDGET_PER_TICK, COOP_BUDGET};
use volt_core::context;
use volt_core::coop;
use volt_core::runtime::Id;
use volt_core::task::JoinHandle;
use volt_core::task::cell::new_task_of_set;
use volt_core::task::header::Task;
use volt_core::task::resources;
use volt_core::task::schedule::Schedule;
use volt_stacks::Tape;

pub use self::current::LocalEnterGuard;
use self::current::current;
use self::shared::{Admission, Phase, Shared};

mod shared;

mod current;

#[cfg(test)]
mod tests;

/// Number of tasks that destructors may spawn while their set is dropped; far more than any orderly
/// shutdown needs.
const SPAWNS_AT_END: u32 = 1_000;
/// Number of tasks that a poll for a dump polls at most: as many as a chain can have branches.
const TRACED_MAX: usize = 64;

/// A set of tasks that run on one thread, the thread that polls the set.
///
/// The tasks' futures do not have to be `Send`. They make progress only while the set runs: in
/// [`block_on`](Self::block_on), in [`run_until`](Self::run_until), or while the set itself is
/// awaited. The await completes when the set has no tasks.
///
/// Dropping the set cancels all its tasks, including tasks that destructors spawn during the drop.
/// After 1,000 such spawns, the futures of further tasks are leaked, so that the drop terminates.
///
/// The set is not `Send`, so it cannot run in a task of [`spawn`](super::spawn()). It can run
/// in the future of a `block_on`, in a task of another set, or in a task of a `LocalRuntime`. A
/// task that is spawned with `spawn` inside the set runs on the workers of the runtime.
///
/// The polls of these tasks are part of a poll of the future that runs the set, and are counted
/// there. The tasks of a [`LocalRuntime`](crate::runtime::LocalRuntime) need no set, and are
/// counted and listed like all others.
///
/// ```
/// use std::rc::Rc;
///
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let local = volt::task::LocalSet::new();
/// let sum = local.block_on(&runtime, async {
///     let shared = Rc::new(20);
///     let other = shared.clone();
///     let task = volt::task::spawn_local(async move { *other + 1 });
///     *shared + task.await.unwrap()
/// });
/// assert_eq!(sum, 41);
/// ```
pub struct LocalSet {
    shared: Rc<Shared>,
    id: Id,
    /// Makes the set `!Send`: SAME THREAD.
    _not_send: PhantomData<*const ()>,
}

impl LocalSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { shared: Rc::default(), id: Id::next(), _not_send: PhantomData }
    }

    /// Returns the id of the set. No other set and no runtime of the program has the same id.
    ///
    /// ```
    /// use volt::task::LocalSet;
    ///
    /// assert_ne!(LocalSet::new().id(), LocalSet::new().id());
    /// ```
    pub fn id(&self) -> Id {
        self.id
    }

    /// Makes this set current on this thread while the guard lives, so that [`spawn_local`] spawns
    /// onto it. The tasks run when the set runs.
    ///
    /// ```
    /// let runtime = volt::Builder::new_current_thread().build().unwrap();
    /// let local = volt::task::LocalSet::new();
    /// let entered = local.enter();
    /// let task = volt::task::spawn_local(async { 1 });
    /// drop(entered);
    /// assert_eq!(local.block_on(&runtime, task).unwrap(), 1);
    /// ```
    pub fn enter(&self) -> LocalEnterGuard {
        LocalEnterGuard::of(&self.shared)
    }

    /// Polls or drops tasks in `f`, which may spawn others here.
    fn run<R>(&self, f: impl FnOnce() -> R) -> R {
        let _entered = self.enter();
        context::in_local_set(f)
    }

    /// Spawns a task onto this set. The task runs when the set runs.
    ///
    /// ```
    /// let runtime = volt::Builder::new_current_thread().build().unwrap();
    /// let local = volt::task::LocalSet::new();
    /// let text = std::rc::Rc::new("here");
    /// let task = local.spawn_local(async move { text.len() });
    /// assert_eq!(local.block_on(&runtime, task).unwrap(), 4);
    /// ```
    #[track_caller]
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.spawn_local_at(future, None, Location::caller())
    }

    /// Spawns a task with a name and a spawn location.
    pub(super) fn spawn_local_at<F>(
        &self,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        spawn_on(&self.shared, future, name, location)
    }

    /// Runs the set and `future` on the current thread until `future` completes.
    ///
    /// Tasks that have not completed by then stay in the set. This is
    /// [`runtime.block_on`](Runtime::block_on) of [`run_until`](Self::run_until). With a
    /// [`Handle`](crate::Handle), use `handle.block_on(set.run_until(future))`.
    ///
    /// # Panics
    /// Same as [`Runtime::block_on`].
    /// [`block_in_place`](super::block_in_place) panics in `future` and in the tasks.
    #[track_caller]
    pub fn block_on<F: Future>(&self, runtime: &Runtime, future: F) -> F::Output {
        runtime.block_on(self.run_until(future))
    }

    /// Runs the set until `future` completes.
    ///
    /// Tasks that have not completed by then stay in the set.
    ///
    /// # Cancel safety
    /// Same as `future`; the tasks stay in the set.
    ///
    /// ```
    /// let runtime = volt::Builder::new_current_thread().build().unwrap();
    /// let local = volt::task::LocalSet::new();
    /// runtime.block_on(local.run_until(async {
    ///     let task = volt::task::spawn_local(async { 6 * 7 });
    ///     assert_eq!(task.await.unwrap(), 42);
    /// }));
    /// ```
    pub async fn run_until<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut poll = |cx: &mut Context<'_>| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            // The result does not matter here: `future` is pending, with or without tasks.
            let _has_ended = self.poll_tasks(cx);
            Poll::Pending
        };
        std::future::poll_fn(|cx| self.run(|| poll(cx))).await
    }

    /// Runs woken tasks, at most one tick's budget of polls. Ready when the set has no tasks.
    fn poll_tasks(&self, cx: &mut Context<'_>) -> Poll<()> {
        let shared = &self.shared;
        // UNLOCKED WAKERS.
        let waker = cx.waker().clone();
        let mut state = shared.0.lock();
        let former = state.waker.replace(waker);
        state.is_polled = true;
        drop(state);
        drop(former);
        // Resets `is_polled`, also if a subscriber panics in a poll.
        let _polled = Polled(shared);
        let (polls, operations) = budgets();
        if resources::is_traced() {
            self.poll_waiting(operations);
        }
        for _poll in 0..polls {
            let Some(task) = shared.pop_or_wait() else {
                return if shared.0.lock().alive.is_empty() { Poll::Ready(()) } else { Poll::Pending };
            };
            shared.keep_woken(coop::limited(operations, || task.run(0)));
        }
        // More tasks are woken. Yield, so that other tasks of the runtime run first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Polls tasks that wait, with traced wakers.
    #[cold]
    fn poll_waiting(&self, operations: u32) {
        let state = self.shared.0.lock();
        let alive: Vec<Task> = state.alive.values().take(TRACED_MAX).cloned().collect();
        if state.alive.len() > TRACED_MAX {
            Tape::leave_out();
        }
        drop(state);
        for task in alive {
            // Claimed one at a time: if a subscriber panics in a poll, no other claim is lost.
            let ran = task.claim().map(|task| coop::limited(operations, || task.run_traced()));
            ran.into_iter().for_each(|ran| self.shared.keep_woken(ran));
        }
    }
}

/// A running poll of a set. Resets `is_polled` when it is dropped.
struct Polled<'a>(&'a Shared);

impl Drop for Polled<'_> {
    fn drop(&mut self) {
        self.0.0.lock().is_polled = false;
    }
}

impl Future for LocalSet {
    type Output = ();

    /// Ready when all tasks of the set have completed.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.run(|| self.poll_tasks(cx))
    }
}

impl Default for LocalSet {
    fn default() -> Self {
        Self::new()
    }
}

impl LocalSet {
    /// Cancels all tasks and drops their futures.
    fn close(&self) {
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
            let mut is_empty = true;
            while let Some(task) = self.shared.pop() {
                task.cancel_now();
                is_empty = false;
            }
            if is_empty {
                // Another thread is waking one of them, and has not pushed it to the queue yet.
                std::thread::yield_now();
            }
        }
        self.shared.0.lock().phase = Phase::Closed;
    }
}

impl Drop for LocalSet {
    fn drop(&mut self) {
        self.run(|| self.close());
    }
}

impl fmt::Debug for LocalSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalSet").field("alive", &self.shared.0.lock().alive.len()).finish()
    }
}

/// Spawns a task onto the current [`LocalRuntime`](crate::runtime::LocalRuntime), or else onto the
/// [`LocalSet`] that this thread runs or has [entered](LocalSet::enter). The future need not be
/// `Send`: it stays on this thread.
///
/// # Panics
/// Panics if called outside a `LocalRuntime` and a `LocalSet`, for example in a task that was
/// spawned with [`spawn`](super::spawn()), unless the runtime is a `LocalRuntime`. Also panics
/// if the current runtime is a `LocalRuntime` of another thread.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let local = volt::task::LocalSet::new();
/// let text = local.block_on(&runtime, async {
///     let text = std::rc::Rc::new("here");
///     volt::task::spawn_local(async move { *text }).await.unwrap()
/// });
/// assert_eq!(text, "here");
/// ```
///
/// In a `LocalRuntime`, no set is necessary:
///
/// ```
/// use std::rc::Rc;
///
/// let runtime = volt::runtime::LocalRuntime::new()?;
/// let sum = runtime.block_on(async {
///     let shared = Rc::new(20);
///     let other = shared.clone();
///     let task = volt::task::spawn_local(async move { *other + 1 });
///     *shared + task.await.unwrap()
/// });
/// assert_eq!(sum, 41);
/// # Ok::<(), volt::BuildError>(())
/// ```
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    spawn_local_at(future, None, Location::caller())
}

/// [`spawn_local`] with a name and a spawn location.
#[track_caller]
pub(super) fn spawn_local_at<F>(
    future: F,
    name: Option<&str>,
    location: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    if let Some(handle) = context::local_handle() {
        return handle.spawn_local_at(future, name, location);
    }
    match current() {
        Some(set) => spawn_on(&set, future, name, location),
        // Code outside Volt may search the message for its beginning, which is the same in Tokio.
        None => panic!(
            "`spawn_local` called from outside of a `task::LocalSet` or `runtime::LocalRuntime`: call it in the set's \
             `run_until`, in a task of the set, or on a runtime of `Builder::build_local`"
        ),
    }
}

fn spawn_on<F>(
    shared: &Shared,
    future: F,
    name: Option<&str>,
    location: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let inherits_span = context::try_handle().is_some_and(|handle| handle.inherits_spans());
    let admission = shared.0.lock().admit();
    if let Admission::Leaked = admission {
        return refuse(shared, future, location);
    }
    // SAFETY: SAME THREAD. This is the set's thread, since neither the set nor CURRENT leaves its
    // thread, and only the set runs its tasks. If the set has been dropped, the task ends here.
    let (notified, join) = unsafe { new_task_of_set(future, shared.clone(), name, location, inherits_span) };
    if let Admission::Cancelled = admission {
        notified.cancel_now();
        return join;
    }
    shared.0.lock().alive.insert(join.id().as_u64(), notified.task().clone());
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
    let (notified, join) = unsafe { new_task_of_set(leaked, shared.clone(), None, location, false) };
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
