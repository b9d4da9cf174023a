//! The program's callbacks at the start, the end and the sleeps of threads, and the names of
//! threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use volt::sync::Notify;
use volt::{Builder, Handle, Runtime};

use crate::watchdog::{builder, watched};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Called {
    Start,
    Park,
    Unpark,
    Stop,
}

/// The name of a thread, and what it has called, in its order.
type Thread = (String, Vec<Called>);

/// The hooks that each thread has called.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<HashMap<ThreadId, Thread>>>);

impl Log {
    fn note(&self, called: Called) {
        let thread = thread::current();
        let mut threads = self.0.lock().unwrap();
        let entry = threads.entry(thread.id()).or_insert_with(|| (thread.name().unwrap().to_owned(), Vec::new()));
        entry.1.push(called);
    }

    fn logged(&self, builder: Builder) -> Builder {
        let hook = |called| {
            let log = self.clone();
            move || log.note(called)
        };
        let builder = builder.on_thread_start(hook(Called::Start)).on_thread_stop(hook(Called::Stop));
        builder.on_thread_park(hook(Called::Park)).on_thread_unpark(hook(Called::Unpark))
    }

    fn by_name(&self) -> BTreeMap<String, Vec<Called>> {
        self.0.lock().unwrap().values().cloned().collect()
    }
}

