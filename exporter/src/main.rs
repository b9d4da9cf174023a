//! The program `volt-exporter`: serves the metrics of Volt programs as a sidecar.
//!
//! Runs until a signal stops it; there is nothing to clean up. Exits with code 1 if it cannot
//! start, with the reason on standard error, and with code 2 if the arguments are invalid.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
#[cfg(feature = "otlp")]
use std::time::Duration;

use clap::Parser;
use tracing_subscriber::EnvFilter;
#[cfg(feature = "otlp")]
use volt_exporter::Otlp;
use volt_exporter::{DEFAULT_ADDRESS, Exporter};
use volt_telemetry::socket::Environment;

/// The end of the long help.
const AFTER_HELP: &str = "\
Examples:
  # Serve the metrics of this user's programs at http://127.0.0.1:9464/metrics
  volt-exporter

  # Serve them to Prometheus on another machine
  volt-exporter --listen 0.0.0.0:9464 --allow-remote

  # Serve only the runtime named http of programs in one directory
  volt-exporter --discover /run/volt --runtime http

Exit codes:
  1  Cannot start, with the reason on standard error
  2  Invalid arguments

  volt-exporter runs until SIGINT or SIGTERM and terminates with that signal.

Environment:
  VOLT_SOCKET_DIR  Without --discover, search for sockets only in this directory
  RUST_LOG         Log filter [default: warn]; the log goes to standard error";

/// Serve the metrics of running Volt programs to Prometheus
///
/// Runs as a sidecar: connects to the Unix socket (control socket) of each Volt program that this
/// user can access. The programs themselves open no port. Each series has the labels `program` and
/// `pid`; those of a runtime also have `runtime`.
#[derive(Parser)]
#[command(name = "volt-exporter", version, max_term_width = 80, after_long_help = AFTER_HELP)]
struct Arguments {
    /// Address to listen on; port 0 chooses a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = DEFAULT_ADDRESS)]
    listen: String,
    /// Allow --listen to be an address that other machines can reach. There is no password and no
    /// encryption
    #[arg(long)]
    allow_remote: bool,
    /// Directory in which programs create their control sockets; can be given several times
    /// [default: this user's directories, which `volt-console --help` lists]
    #[arg(long, value_name = "DIR")]
    discover: Vec<PathBuf>,
    /// Serve only runtimes with this name; can be given several times [default: all runtimes]
    #[arg(long, value_name = "NAME")]
    runtime: Vec<String>,
    /// Also push the metrics to this OpenTelemetry collector (OTLP over HTTP), for example
    /// http://127.0.0.1:4318
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Time between two pushes in seconds (1 to 86400)
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    otlp_interval: u64,
}

fn main() -> ExitCode {
    let log = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    match serve(Arguments::parse()) {
        Ok(exporter) => {
            // Scripts read the address from standard output. A closed pipe is no reason to stop.
            let _ = writeln!(std::io::stdout(), "metrics http://{}/metrics", exporter.local_addr());
            loop {
                std::thread::park();
            }
        }
        Err(error) => {
            eprintln!("volt-exporter: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: Arguments) -> Result<Exporter, Box<dyn std::error::Error>> {
    let own = Environment::of_program();
    let mut environments = Vec::new();
    for dir in arguments.discover {
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        if !dir.is_dir() {
            return Err(format!(
                "--discover: {} is not a directory: name a directory that contains control sockets",
                dir.display()
            )
            .into());
        }
        environments.push(Environment { socket_dir: Some(dir), ..own.clone() });
    }
    if environments.is_empty() {
        environments.push(own);
    }
    let exporter = Exporter::builder().listen(arguments.listen.as_str()).allow_remote(arguments.allow_remote);
    let exporter = if arguments.runtime.is_empty() { exporter } else { exporter.runtimes(arguments.runtime) };
    #[cfg(feature = "otlp")]
    let exporter = match arguments.otlp {
        Some(url) => exporter.otlp(Otlp::new(url).interval(Duration::from_secs(arguments.otlp_interval))),
        None => exporter,
    };
    Ok(exporter.discover(environments).serve()?)
}
