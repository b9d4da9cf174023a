//! The program `volt-console`: parses arguments, runs a command, returns an exit code.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | success, also if the reader of standard output has closed it (not `doctor`, `check`) |
//! | 1 | failure, with the reason on standard error; for `doctor` and `check`, a problem was found |
//! | 2 | invalid arguments; for `doctor` and `check`, also if the check itself failed |
//!
//! If the reader closes standard output, `doctor` and `check` still exit with their verdict.
//!
//! If a signal ends the console, the program terminates with that signal. `record` finishes its
//! file instead, and exits with 0.
#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use volt_console::arguments::{Arguments, Rows, Verb, completions, man};
use volt_console::commands::attach::{self, Ended};
use volt_console::commands::check::{self, limit::Measure};
use volt_console::commands::doctor::{self, TextStyle};
use volt_console::commands::picker::{self, Picked};
use volt_console::commands::{dump, export, list, listing, post_mortem, record, replay, stacks, top, why};
use volt_console::error::Error;
use volt_console::model;
use volt_console::programs::target;
use volt_console::tables::listing::filter as cut_filter;
use volt_console::text::clean;
use volt_recording::windows::Reach;
use volt_telemetry::processes::{self, ProcessList};
use volt_telemetry::socket::Environment;
use volt_telemetry::tasks::{self, TaskList};

/// Exit code of `doctor` and `check` if the check itself failed; 1 means that it found a problem.
const CHECK_FAILED: u8 = 2;

