//! The command line of `volt-console`: commands, options and their limits.
//!
//! `main` parses it. The `///` comments of [`Arguments`] and [`Verb`] are the text of `--help`;
//! `help` has the examples and tables below them.

pub mod completions;
mod help;
pub mod man;
mod values;

use std::path::PathBuf;
use std::time::Duration;

use crate::commands::attach::Appearance;
use crate::commands::check::limit::Limit;
use crate::commands::record::On;
use crate::text::figures;
use clap::{ArgGroup, Args, Parser, Subcommand};
use clap_complete::Shell;
use volt_recording::writer::MAX_FILES;
use volt_telemetry::dump::MAX_TASKS;
use volt_telemetry::finding::Severity;
use volt_telemetry::listing::MAX_ROWS;
use volt_telemetry::processes;
use volt_telemetry::tasks::Rank;

use self::values::{
    interval, interval_or_zero, number, positive_interval, process_rank, rank, seconds, severities, size,
};

/// Inspect running Volt programs
///
/// Without a command, shows the running program on a live screen. If several programs are running,
/// lists them to select one with the arrow keys; without a terminal, only lists them.
#[derive(Parser)]
#[command(
    name = "volt-console",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true,
    subcommand_value_name = "COMMAND",
    max_term_width = help::COLUMNS,
    after_help = help::SHORT,
    after_long_help = help::chapters(&help::CHAPTERS)
)]
pub struct Arguments {
    #[command(subcommand)]
    pub verb: Option<Verb>,
    /// Program to show: pid, program name, runtime name or socket path
    #[arg(value_name = "PROGRAM")]
    pub program: Option<String>,
}

