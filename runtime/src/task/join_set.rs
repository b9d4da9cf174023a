//! A collection of tasks that are joined in the order in which they complete: [`JoinSet`].

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, Stream};

use volt_core::Handle;
use volt_core::coop;
use volt_core::task::Id;
use volt_core::task::resources::{self, Awaited, Key};
use volt_core::task::{AbortHandle, JoinError, JoinHandle};
use volt_telemetry::dump::{MAX_EXAMPLES, Resource};

use super::local_set::LocalSet;
use super::spawn;

/// A collection of tasks spawned onto a runtime, all with the same output type.
///
/// The set returns the outputs in the order in which the tasks complete. Dropping the set aborts
/// all its tasks; call [`detach_all`](Self::detach_all) first to let them continue.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// runtime.block_on(async {
///     let mut tasks = volt::task::JoinSet::new();
///     for n in 1..=4 {
///         tasks.spawn(async move { n * n });
///     }
///     let mut sum = 0;
///     while let Some(output) = tasks.join_next().await {
///         sum += output.unwrap();
///     }
///     assert_eq!(sum, 30);
/// });
/// ```
pub struct JoinSet<T> {
    /// Polls each new handle once, and then only those whose task has completed.
    tasks: FuturesUnordered<WithId<T>>,
    /// The waker of the last poll, if there was one.
    waker: Option<Waker>,
}

/// A join handle that also returns the id of its task.
struct WithId<T>(JoinHandle<T>);

impl<T> Future for WithId<T> {
    type Output = Result<(Id, T), JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.0.id();
        Pin::new(&mut self.0).poll(cx).map_ok(|output| (id, output))
    }
}

impl<T> JoinSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { tasks: FuturesUnordered::new(), waker: None }
    }

    /// Returns the number of tasks in the set: running tasks, and completed ones that were not
    /// joined yet.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Returns `true` if the set contains no tasks.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Aborts all tasks without waiting for their end. They stay in the set until they are joined;
    /// see [`shutdown`](Self::shutdown).
    pub fn abort_all(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.0.abort());
    }

    /// Removes all tasks from the set without aborting them.
    pub fn detach_all(&mut self) {
        self.tasks.clear();
    }
}

