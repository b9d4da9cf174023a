//! `block_in_place`: runs blocking code in the middle of a task, while another thread takes over
//! the worker's other tasks.

use crate::context;
use crate::scheduler::worker::{Worker, current};

/// The panic message where no other thread can take over the tasks of this one. Code outside Volt
/// may search the message for its beginning, which is the same in Tokio.
const NO_OTHER_THREAD: &str = "can call blocking only when running on the multi-threaded runtime: no other thread can run the tasks of \
                               a current-thread runtime or of a LocalSet; use `spawn_blocking`";

/// Runs a blocking closure on the current worker's thread, while another thread takes over the
/// worker's tasks.
///
/// The tasks in the worker's queues move to other workers immediately. If no worker is idle, a
/// spare worker starts; see
/// [`Builder::max_spare_workers`](crate::builder::Builder::max_spare_workers). The closure may
/// therefore sleep, wait for locks, compute for long, and even call
/// [`Handle::block_on`](crate::handle::Handle::block_on). The calling task does not make progress
/// meanwhile. Neither does any other future in the same poll: the other branches of a `join!` or
/// `select!`, or the other tasks of a `LocalSet`.
///
/// The closure runs as part of the task: [`id`](crate::task::id()) returns the same id, a
/// [`Shield`](crate::task::control::shield::Shield) created in it protects the task, and a wake-up
/// of the task causes another poll.
///
/// On a thread that is not a worker, for example in `Runtime::block_on` or outside a runtime, the
/// closure is simply called.
///
/// A call of `spawn_blocking` costs more, but leaves the task free to do other things. If a task
/// blocks without either function, the sentinel (the thread that watches the workers) detects it
/// after a few milliseconds, replaces the worker and reports it: see
/// [`Builder::sentinel_interval`](crate::builder::Builder::sentinel_interval).
///
/// # Panics
///
/// Panics in [`Runtime::block_on`](crate::runtime::Runtime::block_on) of a
/// [current-thread runtime](crate::builder::Builder::new_current_thread) and in its tasks, and in a
/// `LocalSet` that runs in a `block_on`: no other thread can take over the tasks of that thread.
/// Also panics if the closure panics.
///
/// # Cancel safety
///
/// The closure cannot be cancelled, and delays the shutdown of the runtime.
///
/// ```
/// # mod volt {
/// #     pub use volt_core::{BuildError, Runtime, spawn};
/// #     pub mod task {
/// #         pub use volt_core::context::block_in_place::block_in_place;
/// #     }
/// # }
/// # let runtime = volt::Runtime::new()?;
/// # runtime.block_on(async {
/// let task = volt::spawn(async {
///     volt::task::block_in_place(|| {
///         std::thread::sleep(std::time::Duration::from_millis(2));
///         "slept"
///     })
/// });
/// assert_eq!(task.await.unwrap(), "slept");
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[track_caller]
pub fn block_in_place<F, R>(f: F) -> R
where
    F: FnOnce() -> R,
{
    // Not in the closure below, which would be the reported caller.
    assert!(!current::with_worker(|worker| worker.is_some_and(Worker::is_current_thread)), "{NO_OTHER_THREAD}");
    assert!(current::is_worker() || !context::is_within_block_on_of_tasks(), "{NO_OTHER_THREAD}");
    current::with_worker(|worker| match worker {
        Some(worker) => worker.block_in_place(f),
        None => context::outside_block_on(f),
    })
}
