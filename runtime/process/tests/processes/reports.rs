//! Tests of the reports on processes: snapshots, lists and recordings.

use volt_telemetry::client::Client;
use volt_telemetry::processes;
use volt_telemetry::recording::event::{Ending, Event as Recorded, Loss};
use volt_telemetry::recording::flush::Table;

use super::*;

/// Returns the totals of the processes in the snapshot of the current runtime.
fn totals() -> volt::telemetry::processes::Processes {
    volt::Handle::current().snapshot().processes.expect("there is a system")
}

#[test]
fn a_snapshot_counts_processes_and_how_they_ended() {
    with_system(async |system| {
        let before = totals();
        assert_eq!((before.alive, before.started), (0, 0));
        let spawn = || Spawn::new(Collector::default());
        let [stays, ends, fails] =
            [spawn().name("stays"), spawn(), spawn().name("fails")].map(|it| system.spawn(it).unwrap());
        let waits = [ends, fails].map(|pid| system.wait(pid));
        system.send(ends, Payload::new("end")).await.unwrap();
        system.send(fails, Payload::new("fail")).await.unwrap();
        for wait in waits {
            wait.await;
        }
        let after = totals();
        assert_eq!((after.systems, after.started, after.alive), (1, 3, 1));
        assert_eq!((after.ended_normally, after.ended_abnormally, after.restarts), (1, 1, 0));
        let failure = after.last_failure.expect("one has failed");
        assert_eq!((failure.pid, failure.name.as_deref()), (fails.to_string(), Some("fails")));
        assert_eq!(failure.reason, "failed: as requested");
        assert!(failure.spawned_at.contains(concat!(file!(), ":")), "{}", failure.spawned_at);
        assert!(system.info(stays).is_some());
    });
}

/// Receives no messages, and has to be killed.
struct Unresponsive;

impl Process for Unresponsive {
    fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        Ok(())
    }

    fn step(&mut self, _events: Events<'_>, _out: &mut Output) -> Result<(), Failure> {
        Ok(())
    }

    fn takes_events(&self) -> bool {
        false
    }
}

fn unresponsive(system: &System, capacity: usize, overflow: Overflow) -> Pid {
    system.spawn(Spawn::new(Unresponsive).mailbox(capacity, overflow)).unwrap()
}

#[test]
fn lost_messages_and_the_deepest_mailboxes_are_reported() {
    with_system(async |system| {
        let pid = unresponsive(&system, 4, Overflow::DropNewest);
        assert!(system.register("deaf", pid));
        for _ in 0..7 {
            system.send(pid, Payload::empty()).await.unwrap();
        }
        let report = totals();
        assert_eq!(report.messages_lost, 3, "while it lives");
        let [mailbox] = &report.deepest[..] else { panic!("{report:?}") };
        assert_eq!((&mailbox.pid, mailbox.name.as_deref()), (&pid.to_string(), Some("deaf")));
        assert_eq!((mailbox.len, mailbox.capacity, mailbox.lost), (4, 4, 3));
        assert_eq!(report.states.map(|states| states.messages), Some(4));
        let waits = system.wait(pid);
        assert!(system.kill(pid));
        waits.await;
        assert_eq!(totals().messages_lost, 3);
        assert_eq!(totals().deepest, []);
    });
}

#[test]
fn a_mailbox_rises_only_if_each_sample_finds_it_deeper() {
    with_system(async |system| {
        let pid = unresponsive(&system, 100, Overflow::Block);
        let mut rises = Vec::new();
        while rises.last() != Some(&3) {
            assert!(system.try_send(pid, Payload::empty()).is_ok());
            rises.extend(totals().deepest.first().map(|mailbox| mailbox.rises));
            rises.dedup();
            volt::time::sleep(Duration::from_millis(50)).await;
        }
        while system.try_send(pid, Payload::empty()).is_ok() {}
        // It has lost one message now, which counts once.
        let full = totals().deepest[0].clone();
        assert_eq!((full.len, full.lost), (100, 1));
        while totals().deepest[0].rises > 0 {
            volt::time::sleep(Duration::from_millis(50)).await;
        }
        let waits = system.wait(pid);
        assert!(system.kill(pid));
        waits.await;
    });
}

