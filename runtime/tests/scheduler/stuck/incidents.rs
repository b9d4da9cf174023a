//! A poll that exceeds the threshold is recorded while it lasts: the task, the cause, and the line
//! of code.

#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::hint::black_box;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::watchdog::{builder, watched};
use volt::telemetry::{Cause, Incident, Remedy};
use volt::{Builder, Runtime};

fn with_sentinel(workers: usize) -> Builder {
    builder(workers).sentinel_interval(Some(Duration::from_millis(10)))
}

/// Returns the first incident that `is_so`.
fn incident(runtime: &Runtime, is_so: impl Fn(&Incident) -> bool) -> Incident {
    loop {
        let incidents = runtime.handle().snapshot().incidents;
        if let Some(incident) = incidents.latest.into_iter().find(&is_so) {
            return incident;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn has_stack(incident: &Incident) -> bool {
    !incident.stack.is_empty() || incident.stack_error.is_some()
}

/// Returns whether the line to blame is in that function.
fn is_at(incident: &Incident, function: &str) -> bool {
    incident.guilty().and_then(|frame| frame.function.as_deref()).is_some_and(|found| found.contains(function))
}

/// Sleeps until `open`, in short sleeps, in a line of this file. Returns that line.
#[inline(never)]
fn sleep_until_open(open: &mpsc::Receiver<()>) -> u32 {
    while open.try_recv() == Err(mpsc::TryRecvError::Empty) {
        std::thread::sleep(Duration::from_secs(1));
    }
    line!() - 2
}

#[test]
fn a_poll_that_sleeps_is_reported_with_its_line_while_it_lasts() {
    watched(|| {
        let runtime = with_sentinel(2).build().unwrap();
        let (open, is_open) = mpsc::channel();
        let (task, handle) = (volt::task::Builder::new().name("sleeper"), runtime.handle());
        let spawned_at = line!() + 1;
        let sleeper = task.spawn_on(async move { sleep_until_open(&is_open) }, handle);
        // On a busy machine, it waits for its processor before it sleeps, and has another stack
        // then.
        let during =
            incident(&runtime, |incident| incident.cause == Cause::Sleep && is_at(incident, "sleep_until_open"));
        open.send(()).unwrap();
        let line = runtime.block_on(sleeper).unwrap();

        assert!(!during.is_over && during.for_ns >= 10_000_000, "{during:?}");
        assert_eq!(during.task_name.as_deref(), Some("sleeper"));
        assert!(during.spawned_at.contains(&format!("incidents.rs:{spawned_at}")), "{}", during.spawned_at);
        let guilty = during.guilty().unwrap_or_else(|| panic!("{during:#?}"));
        assert!(guilty.file.as_deref().unwrap().ends_with("tests/scheduler/stuck/incidents.rs"), "{guilty:?}");
        assert_eq!(guilty.line, Some(line), "{guilty:?}");
        let outermost = during.stack.last().unwrap().function.as_deref().unwrap_or_default().to_owned();
        assert!(outermost.contains("poll"), "cut at the runtime's poll: {outermost}");

        let after = incident(&runtime, |incident| incident.id == during.id && incident.is_over);
        assert!(after.for_ns >= during.for_ns);
    });
}

#[test]
fn a_poll_whose_cause_changes_gets_the_stack_of_the_new_one() {
    watched(|| {
        let runtime = with_sentinel(2).build().unwrap();
        let (open, is_open) = mpsc::channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let task = runtime.spawn({
            let is_over = is_over.clone();
            async move {
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                sleep_until_open(&is_open)
            }
        });
        let spins = incident(&runtime, |incident| incident.cause != Cause::Sleep && has_stack(incident));
        assert!(!is_at(&spins, "sleep_until_open"), "{spins:#?}");
        is_over.store(true, Ordering::Relaxed);
        incident(&runtime, |incident| {
            incident.id == spins.id && incident.cause == Cause::Sleep && is_at(incident, "sleep_until_open")
        });
        open.send(()).unwrap();
        runtime.block_on(task).unwrap();
    });
}

#[inline(never)]
fn wait_for_lock(lock: &Mutex<()>) -> MutexGuard<'_, ()> {
    lock.lock().unwrap()
}

#[test]
fn each_cause_of_a_poll_is_reported_with_its_time_and_line() {
    watched(|| {
        let runtime = with_sentinel(2).build().unwrap();
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let (open, is_open) = mpsc::channel();
        let task = runtime.spawn({
            let lock = lock.clone();
            async move {
                let _guard = wait_for_lock(&lock);
                sleep_until_open(&is_open)
            }
        });
        let waits = incident(&runtime, |incident| incident.cause == Cause::Lock && is_at(incident, "wait_for_lock"));
        drop(held);
        let line_of = |incident: &Incident, cause: Cause| {
            incident.causes.iter().find(|part| part.cause == cause).and_then(|part| part.at.clone())
        };
        let is_this = |incident: &Incident| incident.id == waits.id;
        incident(&runtime, |incident| is_this(incident) && line_of(incident, Cause::Sleep).is_some());
        open.send(()).unwrap();
        let line = runtime.block_on(task).unwrap();
        let over = incident(&runtime, |incident| is_this(incident) && incident.is_over);
        let (of_lock, of_sleep) = (line_of(&over, Cause::Lock).unwrap(), line_of(&over, Cause::Sleep).unwrap());
        assert!(of_sleep.ends_with(&format!("stuck/incidents.rs:{line}")), "{over:#?}");
        assert!(of_lock.contains("stuck/incidents.rs:") && of_lock != of_sleep, "{over:#?}");
        let times: Vec<_> = over.causes.iter().map(|part| part.for_ns).collect();
        // On a busy machine, the machine may be the longest cause, and is not the first.
        assert!(times[1..].is_sorted_by(|first, next| first >= next), "{over:#?}");
        assert_eq!(times.iter().sum::<u64>(), over.for_ns);
        let first = &over.causes[0];
        assert_eq!(over.cause, first.cause);
        if matches!(first.cause, Cause::Lock | Cause::Sleep) {
            let guilty = over.guilty().unwrap();
            let at = format!("{}:{}", guilty.file.as_deref().unwrap(), guilty.line.unwrap());
            assert_eq!(Some(at), first.at, "the stack is that of the incident's cause");
        }
    });
}

#[test]
fn causes_are_distinguished_while_the_poll_lasts() {
    watched(|| {
        let runtime = with_sentinel(2).build().unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let spinner = runtime.spawn({
            let is_over = is_over.clone();
            async move {
                let mut n = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    n = black_box(n.wrapping_mul(31) + 1);
                }
            }
        });
        // On a busy machine, it waits for its processor longer than it has it. Its stack may then
        // be missed, and is requested again.
        let spins = incident(&runtime, |incident| {
            matches!(incident.cause, Cause::Cpu | Cause::NotScheduled | Cause::Throttled) && incident.guilty().is_some()
        });
        is_over.store(true, Ordering::Relaxed);
        runtime.block_on(spinner).unwrap();
        assert!(
            spins.guilty().unwrap().function.as_deref().unwrap().contains("causes_are_distinguished"),
            "{spins:#?}"
        );

        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let waiter = runtime.spawn({
            let lock = lock.clone();
            async move { drop(lock.lock()) }
        });
        incident(&runtime, |incident| incident.cause == Cause::Lock);
        drop(held);
        runtime.block_on(waiter).unwrap();

        let (mut reads, writes) = UnixStream::pair().unwrap();
        let reader = runtime.spawn(async move { reads.read(&mut [0]).unwrap() });
        incident(&runtime, |incident| incident.cause == Cause::Io);
        drop(writes);
        assert_eq!(runtime.block_on(reader).unwrap(), 0);
    });
}

#[test]
fn an_incident_has_the_action_of_the_runtime() {
    watched(|| {
        let runtime = with_sentinel(1).build().unwrap();
        let (open, is_open) = mpsc::channel::<()>();
        let stuck = runtime.spawn(async move { is_open.recv().unwrap() });
        let replaced = incident(&runtime, |incident| incident.remedy != Remedy::None);
        assert_eq!(replaced.remedy, Remedy::Replaced);
        open.send(()).unwrap();
        runtime.block_on(stuck).unwrap();
    });
}

#[test]
fn stacks_and_incidents_can_be_switched_off() {
    watched(|| {
        let runtime = with_sentinel(1).incident_stacks(false).build().unwrap();
        let (open, is_open) = mpsc::channel::<()>();
        let stuck = runtime.spawn(async move { is_open.recv().unwrap() });
        let bare = incident(&runtime, has_stack);
        assert_eq!((bare.stack.len(), bare.stack_error.as_deref()), (0, Some("stacks are off")));
        open.send(()).unwrap();
        runtime.block_on(stuck).unwrap();

        let runtime = with_sentinel(1).incident_after(None).build().unwrap();
        let (open, is_open) = mpsc::channel::<()>();
        let stuck = runtime.spawn(async move { is_open.recv().unwrap() });
        while runtime.handle().snapshot().sentinel.replacements == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        open.send(()).unwrap();
        runtime.block_on(stuck).unwrap();
        assert_eq!(runtime.handle().snapshot().incidents.total(), 0);
    });
}

#[test]
fn repeated_stalls_of_one_task_are_counted_but_not_all_recorded() {
    watched(|| {
        let runtime = with_sentinel(2).build().unwrap();
        for _ in 0..8 {
            runtime.block_on(runtime.spawn(async { std::thread::sleep(Duration::from_millis(40)) })).unwrap();
        }
        let incidents = runtime.handle().snapshot().incidents;
        assert!(incidents.total() >= 4, "{incidents:?}");
        assert!(incidents.suppressed > 0 && (incidents.latest.len() as u64) < incidents.total(), "{incidents:?}");
    });
}

#[test]
fn block_in_place_ends_the_incident_and_starts_no_new_one() {
    const AFTER: Duration = Duration::from_secs(1);
    watched(|| {
        let runtime = with_sentinel(2).incident_after(Some(AFTER)).incident_stacks(false).build().unwrap();
        let (open, is_open) = mpsc::channel();
        let (end, is_over) = mpsc::channel::<()>();
        let handle = runtime.handle().clone();
        let task = runtime.spawn(async move {
            sleep_until_open(&is_open);
            volt::task::block_in_place(|| is_over.recv().unwrap());
            // Long enough to be seen, and far from a stall.
            let checks = handle.snapshot().sentinel.checks;
            while handle.snapshot().sentinel.checks < checks + 5 {
                std::thread::sleep(Duration::from_micros(500));
            }
        });
        let before = incident(&runtime, |_| true);
        assert!(!before.is_over, "{before:?}");
        open.send(()).unwrap();
        // While it blocks.
        let over = incident(&runtime, |incident| incident.is_over);
        // Not a synchronisation: a block that would be an incident if it were a stall.
        std::thread::sleep(AFTER * 3 / 2);
        end.send(()).unwrap();
        runtime.block_on(task).unwrap();
        let incidents = runtime.handle().snapshot().incidents;
        assert_eq!(incidents.total(), 1, "{incidents:#?}");
        assert_eq!(incidents.latest[0].for_ns, over.for_ns, "it does not go on after it");
    });
}
