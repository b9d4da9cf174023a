//! The program `volt-exporter`: serves the metrics of Volt programs as a sidecar.
//!
//! Runs until SIGINT or SIGTERM, then pushes the metrics for the last time if there is a collector,
//! and terminates with that signal; as process 1, with code 128 + signal. A second signal
//! terminates it immediately. Exits with code 0 after `--help` or `--version`. Exits with code 1 if
//! it cannot start, with the reason on standard error, also if an address, a directory or a URL in
//! the arguments is invalid. Exits with code 2 after other invalid arguments.
#![forbid(unsafe_code)]

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
#[cfg(feature = "otlp")]
use std::time::Duration;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use tracing_subscriber::EnvFilter;
#[cfg(feature = "otlp")]
use volt_exporter::Otlp;
use volt_exporter::{DEFAULT_ADDRESS, Exporter};
use volt_telemetry::socket::Environment;

/// The examples of the push, in the long help.
#[cfg(feature = "otlp")]
macro_rules! otlp_examples {
    () => {
        "
  # Also push them every 15 s to a collector
  volt-exporter --otlp http://127.0.0.1:4318 --otlp-interval 15

  # Also push them to the collector in OTEL_EXPORTER_OTLP_ENDPOINT
  volt-exporter --otlp
"
    };
}
#[cfg(not(feature = "otlp"))]
macro_rules! otlp_examples {
    () => {
        ""
    };
}

/// The variables of the push, in the long help.
#[cfg(feature = "otlp")]
macro_rules! otlp_environment {
    () => {
        "

  With --otlp, volt-exporter also reads these variables of OpenTelemetry. Those
  with OTEL_EXPORTER_OTLP_METRICS_ in place of OTEL_EXPORTER_OTLP_ take
  precedence, and options take precedence over all variables. The value of
  OTEL_EXPORTER_OTLP_METRICS_ENDPOINT is the whole URL, with the path.

  OTEL_EXPORTER_OTLP_ENDPOINT     URL without /v1/metrics
                                  [default: http://localhost:4318]
  OTEL_EXPORTER_OTLP_HEADERS      name=value,name=value, percent-encoded
  OTEL_EXPORTER_OTLP_TIMEOUT      Limit of a push in ms [default: 10000]
  OTEL_EXPORTER_OTLP_CERTIFICATE  PEM file of certificate authorities
  OTEL_METRIC_EXPORT_INTERVAL     Interval in ms [default: 60000]
  OTEL_SERVICE_NAME               The resource's service.name"
    };
}
#[cfg(not(feature = "otlp"))]
macro_rules! otlp_environment {
    () => {
        ""
    };
}

/// The end of the long help.
const AFTER_HELP: &str = concat!(
    "\
Examples:
  # Serve the metrics of this user's programs at http://127.0.0.1:9464/metrics,
  # and a live page for a browser at http://127.0.0.1:9464/
  volt-exporter

  # Serve them to Prometheus on another machine
  volt-exporter --listen 0.0.0.0:9464 --allow-remote

  # Serve only the runtime named http of programs in one directory
  volt-exporter --discover /run/volt --runtime http
",
    otlp_examples!(),
    "
Exit codes:
  0  The help or the version was printed
  1  Cannot start, with the reason on standard error; for example, an address,
     a directory or a URL in the arguments is invalid
  2  Other invalid arguments

  volt-exporter runs until SIGINT or SIGTERM and terminates with that signal; as
  process 1 of a container, with code 128 + the number of the signal.

Environment:
  VOLT_SOCKET_DIR  Without --discover, search for sockets only in this directory
  RUST_LOG         Log filter [default: warn]; the log goes to standard error",
    otlp_environment!()
);

/// Serve the metrics of running Volt programs to Prometheus
///
/// Runs as a sidecar: connects to the Unix socket (control socket) of each Volt program that this
/// user can access. The programs themselves open no port. Each of their series has the labels
/// `program` and `pid`; those of a runtime also have `runtime`.
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
    #[cfg(feature = "otlp")]
    #[command(flatten)]
    push: PushArguments,
}