#[test]
fn totals_add_up_over_live_systems_only() {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            assert_eq!(volt::Handle::current().snapshot().processes, None);
            let systems = [(); 2].map(|()| System::new(&volt::Handle::current()));
            for system in &systems {
                system.spawn(Spawn::new(Collector::default())).unwrap();
            }
            assert_eq!((totals().systems, totals().alive), (2, 2));
            for system in systems {
                system.shutdown(Some(LONG)).await;
            }
            // Their tasks keep them alive until those are dropped.
            while volt::Handle::current().snapshot().processes.is_some() {
                volt::task::yield_now().await;
            }
        });
    });
}

/// Returns the list of processes that a console gets for the current runtime.
fn list(query: processes::Query) -> processes::ProcessList {
    let path = volt::observe::socket_path().expect("a control socket");
    let mut client = Client::connect(&path).expect("it answers");
    let runtime = volt::Handle::current().snapshot().runtime;
    // If a sample takes long, the next one is delayed, and the answer is to an earlier query; its
    // `query` field shows that.
    loop {
        let list = client.processes(Some(&runtime), &query).expect("a list");
        assert_eq!(list.runtime, runtime);
        if list.query == query {
            return list;
        }
        std::thread::yield_now();
    }
}

#[test]
fn processes_are_listed_on_request() {
    watchdog::watched(|| {
        watchdog::builder(2).control_socket(true).build().unwrap().block_on(async {
            let systems = [(); 2].map(|()| System::new(&volt::Handle::current()));
            let of =
                |rank, filter: &str| processes::Query { rank, filter: filter.into(), limit: 3, ..Default::default() };
            let mut filled = Vec::new();
            for (n, system) in systems.iter().cycle().take(8).enumerate() {
                let pid = unresponsive(system, 4 + n, Overflow::Error);
                for _ in 0..n {
                    system.send(pid, Payload::empty()).await.unwrap();
                }
                filled.push((pid, n));
            }
            // Every process has taken its first step.
            let report = loop {
                let report = list(of(processes::Rank::Mailbox, ""));
                if report.rows.iter().all(|row| row.steps > 0) {
                    break report;
                }
                volt::task::yield_now().await;
            };
            assert_eq!((report.alive, report.matching), (8, 8));
            let deepest: Vec<_> = report.rows.iter().map(|row| (row.pid.clone(), row.mailbox_len)).collect();
            let expected = [7, 6, 5].map(|n| (filled[n].0.to_string(), n as u64));
            assert_eq!(deepest, expected, "of both systems");
            let first = &report.rows[0];
            assert!(
                first.kind.ends_with("Unresponsive") && first.spawned_at.contains(concat!(file!(), ":")),
                "{first:?}"
            );
            assert_eq!((first.mailbox_high_water, first.mailbox_capacity, first.parent.as_deref()), (7, 11, None));
            assert!(first.steps > 0 && first.task.is_some() && first.busy_ns.is_some(), "{first:?}");
            let slow = volt_process::from_fn(async |mut inbox, _| {
                let reply = inbox.recv().await.and_then(|message| message.reply);
                std::thread::sleep(Duration::from_millis(5));
                reply.unwrap().send(Payload::empty());
                inbox.recv().await;
                Ok(Payload::empty())
            });
            let busy = systems[1].spawn(Spawn::new(slow).name("Slow one")).unwrap();
            systems[1].call(busy, Payload::empty(), LONG).await.unwrap();
            let report = list(of(processes::Rank::Busy, "slow"));
            let [slow] = &report.rows[..] else { panic!("{report:?}") };
            assert_eq!((report.alive, report.matching, &slow.pid), (9, 1, &busy.to_string()));
            assert!(slow.busy_ns >= Some(4_000_000), "{slow:?}");
            for (system, pid) in systems.iter().cycle().zip(filled) {
                system.kill(pid.0);
            }
            for system in systems {
                system.shutdown(Some(LONG)).await;
            }
        });
    });
}

