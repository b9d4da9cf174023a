//! A task that blocks its worker delays no other task: a spare worker starts, and leaves again when
//! it is no longer needed.
//!
//! Each blocker here waits until what it would delay has completed. Without the spares it would
//! wait forever.

use std::future::Future;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use crate::watchdog::{alone, builder, watched};
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::TcpStream;
use volt::task::{LocalSet, block_in_place};
use volt::telemetry::{Cause, Duty, Incident, Phase, Snapshot};
use volt::{Builder, Handle, Runtime};

mod machine;

/// Builds a runtime without the park time-out and with the sentinel.
fn runtime(workers: usize) -> Runtime {
    builder(workers).sentinel_interval(Some(Duration::from_millis(10))).build().unwrap()
}

/// Returns the first snapshot that `is_so`.
fn wait_until(runtime: &Runtime, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
    loop {
        let snapshot = runtime.handle().snapshot();
        if is_so(&snapshot) {
            return snapshot;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn is_at_rest(snapshot: &Snapshot) -> bool {
    snapshot.active_count() == snapshot.workers.iter().filter(|worker| !worker.is_spare).count() as u32
        && snapshot.parked_count() == snapshot.active_count()
        && snapshot.sentinel.spares_in_use == 0
        && snapshot.workers.iter().all(|worker| !worker.is_spare || worker.phase == Phase::Stopped)
}

/// Blocks `workers` workers. Returns, for each, the sender that releases it and the handle of its
/// task.
fn block_all(runtime: &Runtime, workers: usize) -> Vec<(mpsc::Sender<()>, volt::task::JoinHandle<()>)> {
    let entered = Arc::new(Barrier::new(workers + 1));
    let blockers = (0..workers)
        .map(|_| {
            let (open, is_open) = mpsc::channel();
            let entered = entered.clone();
            let blocker = runtime.spawn(async move {
                entered.wait();
                is_open.recv().unwrap();
            });
            (open, blocker)
        })
        .collect();
    entered.wait();
    blockers
}

#[test]
fn tasks_run_while_all_workers_block_and_spares_leave_later() {
    for workers in [1, 2, 4] {
        watched(|| {
            let runtime = runtime(workers);
            let blockers = block_all(&runtime, workers);
            assert_eq!(runtime.block_on(runtime.spawn(async { 7 })).unwrap(), 7);
            let during = runtime.handle().snapshot();
            assert!(during.sentinel.replacements >= 1 && during.sentinel.spare_calls >= 1, "{:?}", during.sentinel);
            assert!(during.workers.iter().any(|worker| worker.duty == Duty::Stuck));
            for (open, blocker) in blockers {
                open.send(()).unwrap();
                runtime.block_on(blocker).unwrap();
            }
            let after = wait_until(&runtime, is_at_rest);
            assert_eq!((after.searching, after.tasks.alive), (0, 0));
            let spares = after.workers.iter().filter(|worker| worker.is_spare);
            assert!(spares.clone().count() > 0);
            spares.for_each(|spare| {
                assert_eq!((spare.duty, spare.ring_len, spare.phase), (Duty::Off, 0, Phase::Stopped))
            });
        });
    }
}

#[test]
fn timers_fire_while_every_worker_is_blocked() {
    watched(|| {
        let runtime = runtime(2);
        let timer = runtime.spawn(async { volt::time::sleep(Duration::from_millis(50)).await });
        let blockers = block_all(&runtime, 2);
        runtime.block_on(timer).unwrap();
        for (open, blocker) in blockers {
            open.send(()).unwrap();
            runtime.block_on(blocker).unwrap();
        }
    });
}

#[test]
fn after_a_spare_leaves_timers_and_sockets_are_polled() {
    watched(|| {
        let runtime = runtime(1);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (socket, _) = listener.accept().unwrap();
        let echo = runtime.spawn(async move {
            let (mut socket, mut byte) = (TcpStream::from_std(socket).unwrap(), [0]);
            while socket.read_exact(&mut byte).await.is_ok() {
                socket.write_all(&byte).await.unwrap();
            }
        });
        let mut round_trip = || {
            peer.write_all(b"x").unwrap();
            peer.read_exact(&mut [0]).unwrap();
        };
        round_trip();
        // The spare that comes for this is in the driver when the worker is back, and leaves from
        // there.
        let blockers = block_all(&runtime, 1);
        round_trip();
        for (open, blocker) in blockers {
            open.send(()).unwrap();
            runtime.block_on(blocker).unwrap();
        }
        let rescues = runtime.handle().snapshot().sentinel.rescues;
        wait_until(&runtime, is_at_rest);
        round_trip();
        runtime.block_on(async { volt::time::sleep(Duration::from_millis(5)).await });
        assert_eq!(runtime.handle().snapshot().sentinel.rescues, rescues, "the spare has seen to it, not the sentinel");
        drop(peer);
        runtime.block_on(echo).unwrap();
    });
}

#[test]
fn tasks_that_a_stuck_poll_wakes_run_on_other_workers() {
    watched(|| {
        let runtime = runtime(1);
        let (rang, has_rung) = mpsc::channel();
        let stuck = runtime.spawn(async move {
            // The first is spawned before the worker is known to be stuck, the others afterwards.
            for round in 0..5 {
                let rang = rang.clone();
                volt::spawn(async move { rang.send(round).unwrap() });
                assert_eq!(has_rung.recv(), Ok(round));
            }
        });
        runtime.block_on(stuck).unwrap();
        assert!(runtime.handle().snapshot().sentinel.tasks_rescued >= 1);
    });
}

#[test]
fn a_lock_held_across_a_stall_is_eventually_released() {
    watched(|| {
        let runtime = runtime(2);
        let lock = Arc::new(Mutex::new(0));
        let (open, is_open) = mpsc::channel();
        let (entered, has_entered) = mpsc::channel();
        let holder = runtime.spawn({
            let lock = lock.clone();
            async move {
                let mut held = lock.lock().unwrap();
                entered.send(()).unwrap();
                is_open.recv().unwrap();
                *held += 1;
            }
        });
        has_entered.recv().unwrap();
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let lock = lock.clone();
                runtime.spawn(async move { *lock.lock().unwrap() += 1 })
            })
            .collect();
        // All the workers and some spares wait for the lock, and this runs nevertheless.
        runtime.block_on(runtime.spawn(async move { open.send(()).unwrap() })).unwrap();
        runtime.block_on(holder).unwrap();
        waiters.into_iter().for_each(|waiter| runtime.block_on(waiter).unwrap());
        assert_eq!(*lock.lock().unwrap(), 4);
    });
}

#[test]
fn stuck_spares_are_reported_and_tasks_resume_once_one_is_free() {
    watched(|| {
        let runtime =
            builder(1).sentinel_interval(Some(Duration::from_millis(10))).max_spare_workers(2).build().unwrap();
        let mut blockers = Vec::new();
        for _ in 0..3 {
            blockers.extend(block_all(&runtime, 1));
        }
        let waiting = runtime.spawn(async {});
        let stuck = wait_until(&runtime, |snapshot| snapshot.sentinel.capped > 0);
        assert_eq!((stuck.sentinel.spares_in_use, stuck.sentinel.max_spares), (2, 2));
        assert!(!waiting.is_finished());
        let (open, _blocker) = blockers.pop().unwrap();
        open.send(()).unwrap();
        runtime.block_on(waiting).unwrap();
        blockers.iter().for_each(|(open, _)| open.send(()).unwrap());
        wait_until(&runtime, is_at_rest);
    });
}

#[test]
fn without_spares_a_runtime_works_as_if_there_were_no_sentinel() {
    watched(|| {
        let runtime =
            builder(1).sentinel_interval(Some(Duration::from_millis(10))).max_spare_workers(0).build().unwrap();
        let (open, blocker) = block_all(&runtime, 1).pop().unwrap();
        let waiting = runtime.spawn(async {});
        wait_until(&runtime, |snapshot| snapshot.sentinel.capped > 0);
        open.send(()).unwrap();
        runtime.block_on(blocker).unwrap();
        runtime.block_on(waiting).unwrap();
    });
}

#[test]
fn the_delay_of_a_rescued_task_is_charged_only_once() {
    watched(|| {
        let runtime =
            builder(1).sentinel_interval(Some(Duration::from_millis(10))).max_spare_workers(0).build().unwrap();
        let (open, is_open) = mpsc::channel::<()>();
        let began = Instant::now();
        let culprit = runtime.spawn(async move {
            drop(volt::spawn(async {}));
            assert!(is_open.recv().is_err(), "nothing is sent");
        });
        wait_until(&runtime, |snapshot| snapshot.sentinel.tasks_rescued > 0);
        drop(open);
        runtime.block_on(culprit).unwrap();
        let after = wait_until(&runtime, |snapshot| snapshot.tasks.alive == 0);
        let most_ns = began.elapsed().as_nanos() as u64;
        let caused_ns: u64 = after.blame.iter().map(|blame| blame.delay_caused_ns).sum();
        assert!((1..=most_ns).contains(&caused_ns), "{caused_ns} of {most_ns}");
    });
}

#[test]
fn shutdown_waits_for_stuck_workers_and_their_spares() {
    watched(|| {
        let runtime = runtime(2);
        let blockers = block_all(&runtime, 2);
        runtime.block_on(runtime.spawn(async {})).unwrap();
        let handle = runtime.handle().clone();
        let ends = std::thread::spawn(move || drop(runtime));
        while handle.try_spawn(async {}).is_ok() {
            std::thread::yield_now();
        }
        for (open, blocker) in blockers {
            open.send(()).unwrap();
            drop(blocker);
        }
        ends.join().unwrap();
        assert!(handle.snapshot().workers.iter().all(|worker| worker.phase == Phase::Stopped));
    });
}

#[test]
fn a_local_set_that_blocks_delays_only_its_own_tasks() {
    watched(|| {
        let runtime = runtime(1);
        let (open, is_open) = mpsc::channel::<()>();
        let (entered, has_entered) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                runtime.block_on(LocalSet::new().run_until(async move {
                    entered.send(()).unwrap();
                    is_open.recv().unwrap();
                }));
            });
            has_entered.recv().unwrap();
            runtime.block_on(runtime.spawn(async {})).unwrap();
            open.send(()).unwrap();
        });
    });
}

