//! Panics wherever user code is called: the worker survives, every handle resolves, and the counts
//! add up.
//!
//! `resume_unwind` panics without the hook, which would print each panic.

use crate::watchdog;
use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::watchdog::{watched, with_workers};
use volt::Runtime;
use volt::io::{AsyncRead, AsyncWriteExt, ReadBuf};
use volt::net::{TcpListener, TcpStream};
use volt::task::{self, JoinSet, LocalSet, ScopeError, yield_now};
use volt::telemetry::Phase;
use volt::time::{Instant, sleep};

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

fn boom() -> ! {
    resume_unwind(Box::new("on purpose"))
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        boom();
    }
}

/// A panic payload that panics in turn when it is dropped, this many times.
struct Payload(u32);

impl Drop for Payload {
    fn drop(&mut self) {
        if self.0 > 0 {
            resume_unwind(Box::new(Payload(self.0 - 1)));
        }
    }
}

/// A future that is ready immediately, and panics when it is dropped.
struct ReadyBomb;

impl Future for ReadyBomb {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        Poll::Ready(1)
    }
}

impl Drop for ReadyBomb {
    fn drop(&mut self) {
        boom();
    }
}

/// A waker that panics when it is called or, with a bomb, when its last clone is dropped.
#[derive(Default)]
struct Bell {
    rung: Arc<AtomicUsize>,
    bomb: Option<Bomb>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::SeqCst);
        // One at a time: a panic during a panic ends the program.
        if self.bomb.is_none() {
            resume_unwind(Box::new(Payload(2)));
        }
    }
}

/// Polls `future` once with a waker that panics, either when it is called or when it is dropped.
/// Returns the counter of its calls.
fn poll<F: Future>(future: Pin<&mut F>, panics_in_drop: bool) -> Arc<AtomicUsize> {
    let rung = Arc::new(AtomicUsize::new(0));
    let bell = Arc::new(Bell { rung: rung.clone(), bomb: panics_in_drop.then(|| Bomb) });
    assert!(future.poll(&mut Context::from_waker(&Waker::from(bell))).is_pending());
    rung
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// Checks that every worker lives and works, and that each task is counted as completed, cancelled
/// or panicked, once.
fn is_well(runtime: &Runtime) {
    let tasks: Vec<_> = (0..20).map(|n| runtime.spawn(async move { n })).collect();
    let sum: usize = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
    assert_eq!(sum, 190);
    wait_until(|| runtime.handle().snapshot().tasks.alive == 0);
    let tasks = runtime.handle().snapshot().tasks;
    assert_eq!(tasks.spawned, tasks.completed + tasks.cancelled + tasks.panicked, "{tasks:?}");
    // A worker that has not started yet is indistinguishable from one that has ended.
    wait_until(|| runtime.handle().snapshot().workers.iter().all(|worker| worker.phase != Phase::Stopped));
}

#[test]
fn a_panic_in_any_poll_is_returned_to_the_joiner() {
    with_workers(|runtime| {
        for polls in [0, 1, 5] {
            let task = runtime.spawn(async move {
                for _ in 0..polls {
                    yield_now().await;
                }
                boom()
            });
            assert!(runtime.block_on(async { task.await.map(|never: ()| never) }).unwrap_err().is_panic());
        }
        drop(runtime.spawn(async { boom() }));
        is_well(&runtime);
        assert_eq!(runtime.handle().snapshot().tasks.panicked, 4);
    });
}

#[test]
fn a_panicking_future_is_dropped_while_it_unwinds() {
    /// Sends whether its thread panics when it is dropped, and optionally panics itself.
    struct Sends(mpsc::Sender<bool>, #[allow(dead_code, reason = "for its destructor")] Option<Bomb>);
    impl Drop for Sends {
        fn drop(&mut self) {
            self.0.send(std::thread::panicking()).unwrap();
        }
    }
    impl Future for Sends {
        type Output = ();
        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            boom()
        }
    }
    with_workers(|runtime| {
        for has_bomb in [false, true] {
            let (sends, reported) = mpsc::channel();
            let task = runtime.spawn(Sends(sends, has_bomb.then(|| Bomb)));
            let panic = runtime.block_on(task).unwrap_err().into_panic();
            assert!(reported.recv().unwrap(), "the panic unwinds");
            assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        }
        is_well(&runtime);
    });
}

#[test]
fn the_error_of_a_task_reads_as_on_tokio() {
    with_workers(|runtime| {
        let error = |task| runtime.block_on::<task::JoinHandle<()>>(task).unwrap_err();
        let task = runtime.spawn(async { resume_unwind(Box::new(format!("on {}", "purpose"))) });
        let (id, text) = (task.id(), error(task));
        assert_eq!(text.to_string(), format!("task {id} panicked with message \"on purpose\""));
        assert_eq!(format!("{text:?}"), format!("JoinError::Panic(Id({id}), \"on purpose\", ...)"));
        let task = runtime.spawn(async { resume_unwind(Box::new(1234)) });
        let (id, number) = (task.id(), error(task));
        assert_eq!(number.to_string(), format!("task {id} panicked"));
        assert_eq!(format!("{number:?}"), format!("JoinError::Panic(Id({id}), ...)"));
        let task = runtime.spawn(pending());
        task.abort();
        let (id, cancelled) = (task.id(), error(task));
        assert_eq!(cancelled.to_string(), format!("task {id} was cancelled"));
        assert_eq!(format!("{cancelled:?}"), format!("JoinError::Cancelled(Id({id}))"));
    });
}

#[test]
fn a_future_panicking_in_drop_ends_its_task_with_an_error() {
    with_workers(|runtime| {
        let with_bomb = || {
            let (bomb, (polled, was_polled)) = (Bomb, mpsc::channel());
            let task = runtime.spawn(async move {
                let _bomb = bomb;
                polled.send(()).unwrap();
                pending::<()>().await;
            });
            was_polled.recv().unwrap();
            task
        };
        // Aborted while idle, with a joiner and without.
        let task = with_bomb();
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_panic());
        let task = with_bomb();
        task.abort();
        drop(task);
        // Aborted before its first poll, or at about that time.
        for _ in 0..50 {
            let bomb = Bomb;
            let task = runtime.spawn(async move {
                let _bomb = bomb;
                pending::<()>().await;
            });
            task.abort();
            assert!(runtime.block_on(task).unwrap_err().is_panic());
        }
        // After the output was there.
        assert!(runtime.block_on(runtime.spawn(ReadyBomb)).unwrap_err().is_panic());
        drop(runtime.spawn(ReadyBomb));
        is_well(&runtime);
    });
}

