//! The cargo that builds the project: its version, and the options of its calls.

use std::env;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use toml::Value;

use crate::arguments::Given;
use crate::error::Error;
use crate::shell::Shell;

/// The first version of cargo that can keep the lock file elsewhere, with an unstable option.
const OLDEST: (u32, u32) = (1, 95);
/// The first version in which this is stable.
const STABLE_LOCK_PATH: (u32, u32) = (1, 97);
/// With this variable, a stable cargo accepts unstable options. It does not affect rustc. Its name
/// marks it as not meant for users; `cargo volt` sets it only for the releases that need it, and
/// only for cargo: programs that cargo starts see the channel that cargo has.
const CHANNEL: &str = "__CARGO_TEST_CHANNEL_OVERRIDE_DO_NOT_USE_THIS";

/// The cargo that called this program, or the one in the path.
#[derive(Debug)]
pub(crate) struct Cargo {
    program: OsString,
    shell: Shell,
    version: (u32, u32),
    is_nightly: bool,
    channel: &'static str,
    /// The version as cargo prints it.
    pub(crate) release: String,
    /// The target for which this cargo's rustc compiles if no other is named.
    pub(crate) host: String,
}

/// A package that replaces one of crates.io.
#[derive(Debug)]
pub(crate) struct Patch {
    /// Its key in the table of patches, which may contain one package with several versions.
    pub(crate) key: String,
    /// The name of the package.
    pub(crate) package: &'static str,
    /// Its folder.
    pub(crate) path: PathBuf,
}

impl Cargo {
    pub(crate) fn find(shell: &Shell) -> Result<Cargo, Error> {
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
            return Err(Error::unsupported(format!("Volt needs Cargo and Rust {oldest} or newer; this is {release}"))
                .help("run `rustup update`, or choose a newer toolchain, such as `cargo +stable volt run`"));
        }
        let host = field("host").unwrap_or_default().to_owned();
        let is_nightly = release.contains("-nightly");
        let channel = if release.contains("-beta") { "beta" } else { "stable" };
        let release = release.to_owned();
        Ok(Cargo { version, is_nightly, channel, release, host, program: program.clone(), shell: *shell })
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
    pub(crate) fn use_lock(&self, command: &mut Command, lock: &Path) -> Result<(), Error> {
        add_config(command, "resolver.lockfile-path", text_of(lock)?);
        if self.version < STABLE_LOCK_PATH {
            command.arg("-Zlockfile-path");
        }
        if self.pretends() {
            command.env(CHANNEL, "nightly");
            let seen = env::var(CHANNEL).unwrap_or_else(|_| self.channel.to_owned());
            add_config(command, &format!("env.{CHANNEL}.value"), seen.into());
            add_config(command, &format!("env.{CHANNEL}.force"), true.into());
        }
        Ok(())
    }

    /// Returns whether this cargo must take itself for a nightly version. It then also obeys the
    /// user's table `[unstable]`, which it would otherwise ignore.
    pub(crate) fn pretends(&self) -> bool {
        self.version < STABLE_LOCK_PATH && !self.is_nightly
    }

    /// Makes cargo use the prepared sources in place of those of the registry.
    pub(crate) fn patch(&self, command: &mut Command, patches: &[Patch]) -> Result<(), Error> {
        for patch in patches {
            let table = format!("patch.crates-io.{}", patch.key);
            add_config(command, &format!("{table}.package"), patch.package.into());
            add_config(command, &format!("{table}.path"), text_of(&patch.path)?);
        }
        Ok(())
    }

    /// Runs a command and returns its output. On failure, returns what it wrote to standard error.
    /// Meanwhile prints what cargo waits for: the network, and other cargos.
    pub(crate) fn run(&self, command: &mut Command) -> Result<Vec<u8>, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("CARGO_TERM_COLOR", "never");
        let failed = |error| format!("cannot start cargo: {error}");
        let mut child = command.spawn().map_err(failed)?;
        let mut out = child.stdout.take().expect("it is a pipe");
        // Both pipes are read at the same time: cargo waits if one is full.
        let out = thread::spawn(move || {
            let mut bytes = Vec::new();
            out.read_to_end(&mut bytes).map(|_| bytes)
        });
        let mut stderr = String::new();
        let lines = BufReader::new(child.stderr.take().expect("it is a pipe")).split(b'\n');
        for line in lines.map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if let Some((verb, text)) = wait(&line) {
                self.shell.waiting(verb, text);
            }
            stderr.push_str(&line);
            stderr.push('\n');
        }
        let out = out.join().expect("reading does not panic").map_err(failed)?;
        if child.wait().map_err(failed)?.success() { Ok(out) } else { Err(stderr) }
    }
}

/// Returns cargo's home directory, with its registry and the user's configuration.
pub(crate) fn home() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| env::home_dir().map(|home| home.join(".cargo")))
}

/// Adds `--config KEY=VALUE`, with the value in TOML.
pub(crate) fn add_config(command: &mut Command, key: &str, value: Value) {
    command.arg("--config").arg(format!("{key}={value}"));
}

fn text_of(path: &Path) -> Result<Value, Error> {
    let text = path.to_str().ok_or_else(|| {
        Error::new(format!("the path `{}` is not valid UTF-8", path.display()))
            .help("move the project, or choose another target directory: `--target-dir DIR`")
    })?;
    Ok(Value::String(text.to_owned()))
}

/// Returns the verb and the object if cargo prints that it does something that takes time. The
/// other lines are about lock files that the user has not asked for, or are printed again by the
/// build.
fn wait(line: &str) -> Option<(&str, &str)> {
    let (verb, text) = line.trim_start().split_once(' ')?;
    let is_one = match verb {
        "Blocking" | "Downloading" | "Downloaded" | "Fetching" => true,
        // The same verb is used for a package that gets another version.
        "Updating" => text.ends_with(" index") || text.starts_with("git "),
        _ => false,
    };
    is_one.then_some((verb, text))
}

fn version_of(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_version_is_read_with_and_without_channel() {
        assert_eq!(version_of("1.95.0"), Some((1, 95)));
        assert_eq!(version_of("1.97.0-nightly"), Some((1, 97)));
        assert_eq!(version_of("nightly"), None);
    }

    #[test]
    fn only_lines_about_long_operations_are_passed_on() {
        for line in [
            "    Updating crates.io index",
            "    Updating git repository `https://example.org/a`",
            "    Blocking waiting for file lock on package cache",
            " Downloading crates ...",
            "  Downloaded tokio v1.54.1",
        ] {
            assert_eq!(wait(line), line.trim_start().split_once(' '), "{line}");
        }
        for line in ["    Updating bytes v1.1.0 -> v1.2.0", "     Locking 3 packages", "warning: unused", ""] {
            assert_eq!(wait(line), None, "{line}");
        }
    }

    #[test]
    fn a_path_that_is_not_utf8_is_refused() {
        let path = Path::new(OsStr::from_bytes(b"/a\xff"));
        assert!(text_of(path).expect_err("cargo would use another path").message().contains("not valid UTF-8"));
    }

    #[test]
    fn a_path_with_quotes_is_valid_configuration() {
        let mut command = Command::new("cargo");
        add_config(&mut command, "patch.crates-io.tokio.path", text_of(Path::new("/a \"b\"\\c")).expect("it is UTF-8"));
        let argument = command.get_args().last().expect("it has arguments").to_string_lossy().into_owned();
        let table: toml::Table = argument.parse().expect("it is TOML");
        assert_eq!(table["patch"]["crates-io"]["tokio"]["path"].as_str(), Some("/a \"b\"\\c"));
    }
}
