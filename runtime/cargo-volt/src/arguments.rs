//! The command line: the commands of `cargo volt`, and the options for cargo that it needs itself.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::error::Error;

/// Build and run Tokio programs on the Volt runtime
///
/// Replaces the crate `tokio`, in the project and in all its dependencies, with one that has the
/// same API on Volt. Cargo.toml, Cargo.lock, `target/debug` and `target/release` stay as they are;
/// the results are in `target/volt`. To inspect the running program, use `volt-console`.
#[derive(Parser)]
#[command(
    name = "cargo volt",
    bin_name = "cargo volt",
    version,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND",
    subcommand_required = true,
    max_term_width = 80,
    after_help = "Examples:
  # Check whether the project can be built on Volt
  cargo volt doctor

  # Build and run the project; the program gets the arguments after `--`
  cargo volt run --release -- --port 8080

  # Run the tests of one package
  cargo volt test -p my-service

Exit codes:
  0    Success
  1    The project cannot be built on Volt (`doctor`)
  2    Invalid arguments
  101  Failure, with the reason on standard error

Once build, run, test, check or bench has started cargo, the exit code is
cargo's."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Compile the project on Volt; accepts the arguments of `cargo build`
    #[command(
        visible_alias = "b",
        after_help = "Examples:\n  # Build one program of the project in release mode\n  cargo volt build --release --bin server\n\nExit codes:\n  101    Cargo was not started, or failed; standard error has the reason\n  other  The exit codes of `cargo build`"
    )]
    Build(ForCargo),
    /// Run a program of the project on Volt; accepts the arguments of `cargo run`
    #[command(
        visible_alias = "r",
        after_help = "Examples:\n  # Run the program; it gets the arguments after `--`\n  cargo volt run --release -- --port 8080\n\nExit codes:\n  101    Cargo was not started, or failed; standard error has the reason\n  other  The exit code of the program, or of cargo if it cannot build it"
    )]
    Run(ForCargo),
    /// Run the project's tests on Volt; accepts the arguments of `cargo test`
    #[command(
        visible_alias = "t",
        after_help = "Examples:\n  # Run the tests of all packages of the workspace\n  cargo volt test --workspace\n\nExit codes:\n  101    Cargo was not started, or failed; standard error has the reason\n  other  The exit codes of `cargo test`"
    )]
    Test(ForCargo),
    /// Check that the project compiles on Volt; accepts the arguments of `cargo check`
    #[command(
        visible_alias = "c",
        after_help = "Examples:\n  # Check everything, including tests and examples\n  cargo volt check --all-targets\n\nExit codes:\n  101    Cargo was not started, or failed; standard error has the reason\n  other  The exit codes of `cargo check`"
    )]
    Check(ForCargo),
    /// Run the project's benchmarks on Volt; accepts the arguments of `cargo bench`
    #[command(
        after_help = "Examples:\n  # Run one benchmark\n  cargo volt bench --bench throughput\n\nExit codes:\n  101    Cargo was not started, or failed; standard error has the reason\n  other  The exit codes of `cargo bench`"
    )]
    Bench(ForCargo),
    /// Write Volt's sources into a directory and print the lines for Cargo.toml
    ///
    /// With these lines, `cargo` builds the project on Volt without `cargo volt`. The sources fit
    /// the version of Tokio that is in Cargo.lock; after an update of Tokio, run the command again.
    #[command(
        after_help = "Examples:\n  # Write the sources into third-party/volt\n  cargo volt vendor third-party/volt\n\nExit codes:\n  0    The directory was written\n  2    Invalid arguments\n  101  Failure, with the reason on standard error"
    )]
    Vendor {
        /// Directory to write; must be new, empty, or written by this command
        #[arg(value_name = "DIR")]
        folder: PathBuf,
        #[command(flatten)]
        rest: ForCargo,
    },
    /// Check whether the project can be built on Volt, and list the obstacles
    ///
    /// Compiles nothing, and writes nothing in the project.
    #[command(after_help = "Examples:
  # Check the project in another directory
  cargo volt doctor --manifest-path service/Cargo.toml

Exit codes:
  0    The project can be built on Volt
  1    The project cannot be built on Volt
  2    Invalid arguments
  101  The check itself failed, with the reason on standard error")]
    Doctor(ForCargo),
}

