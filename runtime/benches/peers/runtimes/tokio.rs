//! Tokio: `Builder::new_multi_thread().enable_all()`, with the additions of a [`Watch`].

use std::future::Future;
use std::marker::PhantomData;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use super::peer::Peer;

/// How a runtime is observed. Here it is not observed; the benchmark `observe` has other
/// implementations, which need another build of Tokio.
pub(crate) trait Watch: 'static {
    /// Called once, before the runtime is built.
    fn set_up(builder: &mut Builder);
}

/// Without additions, as in most programs.
pub(crate) struct Unwatched;

impl Watch for Unwatched {
    fn set_up(_builder: &mut Builder) {}
}

pub(crate) struct Tokio<W = Unwatched>(Runtime, PhantomData<W>);

impl<W: Watch> Peer for Tokio<W> {
    const NAME: &'static str = "tokio";
    type Join<T: Send + 'static> = tokio::task::JoinHandle<T>;

    fn start(workers: usize) -> Self {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(workers).enable_all();
        W::set_up(&mut builder);
        Self(builder.build().expect("Tokio starts"), PhantomData)
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
        tokio::spawn(future)
    }

    async fn join<T: Send + 'static>(join: Self::Join<T>) -> T {
        join.await.expect("no task of the bench panics")
    }

    fn detach<T: Send + 'static>(join: Self::Join<T>) {
        drop(join);
    }

    fn yield_now() -> impl Future<Output = ()> + Send {
        tokio::task::yield_now()
    }

    fn sleep(time: Duration) -> impl Future<Output = ()> + Send {
        tokio::time::sleep(time)
    }

    async fn unblock(f: impl FnOnce() + Send + 'static) {
        tokio::task::spawn_blocking(f).await.expect("no job of the bench panics");
    }
}
