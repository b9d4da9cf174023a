//! Tests of shutdowns that race with other operations, and of what is left of processes afterwards.

use std::sync::Weak;

use super::*;
use volt_process::{Request, Status};

#[test]
fn no_process_started_during_a_shutdown_survives() {
    watchdog::with_workers(|runtime| {
        for _ in 0..20 {
            let system = System::new(runtime.handle());
            std::thread::scope(|scope| {
                let starters = [(); 3].map(|()| {
                    let system = system.clone();
                    scope.spawn(move || {
                        let mut started = Vec::new();
                        loop {
                            match system.spawn(idle()) {
                                Ok(pid) => started.push(pid),
                                Err(error) => {
                                    assert!(error.is_shut_down(), "{error}");
                                    return started;
                                }
                            }
                        }
                    })
                });
                let report = runtime.block_on(system.shutdown(Some(LONG)));
                // A process that is being refused at this moment may still be counted.
                assert_eq!(report.forced.len(), 0);
                for pid in starters.into_iter().flat_map(|starter| starter.join().unwrap()) {
                    assert!(system.info(pid).is_none());
                }
                assert_eq!(system.process_count(), 0);
            });
        }
    });
}

#[test]
fn a_step_that_never_returns_is_reported_as_an_exit() {
    watchdog::with_workers(|runtime| {
        let system = System::new(runtime.handle());
        let dropped = Dropped::default();
        let held_by = dropped.clone();
        let pid = system
            .spawn(scripted(move |_, events, _| {
                let _held = &held_by;
                for event in events {
                    if let Event::Message(message) = event {
                        hold(message.payload);
                    }
                }
                Ok(())
            }))
            .unwrap();
        let held = keep_in_step(&system, pid);
        let ends = system.wait(pid);
        // On separate threads, since the only worker may be the one that is kept in the step.
        let report = std::thread::scope(|scope| {
            let one = scope.spawn(|| shut_down(&system));
            let other = scope.spawn(|| shut_down(&system));
            (one.join().unwrap(), other.join().unwrap())
        });
        assert_eq!(report.0.stuck + report.1.stuck, 1, "one of the two has ended it");
        assert_eq!((system.process_count(), system.info(pid).is_none()), (0, true));
        assert_eq!(futures_util::FutureExt::now_or_never(ends), Some(ExitReason::Killed));
        assert_eq!(dropped.count(), 0, "it is in its step");
        drop(held);
        runtime.block_on(until(|| dropped.count() == 1));
    });
}

#[test]
fn a_process_queued_at_shutdown_is_forced_and_not_counted_stuck() {
    watchdog::watched(|| {
        // Without the sentinel, no other worker takes over the task that is queued behind the held
        // one.
        let runtime = watchdog::builder(1).sentinel_interval(None).build().unwrap();
        let system = System::new(runtime.handle());
        let (held, queued) = (system.spawn(idle()).unwrap(), system.spawn(idle()).unwrap());
        let in_step = keep_in_step(&system, held);
        system.try_send(queued, Payload::empty()).unwrap();
        let report = shut_down(&system);
        assert_eq!((report.processes, report.forced.len(), report.stuck), (2, 2, 1));
        assert_eq!(system.process_count(), 0);
        drop(in_step);
    });
}

/// Shuts a system down from another runtime, whose clock continues while the worker of the first is
/// held.
fn shut_down(system: &System) -> volt_process::ShutdownReport {
    watchdog::runtime(1).block_on(system.shutdown(Some(Duration::from_millis(5))))
}

#[test]
fn processes_end_with_their_runtime() {
    for workers in [1, 2, 4] {
        watchdog::watched(|| {
            let runtime = watchdog::runtime(workers);
            let system = System::new(runtime.handle());
            let dropped = Dropped::default();
            let mut ends = Vec::new();
            for number in 0..100 {
                let held_by = dropped.clone();
                let machine = scripted(move |_, _, out| {
                    let _held = &held_by;
                    match number % 3 {
                        0 => {}
                        1 => {
                            out.sleep(1, LONG);
                            out.wait();
                        }
                        _ => out.set_status(Status::Continue),
                    }
                    Ok(())
                });
                let pid = system.spawn(machine.name(format!("process {number}"))).unwrap();
                system.try_send(pid, Payload::new(dropped.clone())).unwrap();
                ends.push(system.wait(pid));
            }
            drop(runtime);
            for end in ends {
                assert_eq!(futures_util::FutureExt::now_or_never(end), Some(ExitReason::Killed));
            }
            assert_eq!((system.process_count(), system.whereis("process 7"), dropped.count()), (0, None, 200));
            // A process that is started now is killed immediately.
            let pid = system.spawn(idle()).unwrap();
            assert!(system.info(pid).is_none());
        });
    }
}

