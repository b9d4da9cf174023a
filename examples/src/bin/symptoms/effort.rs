//! Symptoms of effort that runs no useful task.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::scene::{Scene, compute};

/// The length of a task that is worth a wake-up.
const WORTH_IT: Duration = Duration::from_micros(50);
/// The pause between two tasks: long enough for a worker that does not spin to park.
const LULL: Duration = Duration::from_micros(10);

/// Disables spinning. A spinning worker would still be awake for the next task of a thread that
/// submits tasks as fast as it can.
pub(crate) fn without_spins(settings: volt::Builder) -> volt::Builder {
    settings.park_spin(volt::ParkSpin::Off)
}

/// A thread outside the runtime spawns one task, and the next when that has completed and the
/// workers have parked.
pub(crate) fn wake_storm(scene: &mut Scene) {
    let has_symptom = scene.has_symptom;
    scene.outside(move |runtime| {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        drop(runtime.spawn(async move {
            if !has_symptom {
                compute(WORTH_IT);
            }
            // ORDERING: Relaxed; the flag alone is the message.
            done.store(true, Ordering::Relaxed);
        }));
        // ORDERING: Relaxed; see the store.
        while !is_done.load(Ordering::Relaxed) {
            thread::yield_now();
        }
        compute(LULL);
    });
}

/// A task that waits for the end by checking it again and again.
pub(crate) fn self_wake_loop(scene: &Scene) {
    let (end, has_symptom) = (scene.end_flag(), scene.has_symptom);
    drop(scene.runtime.spawn(async move {
        while !end.has_come() {
            if !has_symptom {
                compute(WORTH_IT);
            }
            volt::task::yield_now().await;
        }
    }));
}
