//! The sections below the options in `--help`: examples, exit codes and tables of values.
//!
//! The manual page prints the same sections. Lines are at most 78 columns wide, so that a section
//! fits a terminal of 80 columns.

use clap::builder::{StyledStr, Styles};

/// The largest width of the help, also on a wider terminal and in a file.
pub(crate) const COLUMNS: usize = 80;

/// The title and the lines of a section.
pub(crate) type Chapter = (&'static str, &'static str);

/// The end of the short help.
pub(crate) const SHORT: &str = "\
Run `volt-console COMMAND --help` for the options and examples of a command,
and `volt-console --help` for exit codes, files and environment.";

/// The end of the long help, and sections of the manual page.
pub(crate) const CHAPTERS: [Chapter; 4] = [
    (
        "Examples",
        "\
# List the running programs
volt-console list

# Show the program named shop on a live screen
volt-console attach shop

# Print what is wrong with shop, and at which line
volt-console doctor shop

# Record what leads to the next schedule delay of at least 20 ms
volt-console record shop --trigger delay=20ms",
    ),
    (
        "Exit codes",
        "\
0  Success, also if standard output was closed early (`... | head`); `doctor`
   exits with its verdict in that case
1  Failure, with the reason on standard error; for `doctor` and `check`, a
   problem was found
2  Invalid arguments; for `doctor` and `check`, also if the check failed

On SIGINT, SIGTERM or SIGHUP, `record` finishes its file and exits with 0. The
other commands terminate with the signal.",
    ),
    (
        "Files",
        "\
A program creates its control socket in the first of these directories:
  $VOLT_SOCKET_DIR          if VOLT_SOCKET_DIR is set
  $XDG_RUNTIME_DIR/volt     if XDG_RUNTIME_DIR is set
  /tmp/volt-UID             otherwise
The name of the socket is PID-STARTTIME.sock. Only the program's user and root
can connect. A client cannot change what the program does, except that it can
switch the flight recorder on and off, and request a dump, which polls each
waiting task once.

Recordings have the extension .voltrec.",
    ),
    (
        "Environment",
        "\
VOLT_SOCKET_DIR  Search for sockets only in this directory
NO_COLOR         If set and not empty, disable colours; each colour also has
                 a word or a symbol",
    ),
];

pub(crate) const LIST: [Chapter; 2] = [
    (
        "Examples",
        "\
# List the running programs
volt-console list

# Print the pids of all programs that respond
volt-console list --json | jq '.[] | select(.is_alive) | .pid'",
    ),
    (
        "Exit codes",
        "\
0  Success, also if no program is running or a program does not respond
1  The list could not be written
2  Invalid arguments",
    ),
];

pub(crate) const ATTACH: [Chapter; 1] = [(
    "Examples",
    "\
# Show the only running program
volt-console attach

# Show the program named shop, refreshed every 100 ms
volt-console attach shop --interval 100ms",
)];

pub(crate) const DOCTOR: [Chapter; 2] = [
    (
        "Examples",
        "\
# Diagnose the only running program
volt-console doctor

# Watch the program named shop for 5 seconds; fail only on critical findings
volt-console doctor shop --for 5s --fail-on critical

# Print the rule and the title of each finding
volt-console doctor --json | jq '.findings[] | {rule, title}'",
    ),
    (
        "Exit codes",
        "\
0  No current finding has at least the severity --fail-on
1  A current finding has at least the severity --fail-on
2  The check itself failed, or the arguments are invalid",
    ),
];

pub(crate) const STACKS: [Chapter; 2] = [
    (
        "Examples",
        "\
# Print the stacks of the polls that are stuck now
volt-console stacks

# Print past incidents of the program named shop too
volt-console stacks shop --all",
    ),
    (
        "Exit codes",
        "\
0  Success, also if no poll is stuck
1  There is no such program, or it does not respond
2  Invalid arguments",
    ),
];

pub(crate) const DUMP: [Chapter; 3] = [
    (
        "Output",
        "\
waiting for  Time since the task's last wake-up
× 20         The task waits for 20 operations at this place
40 ×         The tasks of the group wait for 40 of these
awaited by   The tasks of all groups that wait for it, by their last wake-ups
note:        What is missing and why, with the remedy

The last line of a chain is the function that the application awaits; its
place is in the library. The line above it has the application's line.
A chain ends at a container that polls only those futures that were woken,
such as FuturesUnordered. The future of `block_on` is not a task.",
    ),
    (
        "Examples",
        "\
# Print what the tasks of the only running program wait for
volt-console dump

# Print every call of the chain of task 4711 of the program shop
volt-console dump shop --task 4711 --tree

# Print the number of waiting tasks by spawn location
volt-console dump --json | jq '.runtimes[].groups[] | {tasks, spawned_at}'",
    ),
    (
        "Exit codes",
        "\
0  Success, also if no task matches --filter
1  There is no such program, runtime or task, or it cannot dump its tasks
2  Invalid arguments",
    ),
];

