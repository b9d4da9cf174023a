//! Tests of how supervisors and their children end.

use super::*;

/// Fails in `init`, and blocks in `close` until it may end.
struct SlowToEnd {
    closing: Option<oneshot::Sender<()>>,
    may_end: mpsc::Receiver<()>,
}

impl Process for SlowToEnd {
    fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        Err(Failure::new("init"))
    }

    fn step(&mut self, _events: Events<'_>, _out: &mut Output) -> Result<(), Failure> {
        Ok(())
    }

    fn close(&mut self) {
        self.closing.take().unwrap().send(()).unwrap();
        self.may_end.recv().unwrap();
    }
}

#[test]
fn a_supervisor_continues_after_a_failed_init() {
    // The child's `close` blocks one worker.
    with_system_on(&[2, 4], async |system, _log| {
        let pid = system.spawn(Supervisor::new(Strategy::OneForOne).into_spawn()).unwrap();
        let supervisor = SupervisorRef::new(&system, pid);
        let (closing, is_closing) = oneshot::channel();
        let (let_end, may_end) = mpsc::channel();
        let slow = Spawn::new(SlowToEnd { closing: Some(closing), may_end });
        let starts = supervisor.start_child(ChildSpec::temporary("slow", slow));
        let caller = async {
            is_closing.await.unwrap();
            for _ in 0..3 {
                assert_eq!(supervisor.children().await.unwrap().len(), 1);
            }
            let_end.send(()).unwrap();
        };
        let (started, ()) = volt::join!(starts, caller);
        assert!(started.unwrap_err().is_not_started());
        assert!(supervisor.children().await.unwrap().is_empty());
    });
}

#[test]
fn one_restart_too_many_is_left_to_the_supervisor_above() {
    with_system(async |system, log| {
        let children = log.clone();
        let inner = move || {
            let supervisor =
                Supervisor::new(Strategy::OneForOne).intensity(2, Duration::from_secs(10)).backoff(exact());
            let children = ["a", "b", "c"].map(|name| permanent(name, &children));
            children.into_iter().fold(supervisor, Supervisor::child).into_spawn().name("inner")
        };
        let outer = Supervisor::new(Strategy::RestForOne).backoff(exact()).child(permanent("before", &log));
        let outer = outer.child(ChildSpec::permanent("inner", inner)).child(permanent("after", &log));
        let outer = system.spawn(outer.into_spawn()).unwrap();
        assert_eq!(
            log.take().await,
            ["+before", "+a", "+b", "+c", "+after"],
            "the inner children start before those that need them"
        );
        let was = system.whereis("inner");
        for name in ["a", "b", "c"] {
            send_to(&system, name, "panic");
            sleep(Duration::from_millis(1)).await;
        }
        let lines = log.after(Duration::from_secs(2)).await;
        // By the third failure, all children of `inner` are dead, waiting, or about to be started.
        let gone = at(0, &["-a", "-b", "-c", "-after"]);
        assert_eq!(lines[..4], gone, "{lines:?}");
        let again: Vec<&str> = lines[4..].iter().map(|(_, line)| &**line).collect();
        assert_eq!(again, ["+a", "+b", "+c", "+after"]);
        assert!(system.whereis("inner").is_some() && system.whereis("inner") != was);
        assert_eq!(system.info(outer).unwrap().restarts, 1);
    });
}

#[test]
fn a_terminated_supervisor_stops_its_children_in_reverse_order() {
    with_system(async |system, log| {
        let children = ["a", "b", "c", "d"].map(|name| permanent(name, &log));
        let supervisor = children.into_iter().fold(Supervisor::new(Strategy::OneForOne), Supervisor::child);
        let pid = system.spawn(supervisor.into_spawn()).unwrap();
        log.take().await;
        send_to(&system, "c", "panic");
        assert_eq!(log.take().await, ["-c"]);
        assert_eq!(system.terminate(pid, LONG).await, ExitReason::Shutdown);
        assert_eq!(log.after(LONG).await.into_iter().map(|(_, line)| line).collect::<Vec<_>>(), ["-d", "-b", "-a"]);
    });
}

