//! Processes: state machines with mailboxes, by the public API.

mod ends;
mod mail;
mod model;
mod panics;
mod relay;
mod stop;
mod supervisors;
#[path = "../watchdog/mod.rs"]
mod watchdog;
mod yields;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use volt::process::{
    self, ChildSpec, Context, Event, Events, ExitReason, Failure, Lifecycle, Output, Overflow, Payload, Pid, Process,
    Spawn, Strategy, Supervisor, System,
};
use volt_telemetry::client::Client;
use volt_telemetry::processes;
use volt_telemetry::recording::event::{Ending, Event as Recorded, Loss};
use volt_telemetry::recording::flush::Table;

const LONG: Duration = Duration::from_secs(50);

fn with_system<F: Future<Output = ()>>(test: impl Fn(System) -> F) {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let system = System::new(&volt::Handle::current());
            test(system.clone()).await;
            assert!(system.shutdown(Some(LONG)).await.forced.is_empty(), "every process ends when it is asked to");
            assert_eq!(system.process_count(), 0);
        });
    });
}

/// Answers calls with what it was sent before; a message `end` ends it, `fail` and `panic` do that.
#[derive(Default)]
struct Collector {
    seen: Vec<u32>,
    closed: Arc<AtomicUsize>,
}

impl Process for Collector {
    fn methods(&self) -> &[&'static str] {
        &["main", "failing"]
    }

