//! A current-thread runtime: the thread in `block_on` runs the tasks, timers and sockets.

use std::future::poll_fn;
use std::io::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;

use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};
use volt::{Builder, Runtime};

use crate::watchdog::{alone, watched};

fn builder() -> Builder {
    Builder::new_current_thread().park_timeout(None).sentinel_interval(None).control_socket(false)
}

fn runtime() -> Runtime {
    builder().build().unwrap()
}

fn here() -> ThreadId {
    thread::current().id()
}

#[test]
fn tasks_run_on_the_thread_that_calls_block_on() {
    watched(|| {
        let runtime = runtime();
        let before = runtime.spawn(async { here() });
        let threads = runtime.block_on(async {
            let inside = volt::spawn(async {
                volt::task::yield_now().await;
                here()
            });
            [here(), before.await.unwrap(), inside.await.unwrap()]
        });
        assert_eq!(threads, [here(); 3]);
        let snapshot = runtime.handle().snapshot();
        assert_eq!((snapshot.workers.len(), snapshot.tasks.completed), (1, 2));
        assert_eq!(snapshot.config.flavor, "current_thread");
    });
}

#[test]
fn an_event_takes_effect_when_block_on_yields() {
    watched(|| {
        runtime().block_on(async {
            let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
            let here = volt::net::UnixStream::from_std(here).unwrap();
            for _ in 0..1_000 {
                // Clears the readiness.
                assert!(here.try_read(&mut [0]).is_err());
                there.write_all(b"x").unwrap();
                volt::task::yield_now().await;
                assert_eq!(here.try_read(&mut [0]).unwrap(), 1);
            }
        });
    });
}

#[test]
fn no_task_runs_between_two_calls_of_block_on() {
    watched(|| {
        let runtime = runtime();
        let ran = Arc::new(AtomicUsize::new(0));
        let task = runtime.spawn({
            let ran = ran.clone();
            async move { ran.fetch_add(1, Ordering::SeqCst) }
        });
        runtime.handle().block_on(async {});
        assert_eq!(ran.load(Ordering::SeqCst), 0, "Handle::block_on runs no tasks");
        runtime.block_on(task).unwrap();
        assert_eq!(ran.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn tasks_run_in_the_order_in_which_they_were_spawned() {
    watched(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        runtime().block_on(async {
            let tasks: Vec<_> = (0..200)
                .map(|n| {
                    let order = order.clone();
                    volt::spawn(async move { order.lock().unwrap().push(n) })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        assert_eq!(*order.lock().unwrap(), (0..200).collect::<Vec<_>>());
    });
}

#[test]
fn timers_sockets_and_jobs_work_without_a_worker_thread() {
    watched(|| {
        runtime().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let echo = volt::spawn(async move {
                let (mut stream, _peer) = listener.accept().await.unwrap();
                let mut bytes = [0; 4];
                stream.read_exact(&mut bytes).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
            });
            volt::time::sleep(Duration::from_millis(1)).await;
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(b"ping").await.unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            assert_eq!(&bytes, b"ping");
            echo.await.unwrap();
            let other = volt::task::spawn_blocking(here).await.unwrap();
            assert_ne!(other, here());
        });
    });
}

#[test]
fn a_wake_up_from_another_thread_reaches_the_future_and_a_task() {
    const ROUNDS: usize = 2_000;
    watched(|| {
        let runtime = runtime();
        let (to_main, mut main) = volt::sync::mpsc::channel(1);
        let (to_task, mut task) = volt::sync::mpsc::channel(1);
        let sender = thread::spawn(move || {
            for round in 0..ROUNDS {
                if round % 2 == 0 { to_main.blocking_send(round) } else { to_task.blocking_send(round) }.unwrap();
            }
        });
        let task = runtime.spawn(async move {
            let mut received = 0;
            while task.recv().await.is_some() {
                received += 1;
            }
            received
        });
        let mut received = 0;
        runtime.block_on(async {
            while main.recv().await.is_some() {
                received += 1
            }
        });
        assert_eq!(received + runtime.block_on(task).unwrap(), ROUNDS);
        sender.join().unwrap();
    });
}

#[test]
fn a_second_block_on_polls_its_future_while_tasks_run() {
    watched(|| {
        let runtime = runtime();
        let (done, is_done) = volt::sync::oneshot::channel();
        let is_worker = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                runtime.block_on(async {
                    is_worker.wait();
                    is_done.await.unwrap();
                });
            });
            is_worker.wait();
            // The future of this one ends the first one.
            runtime.block_on(async { done.send(()).unwrap() });
        });
    });
}

#[test]
fn a_thread_that_waits_for_the_core_continues_with_the_tasks() {
    watched(|| {
        let runtime = runtime();
        let is_worker = Barrier::new(2);
        let (end, is_ended) = mpsc::channel::<()>();
        let threads = thread::scope(|scope| {
            let (runtime, is_worker) = (&runtime, &is_worker);
            let first = scope.spawn(move || {
                runtime.block_on(async move {
                    is_worker.wait();
                    // Blocks the only thread that runs tasks.
                    is_ended.recv().unwrap();
                    here()
                })
            });
            is_worker.wait();
            let task = runtime.spawn(async { here() });
            let waits = scope.spawn(move || (here(), runtime.block_on(task).unwrap()));
            end.send(()).unwrap();
            (first.join().unwrap(), waits.join().unwrap())
        });
        let (first, (second, ran_on)) = threads;
        assert!([first, second].contains(&ran_on));
    });
}

#[test]
fn many_threads_in_block_on_all_return() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 200;
    watched(|| {
        let runtime = runtime();
        let count = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        runtime.block_on(async {
                            volt::spawn(volt::task::yield_now()).await.unwrap();
                            count.fetch_add(1, Ordering::SeqCst);
                        });
                    }
                });
            }
        });
        assert_eq!(count.load(Ordering::SeqCst), THREADS * ROUNDS);
        assert_eq!(runtime.handle().snapshot().tasks.completed, (THREADS * ROUNDS) as u64);
    });
}