#[test]
fn a_child_that_does_not_exit_in_time_is_killed() {
    with_system(async |system, log| {
        let limits = [Some(Duration::from_secs(2)), Some(Duration::from_secs(7)), None];
        let mut supervisor = Supervisor::new(Strategy::RestForOne);
        for (index, limit) in limits.into_iter().enumerate() {
            let (name, log) = (format!("deaf{index}"), log.clone());
            let make = move || {
                let probe = Probe { name: name.clone(), log: log.clone(), is_unresponsive: true, fails: false };
                Spawn::new(probe).name(name.clone())
            };
            supervisor = supervisor.child(ChildSpec::permanent(format!("{index}"), make).shutdown_limit(limit));
        }
        let pid = system.spawn(supervisor.into_spawn()).unwrap();
        log.take().await;
        let ends = system.wait(pid);
        system.cancel(pid);
        assert!(log.after(Duration::from_secs(1000)).await.is_empty(), "the last may take as long as it likes");
        system.kill(system.whereis("deaf2").unwrap());
        assert_eq!(
            log.after(Duration::from_secs(20)).await,
            [at(1000, &["-deaf2"]), at(1007, &["-deaf1"]), at(1009, &["-deaf0"])].concat()
        );
        assert_eq!(ends.await, ExitReason::Shutdown);
    });
}

#[test]
fn no_process_outlives_a_killed_supervisor() {
    with_system(async |system, log| {
        let deep = log.clone();
        let inner =
            move || Supervisor::new(Strategy::OneForOne).child(permanent("deep", &deep)).into_spawn().name("inner");
        // A process that traps exits, and only receives messages.
        let trapping = || {
            let waits = volt_process::from_fn(async |mut inbox, _| {
                while inbox.recv().await.is_some() {}
                Ok(Payload::empty())
            });
            Spawn::new(waits).trap_exits().name("trapping")
        };
        let outer = Supervisor::new(Strategy::OneForOne)
            .child(permanent("a", &log))
            .child(ChildSpec::permanent("trapping", trapping))
            .child(ChildSpec::permanent("i", inner));
        let pid = system.spawn(outer.into_spawn()).unwrap();
        log.take().await;
        assert_eq!(system.process_count(), 5);
        system.kill(pid);
        let mut lines = log.take().await;
        lines.sort();
        assert_eq!((lines, system.process_count()), (vec!["-a".to_owned(), "-deep".to_owned()], 0));
    });
}

/// More than the maximum number of outstanding yields.
const MANY: usize = 3000;

#[test]
fn a_supervisor_ends_thousands_of_dynamic_children_in_parallel() {
    with_system(async |system, log| {
        let pid = system.spawn(Supervisor::new(Strategy::OneForOne).child(permanent("a", &log)).into_spawn()).unwrap();
        let supervisor = SupervisorRef::new(&system, pid);
        for index in 0..MANY {
            let unresponsive = volt_process::from_fn(async |_inbox, _| std::future::pending().await);
            supervisor.start_child(ChildSpec::temporary(index.to_string(), Spawn::new(unresponsive))).await.unwrap();
        }
        assert_eq!(system.process_count(), MANY + 2);
        let before = log.began.elapsed();
        assert_eq!(system.terminate(pid, LONG).await, ExitReason::Shutdown);
        let took = (log.began.elapsed() - before).as_secs();
        assert_eq!((took, system.process_count()), (5, 0));
    });
}

#[test]
fn the_end_of_a_system_is_no_failure_of_its_children() {
    with_system(async |system, log| {
        let mut supervisor = Supervisor::new(Strategy::OneForOne);
        for index in 0..20 {
            supervisor = supervisor.child(permanent(&format!("child{index}"), &log));
        }
        let pid = system.spawn(supervisor.into_spawn()).unwrap();
        let started: Vec<String> = (0..20).map(|index| format!("+child{index}")).collect();
        assert_eq!(log.take().await, started, "each after the one before, on however many workers");
        let ends = system.wait(pid);
        assert!(system.shutdown(Some(LONG)).await.forced.is_empty());
        assert_eq!(ends.await, ExitReason::Shutdown);
        assert_eq!(log.take().await.len(), 20, "each has ended, and none began again");
    });
}

/// A shutdown cancels processes in the order of the registry. With many processes in between, these
/// children exit before their supervisor is cancelled.
#[test]
fn shutdown_does_not_restart_children_of_a_later_supervisor() {
    with_system(async |system, log| {
        let idle =
            || Spawn::new(Probe { name: "idle".to_owned(), log: Log::new(), is_unresponsive: false, fails: false });
        // The registry distributes processes over 64 shards, which are cancelled one after the
        // other.
        (0..63).for_each(|_| _ = system.spawn(idle()).unwrap());
        let children = (0..20).map(|index| permanent(&format!("child{index}"), &log));
        let supervisor = children.fold(Supervisor::new(Strategy::OneForOne), Supervisor::child);
        let pid = system.spawn(supervisor.into_spawn()).unwrap();
        assert_eq!(log.take().await.len(), 20);
        (0..MANY).for_each(|_| _ = system.spawn(idle()).unwrap());
        let ends = system.wait(pid);
        assert!(system.shutdown(Some(LONG)).await.forced.is_empty());
        assert!(!ends.await.is_abnormal(), "twenty restarts would be too many");
    });
}
