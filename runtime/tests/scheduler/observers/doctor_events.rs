//! The doctor logs each finding to the application's log, once when it begins and once when it is
//! over. Each test runs in a separate program, since it receives the log of the whole program.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use volt::{Builder, Runtime};
use volt_telemetry::finding::{Finding, Severity};
use volt_telemetry::rule::Rule;

use crate::watchdog::{alone, builder, watched};

/// A finding is over when it was not seen for at least this long.
const HOLD: Duration = Duration::from_nanos(volt_diagnosis::doctor::history::HOLD_NS);

/// The events logged so far, in order.
static LOGGED: Mutex<Vec<Logged>> = Mutex::new(Vec::new());

#[derive(Clone, Debug)]
struct Logged {
    level: Level,
    fields: BTreeMap<&'static str, String>,
}

impl Logged {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

fn logged() -> MutexGuard<'static, Vec<Logged>> {
    LOGGED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the logged stalls of this runtime. A machine that stops for a moment causes others,
/// elsewhere.
fn stalls(runtime: &Runtime) -> Vec<Logged> {
    let name = runtime.handle().snapshot().runtime;
    let is_it = |logged: &&Logged| {
        logged.field("runtime") == name
            && logged.field("rule") == "stalled-poll"
            && logged.field("evidence").contains("cause: sleep")
    };
    logged().iter().filter(is_it).cloned().collect()
}

struct Log;

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == "volt::doctor"
    }

    fn event(&self, event: &Event<'_>) {
        let mut fields = BTreeMap::new();
        event.record(&mut |field: &Field, value: &dyn Debug| {
            // Strings come as `Debug`.
            fields.insert(field.name(), format!("{value:?}").trim_matches('"').to_owned());
        });
        logged().push(Logged { level: *event.metadata().level(), fields });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn with_sentinel(name: &str) -> Builder {
    // Cannot fail: `alone` runs each test in its own program.
    let _is_set = tracing::subscriber::set_global_default(Log);
    builder(2).sentinel_interval(Some(Duration::from_millis(10))).name(name)
}

/// Runs a task that blocks its thread. Returns the line where it was spawned.
fn stall(runtime: &Runtime) -> u32 {
    let sleeps = || std::thread::sleep(Duration::from_millis(300));
    runtime.block_on(runtime.spawn(async move { sleeps() })).unwrap();
    line!() - 1
}

/// Spawns a task now and then, until `is_so`.
fn goes_on_until(runtime: &Runtime, is_so: impl Fn() -> bool) {
    while !is_so() {
        runtime.block_on(runtime.spawn(async { volt::time::sleep(Duration::from_millis(5)).await })).unwrap();
    }
}

#[test]
fn a_stall_is_logged_once_with_its_line_and_once_when_it_ends() {
    alone(|| {
        watched(|| {
            let runtime = with_sentinel("stalls").build().unwrap();
            let line = stall(&runtime);
            // Although there is no work any more.
            while stalls(&runtime).is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            goes_on_until(&runtime, || stalls(&runtime).len() > 1);
            let since = Instant::now();
            goes_on_until(&runtime, || since.elapsed() > Duration::from_secs(2));

            let stalls = stalls(&runtime);
            let [begin, end] = &stalls[..] else { panic!("one beginning and one end: {stalls:#?}") };
            assert_eq!((begin.level, end.level), (Level::WARN, Level::INFO));
            for logged in [begin, end] {
                assert!(
                    logged.field("location").contains(&format!("tests/scheduler/observers/doctor_events.rs:{line}:")),
                    "{logged:#?}"
                );
                assert!(logged.field("evidence").contains("cause: sleep"), "{logged:#?}");
                assert!(["warning", "critical"].contains(&logged.field("severity")), "{logged:#?}");
                assert!(logged.field("message").contains("blocked worker"), "{logged:#?}");
            }
            assert!(begin.field("advice").contains("time::sleep"), "{begin:#?}");
        });
    });
}

/// The program is idle then and no client takes a snapshot, so if the sentinel suspended its checks
/// before the deadlock is certain, it would never be logged.
#[test]
fn an_idle_programs_deadlock_is_logged_before_checks_stop() {
    alone(|| {
        watched(|| {
            let runtime = with_sentinel("deadlocked").build().unwrap();
            let locks = std::sync::Arc::new([volt::sync::Mutex::new(()), volt::sync::Mutex::new(())]);
            let met = std::sync::Arc::new(volt::sync::Barrier::new(2));
            let line = line!() + 4;
            for order in [[0, 1], [1, 0]] {
                let (locks, met) = (locks.clone(), met.clone());
                drop(runtime.spawn(async move {
                    let _first = locks[order[0]].lock().await;
                    met.wait().await;
                    drop(locks[order[1]].lock().await);
                }));
            }
            let deadlocks =
                || logged().iter().filter(|logged| logged.field("rule") == "deadlock").cloned().collect::<Vec<_>>();
            while deadlocks().is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let deadlock = &deadlocks()[0];
            assert_eq!(deadlock.field("severity"), "critical", "{deadlock:#?}");
            for line in [line, line + 2] {
                let at = format!("tests/scheduler/observers/doctor_events.rs:{line}:");
                assert!(deadlock.field("evidence").contains(&at), "{deadlock:#?}");
            }
            // As soon as two snapshots a while apart report equally many checks.
            let checks = || runtime.handle().snapshot().sentinel.checks;
            let mut before = checks();
            loop {
                std::thread::sleep(Duration::from_millis(200));
                let now = checks();
                if std::mem::replace(&mut before, now) == now {
                    break;
                }
            }
        });
    });
}

/// The holder of the lock waits, too, and no worker is awake.
#[test]
fn an_idle_programs_held_lock_is_logged_before_checks_stop() {
    alone(|| {
        watched(|| {
            let runtime = with_sentinel("held").build().unwrap();
            let lock = std::sync::Arc::new(volt::sync::Mutex::new(()));
            let line = line!() + 4;
            for _ in 0..2 {
                let lock = lock.clone();
                drop(runtime.spawn(async move {
                    let _guard = lock.lock().await;
                    std::future::pending::<()>().await;
                }));
            }
            let at = format!("tests/scheduler/observers/doctor_events.rs:{line}:");
            let is_it = |logged: &Logged| logged.field("rule") == "lock-held" && logged.field("location").contains(&at);
            while !logged().iter().any(is_it) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
}

/// No task waits for a lock.
#[test]
fn an_idle_programs_joins_are_logged_before_checks_stop() {
    alone(|| {
        watched(|| {
            let runtime = with_sentinel("joined").build().unwrap();
            let (own, handle) = volt::sync::oneshot::channel::<volt::task::JoinHandle<()>>();
            let line = line!() + 1;
            let task = runtime.spawn(async move { drop(handle.await.unwrap().await) });
            own.send(task).unwrap();
            let at = format!("tests/scheduler/observers/doctor_events.rs:{line}:");
            let is_it = |logged: &Logged| logged.field("rule") == "deadlock" && logged.field("evidence").contains(&at);
            while !logged().iter().any(is_it) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    });
}

#[test]
fn with_doctor_events_off_the_log_has_none() {
    alone(|| {
        watched(|| {
            let runtime = with_sentinel("silent").doctor_events(false).build().unwrap();
            stall(&runtime);
            let since = Instant::now();
            goes_on_until(&runtime, || since.elapsed() > Duration::from_secs(2));
            let logged = logged();
            assert!(!logged.iter().any(|logged| logged.field("runtime") == "silent"), "{logged:#?}");
        });
    });
}

#[test]
fn an_idle_runtime_stays_asleep_despite_an_open_finding() {
    alone(|| {
        watched(|| {
            let runtime = with_sentinel("rests").build().unwrap();
            let count = |level| stalls(&runtime).iter().filter(|logged| logged.level == level).count();
            let is_open = || count(Level::WARN) > count(Level::INFO);
            let checks = || runtime.handle().snapshot().sentinel.checks;
            // On a busy machine, the machine may be to blame for a stall, or its stack is read when
            // it is past. Such a stall is not logged.
            while !is_open() {
                stall(&runtime);
                // The sentinel makes some more checks after the last worker has parked. Waits until
                // there was none for longer than the doctor waits.
                let (mut settled, mut since) = (checks(), Instant::now());
                while since.elapsed() < Duration::from_millis(1_500) {
                    std::thread::sleep(Duration::from_millis(10));
                    if checks() != settled {
                        (settled, since) = (checks(), Instant::now());
                    }
                }
            }
            // On a busy machine, there may be several findings: one without a line, until the stack
            // is read.
            let ended = count(Level::INFO);
            // Not a synchronisation: no thread is awake to see that it is over.
            std::thread::sleep(HOLD);
            assert_eq!(count(Level::INFO), ended, "its end is reported when the runtime wakes up");
            goes_on_until(&runtime, || !is_open());
        });
    });
}

/// Of a thousand polls, twenty block for 20 ms. That is less than four times the 99th percentile,
/// and so usual there.
#[test]
fn usual_blocking_is_a_warning_while_it_continues() {
    const OBSERVED_FOR: Duration = Duration::from_secs(5);
    alone(|| {
        watched(|| {
            let runtime = with_sentinel("chronic").build().unwrap();
            let line = line!() + 1;
            let block = || runtime.spawn(async { std::thread::sleep(Duration::from_millis(20)) });
            let round = || {
                runtime.block_on(block()).unwrap();
                for _ in 0..50 {
                    runtime.block_on(runtime.spawn(async {})).unwrap();
                }
            };
            (0..40).for_each(|_| round());
            let before = runtime.handle().snapshot();
            assert!(before.poll_time().quantile_ns(0.99).unwrap() >= 10_000_000, "so that it is usual");
            let place = format!("tests/scheduler/observers/doctor_events.rs:{line}:");
            let severity = || {
                let findings = runtime.handle().snapshot().findings.unwrap();
                let is_it = |of: &&Finding| {
                    of.rule == Rule::StalledPoll && of.locations.iter().any(|at| at.at().contains(&place))
                };
                findings.iter().find(is_it).filter(|of| of.seen.is_current).map(|of| of.severity)
            };
            while severity() < Some(Severity::Warning) {
                round();
            }
            let since = Instant::now();
            while since.elapsed() < OBSERVED_FOR {
                assert!(severity() >= Some(Severity::Warning), "{:#?}", runtime.handle().snapshot().findings);
                round();
            }
            let after = runtime.handle().snapshot();
            assert!(after.incidents.total() > before.incidents.total(), "they are all counted");
            let logged: Vec<_> =
                stalls(&runtime).into_iter().filter(|logged| logged.field("location").contains(&place)).collect();
            // A poll whose stack could not be read in time is another finding, of the task only.
            let places: BTreeSet<_> = logged.iter().map(|logged| logged.field("location")).collect();
            let is_over = logged.iter().any(|logged| logged.level == Level::INFO);
            assert!(logged.len() == places.len() && !is_over, "each is reported once, none as over: {logged:#?}");
        });
    });
}
