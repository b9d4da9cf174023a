//! The program `volt-console`: arguments in, text or a screen out, an exit code.
//!
//! Exit codes: 0 done, or the reader of the output has gone; 1 it could not be done, with the reason on stderr; 2 the arguments
//! make no sense. Of `doctor`: 0 nothing found at or above the level that was asked for; 1 something was; 2 it could not look, with
//! the reason on stderr, or the arguments make no sense. Ended by a signal, it dies of that signal.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use volt_console::attach::{self, Ended};
use volt_console::doctor::{self, Paper};
use volt_console::error::Error;
use volt_console::{clean, list, model, stacks, target, top};
use volt_telemetry::doctor::finding::Severity;
use volt_telemetry::socket::Environment;

/// Shortest interval that can be asked for.
const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Longest interval that can be asked for.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// Exit code of `doctor` when it could not look: 1 is for what it found.
const COULD_NOT_LOOK: u8 = 2;

/// See running Volt programs from the inside.
///
/// Without a command: attach to the only program that runs, or list them when there are several.
#[derive(Parser)]
#[command(name = "volt-console", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    /// List the programs that can be attached to.
    List {
        /// As a JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Show a program live, on the whole terminal; ? there explains the screen.
    Attach {
        #[command(flatten)]
        target: Target,
        /// Time between two refreshes, as 250ms or 2s.
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = interval)]
        interval: Duration,
    },
    /// Print a program's numbers as text, again and again.
    Top {
        #[command(flatten)]
        target: Target,
        /// Print once and end.
        #[arg(long)]
        once: bool,
        /// One JSON object a line.
        #[arg(long)]
        json: bool,
        /// Time over which rates are taken, and between two prints; 250ms for --once, else 1s.
        #[arg(long, value_name = "TIME", value_parser = interval)]
        interval: Option<Duration>,
    },
    /// Print what holds workers up at the moment, with the calls that led there.
    Stacks {
        #[command(flatten)]
        target: Target,
        /// Also what held them up before, as much as the program keeps.
        #[arg(long)]
        all: bool,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Say what is wrong with a program, why, and what to change.
    ///
    /// The exit code is 0 if nothing at or above --fail-on was found, 1 if something was, 2 if it could not look.
    Doctor {
        #[command(flatten)]
        target: Target,
        /// Time between the two looks, as 250ms or 2s; 0s looks once and sees only what is stuck at that moment.
        #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = look_for)]
        wait: Duration,
        /// One JSON object.
        #[arg(long)]
        json: bool,
        /// The mildest finding for which the exit code is 1: info, warning or critical.
        #[arg(long, value_name = "SEVERITY", default_value = "warning", value_parser = severity)]
        fail_on: Severity,
    },
}

/// How it ended, if it could be done.
enum Done {
    /// All was shown or printed.
    Shown,
    /// The screen was left.
    Left(Ended),
    /// The doctor found something.
    Found,
}

#[derive(Args)]
struct Target {
    /// A pid, the name of a program or of one of its runtimes, or a socket's path (with a /); the only program if left out.
    #[arg(value_name = "PID|NAME|PATH")]
    target: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let failure = match arguments.verb {
        Some(Verb::Doctor { .. }) => ExitCode::from(COULD_NOT_LOOK),
        _ => ExitCode::FAILURE,
    };
    match run(arguments) {
        Ok(Done::Shown | Done::Left(Ended::Quit | Ended::Stopped)) => ExitCode::SUCCESS,
        Ok(Done::Found) => ExitCode::FAILURE,
        Ok(Done::Left(Ended::Signal(signal))) => {
            // Whoever sent it learns that it worked; this returns only for signals that do not end a process.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
            ExitCode::FAILURE
        }
        Err(error) if error.is_output_closed() => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("volt-console: {error}"));
            failure
        }
    }
}