/// The options of the push.
#[cfg(feature = "otlp")]
#[derive(clap::Args)]
struct PushArguments {
    /// Also push the metrics to this OpenTelemetry collector (OTLP over HTTP), for example
    /// http://127.0.0.1:4318; without a URL, to the one in OTEL_EXPORTER_OTLP_ENDPOINT
    #[arg(long, value_name = "URL")]
    otlp: Option<Option<String>>,
    /// Time between two pushes in seconds (1 to 86400) [default: OTEL_METRIC_EXPORT_INTERVAL, or
    /// 60]
    #[arg(long, value_name = "SECONDS", requires = "otlp", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    otlp_interval: Option<u64>,
    /// Header of every push; can be given several times. Other users of this machine can read the
    /// arguments of a program, so pass credentials in OTEL_EXPORTER_OTLP_HEADERS
    #[arg(long, value_name = "NAME=VALUE", requires = "otlp")]
    otlp_header: Vec<String>,
    /// PEM file with the certificate authorities of an https collector [default: those of the
    /// system]
    #[arg(long, value_name = "FILE", requires = "otlp")]
    otlp_certificate: Option<PathBuf>,
}

#[cfg(feature = "otlp")]
impl PushArguments {
    /// Returns the collector, if there is one. No error contains the value of a header.
    fn collector(self) -> Result<Option<Otlp>, Box<dyn std::error::Error>> {
        let Some(url) = self.otlp else { return Ok(None) };
        let mut otlp = Otlp::from_env()?;
        if let Some(url) = url {
            otlp = otlp.endpoint(url);
        }
        if let Some(seconds) = self.otlp_interval {
            otlp = otlp.interval(Duration::from_secs(seconds));
        }
        for header in self.otlp_header {
            let (name, value) = header.split_once('=').ok_or("--otlp-header: no `=`: write it as NAME=VALUE")?;
            otlp = otlp.header(name, value);
        }
        if let Some(file) = self.otlp_certificate {
            otlp = otlp.certificate(file);
        }
        Ok(Some(otlp))
    }
}

fn main() -> ExitCode {
    let log = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(log).with_writer(std::io::stderr).init();
    match start(Arguments::parse()) {
        Ok((signals, exporter)) => {
            // Scripts read the address from standard output. A closed pipe is no reason to stop.
            let address = exporter.local_addr();
            let _ = writeln!(std::io::stdout(), "metrics http://{address}/metrics\npage http://{address}/");
            wait(signals, exporter)
        }
        Err(error) => {
            eprintln!("volt-exporter: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Handles signals before the page is served, so that none after that is missed.
fn start(arguments: Arguments) -> Result<(Signals, Exporter), Box<dyn std::error::Error>> {
    Ok((Signals::new([SIGINT, SIGTERM])?, serve(arguments)?))
}

/// Waits for a signal, ends the exporter, and terminates with that signal.
fn wait(mut signals: Signals, exporter: Exporter) -> ExitCode {
    let mut running = Some(exporter);
    for signal in signals.forever() {
        let end = End(signal);
        if let Some(exporter) = running.take() {
            // In another thread, so that a second signal is received meanwhile.
            std::thread::spawn(move || {
                let _end = end;
                drop(exporter);
            });
        }
    }
    ExitCode::FAILURE
}

/// Terminates the program with this signal when it is dropped, even by a panic.
struct End(i32);

impl Drop for End {
    fn drop(&mut self) {
        // The kernel ignores the default action of a signal in the first process of a container.
        if std::process::id() > 1 {
            let _terminated = emulate_default_handler(self.0);
        }
        std::process::exit(128 + self.0);
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
    let exporter = match arguments.push.collector()? {
        Some(collector) => exporter.otlp(collector),
        None => exporter,
    };
    Ok(exporter.discover(environments).serve()?)
}