impl<T: 'static> JoinSet<T> {
    /// Returns a builder for a task that is then spawned and added to the set, for example with a
    /// name.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// runtime.block_on(async {
    ///     let mut tasks = volt::task::JoinSet::new();
    ///     tasks.build_task().name("price feed").spawn(async { 42 });
    ///     assert_eq!(tasks.join_next().await.unwrap().unwrap(), 42);
    /// });
    /// ```
    pub fn build_task(&mut self) -> Builder<'_, T> {
        Builder::of(self)
    }

    /// Spawns a task onto the current runtime and adds it to the set.
    ///
    /// # Panics
    /// Panics if called outside a runtime.
    #[track_caller]
    pub fn spawn<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.build_task().spawn(task)
    }

    /// Spawns a task onto the runtime of `handle` and adds it to the set.
    #[track_caller]
    pub fn spawn_on<F>(&mut self, task: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.build_task().spawn_on(task, handle)
    }

    /// Runs a blocking closure on the blocking pool and adds it to the set; see
    /// [`spawn_blocking`](super::spawn_blocking).
    ///
    /// # Panics
    /// Panics if called outside a runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.build_task().spawn_blocking(f)
    }

    /// Runs a blocking closure on the blocking pool of `handle`'s runtime and adds it to the set;
    /// see [`spawn_blocking`](super::spawn_blocking).
    ///
    /// ```
    /// let runtime = volt::Builder::new_current_thread().build().unwrap();
    /// let mut jobs = volt::task::JoinSet::new();
    /// for n in 1..=4 {
    ///     jobs.spawn_blocking_on(move || n * n, runtime.handle());
    /// }
    /// let squares = runtime.block_on(jobs.join_all());
    /// assert_eq!(squares.iter().sum::<u32>(), 30);
    /// ```
    #[track_caller]
    pub fn spawn_blocking_on<F>(&mut self, f: F, handle: &Handle) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.build_task().spawn_blocking_on(f, handle)
    }

    /// Spawns a task onto the current [`LocalRuntime`](crate::runtime::LocalRuntime) or
    /// [`LocalSet`] and adds it to this set; see [`spawn_local`](super::spawn_local).
    ///
    /// # Panics
    /// Same as [`spawn_local`](super::spawn_local).
    #[track_caller]
    pub fn spawn_local<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.build_task().spawn_local(task)
    }

    /// Spawns a task onto `local_set` and adds it to this set. The task runs when `local_set` runs.
    ///
    /// ```
    /// use volt::task::{JoinSet, LocalSet};
    ///
    /// let runtime = volt::Builder::new_current_thread().build().unwrap();
    /// let (local, mut tasks) = (LocalSet::new(), JoinSet::new());
    /// let text = std::rc::Rc::new("here");
    /// tasks.spawn_local_on(async move { text.len() }, &local);
    /// assert_eq!(local.block_on(&runtime, tasks.join_all()), [4]);
    /// ```
    #[track_caller]
    pub fn spawn_local_on<F>(&mut self, task: F, local_set: &LocalSet) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.build_task().spawn_local_on(task, local_set)
    }

    pub(super) fn insert(&mut self, task: JoinHandle<T>) -> AbortHandle {
        let abort = task.abort_handle();
        self.tasks.push(WithId(task));
        abort
    }

    /// Waits until one of the tasks completes and returns its output. Returns `None` if the set is
    /// empty.
    ///
    /// # Errors
    /// The result is an error if the task panicked or was cancelled. The set no longer contains the
    /// task in this case either.
    ///
    /// # Cancel safety
    /// Cancel safe: a task is removed only when its output is returned.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Waits until one of the tasks completes, and returns its id and output; see
    /// [`join_next`](Self::join_next).
    ///
    /// # Errors
    /// Same as [`join_next`](Self::join_next). [`JoinError::id`] returns the id of the task.
    ///
    /// # Cancel safety
    /// Same as [`join_next`](Self::join_next).
    pub async fn join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        poll_fn(|cx| self.poll_join_next_with_id(cx)).await
    }

    /// Returns the output of a task that has completed, without waiting.
    ///
    /// Returns `None` if no task has completed or the set is empty. It may also return `None`
    /// although a task has just completed on another thread; a later call returns the output.
    ///
    /// # Errors
    /// Same as [`join_next`](Self::join_next).
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.try_join_next_with_id().map(without_id)
    }

    /// Returns the id and output of a task that has completed; see
    /// [`try_join_next`](Self::try_join_next).
    pub fn try_join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        // A completed task is ready when polled. The others still wake the last poll.
        let mut cx = Context::from_waker(self.waker.as_ref().unwrap_or(Waker::noop()));
        match coop::unlimited(|| Pin::new(&mut self.tasks).poll_next(&mut cx)) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// Polls for a task that has completed; the poll function of [`join_next`](Self::join_next).
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        self.poll_join_next_with_id(cx).map(|next| next.map(without_id))
    }

    /// Polls for a task that has completed; the poll function of
    /// [`join_next_with_id`](Self::join_next_with_id).
    pub fn poll_join_next_with_id(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(Id, T), JoinError>>> {
        let is_new = !self.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
        let former = if is_new { self.waker.replace(cx.waker().clone()) } else { None };
        let next = Pin::new(&mut self.tasks).poll_next(cx);
        if next.is_pending() {
            resources::note(|| Some(self.awaited()));
        }
        // After the poll: the destructor of a waker may run tasks of the set.
        drop(former);
        next
    }

    fn awaited(&self) -> Awaited {
        let mut awaited_tasks: Vec<u64> = self.tasks.iter().map(|WithId(task)| task.id().as_u64()).collect();
        awaited_tasks.sort_unstable();
        awaited_tasks.truncate(MAX_EXAMPLES);
        let wanted = Some(self.len() as u64);
        Awaited::new(Key::of(self), "join_set", Resource { wanted, awaited_tasks, ..Resource::default() })
    }

    /// Aborts all tasks and waits until they have ended.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the remaining tasks stay in the set, aborted.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// runtime.block_on(async {
    ///     let mut tasks = volt::task::JoinSet::new();
    ///     tasks.spawn(std::future::pending::<()>());
    ///     tasks.shutdown().await;
    ///     assert!(tasks.is_empty());
    /// });
    /// ```
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Waits until all tasks complete, and returns their outputs in the order of completion.
    ///
    /// # Panics
    /// Resumes the panic of the first task that panicked. Panics if a task was aborted. In both
    /// cases the remaining tasks are aborted.
    ///
    /// # Cancel safety
    /// Not cancel safe. If the future is dropped, the outputs so far are lost, and the remaining
    /// tasks are aborted. To avoid that, call [`join_next`](Self::join_next) in a loop.
    pub async fn join_all(mut self) -> Vec<T> {
        let mut outputs = Vec::with_capacity(self.len());
        while let Some(output) = self.join_next().await {
            match output {
                Ok(output) => outputs.push(output),
                Err(error) => match error.try_into_panic() {
                    Ok(payload) => std::panic::resume_unwind(payload),
                    Err(error) => panic!("{error}"),
                },
            }
        }
        outputs
    }
}