    fn init(&mut self, _context: &Context, method: &str, _input: Payload) -> Result<(), Failure> {
        if method == "failing" { Err(Failure::new("as it was asked to")) } else { Ok(()) }
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        for event in events {
            match event {
                Event::Cancel => out.done(),
                Event::Message(message) => match (message.reply, message.payload.downcast_ref::<&str>()) {
                    (Some(reply), _) => reply.send(Payload::new(self.seen.clone())),
                    (None, Some(&"end")) => out.done_with(Payload::new(self.seen.clone())),
                    (None, Some(&"fail")) => return Err(Failure::new("told to")),
                    (None, Some(&"panic")) => panic!("told to"),
                    (None, _) => self.seen.push(message.payload.downcast().unwrap()),
                },
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// A state machine of one function; it steps once after it was begun, without events.
struct Scripted<F> {
    step: F,
    context: Option<Context>,
}

impl<F> Process for Scripted<F>
where
    F: FnMut(&Context, Events<'_>, &mut Output) -> Result<(), Failure> + Send + 'static,
{
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        context.waker().wake();
        self.context = Some(context.clone());
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        match &self.context {
            Some(context) => (self.step)(context, events, out),
            None => unreachable!("it was begun"),
        }
    }
}

fn scripted<F>(step: F) -> Spawn
where
    F: FnMut(&Context, Events<'_>, &mut Output) -> Result<(), Failure> + Send + 'static,
{
    Spawn::new(Scripted { step, context: None })
}

/// Ends when it is asked to, and takes messages; one that is a [`Held`] keeps it in its step.
fn idle() -> Spawn {
    scripted(|_, events, out| {
        for event in events {
            match event {
                Event::Cancel => out.done(),
                Event::Message(message) => hold(message.payload),
                _ => {}
            }
        }
        Ok(())
    })
}

/// Keeps a process in its step until the other half is dropped.
struct Held {
    is_in: mpsc::Sender<()>,
    goes_on: mpsc::Receiver<()>,
}

fn hold(payload: Payload) {
    if let Ok(held) = payload.downcast::<Held>() {
        held.is_in.send(()).unwrap();
        _ = held.goes_on.recv();
    }
}

/// The process is in a step until this is dropped.
struct InStep(#[expect(dead_code, reason = "it is held")] mpsc::Sender<()>);

fn keep_in_step(system: &System, pid: Pid) -> InStep {
    let ((is_in, entered), (keep, goes_on)) = (mpsc::channel(), mpsc::channel());
    system.try_send(pid, Payload::new(Held { is_in, goes_on })).unwrap();
    entered.recv().unwrap();
    InStep(keep)
}

/// A process that takes no mail before its gate opens: it waits for something else.
async fn gated(system: &System, capacity: usize) -> (Pid, Arc<volt::sync::Semaphore>) {
    let gate = Arc::new(volt::sync::Semaphore::new(0));
    let opens = gate.clone();
    let waits = process::from_fn(async move |mut inbox, _| {
        drop(opens.acquire().await);
        while inbox.recv().await.is_some() {}
        Ok(Payload::empty())
    });
    let pid = system.spawn(Spawn::new(waits).mailbox(capacity, Overflow::Block)).unwrap();
    until(|| system.info(pid).unwrap().lifecycle == Lifecycle::Blocked).await;
    (pid, gate)
}

/// Counts how often it is dropped.
#[derive(Clone, Default)]
struct Dropped(Arc<AtomicUsize>);

impl Dropped {
    fn count(&self) -> usize {
        self.0.load(Ordering::Acquire)
    }
}

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Waits, without a clock, until `claim` holds; the watchdog sees to it that this is not for ever.
async fn until(mut claim: impl FnMut() -> bool) {
    while !claim() {
        volt::task::yield_now().await;
    }
}

async fn poll_once<F: Future>(future: Pin<&mut F>) -> Option<F::Output> {
    let mut future = Some(future);
    std::future::poll_fn(|cx| {
        let polled = future.take().expect("polled once").poll(cx);
        std::task::Poll::Ready(match polled {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

async fn seen(system: &System, pid: Pid) -> Vec<u32> {
    system.call(pid, Payload::empty(), LONG).await.unwrap().downcast().unwrap()
}

#[test]
fn an_upgrade_takes_place_whatever_the_process_does_and_each_is_answered() {
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
        for n in 0..100_u32 {
            // Idle by now, or in the middle of what it was sent.
            system.send(pid, Payload::new(n)).await.unwrap();
            let taken = |old: &mut Collector| Collector { seen: std::mem::take(&mut old.seen), ..Collector::default() };
            let (first, second) = volt::join!(
                system.upgrade(pid, move |old: &mut Collector| Ok(taken(old))),
                system.upgrade(pid, |_: &mut Collector| Err::<Collector, _>(Failure::new("not this one"))),
            );
            assert_eq!(first, Ok(()));
            assert!(second.is_err(), "its own word, or that the first still waits");
        }
        assert_eq!(seen(&system, pid).await, (0..100).collect::<Vec<_>>());
    });
}

#[test]
fn messages_of_one_sender_arrive_in_their_order() {
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default()).mailbox(7, Overflow::Block)).unwrap();
        for n in 0..1000_u32 {
            system.send(pid, Payload::new(n)).await.unwrap();
        }
        assert_eq!(seen(&system, pid).await, (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn an_unknown_method_is_an_error_before_anything_runs() {
    with_system(async |system| {
        let collector = Collector::default();
        let closed = collector.closed.clone();
        let error = system.spawn(Spawn::new(collector).method("mian")).unwrap_err();
        assert!(error.is_unknown_method());
        assert!(error.to_string().ends_with("no entry method \"mian\", but main, failing"), "{error}");
        assert_eq!((system.process_count(), closed.load(Ordering::Relaxed)), (0, 0));
    });
}

#[test]
fn each_way_to_end_has_its_reason_and_is_closed_once() {
    with_system(async |system| {
        let ways: [(&'static str, Option<&'static str>, ExitReason); 4] = [
            ("main", Some("end"), ExitReason::Normal),
            ("main", Some("fail"), ExitReason::Failed(Failure::new("told to"))),
            ("main", Some("panic"), ExitReason::Panicked(Failure::new("told to"))),
            ("failing", None, ExitReason::Failed(Failure::new("as it was asked to"))),
        ];
        for (method, message, reason) in ways {
            let collector = Collector::default();
            let closed = collector.closed.clone();
            let pid = system.spawn(Spawn::new(collector).method(method)).unwrap();
            let ends = system.wait(pid);
            if let Some(message) = message {
                system.send(pid, Payload::new(message)).await.unwrap();
            }
            let ended = ends.await;
            // One that fails by itself may have ended before anybody waited.
            assert!(ended == reason || (message.is_none() && ended == ExitReason::NoProcess), "{ended}");
            assert!(system.try_send(pid, Payload::empty()).unwrap_err().is_no_process());
            let result = system.exec(Spawn::new(Collector::default()).method("failing")).await;
            assert_eq!(result.unwrap_err(), ExitReason::Failed(Failure::new("as it was asked to")));
            assert_eq!(closed.load(Ordering::Relaxed), 1);
        }
    });
}

/// Yields in its first step what it is made with, and is done when everything is completed; its result is what came.
struct Yielder {
    yields: fn(&mut Output, Pid),
    other: Pid,
    outstanding: usize,
    completed: Vec<(u64, Result<Payload, Failure>)>,
    context: Option<Context>,
}

impl Process for Yielder {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        context.waker().wake();
        self.context = Some(context.clone());
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        for event in events {
            match event {
                Event::Completed { tag, result } => self.completed.push((tag, result)),
                Event::Cancel => out.done(),
                _ => {}
            }
        }
        if self.outstanding > 0 && self.completed.is_empty() && self.context.take().is_some() {
            (self.yields)(out, self.other);
            out.wait();
        } else if self.completed.len() == self.outstanding {
            out.done_with(Payload::new(std::mem::take(&mut self.completed)));
        } else {
            out.wait();
        }
        Ok(())
    }
}

async fn yields(
    system: &System,
    outstanding: usize,
    other: Pid,
    yields: fn(&mut Output, Pid),
) -> Vec<(u64, Result<Payload, Failure>)> {
    let yielder = Yielder { yields, other, outstanding, completed: Vec::new(), context: None };
    system.exec(Spawn::new(yielder)).await.unwrap().downcast().unwrap()
}

#[test]
fn yields_are_completed_with_their_tags() {
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default()).mailbox(1, Overflow::Block)).unwrap();
        let completed = yields(&system, 5, pid, |out, other| {
            out.send(1, other, Payload::new(1_u32));
            out.send(2, other, Payload::new(2_u32));
            out.send(3, other, Payload::new(3_u32));
            out.call(4, other, Payload::empty(), LONG);
            out.sleep(5, Duration::from_secs(1));
        })
        .await;
        let mut tags: Vec<u64> = completed
            .iter()
            .map(|(tag, result)| {
                assert!(result.is_ok(), "{result:?}");
                *tag
            })
            .collect();
        assert_eq!(seen(&system, pid).await, [1, 2, 3]);
        assert_eq!(tags[tags.len() - 1], 5);
        tags.sort_unstable();
        assert_eq!(tags, [1, 2, 3, 4, 5]);
    });
}

#[test]
fn an_unknown_command_completes_with_an_error() {
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
        let completed =
            yields(&system, 1, pid, |out, _| out.request(9, process::CommandId::new(7777), Payload::empty())).await;
        let error = completed[0].1.as_ref().unwrap_err().to_string();
        assert!(error.contains("no handler for command 7777"), "{error}");
    });
}

#[test]
fn a_yielder_without_yields_fails_instead_of_waiting_for_ever() {
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
        let yielder = Yielder { yields: |_, _| {}, other: pid, outstanding: 1, completed: Vec::new(), context: None };
        let reason = system.exec(Spawn::new(yielder)).await.unwrap_err();
        assert_eq!(reason.to_string(), "failed: it waits for its yields, and has none outstanding");
    });
}

#[test]
fn a_call_to_one_that_ends_or_does_not_answer_says_so() {
    with_system(async |system| {
        let silent = process::from_fn(async |mut inbox, _| {
            drop(inbox.recv().await);
            let _held = inbox.recv().await;
            Ok(Payload::empty())
        });
        let pid = system.spawn(Spawn::new(silent)).unwrap();
        assert!(system.call(pid, Payload::empty(), LONG).await.unwrap_err().is_no_reply());
        // It ends with the message in its hands, which it drops first.
        let error = system.call(pid, Payload::empty(), LONG).await.unwrap_err();
        assert!(error.is_no_reply() || error.is_no_process(), "{error}");
        system.wait(pid).await;
        assert!(system.call(pid, Payload::empty(), LONG).await.unwrap_err().is_no_process());
        let patient = system
            .spawn(Spawn::new(process::from_fn(async |mut inbox, _| {
                let _message = inbox.recv().await;
                inbox.recv().await;
                Ok(Payload::empty())
            })))
            .unwrap();
        assert!(system.call(patient, Payload::empty(), Duration::from_millis(10)).await.unwrap_err().is_timed_out());
    });
}

#[test]
fn ends_spread_over_links_and_stop_at_who_traps_them() {
    with_system(async |system| {
        let (told, mut tells) = volt::sync::mpsc::channel(8);
        let trapping = process::from_fn(async move |mut inbox, _| {
            let child = inbox.context().spawn(Spawn::new(Collector::default()).link()).unwrap();
            let monitor = inbox.context().monitor(child);
            inbox.context().send(child, Payload::new("panic")).await?;
            let (mut exit, mut down) = (None, None);
            while exit.is_none() || down.is_none() {
                match inbox.next().await {
                    Event::Exit { pid, reason } => {
                        assert_eq!(pid, child);
                        exit = Some(reason);
                    }
                    Event::Down { monitor: id, reason, .. } => {
                        assert_eq!(id, monitor);
                        down = Some(reason);
                    }
                    other => panic!("{other:?}"),
                }
            }
            told.send((exit, down)).await?;
            Ok(Payload::empty())
        });
        let pid = system.spawn(Spawn::new(trapping).trap_exits()).unwrap();
        let panicked = ExitReason::Panicked(Failure::new("told to"));
        assert_eq!(tells.recv().await.unwrap(), (Some(panicked.clone()), Some(panicked.clone())));
        system.wait(pid).await;
        let dying = process::from_fn(async move |mut inbox, _| {
            let child = inbox.context().spawn(Spawn::new(Collector::default()).link()).unwrap();
            inbox.context().send(child, Payload::new("panic")).await?;
            while inbox.recv().await.is_some() {}
            Ok(Payload::empty())
        });
        assert_eq!(system.exec(Spawn::new(dying)).await.unwrap_err(), panicked);
    });
}

#[test]
fn who_is_done_after_it_was_asked_to_end_was_shut_down() {
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
        let ends = system.wait(pid);
        assert!(system.cancel(pid));
        assert_eq!(ends.await, ExitReason::Shutdown);
        assert!(!system.cancel(pid));
        assert_eq!(system.terminate(pid, LONG).await, ExitReason::NoProcess);
        let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
        assert_eq!(system.terminate(pid, LONG).await, ExitReason::Shutdown);
    });
}

