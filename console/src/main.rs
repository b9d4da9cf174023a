//! The program `volt-console`: arguments in, text or a screen out, an exit code.
//!
//! Exit codes: 0 done, or the reader of the output has gone; 1 it could not be done, with the reason on stderr; 2 the arguments
//! make no sense. Of `doctor`: 0 nothing found at or above the level that was asked for; 1 something was; 2 it could not look, with
//! the reason on stderr, or the arguments make no sense. Ended by a signal, it dies of that signal.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use volt_console::attach::{self, Ended};
use volt_console::doctor::{self, Paper};
use volt_console::error::Error;
use volt_console::record::{self, On};
use volt_console::{clean, export, figures, list, model, replay, stacks, target, top, why};
use volt_telemetry::doctor::finding::Severity;
use volt_telemetry::recording::trigger::Reach;
use volt_telemetry::recording::writer::{MAX_FILES, MIN_FILE_BYTES};
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
    /// Write down what a program's workers do: polls, wake-ups, steals, sleeps.
    ///
    /// Ctrl-C ends the recording in order. The program's flight recorder is on for as long.
    Record {
        #[command(flatten)]
        target: Target,
        /// The runtime, of a program that has several; the busiest if left out.
        #[arg(long)]
        runtime: Option<String>,
        /// How long, as 10 or 0.5; until Ctrl-C if left out.
        #[arg(long, value_name = "N", value_parser = seconds)]
        seconds: Option<Duration>,
        /// The file; PROGRAM-PID-TIME.voltrec in this folder if left out.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Bytes that a file may have, as 64M or 1G.
        #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
        max_size: u64,
        /// Files there may be; the oldest goes when there is one more. With 1 a file that is full ends the recording.
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FILES)))]
        files: u32,
        /// Write only around this: stall, panic, delay=TIME, rule, or rule=NAME of the doctor's; may be given more than once.
        #[arg(long, value_name = "WHAT")]
        trigger: Vec<On>,
        /// How long before it. Without a trigger: what the recorder has kept of so long ago comes first, if it was on.
        #[arg(long, value_name = "TIME", value_parser = figures::time)]
        look_back: Option<Duration>,
        /// How long after it.
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = figures::time)]
        look_forward: Duration,
        /// Switch the flight recorder on for good, and record nothing.
        #[arg(long, conflicts_with_all = ["off", "seconds", "output", "trigger"])]
        on: bool,
        /// Switch it off.
        #[arg(long, conflicts_with_all = ["seconds", "output", "trigger"])]
        off: bool,
    },
    /// Say why a task was polled last: who woke it, who woke that one, and so on.
    Why {
        /// The task's id or name.
        #[arg(value_name = "TASK")]
        task: String,
        #[command(flatten)]
        target: Target,
        /// The runtime, of a program that has several; each is asked if left out.
        #[arg(long)]
        runtime: Option<String>,
        /// One JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Show a recording on the screens of `attach`; the arrow keys go back and forth.
    Replay {
        /// The recording.
        file: PathBuf,
        /// Print one moment as text and end.
        #[arg(long)]
        once: bool,
        /// Print one moment as a JSON object and end.
        #[arg(long)]
        json: bool,
        /// The moment to begin with, from the first, as 2s; the last for --once and --json if left out.
        #[arg(long, value_name = "TIME", value_parser = figures::time)]
        at: Option<Duration>,
    },
    /// Turn a recording into a trace for ui.perfetto.dev.
    Export {
        /// The recording.
        file: PathBuf,
        /// The trace, - for standard output; the recording's name with .json if left out.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
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
        Some(Verb::Record { target, runtime, on, off, .. }) if on || off => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            record::switch(&mut found.client, runtime.as_deref(), on, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Record {
            target,
            runtime,
            seconds,
            output,
            max_size,
            files,
            trigger,
            look_back,
            look_forward,
            ..
        }) => {
            let found = target::find(target.target.as_deref(), &environment)?;
            let default = if trigger.is_empty() { Duration::ZERO } else { Reach::default().look_back };
            let reach = Reach { look_back: look_back.unwrap_or(default), look_forward, ..Reach::default() };
            let options = record::Options {
                runtime,
                seconds,
                path: output,
                max_file_bytes: max_size,
                max_files: files,
                triggers: trigger,
                reach,
            };
            record::run(found.client, &options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Why { task, target, runtime, json }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            why::run(&mut found.client, runtime.as_deref(), &task, json, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Replay { file, once, json, at }) if once || json => {
            replay::print(&file, json, at, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Replay { file, at, .. }) => {
            drop(out);
            replay::run(&file, at).map(Done::Left)
        }
        Some(Verb::Export { file, output }) => export::run(&file, output.as_deref(), &mut out).map(|()| Done::Shown),
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
    figures::time(text).and_then(|time| within(time, INTERVAL_MIN))
}

/// As [`interval`], but as long as it takes to see a difference; or no time at all.
fn look_for(text: &str) -> Result<Duration, String> {
    let time = figures::time(text)?;
    if time.is_zero() { Ok(time) } else { within(time, doctor::WAIT_MIN) }
}

/// `10`, `0.5`, `2s`, `300ms`, above 0.
fn seconds(text: &str) -> Result<Duration, String> {
    let time = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|_| "give a number above 0")?,
        Err(_) => figures::time(text)?,
    };
    if time.is_zero() { Err("give a number above 0".into()) } else { Ok(time) }
}

/// `64M`, `1G`, `2000000`: bytes, not fewer than a file needs.
fn size(text: &str) -> Result<u64, String> {
    let units = [('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let unit = units.into_iter().find_map(|(letter, unit)| Some((text.strip_suffix(letter)?, unit)));
    let (number, unit) = unit.unwrap_or((text, 1));
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let bytes = bytes.ok_or("give a whole number of bytes, as 64M or 1G")?;
    if bytes >= MIN_FILE_BYTES { Ok(bytes) } else { Err(format!("it must be {MIN_FILE_BYTES} or more, as 1M")) }
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
    fn sizes_and_seconds_have_bounds() {
        assert_eq!([size("1M"), size("2G"), size("1048576")], [Ok(1 << 20), Ok(2 << 30), Ok(1 << 20)]);
        for bad in ["0", "1K", "1T", "", "M", "-1M", "99999999999999999999", "99999999999G"] {
            assert!(size(bad).is_err(), "{bad}");
        }
        assert_eq!(
            [seconds("2"), seconds("0.5"), seconds("300ms")].map(Result::unwrap).map(|time| time.as_millis()),
            [2000, 500, 300]
        );
        for bad in ["0", "-1", "nan", "x", ""] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_waited_for_is_named() {
        assert_eq!("delay=10ms".parse(), Ok(On::Delay(Duration::from_millis(10))));
        assert!(["stall", "panic", "rule", "rule=stalled-poll"].iter().all(|on| on.parse::<On>().is_ok()));
        assert_eq!("rule=none-such".parse::<On>(), Err("no rule of the doctor's is called \"none-such\"".into()));
        assert!("delay".parse::<On>().is_err() && "delay=fast".parse::<On>().is_err());
    }

    #[test]
    fn severities_are_known_by_their_names() {
        assert_eq!(severity("critical"), Ok(Severity::Critical));
        assert_eq!(severity("fatal"), Err("give one of info, warning, critical".into()));
    }
}
