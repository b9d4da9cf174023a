//! The guarantees of the scheduler: no task is lost, run twice or starved, and at rest every worker
//! sleeps.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use crate::watchdog::{builder, runtime, watched, with_one_worker, with_workers};
use volt::net::TcpListener;
use volt::task::yield_now;
use volt::telemetry::{Phase, Snapshot, Worker};
use volt::{ParkSpin, Runtime};

mod parks;

/// Computes for `time` without waiting.
fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Returns a snapshot that was begun when every worker slept and no task was alive.
fn at_rest(runtime: &Runtime) -> Snapshot {
    loop {
        let snapshot = runtime.handle().snapshot();
        // A worker's bit shows that it is about to sleep, its phase that it sleeps.
        let sleeps = |worker: &Worker| matches!(worker.phase, Phase::Parked | Phase::Driver);
        let all_sleep =
            snapshot.parked_count() as usize == snapshot.workers.len() && snapshot.workers.iter().all(sleeps);
        if all_sleep && snapshot.tasks.alive == 0 {
            // The first snapshot may have been begun before that, and have taken long.
            return runtime.handle().snapshot();
        }
        std::thread::yield_now();
    }
}

/// A flag that a task waits for and any thread sets.
#[derive(Default)]
struct Signal {
    is_set: AtomicBool,
    waker: std::sync::Mutex<Option<Waker>>,
}

