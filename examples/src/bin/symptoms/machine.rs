//! Processors that are not there, and time that is not either.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use volt::{Builder, Handle};

use crate::scene::{Scene, compute, in_turns};

/// A poll of a worker that wants a processor all the time.
const TURN: Duration = Duration::from_millis(1);
/// Longer than any run.
const FAR_AWAY: Duration = Duration::from_secs(86_400);
/// Threads, or workers, that want each processor.
const CROWD: usize = 4;
/// Workers a processor, for the symptom of too many.
const OVERSUBSCRIBED: usize = 8;
/// How long the process is stopped, and how long it then runs, seconds, as the shell wants them.
const STOPPED_FOR: &str = "0.2";
const RUNS_FOR: Duration = Duration::from_millis(200);
/// So long without a check of the sentinel, and the runtime has come to rest: nothing of it waits
/// for a clock.
const RESTS_FOR: Duration = Duration::from_millis(100);

/// Has the kernel count this process with the control group.
pub(crate) fn go_into(folder: &Path) -> io::Result<()> {
    let file = folder.join("cgroup.procs");
    let told = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    fs::write(&file, std::process::id().to_string()).map_err(told)
}

/// Workers that want all the time that there is, or a hundredth.
pub(crate) fn cgroup_throttled(scene: &Scene) {
    for _ in 0..crate::WORKERS {
        let (end, is_ill) = (scene.end_flag(), scene.is_ill);
        drop(scene.runtime.spawn(async move {
            while !end.has_come() {
                compute(TURN);
                if is_ill {
                    volt::task::yield_now().await;
                } else {
                    volt::time::sleep(RESTS_FOR).await;
                }
            }
        }));
    }
}

/// Other threads want the processors, too.
pub(crate) fn cpu_starved(scene: &mut Scene) {
    for _ in 0..CROWD * processors() {
        scene.outside(|_runtime| compute(TURN));
    }
    busy_or_idle(scene, crate::WORKERS);
}

/// Workers of the look-alike do not even wake up to see whether they were forgotten: where
/// processors are short, that takes long.
pub(crate) fn undisturbed(settings: Builder, is_ill: bool) -> Builder {
    if is_ill { settings } else { settings.park_timeout(None) }
}

/// So many that they get most of the processors' time beside a dozen busy threads of others: with a
/// quarter of it or less, it would be the others who are too many.
pub(crate) fn workers_oversubscribed() -> usize {
    OVERSUBSCRIBED * processors()
}

pub(crate) fn oversubscribed(scene: &Scene) {
    busy_or_idle(scene, workers_oversubscribed());
}

/// So many tasks that compute all the time, or that wait for something far away.
fn busy_or_idle(scene: &Scene, tasks: usize) {
    for _ in 0..tasks {
        if scene.is_ill {
            drop(scene.runtime.spawn(in_turns(TURN, scene.end_flag())));
        } else {
            drop(scene.runtime.spawn(async { volt::time::sleep(FAR_AWAY).await }));
        }
    }
}

/// Has a shell stop this process and let it go on.
pub(crate) fn program_paused(scene: &mut Scene) {
    if scene.is_ill {
        scene.crowd(crate::WORKERS, TURN);
    } else {
        wait_for_rest(&scene.runtime);
    }
    let pid = std::process::id();
    let script = format!("kill -STOP {pid}; sleep {STOPPED_FOR}; kill -CONT {pid}");
    scene.outside(move |_runtime| {
        if let Err(error) = Command::new("sh").args(["-c", &script]).status() {
            eprintln!("symptoms: no shell: {error}");
        }
        thread::sleep(RUNS_FOR);
    });
}

fn wait_for_rest(runtime: &Handle) {
    let checks = || runtime.snapshot().sentinel.checks;
    let mut before = checks();
    loop {
        thread::sleep(RESTS_FOR);
        let now = checks();
        if now == before {
            return;
        }
        before = now;
    }
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
