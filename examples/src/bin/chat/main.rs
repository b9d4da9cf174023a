//! A chat over TCP that consists of processes: one per connection, one per room, and supervisors
//! that restart failed ones.
//!
//! ```text
//! cargo run --release --bin chat                          # then: nc 127.0.0.1 PORT
//! cargo run --release --bin chat -- --chaos 0.01 --report # one step in a hundred panics
//! cargo run --release --bin chat -- --load 127.0.0.1:PORT --clients 50 --seconds 60
//! ```
//!
//! `server` has the tree of processes, which are in `connection`, `room` and `keeper`; `house` has
//! the state that they share, and `words` the messages between them. `chaos` makes steps panic, and
//! `tally` counts. `load` has the clients that check what they receive. This file parses the
//! options.

mod tally;
mod words;

mod keeper;
mod room;

mod chaos;
mod house;

mod connection;
mod load;
mod server;

use std::error::Error;
use std::io::{self, Write};
use std::net::{self, SocketAddr};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::EnvFilter;
use volt::signal::unix::{SignalKind, signal};
use volt::time::{Instant, interval, sleep_until};
use volt_process::System;

use crate::chaos::Chaos;
use crate::load::Load;
use crate::tally::Tally;

/// Time between two lines of the report.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time limit for the shutdown, from the listener to the keeper.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(10);

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Serve on port 7000; join with: nc 127.0.0.1 7000
  chat --listen 127.0.0.1:7000

  # Make one step in a hundred panic, and report every second
  chat --chaos 0.01 --report

  # Run 50 clients for 60 seconds against that chat
  chat --load 127.0.0.1:7000 --clients 50 --seconds 60

Exit codes:
  0  Every process stopped in time; with --load, every check passed
  1  A process did not stop, a check failed, or the chat could not start
  2  Invalid arguments

Environment:
  RUST_LOG  Log filter [default: error]; the log goes to standard error";

/// Serve a chat with rooms over TCP, or put one under load
///
/// Serves until Ctrl-C, SIGTERM or --seconds. Prints the address first and a summary as JSON last.
/// With --load, runs clients instead. They talk in rooms and check that every room responds and
/// that messages from one sender arrive in order.
#[derive(Parser)]
#[command(name = "chat", version, max_term_width = 80, after_long_help = AFTER_HELP)]
struct Options {
    /// Address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Share of the processes' steps that panic (0 to 1), such as 0.01 for one in a hundred. In a
    /// step, a process handles the messages that have arrived
    #[arg(long, value_name = "RATIO", default_value_t = 0.0, value_parser = ratio)]
    chaos: f64,

    /// Stop after this many seconds (1 to 86400) [default: serve until a signal; with --load, 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: Option<u64>,

    /// Print a line of JSON every second
    #[arg(long)]
    report: bool,

    /// Number of worker threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// Run clients against the chat at this address instead of serving
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with_all = ["listen", "chaos", "report"])]
    load: Option<SocketAddr>,

    /// Number of clients (1 to 10000)
    #[arg(long, value_name = "N", default_value_t = 20, requires = "load", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,

    /// Number of rooms in which the clients talk (1 to 500)
    #[arg(long, value_name = "N", default_value_t = 4, requires = "load", value_parser = clap::value_parser!(u32).range(1..=500))]
    rooms: u32,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
    ratio.ok_or_else(|| {
        format!("{text:?} is not a ratio: use a number from 0 (no step) to 1 (every step), such as 0.01")
    })
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chat: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool, Box<dyn Error>> {
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::ERROR.into()).from_env()?;
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let name = if options.load.is_some() { "load" } else { "chat" };
    let builder = volt::Builder::new_multi_thread().name(name);
    let builder = if let Some(workers) = options.workers { builder.worker_threads(workers.get()) } else { builder };
    let runtime = builder.build()?;
    let is_well = runtime.block_on(async {
        match options.load {
            Some(chat) => {
                let load = Load { chat, clients: options.clients, rooms: options.rooms };
                let outcome = load.run(Duration::from_secs(options.seconds.unwrap_or(10))).await?;
                print(&outcome.as_json())?;
                Ok(outcome.is_well())
            }
            None => serve(options).await,
        }
    });
    runtime.shutdown_timeout(SHUTDOWN_LIMIT);
    is_well
}

async fn serve(options: &Options) -> Result<bool, Box<dyn Error>> {
    let listening = net::TcpListener::bind(options.listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, listener))
    });
    let (address, listener) = listening.map_err(|error| {
        format!("--listen {}: {error}; choose another address, or port 0 for a free one", options.listen)
    })?;
    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let system = System::new(&volt::Handle::current());
    let tally = Arc::new(Tally::default());
    let root = server::open(&system, listener, Chaos::new(options.chaos, tally.clone()), tally.clone())?;
    print(&format!("chat {address}"))?;

    let began = Instant::now();
    let end = options.seconds.map(|seconds| began + Duration::from_secs(seconds));
    let mut lines = interval(REPORT_INTERVAL);
    let mut ended = std::pin::pin!(system.wait(root));
    loop {
        volt::select! {
            _ = interrupted.recv() => break,
            _ = terminated.recv() => break,
            () = async { if let Some(end) = end { sleep_until(end).await } }, if end.is_some() => break,
            reason = &mut ended => return Err(format!("the root supervisor has stopped: {reason}").into()),
            _ = lines.tick(), if options.report => print(&tally::as_json(&system, &tally, began.elapsed().as_secs_f64()))?,
        }
    }
    let summary = tally::as_json(&system, &tally, began.elapsed().as_secs_f64());
    system.terminate(root, SHUTDOWN_LIMIT).await;
    let report = system.shutdown(None).await;
    print(&summary)?;
    for process in &report.forced {
        eprintln!("chat: {} ({}) did not stop within the time limit", process.pid, process.kind);
    }
    Ok(report.forced.is_empty())
}

/// Prints a line. Unlike `println!`, does not panic if the reader has exited.
fn print(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