impl Signal {
    fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        if let Some(waker) = self.waker.lock().unwrap().take() {
            waker.wake();
        }
    }

    async fn wait(&self) {
        poll_fn(|cx| {
            *self.waker.lock().unwrap() = Some(cx.waker().clone());
            if self.is_set.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

#[test]
fn at_rest_all_workers_are_parked_and_none_searches() {
    for workers in [1, 2, 3, 63, 64, 65, 128] {
        watched(|| {
            let runtime = runtime(workers);
            for _ in 0..20 {
                let tasks: Vec<_> = (0..200).map(|n| runtime.spawn(async move { n })).collect();
                let sum: usize = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
                assert_eq!(sum, 199 * 200 / 2);
                let snapshot = at_rest(&runtime);
                assert_eq!(snapshot.searching, 0, "{workers} workers");
                assert_eq!(snapshot.parked_bitmap.len(), workers.div_ceil(64));
                assert_eq!(snapshot.global_queue.len, 0);
            }
            let tasks = at_rest(&runtime).tasks;
            assert_eq!((tasks.spawned, tasks.completed), (4_000, 4_000));
        });
    }
}

#[test]
fn no_wake_up_from_outside_is_lost() {
    with_workers(|runtime| {
        let (request, reply) = (Arc::new(Signal::default()), mpsc::channel());
        let task = runtime.spawn({
            let request = request.clone();
            async move {
                for round in 0..20_000 {
                    request.wait().await;
                    reply.0.send(round).unwrap();
                }
            }
        });
        for round in 0..20_000 {
            request.set();
            assert_eq!(reply.1.recv().unwrap(), round);
        }
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn every_task_is_run_once_under_stealing_and_overflow() {
    with_workers(|runtime| {
        let runs: Arc<Vec<AtomicUsize>> = Arc::new((0..20_000).map(|_| AtomicUsize::new(0)).collect());
        let spawner = runtime.spawn({
            let runs = runs.clone();
            async move {
                let tasks: Vec<_> = (0..runs.len())
                    .map(|n| {
                        let runs = runs.clone();
                        volt::spawn(async move {
                            yield_now().await;
                            runs[n].fetch_add(1, Ordering::SeqCst);
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            }
        });
        runtime.block_on(spawner).unwrap();
        assert!(runs.iter().all(|count| count.load(Ordering::SeqCst) == 1));
        let snapshot = at_rest(&runtime);
        assert_eq!(snapshot.tasks.completed, 20_001);
        assert!(
            snapshot.workers.iter().map(|worker| worker.overflows).sum::<u64>() > 0,
            "20,000 do not fit into a ring"
        );
        let stolen: u64 = snapshot.workers.iter().map(|worker| worker.tasks_stolen).sum();
        let given: u64 = snapshot.workers.iter().map(|worker| worker.tasks_given).sum();
        assert_eq!(stolen, given, "what one takes, another gives");
    });
}

#[test]
fn work_spreads_over_all_workers() {
    watched(|| {
        let runtime = runtime(4);
        let spawner = runtime.spawn(async {
            let tasks: Vec<_> = (0..200).map(|_| volt::spawn(async { spin(Duration::from_micros(500)) })).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        runtime.block_on(spawner).unwrap();
        let polls: Vec<u64> = at_rest(&runtime).workers.iter().map(|worker| worker.polls).collect();
        assert!(polls.iter().all(|polls| *polls > 0), "{polls:?}");
    });
}

#[test]
fn two_tasks_waking_each_other_do_not_starve_a_third() {
    with_one_worker(|runtime| {
        let (ping, pong) = (Arc::new(Signal::default()), Arc::new(Signal::default()));
        let hops = Arc::new(AtomicU64::new(0));
        let player = |mine: &Arc<Signal>, other: &Arc<Signal>| {
            let (mine, other, hops) = (mine.clone(), other.clone(), hops.clone());
            async move {
                loop {
                    mine.wait().await;
                    hops.fetch_add(1, Ordering::SeqCst);
                    other.set();
                }
            }
        };
        let players = [runtime.spawn(player(&ping, &pong)), runtime.spawn(player(&pong, &ping))];
        ping.set();
        while hops.load(Ordering::SeqCst) < 1_000 {
            std::thread::yield_now();
        }
        // Queued by a task on the same worker, so that it is in the ring behind their LIFO slot.
        let before_and_after = runtime.spawn({
            let hops = hops.clone();
            async move {
                let ticks = || volt::Handle::current().snapshot().workers[0].ticks;
                let mut most = 0;
                for _ in 0..200 {
                    let (begun, before) = (ticks(), hops.load(Ordering::SeqCst));
                    yield_now().await;
                    let waited = hops.load(Ordering::SeqCst) - before;
                    most = most.max(waited.div_ceil(1 + ticks() - begun));
                }
                most
            }
        });
        let most = runtime.block_on(before_and_after).unwrap();
        // Three LIFO polls per tick, and the flushed one in the ring before it.
        assert!(most <= 4, "{most} hops a tick before a task in the ring had its turn");
        players.iter().for_each(|player| player.abort());
    });
}

#[test]
fn a_child_behind_a_long_poll_is_taken_by_another_worker() {
    watched(|| {
        let runtime = runtime(2);
        let (started, has_started) = mpsc::channel();
        let parent = runtime.spawn(async move {
            // Only a searching worker finds it, and under load there is one: keep one awake by work
            // in the ring.
            drop(volt::spawn(async move { started.send(()).unwrap() }));
            for _ in 0..2 {
                drop(volt::spawn(async { spin(Duration::from_millis(5)) }));
            }
            // Its poll ends when the child has run.
            while has_started.try_recv().is_err() {
                std::hint::spin_loop();
            }
        });
        runtime.block_on(parent).unwrap();
    });
}

#[test]
fn an_external_task_is_not_starved_by_self_waking_tasks() {
    with_workers(|runtime| {
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..16)
            .map(|_| {
                let stop = stop.clone();
                runtime.spawn(async move {
                    let mut polls = 0u64;
                    while !stop.load(Ordering::Relaxed) {
                        yield_now().await;
                        polls += 1;
                    }
                    polls
                })
            })
            .collect();
        for _ in 0..200 {
            let before = polls(&runtime);
            let task = runtime.spawn(async {});
            runtime.block_on(task).unwrap();
            let during = polls(&runtime) - before;
            // Each worker checks after at most 255 of its polls. The rest is a margin for a machine
            // that runs something else meanwhile.
            assert!(during < 1_000_000, "{during} polls of others");
        }
        stop.store(true, Ordering::Relaxed);
        assert!(hogs.into_iter().all(|hog| runtime.block_on(hog).unwrap() > 0), "no hog starved either");
    });
}

fn polls(runtime: &Runtime) -> u64 {
    runtime.handle().snapshot().workers.iter().map(|worker| worker.polls).sum()
}

#[test]
fn the_numbers_of_a_known_program_are_exact() {
    watched(|| {
        let mut excesses = Vec::new();
        loop {
            let runtime = runtime(1);
            let task = runtime.spawn(async {
                for _ in 0..10 {
                    yield_now().await;
                }
            });
            runtime.block_on(task).unwrap();
            let snapshot = at_rest(&runtime);
            let worker = &snapshot.workers[0];
            assert_eq!(worker.polls, 11);
            assert_eq!(worker.poll_time.count(), 11);
            assert_eq!(worker.schedule_delay.count(), 11);
            assert_eq!((snapshot.global_queue.injected, worker.global_tasks), (1, 1));
            assert_eq!((worker.lifo_hits, worker.steals, worker.overflows), (0, 0, 0));
            assert_eq!(worker.parks, worker.unparks.by_reason().iter().map(|(_, count)| count).sum::<u64>() + 1);
            assert!(worker.in_flight.is_none());
            // Each worker's times are those of the moment when its cells are read. The next
            // snapshot begins later.
            let life_ns = runtime.handle().snapshot().at_ns - snapshot.started_at_ns;
            let reported_ns =
                worker.busy_ns + worker.searching_ns + worker.parked_ns + worker.driver_ns + worker.maintenance_ns;
            if reported_ns <= life_ns {
                return;
            }
            // A worker may lose its processor between reading the clock and writing its phase. What
            // was reported meanwhile is not taken back. That happens to a worker now and then, but
            // not time after time.
            excesses.push(reported_ns - life_ns);
            assert!(excesses.len() < 20, "ns too many: {excesses:?}");
        }
    });
}

#[test]
fn an_overflow_goes_to_the_global_queue_in_one_batch() {
    watched(|| {
        let runtime = builder(1).local_queue_capacity(8).max_lifo_polls_per_tick(0).build().unwrap();
        let spawner = runtime.spawn(async {
            let tasks: Vec<_> = (0..9).map(|n| volt::spawn(async move { n })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(runtime.block_on(spawner).unwrap(), 36);
        let snapshot = at_rest(&runtime);
        let worker = &snapshot.workers[0];
        assert_eq!((worker.overflows, worker.tasks_overflowed, snapshot.global_queue.overflowed), (1, 4, 4));
        assert_eq!(worker.lifo_hits, 0, "the slot is switched off");
    });
}

#[test]
fn without_stealing_everything_still_runs() {
    watched(|| {
        let runtime = builder(3).enable_stealing(false).build().unwrap();
        for _ in 0..50 {
            let tasks: Vec<_> = (0..100)
                .map(|_| {
                    runtime.spawn(async {
                        volt::spawn(async { yield_now().await }).await.unwrap();
                        1
                    })
                })
                .collect();
            let sum: usize = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).sum();
            assert_eq!(sum, 100);
        }
        let snapshot = at_rest(&runtime);
        assert!(snapshot.workers.iter().all(|worker| worker.steal_attempts == 0));
        assert_eq!(snapshot.searching, 0);
    });
}

#[test]
fn block_in_place_moves_tasks_without_stealing_too() {
    watched(|| {
        for workers in [1, 2] {
            let runtime = builder(workers).enable_stealing(false).build().unwrap();
            let task = runtime.spawn(async {
                let handle = volt::Handle::current();
                // In the LIFO slot of this worker.
                let other = volt::spawn(async { 3 });
                volt::task::block_in_place(|| handle.block_on(other)).unwrap()
            });
            assert_eq!(runtime.block_on(task).unwrap(), 3);
        }
    });
}

#[test]
fn slow_polls_do_not_stop_the_clock() {
    with_one_worker(|runtime| {
        let (stop, polls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let hogs: Vec<_> = (0..4)
            .map(|_| {
                let (stop, polls) = (stop.clone(), polls.clone());
                runtime.spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        spin(Duration::from_millis(1));
                        polls.fetch_add(1, Ordering::Relaxed);
                        yield_now().await;
                    }
                })
            })
            .collect();
        let most = runtime.spawn(async move {
            let mut most = 0;
            for _ in 0..20 {
                let before = polls.load(Ordering::Relaxed);
                volt::time::sleep(Duration::from_millis(5)).await;
                most = most.max(polls.load(Ordering::Relaxed) - before);
            }
            most
        });
        let most = runtime.block_on(most).unwrap();
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| runtime.block_on(hog).unwrap());
        // Counted in polls of a millisecond, so that a machine that runs something else meanwhile
        // changes nothing. Five pass in the sleep, and a few until its turn comes. A tick, after
        // which a worker polls its timers anyway, has 128.
        assert!(most <= 20, "{most} polls of 1 ms during a sleep of 5 ms");
    });
}

#[test]
fn every_wake_up_is_counted_with_its_reason() {
    with_one_worker(|runtime| {
        let unparks = || at_rest(&runtime).workers.swap_remove(0).unparks;
        let before = unparks();
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let notified = unparks();
        assert_eq!(notified.notified, before.notified + 1, "a task from outside");
        assert_eq!((notified.timer, notified.io, notified.timeout), (before.timer, before.io, 0));

        runtime.block_on(runtime.spawn(async { volt::time::sleep(Duration::from_millis(5)).await })).unwrap();
        let timer = unparks();
        assert_eq!(timer.notified, notified.notified + 1, "its spawn");
        assert!(timer.timer > notified.timer, "{timer:?}");
        assert_eq!((timer.io, timer.timeout), (notified.io, 0));

        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let accepts = runtime.spawn(async move { listener.accept().await.map(drop) });
        // It waits for the connection, and so does the worker.
        let waits = |worker: &Worker| worker.phase == Phase::Driver && worker.unparks.notified > timer.notified;
        while !waits(&runtime.handle().snapshot().workers[0]) {
            std::thread::yield_now();
        }
        let _client = std::net::TcpStream::connect(address).unwrap();
        runtime.block_on(accepts).unwrap().unwrap();
        let io = unparks();
        assert!(io.io > timer.io, "{io:?}");
        assert_eq!((io.timer, io.timeout), (timer.timer, 0));
    });
}

#[test]
fn a_wake_by_another_thread_during_a_poll_is_no_self_wake() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (to_other, has_waker) = mpsc::channel::<Waker>();
        let (done, is_done) = mpsc::channel();
        let mut polls = 0;
        let woken = runtime.spawn(poll_fn(move |cx| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(());
            }
            to_other.send(cx.waker().clone()).unwrap();
            // The other worker wakes this task while it is being polled.
            is_done.recv().unwrap();
            Poll::Pending
        }));
        let other = runtime.spawn(async move {
            has_waker.recv().unwrap().wake();
            done.send(()).unwrap();
        });
        runtime.block_on(woken).unwrap();
        runtime.block_on(other).unwrap();
        // A poll is counted when its worker has searched for the next task.
        at_rest(&runtime);
        let self_wakes = || runtime.handle().snapshot().blame.iter().filter_map(|blame| blame.self_wakes).sum::<u64>();
        assert_eq!(self_wakes(), 0);
        runtime.block_on(runtime.spawn(yield_now())).unwrap();
        at_rest(&runtime);
        assert_eq!(self_wakes(), 1, "and its own is");
    });
}
