//! Tests of supervisors through the public API. The clock is paused while any task can run: a pause
//! of 90 s takes no time, and after a sleep, everything that could happen before it has happened.

mod ending;

use crate::watchdog;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use volt::sync::oneshot;
use volt::time::{Instant, sleep};
use volt_process::{
    self, Backoff, ChildSpec, Context, Event, Events, ExitReason, Failure, Output, Payload, Pid, Process, Restart,
    Spawn, Strategy, Supervisor, SupervisorRef, System,
};

/// Longer than anything here takes on the paused clock.
const LONG: Duration = Duration::from_secs(100_000);

fn with_system<F: Future<Output = ()>>(test: impl Fn(System, Log) -> F) {
    with_system_on(&[1, 2, 4], test);
}

fn with_system_on<F: Future<Output = ()>>(workers: &[usize], test: impl Fn(System, Log) -> F) {
    for &workers in workers {
        watchdog::watched(|| {
            let runtime = watchdog::builder(workers).start_paused(true).build().unwrap();
            runtime.block_on(async {
                let system = System::new(&volt::Handle::current());
                test(system.clone(), Log::new()).await;
                assert!(
                    system.shutdown(Some(LONG)).await.forced.is_empty(),
                    "every process exits when it is cancelled"
                );
                assert_eq!(system.process_count(), 0);
            });
        });
    }
}

/// The events in order, with the second in which each happened.
#[derive(Clone)]
struct Log {
    lines: Arc<Mutex<Vec<(u64, String)>>>,
    began: Instant,
}

impl Log {
    fn new() -> Self {
        Self { lines: Arc::default(), began: Instant::now() }
    }

    fn add(&self, line: String) {
        self.lines.lock().unwrap().push((self.began.elapsed().as_secs(), line));
    }

    /// Returns the lines since the last call, once nothing more can happen without time passing.
    async fn take(&self) -> Vec<String> {
        self.after(Duration::from_millis(1)).await.into_iter().map(|(_, line)| line).collect()
    }

    /// Returns the lines since the last call, with their seconds, after `duration` has passed.
    async fn after(&self, duration: Duration) -> Vec<(u64, String)> {
        sleep(duration).await;
        std::mem::take(&mut *self.lines.lock().unwrap())
    }
}

/// Adds its start and its end to the log. Its name is registered, and messages make it end, fail or
/// panic.
struct Probe {
    name: String,
    log: Log,
    is_unresponsive: bool,
    fails: bool,
}

