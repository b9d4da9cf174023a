//! A symptom of a leak that is too slow for anyone to notice.

use std::thread;
use std::time::Duration;

use crate::scene::Scene;

/// Time between two spawns: 28 per second.
const SPAWN_INTERVAL: Duration = Duration::from_micros(35_714);
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(86_400);

/// 28 tasks every second that stay, or that complete after a second.
pub(crate) fn task_leak_slow(scene: &mut Scene) {
    let lives_for = if scene.has_symptom { FOR_EVER } else { Duration::from_secs(1) };
    scene.outside(move |runtime| {
        drop(runtime.spawn(async move { volt::time::sleep(lives_for).await }));
        thread::sleep(SPAWN_INTERVAL);
    });
}
