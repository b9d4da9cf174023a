//! Shields: sections of a task that a cancellation does not interrupt.
//!
//! The task word counts the shields of a task. While the count is above 0, a cancelled task is
//! polled as usual, since it needs its I/O to finish the section. When the count returns to 0, the
//! cancellation takes effect at the end of the poll, or immediately outside of a poll.
//!
//! [`is_cancelled`] is for code inside a shielded section; [`is_cancellation_effective`] is never
//! true there.

use std::fmt;
use std::future::Future;

use crate::task::current;
use crate::task::header::Task;

/// A guard that protects the calling task from cancellation until it is dropped.
///
/// Shields nest, up to 255. In the future of a `block_on`, which cannot be cancelled, a shield has
/// no effect.
///
/// ```
/// # use volt_core as volt;
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let task = runtime.spawn(async {
///     let shield = volt::task::Shield::new().unwrap();
///     volt::task::yield_now().await; // write a transaction here: an abort does not interrupt it
///     drop(shield);
///     std::future::pending::<()>().await; // here an abort takes effect
/// });
/// task.abort();
/// assert!(runtime.block_on(task).unwrap_err().is_cancelled());
/// ```
#[must_use = "the task is shielded only while the guard lives"]
pub struct Shield {
    task: Option<Task>,
}

impl Shield {
    /// Shields the calling task.
    ///
    /// # Errors
    /// Fails if the task has 255 shields already.
    pub fn new() -> Result<Shield, ShieldError> {
        current::with(|task| match task {
            None => Ok(Shield { task: None }),
            Some(task) => match task.header().state.enter_shield() {
                Ok(()) => Ok(Shield { task: Some(task.clone()) }),
                Err(_overflow) => Err(ShieldError(())),
            },
        })
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.leave_shield();
        }
    }
}

impl fmt::Debug for Shield {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shield").field("task", &self.task.as_ref().map(|task| task.header().id)).finish()
    }
}

/// Runs `future` to completion even if the task is cancelled meanwhile. The cancellation takes
/// effect afterwards.
///
/// # Errors
/// Fails without polling the future if the task has 255 shields already.
///
/// # Cancel safety
/// The shield protects against [`JoinHandle::abort`](crate::task::join::JoinHandle::abort), and
/// against a shutdown up to its time limit. It does not protect against code that drops this future
/// itself, such as `select!` or `timeout`.
///
/// ```
/// # use volt_core as volt;
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let task = runtime.spawn(async move {
///     volt::task::shield(async {
///         volt::task::yield_now().await;
///         sender.send("committed").unwrap();
///     })
///     .await
///     .unwrap();
///     std::future::pending::<()>().await;
/// });
/// # while task_polls(&runtime) == 0 {}
/// # fn task_polls(r: &volt::Runtime) -> u64 { r.handle().snapshot().workers[0].polls }
/// task.abort();
/// assert!(runtime.block_on(task).unwrap_err().is_cancelled());
/// assert_eq!(receiver.recv().unwrap(), "committed");
/// ```
pub async fn shield<F: Future>(future: F) -> Result<F::Output, ShieldError> {
    let _shield = Shield::new()?;
    Ok(future.await)
}

/// Returns whether the calling task was cancelled, by
/// [`JoinHandle::abort`](crate::task::join::JoinHandle::abort) or by the shutdown of its runtime.
///
/// A shielded task continues after it was cancelled. It can call this function to skip work that is
/// no longer needed. Aborting a shielded task that waits wakes it once, so that it can do so.
/// Outside a task, and in the future of a `block_on`, which cannot be cancelled, this returns
/// false.
///
/// ```
/// # use volt_core as volt;
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let task = runtime.spawn(async move {
///     volt::task::shield(async {
///         sender.send("begin").unwrap();
///         while !volt::task::is_cancelled() {
///             volt::task::yield_now().await; // one part of a long computation
///         }
///         sender.send("cleaned up").unwrap();
///     })
///     .await
///     .unwrap();
///     std::future::pending::<()>().await; // here the task ends
/// });
/// assert_eq!(receiver.recv().unwrap(), "begin");
/// task.abort();
/// assert!(runtime.block_on(task).is_err_and(|error| error.is_cancelled()));
/// assert_eq!(receiver.recv().unwrap(), "cleaned up");
/// ```
pub fn is_cancelled() -> bool {
    current::is_cancelled()
}

/// Returns whether the calling task was cancelled and no [`Shield`] defers that: the task is
/// dropped the next time it awaits a pending operation.
///
/// Never true inside a shielded section; use [`is_cancelled`] there. Returns false outside a task.
///
/// ```
/// # use volt_core as volt;
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let task = runtime.spawn(async {
///     let mut rounds = 0;
///     // A computation without an await, which nothing else would interrupt.
///     while !volt::task::is_cancellation_effective() {
///         rounds += 1;
///     }
///     rounds
/// });
/// task.abort();
/// # let _ = runtime.block_on(task);
/// ```
pub fn is_cancellation_effective() -> bool {
    current::is_cancellation_effective()
}

/// The error of a 256th shield: a task may have 255.
#[derive(Debug)]
pub struct ShieldError(());

impl fmt::Display for ShieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a task can hold at most 255 shields: drop some, or shield a longer section with one")
    }
}

impl std::error::Error for ShieldError {}
