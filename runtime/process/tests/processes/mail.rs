//! Tests of messages: their order, the bounds of mailboxes, and messages to processes that have
//! exited.

use std::collections::HashMap;

use super::*;

/// Sends `count` pairs (sender, number).
fn sender(to: Pid, sender: u32, count: u32) -> Spawn {
    Spawn::new(volt_process::from_fn(async move |inbox, _| {
        for number in 0..count {
            let mut message = Payload::new((sender, number));
            while let Err(error) = inbox.context().send(to, message).await {
                assert!(error.is_full(), "{error}");
                message = error.into_message();
                volt::task::yield_now().await;
            }
        }
        Ok(Payload::empty())
    }))
}

/// Receives pairs (sender, number). Its result is all pairs, once it receives any other message.
fn receiver() -> impl Process {
    volt_process::from_fn(async |mut inbox, _| {
        let mut got: HashMap<u32, Vec<u32>> = HashMap::new();
        while let Some(message) = inbox.recv().await {
            match message.payload.downcast::<(u32, u32)>() {
                Ok((sender, number)) => got.entry(sender).or_default().push(number),
                Err(_) => break,
            }
        }
        Ok(Payload::new(got))
    })
}

#[test]
fn each_senders_messages_keep_their_order_under_every_policy() {
    const SENDERS: u32 = 16;
    const EACH: u32 = 100;
    for overflow in [Overflow::Block, Overflow::Error, Overflow::DropNewest] {
        with_system(async |system| {
            let ends = system.exec(Spawn::new(receiver()).name("receiver").mailbox(3, overflow));
            let to = system.whereis("receiver").unwrap();
            let senders: Vec<_> = (0..SENDERS).map(|number| system.exec(sender(to, number, EACH))).collect();
            for sender in senders {
                sender.await.unwrap();
            }
            let dropped = system.info(to).unwrap().dropped;
            // Under `DropNewest`, the last message may be dropped, too.
            while system.process_count() > 0 && system.try_send(to, Payload::new("end")).is_ok() {
                volt::task::yield_now().await;
            }
            until(|| {
                _ = system.try_send(to, Payload::new("end"));
                system.process_count() == 0
            })
            .await;
            let got: HashMap<u32, Vec<u32>> = ends.await.unwrap().downcast().unwrap();
            let count: usize = got.values().map(Vec::len).sum();
            for (sender, numbers) in got {
                assert!(numbers.is_sorted_by(|one, next| one < next), "{overflow:?}, {sender}: {numbers:?}");
            }
            let lost = if overflow == Overflow::DropNewest { dropped as usize } else { 0 };
            assert_eq!(count + lost, (SENDERS * EACH) as usize, "{overflow:?}");
        });
    }
}

#[test]
fn try_send_does_not_overtake_yielded_sends() {
    const COUNT: u32 = 300;
    with_system(async |system| {
        let ends = system.exec(Spawn::new(receiver()).name("receiver").mailbox(1, Overflow::Block));
        let to = system.whereis("receiver").unwrap();
        let (mut next, mut outstanding, mut refused) = (0, 0, 0_usize);
        let sends = scripted(move |context, events, out| {
            for event in events {
                match event {
                    Event::Completed { result, .. } => {
                        result?;
                        outstanding -= 1;
                    }
                    _ => unreachable!(),
                }
            }
            if next < COUNT {
                match context.try_send(to, Payload::new((0_u32, next))) {
                    Ok(()) => next += 1,
                    Err(error) => {
                        assert!(error.is_full());
                        refused += 1;
                    }
                }
                for tag in 0..2 {
                    out.send(tag, to, Payload::new((0_u32, next)));
                    (next, outstanding) = (next + 1, outstanding + 1);
                }
                out.set_status(volt_process::Status::Continue);
            } else if outstanding > 0 {
                out.wait();
            } else {
                out.done_with(Payload::new(refused));
            }
            Ok(())
        });
        let refused: usize = system.exec(sends).await.unwrap().downcast().unwrap();
        assert!(refused > 0, "a send was waiting, most of the time");
        system.send(to, Payload::new("end")).await.unwrap();
        let got: HashMap<u32, Vec<u32>> = ends.await.unwrap().downcast().unwrap();
        assert!(got[&0].len() >= COUNT as usize && got[&0].iter().copied().eq(0..got[&0].len() as u32), "{got:?}");
    });
}