impl Process for Probe {
    fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        self.log.add(format!("+{}", self.name));
        if self.fails { Err(Failure::new("init")) } else { Ok(()) }
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        for event in events {
            match event {
                Event::Cancel if !self.is_unresponsive => out.done(),
                Event::Message(message) => match message.payload.downcast_ref::<&str>() {
                    Some(&"end") => out.done(),
                    Some(&"fail") => return Err(Failure::new("as requested")),
                    _ => panic!("as requested"),
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.log.add(format!("-{}", self.name));
    }
}

fn probe(name: &str, log: &Log) -> Spawn {
    Spawn::new(Probe { name: name.to_owned(), log: log.clone(), is_unresponsive: false, fails: false }).name(name)
}

fn permanent(name: &str, log: &Log) -> ChildSpec {
    let (id, name, log) = (name.to_owned(), name.to_owned(), log.clone());
    ChildSpec::permanent(id, move || probe(&name, &log))
}

fn transient(name: &str, log: &Log) -> ChildSpec {
    let (id, name, log) = (name.to_owned(), name.to_owned(), log.clone());
    ChildSpec::transient(id, move || probe(&name, &log))
}

/// The default pauses without jitter.
fn exact() -> Backoff {
    Backoff::default().jitter(0.0)
}

fn send_to(system: &System, name: &str, what: &'static str) {
    let pid = system.whereis(name).unwrap_or_else(|| panic!("{name} is not there"));
    system.try_send(pid, Payload::new(what)).unwrap();
}

/// Starts a supervisor of a, b and c, and makes b fail. Returns what happens then, with the
/// seconds.
async fn b_of_three_fails(system: &System, log: &Log, strategy: Strategy) -> Vec<(u64, String)> {
    let children = ["a", "b", "c"].map(|name| permanent(name, log));
    let supervisor = children.into_iter().fold(Supervisor::new(strategy).backoff(exact()), Supervisor::child);
    let supervisor = system.spawn(supervisor.into_spawn()).unwrap();
    assert_eq!(log.take().await, ["+a", "+b", "+c"]);
    let before: Vec<Option<Pid>> = ["a", "b", "c"].map(|name| system.whereis(name)).to_vec();
    send_to(system, "b", "panic");
    let lines = log.after(Duration::from_millis(1500)).await;
    let is_new = |name: &str, was: Option<Pid>| system.whereis(name).is_some() && system.whereis(name) != was;
    for (name, was) in ["a", "b", "c"].into_iter().zip(before) {
        assert_eq!(is_new(name, was), lines.iter().any(|(_, line)| *line == format!("+{name}")), "{name}");
    }
    assert_eq!(system.info(supervisor).unwrap().restarts, 1);
    lines
}

fn at(second: u64, lines: &[&str]) -> Vec<(u64, String)> {
    lines.iter().map(|line| (second, (*line).to_owned())).collect()
}

#[test]
fn one_for_one_restarts_only_the_failed_process() {
    with_system(async |system, log| {
        let lines = b_of_three_fails(&system, &log, Strategy::OneForOne).await;
        assert_eq!(lines, [at(0, &["-b"]), at(1, &["+b"])].concat());
    });
}

#[test]
fn one_for_all_stops_in_reverse_order_and_restarts_in_order() {
    with_system(async |system, log| {
        let lines = b_of_three_fails(&system, &log, Strategy::OneForAll).await;
        assert_eq!(lines, [at(0, &["-b", "-c", "-a"]), at(1, &["+a", "+b", "+c"])].concat());
    });
}

#[test]
fn rest_for_one_takes_along_those_that_were_started_later() {
    with_system(async |system, log| {
        let lines = b_of_three_fails(&system, &log, Strategy::RestForOne).await;
        assert_eq!(lines, [at(0, &["-b", "-c"]), at(1, &["+b", "+c"])].concat());
    });
}

#[test]
fn a_group_waits_for_the_slowest_exit_before_any_start() {
    with_system(async |system, log| {
        let unresponsive = log.clone();
        let unresponsive = ChildSpec::permanent("deaf", move || {
            Spawn::new(Probe {
                name: "deaf".to_owned(),
                log: unresponsive.clone(),
                is_unresponsive: true,
                fails: false,
            })
            .name("deaf")
        });
        let supervisor =
            Supervisor::new(Strategy::OneForAll).backoff(exact()).child(permanent("a", &log)).child(unresponsive);
        system.spawn(supervisor.child(permanent("z", &log)).into_spawn()).unwrap();
        assert_eq!(log.take().await, ["+a", "+deaf", "+z"]);
        send_to(&system, "z", "fail");
        // The default shutdown limit of a child is five seconds.
        let lines = log.after(Duration::from_secs(20)).await;
        assert_eq!(lines, [at(0, &["-z"]), at(5, &["-deaf", "-a", "+a", "+deaf", "+z"])].concat());
        // A process that ignores cancellation would delay the shutdown.
        system.kill(system.whereis("deaf").unwrap());
    });
}

#[test]
fn restart_policies_decide_which_children_are_restarted() {
    with_system(async |system, log| {
        let cases = [("end", vec!["+p"]), ("fail", vec!["+p", "+t"]), ("panic", vec!["+p", "+t"])];
        for (way, again) in cases {
            let supervisor =
                Supervisor::new(Strategy::OneForOne).child(permanent("p", &log)).child(transient("t", &log));
            let supervisor = supervisor.child(ChildSpec::temporary("o", probe("o", &log)));
            let pid = system.spawn(supervisor.into_spawn()).unwrap();
            assert_eq!(log.take().await, ["+p", "+t", "+o"]);
            ["p", "t", "o"].iter().for_each(|name| send_to(&system, name, way));
            let mut lines = log.after(Duration::from_secs(3)).await;
            lines.sort_by(|(_, one), (_, other)| one.cmp(other));
            let started: Vec<&str> =
                lines.iter().map(|(_, line)| &**line).filter(|line| line.starts_with('+')).collect();
            assert_eq!(started, again, "{way}");
            let left = SupervisorRef::new(&system, pid).children().await.unwrap();
            let left: Vec<&str> = left.iter().map(|child| &*child.id).collect();
            assert_eq!(
                left,
                if way == "end" { vec!["p"] } else { vec!["p", "t"] },
                "who is not to be started again is forgotten"
            );
            system.terminate(pid, LONG).await;
            log.take().await;
        }
    });
}

#[test]
fn one_for_all_does_not_restart_a_temporary_child() {
    with_system(async |system, log| {
        let supervisor = Supervisor::new(Strategy::OneForAll).backoff(exact()).child(permanent("p", &log));
        let supervisor = supervisor.child(ChildSpec::temporary("o", probe("o", &log))).child(transient("t", &log));
        let pid = system.spawn(supervisor.into_spawn()).unwrap();
        log.take().await;
        send_to(&system, "p", "end");
        sleep(Duration::from_millis(500)).await;
        let left = SupervisorRef::new(&system, pid).children().await.unwrap();
        assert_eq!(
            left.iter().map(|child| &*child.id).collect::<Vec<_>>(),
            ["p", "t"],
            "it is forgotten when it has ended"
        );
        assert_eq!(
            log.after(Duration::from_secs(3)).await,
            [at(0, &["-p", "-t", "-o"]), at(1, &["+p", "+t"])].concat()
        );
    });
}

#[test]
fn restart_backoff_doubles_on_failures_and_resets_after_90_s() {
    with_system(async |system, log| {
        let supervisor = Supervisor::new(Strategy::OneForOne).backoff(exact()).child(permanent("a", &log));
        system.spawn(supervisor.intensity(100, LONG).into_spawn()).unwrap();
        log.take().await;
        for pause in [1, 2, 4, 8, 16, 32, 64, 90, 90] {
            let died = log.began.elapsed();
            send_to(&system, "a", "fail");
            let lines = log.after(Duration::from_secs(pause) - Duration::from_millis(10)).await;
            assert_eq!(lines.iter().map(|(_, line)| &**line).collect::<Vec<_>>(), ["-a"], "too soon at {died:?}");
            assert_eq!(log.after(Duration::from_millis(20)).await.len(), 1, "too late: {pause} s");
        }
        sleep(Duration::from_secs(90)).await;
        send_to(&system, "a", "fail");
        assert_eq!(log.after(Duration::from_millis(1010)).await.len(), 2, "back to one second");
    });
}

#[test]
fn the_longest_pause_is_no_immediate_restart() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        with_system(async |system, log| {
            let never = Backoff::new(Duration::MAX, Duration::MAX).jitter(0.0);
            let supervisor = Supervisor::new(strategy).backoff(never).child(permanent("a", &log));
            let pid = system.spawn(supervisor.into_spawn()).unwrap();
            assert_eq!(log.take().await, ["+a"]);
            send_to(&system, "a", "fail");
            assert_eq!(log.after(LONG).await, at(0, &["-a"]), "{strategy:?}");
            assert_eq!(system.terminate(pid, LONG).await, ExitReason::Shutdown);
        });
    }
}