pub(crate) const WHY: [Chapter; 2] = [
    (
        "Examples",
        "\
# Explain the latest poll of task 4711 of the only running program
volt-console why 4711

# Explain the latest poll of the task named checkout of the program shop
volt-console why checkout shop

# The same, without polling the task
volt-console why checkout shop --no-poll",
    ),
    (
        "Exit codes",
        "\
0  Success
1  There is no such program, runtime or task
2  Invalid arguments",
    ),
];

pub(crate) const TOP: [Chapter; 4] = [
    (
        "Lines",
        "\
delay     time from a task's wake-up to its poll
queues    oldest: longest wait in the global queue; injected: tasks spawned
          or woken outside the workers; overflowed: tasks moved from a full
          local queue to the global queue
driver    owner: worker that waits in it; idle: time since its last poll
timers    late: lateness of the latest timers
blocking  the threads of spawn_blocking
sentinel  the thread that finds stuck polls. spares: spare workers in use, of
          at most; replaced, capped: a spare worker took over, or none was
          available; rescued: tasks that other workers took; preempted: polls
          made to yield; pauses: of the whole program; stuck: workers declared
          stuck; blocking: calls of block_in_place; no thread: spare workers
          that did not start
incidents stuck polls; suppressed: not recorded; evicted: record overwritten
settings  placement: of tasks from outside; target, interval: time and polls
          between checks of the global queue; alpha: weight of a tick in the
          average poll duration; batch: tasks taken from the global queue",
    ),
    (
        "Columns",
        "\
state   ○ parked; ● awake, or being woken; ◇ ◆ the same for a spare worker
        (s2), which replaces a stuck one. busy; search: searching for work;
        parked; driver: parked in the I/O driver; maint.: maintenance; stuck
        in a poll; block: in block_in_place; stop
since   time in this state
time    share of time in the states busy, search, parked, driver and maint.
queue   tasks in the LIFO slot, in the batch from the global queue, and in
        the local queue (ring)
budget  polls left in this tick; yield: polls ended for lack of budget
tuner   avg: average poll duration; intv: polls between checks of the global
        queue
lifo    hits: polls from the LIFO slot; evict: tasks displaced from it by
        newer ones; cap: times that it was flushed at its limit per tick
steals  tries; ok: successful tries; tasks: stolen tasks; races: tries lost
        to another worker; given: tasks that other workers stole from this
        one
unpark  why the worker woke up: notif: woken by another thread; io; timer;
        t.out: park time-out; spur: no known reason

Counters are per second. Marks: ! warning, !! alarm; 10 ms and 100 ms for
polls and delays.",
    ),
    (
        "Examples",
        "\
# Print the metrics of the only running program every second
volt-console top

# Print the number of tasks of the busiest runtime of the program shop
volt-console top shop --once --json | jq .tasks.alive",
    ),
    (
        "Exit codes",
        "\
0  Success
1  The program exited and cannot come back, or there is no such program
2  Invalid arguments",
    ),
];

pub(crate) const TASKS: [Chapter; 1] = [(
    "Examples",
    "\
# List the 50 tasks of each runtime whose polls took longest in total
volt-console tasks

# List the 10 tasks with the longest polls of those spawned in src/http.rs
volt-console tasks shop --sort longest --limit 10 --filter src/http.rs",
)];

pub(crate) const PROCESSES: [Chapter; 1] = [(
    "Examples",
    "\
# List the 50 processes of each runtime with the fullest mailboxes
volt-console processes

# List the 10 processes that lost the most messages
volt-console processes shop --sort lost --limit 10",
)];

/// One usage line for each option of which one is required; clap's own line is wider than 80
/// columns.
pub(crate) const CHECK_USAGE: &str = "\
volt-console check [OPTIONS] --max-poll <LIMIT> [PROGRAM]
       volt-console check [OPTIONS] --max-delay <LIMIT> [PROGRAM]";

pub(crate) const CHECK: [Chapter; 3] = [
    (
        "Limits",
        "\
50ms         No poll or delay may exceed 50 ms
max=50ms     The same
p99=20ms     At least 99 % must be 20 ms or shorter; any percentile above 0
             and up to 100 works, such as p50 or p99.9
Times have a unit: us, ms, s, m (minutes) or h.",
    ),
    (
        "Examples",
        "\
# Fail if any poll of the only running program exceeds 50 ms in 10 seconds
volt-console check --max-poll 50ms

# Check a percentile and a maximum for 30 seconds
volt-console check shop --max-delay p99=20ms --max-delay 200ms --for 30s",
    ),
    (
        "Exit codes",
        "\
0  All limits were kept
1  At least one limit was exceeded
2  The check itself failed, the program did no work, or the arguments are
   invalid",
    ),
];

