//! Tests of user code that panics, in every place: only that process exits, and the panic is its
//! exit reason.

use std::any::Any;

use super::*;
use volt_process::CommandId;

/// The place of the panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Init,
    Step,
    TakesEvents,
    Close,
    Drop,
    /// In the destructor of a message that a step did not take.
    Left,
    /// In the destructor of the result.
    Result,
    /// In the destructor of a message that was never received.
    Mail,
    /// In the destructor of a future that was yielded.
    Future,
}

const WAIT: CommandId = CommandId::new(400);

struct Fragile {
    place: Place,
    closed: Arc<AtomicUsize>,
    is_open: bool,
    _dropped: Dropped,
}

/// Panics when it is dropped.
struct Bomb(&'static str);

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("{}", self.0);
    }
}

impl Process for Fragile {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        self.is_open = true;
        context.waker().wake();
        assert_ne!(self.place, Place::Init, "it bursts");
        Ok(())
    }

    fn step(&mut self, events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        assert_ne!(self.place, Place::Step, "it bursts");
        if self.place == Place::Result {
            out.done_with(Payload::new(Bomb("it bursts")));
        }
        if self.place == Place::Future && events.len() == 0 {
            out.request(1, WAIT, Payload::empty());
            return Ok(());
        }
        for event in events {
            match event {
                Event::Message(message) if message.payload.is::<Bomb>() => {
                    assert_eq!(self.place, Place::Left);
                    drop(message);
                }
                Event::Message(message) => hold(message.payload),
                Event::Cancel => out.done(),
                _ => {}
            }
        }
        Ok(())
    }

    fn close(&mut self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
        assert_ne!(self.place, Place::Close, "it bursts");
    }

    fn takes_events(&self) -> bool {
        assert!(!(self.is_open && self.place == Place::TakesEvents), "it bursts");
        true
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        assert_ne!(self.place, Place::Drop, "it bursts");
    }
}

fn bursts() -> ExitReason {
    ExitReason::Panicked(Failure::new("it bursts"))
}

fn is_bursting(reason: &ExitReason) -> bool {
    matches!(reason, ExitReason::Panicked(failure) if failure.to_string().contains("it bursts"))
}

#[test]
fn a_panic_anywhere_in_a_process_ends_it_and_notifies_others() {
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let waits = |request: volt_process::Request<'_>| {
                let bomb = Bomb("it bursts");
                request.run(async move {
                    let _bomb = bomb;
                    std::future::pending().await
                });
            };
            let system = System::builder().handler(WAIT, waits).build(&volt::Handle::current()).unwrap();
            use Place::*;
            for place in [Init, Step, TakesEvents, Close, Drop, Left, Result, Mail, Future] {
                let closed = Arc::new(AtomicUsize::new(0));
                let dropped = Dropped::default();
                let process = Fragile { place, closed: closed.clone(), is_open: false, _dropped: dropped.clone() };
                let (report, reports) = volt::sync::oneshot::channel();
                let watcher = volt_process::from_fn(async move |mut inbox, _| {
                    let context = inbox.context().clone();
                    let ends = context.exec(Spawn::new(process).name("fragile").link());
                    report.send(()).unwrap();
                    let Event::Exit { reason, .. } = inbox.next().await else { panic!("no Exit") };
                    assert_eq!(context.system().whereis("fragile"), None);
                    Ok(Payload::new((reason, ends.await)))
                });
                let watcher = system.exec(Spawn::new(watcher).trap_exits());
                reports.await.unwrap();
                // The remaining ones need a trigger.
                if let Some(pid) = system.whereis("fragile") {
                    match place {
                        Left => _ = system.try_send(pid, Payload::new(Bomb("it bursts"))),
                        Mail => {
                            let held = keep_in_step(&system, pid);
                            system.try_send(pid, Payload::new(Bomb("it bursts"))).unwrap();
                            system.kill(pid);
                            std::mem::drop(held);
                        }
                        Close | Drop => _ = system.cancel(pid),
                        Future => {
                            until(|| system.info(pid).is_none_or(|info| info.steps >= 2)).await;
                            system.cancel(pid);
                        }
                        Init | Step | TakesEvents | Result => {}
                    }
                }
                let watched = watcher.await.unwrap();
                let (reason, result) =
                    watched.downcast::<(ExitReason, std::result::Result<Payload, ExitReason>)>().unwrap();
                match place {
                    Mail => assert_eq!(reason, ExitReason::Killed),
                    Result => {
                        assert_eq!(reason, ExitReason::Normal);
                        std::mem::forget(result.unwrap());
                    }
                    _ => {
                        assert!(is_bursting(&reason), "{place:?}: {reason}");
                        assert_eq!(result.unwrap_err(), reason);
                    }
                }
                assert_eq!(closed.load(Ordering::Relaxed), 1, "{place:?}");
                assert_eq!(dropped.count(), 1, "{place:?}: its fields are dropped when its end is reported");
                until(|| system.process_count() == 0).await;
            }
            // Without a caller that waits for the result.
            let process =
                Fragile { place: Result, closed: Arc::default(), is_open: false, _dropped: Dropped::default() };
            let pid = system.spawn(Spawn::new(process)).unwrap();
            until(|| system.info(pid).is_none()).await;
            let collector = system.spawn(Spawn::new(Collector::default())).unwrap();
            assert!(seen(&system, collector).await.is_empty(), "the system goes on");
            assert!(system.shutdown(Some(LONG)).await.forced.is_empty());
        });
    });
}

