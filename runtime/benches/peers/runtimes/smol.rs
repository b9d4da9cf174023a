//! smol, set up like the crate `smol` with `SMOL_THREADS` set, except that it can be stopped again.
//!
//! One global `async_executor::Executor`, run by threads that are in `async_io::block_on`;
//! `async_io` for timers and sockets, with the thread that it always starts; `blocking` for
//! blocking work.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use async_executor::Executor;

use super::peer::Peer;

/// The tasks of [`Smol`]. As in the crate `smol`, one for the whole program.
static EXECUTOR: Executor<'static> = Executor::new();

pub(crate) struct Smol {
    threads: Vec<thread::JoinHandle<()>>,
    /// Dropped first, which ends the threads.
    stop: Option<tokio::sync::watch::Sender<()>>,
}

impl Drop for Smol {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.threads.drain(..).for_each(|thread| thread.join().expect("no task of the bench panics"));
    }
}

impl Peer for Smol {
    const NAME: &'static str = "smol";
    type Join<T: Send + 'static> = async_executor::Task<T>;

    fn start(workers: usize) -> Self {
        let (stop, stopped) = tokio::sync::watch::channel(());
        let threads = (1..=workers).map(|worker| {
            let mut stopped = stopped.clone();
            let run = move || _ = async_io::block_on(EXECUTOR.run(async move { stopped.changed().await }));
            thread::Builder::new().name(format!("smol-{worker}")).spawn(run).expect("a thread starts")
        });
        Self { threads: threads.collect(), stop: Some(stop) }
    }

    fn spawn_from_outside<F>(&self, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        EXECUTOR.spawn(future)
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        async_io::block_on(future)
    }

    fn spawn<F>(future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        EXECUTOR.spawn(future)
    }

    async fn join<T: Send + 'static>(join: Self::Join<T>) -> T {
        join.await
    }

    fn detach<T: Send + 'static>(join: Self::Join<T>) {
        join.detach();
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        futures_lite::future::yield_now()
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        SmolSleep(async_io::Timer::after(time))
    }

    fn unblock(f: impl FnOnce() + Send + 'static) -> impl Future<Output = ()> + Send {
        blocking::unblock(f)
    }
}

/// `async_io::Timer` without the instant that it returns.
struct SmolSleep(async_io::Timer);

impl Future for SmolSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}