#[test]
fn what_will_not_end_is_ended_and_reported() {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let system = System::new(&volt::Handle::current());
            let deaf = process::from_fn(async |_inbox, _| std::future::pending().await);
            let pid = system.spawn(Spawn::new(deaf).name("deaf")).unwrap();
            system.spawn(Spawn::new(Collector::default())).unwrap();
            let report = system.shutdown(Some(Duration::from_millis(500))).await;
            assert_eq!((report.processes, report.forced.len(), report.stuck), (2, 1, 0));
            assert_eq!((report.forced[0].pid, report.forced[0].name.as_deref()), (pid, Some("deaf")));
            assert!(system.spawn(Spawn::new(Collector::default())).unwrap_err().is_shut_down());
        });
    });
}

/// What a runtime's snapshot says of its processes.
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
        assert_eq!(failure.reason, "failed: told to");
        assert!(failure.spawned_at.contains(concat!(file!(), ":")), "{}", failure.spawned_at);
        assert!(system.info(stays).is_some());
    });
}

/// Takes no message, and is to be killed.
struct Deaf;

impl Process for Deaf {
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

fn deaf(system: &System, capacity: usize, overflow: Overflow) -> Pid {
    system.spawn(Spawn::new(Deaf).mailbox(capacity, overflow)).unwrap()
}

#[test]
fn messages_that_find_no_room_are_counted_when_they_come_and_the_deepest_mailbox_is_told() {
    with_system(async |system| {
        let pid = deaf(&system, 4, Overflow::DropNewest);
        assert!(system.register("deaf", pid));
        for _ in 0..7 {
            system.send(pid, Payload::empty()).await.unwrap();
        }
        let told = totals();
        assert_eq!(told.messages_lost, 3, "while it lives");
        let [mailbox] = &told.deepest[..] else { panic!("{told:?}") };
        assert_eq!((&mailbox.pid, mailbox.name.as_deref()), (&pid.to_string(), Some("deaf")));
        assert_eq!((mailbox.len, mailbox.capacity, mailbox.lost), (4, 4, 3));
        assert_eq!(told.states.map(|states| states.messages), Some(4));
        let waits = system.wait(pid);
        assert!(system.kill(pid));
        waits.await;
        assert_eq!(totals().messages_lost, 3);
        assert_eq!(totals().deepest, []);
    });
}

#[test]
fn a_mailbox_that_is_deeper_at_each_look_is_told_to_rise_and_a_full_one_whose_senders_wait_is_not() {
    with_system(async |system| {
        let pid = deaf(&system, 100, Overflow::Block);
        let mut rises = Vec::new();
        while rises.last() != Some(&3) {
            assert!(system.try_send(pid, Payload::empty()).is_ok());
            rises.extend(totals().deepest.first().map(|mailbox| mailbox.rises));
            rises.dedup();
            volt::time::sleep(Duration::from_millis(50)).await;
        }
        while system.try_send(pid, Payload::empty()).is_ok() {}
        // It has lost one now, which counts once.
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
fn the_totals_of_several_systems_add_up_and_one_that_is_gone_is_not_counted() {
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
            // Their tasks hold them until they are dropped.
            while volt::Handle::current().snapshot().processes.is_some() {
                volt::task::yield_now().await;
            }
        });
    });
}

