//! A program that causes one problem in a runtime for each rule of the doctor, or shows a healthy
//! counterpart that looks similar.
//!
//! ```text
//! cargo run --release --bin symptoms -- stalled-poll
//! cargo run --release --bin symptoms -- stalled-poll --healthy
//! ```
//!
//! While it runs, `volt-console doctor symptoms` reports the problem of the first, and no such
//! finding for the second. The names are those of the doctor's rules. `task-leak-slow` is another
//! problem for the rule `task-leak`, and `deadlock-channels` for `deadlock`. Two rules are missing:
//! a lost wake-up would be a bug in Volt, and contention between stealing workers needs more
//! processors than an ordinary machine has.
//!
//! For `cgroup-throttled`, create a control group with a fifth of a processor that the program
//! joins:
//!
//! ```text
//! mkdir /sys/fs/cgroup/small && echo "20000 100000" >/sys/fs/cgroup/small/cpu.max
//! cargo run --release --bin symptoms -- cgroup-throttled --group /sys/fs/cgroup/small
//! ```

mod scene;

mod answers;
mod channels;
mod effort;
mod leaks;
mod machine;
mod piles;
mod processes;
mod queues;
mod stalls;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::scene::{Scene, WORKERS};

/// How long the runtime waits for its tasks at the end; most of them never complete.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(200);

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Block a worker, and see what the doctor finds meanwhile
  symptoms stalled-poll &
  sleep 15
  volt-console doctor symptoms

  # Run the healthy counterpart, for which the rule does not fire
  symptoms stalled-poll --healthy

  # As root: use up the CPU quota of a control group
  mkdir /sys/fs/cgroup/small
  echo '20000 100000' >/sys/fs/cgroup/small/cpu.max
  symptoms cgroup-throttled --group /sys/fs/cgroup/small

Exit codes:
  0  The program ran for --seconds
  1  The program could not start
  2  Invalid arguments";

/// Cause one problem in a runtime, for the doctor to find
///
/// Each RULE is the name of a rule of `volt-console doctor`. Most rules fire within 15 seconds,
/// `waiting-forever` and `task-leak` within a minute, `task-leak-slow` within 3 minutes.
#[derive(Debug, Parser)]
#[command(max_term_width = 80, after_long_help = AFTER_HELP)]
struct Arguments {
    /// Problem to cause
    #[arg(value_name = "RULE", value_enum)]
    symptom: Symptom,
    /// Run the healthy counterpart, which looks similar
    #[arg(long)]
    healthy: bool,
    /// Directory of a control group to join at the start; can be given several times, once for each
    /// hierarchy
    #[arg(long, value_name = "DIR")]
    group: Vec<PathBuf>,
    /// How long to run, in seconds (1 to 600)
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
}

/// The possible problems, by the name of the doctor's rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Symptom {
    /// A task sleeps in its poll; the counterpart sleeps on a blocking thread
    StalledPoll,
    /// Tasks compute for 6 ms per poll next to short ones; the counterpart for 0.1 ms
    NoYield,
    /// All workers are stuck and there is no spare; the counterpart has spares
    DriverHeld,
    /// One worker has all tasks and stealing is off; the counterpart steals
    ParkedWhileBacklog,
    /// Workers check the global queue only every 4 ms; the counterpart's check it as usual
    GlobalStarved,
    /// A task waits in the LIFO slot of a sleeping worker; the counterpart steals it
    LifoHeld,
    /// Pairs of tasks wake each other through the LIFO slot; the counterpart has the default cap
    LifoMonopoly,
    /// One worker has most tasks and stealing is off; the counterpart steals
    Imbalance,
    /// A worker is woken for each of many tiny tasks; the counterpart's tasks are larger
    WakeStorm,
    /// A task wakes itself again and again; the counterpart computes in between
    SelfWakeLoop,
    /// The workers need more than the quota of --group; the counterpart's need less
    CgroupThrottled,
    /// Other threads use up the processors; the counterpart's workers are idle
    CpuStarved,
    /// Eight busy workers for each processor; the counterpart's are idle
    Oversubscribed,
    /// The program is stopped repeatedly; the counterpart is stopped only while idle
    ProgramPaused,
    /// More jobs than blocking threads; the counterpart has as many of both
    BlockingPoolSaturated,
    /// Tasks never complete; the counterpart's do
    TaskLeak,
    /// 28 tasks per second never complete; the counterpart's do
    TaskLeakSlow,
    /// A future drops its waker; the counterpart keeps it
    LostWaker,
    /// Two tasks lock two locks in opposite order; the counterpart's lock them in the same order
    Deadlock,
    /// Two tasks wait for room in each other's channels; the counterpart's receive meanwhile
    DeadlockChannels,
    /// A task holds a lock while it waits; the counterpart drops the guard first
    LockHeld,
    /// A server stops replying to requests; the counterpart's client is idle
    WaitingForever,
    /// A process receives more messages than it handles; the counterpart's sender waits for room
    MailboxGrowing,
    /// A process fails immediately and is restarted without a pause; the counterpart's supervisor
    /// waits
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
    let has_symptom = !arguments.healthy;
    // Before the runtime starts, because it determines its control group only once.
    arguments.group.iter().try_for_each(|folder| machine::go_into(folder))?;
    let settings = volt::Builder::new_multi_thread().name("symptoms").worker_threads(WORKERS);
    let settings = match arguments.symptom {
        Symptom::NoYield => stalls::without_incidents(settings),
        Symptom::DriverHeld => stalls::without_spares(settings, has_symptom),
        Symptom::ParkedWhileBacklog | Symptom::LifoHeld | Symptom::Imbalance => {
            queues::with_tasks_that_stay(settings, has_symptom)
        }
        Symptom::GlobalStarved => queues::seldom_checking(settings, has_symptom),
        Symptom::LifoMonopoly => queues::with_a_high_cap(settings, has_symptom),
        Symptom::WakeStorm => effort::without_spins(settings),
        // Reading debug information would use up the quota by itself.
        Symptom::CgroupThrottled => settings.incident_stacks(false),
        Symptom::CpuStarved => machine::undisturbed(settings, has_symptom),
        Symptom::Oversubscribed => {
            machine::undisturbed(settings.worker_threads(machine::workers_oversubscribed()), has_symptom)
        }
        Symptom::BlockingPoolSaturated => settings.max_blocking_threads(piles::BLOCKING_THREADS),
        _ => settings,
    };
    let runtime = settings.build()?;
    let mut scene = Scene::new(runtime.handle().clone(), has_symptom);
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
        Symptom::ProgramPaused => machine::program_paused(&mut scene),
        Symptom::BlockingPoolSaturated => piles::blocking_pool_saturated(&scene),
        Symptom::TaskLeak => piles::task_leak(&mut scene),
        Symptom::TaskLeakSlow => leaks::task_leak_slow(&mut scene),
        Symptom::LostWaker => piles::lost_waker(&scene),
        Symptom::Deadlock => piles::deadlock(&scene),
        Symptom::DeadlockChannels => channels::deadlock_channels(&scene),
        Symptom::LockHeld => piles::lock_held(&scene),
        Symptom::WaitingForever => answers::waiting_forever(&scene),
        Symptom::MailboxGrowing => processes::mailbox_growing(&mut scene),
        Symptom::RestartStorm => processes::restart_storm(&mut scene),
    }
    let pid = std::process::id();
    println!("running, pid {pid}; run `volt-console doctor {pid}`");
    thread::sleep(Duration::from_secs(arguments.seconds));
    scene.end();
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    Ok(())
}
