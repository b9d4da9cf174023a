//! [`JoinSet`]: a collection of tasks that are joined in the order in which they complete.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::stream::{FuturesUnordered, Stream};

use volt_core::context;
use volt_core::coop;
use volt_core::handle::Handle;
use volt_core::task::id::Id;
use volt_core::task::join::{AbortHandle, JoinError, JoinHandle};

/// A collection of tasks spawned onto a runtime, all with the same output type.
///
/// The set returns the outputs in the order in which the tasks complete. Dropping the set aborts
/// all its tasks.
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
    /// Polls only the handles whose task has ended.
    tasks: FuturesUnordered<WithId<T>>,
}

/// A join handle that also returns the id of its task.
struct WithId<T>(JoinHandle<T>);

impl<T> Future for WithId<T> {
    type Output = (Id, Result<T, JoinError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.0.id();
        Pin::new(&mut self.0).poll(cx).map(|output| (id, output))
    }
}

impl<T> JoinSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self { tasks: FuturesUnordered::new() }
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

    /// Aborts all tasks. They stay in the set until they are joined.
    pub fn abort_all(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.0.abort());
    }

    /// Removes all tasks from the set without aborting them.
    pub fn detach_all(&mut self) {
        self.tasks.clear();
    }
}

impl<T: 'static> JoinSet<T> {
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
        self.insert(context::handle().spawn_at(task, None, Location::caller()))
    }

    /// Spawns a task onto the runtime of `handle` and adds it to the set.
    #[track_caller]
    pub fn spawn_on<F>(&mut self, task: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.insert(handle.spawn_at(task, None, Location::caller()))
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
        self.insert(context::handle().spawn_blocking_at(f, Location::caller()))
    }

    /// Spawns a task onto the current [`LocalSet`](super::LocalSet) and adds it to this set.
    ///
    /// # Panics
    /// Panics if called outside a `LocalSet`.
    #[track_caller]
    pub fn spawn_local<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.insert(super::spawn_local(task))
    }

    pub(super) fn insert(&mut self, task: JoinHandle<T>) -> AbortHandle {
        let abort = task.abort_handle();
        self.tasks.push(WithId(task));
        abort
    }

    /// Waits until one of the tasks completes and returns its output. Returns `None` if the set is
    /// empty.
    ///
    /// # Cancel safety
    /// Cancel safe: a task is removed only when its output is returned.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// Waits until one of the tasks completes, and returns its id and output; see
    /// [`join_next`](Self::join_next).
    ///
    /// # Cancel safety
    /// Same as [`join_next`](Self::join_next).
    pub async fn join_next_with_id(&mut self) -> Option<(Id, Result<T, JoinError>)> {
        poll_fn(|cx| Pin::new(&mut self.tasks).poll_next(cx)).await
    }

    /// Returns the output of a task that has completed, without waiting.
    ///
    /// Returns `None` if no task has completed or the set is empty.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.try_join_next_with_id().map(|(_, output)| output)
    }

    /// Returns the id and output of a task that has completed; see
    /// [`try_join_next`](Self::try_join_next).
    pub fn try_join_next_with_id(&mut self) -> Option<(Id, Result<T, JoinError>)> {
        // A completed task is ready when polled. For the others no wake-up is needed, so a no-op
        // waker suffices.
        let mut cx = Context::from_waker(Waker::noop());
        match coop::unlimited(|| Pin::new(&mut self.tasks).poll_next(&mut cx)) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// Polls for a task that has completed; the poll function of [`join_next`](Self::join_next).
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        Pin::new(&mut self.tasks).poll_next(cx).map(|next| next.map(|(_, output)| output))
    }

    /// Aborts all tasks and waits until they have ended.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the remaining tasks stay in the set, aborted.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Waits until all tasks complete, and returns their outputs in the order of completion.
    ///
    /// # Panics
    /// Resumes the panic of the first task that panicked. Panics if a task was aborted. In both
    /// cases the remaining tasks are aborted.
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