#[test]
fn a_recording_has_what_happens_to_processes() {
    watchdog::watched(|| {
        watchdog::builder(2).control_socket(true).build().unwrap().block_on(async {
            let system = System::new(&volt::Handle::current());
            let path = volt::observe::socket_path().expect("a control socket");
            let runtime = volt::Handle::current().snapshot().runtime;
            let mut client = Client::connect(&path).expect("it answers");
            client.record(Some(&runtime), Duration::ZERO).expect("a recording");
            let full = system.spawn(Spawn::new(Unresponsive).name("full").mailbox(1, Overflow::Error)).unwrap();
            assert!(system.try_send(full, Payload::empty()).is_ok());
            assert!(system.try_send(full, Payload::empty()).is_err());
            let child = ChildSpec::transient("child", || Spawn::new(Collector::default()).method("failing"));
            let supervisor = system.spawn(Supervisor::new(Strategy::OneForOne).child(child).into_spawn()).unwrap();
            let number = |pid: Pid| u64::from(pid.index()) << 32 | u64::from(pid.generation());
            let (mut seen, mut names) = (Vec::new(), Vec::new());
            let has_all = |seen: &[Recorded]| {
                let started = Recorded::ProcessStart { process: number(full), parent: 0 };
                let lost = Recorded::MessageLost { process: number(full), loss: Loss::Refused };
                let of_child = |event: &Recorded| matches!(event, Recorded::ProcessStart { parent, .. } if *parent == supervisor.index() + 1);
                let failed = |event: &Recorded| matches!(event, Recorded::ProcessEnd { ending: Ending::Failed, steps: 1, .. });
                let restart = Recorded::ProcessRestart { supervisor: number(supervisor) };
                [started, lost, restart].iter().all(|event| seen.contains(event))
                    && seen.iter().any(of_child)
                    && seen.iter().any(failed)
            };
            while !has_all(&seen) {
                let Some(flush) = client.next_flush(LONG).expect("a flush") else { panic!("only {seen:?}") };
                seen.extend(flush.chunks.iter().flat_map(|chunk| &chunk.records).map(|record| record.event()));
                names.extend(flush.texts.into_iter().filter(|text| text.table == Table::Process));
            }
            let name = names.iter().find(|text| text.number == number(full)).expect("it is named");
            assert!(name.text.starts_with("full (") && name.text.ends_with("Unresponsive)"), "{name:?}");
            system.kill(full);
            system.shutdown(Some(LONG)).await;
        });
    });
}

#[test]
fn a_dump_shows_waiting_processes_and_ends_none() {
    with_system(async |system| {
        let waits = || volt_process::from_fn(async |mut inbox, _| Ok(Payload::new(inbox.recv().await.is_some())));
        let pids = [Spawn::new(Collector::default()), Spawn::new(waits())].map(|spawn| system.spawn(spawn).unwrap());
        until(|| pids.iter().all(|&pid| system.info(pid).is_some_and(|info| info.lifecycle == Lifecycle::Idle))).await;
        // The task of a process waits a moment after the process does.
        let dump = loop {
            let dump = volt::Handle::current().dump().await;
            if dump.read == pids.len() as u64 {
                break dump;
            }
            assert!(pids.iter().all(|&pid| system.info(pid).is_some()), "a dump ends no process");
        };
        assert!(dump.groups.iter().all(|group| group.spawned_at.contains(file!())), "{}", dump.text());
        let errors: Vec<_> = dump.groups.iter().filter_map(|group| group.error.as_deref()).collect();
        assert!(!errors.iter().any(|error| error.contains("no waker")), "{errors:?}");
        assert!(seen(&system, pids[0]).await.is_empty());
        let ends = system.wait(pids[1]);
        system.send(pids[1], Payload::empty()).await.unwrap();
        assert_eq!(ends.await, ExitReason::Normal);
    });
}
