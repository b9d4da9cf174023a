//! The programs that are measured, and how each is built.
//!
//! | subject | what it is |
//! |---|---|
//! | volt | the benchmark `peers` unchanged |
//! | volt, unobserved | the same with `--cfg volt_unobserved`: see `core/src/stats/counting.rs` |
//! | volt, clock kept | the same, but the clock is read as in the first |
//! | volt, logged | the first, with an ordinary logger at INFO installed |
//! | volt, spans | the same at DEBUG, so that each task has a span: see `core/src/task/trace.rs` |
//! | volt, recorded | the first, with the flight recorder on |
//! | tokio | the benchmark `peers` again |
//! | tokio, histogram | `tokio-watched` in this folder: Tokio's `enable_metrics_poll_time_histogram` |
//! | tokio, console | the same with `console-subscriber`, without a client |
//!
//! The last two are a separate package outside the workspace, with its own lock file: they need
//! `--cfg tokio_unstable`, and a hundred packages that nothing else here needs. Subjects that
//! cannot be built (offline, for example) are reported and left out. Without the first two there is
//! no result.
//!
//! Each build has its own target directory, `observe/NAME` below this benchmark's, so that none
//! makes another start over; the first one's is this benchmark's own. All get the caller's
//! `RUSTFLAGS` in addition to their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// glibc: free memory at the top of the heap beyond this is returned to the system. As in `peers`,
/// switched off for all.
const TRIM: (&str, &str) = ("MALLOC_TRIM_THRESHOLD_", "17179869184");
/// Required for any build with `--cfg volt_unobserved`.
const PERMIT: &str = "VOLT_BENCH_OBSERVE";
const WATCHED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/observe/tokio-watched");

/// In the order of the turns.
pub(crate) const NAMES: [&str; 9] = [
    "volt",
    "volt, unobserved",
    "volt, clock kept",
    "volt, logged",
    "volt, spans",
    "volt, recorded",
    "tokio",
    "tokio, histogram",
    "tokio, console",
];
/// Places in [`NAMES`].
pub(crate) const VOLT: usize = 0;
pub(crate) const UNOBSERVED: usize = 1;
pub(crate) const CLOCK_KEPT: usize = 2;
pub(crate) const LOGGED: usize = 3;
pub(crate) const SPANS: usize = 4;
pub(crate) const RECORDED: usize = 5;
pub(crate) const TOKIO: usize = 6;
pub(crate) const HISTOGRAM: usize = 7;
pub(crate) const CONSOLE: usize = 8;

/// One of [`NAMES`].
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) index: usize,
    pub(crate) program: PathBuf,
    /// Its arguments before the workload.
    first: Vec<&'static str>,
    /// The key before its figure in the line that it prints.
    key: &'static str,
}

impl Subject {
    pub(crate) fn add_arguments(&self, command: &mut Command, workload: &str, workers: usize) {
        command.env(TRIM.0, TRIM.1).args(&self.first);
        command.args(["--only", workload, "--workers", &workers.to_string()]);
    }

    /// Runs one round. Returns ns of processor time per operation; `None` if the program failed.
    pub(crate) fn cost_ns(&self, workload: &str, workers: usize, is_quick: bool) -> Option<f64> {
        let mut command = Command::new(&self.program);
        self.add_arguments(&mut command, workload, workers);
        command.arg("--cpu");
        if is_quick {
            command.arg("--quick");
        }
        let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (_, figure) = text.split_once(self.key)?;
        figure.split([',', '}']).next()?.parse().ok()
    }
}

/// Builds the subjects. Returns those that could be built, and why the others could not.
pub(crate) fn build(is_volt_only: bool) -> (Vec<Subject>, Vec<String>) {
    let (mut subjects, mut failures) = (Vec::new(), Vec::new());
    let count = if is_volt_only { TOKIO } else { NAMES.len() };
    for (index, name) in NAMES.iter().enumerate().take(count) {
        eprint!("\r{:<60}\rbuilding {name} …", "");
        match build_one(index) {
            Ok(program) => subjects.push(subject(index, program)),
            Err(error) => failures.push(format!("{name} cannot be built, and is left out: {error}")),
        }
    }
    eprint!("\r{:<60}\r", "");
    (subjects, failures)
}

fn subject(index: usize, program: PathBuf) -> Subject {
    let (first, key): (&[_], _) = match index {
        VOLT..=CLOCK_KEPT => (&["--json", "--rounds", "1", "--runtime", "volt"], "\"volt\":"),
        LOGGED => (&["--log", "info", "--json", "--rounds", "1", "--runtime", "volt"], "\"volt\":"),
        SPANS => (&["--log", "debug", "--json", "--rounds", "1", "--runtime", "volt"], "\"volt\":"),
        RECORDED => (&["--recorded", "--json", "--rounds", "1", "--runtime", "volt"], "\"volt\":"),
        TOKIO => (&["--json", "--rounds", "1", "--runtime", "tokio"], "\"tokio\":"),
        CONSOLE => (&["console"], "\"tokio\":"),
        _ => (&["histogram"], "\"tokio\":"),
    };
    Subject { index, program, first: first.to_vec(), key }
}

fn build_one(index: usize) -> Result<PathBuf, String> {
    let own = own_target().ok_or("cannot determine where this bench was built")?;
    let apart = |name: &str| own.join("observe").join(name);
    let peers: &[_] = &["bench", "--package", "volt-runtime", "--bench", "peers", "--no-run"];
    let watched: &[_] = &["build", "--release", "--locked"];
    match index {
        VOLT | LOGGED | SPANS | RECORDED | TOKIO => cargo(peers, env!("CARGO_MANIFEST_DIR"), &own, ""),
        UNOBSERVED => cargo(peers, env!("CARGO_MANIFEST_DIR"), &apart("unobserved"), "--cfg volt_unobserved"),
        CLOCK_KEPT => cargo(
            peers,
            env!("CARGO_MANIFEST_DIR"),
            &apart("clock-kept"),
            "--cfg volt_unobserved --cfg volt_unobserved=\"clock_kept\"",
        ),
        CONSOLE => {
            let with_console = [watched, &["--features", "console"]].concat();
            cargo(&with_console, WATCHED, &apart("tokio-console"), "--cfg tokio_unstable")
        }
        _ => cargo(watched, WATCHED, &apart("tokio-histogram"), "--cfg tokio_unstable"),
    }
}

/// Returns Cargo's target directory: this program is `TARGET/release/deps/observe-…`.
fn own_target() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().nth(3).map(Path::to_path_buf)
}

/// Builds a program, and returns its path.
fn cargo(arguments: &[&str], package: &str, target: &Path, flags: &str) -> Result<PathBuf, String> {
    let inherited = std::env::var("RUSTFLAGS").unwrap_or_default();
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(arguments)
        .args(["--message-format", "json-render-diagnostics", "--target-dir"])
        .arg(target)
        .current_dir(package)
        .env("RUSTFLAGS", format!("{inherited} {flags}").trim())
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env(PERMIT, "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let errors = text.lines().filter(|line| line.starts_with("error") || line.trim_start().starts_with("failed"));
        return Err(errors.take(2).collect::<Vec<_>>().join("; "));
    }
    // The last of Cargo's messages that names a program is that of the requested program.
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text.rsplit_once("\"executable\":\"").and_then(|(_, rest)| rest.split('"').next());
    path.map(PathBuf::from).ok_or_else(|| "cargo names no program".to_owned())
}
