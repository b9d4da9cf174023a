//! The sections of the commands that show a running program.

use super::Chapter;

pub(in crate::arguments) const LIST: [Chapter; 2] = [
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

pub(in crate::arguments) const ATTACH: [Chapter; 2] = [
    (
        "Examples",
        "\
# Show the only running program
volt-console attach

# Show the program named shop, refreshed every 100 ms
volt-console attach shop --interval 100ms",
    ),
    (
        "Exit codes",
        "\
0  The screen was quit with q or Ctrl-C
1  There is no terminal, no such program, or several programs to choose from;
   or the terminal was closed
2  Invalid arguments

On SIGINT, SIGTERM or SIGHUP, attach terminates with the signal; in a script,
that is code 128 + the number of the signal.",
    ),
];

pub(in crate::arguments) const DOCTOR: [Chapter; 2] = [
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
0  No current finding reaches the severity of --fail-on
1  A current finding reaches the severity of --fail-on
2  The check itself failed, or the arguments are invalid",
    ),
];

pub(in crate::arguments) const STACKS: [Chapter; 2] = [
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

pub(in crate::arguments) const DUMP: [Chapter; 3] = [
    (
        "Output",
        "\
waiting for 4 s  The last wake-up of the task was 4 s ago
× 20             The task waits for 20 operations at this place
40 ×             The tasks of the group wait for 40 channels, locks etc.
awaited by       All tasks that wait for it, including those of other groups,
                 in the order of their last wake-ups
note:            Data that is missing, the reason and the remedy

Each function of a chain awaits the one below it. The last line is the pending
operation, usually a function of a library. The line above it is the line of
the application that awaits the operation.
A chain ends at a container that polls only those futures that were woken,
such as FuturesUnordered. The future of each `block_on`, such as that of
`main`, follows the tasks.",
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

pub(in crate::arguments) const WHY: [Chapter; 2] = [
    (
        "Examples",
        "\
# Explain the most recent poll of task 4711 of the only running program
volt-console why 4711

# Explain the most recent poll of the task checkout of the program shop
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

pub(in crate::arguments) const TOP: [Chapter; 4] = [
    (
        "Lines",
        "\
workers   parked: parked workers / workers in use; searching: workers that
          search for tasks / limit; busy, search, idle: shares of their time
delay     time from a task's wake-up to its poll
queues    oldest: longest wait in the global queue; injected: tasks spawned
          or woken outside the workers; overflowed: tasks moved from a full
          local queue to the global queue
driver    owner: worker that waits in it or polls it; idle: time since its
          last poll
timers    late: greatest lateness of the timers that fired last
blocking  the threads of spawn_blocking
sentinel  the thread that finds stuck polls. spares: spare workers in use /
          limit; replaced: times that a spare worker took over; no spare:
          checks that found no spare worker available; tasks rescued: moved
          by the sentinel out of the queues of stuck workers; pauses: times
          that the machine paused the program; preempted: polls made to yield;
          stuck: times that a worker was declared stuck; block_in_place: calls
          of it
incidents stuck polls; overwritten: records replaced by newer ones
settings  placement: queue for tasks from outside the workers; global check
          every: target time, and bounds in polls; batch: tasks taken from
          the global queue at a time; driver every: time between two polls of
          it by busy workers; average weight: weight of the last tick in the
          average poll duration",
    ),
    (
        "Columns",
        "\
state   ○ parked; ● awake, or being woken; ◇ ◆ the same for a spare worker
        (s2), which replaces a stuck one. busy; search: searching for work;
        parked; driver: parked in the I/O driver; maintenance: timers, I/O
        and statistics; stuck in a poll; blocking: in block_in_place; stopped
since   time in this state
time    share of time in the states busy, search, parked, driver and
        maintenance, which add up to 100 %
queue   tasks in the LIFO slot, in the batch from the global queue, and in
        the local queue (ring)
budget  polls left in this tick, a series of polls, before which the worker
        polls timers and I/O if that is due; yields: polls that ended because
        the task had used up its own budget of operations, as in Tokio
check   global check: how often the worker checks the global queue
lifo    hits: polls from the LIFO slot; evicted: tasks displaced from it by
        newer ones; flushed: times that it reached its limit per tick
steals  ok: successful tries; races lost: tries lost to another worker
tasks   stolen by this worker; given: stolen by others from this worker
unparks why the worker woke up: notified by another thread; io; timer;
        timed out; spurious: no known reason

Counters are per second. Marks: ! warning, !! alarm. Polls and delays have
! from 10 ms on, and !! from 100 ms on; p50, p90 and averages have none.",
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

pub(in crate::arguments) const TASKS: [Chapter; 2] = [
    (
        "Examples",
        "\
# List the 50 tasks of each runtime whose polls took longest in total
volt-console tasks

# List the 10 tasks with the longest polls of those spawned in src/http.rs
volt-console tasks shop --sort longest --limit 10 --filter src/http.rs",
    ),
    (
        "Exit codes",
        "\
0  Success, also if no task matches --filter
1  There is no such program or runtime, or the output could not be written
2  Invalid arguments",
    ),
];

pub(in crate::arguments) const PROCESSES: [Chapter; 2] = [
    (
        "Examples",
        "\
# List the 50 processes of each runtime with the fullest mailboxes
volt-console processes

# List the 10 processes that lost the most messages
volt-console processes shop --sort lost --limit 10",
    ),
    (
        "Exit codes",
        "\
0  Success, also if no process matches --filter, or the program has none
1  There is no such program or runtime, or the output could not be written
2  Invalid arguments",
    ),
];
