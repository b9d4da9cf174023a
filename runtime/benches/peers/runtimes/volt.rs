//! Volt as shipped: `Builder::new_multi_thread`, with its control socket open and everything
//! counted.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::peer::Peer;

/// Whether the flight recorder is on, which it is not by default.
pub(crate) static IS_RECORDED: AtomicBool = AtomicBool::new(false);

pub(crate) struct Volt(volt::Runtime);

/// Checks that no wake-up was lost and rescued by the park time-out, which would make the figures
/// worthless.
impl Drop for Volt {
    fn drop(&mut self) {
        let rescues: u64 = self.0.handle().snapshot().workers.iter().map(|worker| worker.lost_wakeup_rescues).sum();
        assert_eq!(rescues, 0, "a wake-up was lost, or came later than the park time-out");
    }
}

impl Peer for Volt {
    const NAME: &'static str = "volt";
    type Join<T: Send + 'static> = volt::task::JoinHandle<T>;

    fn start(workers: usize) -> Self {
        // ORDERING: Relaxed; set once, before the first runtime is built, on the same thread.
        let is_recorded = IS_RECORDED.load(Ordering::Relaxed);
        let runtime = volt::Builder::new_multi_thread().worker_threads(workers).flight_recorder(is_recorded).build();
        Self(runtime.expect("Volt starts"))
    }

    fn spawn_from_outside<F>(&self, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.0.spawn(future)
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.0.block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        volt::spawn(future)
    }

    async fn join<T: Send + 'static>(join: Self::Join<T>) -> T {
        join.await.expect("no task of the bench panics")
    }

    fn detach<T: Send + 'static>(join: Self::Join<T>) {
        drop(join);
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        volt::task::yield_now()
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        volt::time::sleep(time)
    }

    async fn unblock(f: impl FnOnce() + Send + 'static) {
        volt::task::spawn_blocking(f).await.expect("no job of the bench panics");
    }
}
