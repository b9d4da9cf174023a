//! A real service under real load, observed from the inside.
//!
//! The demo runs an axum service on one Volt runtime, a load generator over loopback connections on
//! a second one, and the exporter on a third one. On a terminal, it also runs the console, which
//! attaches over the control socket as to any other program. With `--headless`, it prints one line
//! per second instead, and at the end a summary as JSON.
//!
//! `service` responds, `load` sends requests, `report` prints the results, `logs` keeps log lines
//! off the console's screen, and `stop` stops everything. This file parses the options and connects
//! the parts.

mod stop;

mod load;
mod logs;
mod report;
mod service;

use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use volt::{Builder, Runtime};

use crate::load::Load;
use crate::logs::Logs;
use crate::report::{End, Reading, Summary};
use crate::service::Service;
use crate::stop::Stop;

/// How long the load runs without the console and without `--seconds`.
const HEADLESS_SECONDS: u64 = 10;
/// Time between two lines of the headless report.
const LINE_INTERVAL: Duration = Duration::from_secs(1);
/// How long the load runs before the console opens.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long tasks and connections may take to end.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Run under load and open the console
  demo

  # Run for 5 seconds without the console, with 4 workers
  demo --headless --seconds 5 --workers 4

  # Read the summary with jq
  demo --headless --seconds 5 | tail -1 | jq .p99_ms

Exit codes:
  0  Every request got the expected response, or the demo was stopped before the
     first response
  1  A request failed, no request was answered, or the demo could not start
  2  Invalid arguments

Environment:
  RUST_LOG  Log filter [default: info]; the log goes to standard error";

/// Run an HTTP service on Volt under load, with metrics and the console
///
/// On a terminal, opens the console; press q to stop the demo. Otherwise, and with --headless,
/// prints a line every second and a summary as JSON at the end.
#[derive(Parser)]
#[command(name = "demo", version, max_term_width = 80, after_long_help = AFTER_HELP)]
struct Options {
    /// Print a line every second instead of opening the console
    #[arg(long)]
    headless: bool,

    /// Stop after this many seconds (1 to 86400) [default: 10; with the console, run until q]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,

    /// Number of workers of the service's runtime [default: one for each processor]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Number of connections that the load generator keeps busy (1 to 10000)
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Address of the service; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    http: SocketAddr,

    /// Address of the metrics; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9464")]
    metrics: SocketAddr,

    /// Send no requests that block a worker's thread
    #[arg(long)]
    no_block: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<ExitCode, Box<dyn Error>> {
    let on_terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let with_console = on_terminal && !options.headless;
    let logs = Logs::install(with_console)?;
    let stop = stop_on_signals(with_console)?;

    let processors = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let workers = options.workers.map_or(processors, NonZeroUsize::get);
    let service_runtime = runtime(report::SERVICE, workers)?;
    let load_runtime = runtime("load", processors.div_ceil(2))?;

    // The exporter starts first: it installs the recorder for the service's own counters.
    let exporter =
        volt_exporter::serve(options.metrics).map_err(|error| format!("--metrics {}: {error}", options.metrics))?;
    let service = Service::start(&service_runtime, options.http).map_err(|error| {
        format!("--http {}: {error}; choose another address, or port 0 for a free one", options.http)
    })?;
    print_addresses(&service, &exporter)?;
    let mix = load::Mix { connections: options.connections, with_blocking: !options.no_block };
    let mut load = Load::start(&load_runtime, service.address(), mix, stop.clone());

    let watched = if with_console {
        watch_in_console(options, &stop)
    } else {
        if !options.headless {
            eprintln!("demo: no terminal for the console; running as with --headless");
        }
        watch_in_lines(options, &load, &stop)
    };
    stop.request();
    logs.show();

    // The numbers are read while everything still runs. Requests under way complete first, and
    // count as answered.
    let load_ended = load.finish(&load_runtime, SHUTDOWN_LIMIT);
    let summary = Summary::of(&Reading::take(&load));
    service.finish(&service_runtime, SHUTDOWN_LIMIT);
    drop(exporter);
    load_runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    service_runtime.shutdown_timeout(SHUTDOWN_LIMIT);

    let end = watched?;
    load_ended?;
    if with_console {
        print(&summary.for_people())?;
    } else {
        print(&summary.as_json())?;
    }
    Ok(match summary.fault(end) {
        None => ExitCode::SUCCESS,
        Some(fault) => {
            eprintln!("demo: {fault}");
            ExitCode::FAILURE
        }
    })
}

fn runtime(name: &'static str, workers: usize) -> Result<Runtime, String> {
    let built = Builder::new_multi_thread().worker_threads(workers).name(name).build();
    built.map_err(|error| format!("cannot build the runtime \"{name}\" with {workers} workers: {error}"))
}

/// Requests a stop at the first signal. A second signal terminates the program immediately.
///
/// With the console, SIGHUP stops the demo too, so that it does not outlive its terminal. Without
/// the console, SIGHUP keeps its default behaviour, which `nohup` relies on.
fn stop_on_signals(with_console: bool) -> io::Result<Arc<Stop>> {
    let stop = Arc::new(Stop::default());
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(with_console.then_some(SIGHUP)))?;
    let requested = stop.clone();
    thread::Builder::new().name("demo-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if requested.is_requested() {
                std::process::exit(128 + signal);
            }
            requested.request();
        }
    })?;
    Ok(stop)
}