#[test]
fn several_panicking_destructors_end_only_their_own_process() {
    type Step = fn(&mut Output);
    fn yields(out: &mut Output) {
        (0..2).for_each(|tag| out.request(tag, CommandId::new(401), Payload::new(Bomb("it bursts"))));
    }
    with_system(async |system| {
        // The panics of the step, which also leaves two messages.
        let steps: [(Step, &str); 4] = [
            (|_| {}, "it bursts"),
            (|_| panic!("as requested"), "as requested"),
            (yields, "it bursts"),
            (
                |out| {
                    yields(out);
                    panic!("as requested")
                },
                "as requested",
            ),
        ];
        for (step, why) in steps {
            let mut count = 0;
            let pid = system.spawn(scripted(move |_, events, out| {
                count += 1;
                match count {
                    1 => {}
                    2 => events.for_each(|event| {
                        if let Event::Message(message) = event {
                            hold(message.payload)
                        }
                    }),
                    _ => step(out),
                }
                Ok(())
            }));
            let pid = pid.unwrap();
            until(|| system.info(pid).unwrap().steps == 2).await;
            let (ends, held) = (system.wait(pid), keep_in_step(&system, pid));
            for _ in 0..2 {
                system.try_send(pid, Payload::new(Bomb("it bursts"))).unwrap();
            }
            drop(held);
            assert_eq!(ends.await, ExitReason::Panicked(Failure::new(why)));
        }
        // In the inbox of a function that returns.
        let function = volt_process::from_fn(async |mut inbox, _| {
            for _ in 0..2 {
                hold(inbox.recv().await.unwrap().payload);
            }
            Ok(Payload::empty())
        });
        let ends = system.exec(Spawn::new(function).name("function"));
        let pid = system.whereis("function").unwrap();
        let held = keep_in_step(&system, pid);
        system.try_send(pid, Payload::empty()).unwrap();
        for _ in 0..2 {
            system.try_send(pid, Payload::new(Bomb("it bursts"))).unwrap();
        }
        drop(held);
        ends.await.unwrap();
    });
}

#[test]
fn a_message_that_sends_when_it_is_dropped_meets_no_lock() {
    struct Sends(System, Pid);
    impl Drop for Sends {
        fn drop(&mut self) {
            let sent = self.0.try_send(self.1, Payload::empty());
            assert!(sent.is_err_and(|error| error.is_no_process()));
            assert!(self.0.info(self.1).is_none() && !self.0.kill(self.1));
        }
    }
    with_system(async |system| {
        let pid = system.spawn(idle()).unwrap();
        let held = keep_in_step(&system, pid);
        for _ in 0..3 {
            system.try_send(pid, Payload::new(Sends(system.clone(), pid))).unwrap();
        }
        let ends = system.wait(pid);
        system.kill(pid);
        drop(held);
        assert_eq!(ends.await, ExitReason::Killed);
    });
}

#[test]
fn a_panic_with_a_non_string_payload_is_still_reported() {
    with_system(async |system| {
        let payloads: [fn() -> Box<dyn Any + Send>; 2] = [|| Box::new(7), || Box::new(Bomb("again"))];
        for payload in payloads {
            let process = scripted(move |_, _, _| std::panic::resume_unwind(payload()));
            let wanted = ExitReason::Panicked(Failure::new("a panic without a message"));
            assert_eq!(system.exec(process).await.unwrap_err(), wanted);
        }
        assert_eq!(system.exec(scripted(|_, _, _| panic!("it bursts"))).await.unwrap_err(), bursts());
    });
}
