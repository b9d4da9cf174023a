//! Runs a workload of the benchmark `peers` on Tokio while it is observed.
//!
//! ```text
//! RUSTFLAGS="--cfg tokio_unstable" cargo run --release --             histogram --only yield_now --workers 1
//! RUSTFLAGS="--cfg tokio_unstable" cargo run --release -F console --  console   --only yield_now --workers 1
//! ```
//!
//! Prints `{"tokio":23.1}`: the cost of an operation, ns. `--batches N` runs exactly N batches,
//! without warm-up; `--quick` runs fewer; `--cpu` measures processor time, of at least 2 batches.
//! The benchmark `observe` builds and starts it. The sources of the workloads, the meter and the
//! runtime are those of `peers`.

#[path = "../../../peers/quantile.rs"]
mod quantile;

#[path = "../../../peers/meter.rs"]
mod meter;

#[path = "../../../peers/runtimes"]
mod runtimes {
    pub(crate) mod peer;
    pub(crate) mod tokio;
}

#[path = "../../../peers/workloads"]
mod workloads {
    mod sizes;

    mod channel;
    mod latch;
    mod spawn;
    mod timer;
    mod wake;
    mod wake_idle;

    use crate::meter::Meter;
    use crate::runtimes::peer::Peer;

    /// Returns the workload of that name. Its first value is its cost.
    pub(crate) fn find<P: Peer>(name: &str) -> Option<fn(&Meter) -> Vec<f64>> {
        let run = match name {
            "spawn_remote" => spawn::spawn_remote::<P>,
            "spawn_remote_detached" => spawn::spawn_remote_detached::<P>,
            "spawn_local" => spawn::spawn_local::<P>,
            "spawn_local_200" => spawn::spawn_local_200::<P>,
            "spawn_join_local" => spawn::spawn_join_local::<P>,
            "spawn_join_remote" => spawn::spawn_join_remote::<P>,
            "chained_spawn" => spawn::chained_spawn::<P>,
            "fan_out_in" => spawn::fan_out_in::<P>,
            "yield_now" => wake::yield_now::<P>,
            "wake_100x1000" => wake::wake_100x1000::<P>,
            "wake_1x100000" => wake::wake_1x100000::<P>,
            "ping_pong" => channel::ping_pong::<P>,
            "baton_1" => wake::baton_1::<P>,
            "baton_100" => wake::baton_100::<P>,
            "ring" => wake::ring::<P>,
            "wake_storm_outside" => wake::wake_storm_outside::<P>,
            "wake_storm_task" => wake::wake_storm_task::<P>,
            "mpsc_1" => channel::mpsc_1::<P>,
            "mpsc_4" => channel::mpsc_4::<P>,
            "wake_idle_p50" => wake_idle::then_asleep::<P>,
            "wake_idle_busy_p50" => wake_idle::then_busy::<P>,
            "blocking" => channel::blocking::<P>,
            "timers" => timer::timers::<P>,
            "timer_lateness_p50" => timer::lateness::<P>,
            "timer_create_cancel" => timer::create_cancel::<P>,
            _ => return None,
        };
        Some(run)
    }
}

use std::process::ExitCode;
use std::time::Duration;

use tokio::runtime::Builder;

use self::meter::{MIN_CPU_BATCHES, Meter};
use self::runtimes::peer::Peer;
use self::runtimes::tokio::{Tokio, Unwatched, Watch};

const USAGE: &str =
    "Usage: tokio-watched plain|histogram|console --only WORKLOAD [--workers N] [--batches N] [--quick] [--cpu]";
/// Duration of the one round, as in `peers`.
const ROUND: Duration = Duration::from_millis(150);
const QUICK_ROUND: Duration = Duration::from_millis(60);

/// Tokio's own histogram of poll times.
struct Histogram;

impl Watch for Histogram {
    fn set_up(builder: &mut Builder) {
        builder.enable_metrics_poll_time_histogram();
    }
}

/// tokio-console's layer and server, without a client.
#[cfg(feature = "console")]
struct Console;

#[cfg(feature = "console")]
impl Watch for Console {
    fn set_up(_builder: &mut Builder) {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| console_subscriber::ConsoleLayer::builder().server_addr(([127, 0, 0, 1], 0)).init());
    }
}

fn main() -> ExitCode {
    match cost_ns() {
        Some(cost_ns) => {
            println!("{{\"{}\":{cost_ns}}}", <Tokio>::NAME);
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

/// Runs the workload of the command line; `None` if the command line is invalid.
fn cost_ns() -> Option<f64> {
    let mut arguments = std::env::args().skip(1);
    let watch = arguments.next()?;
    let (mut only, mut workers, mut batches, mut quick, mut cpu) = (None, 1, None, false, false);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--only" => only = arguments.next(),
            "--workers" => workers = arguments.next()?.parse().ok()?,
            "--batches" => batches = Some(arguments.next()?.parse().ok()?),
            "--quick" => quick = true,
            "--cpu" => cpu = true,
            _ => return None,
        }
    }
    if cpu && batches.is_some_and(|batches: usize| batches < MIN_CPU_BATCHES) {
        return None;
    }
    let name = only?;
    let run = match watch.as_str() {
        "plain" => workloads::find::<Tokio<Unwatched>>(&name),
        "histogram" => workloads::find::<Tokio<Histogram>>(&name),
        #[cfg(feature = "console")]
        "console" => workloads::find::<Tokio<Console>>(&name),
        _ => None,
    };
    let time = if quick { QUICK_ROUND } else { ROUND };
    run?(&Meter::new(workers, time, batches, quick, cpu)).first().copied()
}