#[test]
fn block_in_place_lets_other_tasks_run_without_the_sentinel_too() {
    for interval in [None, Some(Duration::from_millis(10))] {
        for workers in [1, 2] {
            watched(|| {
                let runtime = builder(workers).sentinel_interval(interval).build().unwrap();
                let blockers: Vec<_> = (0..workers)
                    .map(|_| {
                        runtime.spawn(async {
                            let (rang, has_rung) = mpsc::channel();
                            // In the LIFO slot of the worker that is about to block.
                            volt::spawn(async move { rang.send(3).unwrap() });
                            block_in_place(|| has_rung.recv().unwrap())
                        })
                    })
                    .collect();
                for blocker in blockers {
                    assert_eq!(runtime.block_on(blocker).unwrap(), 3);
                }
                assert_eq!(runtime.handle().snapshot().sentinel.blocks, workers as u64);
            });
        }
    }
}

#[test]
fn a_closure_in_block_in_place_may_block_on_a_future_and_panic() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        let handle = runtime.handle().clone();
        let nested = runtime.spawn(async move {
            block_in_place(|| handle.block_on(async { volt::spawn(async { 5 }).await.unwrap() }))
        });
        assert_eq!(runtime.block_on(nested).unwrap(), 5);
        let panics = runtime.spawn(async { block_in_place(|| panic!("inside")) });
        assert!(runtime.block_on::<volt::task::JoinHandle<()>>(panics).unwrap_err().is_panic());
        // The worker is available for tasks again.
        assert_eq!(runtime.block_on(runtime.spawn(async { 6 })).unwrap(), 6);
        assert_eq!(runtime.handle().snapshot().workers[0].duty, Duty::Present);
        assert_eq!(block_in_place(|| 4), 4, "outside a runtime too");
        assert_eq!(runtime.block_on(async { block_in_place(|| 4) }), 4);
        // In `block_on`, and in another one inside that.
        let handle = runtime.handle();
        let nest =
            |output| block_in_place(|| handle.block_on(async { block_in_place(|| handle.block_on(async { output })) }));
        assert_eq!(runtime.block_on(async { nest(8) + nest(9) }), 17);
        runtime.block_on(async { block_in_place(|| drop(builder(1).build().unwrap())) });
    });
}

