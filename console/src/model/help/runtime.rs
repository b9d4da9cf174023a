//! The explanations of the screens of a runtime and its workers: overview, workers, latency.

use super::section::Section;

/// The parts of the help that two screens share.
const COLUMNS: Section = Section {
    title: "Columns of the table of workers",
    entries: &[
        ("#", "number of the worker; s2 is a spare worker, which replaces a stuck one"),
        (
            "state",
            "○ parked, ● awake or being woken; ◇ ◆ the same for a spare worker; then its state: busy, search, parked, driver, maintenance, stuck (declared stuck in a poll), blocking (in block_in_place) or stopped",
        ),
        ("since", "how long it has been in this state"),
        ("busy", "share of the last interval in which it polled tasks or took them from its own queues"),
        ("avg poll", "moving average of the duration of its polls"),
        ("global check", "number of its polls between two checks of the global queue while it has other tasks"),
        ("polls", "polls of tasks"),
        ("parks", "times that it went to sleep"),
        ("in flight", "the poll in progress: its duration so far, its task, and the spawn location of the task"),
    ],
};
const COLUMNS_TIME: Section = Section {
    title: "Columns under time (shares of time; with busy, they add up to 100 %)",
    entries: &[
        ("search", "searching for tasks at other workers and in the global queue"),
        ("parked", "asleep until another thread wakes it"),
        ("driver", "asleep in the I/O driver, until a socket, a timer or another thread wakes it"),
        ("maintenance", "timers, polls of the driver, and statistics"),
    ],
};
const COLUMNS_QUEUE: Section = Section {
    title: "Columns under queue (tasks that wait at the worker)",
    entries: &[
        ("lifo", "tasks in the LIFO slot: 0 or 1; polled before those in the ring"),
        ("batch", "tasks that it has taken from the global queue and not yet polled"),
        ("ring", "tasks in its local queue / capacity of the queue; other workers can steal these tasks"),
    ],
};
const COLUMNS_BUDGET: Section = Section {
    title: "Columns under budget",
    entries: &[
        (
            "budget",
            "polls left in this tick / polls per tick; a tick is a series of polls, before which the worker polls the I/O driver if that is due",
        ),
        ("yields", "polls that ended because the task had used up its own budget of operations, as in Tokio"),
    ],
};
const COLUMNS_LIFO: Section = Section {
    title: "Columns under LIFO slot",
    entries: &[
        ("hits", "polls of a task from the slot"),
        ("evicted", "tasks that a newer task moved from the slot to the ring"),
        ("flushed", "times that the task in the slot went to the ring: the slot had used up its polls of the tick"),
    ],
};
const COLUMNS_STEALS: Section = Section {
    title: "Columns under steals, tasks, unparks",
    entries: &[
        ("tries", "attempts to steal tasks from another worker"),
        ("ok", "attempts that succeeded"),
        ("races lost", "attempts that failed because another thread was faster"),
        ("stolen", "tasks that it stole from other workers"),
        ("given", "tasks that other workers stole from it"),
        ("notified", "wake-ups by another thread"),
        ("io", "wake-ups by a socket"),
        ("timer", "wake-ups by a timer"),
        ("timed out", "wake-ups because the longest time to sleep was over"),
        ("spurious", "wake-ups without a known reason"),
    ],
};

