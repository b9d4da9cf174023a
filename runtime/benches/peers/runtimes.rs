//! The runtimes, behind the smallest trait that the workloads can be written against.
//!
//! Each is started with its own defaults and a number of workers:
//! * Volt: `Builder::new_multi_thread`, its control socket open and everything counted, as shipped.
//! * Tokio: `Builder::new_multi_thread().enable_all()`.
//! * smol: what the crate `smol` does with `SMOL_THREADS` set, which cannot be stopped again: one global `async_executor::Executor`, run
//!   by threads that are in `async_io::block_on`; `async_io` for timers and sockets, with the thread of its own that it always starts;
//!   `blocking` for work that blocks.

use std::future::Future;
use std::io;
use std::net;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use async_executor::Executor;
use async_io::Async;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// In the order of the turns.
pub(crate) const NAMES: [&str; 3] = [Volt::NAME, Tokio::NAME, Smol::NAME];

/// A runtime; dropping it ends its workers.
pub(crate) trait Peer: Sized + 'static {
    const NAME: &'static str;
    type Join<T: Send + 'static>: Send + 'static;
    type Listener: Send + Sync + 'static;
    type Stream: Send + 'static;

    fn start(workers: usize) -> Self;

    /// From a thread that is no worker.
    fn spawn_from_outside<F>(&self, future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// Runs the future on the calling thread.
    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// From a task.
    fn spawn<F>(future: F) -> Self::Join<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    fn join<T: Send + 'static>(join: Self::Join<T>) -> impl Future<Output = T> + Send;
    fn detach<T: Send + 'static>(join: Self::Join<T>);
    fn yield_now() -> impl Future<Output = ()> + Send;
    fn sleep(time: Duration) -> impl Future<Output = ()> + Send;
    fn unblock(f: impl FnOnce() + Send + 'static) -> impl Future<Output = ()> + Send;

    /// The listener is set to not block.
    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener>;
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
    fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Runs the future as a task and waits for it on the calling thread.
    fn run<F>(&self, future: F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.block_on(Self::join(self.spawn_from_outside(future)))
    }
}

pub(crate) struct Volt(volt::Runtime);

impl Peer for Volt {
    const NAME: &'static str = "volt";
    type Join<T: Send + 'static> = volt::task::JoinHandle<T>;
    type Listener = volt::net::TcpListener;
    type Stream = volt::net::TcpStream;

    fn start(workers: usize) -> Self {
        let runtime = volt::Builder::new_multi_thread().worker_threads(workers).build();
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

    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener> {
        volt::net::TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        listener.accept().await.map(|(stream, _peer)| stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }
}

pub(crate) struct Tokio(tokio::runtime::Runtime);

impl Peer for Tokio {
    const NAME: &'static str = "tokio";
    type Join<T: Send + 'static> = tokio::task::JoinHandle<T>;
    type Listener = tokio::net::TcpListener;
    type Stream = tokio::net::TcpStream;

    fn start(workers: usize) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build();
        Self(runtime.expect("Tokio starts"))
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

    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener> {
        tokio::net::TcpListener::from_std(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        listener.accept().await.map(|(stream, _peer)| stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }
}

/// The tasks of [`Smol`]; as in the crate `smol`, one for the whole process.
static EXECUTOR: Executor<'static> = Executor::new();

pub(crate) struct Smol {
    threads: Vec<thread::JoinHandle<()>>,
    /// Dropped first: the threads wait for that.
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
    type Listener = Async<net::TcpListener>;
    type Stream = Async<net::TcpStream>;

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

    fn listener(listener: net::TcpListener) -> io::Result<Self::Listener> {
        Async::new_nonblocking(listener)
    }

    async fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        listener.accept().await.map(|(stream, _peer)| stream)
    }

    async fn read(stream: &mut Self::Stream, buffer: &mut [u8]) -> io::Result<usize> {
        futures_lite::AsyncReadExt::read(stream, buffer).await
    }

    async fn write_all(stream: &mut Self::Stream, bytes: &[u8]) -> io::Result<()> {
        futures_lite::AsyncWriteExt::write_all(stream, bytes).await
    }
}

/// `async_io::Timer` without the instant that it gives.
struct SmolSleep(async_io::Timer);

impl Future for SmolSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}