#[test]
fn a_poll_that_computes_gets_a_yield_request_if_tasks_wait() {
    watched(|| {
        let runtime = builder(1)
            .sentinel_interval(Some(Duration::from_millis(10)))
            .max_spare_workers(0)
            .coop_budget(u32::MAX)
            .build()
            .unwrap();
        let (rang, has_rung) = mpsc::channel();
        let (entered, has_entered) = mpsc::channel();
        let hog = runtime.spawn(async move {
            entered.send(()).unwrap();
            while has_rung.try_recv().is_err() {
                let began = Instant::now();
                while began.elapsed() < Duration::from_micros(100) {
                    std::hint::spin_loop();
                }
                volt::task::consume_budget().await;
            }
        });
        has_entered.recv().unwrap();
        runtime.block_on(runtime.spawn(async move { rang.send(()).unwrap() })).unwrap();
        runtime.block_on(hog).unwrap();
        // Counted a moment after the request.
        wait_until(&runtime, |snapshot| snapshot.sentinel.preempts > 0);
    });
}

/// Waits for a processor for most of the time, with three threads that always run on the same one.
#[test]
#[cfg(target_os = "linux")]
fn a_poll_that_waits_for_a_processor_is_not_made_to_yield() {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    const BURNERS: usize = 3;
    watched(|| {
        let runtime = Builder::new_current_thread()
            .sentinel_interval(Some(Duration::from_millis(1)))
            .control_socket(false)
            .build()
            .unwrap();
        // Starts the sentinel's thread, which is to run on any processor.
        wait_until(&runtime, |_| runtime.block_on(async { runtime.handle().snapshot().sentinel.checks > 2 }));
        let allowed = sched_getaffinity(None).unwrap();
        let mut one = CpuSet::new();
        one.set((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap());
        sched_setaffinity(None, &one).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..BURNERS {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let may_continue = runtime.block_on(async {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(200) {
                    std::thread::yield_now();
                }
                futures_lite::future::poll_once(volt::task::consume_budget()).await.is_some()
            });
            is_over.store(true, Ordering::Relaxed);
            assert!(may_continue);
        });
        sched_setaffinity(None, &allowed).unwrap();
    });
}

