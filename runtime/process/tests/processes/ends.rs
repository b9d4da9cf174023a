//! Tests of monitors, links, names and waits: which process is notified of an exit, how often, and
//! what is left.

use super::*;

/// A message that marks a position in a mailbox.
struct Marker;

#[test]
fn each_monitor_is_notified_once_and_no_removed_one() {
    with_system(async |system| {
        let watched = system.spawn(idle()).unwrap();
        let watcher = volt_process::from_fn(async move |mut inbox, _| {
            let context = inbox.context().clone();
            let monitors: Vec<_> = (0..6).map(|_| context.monitor(watched)).collect();
            assert_eq!(context.system().info(watched).unwrap().monitor_count, 6);
            context.demonitor(monitors[1]);
            context.demonitor(monitors[4]);
            assert_eq!(context.system().info(watched).unwrap().monitor_count, 4);
            assert!(context.system().kill(watched));
            let mut report = Vec::new();
            while report.len() < 4 {
                if let Event::Down { monitor, pid, reason } = inbox.next().await {
                    assert_eq!((pid, reason), (watched, ExitReason::Killed));
                    report.push(monitor);
                }
            }
            report.sort();
            assert_eq!(report, [monitors[0], monitors[2], monitors[3], monitors[5]]);
            context.try_send(context.pid(), Payload::new(Marker))?;
            assert!(matches!(inbox.next().await, Event::Message(_)), "each monitor is notified once");
            Ok(Payload::empty())
        });
        system.exec(Spawn::new(watcher)).await.unwrap();
    });
}

/// Relates a process to one that is being killed, removes the relation, and checks that no event
/// follows.
async fn nothing_comes_after(system: &System, relate: fn(&Context, Pid), part: fn(&Context, Pid)) {
    for _ in 0..200 {
        let other = system.spawn(idle()).unwrap();
        let related = Arc::new(volt::sync::Notify::new());
        let is_related = related.clone();
        let watcher = volt_process::from_fn(async move |mut inbox, _| {
            let context = inbox.context().clone();
            relate(&context, other);
            is_related.notify_one();
            part(&context, other);
            context.try_send(context.pid(), Payload::new(Marker))?;
            while !matches!(inbox.next().await, Event::Message(_)) {}
            context.system().wait(other).await;
            context.try_send(context.pid(), Payload::new(Marker))?;
            let next = inbox.next().await;
            assert!(matches!(next, Event::Message(_)), "{next:?}");
            Ok(Payload::empty())
        });
        let ends = system.exec(Spawn::new(watcher).trap_exits());
        related.notified().await;
        system.kill(other);
        ends.await.unwrap();
    }
}

#[test]
fn a_removed_link_has_no_effect() {
    with_system(async |system| {
        nothing_comes_after(&system, |context, pid| context.link(pid), |context, pid| context.unlink(pid)).await;
    });
}

#[test]
fn a_removed_monitor_has_no_effect() {
    fn part(context: &Context, _: Pid) {
        let watched = LAST.with(std::cell::Cell::take).unwrap();
        context.demonitor(watched);
    }
    thread_local!(static LAST: std::cell::Cell<Option<volt_process::MonitorId>> = const { std::cell::Cell::new(None) });
    with_system(async |system| {
        // Both run in one poll, and so on one thread.
        nothing_comes_after(&system, |context, pid| LAST.with(|last| last.set(Some(context.monitor(pid)))), part).await;
    });
}

#[test]
fn links_work_both_ways_and_normal_ends_do_not_spread() {
    with_system(async |system| {
        for kills_parent in [true, false] {
            let (report, mut reports) = volt::sync::mpsc::channel(1);
            let parent = volt_process::from_fn(async move |mut inbox, _| {
                let child = inbox.context().spawn(idle().link())?;
                report.send(child).await?;
                while inbox.recv().await.is_some() {}
                Ok(Payload::empty())
            });
            let parent = system.spawn(Spawn::new(parent)).unwrap();
            let child = reports.recv().await.unwrap();
            assert_eq!((system.info(child).unwrap().link_count, system.info(child).unwrap().parent), (1, Some(parent)));
            let (first, second) = if kills_parent { (parent, child) } else { (child, parent) };
            let ends = system.wait(second);
            assert!(system.kill(first));
            assert_eq!(ends.await, ExitReason::Killed);
        }
        // A normal exit is reported only to a process that traps exits.
        let normal = volt_process::from_fn(async |mut inbox, _| {
            let context = inbox.context().clone();
            let done = || Spawn::new(volt_process::from_fn(async |_, _| Ok(Payload::empty())));
            let child = context.spawn(done().link())?;
            let Event::Exit { pid, reason } = inbox.next().await else { panic!("no Exit") };
            assert_eq!((pid, reason), (child, ExitReason::Normal));
            let unresponsive = volt_process::from_fn(async move |inbox, _| {
                let child = inbox.context().spawn(idle().link())?;
                assert_eq!(inbox.context().system().terminate(child, LONG).await, ExitReason::Shutdown);
                Ok(Payload::new("lives"))
            });
            context.exec(Spawn::new(unresponsive)).await.map_err(Failure::new)
        });
        let result = system.exec(Spawn::new(normal).trap_exits()).await.unwrap();
        assert_eq!(result.downcast::<&str>().unwrap(), "lives");
        // A link of a process with itself has no effect.
        let itself = volt_process::from_fn(async |inbox, _| {
            inbox.context().link(inbox.context().pid());
            inbox.context().unlink(inbox.context().pid());
            assert_eq!(inbox.context().system().info(inbox.context().pid()).unwrap().link_count, 0);
            Ok(Payload::empty())
        });
        system.exec(Spawn::new(itself)).await.unwrap();
    });
}