/// Sends the id of the thread on which it was dropped.
struct DroppedOn(mpsc::Sender<ThreadId>);

impl Drop for DroppedOn {
    fn drop(&mut self) {
        self.0.send(here()).unwrap();
    }
}

#[test]
fn a_drop_cancels_the_tasks_on_the_dropping_thread() {
    watched(|| {
        let runtime = runtime();
        let (sender, dropped_on) = mpsc::channel();
        let [polled, never_polled] = [(); 2].map(|()| DroppedOn(sender.clone()));
        let first = runtime.spawn(async move {
            let _polled = polled;
            std::future::pending::<()>().await;
        });
        runtime.block_on(volt::task::yield_now());
        let second = runtime.spawn(async move { drop(never_polled) });
        drop(runtime);
        assert_eq!([dropped_on.recv().unwrap(), dropped_on.recv().unwrap()], [here(); 2]);
        assert!(first.is_finished() && second.is_finished());
    });
}

#[test]
fn a_background_shutdown_cancels_the_tasks_before_it_returns() {
    watched(|| {
        let runtime = runtime();
        let task = runtime.spawn(std::future::pending::<()>());
        runtime.block_on(volt::task::yield_now());
        runtime.shutdown_background();
        assert!(task.is_finished());
    });
}

#[test]
fn a_panic_of_the_future_is_passed_on_and_the_runtime_continues() {
    watched(|| {
        let runtime = runtime();
        let task = runtime.spawn(async { 1 });
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.block_on(async {
                volt::task::yield_now().await;
                panic!("on purpose");
            })
        }));
        assert_eq!(panic.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
        assert_eq!(runtime.block_on(task).unwrap(), 1);
    });
}

#[test]
fn block_in_place_panics_with_a_remedy() {
    watched(|| {
        let runtime = runtime();
        let blocks = || volt::task::block_in_place(|| ());
        let error = runtime.block_on(async { volt::spawn(async move { blocks() }).await.unwrap_err() });
        let panic = error.into_panic();
        let text = panic.downcast_ref::<String>().unwrap();
        assert!(
            text.starts_with("can call blocking only when running on the multi-threaded runtime")
                && text.contains("spawn_blocking"),
            "{text}"
        );
    });
}

