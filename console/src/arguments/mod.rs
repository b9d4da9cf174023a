//! What the program `volt-console` can be asked: its verbs, their options, and the bounds of these.
//!
//! Who reads: `main`. The texts behind `///` are the help.

pub(crate) mod completions;
pub(crate) mod man;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};
use clap_complete::Shell;
use volt_console::commands::attach::Appearance;
use volt_console::commands::check::limit::Limit;
use volt_console::commands::doctor;
use volt_console::commands::record::On;
use volt_console::text::figures;
use volt_recording::writer::{MAX_FILES, MIN_FILE_BYTES};
use volt_telemetry::finding::Severity;
use volt_telemetry::processes;
use volt_telemetry::tasks::{MAX_ROWS, Rank};

/// Shortest interval that can be asked for.
const INTERVAL_MIN: Duration = Duration::from_millis(20);
/// Longest interval that can be asked for.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);
/// What stands at the end of the long help, and as sections of their own on the manual page.
pub(crate) const CHAPTERS: [(&str, &str); 4] = [
    (
        "Exit codes",
        "0 done, or the reader of the output has gone; 1 it could not be done, and stderr says why and what helps; \
         2 the arguments make no sense. Of doctor and check: 0 nothing found, 1 something found, 2 it could not look. \
         Ended by a signal, it dies of that signal.",
    ),
    (
        "Files",
        "A program's control socket is $VOLT_SOCKET_DIR/PID-STARTTIME.sock, else $XDG_RUNTIME_DIR/volt/…, else \
         /tmp/volt-UID/…; only its user and root may connect, and nothing that is sent changes what the program does, \
         but that it records. Recordings end in .voltrec.",
    ),
    (
        "Environment",
        "VOLT_SOCKET_DIR is where sockets are looked for, and nowhere else. NO_COLOR, set to anything, takes the colours \
         away; every colour has a word or a sign beside it.",
    ),
    (
        "Example",
        "volt-console doctor shop says what is wrong with the program shop and at which line; volt-console attach shop \
         shows it live; volt-console record shop --trigger delay=20ms writes down what led to the next delay.",
    ),
];

