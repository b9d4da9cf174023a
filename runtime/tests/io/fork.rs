//! A program that forks while its runtimes run. The child, which has no workers, gets clear errors
//! and never hangs, and the parent is not affected. Each test runs in a separate program, since a
//! child has a copy of everything in it.

use std::io::{Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use crate::forked::{in_child, message_of};
use crate::signals::sigquit::{self, Stderr, sigquit, until_waiting};
use crate::watchdog::{alone, alone_with, builder, runtime, watched};
use volt::net::TcpListener;
use volt::telemetry::{Phase, Unparks};
use volt::{Builder, Runtime};
use volt_telemetry::client::Client;

/// Ends the threads of a scope when its own thread leaves it, also by a panic.
struct StopAtLast<'a>(&'a AtomicBool);

impl Drop for StopAtLast<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Requires that `f` panics with the message that the runtime belongs to the program with pid
/// `parent`.
fn is_refused<R>(what: &str, parent: u32, f: impl FnOnce() -> R) {
    let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else { panic!("{what} was not refused") };
    let expected =
        format!("this runtime's threads stayed behind in the parent process {parent}: build a new one after fork");
    assert_eq!(message_of(&*panic), expected, "{what}");
}

/// Builds a runtime that is visible on the control socket.
fn shown(name: &str) -> Runtime {
    Builder::new_multi_thread().worker_threads(2).park_timeout(None).name(name).build().unwrap()
}

#[test]
fn using_the_parents_runtime_after_fork_is_refused() {
    alone(|| {
        watched(|| {
            let parent = std::process::id();
            let mut runtime = Some(shown("forking"));
            let handle = runtime.as_ref().unwrap().handle().clone();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _stop = StopAtLast(&stop);
                // So that locks are held when the program forks: of queues, of the registry of
                // tasks, of the pool, of the observer.
                let (stop, busy) = (&stop, &handle);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let tasks = [(); 32].map(|()| busy.spawn(async {}));
                        tasks.into_iter().for_each(|task| busy.block_on(task).unwrap());
                        busy.block_on(busy.spawn_blocking(|| ())).unwrap();
                    }
                });
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        assert_eq!(volt::observe::program().runtimes.len(), 1);
                        drop(Builder::new_multi_thread().worker_threads(1).build().unwrap());
                    }
                });
                for _ in 0..100 {
                    in_child(|| {
                        is_refused("spawn", parent, || handle.spawn(async {}));
                        is_refused("try_spawn", parent, || handle.try_spawn(async {}));
                        is_refused("spawn_blocking", parent, || handle.spawn_blocking(|| ()));
                        is_refused("block_on", parent, || handle.block_on(async {}));
                        is_refused("snapshot", parent, || handle.snapshot());
                        let entered = handle.enter();
                        is_refused("volt::spawn", parent, || volt::spawn(async {}));
                        is_refused("sleep", parent, || volt::time::sleep(std::time::Duration::from_secs(1)));
                        drop(entered);
                        drop(runtime.take());
                        assert_eq!(volt::observe::program().runtimes.len(), 0);
                        assert_eq!(volt::observe::socket_path(), None);
                        assert_eq!(volt::observe::health(), volt::observe::Health::default());
                    });
                }
            });
            let runtime = runtime.take().expect("only the children's copies were dropped");
            assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
            let mut client =
                Client::connect(&volt::observe::socket_path().expect("the parent's socket stays")).unwrap();
            assert_eq!(client.snapshot().unwrap().runtimes[0].runtime, "forking");
        });
    });
}

#[test]
fn a_child_builds_its_own_runtime() {
    alone(|| {
        watched(|| {
            let parents = shown("api");
            in_child(|| {
                let childs = shown("api");
                let sum = childs.block_on(async {
                    let tasks: Vec<_> = (0..100).map(|n| volt::spawn(async move { n })).collect();
                    let mut sum = 0;
                    for task in tasks {
                        sum += task.await.unwrap();
                    }
                    volt::time::sleep(std::time::Duration::from_millis(1)).await;
                    sum + volt::task::spawn_blocking(|| 1).await.unwrap()
                });
                assert_eq!(sum, 99 * 100 / 2 + 1);
                let mut client = Client::connect(&volt::observe::socket_path().unwrap()).unwrap();
                let program = client.snapshot().unwrap();
                assert_eq!(program.pid, std::process::id());
                let names: Vec<_> = program.runtimes.iter().map(|runtime| runtime.runtime.as_str()).collect();
                assert_eq!(names, ["api"], "the parent's is not here, nor is its name");

                // And again in a child of the child.
                let (child, handle) = (std::process::id(), childs.handle().clone());
                in_child(|| {
                    is_refused("a grandchild's spawn", child, || handle.spawn(async {}));
                });
                drop(childs);
                assert_eq!(volt::observe::socket_path(), None);
            });
            let mut client = Client::connect(&volt::observe::socket_path().unwrap()).unwrap();
            assert_eq!(client.snapshot().unwrap().pid, std::process::id());
            drop(parents);
        });
    });
}

/// Waits for the lock once, while it is held.
fn contend(lock: &volt::sync::Mutex<()>) {
    let guard = lock.try_lock().expect("only this thread uses it");
    let mut second = std::pin::pin!(lock.lock());
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(guard);
}

