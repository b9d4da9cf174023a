//! A symptom of a leak that is too slow for anyone to notice.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant};

use volt::sync::mpsc;

use crate::scene::Scene;

/// Time between two spawns: 28 per second.
const SPAWN_INTERVAL: Duration = Duration::from_micros(35_714);
/// How long a subscription lasts if its sender is dropped.
const SUBSCRIBED: Duration = Duration::from_secs(1);

/// 28 subscribers every second, each a task that receives until its sender is dropped. The senders
/// are kept in a list, for ever or for a second.
pub(crate) fn task_leak_slow(scene: &mut Scene) {
    let has_symptom = scene.has_symptom;
    let mut senders = VecDeque::new();
    scene.outside(move |runtime| {
        let (sender, mut receiver) = mpsc::channel::<u64>(1);
        drop(runtime.spawn(async move { while receiver.recv().await.is_some() {} }));
        senders.push_back((Instant::now(), sender));
        while !has_symptom && senders.front().is_some_and(|(since, _)| since.elapsed() >= SUBSCRIBED) {
            senders.pop_front();
        }
        thread::sleep(SPAWN_INTERVAL);
    });
}
