//! The program `cargo-volt`: cargo's subcommand that builds a Tokio program on Volt.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success |
//! | 1 | `doctor`: the project cannot be built on Volt |
//! | 2 | invalid arguments |
//! | 101 | failure, with the reason on standard error |
//!
//! Once `build`, `run`, `test`, `check` and `bench` have started cargo, the exit code is cargo's.
#![forbid(unsafe_code)]

mod error;
mod shell;
mod versions;

mod arguments;
mod cargo;
mod project;

mod lock;
mod profile;
mod sources;
mod targets;

mod choice;
mod prepare;
mod vendor;

mod doctor;

use std::env;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Given, Verb, without_volt};
use crate::cargo::Cargo;
use crate::error::{Error, FAILURE};
use crate::prepare::Preparation;
use crate::profile::Layers;
use crate::project::Project;
use crate::shell::Shell;

fn main() -> ExitCode {
    let words = without_volt(env::args_os().collect());
    let verb = Arguments::parse_from(&words).verb;
    // The words as they were given, because clap drops the first `--`.
    let rest = words.get(2..).unwrap_or_default();
    let given = Given::read(verb.name(), rest);
    let (is_quiet, color) = given.as_ref().map_or((false, None), |given| (given.is_quiet, given.color.as_deref()));
    let shell = Shell::new(is_quiet, color);
    let done = given.and_then(|given| match &verb {
        Verb::Doctor(_) => {
            doctor::run(&shell, &given).map(|is_well| if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Verb::Vendor { folder, .. } => vendor::run(&shell, &given, folder).map(|()| ExitCode::SUCCESS),
        _ => build(&shell, &given, verb.name()),
    });
    done.unwrap_or_else(|error| {
        shell.error(&error);
        ExitCode::from(FAILURE)
    })
}

/// Runs a command of cargo's on the prepared build. Returns only if cargo cannot be started: cargo
/// replaces this program, so that signals, the terminal and the exit code are cargo's.
fn build(shell: &Shell, given: &Given, verb: &str) -> Result<ExitCode, Error> {
    let cargo = Cargo::find(shell)?;
    let project = Project::find(&cargo, given)?;
    let layers = Layers::read(&project, given);
    targets::check(&layers, given, &cargo.host)?;
    let prepared = Preparation::new(shell, &cargo, given, &project)?.run(&layers);
    let prepared = prepared.map_err(|error| match doctor::of_source(&layers) {
        Some(text) => error.help(text),
        None => error,
    })?;
    if let Some(text) = doctor::of_unstable(&cargo, &layers) {
        shell.warn(&text);
    }

    let mut command = cargo.command(verb);
    command.args(&given.passed);
    // After the user's options: of two values of a key, cargo takes the last.
    cargo.use_lock(&mut command, &prepared.lock)?;
    cargo.patch(&mut command, &prepared.patches)?;
    for change in layers.overrides(&profile::of_command(verb, given)) {
        if let Some(old) = &change.instead_of {
            shell.note(&format!(
                "{} is {:?} instead of {old}, so that stacks show source lines",
                change.key, change.value
            ));
        }
        cargo::add_config(&mut command, &change.key, change.value.into());
    }
    if given.target_dir.is_none() {
        command.arg("--target-dir").arg(&prepared.target);
    }
    let error = command.args(&given.program).exec();
    Err(Error::new(format!("cannot start cargo: {error}")))
}
