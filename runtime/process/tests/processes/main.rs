//! Tests of processes through the public API.

#[path = "../../../tests/watchdog/mod.rs"]
mod watchdog;

mod dumps;
mod ends;
mod inbox;
mod mail;
mod model;
mod panics;
mod relay;
mod reports;
mod stop;
mod supervisors;
mod yielded;
mod yields;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use volt_process::{
    ChildSpec, Context, Event, Events, ExitReason, Failure, Lifecycle, Output, Overflow, Payload, Pid, Process, Spawn,
    Strategy, Supervisor, System,
};

const LONG: Duration = Duration::from_secs(50);

fn with_system<F: Future<Output = ()>>(test: impl Fn(System) -> F) {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let system = System::new(&volt::Handle::current());
            test(system.clone()).await;
            assert!(system.shutdown(Some(LONG)).await.forced.is_empty(), "every process exits when it is cancelled");
            assert_eq!(system.process_count(), 0);
        });
    });
}

/// Collects numbers, and replies to calls with the numbers received so far. A message `end`
/// completes it; `fail` and `panic` make it fail and panic.
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
        if method == "failing" { Err(Failure::new("as requested")) } else { Ok(()) }
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        for event in events {
            match event {
                Event::Cancel => out.done(),
                Event::Message(message) => match (message.reply, message.payload.downcast_ref::<&str>()) {
                    (Some(reply), _) => reply.send(Payload::new(self.seen.clone())),
                    (None, Some(&"end")) => out.done_with(Payload::new(self.seen.clone())),
                    (None, Some(&"fail")) => return Err(Failure::new("as requested")),
                    (None, Some(&"panic")) => panic!("as requested"),
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

/// A state machine that consists of one function. After `init` it steps once without events.
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

/// Accepts messages, and ends when it is cancelled. A message that is a [`Held`] keeps it in its
/// step.
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

/// Keeps a process in its step until this is dropped.
struct InStep(#[expect(dead_code, reason = "it is held")] mpsc::Sender<()>);

fn keep_in_step(system: &System, pid: Pid) -> InStep {
    let ((is_in, entered), (keep, goes_on)) = (mpsc::channel(), mpsc::channel());
    system.try_send(pid, Payload::new(Held { is_in, goes_on })).unwrap();
    entered.recv().unwrap();
    InStep(keep)
}

/// Starts a process that accepts no messages until its gate opens: it awaits the gate, and is
/// Blocked.
async fn gated(system: &System, capacity: usize) -> (Pid, Arc<volt::sync::Semaphore>) {
    let gate = Arc::new(volt::sync::Semaphore::new(0));
    let opens = gate.clone();
    let waits = volt_process::from_fn(async move |mut inbox, _| {
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

/// Waits, without a clock, until `claim` is true. The watchdog ends a wait that never succeeds.
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
fn concurrent_upgrades_are_each_answered_without_losing_mail() {
    with_system(async |system| {
        let pid = system.spawn(Spawn::new(Collector::default())).unwrap();
        for n in 0..100_u32 {
            // It is Idle by now, or handles the message.
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
        assert!(error.to_string().ends_with("no entry method \"mian\"; it has main, failing"), "{error}");
        assert_eq!((system.process_count(), closed.load(Ordering::Relaxed)), (0, 0));
    });
}

#[test]
fn each_way_to_end_has_its_reason_and_is_closed_once() {
    with_system(async |system| {
        let ways: [(&'static str, Option<&'static str>, ExitReason); 4] = [
            ("main", Some("end"), ExitReason::Normal),
            ("main", Some("fail"), ExitReason::Failed(Failure::new("as requested"))),
            ("main", Some("panic"), ExitReason::Panicked(Failure::new("as requested"))),
            ("failing", None, ExitReason::Failed(Failure::new("as requested"))),
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
            // A process that fails immediately may have exited before `wait` was called.
            assert!(ended == reason || (message.is_none() && ended == ExitReason::NoProcess), "{ended}");
            assert!(system.try_send(pid, Payload::empty()).unwrap_err().is_no_process());
            let result = system.exec(Spawn::new(Collector::default()).method("failing")).await;
            assert_eq!(result.unwrap_err(), ExitReason::Failed(Failure::new("as requested")));
            assert_eq!(closed.load(Ordering::Relaxed), 1);
        }
    });
}

/// Yields operations in its first step, and completes when all of them have completed. Its result
/// is the list of completions.
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
            yields(&system, 1, pid, |out, _| out.request(9, volt_process::CommandId::new(7777), Payload::empty()))
                .await;
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
fn a_call_to_a_process_that_exits_or_is_silent_fails() {
    with_system(async |system| {
        let silent = volt_process::from_fn(async |mut inbox, _| {
            drop(inbox.recv().await);
            let _held = inbox.recv().await;
            Ok(Payload::empty())
        });
        let pid = system.spawn(Spawn::new(silent)).unwrap();
        assert!(system.call(pid, Payload::empty(), LONG).await.unwrap_err().is_no_reply());
        // It exits while it holds the message, which it drops first.
        let error = system.call(pid, Payload::empty(), LONG).await.unwrap_err();
        assert!(error.is_no_reply() || error.is_no_process(), "{error}");
        system.wait(pid).await;
        assert!(system.call(pid, Payload::empty(), LONG).await.unwrap_err().is_no_process());
        let patient = system
            .spawn(Spawn::new(volt_process::from_fn(async |mut inbox, _| {
                let _message = inbox.recv().await;
                inbox.recv().await;
                Ok(Payload::empty())
            })))
            .unwrap();
        assert!(system.call(patient, Payload::empty(), Duration::from_millis(10)).await.unwrap_err().is_timed_out());
    });
}

#[test]
fn exits_spread_over_links_and_stop_at_traps() {
    with_system(async |system| {
        let (report, mut reports) = volt::sync::mpsc::channel(8);
        let trapping = volt_process::from_fn(async move |mut inbox, _| {
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
            report.send((exit, down)).await?;
            Ok(Payload::empty())
        });
        let pid = system.spawn(Spawn::new(trapping).trap_exits()).unwrap();
        let panicked = ExitReason::Panicked(Failure::new("as requested"));
        assert_eq!(reports.recv().await.unwrap(), (Some(panicked.clone()), Some(panicked.clone())));
        system.wait(pid).await;
        let dying = volt_process::from_fn(async move |mut inbox, _| {
            let child = inbox.context().spawn(Spawn::new(Collector::default()).link()).unwrap();
            inbox.context().send(child, Payload::new("panic")).await?;
            while inbox.recv().await.is_some() {}
            Ok(Payload::empty())
        });
        assert_eq!(system.exec(Spawn::new(dying)).await.unwrap_err(), panicked);
    });
}

#[test]
fn a_process_that_exits_after_a_stop_request_was_shut_down() {
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
fn a_process_that_does_not_stop_is_killed_and_reported() {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let system = System::new(&volt::Handle::current());
            let unresponsive = volt_process::from_fn(async |_inbox, _| std::future::pending().await);
            let pid = system.spawn(Spawn::new(unresponsive).name("deaf")).unwrap();
            system.spawn(Spawn::new(Collector::default())).unwrap();
            let report = system.shutdown(Some(Duration::from_millis(500))).await;
            assert_eq!((report.processes, report.forced.len(), report.stuck), (2, 1, 0));
            assert_eq!((report.forced[0].pid, report.forced[0].name.as_deref()), (pid, Some("deaf")));
            assert!(system.spawn(Spawn::new(Collector::default())).unwrap_err().is_shut_down());
        });
    });
}