/// The arguments that are passed to cargo.
#[derive(Args)]
pub(crate) struct ForCargo {
    /// Arguments for cargo, such as --release, --features, -p or --manifest-path
    // Only for the help: the values are read with `rest`, which keeps every `--`.
    #[arg(value_name = "ARGUMENTS", trailing_var_arg = true, allow_hyphen_values = true)]
    _arguments: Vec<OsString>,
}

impl Verb {
    /// Returns the name of the command. Those that compile have cargo's.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Verb::Build(_) => "build",
            Verb::Run(_) => "run",
            Verb::Test(_) => "test",
            Verb::Check(_) => "check",
            Verb::Bench(_) => "bench",
            Verb::Vendor { .. } => "vendor",
            Verb::Doctor(_) => "doctor",
        }
    }
}

/// Removes the word `volt`, with which cargo calls its subcommand `cargo volt`.
pub(crate) fn without_volt(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.get(1).is_some_and(|word| word == "volt") {
        words.remove(1);
    }
    words
}

/// The arguments for cargo, and the options among them that `cargo volt` needs itself.
#[derive(Debug, Default)]
pub(crate) struct Given {
    /// The options for the final call of cargo: all but `--locked` and `--frozen`, which apply to
    /// the project's lock file. `--offline` replaces `--frozen`.
    pub(crate) passed: Vec<OsString>,
    /// The arguments after the options: `--` and those of the program or of the tests.
    pub(crate) program: Vec<OsString>,
    pub(crate) manifest_path: Option<OsString>,
    pub(crate) target_dir: Option<OsString>,
    pub(crate) has_lockfile_path: bool,
    pub(crate) targets: Vec<String>,
    pub(crate) configs: Vec<OsString>,
    pub(crate) unstable: Vec<OsString>,
    /// The options that select features, as they were given.
    pub(crate) features: Vec<OsString>,
    pub(crate) profile: Option<String>,
    pub(crate) color: Option<String>,
    pub(crate) is_locked: bool,
    pub(crate) is_offline: bool,
    pub(crate) is_quiet: bool,
}

/// Cargo's long options that have a value, which may be the next argument.
const WITH_VALUE: [&str; 18] = [
    "artifact-dir",
    "bench",
    "bin",
    "color",
    "config",
    "example",
    "exclude",
    "features",
    "jobs",
    "lockfile-path",
    "manifest-path",
    "message-format",
    "package",
    "profile",
    "target",
    "target-dir",
    "test",
    "out-dir",
];
/// Cargo's short options that have a value, which may follow immediately.
const SHORT_WITH_VALUE: &str = "CFZjp";

impl Given {
    /// Reads the arguments for a command of cargo's. The options must be UTF-8, because cargo's
    /// configuration and lock files are: a path would otherwise be changed on its way. The
    /// arguments of the program need not be.
    pub(crate) fn read(verb: &str, arguments: &[OsString]) -> Result<Given, Error> {
        let mut given = Given::default();
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            // `cargo run` passes everything from the first free argument on to the program.
            let is_free = !argument.as_encoded_bytes().starts_with(b"-");
            if argument == "--" || (verb == "run" && is_free) {
                given.program.push(argument.clone());
                break;
            }
            let text = utf8(argument)?;
            let follows = || rest.as_slice().first().filter(|next| !next.as_encoded_bytes().starts_with(b"-"));
            let (value, is_separate) = match value_of(text) {
                Value::None => (None, false),
                Value::Attached(value) => (Some(value), false),
                Value::Next => (follows().map(|next| utf8(next)).transpose()?, follows().is_some()),
            };
            given.note(text, value);
            if is_separate {
                given.passed.extend(rest.next().cloned());
            }
        }
        given.program.extend(rest.cloned());
        Ok(given)
    }

    /// Records one option, and passes it on.
    fn note(&mut self, text: &str, value: Option<&str>) {
        let owned = value.map(OsString::from);
        let string = value.map(str::to_owned);
        let name = text.split('=').next().unwrap_or_default();
        let short = if text.starts_with("--") { "" } else { text.trim_start_matches('-') };
        match name {
            "--manifest-path" => self.manifest_path = owned,
            "--target-dir" => self.target_dir = owned,
            "--lockfile-path" => self.has_lockfile_path = true,
            "--target" => self.targets.extend(string),
            "--config" => self.configs.extend(owned),
            "--profile" => self.profile = string,
            "--color" => self.color = string,
            "--offline" => self.is_offline = true,
            "--quiet" => self.is_quiet = true,
            "--release" => self.profile = Some("release".to_owned()),
            "--features" => self.add_features(string),
            "--all-features" | "--no-default-features" => self.features.push(text.into()),
            "--locked" | "--frozen" => {
                self.is_locked = true;
                if name == "--frozen" {
                    self.is_offline = true;
                    self.passed.push("--offline".into());
                }
                return;
            }
            _ if short.starts_with('Z') => self.unstable.extend(owned),
            _ if short.starts_with('F') => self.add_features(string),
            _ => {
                let flags = short.split(|letter| SHORT_WITH_VALUE.contains(letter)).next().unwrap_or_default();
                self.is_quiet |= flags.contains('q');
                if flags.contains('r') {
                    self.profile = Some("release".to_owned());
                }
            }
        }
        self.passed.push(text.into());
    }

    fn add_features(&mut self, names: Option<String>) {
        self.features.extend(names.map(|names| OsString::from(format!("--features={names}"))));
    }
}