#[test]
fn a_result_goes_to_the_caller_of_execute() {
    with_system(async |system| {
        for _ in 0..20 {
            let result = system.exec(Spawn::new(Collector::default()).name("executed"));
            let pid = system.whereis("executed").unwrap();
            let waits: Vec<_> = (0..5).map(|_| system.wait(pid)).collect();
            system.try_send(pid, Payload::new(1_u32)).unwrap();
            system.try_send(pid, Payload::new("end")).unwrap();
            assert_eq!(result.await.unwrap().downcast::<Vec<u32>>().unwrap(), [1]);
            for wait in waits {
                assert_eq!(wait.await, ExitReason::Normal);
            }
        }
    });
}

#[test]
fn a_cancelled_wait_leaves_nothing_behind() {
    with_system(async |system| {
        let (pid, gate) = gated(&system, 2).await;
        let count = || system.info(pid).unwrap().monitor_count;
        let mut wait = Box::pin(system.wait(pid));
        let mut other = Box::pin(system.wait(pid));
        assert!(poll_once(wait.as_mut()).await.is_none() && poll_once(other.as_mut()).await.is_none());
        assert_eq!(count(), 2);
        drop(wait);
        assert_eq!(count(), 1);
        drop(other);
        drop(system.wait(pid));
        assert_eq!(count(), 0);
        // Calls, of which one is in the mailbox together with a message, and the others wait for
        // room.
        system.try_send(pid, Payload::empty()).unwrap();
        for _ in 0..3 {
            let error = system.call(pid, Payload::empty(), Duration::from_millis(5)).await.unwrap_err();
            assert!(error.is_timed_out(), "{error}");
            assert_eq!((system.info(pid).unwrap().mailbox_len, count()), (2, 0));
        }
        gate.add_permits(1);
        until(|| system.info(pid).unwrap().mailbox_len == 0).await;
        assert!(system.kill(pid));
        // All room that was lent has been returned.
        let (pid, gate) = gated(&system, 2).await;
        for _ in 0..2 {
            system.try_send(pid, Payload::empty()).unwrap();
        }
        let mut waits = Box::pin(system.send(pid, Payload::empty()));
        assert!(poll_once(waits.as_mut()).await.is_none());
        drop(waits);
        gate.add_permits(1);
        for _ in 0..10 {
            system.send(pid, Payload::empty()).await.unwrap();
        }
    });
}

#[test]
fn a_name_is_free_before_the_exit_is_reported() {
    with_system(async |system| {
        let watcher = volt_process::from_fn(async |mut inbox, _| {
            let context = inbox.context().clone();
            let system = context.system();
            for _ in 0..100 {
                let bearer = system.spawn(idle().name("name"))?;
                assert!(system.spawn(idle().name("name")).unwrap_err().is_name_taken());
                assert!(!system.register("name", context.pid()) && !system.register("other", bearer));
                context.monitor(bearer);
                assert!(system.kill(bearer));
                assert!(matches!(inbox.next().await, Event::Down { .. }));
                assert_eq!(system.whereis("name"), None);
            }
            assert!(system.register("name", context.pid()) && !system.register("name", context.pid()));
            assert_eq!(system.whereis("name"), Some(context.pid()));
            Ok(Payload::empty())
        });
        system.exec(Spawn::new(watcher)).await.unwrap();
        assert_eq!(system.whereis("name"), None);
    });
}

#[test]
fn a_name_registered_while_its_process_exits_is_removed() {
    with_system(async |system| {
        for _ in 0..500 {
            let pid = system.spawn(idle()).unwrap();
            let ends = system.wait(pid);
            let (one, other) = (system.clone(), system.clone());
            let names = std::thread::scope(|scope| {
                scope.spawn(move || one.kill(pid));
                let names = ["a", "b"].map(|name| {
                    scope.spawn({
                        let system = other.clone();
                        move || system.register(name, pid)
                    })
                });
                names.map(|name| name.join().unwrap())
            });
            assert_ne!(names, [true, true], "it has one name");
            ends.await;
            assert_eq!((system.whereis("a"), system.whereis("b")), (None, None));
        }
    });
}

#[test]
fn a_process_that_terminates_itself_is_stopped_then_killed() {
    with_system(async |system| {
        for stops_on_request in [true, false] {
            let mut began = false;
            let machine = scripted(move |context, events, out| {
                if !std::mem::replace(&mut began, true) {
                    out.terminate(1, context.pid(), if stops_on_request { LONG } else { Duration::from_millis(5) });
                }
                out.wait();
                for event in events {
                    match event {
                        Event::Cancel if stops_on_request => out.done(),
                        Event::Completed { .. } => panic!("it is notified of its own end"),
                        _ => {}
                    }
                }
                Ok(())
            });
            let reason = system.exec(machine).await.unwrap_err();
            assert_eq!(reason, if stops_on_request { ExitReason::Shutdown } else { ExitReason::Killed });
        }
    });
}

#[test]
fn many_stop_requests_shut_a_process_down() {
    with_system(async |system| {
        let mut cancels = 0;
        let machine = scripted(move |_, events, out| {
            for event in events {
                match event {
                    Event::Cancel => cancels += 1,
                    Event::Message(message) if message.payload.is::<Held>() => hold(message.payload),
                    Event::Message(_) => {
                        // A panic would be its exit reason.
                        assert_eq!(cancels, 1, "it is notified of the requests once");
                        out.done();
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        let pid = system.spawn(machine).unwrap();
        let ends = system.wait(pid);
        let held = keep_in_step(&system, pid);
        for _ in 0..1000 {
            assert!(system.cancel(pid));
        }
        system.try_send(pid, Payload::empty()).unwrap();
        drop(held);
        assert_eq!(ends.await, ExitReason::Shutdown);
    });
}