#[test]
fn a_short_pause_is_not_delayed_by_an_earlier_long_one() {
    with_system(async |system, log| {
        let supervisor = Supervisor::new(Strategy::OneForOne).backoff(exact()).child(permanent("a", &log));
        system.spawn(supervisor.child(permanent("b", &log)).into_spawn()).unwrap();
        for _ in 0..3 {
            sleep(Duration::from_millis(2100)).await;
            send_to(&system, "a", "fail");
        }
        log.take().await;
        send_to(&system, "b", "fail");
        let lines: Vec<String> = log.after(Duration::from_secs(5)).await.into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, ["-b", "+b", "+a"]);
    });
}

#[test]
fn a_child_whose_init_fails_is_a_child_that_failed() {
    with_system(async |system, log| {
        let failing = log.clone();
        let failing = ChildSpec::permanent("f", move || {
            Spawn::new(Probe { name: "f".to_owned(), log: failing.clone(), is_unresponsive: false, fails: true })
        });
        let panicking = ChildSpec::permanent("none", || panic!("it cannot be made"));
        let inner = Supervisor::new(Strategy::OneForOne).backoff(exact()).child(failing).child(permanent("a", &log));
        let pid = system.spawn(inner.into_spawn()).unwrap();
        let ends = system.wait(pid);
        // The sixth failure exceeds the limit. The other child is not delayed in the meantime.
        let lines = log.after(Duration::from_secs(100)).await;
        let starts: Vec<u64> = lines.iter().filter(|(_, line)| line == "+f").map(|(second, _)| *second).collect();
        assert_eq!(starts, [0, 1, 3, 7, 15, 31]);
        assert_eq!(lines.iter().position(|(_, line)| line == "+a"), Some(2), "{lines:?}");
        assert_eq!(lines.last().unwrap(), &(31, "-a".to_owned()));
        let why = "failed: more than 5 restarts within 60s, the last of \"f\": failed: init";
        assert_eq!(ends.await.to_string(), why);
        let none =
            Supervisor::new(Strategy::RestForOne).intensity(1, LONG).child(panicking).child(permanent("b", &log));
        let reason = system.exec(none.into_spawn()).await.unwrap_err();
        assert!(reason.to_string().ends_with("the last of \"none\": panicked: it cannot be made"), "{reason}");
        assert!(log.take().await.is_empty(), "no child is started before those that it needs");
    });
}