fn run(arguments: Arguments) -> Result<Done, Error> {
    let environment = Environment::of_process();
    let mut out = io::stdout().lock();
    match arguments.verb {
        None => match target::find(None, &environment) {
            Ok(found) => {
                drop(out);
                attach::attach_to(found, attach::Options::default()).map(Done::Left)
            }
            Err(error) if error.is_several_programs() => {
                list::run(&environment, false, &mut out)?;
                complain("Several programs: choose one with `volt-console attach PID`.");
                Ok(Done::Shown)
            }
            Err(error) => Err(error),
        },
        Some(Verb::List { json }) => list::run(&environment, json, &mut out).map(|()| Done::Shown),
        Some(Verb::Attach { target, interval }) => {
            drop(out);
            attach::check_terminal()?;
            let found = target::find(target.target.as_deref(), &environment)?;
            attach::attach_to(found, attach::Options { interval, ..attach::Options::default() }).map(Done::Left)
        }
        Some(Verb::Top { target, once, json, interval }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let default = if once { top::SAMPLING_INTERVAL } else { model::INTERVALS[4] };
            let options = top::Options { is_once: once, as_json: json, interval: interval.unwrap_or(default) };
            top::run(&mut found.client, options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Stacks { target, all, json }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let options = stacks::Options { is_all: all, as_json: json };
            stacks::run(&mut found.client, options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Doctor { target, wait, json, fail_on }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let options = doctor::Options { wait, as_json: json, fail_on, paper: Paper::of_stdout() };
            let is_unwell = doctor::run(&mut found.client, options, &mut out)?;
            Ok(if is_unwell { Done::Found } else { Done::Shown })
        }
    }
}

/// Prints to stderr; when that is closed there is nobody to tell, and no reason to panic.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{}", clean::lines(text));
}

/// `250ms`, `2s`, `0.5s`, between the bounds of an interval.
fn interval(text: &str) -> Result<Duration, String> {
    time(text).and_then(|time| within(time, INTERVAL_MIN))
}

/// As [`interval`], but as long as it takes to see a difference; or no time at all.
fn look_for(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time.is_zero() { Ok(time) } else { within(time, doctor::WAIT_MIN) }
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
        (Some(number), _) => (number, 0.001),
        (None, Some(number)) => (number, 1.0),
        (None, None) => return Err("give a number with a unit, as 250ms or 2s".into()),
    };
    let seconds = number.parse::<f64>().map_err(|_| "give a number with a unit, as 250ms or 2s")? * unit;
    Duration::try_from_secs_f64(seconds).map_err(|_| "give a time above 0, as 250ms or 2s".into())
}

fn within(time: Duration, min: Duration) -> Result<Duration, String> {
    if (min..=INTERVAL_MAX).contains(&time) {
        Ok(time)
    } else {
        Err(format!("it must lie between {min:?} and {INTERVAL_MAX:?}"))
    }
}

fn severity(text: &str) -> Result<Severity, String> {
    let found = Severity::ALL.into_iter().find(|severity| severity.name() == text);
    found.ok_or_else(|| format!("give one of {}", Severity::ALL.map(Severity::name).join(", ")))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn intervals_have_a_unit_and_bounds() {
        assert_eq!(interval("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(interval("0.5s"), Ok(Duration::from_millis(500)));
        for bad in ["0s", "0ms", "-1s", "1", "", "s", "nans", "infs", "1e300s", "2h", "10ms"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_doctor_looks_once_or_for_long_enough_to_see_a_difference() {
        assert_eq!([look_for("0s"), look_for("100ms")], [Ok(Duration::ZERO), Ok(Duration::from_millis(100))]);
        for bad in ["1ms", "99ms", "2h", "-1s"] {
            assert!(look_for(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn severities_are_known_by_their_names() {
        assert_eq!(severity("critical"), Ok(Severity::Critical));
        assert_eq!(severity("fatal"), Err("give one of info, warning, critical".into()));
    }
}
