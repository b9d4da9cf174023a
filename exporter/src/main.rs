//! The program `volt-exporter`: serves the metrics of every Volt program that it may attach to.
//!
//! Ends by a signal; there is nothing to clean up. Exit code 1: it could not begin, with the reason on stderr; 2: the arguments make no sense.
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

/// Serve the metrics of every Volt program that this user may attach to, for Prometheus.
///
/// Each series has the labels `program`, `pid` and `runtime`. The programs open no port for it: this attaches to their control sockets.
#[derive(Parser)]
#[command(name = "volt-exporter", version)]
struct Arguments {
    /// Where to listen; port 0 is any free one.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = DEFAULT_ADDRESS)]
    listen: String,
    /// Lets --listen be an address that other machines reach. There is neither password nor encryption.
    #[arg(long)]
    allow_remote: bool,
    /// A folder of control sockets; may be given again. Those of this user unless set, as `volt-console list` shows.
    #[arg(long, value_name = "DIR")]
    discover: Vec<PathBuf>,
    /// Shows only runtimes of this name; may be given again.
    #[arg(long, value_name = "NAME")]
    runtime: Vec<String>,
    /// Push to this collector of OpenTelemetry's besides, as OTLP over HTTP: http://127.0.0.1:4318.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "URL")]
    otlp: Option<String>,
    /// Seconds between two pushes.
    #[cfg(feature = "otlp")]
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    otlp_interval: u64,
}

fn main() -> ExitCode {
    let log = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    match serve(Arguments::parse()) {
        Ok(exporter) => {
            // Whoever started it need not listen.
            let _told = writeln!(std::io::stdout(), "metrics http://{}/metrics", exporter.local_addr());
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
    let own = Environment::of_process();
    let mut environments = Vec::new();
    for dir in arguments.discover {
        let dir = std::path::absolute(&dir).unwrap_or(dir);
        if !dir.is_dir() {
            return Err(
                format!("--discover: {} is no folder: name one that holds control sockets", dir.display()).into()
            );
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
