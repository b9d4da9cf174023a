//! A slow leak, and three programs that look similar, for the doctor's rule `task-leak`, which
//! takes minutes to fire.
//!
//! ```text
//! cargo run --release --bin leak               # for three minutes, or for --seconds
//! volt-console doctor leak                     # meanwhile
//! ```
//!
//! Each has a separate runtime. `leak` spawns 28 tasks per second that never complete. `warm-up`
//! spawns tasks at the same rate for its first 100 seconds, and keeps them. `churn` spawns 200
//! tasks per second that complete after a second. `burst` spawns 4,000 tasks within 10 seconds, a
//! minute and a half after its start; they complete half a minute later. At the end, the program
//! prints what the doctor found in each runtime.

use std::error::Error;
use std::time::{Duration, Instant};

use clap::Parser;
use volt::Runtime;
use volt::time::sleep;
use volt_telemetry::finding::Finding;
use volt_telemetry::text::counted;

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Leak tasks for four minutes, and see what the doctor finds after three
  leak --seconds 240 &
  sleep 180
  volt-console doctor leak

Exit codes:
  0  The program ran for --seconds, whatever the doctor found
  1  The program could not start
  2  Invalid arguments";

/// Leak tasks slowly in one runtime, next to three healthy ones
///
/// The healthy runtimes spawn many tasks too, but their tasks complete or their number stops
/// growing. At the end, prints what the doctor found in each runtime. The rule `task-leak` takes
/// minutes to fire.
#[derive(Debug, Parser)]
#[command(max_term_width = 80, after_long_help = AFTER_HELP)]
struct Arguments {
    /// How long to run, in seconds (1 to 3600)
    #[arg(long, value_name = "SECONDS", default_value_t = 180, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
}

/// Time between two tasks of `leak` and of `warm-up`: 28 per second.
const SLOW: Duration = Duration::from_micros(1_000_000 / 28);
/// Longer than any run.
const FOR_EVER: Duration = Duration::from_secs(86_400);
const WARM_UP: Duration = Duration::from_secs(100);
const CHURN: Duration = Duration::from_millis(5);
const BURST_AT: Duration = Duration::from_secs(90);
const BURST_FOR: Duration = Duration::from_secs(10);
const BURST_PAUSE: Duration = Duration::from_micros(2_500);

fn runtime(name: &str) -> Result<Runtime, Box<dyn Error>> {
    Ok(volt::Builder::new_multi_thread().worker_threads(1).name(name).build()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let began = Instant::now();
    let runtimes = [runtime("leak")?, runtime("warm-up")?, runtime("churn")?, runtime("burst")?];
    let [leak, warm_up, churn, burst] = &runtimes;
    drop(leak.spawn(async {
        every(SLOW, Duration::MAX, || drop(volt::spawn(sleep(FOR_EVER)))).await;
    }));
    drop(warm_up.spawn(async {
        every(SLOW, WARM_UP, || drop(volt::spawn(sleep(FOR_EVER)))).await;
    }));
    drop(churn.spawn(async {
        every(CHURN, Duration::MAX, || drop(volt::spawn(sleep(Duration::from_secs(1))))).await;
    }));
    drop(burst.spawn(async {
        sleep(BURST_AT).await;
        every(BURST_PAUSE, BURST_FOR, || drop(volt::spawn(sleep(Duration::from_secs(30))))).await;
    }));
    println!(
        "leaking 28 tasks per second for {} s; run `volt-console doctor {}`",
        arguments.seconds,
        std::process::id()
    );
    while began.elapsed() < Duration::from_secs(arguments.seconds) {
        std::thread::sleep(Duration::from_secs(1));
    }
    for runtime in &runtimes {
        let now = runtime.handle().snapshot();
        let alive = counted(now.tasks.alive, "live task");
        println!("{}: {alive} after {} s", now.runtime, began.elapsed().as_secs());
        now.findings.iter().flatten().for_each(|finding| println!("  {}", line(finding)));
    }
    runtimes.into_iter().for_each(|runtime| runtime.shutdown_timeout(Duration::ZERO));
    Ok(())
}

/// Formats a finding, with its locations if it has any.
fn line(finding: &Finding) -> String {
    let places: String = finding.locations.iter().map(|place| format!(" at {}", place.at())).collect();
    format!("{} {}: {}{places}", finding.severity.name(), finding.rule, finding.title)
}

/// Calls `spawn` for `time`, on average once per `pause`, however late a single sleep is.
async fn every(pause: Duration, time: Duration, mut spawn: impl FnMut()) {
    let (began, mut calls) = (Instant::now(), 0_u32);
    while began.elapsed() < time {
        while pause * calls <= began.elapsed().min(time) {
            spawn();
            calls += 1;
        }
        sleep(pause).await;
    }
}