#[test]
fn a_child_waits_for_its_own_locks() {
    alone(|| {
        watched(|| {
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _stop = StopAtLast(&stop);
                // So that the program forks while this thread is in the table of waits.
                let stop = &stop;
                scope.spawn(move || {
                    let lock = volt::sync::Mutex::new(());
                    while !stop.load(Ordering::Relaxed) {
                        contend(&lock);
                    }
                });
                for _ in 0..100 {
                    in_child(|| {
                        // Enough that each part of the table has some of them.
                        let locks: Vec<_> = (0..512).map(|_| volt::sync::Mutex::new(())).collect();
                        locks.iter().for_each(contend);
                        let runtime = runtime(1);
                        assert_eq!(runtime.block_on(runtime.spawn(async { 1 })).unwrap(), 1);
                    });
                }
            });
        });
    });
}

#[test]
fn a_forked_childs_sockets_and_wakers_do_not_affect_the_parent() {
    alone(|| {
        watched(|| {
            // Its one worker sleeps in the I/O driver, which parent and child share in the kernel.
            let runtime = runtime(1);
            let mut listener = Some(runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap());
            let address = listener.as_ref().unwrap().local_addr().unwrap();
            let waker: Arc<Mutex<Option<Waker>>> = Arc::default();
            let waiting = runtime.spawn({
                let waker = waker.clone();
                let mut polls = 0;
                std::future::poll_fn(move |cx| {
                    *waker.lock().unwrap() = Some(cx.waker().clone());
                    polls += 1;
                    if polls == 2 { Poll::Ready(()) } else { Poll::Pending }
                })
            });
            let waker = loop {
                if let Some(waker) = waker.lock().unwrap().clone() {
                    break waker;
                }
                std::thread::yield_now();
            };
            let before = asleep_in_driver(&runtime);
            for _ in 0..20 {
                in_child(|| {
                    drop(listener.take());
                    waker.wake_by_ref();
                    waiting.abort();
                });
            }
            assert_eq!(asleep_in_driver(&runtime), before, "the parent's worker slept on");
            assert!(!waiting.is_finished());

            let listener = listener.unwrap();
            let accepting = runtime.spawn(async move { listener.accept().await.map(drop) });
            while runtime.handle().snapshot().workers[0].polls < 2 {
                std::thread::yield_now();
            }
            asleep_in_driver(&runtime);
            // Only the kernel's ready list reports this.
            let _stream = std::net::TcpStream::connect(address).unwrap();
            runtime.block_on(accepting).unwrap().unwrap();
            waker.wake();
            runtime.block_on(waiting).unwrap();
        });
    });
}

#[test]
#[cfg(target_os = "linux")]
fn block_in_place_in_a_child_starts_no_thread() {
    alone(|| {
        watched(|| {
            let runtime = runtime(1);
            let task = runtime.spawn(async {
                in_child(|| {
                    volt::task::block_in_place(|| {
                        // Another one would run the copies of the parent's tasks.
                        let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
                        assert_eq!(threads, 1);
                    });
                });
            });
            runtime.block_on(task).unwrap();
        });
    });
}

/// Returns a sleep whose timer is armed on the current runtime.
fn armed() -> Pin<Box<volt::time::Sleep>> {
    let mut sleep = Box::pin(volt::time::sleep(std::time::Duration::from_secs(3600)));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    sleep
}

#[test]
fn a_child_drops_a_sleep_of_its_parent() {
    alone(|| {
        watched(|| {
            let runtime = runtime(1);
            let _entered = runtime.enter();
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let _stop = StopAtLast(&stop);
                // So that the lock of the timers is taken when the program forks.
                let (stop, handle) = (&stop, runtime.handle());
                for _ in 0..2 {
                    scope.spawn(move || {
                        let _entered = handle.enter();
                        while !stop.load(Ordering::Relaxed) {
                            drop((0..64).map(|_| armed()).collect::<Vec<_>>());
                        }
                    });
                }
                for _ in 0..100 {
                    let mut sleep = Some(armed());
                    in_child(|| drop(sleep.take()));
                }
            });
        });
    });
}

/// Waits until the only worker sleeps in the I/O driver. Returns its counts of wake-ups by reason.
fn asleep_in_driver(runtime: &Runtime) -> Unparks {
    loop {
        let worker = &runtime.handle().snapshot().workers[0];
        if worker.phase == Phase::Driver && worker.in_flight.is_none() {
            return worker.unparks.clone();
        }
        std::thread::yield_now();
    }
}

#[test]
fn only_the_parent_serves_the_page_of_metrics() {
    alone_with(&[("VOLT_METRICS", "0")], || {
        watched(|| {
            let _runtime = shown("parent");
            let address = volt::observe::metrics_addr().expect("the page is served");
            in_child(|| {
                let _runtime = runtime(1);
                assert_eq!(volt::observe::metrics_addr(), None);
            });
            let mut client = std::net::TcpStream::connect(address).unwrap();
            client.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
            let mut page = String::new();
            client.read_to_string(&mut page).unwrap();
            assert!(page.contains("runtime=\"parent\""), "{page}");
        });
    });
}

#[test]
fn a_forked_child_prints_the_dump_of_its_own_runtimes() {
    alone_with(sigquit::ON, || {
        watched(|| {
            let _parent = builder(1).name("parent").build().unwrap();
            let stderr = Mutex::new(Stderr::of_this_program());
            in_child(|| {
                // Nothing happens: the handler belongs to the parent, and no runtime is built yet.
                sigquit();
                let child = builder(1).name("child").build().unwrap();
                child.spawn(std::future::pending::<()>());
                until_waiting(&child, 1);
                sigquit();
                let dump = stderr.lock().unwrap().dump();
                assert!(dump.contains("runtime child: 1 task") && !dump.contains("parent"), "{dump}");
                assert_eq!(dump.matches("on SIGQUIT").count(), 1, "{dump}");
            });
            sigquit();
            let dump = stderr.lock().unwrap().dump();
            assert!(dump.contains("runtime parent: 0 tasks"), "{dump}");
        });
    });
}