fn print_addresses(service: &Service, exporter: &volt_exporter::Exporter) -> io::Result<()> {
    print(&format!("service http://{}/", service.address()))?;
    print(&format!("metrics http://{}/metrics", exporter.local_addr()))?;
    match volt::observe::socket_path() {
        Some(path) => print(&format!("control {}", path.display())),
        None => print("control none: cannot open the socket, see the log"),
    }
}

fn watch_in_console(options: &Options, stop: &Arc<Stop>) -> Result<End, Box<dyn Error>> {
    let deadline = options.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let path = volt::observe::socket_path().ok_or("the console has no control socket to attach to")?;
    // The demo handles signals itself, and forwards a stop to the console.
    let console = volt_console::Options { takes_signals: false, ..Default::default() };
    let (stopped, ended) = (stop.clone(), console.stop.clone());
    thread::Builder::new().name("demo-console-stop".to_owned()).spawn(move || {
        match deadline {
            Some(deadline) => _ = stopped.wait_until(deadline),
            None => stopped.wait(),
        }
        // ORDERING: Relaxed; the flag alone is the message, no other data is published with it.
        ended.store(true, Ordering::Relaxed);
    })?;
    // The console shows the busiest runtime first. At the start, all of them are about equally
    // idle.
    stop.wait_until(Instant::now() + WARM_UP);
    volt_console::attach(&path, console)?;
    let is_over = deadline.is_some_and(|deadline| deadline <= Instant::now());
    Ok(if is_over && !stop.is_requested() { End::RanOut } else { End::Stopped })
}

fn watch_in_lines(options: &Options, load: &Load, stop: &Stop) -> Result<End, Box<dyn Error>> {
    let begun = Instant::now();
    let end = begun + Duration::from_secs(options.seconds.unwrap_or(HEADLESS_SECONDS));
    let mut before = Reading::take(load);
    let mut next_line = begun + LINE_INTERVAL;
    while !stop.wait_until(next_line) {
        let now = Reading::take(load);
        print(&report::line(begun.elapsed(), &before, &now))?;
        before = now;
        if next_line >= end {
            return Ok(End::RanOut);
        }
        // A program that was stopped for a while must not print lines for the missed seconds.
        next_line = (next_line + LINE_INTERVAL).max(Instant::now());
    }
    Ok(End::Stopped)
}

/// Prints a line. Unlike `println!`, does not panic if the reader has exited.
fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
