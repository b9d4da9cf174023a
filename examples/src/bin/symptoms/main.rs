//! A program for each thing that can be wrong with a runtime, and one beside it that only looks so.
//!
//! cargo run --release --bin symptoms -- stalled-poll
//! cargo run --release --bin symptoms -- stalled-poll --look-alike
//!
//! While it runs, `volt-console doctor symptoms` says what is wrong with the first and nothing of the kind about the
//! second. The names are those of the doctor's rules. Missing are two: a lost wake-up would be a fault of Volt's, and
//! thieves that get into each other's way need more processors than a plain machine has.
//!
//! For `cgroup-throttled`, give it a control group with a fifth of a processor to go into:
//!
//! mkdir /sys/fs/cgroup/small && echo "20000 100000" >/sys/fs/cgroup/small/cpu.max
//! cargo run --release --bin symptoms -- cgroup-throttled --group /sys/fs/cgroup/small

mod effort;
mod machine;
mod piles;
mod processes;
mod queues;
mod scene;
mod stalls;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::scene::Scene;

/// Workers, unless the symptom needs another number.
const WORKERS: usize = 2;
/// How long the runtime waits for its tasks at the end; most of them never end.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// Makes a runtime ill in one way, for the doctor to find.
#[derive(Debug, Parser)]
#[command(about)]
struct Arguments {
    /// What is to be wrong.
    #[arg(value_name = "RULE", value_enum)]
    symptom: Symptom,
    /// The program beside it, that looks like it and is well.
    #[arg(long)]
    look_alike: bool,
    /// The folder of a control group to go into at the start; one for each hierarchy, if there are several.
    #[arg(long, value_name = "FOLDER")]
    group: Vec<PathBuf>,
    /// How long it runs.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// What can be wrong, by the name of the doctor's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Symptom {
    /// A task sleeps in its thread; the other lets a thread for blocking work do so.
    StalledPoll,
    /// Tasks compute for 6 ms a poll beside short ones; the others for 0.1 ms.
    NoYield,
    /// Every worker is held and there is no spare; the other may call spares.
    DriverHeld,
    /// One worker has all tasks and none may be stolen; in the other they may.
    ParkedWhileBacklog,
    /// Nobody looks at the global queue; the other looks as usual.
    GlobalStarved,
    /// A task is kept in the LIFO slot of a worker that sleeps; in the other it may be stolen.
    LifoHeld,
    /// Two tasks wake each other through the LIFO slot without an end; the other has the default cap.
    LifoMonopoly,
    /// One worker has most tasks and none may be stolen; in the other they may.
    Imbalance,
    /// A worker is woken for each of many tiny tasks; the other's tasks are worth it.
    WakeStorm,
    /// A task asks again and again whether it can go on; the other computes in between.
    SelfWakeLoop,
    /// The workers want more than the quota of `--group`; the other's want less.
    CgroupThrottled,
    /// Threads of others use up the processors; the other's workers need none.
    CpuStarved,
    /// Four busy workers for each processor; the other's are idle.
    Oversubscribed,
    /// The process is stopped for a while again and again; the other is stopped while it is idle.
    ProcessPaused,
    /// More jobs than threads for blocking work; the other has just as many.
    BlockingPoolSaturated,
    /// Tasks that never end; the other's do.
    TaskLeak,
    /// A future that forgets its waker; the other keeps it.
    LostWaker,
    /// A process gets more messages than it takes; the other's sender waits for room.
    MailboxGrowing,
    /// A process fails at once and is started anew without a pause; the other's supervisor waits.
    RestartStorm,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("symptoms: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let is_ill = !arguments.look_alike;
    // Before the runtime starts, which asks once which group it is in.
    arguments.group.iter().try_for_each(|folder| machine::go_into(folder))?;
    let settings = volt::Builder::new_multi_thread().name("symptoms").worker_threads(WORKERS);
    let settings = match arguments.symptom {
        Symptom::NoYield => stalls::without_incidents(settings),
        Symptom::DriverHeld => stalls::without_spares(settings, is_ill),
        Symptom::ParkedWhileBacklog | Symptom::LifoHeld | Symptom::Imbalance => {
            queues::with_tasks_that_stay(settings, is_ill)
        }
        Symptom::GlobalStarved => queues::seldom_checking(settings, is_ill),
        Symptom::LifoMonopoly => queues::with_a_high_cap(settings, is_ill),
        Symptom::WakeStorm => effort::without_spins(settings),
        // To read debug information would spend the quota by itself.
        Symptom::CgroupThrottled => settings.incident_stacks(false),
        Symptom::CpuStarved => machine::undisturbed(settings, is_ill),
        Symptom::Oversubscribed => {
            machine::undisturbed(settings.worker_threads(machine::workers_oversubscribed()), is_ill)
        }
        Symptom::BlockingPoolSaturated => settings.max_blocking_threads(piles::BLOCKING_THREADS),
        _ => settings,
    };
    let runtime = settings.build()?;
    let mut scene = Scene::new(runtime.handle().clone(), is_ill);
    match arguments.symptom {
        Symptom::StalledPoll => stalls::stalled_poll(&scene),
        Symptom::NoYield => stalls::no_yield(&mut scene),
        Symptom::DriverHeld => stalls::driver_held(&scene),
        Symptom::ParkedWhileBacklog => queues::backlog(&scene),
        Symptom::GlobalStarved => queues::global_starved(&mut scene),
        Symptom::LifoHeld => queues::lifo_held(&scene),
        Symptom::LifoMonopoly => queues::lifo_monopoly(&scene),
        Symptom::Imbalance => queues::imbalance(&mut scene),
        Symptom::WakeStorm => effort::wake_storm(&mut scene),
        Symptom::SelfWakeLoop => effort::self_wake_loop(&scene),
        Symptom::CgroupThrottled => machine::cgroup_throttled(&scene),
        Symptom::CpuStarved => machine::cpu_starved(&mut scene),
        Symptom::Oversubscribed => machine::oversubscribed(&scene),
        Symptom::ProcessPaused => machine::process_paused(&mut scene),
        Symptom::BlockingPoolSaturated => piles::blocking_pool_saturated(&scene),
        Symptom::TaskLeak => piles::task_leak(&mut scene),
        Symptom::LostWaker => piles::lost_waker(&scene),
        Symptom::MailboxGrowing => processes::mailbox_growing(&mut scene),
        Symptom::RestartStorm => processes::restart_storm(&mut scene),
    }
    println!("running, pid {}", std::process::id());
    thread::sleep(Duration::from_secs(arguments.seconds));
    scene.end();
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    Ok(())
}