/// How a command ended without an error.
enum Done {
    /// Everything was shown or printed.
    Shown,
    /// The user, a signal or the program closed the screen.
    Left(Ended),
    /// The doctor found something, or a limit was exceeded.
    Found,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // With the signal handled, a write that exceeds the limit on file sizes returns an error, which
    // is reported, and the file keeps what was written. By default, the signal would end the
    // program first, as it still does if the handler cannot be installed.
    let _ = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    let failure = match arguments.verb {
        Some(Verb::Doctor { .. } | Verb::Check { .. }) => ExitCode::from(CHECK_FAILED),
        _ => ExitCode::FAILURE,
    };
    match run(arguments) {
        Ok(Done::Shown | Done::Left(Ended::Quit | Ended::Stopped)) => ExitCode::SUCCESS,
        Ok(Done::Found) => ExitCode::FAILURE,
        Ok(Done::Left(Ended::Signal(signal))) => {
            // The sender of the signal then receives the right exit status. This returns only for
            // signals that do not end the program.
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
    let environment = Environment::of_program();
    let mut out = io::stdout().lock();
    match arguments.verb {
        None => match target::find(arguments.program.as_deref(), &environment) {
            Err(error) if arguments.program.is_some() && error.is_connect() => Err(error.or_command()),
            Ok(found) => {
                drop(out);
                attach::attach_to(found, attach::Options::default()).map(Done::Left)
            }
            Err(error) if error.is_several_programs() && attach::check_terminal().is_ok() => {
                drop(out);
                match picker::choose(&environment)? {
                    Picked::Program(found) => attach::attach_to(*found, attach::Options::default()).map(Done::Left),
                    Picked::Left(ended) => Ok(Done::Left(ended)),
                }
            }
            Err(error) if error.is_several_programs() => {
                list::run(&environment, false, &mut out)?;
                complain("Several programs are running: choose one with `volt-console attach PID`.");
                Ok(Done::Shown)
            }
            Err(error) => Err(error),
        },
        Some(Verb::List { json }) => list::run(&environment, json, &mut out).map(|()| Done::Shown),
        Some(Verb::Attach { target, interval, drawing }) => {
            drop(out);
            let found = target::find(target.target.as_deref(), &environment)?;
            let options = attach::Options { interval, appearance: drawing.appearance(), ..attach::Options::default() };
            attach::attach_to(found, options).map(Done::Left)
        }
        Some(Verb::Top { target, once, json, interval, ascii, plain: _ }) => {
            let found = target::find(target.target.as_deref(), &environment)?;
            let default = if once { top::SAMPLING_INTERVAL } else { model::INTERVALS[4] };
            let options =
                top::Options { is_once: once, as_json: json, is_ascii: ascii, interval: interval.unwrap_or(default) };
            top::run(found, &environment, options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Tasks { target, sort, filter, rows: Rows { runtime, reverse, limit, json } }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let query = tasks::Query { rank: sort, is_inverted: reverse, filter: cut_filter(&filter), limit };
            let options = listing::Options { runtime, query, as_json: json };
            listing::run::<TaskList>(&mut found.client, &options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Processes { target, sort, filter, rows: Rows { runtime, reverse, limit, json } }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let query = processes::Query { rank: sort, is_inverted: reverse, filter: cut_filter(&filter), limit };
            let options = listing::Options { runtime, query, as_json: json };
            listing::run::<ProcessList>(&mut found.client, &options, &mut out).map(|()| Done::Shown)
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
        Some(Verb::Record { target, runtime, seconds, output, max_size, files, trigger, before, after, .. }) => {
            let found = target::find(target.target.as_deref(), &environment)?;
            let default = if trigger.is_empty() { Duration::ZERO } else { Reach::default().before };
            let reach = Reach { before: before.unwrap_or(default), after, ..Reach::default() };
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
        Some(Verb::Why { task, target, runtime, no_poll, json }) => {
            let options = why::Options { runtime, polls: !no_poll, as_json: json };
            let mut found = why::find(&task, target.target.as_deref(), &options, &environment)?;
            why::run(&mut found.client, &task, &options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Dump { target, task, filter, tree, sample, no_poll, runtime, json }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let filter = cut_filter(&filter);
            let query = volt_telemetry::dump::Query {
                task,
                filter,
                sample: sample.unwrap_or(0),
                polls: !no_poll,
                is_whole: tree,
            };
            let options = dump::Options { runtime, query, as_json: json };
            dump::run(&mut found.client, &options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Replay { file, once, json, at, drawing }) if once || json => {
            replay::print(&file, json, drawing.appearance().is_ascii, at, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Replay { file, at, drawing, .. }) => {
            drop(out);
            replay::run(&file, at, drawing.appearance()).map(Done::Left)
        }
        Some(Verb::Export { file, output }) => {
            let ended = export::run(&file, output.as_deref(), &mut out)?;
            Ok(ended.map_or(Done::Shown, Done::Left))
        }
        Some(Verb::Check { target, runtime, max_poll, max_delay, watch, json }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let of = |measure, limits: Vec<_>| limits.into_iter().map(move |limit| (measure, limit));
            let limits = of(Measure::Poll, max_poll).chain(of(Measure::Delay, max_delay)).collect();
            let options =
                check::Options { runtime, limits, watch, as_json: json, columns: TextStyle::of_stdout().columns };
            let is_exceeded = check::run(&mut found.client, &options, &mut out)?;
            Ok(if is_exceeded { Done::Found } else { Done::Shown })
        }
        Some(Verb::PostMortem { path, events, output, json }) => {
            let style = TextStyle::of_stdout();
            let options = post_mortem::Options { events: events as usize, as_json: json, output, style };
            post_mortem::run(&path, &options, &mut out).map(|()| Done::Shown)
        }
        Some(Verb::Completions { shell }) => print(&completions::script(shell, Arguments::command()), &mut out),
        Some(Verb::Man) => print(&man::page(Arguments::command()), &mut out),
        Some(Verb::Doctor { target, wait, json, fail_on }) => {
            let mut found = target::find(target.target.as_deref(), &environment)?;
            let options = doctor::Options { wait, as_json: json, fail_on, style: TextStyle::of_stdout() };
            let has_open_finding = doctor::run(&mut found.client, options, &mut out)?;
            Ok(if has_open_finding { Done::Found } else { Done::Shown })
        }
    }
}

fn print(text: &str, out: &mut impl Write) -> Result<Done, Error> {
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)?;
    Ok(Done::Shown)
}

/// Prints to stderr. If stderr is closed, no user can read the text, and that is no reason to
/// panic.
fn complain(text: &str) {
    let _ = writeln!(io::stderr(), "{}", clean::lines(text));
}