pub(crate) const RECORD: [Chapter; 3] = [
    (
        "Triggers",
        "\
stall         A poll lasts 10 ms or longer (`Builder::incident_after`)
panic         A task panics
poll=TIME     A poll lasts TIME or longer; recorded when it ends
delay=TIME    A task waits at least TIME from its wake-up to its poll
rule          A rule of the doctor reports a finding
rule=NAME     The rule NAME reports a finding, such as rule=stalled-poll

TIME is at most 4s. A trigger within 10 s after the events of another one is
ignored.",
    ),
    (
        "Examples",
        "\
# Record 10 seconds of the only running program
volt-console record --seconds 10

# Record what leads to the next schedule delay of at least 20 ms
volt-console record shop --trigger delay=20ms -o delay.voltrec

# Record what leads to polls of at least 20 ms, each in a file
volt-console record shop --trigger poll=20ms --files 10

# Record continuously and keep the last 4 files of 64 MiB
volt-console record shop --max-size 64M --files 4",
    ),
    (
        "Exit codes",
        "\
0  The recording was written, also after Ctrl-C, or if the program exited or
   no trigger fired
1  There is no such program or runtime, or a file could not be written
2  Invalid arguments",
    ),
];

pub(crate) const REPLAY: [Chapter; 1] = [(
    "Examples",
    "\
# Show a recording from 2 seconds after its first snapshot
volt-console replay shop.voltrec --at 2s

# Print the last snapshot as JSON
volt-console replay shop.voltrec --json",
)];

pub(crate) const EXPORT: [Chapter; 1] = [(
    "Examples",
    "\
# Write shop.json, which https://ui.perfetto.dev opens
volt-console export shop.voltrec

# Compress the trace
volt-console export shop.voltrec -o - | gzip > shop.json.gz",
)];

pub(crate) const POST_MORTEM: [Chapter; 3] = [
    (
        "Examples",
        "\
# Start a program with black boxes in memory, and show what it did last
mkdir -m 700 /dev/shm/boxes
VOLT_BLACK_BOX=/dev/shm/boxes ./shop
volt-console post-mortem /dev/shm/boxes

# Print the poll of each worker at the end
volt-console post-mortem /dev/shm/boxes --json |
    jq '.black_boxes[].workers[] | {index, in_flight}'

# Replay the end of one runtime
volt-console post-mortem /dev/shm/boxes/shop.*.api.voltbox -o end.voltrec
volt-console replay end.voltrec",
    ),
    (
        "Exit codes",
        "\
0  Success, whatever the end of the program was
1  There is no black box, or it cannot be read
2  Invalid arguments",
    ),
    (
        "Files",
        "\
A program has one black box for each runtime, with the name
PROGRAM.MILLISECONDS.PID-STARTTIME.RUNTIME.voltbox and mode 0600. Those of the
last three runs of a program are kept.",
    ),
];

pub(crate) const COMPLETIONS: [Chapter; 1] = [(
    "Examples",
    "\
# Install the completions for bash
volt-console completions bash \\
    > ~/.local/share/bash-completion/completions/volt-console",
)];

pub(crate) const MAN: [Chapter; 1] = [(
    "Examples",
    "\
# Install the manual page for this user
mkdir -p ~/.local/share/man/man1
volt-console man > ~/.local/share/man/man1/volt-console.1",
)];

/// Returns the sections as text, with titles in the style of clap's own.
pub(crate) fn chapters(chapters: &[Chapter]) -> StyledStr {
    let styles = Styles::styled();
    let style = styles.get_header();
    let section = |(title, text): &Chapter| {
        let lines = text.lines().map(|line| if line.is_empty() { "\n".into() } else { format!("  {line}\n") });
        format!("{style}{title}:{style:#}\n{}", lines.collect::<String>())
    };
    let sections: Vec<_> = chapters.iter().map(section).collect();
    sections.join("\n").trim_end().to_owned().into()
}

#[cfg(test)]
mod tests {
    use clap::{Command, CommandFactory};

    use crate::arguments::Arguments;

    /// Checks the short and the long help of a command.
    fn assert_readable(command: &mut Command) {
        let name = command.get_name().to_owned();
        let (short, long) = (command.render_help().to_string(), command.render_long_help().to_string());
        for line in short.lines().chain(long.lines()) {
            assert!(line.chars().count() <= super::COLUMNS, "{name}: {line:?} is too wide");
        }
        assert!(long.contains("\nExamples:\n  #"), "{name} has no example:\n{long}");
        assert!(long.contains(&format!("\n  volt-console {}", if name == "volt-console" { "" } else { &name })));
    }

    #[test]
    fn each_help_fits_80_columns_and_has_an_example() {
        let mut command = Arguments::command();
        command.build();
        assert_readable(&mut command);
        command.get_subcommands_mut().for_each(assert_readable);
    }

    #[test]
    fn commands_that_can_fail_on_a_program_list_their_exit_codes() {
        let mut command = Arguments::command();
        for name in ["list", "doctor", "stacks", "dump", "why", "top", "check", "record"] {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            let codes = help.split_once("\nExit codes:\n").map_or("", |(_, codes)| codes);
            assert!([0, 1, 2].iter().all(|code| codes.contains(&format!("  {code}  "))), "{name}:\n{help}");
        }
    }
}