#[test]
fn outputs_and_payloads_that_panic_in_drop_are_contained() {
    with_workers(|runtime| {
        for is_dropped_first in [true, false] {
            let outputs = runtime.spawn(async {
                yield_now().await;
                Bomb
            });
            let panics = runtime.spawn(async {
                yield_now().await;
                resume_unwind(Box::new(Payload(3)))
            });
            let panics: task::JoinHandle<()> = panics;
            if !is_dropped_first {
                wait_until(|| outputs.is_finished() && panics.is_finished());
            }
            drop((outputs, panics));
            let job = runtime.spawn_blocking(|| Bomb);
            if !is_dropped_first {
                wait_until(|| job.is_finished());
            }
            drop(job);
        }
        assert!(runtime.block_on(runtime.spawn_blocking(|| boom())).map(|never: ()| never).unwrap_err().is_panic());
        is_well(&runtime);
    });
}

#[test]
fn a_panicking_waker_harms_neither_workers_nor_other_waiters() {
    with_workers(|runtime| {
        for panics_in_drop in [false, true] {
            let _entered = runtime.enter();
            // Joiners.
            let (open, is_open) = mpsc::channel::<()>();
            let mut joined = volt::spawn(async move {
                let _closed = is_open.recv();
            });
            let rung = poll(Pin::new(&mut joined), panics_in_drop);
            drop(open);
            wait_until(|| rung.load(Ordering::SeqCst) == 1);
            wait_until(|| joined.is_finished());
            runtime.block_on(joined).unwrap();

            // Timers of one tick.
            let mut sleeps: Vec<_> = (0..5).map(|_| Box::pin(sleep(HOUR))).collect();
            let rung: Vec<_> = sleeps.iter_mut().map(|sleep| poll(sleep.as_mut(), panics_in_drop)).collect();
            let soon = Instant::now() + 5 * MS;
            sleeps.iter_mut().for_each(|sleep| sleep.as_mut().reset(soon));
            wait_until(|| rung.iter().all(|rung| rung.load(Ordering::SeqCst) == 1));
            // The sleep has the last waker. The panic of its destructor reaches the thread that
            // drops it.
            sleeps.into_iter().for_each(|sleep| {
                let dropped = catch_unwind(AssertUnwindSafe(|| drop(sleep)));
                assert!(dropped.is_ok() || panics_in_drop);
            });

            // Sockets.
            let (mut client, server) = runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
                let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
                (client, listener.accept().await.unwrap().0)
            });
            let mut server = Box::pin(server);
            let mut bytes = [0];
            let reads = std::future::poll_fn(|cx| server.as_mut().poll_read(cx, &mut ReadBuf::new(&mut bytes)));
            let rung = poll(std::pin::pin!(reads), panics_in_drop);
            runtime.block_on(client.write_all(&[1])).unwrap();
            wait_until(|| rung.load(Ordering::SeqCst) == 1);
            is_well(&runtime);
        }
    });
}

