//! Tasks that wait for room in each other's channels.

use volt::sync::mpsc;

use super::*;

/// The number of values of a channel.
const CAPACITY: usize = 1;

/// Receives a value, then sends until there is no room any more.
async fn exchanges(mut from: mpsc::Receiver<u32>, to: mpsc::Sender<u32>) {
    while let Some(value) = from.recv().await {
        for _ in 0..3 {
            to.send(value).await.unwrap();
        }
    }
}
const RECEIVES: u32 = line!() - 6;
const SENDS: u32 = line!() - 5;

/// Like [`exchanges`], but receives while it waits for room.
async fn receives_meanwhile(mut from: mpsc::Receiver<u32>, to: mpsc::Sender<u32>) {
    loop {
        volt::select! {
            Some(_) = from.recv() => {}
            permit = to.reserve() => permit.unwrap().send(1),
        }
        volt::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Spawns two tasks that send to each other. Returns the first sender.
fn pair<F: Future<Output = ()> + Send + 'static>(
    runtime: &Runtime,
    task: impl Fn(mpsc::Receiver<u32>, mpsc::Sender<u32>) -> F,
) -> mpsc::Sender<u32> {
    let (to_one, of_one) = mpsc::channel(CAPACITY);
    let (to_other, of_other) = mpsc::channel(CAPACITY);
    drop(runtime.spawn(task(of_one, to_other.clone())));
    drop(runtime.spawn(task(of_other, to_one.clone())));
    to_one.try_send(1).unwrap();
    to_one
}

#[test]
fn two_tasks_whose_channels_are_full_are_found() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let _open = pair(&runtime, exchanges);
        let finding = found(&runtime);
        assert_eq!(finding.severity, Severity::Warning, "{finding:#?}");
        assert!(finding.title.starts_with("probable deadlock: ") && finding.title.contains("room"), "{finding:#?}");
        assert!(finding.title.contains(&at(SENDS)) && text(&finding).contains(&at(RECEIVES)), "{finding:#?}");
    });
}

#[test]
fn a_task_that_fills_its_own_channel_is_found() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (sender, receiver) = mpsc::channel(CAPACITY);
        sender.try_send(1).unwrap();
        drop(runtime.spawn(exchanges(receiver, sender)));
        let finding = found(&runtime);
        assert!(finding.title.ends_with("that it receives from itself"), "{finding:#?}");
    });
}

#[test]
fn tasks_that_receive_while_they_wait_for_room_are_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let _open = pair(&runtime, receives_meanwhile);
        assert_eq!(reported(&runtime), []);
    });
}

#[test]
fn a_slow_receiver_at_the_end_of_a_pipeline_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (first, of_first) = mpsc::channel(CAPACITY);
        let (second, mut of_second) = mpsc::channel(CAPACITY);
        drop(runtime.spawn(exchanges(of_first, second)));
        drop(runtime.spawn(async move {
            while of_second.recv().await.is_some() {
                volt::time::sleep(Duration::from_secs(100)).await;
            }
        }));
        drop(runtime.spawn(async move { while first.send(1).await.is_ok() {} }));
        assert_eq!(reported(&runtime), []);
    });
}

#[test]
fn a_receiver_that_was_moved_to_another_task_is_not_reported() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        let (sender, mut receiver) = mpsc::channel(CAPACITY);
        drop(runtime.spawn(async move {
            sender.send(0).await.unwrap();
            assert_eq!(receiver.recv().await, Some(0));
            // Full before the other task starts, so that it never waits for a message.
            sender.send(1).await.unwrap();
            drop(volt::spawn(async move {
                while receiver.recv().await.is_some() {
                    volt::time::sleep(Duration::from_secs(100)).await;
                }
            }));
            while sender.send(2).await.is_ok() {}
        }));
        assert_eq!(reported(&runtime), []);
    });
}
