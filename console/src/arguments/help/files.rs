//! The sections of the commands that check a limit, and of those that write or read a file.

use super::Chapter;

/// One usage line for each option of which one is required; clap's own line is wider than 80
/// columns.
pub(in crate::arguments) const CHECK_USAGE: &str = "\
volt-console check [OPTIONS] --max-poll <LIMIT> [PROGRAM]
       volt-console check [OPTIONS] --max-delay <LIMIT> [PROGRAM]";

pub(in crate::arguments) const CHECK: [Chapter; 3] = [
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
0  No limit was exceeded
1  At least one limit was exceeded
2  The check itself failed, the program did no work, or the arguments are
   invalid",
    ),
];

pub(in crate::arguments) const RECORD: [Chapter; 3] = [
    (
        "Triggers",
        "\
stall         A poll has lasted 10 ms, or `Builder::incident_after`
panic         A task panics
poll=TIME     A poll has lasted TIME or longer; fires when the poll ends
delay=TIME    A task waits at least TIME from its wake-up to its poll
rule          A rule of the doctor reports a finding
rule=NAME     The rule NAME reports a finding, such as rule=stalled-poll

TIME is at most 4s. For 10 s after the events of a trigger, further triggers
are ignored.",
    ),
    (
        "Examples",
        "\
# Record 10 seconds of the only running program
volt-console record --seconds 10

# Record the events around the next schedule delay of at least 20 ms
volt-console record shop --trigger delay=20ms -o delay.voltrec

# Record the events around polls of at least 20 ms, in the last 10 files
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

pub(in crate::arguments) const REPLAY: [Chapter; 2] = [
    (
        "Examples",
        "\
# Show a recording from 2 seconds after its first snapshot
volt-console replay shop.voltrec --at 2s

# Print the last snapshot as JSON
volt-console replay shop.voltrec --json",
    ),
    (
        "Exit codes",
        "\
0  The screen was quit with q or Ctrl-C, or the snapshot was printed, even if
   the recording is truncated
1  There is no such recording, or it cannot be read; or without --once and
   --json, there is no terminal
2  Invalid arguments",
    ),
];

pub(in crate::arguments) const EXPORT: [Chapter; 2] = [
    (
        "Examples",
        "\
# Write shop.json, which https://ui.perfetto.dev opens
volt-console export shop.voltrec

# Compress the trace
volt-console export shop.voltrec -o - | gzip > shop.json.gz",
    ),
    (
        "Exit codes",
        "\
0  Every trace was written, even if the recording is truncated
1  There is no such recording, or it cannot be read; or a trace exists
   already, or could not be written
2  Invalid arguments

On SIGINT, SIGTERM or SIGHUP, removes the unfinished trace, and terminates
with the signal.",
    ),
];

pub(in crate::arguments) const POST_MORTEM: [Chapter; 3] = [
    (
        "Examples",
        "\
# Start a program with black boxes in memory, and show what it did last
mkdir -m 700 /dev/shm/boxes
VOLT_BLACK_BOX=/dev/shm/boxes ./shop
volt-console post-mortem /dev/shm/boxes

# Print the poll that each worker had in progress at the end
volt-console post-mortem /dev/shm/boxes --json |
    jq '.black_boxes[].workers[] | {index, in_flight}'

# Replay the end of one runtime
volt-console post-mortem /dev/shm/boxes/shop.*.api.voltbox -o end.voltrec
volt-console replay end.voltrec",
    ),
    (
        "Exit codes",
        "\
0  Success, however the program ended
1  There is no black box, or one cannot be read; or the recording of --output
   exists already, could not be written, or would be of several black boxes
2  Invalid arguments",
    ),
    (
        "Files",
        "\
A program has one black box for each runtime, with the name
PROGRAM.MILLISECONDS.PID-STARTTIME.RUNTIME.voltbox and mode 0600. MILLISECONDS
is when the first of this run was created, since 1970; STARTTIME is when the
program started, in clock ticks since the machine booted. A program that
starts keeps the black boxes of all running programs of its name, and of the
last three that ended.",
    ),
];

pub(in crate::arguments) const COMPLETIONS: [Chapter; 2] = [
    (
        "Examples",
        "\
# Install the completions for bash
volt-console completions bash \\
    > ~/.local/share/bash-completion/completions/volt-console",
    ),
    (
        "Exit codes",
        "\
0  Success
1  The script could not be written
2  Invalid arguments, such as an unknown shell",
    ),
];

pub(in crate::arguments) const MAN: [Chapter; 2] = [
    (
        "Examples",
        "\
# Install the manual page for this user
mkdir -p ~/.local/share/man/man1
volt-console man > ~/.local/share/man/man1/volt-console.1",
    ),
    (
        "Exit codes",
        "\
0  Success
1  The page could not be written
2  Invalid arguments",
    ),
];
