//! Symptoms of a machine that gives the program too little processor time.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use volt::{Builder, Handle};

use crate::scene::{Scene, WORKERS, compute, in_turns};

/// The length of a poll of a worker that needs a processor all the time.
const TURN: Duration = Duration::from_millis(1);
/// Longer than any run.
const ONE_DAY: Duration = Duration::from_secs(86_400);
/// The number of threads, or workers, that compete for each processor.
const CROWD: usize = 4;
/// The number of workers per processor for the symptom of too many workers.
const OVERSUBSCRIBED: usize = 8;
/// How long the program is stopped, in seconds for the shell, and how long it then runs.
const STOPPED_FOR: &str = "0.2";
const RUNS_FOR: Duration = Duration::from_millis(200);
/// How long the sentinel must not have run a check before the runtime counts as idle, without any
/// timed work.
const RESTS_FOR: Duration = Duration::from_millis(100);

/// Moves this program into the control group.
pub(crate) fn go_into(folder: &Path) -> io::Result<()> {
    let file = folder.join("cgroup.procs");
    let with_file = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", file.display()));
    fs::write(&file, std::process::id().to_string()).map_err(with_file)
}

/// Workers that use all the time they can get, or a hundredth of it.
pub(crate) fn cgroup_throttled(scene: &Scene) {
    for _ in 0..WORKERS {
        let (end, has_symptom) = (scene.end_flag(), scene.has_symptom);
        drop(scene.runtime.spawn(async move {
            while !end.has_come() {
                compute(TURN);
                if has_symptom {
                    volt::task::yield_now().await;
                } else {
                    volt::time::sleep(RESTS_FOR).await;
                }
            }
        }));
    }
}

/// Other threads use the processors too.
pub(crate) fn cpu_starved(scene: &mut Scene) {
    for _ in 0..CROWD * processors() {
        scene.outside(|_runtime| compute(TURN));
    }
    busy_or_idle(scene, WORKERS);
}

/// Disables the periodic wake-up of parked workers in the counterpart: on a machine that is short
/// of processors, the wake-up takes long.
pub(crate) fn undisturbed(settings: Builder, has_symptom: bool) -> Builder {
    if has_symptom { settings } else { settings.park_timeout(None) }
}

/// Returns enough workers to get most of the processor time next to a dozen busy threads of other
/// programs. With a quarter of it or less, the doctor would blame the other programs instead.
pub(crate) fn workers_oversubscribed() -> usize {
    OVERSUBSCRIBED * processors()
}

pub(crate) fn oversubscribed(scene: &Scene) {
    busy_or_idle(scene, workers_oversubscribed());
}

/// Spawns tasks that compute all the time, or that only wait for a distant timer.
fn busy_or_idle(scene: &Scene, tasks: usize) {
    for _ in 0..tasks {
        if scene.has_symptom {
            drop(scene.runtime.spawn(in_turns(TURN, scene.end_flag())));
        } else {
            drop(scene.runtime.spawn(async { volt::time::sleep(ONE_DAY).await }));
        }
    }
}

/// Lets a shell stop and continue this program repeatedly.
pub(crate) fn program_paused(scene: &mut Scene) {
    if scene.has_symptom {
        scene.crowd(WORKERS, TURN);
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
