//! A set of tasks of one output type, joined in the order in which they end.

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

/// A set of tasks. Dropping it aborts them.
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
    /// Wakes, and is polled for, only those that have ended.
    tasks: FuturesUnordered<WithId<T>>,
}

/// A handle whose output names its task.
struct WithId<T>(JoinHandle<T>);

impl<T> Future for WithId<T> {
    type Output = (Id, Result<T, JoinError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let id = self.0.id();
        Pin::new(&mut self.0).poll(cx).map(|output| (id, output))
    }
}

impl<T> JoinSet<T> {
    /// An empty set.
    pub fn new() -> Self {
        Self { tasks: FuturesUnordered::new() }
    }

    /// Tasks in the set: those that have not ended, and those whose output was not taken.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Aborts all tasks; each is still to be joined.
    pub fn abort_all(&mut self) {
        self.tasks.iter_mut().for_each(|task| task.0.abort());
    }

    /// Removes all tasks and lets them go on.
    pub fn detach_all(&mut self) {
        self.tasks.clear();
    }
}

impl<T: 'static> JoinSet<T> {
    /// Starts a task in the current runtime and adds it.
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn<F>(&mut self, task: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.insert(context::handle().spawn_at(task, None, Location::caller()))
    }

    /// As [`spawn`](Self::spawn), in the runtime of `handle`.
    #[track_caller]
    pub fn spawn_on<F>(&mut self, task: F, handle: &Handle) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.insert(handle.spawn_at(task, None, Location::caller()))
    }

    /// Runs a closure that blocks, and adds it; see [`spawn_blocking`](super::spawn_blocking).
    ///
    /// # Panics
    /// Outside a runtime.
    #[track_caller]
    pub fn spawn_blocking<F>(&mut self, f: F) -> AbortHandle
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send,
    {
        self.insert(context::handle().spawn_blocking_at(f, Location::caller()))
    }

    /// Starts a task on the [`LocalSet`](super::LocalSet) that this thread runs, and adds it.
    ///
    /// # Panics
    /// Outside a `LocalSet`.
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

    /// Waits for the next task to end; `None` when the set is empty.
    ///
    /// # Cancel safety
    /// Cancel safe: a task is removed only together with its output.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_join_next(cx)).await
    }

    /// As [`join_next`](Self::join_next), with the task's id.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn join_next_with_id(&mut self) -> Option<(Id, Result<T, JoinError>)> {
        poll_fn(|cx| Pin::new(&mut self.tasks).poll_next(cx)).await
    }

    /// The output of a task that has ended; `None` if none has, or the set is empty.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.try_join_next_with_id().map(|(_, output)| output)
    }

    /// As [`try_join_next`](Self::try_join_next), with the task's id.
    pub fn try_join_next_with_id(&mut self) -> Option<(Id, Result<T, JoinError>)> {
        // One that has ended says so when it is polled; nobody is to be woken for the others.
        let mut cx = Context::from_waker(Waker::noop());
        match coop::unlimited(|| Pin::new(&mut self.tasks).poll_next(&mut cx)) {
            Poll::Ready(next) => next,
            Poll::Pending => None,
        }
    }

    /// As [`join_next`](Self::join_next), for hand-written futures.
    pub fn poll_join_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        Pin::new(&mut self.tasks).poll_next(cx).map(|next| next.map(|(_, output)| output))
    }

    /// Aborts all tasks and waits until they are gone.
    ///
    /// # Cancel safety
    /// What is not gone when this is dropped stays in the set, aborted.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Waits for all tasks; their outputs in the order in which they ended.
    ///
    /// # Panics
    /// With the panic of the first task that panicked; and if a task was aborted by somebody else.
    /// The other tasks are aborted then.
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