fn without_id<T>(ended: Result<(Id, T), JoinError>) -> Result<T, JoinError> {
    ended.map(|(_id, output)| output)
}

/// Spawns each future onto the current runtime, as [`JoinSet::spawn`] does.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// runtime.block_on(async {
///     let tasks: volt::task::JoinSet<_> = (1..=4).map(|n| async move { n * n }).collect();
///     assert_eq!(tasks.join_all().await.iter().sum::<u32>(), 30);
/// });
/// ```
impl<T, F> FromIterator<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    fn from_iter<I: IntoIterator<Item = F>>(futures: I) -> Self {
        let mut set = Self::new();
        set.extend(futures);
        set
    }
}

/// Spawns each future onto the current runtime, as [`JoinSet::spawn`] does.
impl<T, F> Extend<F> for JoinSet<T>
where
    F: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    fn extend<I: IntoIterator<Item = F>>(&mut self, futures: I) {
        for future in futures {
            self.spawn(future);
        }
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}

/// Configures a task before it is spawned and added to a [`JoinSet`]: its name and its spawn
/// location. Returned by [`JoinSet::build_task`].
///
/// See [`task::Builder`](crate::task::Builder), which does the same for tasks outside a set.
#[must_use = "a builder does nothing until spawn() is called"]
pub struct Builder<'a, T> {
    set: &'a mut JoinSet<T>,
    task: spawn::Builder<'a>,
}

impl<'a, T: 'static> Builder<'a, T> {
    fn of(set: &'a mut JoinSet<T>) -> Self {
        Self { set, task: spawn::Builder::new() }
    }

    /// Sets the name of the task. Names longer than 64 bytes are truncated.
    pub fn name(self, name: &'a str) -> Self {
        Self { task: self.task.name(name), ..self }
    }

    /// Sets the location that reports show as the task's origin; see
    /// [`task::Builder::location`](crate::task::Builder::location).
    pub fn location(self, location: &'static Location<'static>) -> Self {
        Self { task: self.task.location(location), ..self }
    }

    /// Spawns the task as [`JoinSet::spawn`] does.
    ///
    /// # Panics
    /// Panics if called outside a runtime.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.set.insert(self.task.spawn(future))
    }

    /// Spawns the task as [`JoinSet::spawn_on`] does.
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.set.insert(self.task.spawn_on(future, handle))
    }

    /// Runs a blocking closure as [`JoinSet::spawn_blocking`] does.
    ///
    /// # Panics
    /// Panics if called outside a runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.set.insert(self.task.spawn_blocking(f))
    }

    /// Runs a blocking closure as [`JoinSet::spawn_blocking_on`] does.
    #[track_caller]
    pub fn spawn_blocking_on<F>(self, f: F, handle: &Handle) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.set.insert(self.task.spawn_blocking_on(f, handle))
    }

    /// Spawns the task as [`JoinSet::spawn_local`] does.
    ///
    /// # Panics
    /// Same as [`spawn_local`](crate::task::spawn_local).
    #[track_caller]
    pub fn spawn_local<F>(self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.set.insert(self.task.spawn_local(future))
    }

    /// Spawns the task as [`JoinSet::spawn_local_on`] does.
    #[track_caller]
    pub fn spawn_local_on<F>(self, future: F, local_set: &LocalSet) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.set.insert(self.task.spawn_local_on(future, local_set))
    }
}

impl<T> fmt::Debug for Builder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("set", &self.set).field("task", &self.task).finish()
    }
}