#[test]
fn a_child_that_cannot_start_does_not_block_its_supervisor() {
    with_system(async |system, log| {
        let _taken = system.spawn(probe("taken", &log)).unwrap();
        let supervisor = Supervisor::new(Strategy::OneForOne)
            .backoff(Backoff::new(Duration::ZERO, Duration::ZERO))
            .intensity(u32::MAX, LONG)
            .child(permanent("taken", &log));
        let pid = system.spawn(supervisor.into_spawn()).unwrap();
        let children = SupervisorRef::new(&system, pid).children().await.unwrap();
        assert_eq!((children.len(), children[0].pid), (1, None));
        assert_eq!(system.terminate(pid, LONG).await, ExitReason::Shutdown);
    });
}

#[test]
fn a_group_that_waits_to_start_does_not_delay_its_parents() {
    for strategy in [Strategy::OneForOne, Strategy::OneForAll, Strategy::RestForOne] {
        with_system(async |system, log| {
            let failing = log.clone();
            let inner = move || {
                let log = failing.clone();
                let probe =
                    move || Probe { name: "a".to_owned(), log: log.clone(), is_unresponsive: false, fails: true };
                let child = ChildSpec::permanent("a", move || Spawn::new(probe()));
                Supervisor::new(strategy).backoff(exact()).child(child).into_spawn()
            };
            let outer = Supervisor::new(Strategy::OneForOne).child(ChildSpec::permanent("inner", inner));
            system.spawn(outer.child(permanent("b", &log)).into_spawn()).unwrap();
            assert_eq!(log.take().await, ["+a", "-a", "+b"], "{strategy:?}");
        });
    }
}

