//! Code that blocks, in the middle of a task.

use crate::context;
use crate::scheduler::current;

/// Runs a closure that blocks on the thread of the worker that this is, while another worker does
/// its work.
///
/// What the worker has queued goes to others at once; if nobody is free, a spare worker goes on
/// duty ([`Builder::max_spare_workers`](crate::builder::Builder::max_spare_workers)). So the
/// closure may sleep, wait for locks, do long computations, and even call
/// [`Handle::block_on`](crate::handle::Handle::block_on). The task itself does not go on meanwhile,
/// and neither does what shares its poll: the other branches of a `join!` or `select!`, the other
/// tasks of a `LocalSet`.
///
/// The closure is still the task's: [`id`](crate::task::id) is the same, a
/// [`Shield`](crate::task::shield::Shield) that it makes protects the task, and a wake-up of the
/// task has it polled again.
///
/// Where there is no worker, in `Runtime::block_on` or outside a runtime, the closure is simply
/// called.
///
/// It cannot be cancelled, and delays the shutdown of the runtime. `spawn_blocking` costs more a
/// call, and leaves the task free to do other things.
///
/// A task that blocks without saying so is found and worked around too, after some milliseconds,
/// and is reported: see [`Builder::sentinel_interval`](crate::builder::Builder::sentinel_interval).
///
/// ```
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
pub fn block_in_place<F, R>(f: F) -> R
where
    F: FnOnce() -> R,
{
    current::with_worker(|worker| match worker {
        Some(worker) => worker.block_in_place(f),
        None => context::outside_block_on(f),
    })
}