/// See Volt programs from the inside while they run.
///
/// Without a command: show the program that runs, on the whole terminal; of several, one can be chosen.
#[derive(Parser)]
#[command(
    name = "volt-console",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND",
    after_help = "Each command explains itself: volt-console COMMAND --help. Exit codes, files, environment: volt-console --help",
    after_long_help = after_long_help()
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Option<Verb>,
    /// The program to show, without a command: its pid, its name or a runtime's, or its socket's path
    #[arg(value_name = "PROGRAM")]
    pub(crate) program: Option<String>,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// List the programs that can be looked at
    List {
        /// Print a JSON array, one object for each socket
        #[arg(long)]
        json: bool,
    },
    /// Show a program live, on the whole terminal
    ///
    /// ? there explains the screen, q leaves it. A program that ends is waited for.
    Attach {
        #[command(flatten)]
        target: Target,
        /// Time between two refreshes, as 250ms or 2s; + and - change it
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = interval)]
        interval: Duration,
        #[command(flatten)]
        drawing: Drawing,
    },
    /// Show what is wrong with a program, at which line, and what to change
    ///
    /// Takes two snapshots. The exit code is 0 if nothing as bad as --fail-on is wrong now, 1 if something is, and 2 if the
    /// check itself failed.
    Doctor {
        #[command(flatten)]
        target: Target,
        /// Time between the two snapshots, as 250ms or 2s; with 0s there is only one
        #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = interval_or_zero)]
        wait: Duration,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// The mildest finding for which the exit code is 1
        #[arg(long, value_name = "SEVERITY", default_value = "warning", value_parser = severities())]
        fail_on: Severity,
    },
    /// Print what holds workers up at the moment, with the calls that led there
    Stacks {
        #[command(flatten)]
        target: Target,
        /// Also what held them up before, as much as the program keeps
        #[arg(long)]
        all: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Say why a task was polled last: who woke it, who woke that one, and so on
    Why {
        /// The task's id or name
        #[arg(value_name = "TASK")]
        task: String,
        #[command(flatten)]
        target: Target,
        /// The runtime, of a program that has several; each is asked if left out
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print a program's numbers as text, again and again
    ///
    /// A program that ends is waited for, unless it was given by its pid or its socket: then this ends too, with 1.
    Top {
        #[command(flatten)]
        target: Target,
        /// Print once and end
        #[arg(long)]
        once: bool,
        /// Print JSON, one object a line
        #[arg(long)]
        json: bool,
        /// Time between two prints, over which rates are taken; 250ms for --once, else 1s
        #[arg(long, value_name = "TIME", value_parser = interval)]
        interval: Option<Duration>,
        /// Print without colours; there are none, so this changes nothing
        #[arg(long)]
        plain: bool,
        /// Print nothing but ASCII
        #[arg(long)]
        ascii: bool,
    },
    /// List a program's tasks, those first that rank highest by what --sort says
    Tasks {
        #[command(flatten)]
        target: Target,
        /// What ranks them
        #[arg(long, value_name = "BY", default_value = "busy", value_parser = rank())]
        sort: Rank,
        /// Print only tasks whose name, #id, spawn location or state has this in it
        #[arg(long, value_name = "TEXT", default_value = "")]
        filter: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// List a program's processes, state machines with mailboxes, those first that rank highest by what --sort says
    Processes {
        #[command(flatten)]
        target: Target,
        /// What ranks them
        #[arg(long, value_name = "BY", default_value = "mailbox", value_parser = process_rank())]
        sort: processes::Rank,
        /// Print only processes whose name, pid, kind, spawn location or state has this in it
        #[arg(long, value_name = "TEXT", default_value = "")]
        filter: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// Watch a program for a while, and fail if polls or delays exceed a limit: for CI
    ///
    /// A poll is the time for which a task keeps its worker until it awaits; a delay is how long a task waits from its
    /// wake-up to its poll. A limit is a time for each of them, as 50ms, or a percentile and a time, as p99=20ms; each may
    /// be given more than once. Polls that have not ended count with the time that they have lasted.
    ///
    /// The exit code is 0 within the limits, 1 if one was exceeded, 2 if the program could not be looked at to the end, or
    /// did nothing.
    #[command(group = ArgGroup::new("limits").args(["max_poll", "max_delay"]).multiple(true).required(true))]
    Check {
        #[command(flatten)]
        target: Target,
        /// The runtime, of a program that has several; each of them if left out
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// How long a poll may take: 50ms, or p99=20ms
        #[arg(long, value_name = "LIMIT")]
        max_poll: Vec<Limit>,
        /// How long a task may wait from its wake-up to its poll: 50ms, or p99=20ms
        #[arg(long, value_name = "LIMIT")]
        max_delay: Vec<Limit>,
        /// How long to watch
        #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = positive_interval)]
        watch: Duration,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write down what a program's workers do: polls, wake-ups, steals, sleeps
    ///
    /// Ctrl-C ends the recording in order. The program's flight recorder is on for as long, at some 10 ns a poll. With a
    /// trigger only what is around it is written.
    Record {
        #[command(flatten)]
        target: Target,
        /// The runtime, of a program that has several; the busiest if left out
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// How long, as 10 or 0.5; until Ctrl-C if left out
        #[arg(long, value_name = "N", value_parser = seconds)]
        seconds: Option<Duration>,
        /// The file; PROGRAM-PID-TIME.voltrec in this folder if left out
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Bytes that a file may have, as 64M or 1G
        #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
        max_size: u64,
        /// Files there may be; the oldest goes when there is one more. With 1 a file that is full ends the recording
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_FILES)))]
        files: u32,
        /// Write only around this: stall, panic, delay=TIME, rule, or rule=NAME of the doctor's; may be given more than once
        #[arg(long, value_name = "WHAT")]
        trigger: Vec<On>,
        /// How long before the trigger, 1s if left out. Without one: what the recorder has kept of so long ago comes first, if it was on
        #[arg(long, value_name = "TIME", value_parser = figures::time)]
        look_back: Option<Duration>,
        /// How long after the trigger
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = figures::time)]
        look_forward: Duration,
        /// Switch the flight recorder on for good, and record nothing
        #[arg(long, conflicts_with_all = ["off", "seconds", "output", "trigger"])]
        on: bool,
        /// Switch it off
        #[arg(long, conflicts_with_all = ["seconds", "output", "trigger"])]
        off: bool,
    },
    /// Show a recording on the screens of attach; the arrow keys go back and forth
    Replay {
        /// The recording; of one in several files the name without their numbers
        file: PathBuf,
        /// Print one moment as text and end
        #[arg(long)]
        once: bool,
        /// Print one moment as a JSON object and end
        #[arg(long)]
        json: bool,
        /// The moment to begin with, from the first, as 2s; the last for --once and --json if left out
        #[arg(long, value_name = "TIME", value_parser = figures::time)]
        at: Option<Duration>,
        #[command(flatten)]
        drawing: Drawing,
    },
    /// Turn a recording into a trace for ui.perfetto.dev
    Export {
        /// The recording; of one in several files the name without their numbers
        file: PathBuf,
        /// The trace, - for standard output; of a recording in several files numbered as they are. The recording's name with .json if left out
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Print what makes a shell complete the commands and options
    ///
    /// For bash: volt-console completions bash > ~/.local/share/bash-completion/completions/volt-console
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print the manual page
    ///
    /// To keep it: volt-console man > ~/.local/share/man/man1/volt-console.1
    Man,
}

