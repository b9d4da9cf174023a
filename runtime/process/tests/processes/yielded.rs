//! Tests of messages and calls that a step yields: their order, and which of them wait for others.

use super::*;

#[test]
fn a_blocked_yielded_send_delays_all_later_sends() {
    with_system(async |system| {
        let (full, gate) = gated(&system, 1).await;
        system.try_send(full, Payload::empty()).unwrap();
        let collector = system.spawn(Spawn::new(Collector::default())).unwrap();
        let (mut steps, mut completed) = (0, 0);
        let (report, mut reports) = volt::sync::mpsc::unbounded_channel();
        let sends = scripted(move |context, events, out| {
            completed += events.filter(|event| matches!(event, Event::Completed { result: Ok(_), .. })).count();
            steps += 1;
            match (steps, completed) {
                (1, _) => {
                    out.send(1, full, Payload::empty());
                    out.send(2, collector, Payload::new(1_u32));
                    out.set_status(volt_process::Status::Continue);
                }
                (2, _) => {
                    assert!(context.try_send(collector, Payload::new(2_u32)).unwrap_err().is_full());
                    report.send(())?;
                    out.wait();
                }
                (_, 2) => {
                    context.try_send(collector, Payload::new(2_u32))?;
                    out.done();
                }
                _ => out.wait(),
            }
            Ok(())
        });
        let ends = system.exec(sends);
        reports.recv().await;
        assert!(seen(&system, collector).await.is_empty());
        gate.add_permits(1);
        ends.await.unwrap();
        assert_eq!(seen(&system, collector).await, [1, 2]);
    });
}

/// Accepts no events. Yields a send that waits and an operation that completes immediately, and
/// then sends directly.
struct Unheeding {
    context: Option<Context>,
    full: Pid,
    other: Pid,
    steps: u32,
}

impl Process for Unheeding {
    fn init(&mut self, context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        context.waker().wake();
        self.context = Some(context.clone());
        Ok(())
    }

    fn step(&mut self, _events: Events<'_>, out: &mut Output) -> Result<(), Failure> {
        self.steps += 1;
        if self.steps == 1 {
            out.send(1, self.full, Payload::empty());
            out.unlink(2, self.other);
            out.set_status(volt_process::Status::Continue);
        } else {
            let sent = self.context.as_ref().map(|context| context.try_send(self.other, Payload::new(1_u32)));
            out.done_with(Payload::new(sent.is_some_and(|sent| sent.is_err_and(|error| error.is_full()))));
        }
        Ok(())
    }

    fn takes_events(&self) -> bool {
        false
    }
}

#[test]
fn a_process_ignoring_events_cannot_overtake_its_own_sends() {
    with_system(async |system| {
        let (full, gate) = gated(&system, 1).await;
        system.try_send(full, Payload::empty()).unwrap();
        let other = system.spawn(Spawn::new(Collector::default())).unwrap();
        let sends = system.exec(Spawn::new(Unheeding { context: None, full, other, steps: 0 }));
        assert!(sends.await.unwrap().downcast::<bool>().unwrap(), "its yielded send waits still");
        assert!(seen(&system, other).await.is_empty());
        gate.add_permits(1);
    });
}

/// Reports the numbers that it receives, in order, and replies to calls.
fn ordered(report: volt::sync::mpsc::UnboundedSender<u32>) -> Spawn {
    Spawn::new(volt_process::from_fn(async move |mut inbox, _| {
        while let Some(message) = inbox.recv().await {
            report.send(message.payload.downcast().map_err(|_other| Failure::new("no number"))?)?;
            if let Some(reply) = message.reply {
                reply.send(Payload::empty());
            }
        }
        Ok(Payload::empty())
    }))
}

#[test]
fn calls_and_sends_that_are_yielded_arrive_in_one_order() {
    with_system(async |system| {
        let (full, gate) = gated(&system, 1).await;
        system.try_send(full, Payload::empty()).unwrap();
        let (report, mut reports) = volt::sync::mpsc::unbounded_channel();
        let to = system.spawn(ordered(report)).unwrap();
        let mut left = None;
        let yields = scripted(move |_, events, out| {
            for event in events {
                if let (Event::Completed { result, .. }, Some(left)) = (event, &mut left) {
                    result?;
                    *left -= 1;
                }
            }
            match left {
                None => {
                    out.call(0, to, Payload::new(0_u32), LONG);
                    out.send(1, to, Payload::new(1_u32));
                    // The following ones have to wait for their turn.
                    out.send(2, full, Payload::empty());
                    out.send(3, to, Payload::new(3_u32));
                    out.call(4, to, Payload::new(4_u32), LONG);
                    out.send(5, to, Payload::new(5_u32));
                    left = Some(6);
                    out.wait();
                }
                Some(0) => out.done(),
                Some(_) => out.wait(),
            }
            Ok(())
        });
        let ends = system.exec(yields);
        assert_eq!([reports.recv().await, reports.recv().await], [Some(0), Some(1)]);
        until(|| system.info(to).unwrap().lifecycle == Lifecycle::Idle).await;
        assert!(reports.try_recv().is_err());
        gate.add_permits(1);
        ends.await.unwrap();
        for number in 3..6 {
            assert_eq!(reports.recv().await, Some(number));
        }
    });
}

#[test]
fn a_queued_call_that_times_out_is_never_sent() {
    with_system(async |system| {
        let (full, gate) = gated(&system, 1).await;
        system.try_send(full, Payload::empty()).unwrap();
        let (report, mut reports) = volt::sync::mpsc::unbounded_channel();
        let to = system.spawn(ordered(report)).unwrap();
        let mut began = false;
        let opens = gate.clone();
        let yields = scripted(move |_, events, out| {
            out.wait();
            for event in events {
                match event {
                    Event::Completed { tag: 1, result } => {
                        assert!(result.unwrap_err().to_string().contains("did not reply within 1ms"));
                        opens.add_permits(1);
                    }
                    Event::Completed { tag: 2, result } => {
                        result?;
                        out.done();
                    }
                    _ => {}
                }
            }
            if !std::mem::replace(&mut began, true) {
                out.send(0, full, Payload::empty());
                out.call(1, to, Payload::new(1_u32), Duration::from_millis(1));
                out.send(2, to, Payload::new(2_u32));
            }
            Ok(())
        });
        system.exec(yields).await.unwrap();
        assert_eq!(reports.recv().await, Some(2));
    });
}