#[test]
fn nothing_is_left_of_a_process_however_it_ends() {
    const KEPT: volt_process::CommandId = volt_process::CommandId::new(500);
    /// Returns a system, and a value that lives as long as the system.
    fn system_and_life() -> (System, Weak<()>) {
        let life = Arc::new(());
        let seen = Arc::downgrade(&life);
        let handler = move |request: Request<'_>| {
            let _life = &life;
            request.complete_yield(Ok(Payload::empty()));
        };
        (System::builder().handler(KEPT, handler).build(&volt::Handle::current()).unwrap(), seen)
    }
    type End = fn(&System, Pid);
    let ways: [(&str, End); 6] = [
        ("done", |system, pid| _ = system.try_send(pid, Payload::new("end"))),
        ("failed", |system, pid| _ = system.try_send(pid, Payload::new("fail"))),
        ("panicked", |system, pid| _ = system.try_send(pid, Payload::new("panic"))),
        ("killed", |system, pid| _ = system.kill(pid)),
        ("cancelled", |system, pid| _ = system.cancel(pid)),
        ("shut down", |_, _| {}),
    ];
    watchdog::with_workers(|runtime| {
        for (way, end) in ways {
            let life = runtime.block_on(async {
                let (system, life) = system_and_life();
                let parent = volt_process::from_fn(async |mut inbox, _| {
                    let child = inbox.context().spawn(Spawn::new(Collector::default()).name("child").link())?;
                    inbox.context().monitor(child);
                    while !matches!(inbox.next().await, Event::Cancel) {}
                    Ok(Payload::empty())
                });
                system.spawn(Spawn::new(parent).trap_exits()).unwrap();
                until(|| system.whereis("child").is_some()).await;
                let child = system.whereis("child").unwrap();
                let wait = system.wait(child);
                end(&system, child);
                if way != "shut down" {
                    wait.await;
                }
                assert!(system.spawn(idle().method("mian")).is_err());
                assert!(system.shutdown(Some(LONG)).await.forced.is_empty(), "{way}");
                assert!(life.upgrade().is_some(), "{way}");
                life
            });
            // The last task releases the system when its worker has finished with it.
            runtime.block_on(until(|| life.upgrade().is_none()));
        }
        // The same for a process that exits with its runtime, and for one that is spawned later.
        let (system, life) = runtime.block_on(async { system_and_life() });
        system.spawn(idle()).unwrap();
        drop(runtime);
        system.spawn(idle()).unwrap();
        drop(system);
        assert!(life.upgrade().is_none(), "with its runtime");
    });
}

#[test]
fn sequential_processes_reuse_the_same_slots() {
    watchdog::with_one_worker(|runtime| {
        runtime.block_on(async {
            let system = System::new(&volt::Handle::current());
            for number in 0..10_000_u32 {
                let pid = system.spawn(Spawn::new(volt_process::from_fn(async |_, _| Ok(Payload::empty())))).unwrap();
                assert_eq!((pid.index(), pid.generation()), (number % 64, number / 64));
                system.wait(pid).await;
            }
            assert_eq!(system.process_count(), 0);
        });
    });
}

#[test]
fn shutdown_forces_a_process_that_ignores_termination() {
    watchdog::with_workers(|runtime| {
        let system = System::new(runtime.handle());
        let unresponsive = volt_process::from_fn(async |mut inbox, _| {
            loop {
                inbox.next().await;
            }
        });
        system.spawn(Spawn::new(unresponsive)).unwrap();
        let report = runtime.block_on(system.shutdown(Some(Duration::from_millis(20))));
        assert_eq!((report.forced.len(), report.stuck), (1, 0));
        assert_eq!(system.process_count(), 0);
    });
}