#[derive(Args)]
pub(crate) struct Target {
    /// A pid, the name of a program or of one of its runtimes, or a socket's path (with a /); the only program if left out
    #[arg(value_name = "PID|NAME|PATH")]
    pub(crate) target: Option<String>,
}

/// Which rows of a list are printed, and how.
#[derive(Args)]
pub(crate) struct Rows {
    /// The runtime, of a program that has several; each if left out
    #[arg(long)]
    pub(crate) runtime: Option<String>,
    /// Print the lowest first
    #[arg(long)]
    pub(crate) reverse: bool,
    /// How many, of each runtime
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=MAX_ROWS as i64))]
    pub(crate) limit: u32,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// How a screen is drawn.
#[derive(Args)]
pub(crate) struct Drawing {
    /// Draw without colours
    #[arg(long)]
    plain: bool,
    /// Draw with nothing but ASCII, for terminals that have no more
    #[arg(long)]
    ascii: bool,
    /// Leave the mouse to the terminal, so that it selects text
    #[arg(long)]
    no_mouse: bool,
}

impl Drawing {
    pub(crate) fn appearance(&self) -> Appearance {
        Appearance { is_plain: self.plain, is_ascii: self.ascii, leaves_mouse: self.no_mouse }
    }
}

fn after_long_help() -> String {
    let chapter = |(title, text): (&str, &str)| format!("{title}:\n{text}");
    CHAPTERS.map(chapter).join("\n\n")
}

fn severities() -> impl TypedValueParser<Value = Severity> {
    let names = PossibleValuesParser::new(Severity::ALL.map(Severity::name));
    names.try_map(|name| {
        let found = Severity::ALL.into_iter().find(|severity| severity.name() == name);
        found.ok_or("no such severity")
    })
}

fn rank() -> impl TypedValueParser<Value = Rank> {
    let names = PossibleValuesParser::new(Rank::ALL.map(Rank::name));
    names.try_map(|name| Rank::ALL.into_iter().find(|rank| rank.name() == name).ok_or("no such order"))
}

fn process_rank() -> impl TypedValueParser<Value = processes::Rank> {
    let names = PossibleValuesParser::new(processes::Rank::ALL.map(processes::Rank::name));
    names.try_map(|name| processes::Rank::ALL.into_iter().find(|rank| rank.name() == name).ok_or("no such order"))
}

/// `250ms`, `2s`, `0.5s`, between the bounds of an interval.
fn interval(text: &str) -> Result<Duration, String> {
    figures::time(text).and_then(|time| within(time, INTERVAL_MIN))
}

/// As [`interval`], but as long as it takes to see a difference; or no time at all.
fn interval_or_zero(text: &str) -> Result<Duration, String> {
    let time = figures::time(text)?;
    if time.is_zero() { Ok(time) } else { within(time, doctor::WAIT_MIN) }
}

/// As [`interval_or_zero`], but zero is an error.
fn positive_interval(text: &str) -> Result<Duration, String> {
    figures::time(text).and_then(|time| within(time, doctor::WAIT_MIN))
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
    fn the_doctor_takes_one_snapshot_or_waits_long_enough() {
        assert_eq!(
            [interval_or_zero("0s"), interval_or_zero("100ms")],
            [Ok(Duration::ZERO), Ok(Duration::from_millis(100))]
        );
        for bad in ["1ms", "99ms", "2h", "-1s"] {
            assert!(interval_or_zero(bad).is_err(), "{bad}");
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
}