#[test]
fn a_full_mailbox_blocks_its_sender_until_there_is_room() {
    with_system(async |system| {
        let pid = system.spawn(idle().mailbox(2, Overflow::Block)).unwrap();
        let held = keep_in_step(&system, pid);
        system.try_send(pid, Payload::empty()).unwrap();
        system.send(pid, Payload::empty()).await.unwrap();
        let mut third = Box::pin(system.send(pid, Payload::empty()));
        assert!(poll_once(third.as_mut()).await.is_none(), "there is no room");
        let error = system.try_send(pid, Payload::new(7)).unwrap_err();
        assert!(error.is_full());
        assert_eq!(error.into_message().downcast::<i32>().unwrap(), 7);
        let info = system.info(pid).unwrap();
        assert_eq!((info.mailbox_len, info.mailbox_high_water, info.dropped), (2, 2, 1));
        assert_eq!(info.lifecycle, Lifecycle::Running);
        drop(held);
        third.await.unwrap();
    });
}

#[test]
fn a_full_mailbox_drops_or_refuses_and_counts_each() {
    with_system(async |system| {
        for (overflow, refuses) in [(Overflow::DropNewest, false), (Overflow::Error, true)] {
            let taken = Dropped::default();
            let pid = system.spawn(idle().mailbox(2, overflow)).unwrap();
            let held = keep_in_step(&system, pid);
            for number in 0..5 {
                let sent = if number % 2 == 0 {
                    system.send(pid, Payload::new(taken.clone())).await
                } else {
                    system.try_send(pid, Payload::new(taken.clone()))
                };
                assert_eq!(sent.is_err(), refuses && number >= 2, "{overflow:?} {number}");
                assert!(sent.is_ok() || sent.unwrap_err().is_full());
            }
            let info = system.info(pid).unwrap();
            assert_eq!((info.mailbox_len, info.mailbox_high_water, info.dropped), (2, 2, 3), "{overflow:?}");
            assert_eq!(taken.count(), 3);
            // A call is refused or dropped like any message.
            let error = system.call(pid, Payload::empty(), LONG).await.unwrap_err();
            assert_eq!((error.is_full(), error.is_no_reply()), (refuses, !refuses), "{error}");
            assert_eq!(system.info(pid).unwrap().dropped, 4);
            drop(held);
            until(|| taken.count() == 5).await;
        }
    });
}

#[test]
fn a_yielded_send_that_waits_for_room_is_not_counted_as_refused() {
    with_system(async |system| {
        let (pid, gate) = gated(&system, 1).await;
        let sends = yields(&system, 3, pid, |out, other| {
            for tag in 0..3 {
                out.send(tag, other, Payload::empty());
            }
        });
        let mut sends = std::pin::pin!(sends);
        assert!(poll_once(sends.as_mut()).await.is_none());
        until(|| system.info(pid).unwrap().mailbox_len == 1).await;
        gate.add_permits(1);
        assert!(sends.await.iter().all(|(_, result)| result.is_ok()));
        assert_eq!(system.info(pid).unwrap().dropped, 0);
    });
}