/// Waits until `is_done` returns true. The watchdog ends a test that waits for ever.
fn wait_until(is_done: impl Fn() -> bool) {
    while !is_done() {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until each worker has parked at least once.
fn has_parked(runtime: &Runtime) {
    let metrics = runtime.metrics();
    (0..metrics.num_workers()).for_each(|worker| wait_until(|| metrics.worker_park_count(worker) > 0));
}

#[test]
fn workers_and_blocking_threads_call_start_and_stop_once() {
    watched(|| {
        let log = Log::default();
        let sentinel = Some(Duration::from_millis(10));
        let runtime = log.logged(builder(2).sentinel_interval(sentinel)).build().unwrap();
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        drop(runtime);
        let threads = log.by_name();
        let names: Vec<_> = threads.keys().map(String::as_str).collect();
        // The sentinel and the thread that joins the others call nothing.
        assert_eq!(names, ["volt-blocking-1", "volt-worker-0", "volt-worker-1"]);
        for (name, called) in threads {
            let at = |called: Called, all: &[Called]| all.iter().filter(|other| **other == called).count();
            assert_eq!((at(Called::Start, &called), at(Called::Stop, &called)), (1, 1), "{name}: {called:?}");
            assert_eq!((called.first(), called.last()), (Some(&Called::Start), Some(&Called::Stop)), "{name}");
        }
    });
}

#[test]
fn a_worker_calls_park_and_unpark_in_turn_and_others_neither() {
    watched(|| {
        let log = Log::default();
        let runtime = log.logged(builder(2)).build().unwrap();
        for _ in 0..20 {
            runtime.block_on(runtime.spawn(async {})).unwrap();
            runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        }
        has_parked(&runtime);
        drop(runtime);
        for (name, called) in log.by_name() {
            let sleeps = &called[1..called.len() - 1];
            let is_worker = name.starts_with("volt-worker");
            assert_eq!(!sleeps.is_empty(), is_worker, "{name}: {called:?}");
            let pairs = sleeps.chunks(2).all(|pair| pair == [Called::Park, Called::Unpark]);
            assert!(pairs, "{name}: {called:?}");
        }
    });
}

#[test]
fn a_spare_worker_calls_start_and_stop() {
    watched(|| {
        let log = Log::default();
        let sentinel = Some(Duration::from_millis(1));
        let runtime = log.logged(builder(1).sentinel_interval(sentinel)).build().unwrap();
        let (end, ended) = mpsc::channel::<()>();
        let stuck = runtime.spawn(async move { ended.recv().unwrap_err() });
        // Runs on a spare worker: the only worker is stuck.
        wait_until(|| {
            runtime.spawn(async {});
            log.by_name().contains_key("volt-spare-0")
        });
        drop(end);
        runtime.block_on(stuck).unwrap();
        drop(runtime);
        let called = &log.by_name()["volt-spare-0"];
        assert_eq!((called.first(), called.last()), (Some(&Called::Start), Some(&Called::Stop)));
    });
}

#[test]
fn callbacks_run_inside_the_runtime() {
    watched(|| {
        let seen = Arc::new(Mutex::new(BTreeSet::new()));
        let hook = |called| {
            let seen = seen.clone();
            move || {
                let id = Handle::try_current().ok().map(|handle| handle.id().to_string());
                let is_worker = thread::current().name().unwrap().contains("worker");
                seen.lock().unwrap().insert((called, is_worker, id));
            }
        };
        let runtime = builder(1)
            .on_thread_start(hook(Called::Start))
            .on_thread_stop(hook(Called::Stop))
            .on_thread_park(hook(Called::Park))
            .on_thread_unpark(hook(Called::Unpark))
            .build()
            .unwrap();
        let id = Some(runtime.handle().id().to_string());
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        has_parked(&runtime);
        drop(runtime);
        let expected = [(Called::Start, false), (Called::Stop, false), (Called::Start, true)];
        let expected =
            expected.into_iter().chain([Called::Park, Called::Unpark, Called::Stop].map(|called| (called, true)));
        let expected: BTreeSet<_> = expected.map(|(called, is_worker)| (called, is_worker, id.clone())).collect();
        assert_eq!(*seen.lock().unwrap(), expected);
    });
}

/// Without stealing, the last check of a park leaves out the worker's own queues. Without a park
/// time-out, a worker that slept on would sleep for ever.
#[test]
fn a_worker_runs_what_its_park_callback_wakes_or_spawns() {
    watched(|| {
        for enable_stealing in [true, false] {
            for spawns in [true, false] {
                let (notify, is_called) = (Arc::new(Notify::new()), AtomicBool::new(false));
                let notifies = notify.clone();
                let is_waiting = Arc::new(AtomicBool::new(false));
                let waits = is_waiting.clone();
                let park = move || {
                    // ORDERING: SeqCst, here and below: a test.
                    if !waits.load(Ordering::SeqCst) || is_called.swap(true, Ordering::SeqCst) {
                        return;
                    }
                    let notifies = notifies.clone();
                    if spawns {
                        volt::spawn(async move { notifies.notify_one() });
                    } else {
                        notifies.notify_one();
                    }
                };
                let runtime = builder(1).enable_stealing(enable_stealing).on_thread_park(park).build().unwrap();
                let task = runtime.spawn(async move {
                    is_waiting.store(true, Ordering::SeqCst);
                    notify.notified().await;
                });
                runtime.block_on(task).unwrap();
            }
        }
    });
}

#[test]
fn a_thread_that_runs_the_tasks_itself_calls_for_parks_only() {
    watched(|| {
        for spawns in [true, false] {
            let (log, notify) = (Log::default(), Arc::new(Notify::new()));
            let notifies = notify.clone();
            let builder = log.logged(Builder::new_current_thread().park_timeout(None).sentinel_interval(None));
            let calls = log.clone();
            let park = move || {
                calls.note(Called::Park);
                let notifies = notifies.clone();
                if spawns {
                    volt::spawn(async move { notifies.notify_one() });
                } else {
                    notifies.notify_one();
                }
            };
            let runtime = builder.on_thread_park(park).build().unwrap();
            runtime.block_on(async { notify.notified().await });
            drop(runtime);
            let [(_, called)] = &log.by_name().into_iter().collect::<Vec<_>>()[..] else { panic!("one thread") };
            assert!(called.chunks(2).all(|pair| pair == [Called::Park, Called::Unpark]), "{called:?}");
        }
    });
}

#[test]
fn a_park_callback_may_yield_for_the_thread_in_block_on() {
    struct Wakes(Arc<Notify>);
    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.notify_one();
        }
    }
    watched(|| {
        let notify = Arc::new(Notify::new());
        let waker = Waker::from(Arc::new(Wakes(notify.clone())));
        let is_called = AtomicBool::new(false);
        let park = move || {
            if !is_called.swap(true, Ordering::SeqCst) {
                let yields = pin!(volt::task::yield_now());
                assert!(yields.poll(&mut Context::from_waker(&waker)).is_pending());
            }
        };
        let builder = Builder::new_current_thread().park_timeout(None).sentinel_interval(None);
        builder.on_thread_park(park).build().unwrap().block_on(notify.notified());
    });
}