#[test]
fn join_sets_scopes_and_local_sets_survive_a_panicking_task() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            (0..20).for_each(|n| drop(tasks.spawn(async move { if n % 2 == 0 { boom() } else { n } })));
            let mut panics = 0;
            while let Some(ended) = tasks.join_next().await {
                panics += u32::from(ended.is_err_and(|error| error.is_panic()));
            }
            assert_eq!(panics, 10);

            let ended = task::scope::<(), (), _>(async |scope| {
                let _value = scope.spawn(async { if true { boom() } else { Ok(()) } });
                pending().await
            });
            assert!(matches!(ended.await, Err(ScopeError::Panicked(error)) if error.is_panic()));
        });
        let set = LocalSet::new();
        set.block_on(&runtime, async {
            let bad = task::spawn_local(async {
                if true {
                    boom()
                }
            });
            let bomb = Bomb;
            let dropped = task::spawn_local(async move {
                let _bomb = bomb;
                pending::<()>().await;
            });
            let good = task::spawn_local(async {
                yield_now().await;
                1
            });
            assert!(bad.await.unwrap_err().is_panic());
            dropped.abort();
            assert!(dropped.await.unwrap_err().is_panic());
            assert_eq!(good.await.unwrap(), 1);
        });
        is_well(&runtime);
    });
}

#[test]
fn shutdown_survives_panicking_tasks_and_calls_every_waker() {
    watched(|| {
        for workers in [1, 2, 4] {
            let runtime = watchdog::runtime(workers);
            let handle = runtime.handle().clone();
            let tasks: Vec<_> = (0..20)
                .map(|_| {
                    let bomb = Bomb;
                    runtime.spawn(async move {
                        let _bomb = bomb;
                        pending::<()>().await;
                    })
                })
                .collect();
            let _entered = handle.enter();
            let mut sleeps: Vec<_> = (0..5).map(|_| Box::pin(sleep(HOUR))).collect();
            let rung: Vec<_> = sleeps.iter_mut().map(|sleep| poll(sleep.as_mut(), false)).collect();
            let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
            let mut accepts: Vec<_> = (0..5).map(|_| Box::pin(listener.accept())).collect();
            let accepts = accepts.iter_mut().map(|accept| poll(accept.as_mut(), false)).collect::<Vec<_>>();
            let ended = catch_unwind(AssertUnwindSafe(|| drop(runtime)));
            // A payload that escaped would panic on the test's own thread.
            assert!(ended.map_err(std::mem::forget).is_ok(), "{workers} workers");
            let all: Vec<_> = rung.iter().chain(&accepts).map(|rung| rung.load(Ordering::SeqCst)).collect();
            assert_eq!(all, [1; 10], "{workers} workers");
            let waiting = watchdog::runtime(1);
            for task in tasks {
                assert!(waiting.block_on(task).unwrap_err().is_panic());
            }
            assert_eq!(handle.snapshot().tasks.alive, 0);
        }
    });
}
