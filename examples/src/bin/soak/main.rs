//! A soak: a mixed load that verifies every result, while faults are injected from outside.
//!
//! ```text
//! cargo run --release --bin soak -- --seconds 7200
//! ```
//!
//! Two programs. The child (`child`, `load`) runs the load on a Volt runtime, and prints its
//! counts once per second. The parent (`faults`, `watch`) stops it, takes descriptors, threads and
//! processor time from it, and attaches clients to its control socket, one fault after the other.
//! The run fails if a result is wrong, a wake-up was lost, a part of the load makes no progress, a
//! client gets no answer, a task is not accounted for, or memory or descriptors grow.

mod random;

mod part;

mod load;

mod child;
mod faults;
mod watch;

use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;

use crate::faults::{Fault, Victim};
use crate::random::Random;
use crate::watch::Watch;

/// The longest pause between two faults.
const PAUSE_MAX: Duration = Duration::from_millis(1_500);
/// Time between two lines of progress.
const LINE_INTERVAL: Duration = Duration::from_secs(30);

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Ten minutes
  soak

  # Two hours, with the faults of another run
  soak --seconds 7200 --seed 42

Exit codes:
  0  Every result was right, no wake-up was lost, and nothing grew
  1  Something was wrong; the last lines name it
  2  Invalid arguments

Faults that need control groups (quota, threads) are left out for users who
cannot create any; the first lines of the output name them.";

/// Run a load that verifies its results, and inject faults into it
///
/// Stops the program, takes descriptors, threads and processor time from it, dumps and records it,
/// and checks that nothing is lost, wrong, stuck or growing.
#[derive(Debug, Parser)]
#[command(name = "soak", version, max_term_width = 80, after_long_help = AFTER_HELP)]
struct Options {
    /// How long to run, in seconds (20 to 86400)
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(20..=86_400))]
    seconds: u64,
    /// Seed that chooses the faults [default: from the time, and printed]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// Run the load alone, as the parent's child does
    #[arg(long, hide = true)]
    child: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let outcome = if options.child { child::run().map(|()| Vec::new()) } else { run(&options) };
    match outcome {
        Ok(failures) if failures.is_empty() => ExitCode::SUCCESS,
        Ok(failures) => {
            failures.iter().for_each(|failure| println!("FAILED: {failure}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("soak: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the child under faults. Returns what was wrong.
fn run(options: &Options) -> Result<Vec<String>, Box<dyn Error>> {
    let seed = options.seed.unwrap_or_else(|| {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64 % 1_000_000)
    });
    let mut random = Random::new(seed);
    let mut watch = Watch::start()?;
    let victim = Victim::new(watch.pid(), watch.socket().to_owned());
    println!("pid {}, {} s, seed {seed}", watch.pid(), options.seconds);
    let (missing, faults): (Vec<_>, Vec<_>) =
        Fault::ALL.into_iter().partition(|fault| victim.missing(*fault).is_some());
    for fault in missing {
        println!("left out: {}: {}", fault.name(), victim.missing(fault).unwrap_or_default());
    }
    let (begun, time) = (Instant::now(), Duration::from_secs(options.seconds));
    let mut injected: HashMap<Fault, u64> = HashMap::new();
    // Each fault once first: afterwards, pools and buffers have the size that it causes.
    let mut first = faults.iter().copied();
    let mut next_line = LINE_INTERVAL;
    while begun.elapsed() < time && watch.is_well() {
        thread::sleep(PAUSE_MAX.mul_f64(random.ratio()));
        watch.sample(begun.elapsed(), &victim);
        let next = first.next();
        if next.is_none() {
            watch.begin_comparison(begun.elapsed());
        }
        let fault = next.unwrap_or_else(|| faults[random.below(faults.len() as u64) as usize]);
        *injected.entry(fault).or_default() += 1;
        if let Err(failure) = victim.inject(fault, &mut random) {
            watch.fail(failure);
        }
        watch.read(|| victim.dump());
        if begun.elapsed() >= next_line {
            println!("{}", watch.line(begun.elapsed()));
            next_line += LINE_INTERVAL;
        }
    }
    let failures = watch.end();
    println!("{}", watch.table());
    for fault in faults {
        println!("{:<16} {:>10} times", fault.name(), injected.get(&fault).copied().unwrap_or(0));
    }
    Ok(failures)
}