#[test]
fn a_stuck_worker_blocks_no_task_without_ring_or_lifo_stealing() {
    let settings: [fn(Builder) -> Builder; 2] =
        [|builder| builder.enable_stealing(false), |builder| builder.lifo_steal_after(Duration::MAX)];
    for with in settings {
        for workers in [1, 2] {
            watched(|| {
                let runtime =
                    with(builder(workers)).sentinel_interval(Some(Duration::from_millis(10))).build().unwrap();
                let stuck = runtime.spawn(async {
                    let (rang, has_rung) = mpsc::channel();
                    // In the LIFO slot of this worker.
                    volt::spawn(async move { rang.send(3).unwrap() });
                    has_rung.recv().unwrap()
                });
                assert_eq!(runtime.block_on(stuck).unwrap(), 3);
            });
        }
    }
}

/// A foreign executor, which does not pass on that it was refused, in a callback or a destructor
/// that is not async.
fn block_on_inside<F: Future>(future: F) -> F::Output {
    futures_lite::future::block_on(future)
}

#[test]
fn a_future_blocked_on_inside_a_task_proceeds_after_preemption() {
    watched(|| {
        let runtime = runtime(1);
        let (sender, mut receiver) = volt::sync::mpsc::channel(1);
        let waits = runtime.spawn(async move { block_on_inside(receiver.recv()) });
        wait_until(&runtime, |snapshot| snapshot.sentinel.preempts > 0);
        sender.try_send(5).unwrap();
        assert_eq!(runtime.block_on(waits).unwrap(), Some(5));
    });
}

#[test]
fn local_tasks_continue_in_a_poll_with_a_yield_request() {
    let in_place =
        |local: &LocalSet, handle: &Handle| block_in_place(|| handle.block_on(local.run_until(work_locally())));
    let in_another_executor = |local: &LocalSet, _: &Handle| block_on_inside(local.run_until(work_locally()));
    for runs in [in_place as fn(&LocalSet, &Handle) -> u32, in_another_executor] {
        watched(|| {
            let runtime = runtime(1);
            let handle = runtime.handle().clone();
            let (open, is_open) = mpsc::channel();
            let stuck = runtime.spawn(async move {
                is_open.recv().unwrap();
                runs(&LocalSet::new(), &handle)
            });
            wait_until(&runtime, |snapshot| snapshot.sentinel.preempts > 0);
            open.send(()).unwrap();
            assert_eq!(runtime.block_on(stuck).unwrap(), 3);
        });
    }
}

async fn work_locally() -> u32 {
    let task = volt::task::spawn_local(async {
        volt::task::consume_budget().await;
        3
    });
    task.await.unwrap()
}

#[test]
fn repeated_stalls_leave_the_configured_number_of_workers() {
    watched(|| {
        let runtime = runtime(2);
        for _ in 0..20 {
            let blockers = block_all(&runtime, 2);
            runtime.block_on(runtime.spawn(async {})).unwrap();
            for (open, blocker) in blockers {
                open.send(()).unwrap();
                runtime.block_on(blocker).unwrap();
            }
        }
        let after = wait_until(&runtime, is_at_rest);
        assert!(after.sentinel.spares_in_use == 0 && after.workers.len() <= 2 + 4);
        assert_eq!(after.tasks.alive, 0);
    });
}