#[test]
fn no_process_waits_for_room_in_its_own_mailbox() {
    with_system(async |system| {
        let function = volt_process::from_fn(async |inbox, _| {
            let context = inbox.context();
            context.try_send(context.pid(), Payload::empty())?;
            Ok(Payload::new(context.send(context.pid(), Payload::empty()).await.unwrap_err().is_full()))
        });
        let result = system.exec(Spawn::new(function).mailbox(1, Overflow::Block)).await.unwrap();
        assert!(result.downcast::<bool>().unwrap());
        let mut began = false;
        let machine = scripted(move |context, events, out| {
            if !std::mem::replace(&mut began, true) {
                out.send(1, context.pid(), Payload::empty());
                out.send(2, context.pid(), Payload::empty());
            }
            let mut report = Vec::new();
            for event in events {
                if let Event::Completed { tag, result } = event {
                    report.push((tag, result.is_ok()));
                }
            }
            if report.len() == 2 {
                out.done_with(Payload::new(report));
            } else {
                out.wait();
            }
            Ok(())
        });
        let result = system.exec(machine.mailbox(1, Overflow::Block)).await.unwrap();
        assert_eq!(result.downcast::<Vec<(u64, bool)>>().unwrap(), [(1, true), (2, false)]);
    });
}

#[test]
fn mail_does_not_step_a_process_that_awaits_its_yields() {
    const LATER: volt_process::CommandId = volt_process::CommandId::new(300);
    watchdog::with_workers(|runtime| {
        runtime.block_on(async {
            let (give, mut given) = volt::sync::mpsc::unbounded_channel();
            let later = move |request: volt_process::Request<'_>| give.send(request.defer()).unwrap();
            let system = System::builder().handler(LATER, later).build(&volt::Handle::current()).unwrap();
            let released = Arc::new(AtomicUsize::new(0));
            let seen = released.clone();
            let (mut mail, mut waits, mut is_done) = (0, false, false);
            let machine = scripted(move |_, events, out| {
                assert!(!waits || seen.load(Ordering::Acquire) == 1, "stepped for mail");
                for event in events {
                    match event {
                        Event::Message(message) if message.payload.is::<Held>() => hold(message.payload),
                        Event::Message(_) => mail += 1,
                        Event::Completed { .. } => is_done = true,
                        _ => {}
                    }
                }
                match (mail, is_done) {
                    (300, true) => out.done(),
                    (1.., false) if !waits => {
                        waits = true;
                        out.request(1, LATER, Payload::empty());
                        out.wait();
                    }
                    (1.., false) => out.wait(),
                    _ => {}
                }
                Ok(())
            });
            let ends = system.exec(machine.name("machine"));
            let pid = system.whereis("machine").unwrap();
            let held = keep_in_step(&system, pid);
            for _ in 0..300 {
                system.try_send(pid, Payload::empty()).unwrap();
            }
            drop(held);
            let completion = given.recv().await.unwrap();
            // If it steps wrongly, it does so before it is Blocked.
            until(|| system.info(pid).is_none_or(|info| info.lifecycle == Lifecycle::Blocked)).await;
            released.store(1, Ordering::Release);
            completion.complete_yield(Ok(Payload::empty()));
            ends.await.unwrap();
        });
    });
}