pub(super) const OVERVIEW: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            ("Enter", "show or hide the selected worker"),
            ("< >", "sort by another column"),
            ("r", "switch counters between totals since the runtime started and rates per second"),
        ],
    },
    Section {
        title: "Line workers",
        entries: &[
            ("○● ◇◆", "a worker, a spare worker: empty if it is parked, filled if it is awake or being woken"),
            (
                "B S P D M X K",
                "Busy with tasks, Searching for tasks, Parked, parked in the I/O Driver, Maintenance, declared stuck in a poll (X), in block_in_place (K)",
            ),
            ("parked", "parked workers / workers in use, including stuck ones and spare ones"),
            (
                "searching",
                "workers that search for tasks / limit; workers that were woken to search can exceed the limit",
            ),
            (
                "busy",
                "share of the workers' time in which they polled tasks or took them from their own queues, in the last interval",
            ),
            ("search", "share of their time in which they searched for tasks"),
            (
                "idle",
                "share of their time in which they slept, in the I/O driver or elsewhere; busy, search, idle and maintenance (screen 2) add up to 100 %",
            ),
            ("steals/s", "tasks stolen from other workers, per second"),
            ("parks/s", "times that a worker went to sleep, per second"),
        ],
    },
    Section {
        title: "Lines polls/s, poll and delay, or panels polls/s and times",
        entries: &[
            (
                "polls/s",
                "polls of tasks per second; the curve has the latest value at the right, and ╳ where there was no connection",
            ),
            ("peak", "largest value of the curve"),
            ("poll", "how long polls of tasks took, in the last interval"),
            ("delay", "how long tasks waited from their wake-up to their poll (schedule delay)"),
            ("p50", "half of them were at most this long"),
            ("p90", "90 % of them were at most this long"),
            ("p99", "99 % of them were at most this long"),
            ("p99.9", "99.9 % of them were at most this long"),
            ("max", "the longest"),
            ("count", "how many were measured"),
        ],
    },
    Section {
        title: "Line or panel queues",
        entries: &[
            ("global", "tasks in the global queue: spawned or woken outside the workers, or moved from a full ring"),
            ("oldest", "how long the first task of the global queue has waited"),
            ("local", "tasks that wait at the workers: in ring, LIFO slot, batch and inbox"),
            ("injected/s", "tasks that entered the global queue from outside the workers, per second"),
            ("overflowed/s", "tasks that moved from a full ring to the global queue, per second"),
        ],
    },
    Section {
        title: "Line or panel tasks",
        entries: &[
            ("alive", "tasks that exist now"),
            ("spawned", "tasks spawned since the runtime started"),
            ("completed", "tasks that returned"),
            ("cancelled", "tasks that were aborted or dropped before they returned"),
            ("panicked", "tasks that panicked"),
            ("spawned/s", "tasks spawned per second"),
        ],
    },
    Section {
        title: "Line or panel driver (the part that waits for sockets and timers)",
        entries: &[
            ("owner", "the worker that waits in it or polls it"),
            ("sockets", "sockets and other file descriptors that tasks use"),
            (
                "accept backoffs",
                "times that accepting connections paused for lack of file descriptors or memory; absent if 0",
            ),
            ("events/s", "readiness events of sockets that it delivered to tasks, per second"),
            ("polls/s", "polls of the driver, per second"),
            ("idle", "time since its last poll; 0 while a worker waits in it"),
            ("backend", "the interface of the kernel that it uses"),
        ],
    },
    Section {
        title: "Line or panels timers and blocking",
        entries: &[
            ("armed", "timers that have not fired yet"),
            ("next", "time until the next timer fires"),
            ("late", "greatest lateness of the timers that fired last"),
            ("fired/s", "timers that fired, per second"),
            ("clock faults", "times that the processor's cycle counter failed; absent if 0"),
            ("busy", "threads of spawn_blocking with a job / maximum number of threads"),
            ("queued", "jobs that wait for a thread"),
            ("threads", "threads that exist"),
            ("jobs/s", "jobs submitted per second"),
        ],
    },
    Section {
        title: "Lines longest and incidents",
        entries: &[
            ("longest", "the poll in progress that has lasted longest"),
            (
                "incidents",
                "stuck polls (10 ms or longer) since the runtime started, then one of them: in progress, or else the latest",
            ),
        ],
    },
    COLUMNS,
    COLUMNS_TIME,
    COLUMNS_QUEUE,
    COLUMNS_BUDGET,
    COLUMNS_LIFO,
    COLUMNS_STEALS,
    Section {
        title: "Selected worker",
        entries: &[("polls … settings", "the lines below the table: see the help of screen 2")],
    },
];