/// A callback that wakes the future of `block_on` before each sleep keeps the thread awake.
#[test]
fn timers_fire_though_a_park_callback_prevents_each_sleep() {
    watched(|| {
        let notify = Arc::new(Notify::new());
        let notifies = notify.clone();
        let builder = Builder::new_current_thread().park_timeout(None).sentinel_interval(None);
        let runtime = builder.on_thread_park(move || notifies.notify_waiters()).build().unwrap();
        let sleeper = runtime.spawn(async { volt::time::sleep(Duration::from_millis(1)).await });
        while !sleeper.is_finished() {
            runtime.block_on(notify.notified());
        }
    });
}

#[test]
fn a_callback_that_panics_ends_no_thread_and_hangs_nothing() {
    watched(|| {
        let panics = Arc::new(AtomicUsize::new(0));
        let hook = || {
            let panics = panics.clone();
            move || {
                panics.fetch_add(1, Ordering::Relaxed);
                panic!("a callback panics, as this test wants");
            }
        };
        let runtime = builder(2)
            .on_thread_start(hook())
            .on_thread_stop(hook())
            .on_thread_park(hook())
            .on_thread_unpark(hook())
            .build()
            .unwrap();
        for _ in 0..10 {
            runtime.block_on(runtime.spawn(async {})).unwrap();
            runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        }
        has_parked(&runtime);
        drop(runtime);
        // Three threads start and stop, and each worker has parked.
        assert!(panics.load(Ordering::Relaxed) >= 3 * 2 + 2 * 2);
    });
}

/// The only thread that the pool may have is in its last callback. A job must not wait for it.
#[test]
fn no_job_waits_for_a_thread_in_its_stop_callback() {
    watched(|| {
        let (stops, stopping) = mpsc::channel();
        let (go, goes) = mpsc::channel::<()>();
        let goes = Mutex::new(Some(goes));
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let stop = move || {
            let is_blocking = thread::current().name().unwrap().contains("blocking");
            // Without the lock from here on: other threads must not wait for this callback.
            let goes = goes.lock().unwrap().take_if(|_| is_blocking);
            if let Some(goes) = goes {
                stops.send(()).unwrap();
                goes.recv().unwrap();
                // If the shutdown did not wait for this, it would end now.
                thread::sleep(Duration::from_millis(20));
                over.store(true, Ordering::SeqCst);
            }
        };
        let runtime = builder(1)
            .max_blocking_threads(1)
            .thread_keep_alive(Duration::from_nanos(1))
            .on_thread_stop(stop)
            .build()
            .unwrap();
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        stopping.recv().unwrap();
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        let ends = thread::spawn(move || drop(runtime));
        assert!(!ends.is_finished(), "the callback has not been released");
        go.send(()).unwrap();
        ends.join().unwrap();
        assert!(is_over.load(Ordering::SeqCst), "the shutdown waits for the callback");
    });
}

#[test]
fn a_function_names_workers_and_blocking_threads() {
    watched(|| {
        let (log, next) = (Log::default(), AtomicUsize::new(0));
        let name = move || format!("na\0me-{}", next.fetch_add(1, Ordering::Relaxed));
        let runtime = log.logged(builder(2).thread_name("prefix").thread_name_fn(name)).build().unwrap();
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        drop(runtime);
        assert!(log.by_name().into_keys().eq(["name-0", "name-1", "name-2"]));
    });
}

#[test]
fn the_last_setting_of_a_thread_name_counts() {
    watched(|| {
        let log = Log::default();
        let named = builder(1).thread_name_fn(|| "function".to_owned()).thread_name("prefix");
        drop(log.logged(named).build().unwrap());
        assert!(log.by_name().into_keys().eq(["prefix-worker-0"]));
    });
}

#[test]
fn a_thread_gets_a_default_name_if_the_function_panics() {
    watched(|| {
        let log = Log::default();
        let runtime = log.logged(builder(1).thread_name_fn(|| panic!("no name, as this test wants"))).build().unwrap();
        runtime.block_on(runtime.spawn_blocking(|| ())).unwrap();
        drop(runtime);
        assert!(log.by_name().into_keys().eq(["volt-blocking-1", "volt-worker-0"]));
    });
}