#[derive(Subcommand)]
pub enum Verb {
    /// List running Volt programs
    ///
    /// Prints the pid, name, uptime, runtimes and state of each program. The state counts a worker
    /// as stuck if its poll has lasted for 100 ms or more (`stacks` prints polls from 10 ms on). If
    /// a finding of the doctor needs action, the state begins with the verdict.
    #[command(after_long_help = help::chapters(&help::LIST))]
    List {
        /// Print a JSON array with one object for each socket
        #[arg(long)]
        json: bool,
    },
    /// Show a program on a live screen
    ///
    /// Press ? for help and q to quit. If the program exits, waits until a program with its name
    /// runs. A program that was selected by pid or socket path cannot come back; its last data stay
    /// on the screen.
    #[command(after_long_help = help::chapters(&help::ATTACH))]
    Attach {
        #[command(flatten)]
        target: Target,
        /// Time between two refreshes, such as 250ms or 2s (20ms to 1h); the keys + and - change it
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = interval)]
        interval: Duration,
        #[command(flatten)]
        drawing: Drawing,
    },
    /// Diagnose a program and print what to change
    ///
    /// Takes two snapshots of the program, which checks itself once a second, and reads the
    /// findings in them. Prints each problem with its evidence, its line of code and advice.
    /// Critical findings and warnings of the first snapshot are printed immediately, the others
    /// after the second.
    #[command(after_long_help = help::chapters(&help::DOCTOR))]
    Doctor {
        #[command(flatten)]
        target: Target,
        /// Time between the two snapshots, such as 250ms or 2s (100ms to 1h); 0s takes only one
        /// snapshot
        #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = interval_or_zero)]
        wait: Duration,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        /// Exit with code 1 if a current finding has at least this severity. A finding is current
        /// until 30 s after it was last seen, and longer if it recurs
        #[arg(long, value_name = "SEVERITY", default_value = "warning", value_parser = severities())]
        fail_on: Severity,
    },
    /// Print the stacks of stuck polls
    ///
    /// A poll is stuck when it has lasted 10 ms, or the time set with `Builder::incident_after`.
    /// The program captures the stack at that time; of many similar polls, it captures only some.
    /// This command does not interrupt the program. Marks: → suspect line, + your code.
    #[command(after_long_help = help::chapters(&help::STACKS))]
    Stacks {
        #[command(flatten)]
        target: Target,
        /// Also print past incidents: stuck polls that have ended and that the program still keeps
        #[arg(long)]
        all: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print what every task is waiting for
    ///
    /// Prints the running tasks, then the chain of awaits of each waiting task, down to the pending
    /// operation. Tasks with the same spawn location and chain form a group; the longest wait comes
    /// first. To find the chain, the program polls each waiting task once, which is harmless: a
    /// future may be polled at any time. Works in release builds, and for futures of any library.
    #[command(after_long_help = help::chapters(&help::DUMP))]
    Dump {
        #[command(flatten)]
        target: Target,
        /// Print only the task with this id, or the tasks with this name
        #[arg(long, value_name = "TASK", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        task: Option<String>,
        /// Print only tasks with TEXT, ignoring case, in one of these: name, #id, state, spawn
        /// location, kind of await (lock), kind of primitive (mpsc), functions and lines of the
        /// chain
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        filter: String,
        /// Print every call of a chain, including those of libraries
        #[arg(long)]
        tree: bool,
        /// Poll only N waiting tasks of each runtime, chosen at random (1 to 200000) [default: all,
        /// but at most 200000]
        #[arg(long, value_name = "N", value_parser = |text: &str| number(text, MAX_TASKS))]
        sample: Option<u32>,
        /// Poll no task: print only what the tasks have recorded about awaits of `volt::sync`
        #[arg(long)]
        no_poll: bool,
        /// Dump only this runtime [default: every runtime]
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Explain what caused a task's most recent poll
    ///
    /// Prints the chain of wake-ups that led to the poll: which task woke this one, which task woke
    /// that one, and so on, back to a timer, a socket or a thread. If the task waits for a channel,
    /// a semaphore, another task or the like, also prints the state of this object. To find it, the
    /// program polls the task once, as for `dump`.
    #[command(after_long_help = help::chapters(&help::WHY))]
    Why {
        /// Task id or task name
        ///
        /// Of several tasks with this name, the one that was woken the longest time ago, in the
        /// first runtime that has one. `tasks --filter NAME` lists all of them with their ids.
        #[arg(value_name = "TASK")]
        task: String,
        #[command(flatten)]
        target: Target,
        /// Search only this runtime [default: every runtime, until one has the task]
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// Do not poll the task; the state of the channel or other object is then not printed
        #[arg(long)]
        no_poll: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print a program's metrics as text at regular intervals
    ///
    /// The first line is the verdict of the doctor: OK, the worst finding with its line of code, or
    /// a poll that blocks a worker now. If the program exits, `top` waits for it to come back.
    /// Given a pid or a socket path, it exits with code 1 instead.
    #[command(after_long_help = help::chapters(&help::TOP))]
    Top {
        #[command(flatten)]
        target: Target,
        /// Print once and exit
        #[arg(long)]
        once: bool,
        /// Print one JSON object per line. `runtimes` has every runtime; the fields of the one with
        /// the most busy time since it started are also at the top level
        #[arg(long)]
        json: bool,
        /// Time between two reports, over which rates are computed, such as 250ms or 2s (20ms to
        /// 1h) [default: 1s, with --once 250ms]
        #[arg(long, value_name = "TIME", value_parser = interval)]
        interval: Option<Duration>,
        /// Accepted for compatibility; the output has no colours
        #[arg(long)]
        plain: bool,
        /// Print only ASCII characters
        #[arg(long)]
        ascii: bool,
    },
    /// List a program's tasks
    ///
    /// Prints the tasks of each runtime, the largest value first. Tasks that were never polled and
    /// have no name are counted, but not listed.
    #[command(after_long_help = help::chapters(&help::TASKS))]
    Tasks {
        #[command(flatten)]
        target: Target,
        /// Sort tasks by this value
        #[arg(long, value_name = "BY", default_value = "busy", value_parser = rank())]
        sort: Rank,
        /// Print only tasks with TEXT, ignoring case, in one of these: name, #id, state, spawn
        /// location, kind of await (lock), line of the await
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        filter: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// List a program's processes (actors)
    ///
    /// Prints the processes of each runtime, the largest value first. A process is an actor of
    /// Volt's process system, not a process of the operating system.
    #[command(after_long_help = help::chapters(&help::PROCESSES))]
    Processes {
        #[command(flatten)]
        target: Target,
        /// Sort processes by this value
        #[arg(long, value_name = "BY", default_value = "mailbox", value_parser = process_rank())]
        sort: processes::Rank,
        /// Print only processes whose name, pid, kind, spawn location or state contains TEXT,
        /// ignoring case
        #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
        filter: String,
        #[command(flatten)]
        rows: Rows,
    },
    /// Fail if polls or schedule delays exceed a limit
    ///
    /// Watches a program for a while, for example in continuous integration, and measures its polls
    /// and schedule delays. The duration of a poll is how long a task occupies its worker before it
    /// yields. A schedule delay is the time from a task's wake-up to its poll. An unfinished poll
    /// counts with its duration so far. At least one limit is required.
    #[command(after_long_help = help::chapters(&help::CHECK))]
    #[command(override_usage = help::CHECK_USAGE)]
    #[command(group = ArgGroup::new("limits").args(["max_poll", "max_delay"]).multiple(true).required(true))]
    Check {
        #[command(flatten)]
        target: Target,
        /// Check only this runtime [default: every runtime]
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// Limit on the duration of polls, such as 50ms or p99=20ms, for each runtime; can be given
        /// several times
        #[arg(long, value_name = "LIMIT")]
        max_poll: Vec<Limit>,
        /// Limit on schedule delays, such as 50ms or p99=20ms, for each runtime; can be given
        /// several times
        #[arg(long, value_name = "LIMIT")]
        max_delay: Vec<Limit>,
        /// How long to watch, such as 30s or 5m (100ms to 1h)
        #[arg(long = "for", value_name = "TIME", default_value = "10s", value_parser = positive_interval)]
        watch: Duration,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Record scheduler events to a file
    ///
    /// Records the polls, wake-ups, steals and parks of one runtime's workers. Ctrl-C finishes the
    /// file and exits with code 0. The program's flight recorder is on during the recording, which
    /// costs 10 to 20 ns per poll. With --trigger, writes only the events around each trigger.
    #[command(after_long_help = help::chapters(&help::RECORD))]
    Record {
        #[command(flatten)]
        target: Target,
        /// Record this runtime [default: the one with the most busy time since it started]
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// Stop after this many seconds, such as 10 or 0.5 [default: until Ctrl-C or until the file
        /// is full; with --trigger and --files 1, until the first trigger's events are written]
        #[arg(long, value_name = "SECONDS", value_parser = seconds)]
        seconds: Option<Duration>,
        /// Write to this file [default: PROGRAM-PID-TIME.voltrec in the current directory]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Largest size of a file in bytes, such as 64M or 1G (at least 1M); K, M and G are powers
        /// of 1024
        #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = size)]
        max_size: u64,
        /// Largest number of files (1 to 9999); the oldest is deleted to make room. With 1,
        /// recording stops when the file is full
        #[arg(long, value_name = "N", default_value_t = 1, value_parser = |text: &str| number(text, MAX_FILES))]
        files: u32,
        /// Write only the events around this trigger; can be given several times. With --files 1,
        /// stops after the first; otherwise writes a separate file for each
        #[arg(long, value_name = "TRIGGER")]
        trigger: Vec<On>,
        /// How much to write from before a trigger, such as 250ms or 2s [default: 1s]. Without
        /// --trigger, how much from before the start of this command, if the flight recorder was
        /// already on [default: 0s]
        #[arg(long, value_name = "TIME", value_parser = figures::time)]
        before: Option<Duration>,
        /// How long to record after a trigger, such as 250ms or 2s
        #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = figures::time)]
        after: Duration,
        /// Switch the flight recorder of the runtime (see --runtime) on until --off, and exit
        #[arg(long, conflicts_with_all = ["off", "seconds", "output", "trigger"])]
        on: bool,
        /// Switch the flight recorder of the runtime (see --runtime) off, and exit
        #[arg(long, conflicts_with_all = ["seconds", "output", "trigger"])]
        off: bool,
    },
    /// Show a recording on the screens of `attach`
    ///
    /// The left and right arrow keys step through the snapshots. Space plays and stops.
    #[command(after_long_help = help::chapters(&help::REPLAY))]
    Replay {
        /// Recording to show; for a recording in several files, the name without the file numbers
        file: PathBuf,
        /// Print one snapshot as text and exit
        #[arg(long)]
        once: bool,
        /// Print one snapshot as a JSON object and exit
        #[arg(long)]
        json: bool,
        /// Start at this time after the first snapshot, such as 250ms or 2s [default: the
        /// beginning; with --once or --json, the last snapshot]
        #[arg(long, value_name = "TIME", value_parser = figures::time)]
        at: Option<Duration>,
        #[command(flatten)]
        drawing: Drawing,
    },
    /// Convert a recording to a trace for ui.perfetto.dev
    ///
    /// Writes the Chrome trace format, which chrome://tracing and speedscope open too.
    #[command(after_long_help = help::chapters(&help::EXPORT))]
    Export {
        /// Recording to convert; for a recording in several files, the name without the file
        /// numbers
        file: PathBuf,
        /// Write to this new file; `-` is standard output, for a recording in one file. A recording
        /// in several files becomes several traces with the same numbers [default: the recording's
        /// name with .json]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Show the last state of a program that was killed
    ///
    /// Reads a black box: a file that a program keeps up to date if it is started with
    /// VOLT_BLACK_BOX=DIR or built with `Builder::black_box`. Shows how the program ended, as far
    /// as that is known, and its state at the end: the poll of each worker and its duration so far,
    /// the memory, the findings and, if the flight recorder was on, the last events. Also accepts
    /// the black box of a running program.
    #[command(after_long_help = help::chapters(&help::POST_MORTEM))]
    PostMortem {
        /// Black box, or a directory of black boxes: shows the run in it that ended last
        path: PathBuf,
        /// Largest number of events to show (1 to 100000)
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = |text: &str| number(text, 100_000))]
        events: u32,
        /// Write the events and the last snapshots to this new recording, for `replay` and `export`
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Print a completion script for a shell
    #[command(after_long_help = help::chapters(&help::COMPLETIONS))]
    Completions {
        /// Shell to generate the script for
        shell: Shell,
    },
    /// Print the manual page
    #[command(after_long_help = help::chapters(&help::MAN))]
    Man,
}

#[derive(Args)]
pub struct Target {
    /// Pid, program name, runtime name, or socket path, which must contain a `/` [default: the only
    /// running program]
    #[arg(value_name = "PROGRAM")]
    pub target: Option<String>,
}

/// Which rows of a list are printed, and how.
#[derive(Args)]
pub struct Rows {
    /// List only this runtime [default: every runtime]
    #[arg(long, value_name = "NAME")]
    pub runtime: Option<String>,
    /// Print the smallest value first
    #[arg(long)]
    pub reverse: bool,
    /// Largest number of rows for each runtime (1 to 1000)
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = |text: &str| number(text, MAX_ROWS as u32))]
    pub limit: u32,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// How a screen is drawn.
#[derive(Args)]
pub struct Drawing {
    /// Draw without colours
    #[arg(long)]
    plain: bool,
    /// Draw only ASCII characters
    #[arg(long)]
    ascii: bool,
    /// Leave the mouse to the terminal, which can then select text
    #[arg(long)]
    no_mouse: bool,
}

impl Drawing {
    pub fn appearance(&self) -> Appearance {
        Appearance { is_plain: self.plain, is_ascii: self.ascii, leaves_mouse: self.no_mouse }
    }
}

#[cfg(test)]
mod tests;