pub(super) const WORKERS: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            ("< >", "sort by another column"),
            ("r", "switch the table's counters between totals since the runtime started and rates per second"),
        ],
    },
    COLUMNS,
    COLUMNS_TIME,
    COLUMNS_QUEUE,
    COLUMNS_BUDGET,
    COLUMNS_LIFO,
    COLUMNS_STEALS,
    Section {
        title: "Selected worker (counters: since the runtime started): line polls",
        entries: &[
            ("in flight", "the poll in progress, as in the table"),
            ("polls", "polls per second"),
            ("p50", "half of its polls in the last interval were at most this long"),
            ("p99", "99 % of its polls were at most this long"),
            ("max", "its longest poll in the last interval"),
            ("delay p99", "99 % of the tasks waited at most this long from their wake-up to their poll"),
            ("avg poll", "moving average of the duration of its polls"),
            ("global check", "number of its polls between two checks of the global queue while it has other tasks"),
            ("total", "polls since the runtime started"),
            (
                "measured polls per check",
                "polls between two checks of the global queue, as counted in the last interval",
            ),
        ],
    },
    Section {
        title: "Line budget",
        entries: &[
            ("exhausted", "ticks that used up their budget of polls"),
            ("yields", "polls that ended because the task had used up its own budget of operations, as in Tokio"),
            ("lifo hits", "polls of a task from the LIFO slot, which is polled before the ring"),
            ("evicted", "tasks that a newer task moved from the slot to the ring"),
            ("flushed", "times that the task in the slot went to the ring: the slot had used up its polls of the tick"),
            (
                "lifo polls this tick",
                "polls from the slot in this tick, and the limit, after which older tasks have their turn",
            ),
            ("ticks", "series of polls; before each, the worker polls the I/O driver if that is due"),
        ],
    },
    Section {
        title: "Line steals",
        entries: &[
            ("tries", "attempts to steal tasks from another worker"),
            ("ok", "attempts that succeeded"),
            ("stolen", "tasks that it stole from other workers"),
            ("races lost", "attempts that failed because another thread was faster"),
            ("given", "tasks that other workers stole from it"),
            ("ring overflows", "times that its ring was full"),
            ("tasks overflowed", "tasks that moved from its full ring to the global queue"),
            ("from global queue", "tasks that it took from the global queue"),
            ("global checks: interval", "checks of the global queue after the set number of polls"),
            ("target time", "checks because the target time since the last one was over"),
            ("empty queues", "checks because it had no other task"),
        ],
    },
    Section {
        title: "Line parks",
        entries: &[
            ("parks", "times that it went to sleep"),
            ("lost wake-ups", "sleeps that timed out although a task waited: report a bug in Volt; absent if 0"),
            ("notified", "wake-ups by another thread"),
            ("io", "wake-ups by a socket"),
            ("timer", "wake-ups by a timer"),
            ("timed out", "wake-ups because the longest time to sleep was over"),
            ("spurious", "wake-ups without a known reason"),
            ("wakes sent", "times that it woke another worker"),
            ("park time-out", "limit of its latest sleep; it doubles while the worker finds no tasks"),
            ("spins: helped", "short waits without sleep in which a task arrived"),
            ("in vain", "short waits without sleep in which no task arrived"),
        ],
    },
    Section {
        title: "Line time (shares of the last interval)",
        entries: &[
            (
                "busy",
                "polling tasks, or taking them from its own queues; busy, searching, parked, driver and maintenance add up to 100 %",
            ),
            ("searching", "searching for tasks at other workers and in the global queue"),
            ("parked", "asleep until another thread wakes it"),
            ("driver", "asleep in the I/O driver, until a socket, a timer or another thread wakes it"),
            ("maintenance", "timers, polls of the driver, and statistics"),
            ("on a processor", "in which the kernel ran its thread"),
            ("run delay", "in which its thread was ready, and the kernel ran other threads"),
        ],
    },
    Section {
        title: "Line settings (of the runtime's Builder)",
        entries: &[
            ("placement", "where tasks from outside the workers go: to the global queue, or to a worker"),
            (
                "global check every",
                "target time between two checks of the global queue, and bounds for the number of polls between them",
            ),
            ("spin", "whether a worker waits a short time without sleep before it parks"),
            ("batch", "how many tasks a worker takes from the global queue at a time"),
            (
                "driver every",
                "time between two polls of the I/O driver by busy workers, between two ticks; within a tick, 20 times as much",
            ),
            ("average weight", "weight of the last tick in the average poll duration"),
            ("stealing", "whether workers steal tasks from each other"),
            ("park time-out", "limit of a worker's first sleep; it doubles while the worker finds no tasks"),
        ],
    },
    Section {
        title: "Lines queues, and the curves (latest value at the right; ╳ no connection)",
        entries: &[
            (
                "queues",
                "tasks in ring, LIFO slot, batch, and inbox (placed at this worker from outside); polls left in this tick",
            ),
            ("run delay", "as in the line time; on wide screens"),
            ("busy, search", "shares of time, as in the line time"),
            ("idle", "share of time parked, in the I/O driver or elsewhere"),
            ("polls/s", "polls per second; the largest value has the full height"),
            ("queued", "tasks that wait at the worker; the largest value has the full height"),
        ],
    },
];

pub(super) const LATENCY: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            ("↑ ↓", "select all workers together, or one of them"),
            ("Enter", "switch between schedule delays and poll durations; a high terminal shows both"),
            ("r", "switch between the last interval and the time since the runtime started"),
        ],
    },
    Section {
        title: "Table",
        entries: &[
            ("schedule delay", "time from a task's wake-up to its poll"),
            ("poll duration", "time that a task occupied its worker"),
            ("p50", "half of them were at most this long; p90, p99, p99.9: 90 %, 99 % and 99.9 % of them"),
            ("max", "the longest"),
            ("mean", "the average"),
            ("count", "how many were measured"),
        ],
    },
    Section {
        title: "Distribution",
        entries: &[
            (">= 2.0µs", "the line counts durations from this value up to that of the line above"),
            ("bar", "the number of durations in the range; then the number in digits, and its share of all"),
            (
                "heat map",
                "a column for each snapshot, the latest at the right; the denser a cell, the larger the share of the snapshot in this range, always for all workers; ╳ no connection",
            ),
        ],
    },
];