#[test]
fn children_are_added_listed_and_removed_while_it_runs() {
    with_system(async |system, log| {
        let pid = system.spawn(Supervisor::new(Strategy::OneForOne).child(permanent("a", &log)).into_spawn()).unwrap();
        let supervisor = SupervisorRef::new(&system, pid);
        let b = supervisor.start_child(transient("b", &log)).await.unwrap();
        assert_eq!(system.whereis("b"), Some(b));
        assert_eq!(log.take().await, ["+a", "+b"], "when start_child returns, init has");
        assert!(supervisor.start_child(permanent("b", &log)).await.unwrap_err().is_duplicate());
        let failing = log.clone();
        let failing = move || {
            Spawn::new(Probe { name: "f".to_owned(), log: failing.clone(), is_unresponsive: false, fails: true })
        };
        let error = supervisor.start_child(ChildSpec::transient("f", failing)).await.unwrap_err();
        assert!(error.is_not_started());
        assert_eq!(error.to_string(), "the child \"f\" was not started: failed: init");
        let twin = supervisor
            .start_child(ChildSpec::permanent("twin", {
                let log = log.clone();
                move || probe("a", &log)
            }))
            .await;
        assert_eq!(
            twin.unwrap_err().to_string(),
            "the child \"twin\" was not started: failed: another process has the name \"a\""
        );
        let list = supervisor.children().await.unwrap();
        let list: Vec<_> = list.iter().map(|child| (&*child.id, child.pid, child.restart, child.restarts)).collect();
        assert_eq!(list, [("a", system.whereis("a"), Restart::Permanent, 0), ("b", Some(b), Restart::Transient, 0)]);
        send_to(&system, "b", "fail");
        log.take().await;
        let b = &supervisor.children().await.unwrap()[1];
        assert_eq!((b.pid, b.restarts), (None, 1));
        assert_eq!(supervisor.terminate_child("b").await.unwrap(), ExitReason::NoProcess, "it waited to be started");
        assert_eq!(supervisor.terminate_child("a").await.unwrap(), ExitReason::Shutdown);
        assert!(supervisor.terminate_child("a").await.unwrap_err().is_no_child());
        assert_eq!(
            log.after(LONG).await.into_iter().map(|(_, line)| line).collect::<Vec<_>>(),
            ["-a"],
            "no child is restarted"
        );
        system.terminate(pid, LONG).await;
        assert!(supervisor.start_child(permanent("c", &log)).await.unwrap_err().is_ended());
        let other = system.spawn(probe("other", &log)).unwrap();
        drop(SupervisorRef::new(&system, other).children().await.unwrap_err());
    });
}

#[test]
fn a_supervisor_by_name_is_found_again_after_its_restart() {
    with_system(async |system, _log| {
        let inner = || Supervisor::new(Strategy::OneForOne).into_spawn().name("inner");
        let outer = Supervisor::new(Strategy::OneForOne).backoff(exact()).child(ChildSpec::permanent("inner", inner));
        system.spawn(outer.into_spawn()).unwrap();
        sleep(Duration::from_millis(1)).await;
        let inner = SupervisorRef::named(&system, "inner");
        assert!(inner.children().await.unwrap().is_empty());
        system.kill(system.whereis("inner").unwrap());
        sleep(Duration::from_millis(1)).await;
        assert!(inner.children().await.unwrap_err().is_ended());
        sleep(Duration::from_secs(2)).await;
        assert!(inner.children().await.unwrap().is_empty());
    });
}

#[test]
fn two_children_of_one_id_are_an_error_at_the_start() {
    with_system(async |system, log| {
        let supervisor = Supervisor::new(Strategy::OneForOne).child(permanent("a", &log)).child(permanent("a", &log));
        let reason = system.exec(supervisor.into_spawn()).await.unwrap_err();
        assert_eq!(reason.to_string(), "failed: two children have the id \"a\"");
        assert!(log.take().await.is_empty());
    });
}
