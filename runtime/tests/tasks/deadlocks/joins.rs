//! Tasks that await each other's end.

use volt::task::JoinHandle;

use super::*;

#[test]
fn a_task_that_awaits_its_own_end_is_found() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        let (own, handle) = volt::sync::oneshot::channel::<JoinHandle<()>>();
        let spawned = line!() + 1;
        let task = runtime.spawn(async move {
            drop(handle.await.unwrap().await);
        });
        own.send(task).unwrap();
        let finding = found(&runtime);
        assert_eq!((finding.severity, finding.tasks.len()), (Severity::Critical, 1), "{finding:#?}");
        assert!(finding.title.contains("awaits its own end"), "{finding:#?}");
        assert!(finding.title.contains(&at(spawned)), "{finding:#?}");
    });
}

/// Spawns tasks at one line, each of which awaits the end of the next one, and the last that of the
/// first.
fn ring(runtime: &Runtime, tasks: usize) -> u32 {
    let channels = (0..tasks).map(|_| volt::sync::oneshot::channel::<JoinHandle<()>>());
    let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
    let spawn = |next: volt::sync::oneshot::Receiver<JoinHandle<()>>| {
        runtime.spawn(async move { drop(next.await.unwrap().await) })
    };
    let line = line!() - 2;
    let mut handles: Vec<_> = receivers.into_iter().map(spawn).collect();
    handles.rotate_left(1);
    senders.into_iter().zip(handles).for_each(|(sender, handle)| sender.send(handle).unwrap());
    line
}

#[test]
fn tasks_that_await_each_others_end_are_found() {
    watched(|| {
        for tasks in [2, 5] {
            let runtime = builder(2).build().unwrap();
            let line = ring(&runtime, tasks);
            let finding = found(&runtime);
            assert_eq!((finding.severity, finding.tasks.len()), (Severity::Critical, tasks), "{finding:#?}");
            assert_eq!(text(&finding).matches(&at(line)).count(), 2 * tasks, "{finding:#?}");
        }
    });
}

#[test]
fn a_task_that_needs_one_of_two_ends_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (own, handle) = volt::sync::oneshot::channel::<JoinHandle<()>>();
        let (release, done) = volt::sync::oneshot::channel::<()>();
        let waits = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| runtime.spawn(task);
        let working = waits(Box::pin(async move { drop(done.await) }));
        let task = waits(Box::pin(async move {
            let (own, working) = (handle.await.unwrap(), working);
            // Both were spawned at the same line.
            futures_lite::future::or(async { drop(own.await) }, async { drop(working.await) }).await;
        }));
        own.send(task).unwrap();
        assert_eq!(reported(&runtime), []);
        release.send(()).unwrap();
        while runtime.handle().snapshot().tasks.alive > 0 {}
    });
}
