//! The cargo that builds the project: its version, and the options of its calls.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use toml::Value;

use crate::arguments::Given;
use crate::error::Error;

/// The first version of cargo that can keep the lock file elsewhere, with an unstable option.
const OLDEST: (u32, u32) = (1, 95);
/// The first version in which this is stable.
const STABLE_LOCK_PATH: (u32, u32) = (1, 97);
/// With this variable, a stable cargo accepts unstable options. It does not affect rustc. The name
/// says that it is not meant for users; `cargo volt` sets it only for the releases that need it.
const CHANNEL: &str = "__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS";

/// The cargo that called this program, or the one in the path.
#[derive(Debug)]
pub(crate) struct Cargo {
    program: OsString,
    version: (u32, u32),
    is_nightly: bool,
    /// The version as cargo prints it.
    pub(crate) release: String,
    /// The target for which this cargo's rustc compiles if no other is named.
    pub(crate) host: String,
}

impl Cargo {
    pub(crate) fn find() -> Result<Cargo, Error> {
        let program = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(&program).arg("-vV").output().map_err(|error| {
            Error::new(format!("cannot start `{}`: {error}", program.display()))
                .help("install Rust from https://rustup.rs, or set CARGO to the path of cargo")
        })?;
        let text = String::from_utf8_lossy(&output.stdout);
        let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        let release = field("release").unwrap_or_default();
        let version = version_of(release)
            .ok_or_else(|| Error::new(format!("`{} -vV` does not print a version", program.display())))?;
        if version < OLDEST {
            let oldest = format!("{}.{}", OLDEST.0, OLDEST.1);
            return Err(Error::new(format!("Volt needs Cargo and Rust {oldest} or newer; this is {release}"))
                .help("run `rustup update`, or choose a newer toolchain, such as `cargo +stable volt run`"));
        }
        let host = field("host").unwrap_or_default().to_owned();
        let is_nightly = release.contains("-nightly");
        Ok(Cargo { version, is_nightly, release: release.to_owned(), host, program: program.clone() })
    }

    /// Returns a call of cargo with this command and no options.
    pub(crate) fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(verb);
        command
    }

    /// Adds the given options that every call of cargo needs to see the same project.
    pub(crate) fn add_given(&self, command: &mut Command, given: &Given) {
        if let Some(path) = &given.manifest_path {
            command.arg("--manifest-path").arg(path);
        }
        self.add_configuration(command, given);
    }

    /// Adds the given options that configure cargo.
    pub(crate) fn add_configuration(&self, command: &mut Command, given: &Given) {
        for value in &given.configs {
            command.arg("--config").arg(value);
        }
        for name in &given.unstable {
            command.arg("-Z").arg(name);
        }
        if given.is_offline {
            command.arg("--offline");
        }
    }

    /// Makes cargo use another lock file than the project's. The file must be named `Cargo.lock`.
    pub(crate) fn use_lock(&self, command: &mut Command, lock: &Path) {
        add_config(command, "resolver.lockfile-path", text_of(lock));
        if self.version < STABLE_LOCK_PATH {
            command.arg("-Zlockfile-path");
            if !self.is_nightly {
                command.env(CHANNEL, "nightly");
            }
        }
    }

    /// Makes cargo use the facade in place of the registry's tokio.
    pub(crate) fn patch(&self, command: &mut Command, facade: &Path) {
        add_config(command, "patch.crates-io.tokio.path", text_of(facade));
    }
}

/// Adds `--config KEY=VALUE`, with the value in TOML.
pub(crate) fn add_config(command: &mut Command, key: &str, value: Value) {
    command.arg("--config").arg(format!("{key}={value}"));
}

fn text_of(path: &Path) -> Value {
    Value::String(path.to_string_lossy().into_owned())
}

/// Runs a command and returns its output. On failure, returns what it wrote to standard error.
pub(crate) fn run(command: &mut Command) -> Result<Vec<u8>, String> {
    let Output { status, stdout, stderr } = command
        .stdin(Stdio::null())
        .env("CARGO_TERM_COLOR", "never")
        .output()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    let stderr = || String::from_utf8_lossy(&stderr).into_owned();
    if status.success() { Ok(stdout) } else { Err(stderr()) }
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_with_and_without_channel() {
        assert_eq!(version_of("1.95.0"), Some((1, 95)));
        assert_eq!(version_of("1.97.0-nightly"), Some((1, 97)));
        assert_eq!(version_of("nightly"), None);
    }

    #[test]
    fn a_path_with_quotes_is_valid_configuration() {
        let mut command = Command::new("cargo");
        add_config(&mut command, "patch.crates-io.tokio.path", text_of(Path::new("/a \"b\"\\c")));
        let argument = command.get_args().last().expect("it has arguments").to_string_lossy().into_owned();
        let table: toml::Table = argument.parse().expect("it is TOML");
        assert_eq!(table["patch"]["crates-io"]["tokio"]["path"].as_str(), Some("/a \"b\"\\c"));
    }
}
