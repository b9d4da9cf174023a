//! Symptoms of polls that take too long.

use std::thread;
use std::time::Duration;

use volt::Builder;

use crate::scene::{Scene, WORKERS, compute, in_turns};

/// How long a task blocks its thread.
const BLOCKS_FOR: Duration = Duration::from_millis(300);
/// Time between two blocks.
const RESTS_FOR: Duration = Duration::from_millis(20);
/// Time between two short tasks.
const PING_INTERVAL: Duration = Duration::from_millis(1);
/// A computation that delays other tasks noticeably, and one that does not.
const LONG_POLL: Duration = Duration::from_millis(6);
const SHORT_POLL: Duration = Duration::from_micros(100);

pub(crate) fn stalled_poll(scene: &Scene) {
    let (end, has_symptom) = (scene.end_flag(), scene.has_symptom);
    drop(volt::task::Builder::new().name("sleeper").spawn_on(
        async move {
            while !end.has_come() {
                if has_symptom {
                    thread::sleep(BLOCKS_FOR);
                } else {
                    // The job runs to its end. At the end of the run, the runtime does not wait for
                    // it.
                    let _ = volt::task::spawn_blocking(|| thread::sleep(BLOCKS_FOR)).await;
                }
                volt::time::sleep(RESTS_FOR).await;
            }
        },
        &scene.runtime,
    ));
}

/// As many tasks as workers compute; a thread outside the runtime sends pings.
pub(crate) fn no_yield(scene: &mut Scene) {
    let time = if scene.has_symptom { LONG_POLL } else { SHORT_POLL };
    for _ in 0..WORKERS {
        drop(scene.runtime.spawn(in_turns(time, scene.end_flag())));
    }
    scene.outside(|runtime| {
        drop(runtime.spawn(async {}));
        thread::sleep(PING_INTERVAL);
    });
}

/// Disables incidents. Otherwise, a poll that the machine delays a little would be an incident, and
/// the doctor would report that instead.
pub(crate) fn without_incidents(settings: Builder) -> Builder {
    settings.incident_after(None)
}

/// Sets whether a stuck worker can be replaced.
pub(crate) fn without_spares(settings: Builder, has_symptom: bool) -> Builder {
    if has_symptom { settings.max_spare_workers(0) } else { settings }
}

/// Every worker is blocked, while a task waits for its timer.
pub(crate) fn driver_held(scene: &Scene) {
    for _ in 0..WORKERS {
        let end = scene.end_flag();
        drop(scene.runtime.spawn(async move {
            while !end.has_come() {
                thread::sleep(BLOCKS_FOR);
                volt::task::yield_now().await;
            }
        }));
    }
    let end = scene.end_flag();
    drop(scene.runtime.spawn(async move {
        while !end.has_come() {
            volt::time::sleep(RESTS_FOR).await;
            compute(SHORT_POLL);
        }
    }));
}
