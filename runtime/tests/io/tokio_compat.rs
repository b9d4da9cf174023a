//! A Tokio runtime in addition to Volt's: libraries that depend on Tokio work wherever code of a
//! Volt runtime runs, and telemetry includes the work that Tokio does.

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use crate::watchdog::{builder, watched};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use volt::Runtime;

fn runtime(workers: usize) -> Runtime {
    builder(workers).tokio_compat(true).build().unwrap()
}

/// Does what a library does that depends on Tokio.
async fn use_tokio() {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
    });
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    server.await.unwrap();
    assert_eq!(text, "hello");
    assert_eq!(tokio::task::spawn_blocking(|| 42).await.unwrap(), 42);
}

#[test]
fn tokio_is_available_wherever_code_of_the_runtime_runs() {
    watched(|| {
        let runtime = runtime(2);
        let tasks: Vec<_> = (0..16).map(|_| runtime.spawn(use_tokio())).collect();
        tasks.into_iter().for_each(|task| runtime.block_on(task).unwrap());
        runtime.block_on(use_tokio());
        let handle = runtime.handle().clone();
        runtime.block_on(runtime.spawn_blocking(move || handle.block_on(use_tokio()))).unwrap();
        let _entered = runtime.enter();
        tokio::runtime::Handle::current();
    });
}

#[test]
fn tokio_is_available_on_a_spare_worker() {
    watched(|| {
        let runtime = runtime(1);
        let (open, is_open) = mpsc::channel::<()>();
        let (send, has_begun) = mpsc::channel();
        let stuck = runtime.spawn(async move {
            send.send(()).unwrap();
            volt::task::block_in_place(|| _ = is_open.recv());
        });
        has_begun.recv().unwrap();
        // The one worker blocks: only a spare can run this.
        runtime.block_on(runtime.spawn(use_tokio())).unwrap();
        drop(open);
        runtime.block_on(stuck).unwrap();
    });
}

#[test]
fn a_paused_clock_moves_on_while_tasks_wait_only_for_tokio() {
    watched(|| {
        let runtime = builder(1).tokio_compat(true).start_paused(true).build().unwrap();
        let is_over = runtime.block_on(runtime.spawn(async {
            let (mut here, _there) = tokio::net::UnixStream::pair().unwrap();
            volt::time::timeout(Duration::from_secs(3600), here.read(&mut [0])).await.is_err()
        }));
        assert!(is_over.unwrap());
    });
}

#[test]
fn volt_is_available_in_tasks_that_tokio_runs() {
    watched(|| {
        let runtime = runtime(1);
        let answer = runtime.block_on(async {
            let in_tokio = tokio::spawn(async {
                volt::time::sleep(Duration::from_millis(1)).await;
                volt::spawn(async { volt::task::try_id().is_some() }).await.unwrap()
            });
            let in_blocking = tokio::task::spawn_blocking(|| volt::Handle::current().block_on(async { 42 }));
            (in_tokio.await.unwrap(), in_blocking.await.unwrap())
        });
        assert_eq!(answer, (true, 42));
    });
}

#[test]
fn without_tokio_compat_there_is_no_tokio_runtime() {
    let runtime = builder(1).build().unwrap();
    assert!(runtime.block_on(async { tokio::runtime::Handle::try_current() }).is_err());
    assert_eq!(runtime.handle().snapshot().tokio, None);
}

#[test]
fn work_outside_volt_is_in_the_snapshot() {
    watched(|| {
        let runtime = runtime(1);
        let tokio = || runtime.handle().snapshot().tokio.unwrap();
        assert_eq!(tokio().tasks, 0);
        let tasks: Vec<_> = runtime.block_on(async { (0..3).map(|_| tokio::spawn(pending::<()>())).collect() });
        assert_eq!(tokio().tasks, 3);
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        tasks.into_iter().for_each(|task| assert!(runtime.block_on(task).unwrap_err().is_cancelled()));
        // Tokio wakes the joiner of a task before it removes the task from its count.
        while tokio().tasks > 0 {
            std::thread::yield_now();
        }
        let before = tokio().busy_ns;
        runtime.block_on(async { tokio::spawn(async { std::thread::sleep(Duration::from_millis(5)) }).await }).unwrap();
        // Tokio counts it when the batch of polls is over.
        while tokio().busy_ns < before + 5_000_000 {
            std::thread::yield_now();
        }
    });
}

/// Decrements the count when it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_shutdown_drops_concurrent_tasks() {
    watched(|| {
        let runtime = runtime(1);
        let alive = Arc::new(AtomicUsize::new(2));
        let (beside, within) = (Counted(alive.clone()), Counted(alive.clone()));
        runtime.block_on(async move {
            tokio::spawn(async move {
                let _beside = beside;
                pending::<()>().await;
            });
            volt::spawn(async move {
                let _within = within;
                tokio::time::sleep(Duration::from_secs(3600)).await;
            });
        });
        drop(runtime);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn shutdown_waits_for_tokio_blocking_work_up_to_its_limit() {
    watched(|| {
        let runtime = runtime(1);
        let (open, is_open) = mpsc::channel::<()>();
        runtime.block_on(async move {
            tokio::task::spawn_blocking(move || _ = is_open.recv());
        });
        let began = Instant::now();
        runtime.shutdown_timeout(Duration::from_millis(50));
        assert!(began.elapsed() >= Duration::from_millis(50), "the shutdown waits for the job");
        drop(open);
    });
}

#[test]
fn a_runtime_with_tokio_may_be_shut_down_in_async_code() {
    watched(|| {
        let (outer, inner) = (runtime(1), runtime(1));
        outer.block_on(async move { inner.shutdown_background() });
    });
}