/// What a console would be told of the current runtime.
fn list(query: processes::Query) -> processes::ProcessList {
    let path = volt::observe::socket_path().expect("a control socket");
    let mut client = Client::connect(&path).expect("it answers");
    let runtime = volt::Handle::current().snapshot().runtime;
    // Where a look takes long, the next is not made at once, and the answer is to what was asked before; it says so.
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
fn processes_are_listed_one_by_one_to_whoever_asks() {
    watchdog::watched(|| {
        watchdog::builder(2).control_socket(true).build().unwrap().block_on(async {
            let systems = [(); 2].map(|()| System::new(&volt::Handle::current()));
            let of =
                |rank, filter: &str| processes::Query { rank, filter: filter.into(), limit: 3, ..Default::default() };
            let mut filled = Vec::new();
            for (n, system) in systems.iter().cycle().take(8).enumerate() {
                let pid = deaf(system, 4 + n, Overflow::Error);
                for _ in 0..n {
                    system.send(pid, Payload::empty()).await.unwrap();
                }
                filled.push((pid, n));
            }
            let told = list(of(processes::Rank::Mailbox, ""));
            assert_eq!((told.alive, told.matching), (8, 8));
            let deepest: Vec<_> = told.rows.iter().map(|row| (row.pid.clone(), row.mailbox_len)).collect();
            let expected = [7, 6, 5].map(|n| (filled[n].0.to_string(), n as u64));
            assert_eq!(deepest, expected, "of both systems");
            let first = &told.rows[0];
            assert!(first.kind.ends_with("Deaf") && first.spawned_at.contains(concat!(file!(), ":")), "{first:?}");
            assert_eq!((first.mailbox_high_water, first.mailbox_capacity, first.parent.as_deref()), (7, 11, None));
            assert!(first.steps > 0 && first.task.is_some() && first.busy_ns.is_some(), "{first:?}");
            let slow = process::from_fn(async |mut inbox, _| {
                let reply = inbox.recv().await.and_then(|message| message.reply);
                std::thread::sleep(Duration::from_millis(5));
                reply.unwrap().send(Payload::empty());
                inbox.recv().await;
                Ok(Payload::empty())
            });
            let busy = systems[1].spawn(Spawn::new(slow).name("Slow one")).unwrap();
            systems[1].call(busy, Payload::empty(), LONG).await.unwrap();
            let told = list(of(processes::Rank::Busy, "slow"));
            let [slow] = &told.rows[..] else { panic!("{told:?}") };
            assert_eq!((told.alive, told.matching, &slow.pid), (9, 1, &busy.to_string()));
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
            let full = system.spawn(Spawn::new(Deaf).name("full").mailbox(1, Overflow::Error)).unwrap();
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
            assert!(name.text.starts_with("full (") && name.text.ends_with("Deaf)"), "{name:?}");
            system.kill(full);
            system.shutdown(Some(LONG)).await;
        });
    });
}