fn utf8(argument: &OsStr) -> Result<&str, Error> {
    argument.to_str().ok_or_else(|| {
        Error::new(format!("the argument `{}` is not valid UTF-8", argument.display()))
            .help("rename the file or directory: cargo's configuration can only name paths in UTF-8")
    })
}

/// Where the value of an option is.
enum Value<'a> {
    None,
    Attached(&'a str),
    Next,
}

fn value_of(argument: &str) -> Value<'_> {
    if let Some(long) = argument.strip_prefix("--") {
        return match long.split_once('=') {
            Some((_, value)) => Value::Attached(value),
            None if WITH_VALUE.contains(&long) => Value::Next,
            None => Value::None,
        };
    }
    let Some(short) = argument.strip_prefix('-') else { return Value::None };
    match short.find(|letter| SHORT_WITH_VALUE.contains(letter)) {
        None => Value::None,
        Some(at) if at + 1 == short.len() => Value::Next,
        Some(at) => Value::Attached(short[at + 1..].trim_start_matches('=')),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn read(verb: &str, line: &str) -> Given {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        Given::read(verb, &words).expect("the words are UTF-8")
    }

    fn passed(given: &Given) -> String {
        given.passed.iter().chain(&given.program).map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn unknown_arguments_pass_through_in_their_order() {
        let line = "--release -p app --features a,b -Zunstable-options --examples -j 4 -- --locked -q";
        let given = read("test", line);
        assert_eq!(passed(&given), line);
        assert_eq!(given.profile.as_deref(), Some("release"));
        assert_eq!(given.features, ["--features=a,b"]);
        assert_eq!(given.unstable, ["unstable-options"]);
        assert!(!given.is_locked && !given.is_quiet);
    }

    #[test]
    fn locked_and_frozen_are_not_passed_on() {
        let given = read("build", "--locked --frozen --bin app");
        assert_eq!(passed(&given), "--offline --bin app");
        assert!(given.is_locked && given.is_offline);
    }

    #[test]
    fn the_arguments_of_a_program_are_its_own() {
        let given = read("run", "-qr --bin app serve --target x86_64-pc-windows-msvc --locked");
        assert_eq!(passed(&given), "-qr --bin app serve --target x86_64-pc-windows-msvc --locked");
        assert!(given.targets.is_empty() && !given.is_locked && given.is_quiet);
        assert_eq!(given.profile.as_deref(), Some("release"));
    }

    #[test]
    fn only_the_programs_arguments_may_be_other_than_utf8() {
        let odd = OsString::from_vec(b"--target-dir=\xff".to_vec());
        let error = Given::read("run", &["-q".into(), odd.clone()]).expect_err("cargo would see another folder");
        assert!(error.message().contains("not valid UTF-8"), "{error}");
        let given = Given::read("run", &["-q".into(), "--".into(), odd.clone()]).expect("it is the program's");
        assert_eq!((given.passed, given.program), (vec!["-q".into()], vec!["--".into(), odd]));
    }

    #[test]
    fn a_free_argument_of_test_does_not_end_the_options() {
        let given = read("test", "some_test --manifest-path=a/Cargo.toml --target-dir out --offline");
        assert_eq!(given.manifest_path.as_deref(), Some(OsStr::new("a/Cargo.toml")));
        assert_eq!(given.target_dir.as_deref(), Some(OsStr::new("out")));
        assert!(given.is_offline);
    }

    #[test]
    fn the_word_volt_is_removed_once() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(without_volt(words("cargo-volt volt run volt")), words("cargo-volt run volt"));
        assert_eq!(without_volt(words("cargo-volt run volt")), words("cargo-volt run volt"));
    }
}