#[test]
fn requests_to_an_exited_process_fail_immediately() {
    with_system(async |system| {
        let dead = system.spawn(idle()).unwrap();
        assert!(system.kill(dead));
        system.wait(dead).await;
        let far: Pid = "far:0.0".parse().unwrap();
        let never: Pid = "local:4000.1".parse().unwrap();
        for (pid, is_far) in [(dead, false), (never, false), (far, true)] {
            let absent = if is_far { ExitReason::NoConnection } else { ExitReason::NoProcess };
            for error in [
                system.try_send(pid, Payload::empty()).unwrap_err(),
                system.send(pid, Payload::empty()).await.unwrap_err(),
            ] {
                assert_eq!((error.is_no_connection(), error.is_no_process()), (is_far, !is_far));
            }
            let error = system.call(pid, Payload::empty(), LONG).await.unwrap_err();
            assert_eq!((error.is_no_connection(), error.is_no_process()), (is_far, !is_far));
            assert_eq!(system.wait(pid).await, absent);
            assert_eq!(system.terminate(pid, LONG).await, absent);
            assert!(!system.cancel(pid) && !system.kill(pid) && !system.register("a", pid));
            assert!(system.info(pid).is_none());
            assert!(system.upgrade(pid, |_: &mut Collector| Ok(Collector::default())).await.is_err());
            let caller = volt_process::from_fn(async move |mut inbox, _| {
                let monitor = inbox.context().monitor(pid);
                let Event::Down { monitor: report, pid: whom, reason } = inbox.next().await else { panic!("no Down") };
                assert_eq!((report, whom), (monitor, pid));
                inbox.context().link(pid);
                let Event::Exit { pid: whom, reason: exit } = inbox.next().await else { panic!("no Exit") };
                assert_eq!((whom, &exit), (pid, &reason));
                inbox.context().unlink(pid);
                inbox.context().demonitor(monitor);
                Ok(Payload::new(reason))
            });
            let reason = system.exec(Spawn::new(caller).trap_exits()).await.unwrap();
            assert_eq!(reason.downcast::<ExitReason>().unwrap(), absent);
            let links = volt_process::from_fn(async move |inbox, _| {
                inbox.context().link(pid);
                std::future::pending().await
            });
            assert_eq!(system.exec(Spawn::new(links)).await.unwrap_err(), absent, "the link is an end");
            let report = yields(&system, 4, pid, |out, pid| {
                out.send(1, pid, Payload::empty());
                out.call(2, pid, Payload::empty(), LONG);
                out.terminate(3, pid, LONG);
                out.monitor(4, pid);
            });
            let mut report = report.await;
            report.sort_by_key(|(tag, _)| *tag);
            assert_eq!(report.iter().map(|(_, result)| result.is_ok()).collect::<Vec<_>>(), [false, false, true, true]);
        }
    });
}

#[test]
fn an_old_pid_never_reaches_the_process_now_in_its_slot() {
    with_system(async |system| {
        let old = system.spawn(idle()).unwrap();
        assert!(system.kill(old));
        system.wait(old).await;
        let mut others = Vec::new();
        let new = loop {
            let pid = system.spawn(idle()).unwrap();
            if pid.index() == old.index() {
                break pid;
            }
            others.push(pid);
            assert!(others.len() < 1000, "its place is taken again");
        };
        assert_eq!(new.generation(), old.generation() + 1);
        assert!(system.info(new).is_some() && system.info(old).is_none());
        assert!(system.try_send(old, Payload::empty()).unwrap_err().is_no_process());
        assert!(!system.kill(old) && !system.cancel(old));
        assert_eq!(system.wait(old).await, ExitReason::NoProcess);
        system.try_send(new, Payload::empty()).unwrap();
    });
}

#[test]
fn a_delayed_message_arrives_once_or_is_cancelled() {
    with_system(async |system| {
        let collector = system.spawn(Spawn::new(Collector::default())).unwrap();
        let cancelled = system.send_after(LONG, collector, Payload::new(1_u32));
        assert!(cancelled.cancel() && !cancelled.cancel());
        let sent = system.send_after(Duration::ZERO, collector, Payload::new(2_u32));
        while seen(&system, collector).await.is_empty() {}
        assert!(!sent.cancel(), "it is sent");
        assert_eq!(seen(&system, collector).await, [2]);
        // `cancel` returns true exactly if the message is not sent, whichever comes first.
        for number in 0..200_u32 {
            let collector = system.spawn(Spawn::new(Collector::default())).unwrap();
            let later = system.send_after(Duration::ZERO, collector, Payload::new(number));
            let ends = system.wait(collector);
            if later.cancel() {
                assert!(seen(&system, collector).await.is_empty());
            } else {
                while seen(&system, collector).await.is_empty() {}
            }
            assert!(system.kill(collector));
            ends.await;
        }
    });
}