#[test]
fn a_future_that_wakes_itself_starves_no_task_and_no_timer() {
    watched(|| {
        runtime().block_on(async {
            let task = volt::spawn(async { volt::time::sleep(Duration::from_millis(5)).await });
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if task.is_finished() { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
    });
}

#[test]
fn tasks_that_always_wake_themselves_do_not_starve_the_future() {
    watched(|| {
        runtime().block_on(async {
            let spins = volt::spawn(async {
                loop {
                    volt::task::yield_now().await;
                }
            });
            volt::time::sleep(Duration::from_millis(5)).await;
            spins.abort();
        });
    });
}

#[test]
fn a_paused_clock_advances_while_the_future_and_all_tasks_wait() {
    watched(|| {
        let runtime = builder().start_paused(true).build().unwrap();
        let began = std::time::Instant::now();
        runtime.block_on(async {
            let task = volt::spawn(volt::time::sleep(Duration::from_secs(3600)));
            volt::time::sleep(Duration::from_secs(1800)).await;
            task.await.unwrap();
        });
        assert!(began.elapsed() < Duration::from_secs(1800));
    });
}

#[cfg(target_os = "linux")]
#[test]
fn the_sentinel_names_the_block_on_whose_future_is_stuck() {
    watched(|| {
        let runtime = builder().sentinel_interval(Some(Duration::from_millis(1))).build().unwrap();
        let handle = runtime.handle().clone();
        let (end, is_ended) = mpsc::channel::<()>();
        let observer = thread::spawn(move || {
            let incident = loop {
                let incidents = handle.snapshot().incidents;
                if let Some(incident) = incidents.latest.first() {
                    break incident.clone();
                }
                thread::sleep(Duration::from_millis(1));
            };
            end.send(()).unwrap();
            incident
        });
        let line = line!() + 1;
        runtime.block_on(async move { is_ended.recv().unwrap() });
        let incident = observer.join().unwrap();
        assert!(incident.spawned_at.contains(&format!("current_thread.rs:{line}:")), "{incident:?}");
        let sentinel = runtime.handle().snapshot().sentinel;
        assert_eq!((sentinel.replacements, sentinel.capped), (0, 0), "no other thread may run its tasks");
    });
}

#[volt::test(flavor = "current_thread")]
async fn the_attribute_builds_a_current_thread_runtime() {
    let task = volt::spawn(async { here() });
    assert_eq!(task.await.unwrap(), here());
}

#[test]
fn a_shutdown_waits_for_a_shield_no_longer_than_its_limit() {
    watched(|| {
        let (sender, dropped_on) = mpsc::channel();
        for shuts_down in
            [|runtime: Runtime| runtime.shutdown_timeout(Duration::from_millis(50)), Runtime::shutdown_background]
        {
            let runtime = runtime();
            let held = DroppedOn(sender.clone());
            let task = runtime.spawn(volt::task::shield(async move {
                let _held = held;
                std::future::pending::<()>().await;
            }));
            runtime.block_on(volt::task::yield_now());
            shuts_down(runtime);
            assert_eq!(dropped_on.recv().unwrap(), here());
            assert!(task.is_finished());
        }
    });
}

#[test]
fn a_shielded_task_that_only_yields_ends_at_the_limit_too() {
    watched(|| {
        let runtime = runtime();
        let task = runtime.spawn(volt::task::shield(async {
            loop {
                volt::task::yield_now().await;
            }
        }));
        runtime.block_on(volt::task::yield_now());
        runtime.shutdown_timeout(Duration::from_millis(50));
        assert!(task.is_finished());
    });
}

/// Sends the name of the current runtime when it is dropped.
struct SpawnsOnDrop(mpsc::Sender<Option<String>>);

impl Drop for SpawnsOnDrop {
    fn drop(&mut self) {
        let handle = volt::Handle::try_current().ok();
        self.0.send(handle.and_then(|handle| handle.name().map(str::to_owned))).unwrap();
    }
}

#[test]
fn a_destructor_at_the_shutdown_is_inside_the_runtime() {
    watched(|| {
        let runtime = builder().name("ends").build().unwrap();
        let (sender, name) = mpsc::channel();
        let spawns = SpawnsOnDrop(sender);
        drop(runtime.spawn(async move {
            let _spawns = spawns;
            std::future::pending::<()>().await;
        }));
        runtime.block_on(volt::task::yield_now());
        drop(runtime);
        assert_eq!(name.recv().unwrap().as_deref(), Some("ends"));
    });
}

#[test]
fn a_runtime_in_a_thread_local_ends_with_its_thread() {
    thread_local! {
        static RUNTIME: Runtime = Builder::new_current_thread().build().unwrap();
    }
    // A panic in a thread-local's destructor aborts the program.
    alone(|| {
        let thread = thread::spawn(|| {
            RUNTIME.with(|runtime| {
                let task = runtime.spawn(std::future::pending::<()>());
                runtime.block_on(volt::task::yield_now());
                task
            })
        });
        assert!(thread.join().unwrap().is_finished());
    });
}

#[test]
fn a_paused_clock_waits_for_a_thread_that_waits_for_the_core() {
    const SECONDS: u64 = 5;
    watched(|| {
        let runtime = builder().start_paused(true).build().unwrap();
        let is_worker = Barrier::new(2);
        thread::scope(|scope| {
            scope.spawn(|| {
                runtime.block_on(async {
                    is_worker.wait();
                    volt::time::sleep(Duration::from_secs(60)).await;
                });
            });
            is_worker.wait();
            let took = runtime.block_on(async {
                let began = volt::time::Instant::now();
                for _ in 0..SECONDS {
                    volt::time::sleep(Duration::from_secs(1)).await;
                }
                began.elapsed()
            });
            assert_eq!(took, Duration::from_secs(SECONDS));
        });
    });
}
