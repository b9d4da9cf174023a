//! The explanations of the screens that are lists: of tasks, stuck polls, findings and so on.

use super::section::Section;

pub(super) const TASKS: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            ("Enter", "show or hide the selected task, with the reason for its last poll"),
            ("< >", "sort by another column"),
            ("/", "filter by name, #id, spawn location, state, or what a task awaits"),
        ],
    },
    Section {
        title: "Columns",
        entries: &[
            ("id", "number of the task; `volt-console why` and `dump --task` accept it"),
            (
                "state",
                "waits: for a wake-up; queued: woken, and not polled yet; polled: a worker polls it; stranded: waits, but no waker is left that could wake it (rule lost-waker)",
            ),
            (
                "awaits",
                "what it waits for, if that is an item of volt::sync, such as a lock, a message or a notification; - if not",
            ),
            ("busy", "total duration of its polls"),
            ("now", "share of the last interval in which it was polled"),
            ("longest", "duration of its longest poll, rounded down by at most 1/16"),
            ("polls", "number of its polls"),
            ("delay", "total time from its wake-ups to its polls"),
            ("woken", "time since its last wake-up"),
            (
                "by",
                "what woke it last: another task, worker (the worker itself, between two polls), timer, io (a socket), blocking (a thread of the blocking pool), outside (another thread), or spawn (nothing yet)",
            ),
            ("wakers", "wakers of it that exist, including abort handles"),
            ("age", "time since it was spawned"),
            ("worker", "the worker that polls it now"),
            ("name", "name of the task, if it has one"),
            ("spawned at", "line of code that spawned it"),
            ("-", "nothing, or not known: a task without a name has no numbers until its first poll has ended"),
        ],
    },
    Section {
        title: "First line",
        entries: &[
            ("alive", "tasks that exist"),
            (
                "shown",
                "listed tasks, of all that the filter matches; of very many tasks, only those with the highest values are listed",
            ),
            ("not polled yet", "tasks that were never polled and have no name: they are only counted"),
        ],
    },
    Section {
        title: "Tasks with an unknown await",
        entries: &[(
            "awaits -",
            "the task awaits a timer, a socket, or a future of another crate, which Volt does not record; screen 0 (press w) finds the line: to do so, the program polls each waiting task once",
        )],
    },
];

pub(super) const PROCESSES: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            ("Enter", "show or hide the selected process"),
            ("< >", "sort by another column"),
            ("/", "filter by name, pid, kind, spawn location or state"),
        ],
    },
    Section {
        title: "Columns (a process is an actor with a mailbox, of volt_process)",
        entries: &[
            (
                "pid",
                "number of its slot, a dot, and how many processes had the slot before; the details begin with its node, such as local",
            ),
            (
                "state",
                "ready: its task is queued; running: a worker runs it; blocked: it awaits a future in a step; idle: it has no message; complete: it has exited",
            ),
            ("mailbox", "messages that wait for it; ! half full, !! full"),
            ("peak", "most messages that have ever waited at a time"),
            ("capacity", "messages for which the mailbox has room"),
            ("lost", "messages that were dropped or refused because the mailbox was full"),
            ("steps", "times that a worker ran it"),
            ("busy", "total duration of the polls of its task, which run its steps"),
            ("now", "share of the last interval in which a worker ran it"),
            ("parent", "pid of the process that started it"),
            ("links", "number of processes linked with it: if one of two linked processes fails, the other exits too"),
            ("task", "number of the task that runs it, as on screen 3 (tasks)"),
            ("name", "name under which it is registered, if any"),
            ("kind", "type of the process"),
            ("spawned at", "line of code that started it"),
        ],
    },
    Section {
        title: "First line",
        entries: &[
            ("alive, shown", "processes that exist; listed ones, of all that the filter matches"),
            ("messages lost", "messages that the mailboxes of all processes dropped or refused"),
            ("failed", "processes that exited abnormally: failed, panicked or killed"),
            ("restarts", "processes that a supervisor started as a replacement"),
        ],
    },
];

pub(super) const INCIDENTS: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[("Enter", "open the stack of the selected incident"), ("< >", "sort by another column")],
    },
    Section {
        title: "Line incidents (an incident: the record of a poll of 10 ms or longer)",
        entries: &[
            ("incidents", "stuck polls since the runtime started; in brackets, their number by cause"),
            ("new/s", "new ones per second"),
            (
                "not recorded",
                "stuck polls that were only counted, without a stack, because a similar one had just been recorded",
            ),
            ("overwritten", "records that newer ones have replaced"),
        ],
    },
    Section {
        title: "Line sentinel (the thread that finds stuck polls)",
        entries: &[
            ("spares", "spare workers in use / maximum"),
            ("replaced", "times that a spare worker took over from a stuck or blocking worker"),
            ("no spare", "checks of the sentinel that needed a spare worker when none was available"),
            (
                "tasks rescued",
                "tasks that the sentinel moved out of the queues of stuck workers, without those that other workers stole",
            ),
            ("pauses", "times that the machine paused the whole program, as a debugger or a suspended laptop does"),
            ("preempted", "polls that were made to yield at their next operation"),
            (
                "stuck",
                "times that a worker was declared stuck, since no worker was parked to take over; replaced or not",
            ),
            ("block_in_place", "calls of block_in_place"),
            ("spares not started", "spare workers whose thread could not be started"),
            ("checks", "checks of all workers"),
        ],
    },
    Section {
        title: "Line longest, and the columns",
        entries: &[
            ("longest", "the poll in progress that has lasted longest"),
            ("when", "how long ago the poll began; now: it is in progress"),
            ("duration", "how long the poll lasted, or has lasted so far"),
            ("worker", "the worker that it blocked"),
            (
                "cause",
                "the thread's state, from the kernel: cpu (computed), sleep, lock, io, page_in (read memory from disk), not_scheduled (other threads ran), throttled (CPU quota), stopped (signal or debugger)",
            ),
            (
                "action",
                "replaced: a spare worker took over; rescued: another worker took the waiting tasks; no spare: none was available",
            ),
            ("similar", "similar stuck polls since then, which were only counted"),
            ("line", "the line of code that blocked, if it is known"),
            ("task", "the task, and where it was spawned"),
        ],
    },
    Section {
        title: "Stack",
        entries: &[
            ("→", "the suspect line: the last call in your code"),
            ("+", "your code; the calls without a mark are in libraries"),
        ],
    },
];

pub(super) const BLAME: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            (
                "Enter",
                "open the stack of the latest stuck poll of these tasks; if there is none, open their waits (screen 0)",
            ),
            ("< >", "sort by another column"),
            ("/", "filter by location"),
        ],
    },
    Section {
        title: "Columns (a row has all tasks that one line of code spawned)",
        entries: &[
            ("caused", "total time that other tasks waited behind polls of these tasks of 1 ms or longer"),
            ("now", "average number of other tasks that waited behind these, in the last interval"),
            ("suffered", "total time that these tasks waited behind polls of others of 1 ms or longer"),
            ("stuck", "stuck polls: 10 ms or longer"),
            ("longest", "longest poll"),
            ("busy", "total duration of their polls"),
            ("polls", "number of their polls"),
            ("alive", "tasks that exist now; - if the runtime does not count them"),
            ("stranded", "waiting tasks that have no waker left (rule lost-waker)"),
            (
                "spawned at",
                "line of code that spawned the tasks; \"a dump by Volt\": the tasks with which Volt polls waiting tasks for a dump",
            ),
        ],
    },
    Section {
        title: "Below the table",
        entries: &[
            ("tasks of", "the spawn location of the selected row, with its whole path"),
            (
                "await",
                "what at least half of these tasks wait for, and where; only if they wait for nothing else, and it is an operation of volt::sync or a JoinHandle",
            ),
            ("incident", "the latest stuck poll of these tasks"),
        ],
    },
];

pub(super) const DOCTOR: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            (
                "Enter",
                "open the stack of the stuck poll; for a finding without one, open the waits of its tasks (screen 0)",
            ),
            ("PgUp PgDn", "turn the pages of the selected finding, if it does not fit; otherwise, ten rows up or down"),
        ],
    },
    Section {
        title: "Columns (a finding is a problem that a rule found; checked every second)",
        entries: &[
            (
                "severity",
                "critical: work has stopped or is badly delayed; warning: tasks wait longer than necessary; info: worth knowing; past: not seen for 30 s, or longer if it recurs",
            ),
            ("rule", "name of the rule; the documentation lists the rules and their conditions"),
            ("runtime", "name of the runtime"),
            ("finding", "the problem in one sentence"),
        ],
    },
    Section {
        title: "Below the table: the selected finding",
        entries: &[
            ("seen", "when it began, when it was seen last, and in how many checks"),
            ("where", "the line of code, and where the task was spawned"),
            ("advice", "what to change"),
            ("evidence", "the numbers that led to the finding"),
            ("workers", "the workers concerned, each by its number"),
        ],
    },
    Section { title: "As text", entries: &[("command", "volt-console doctor")] },
];

pub(super) const WAITS: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            (
                "r",
                "make a new dump, for which the program polls each waiting task once; opening the screen also makes one",
            ),
            ("/", "filter by name, #id, line or kind"),
        ],
    },
    Section {
        title: "Columns (a row has all tasks that wait at the same place)",
        entries: &[
            ("tasks", "number of tasks; - for the future of a block_on, such as that of main, which is no task"),
            (
                "longest",
                "time since the last wake-up of the task that has waited longest; of a running task, the duration of its poll so far",
            ),
            (
                "waits for",
                "the pending operation, and the line of the application that awaits it; running: the task is being polled",
            ),
            ("held by", "the task that holds the lock"),
            ("permits acquired by", "the tasks that acquired the permits of the semaphore"),
            ("and 1 more", "the task waits for several operations; the last one is shown"),
        ],
    },
    Section {
        title: "Below the table: the selected group",
        entries: &[
            ("spawned", "line of code that spawned the tasks"),
            ("called", "line of code that called block_on"),
            ("tasks", "some of the tasks"),
            ("held by", "the holder of the lock, for how long, and where it acquired it"),
            ("awaits", "the state of the channel, semaphore or other object"),
            ("permits", "the tasks that acquired the semaphore's permits, when and where; they may have moved them"),
            ("waiters", "the tasks in its queue, the first one first"),
            (
                "chain",
                "each function awaits the one below it; the last line is the pending operation, the line above it is where the application awaits that",
            ),
            ("× 20", "the task waits for 20 operations at this place"),
            ("note", "missing data, and how to get it"),
        ],
    },
    Section { title: "As text", entries: &[("command", "volt-console dump")] },
];

pub(super) const EVENTS: &[Section] = &[
    Section { title: "Keys of this screen", entries: &[("/", "filter by kind, runtime or text")] },
    Section {
        title: "Columns (events since this console attached)",
        entries: &[
            ("ago", "time since the event"),
            ("kind", "see below"),
            ("runtime", "name of the runtime"),
            ("what", "what happened; the selected event is shown in full below"),
        ],
    },
    Section {
        title: "Kinds",
        entries: &[
            ("stuck", "a stuck poll began"),
            ("unstuck", "a stuck poll ended"),
            ("stall", "a stuck poll that began and ended between two snapshots"),
            ("replaced", "a spare worker replaced a stuck or blocking worker"),
            ("no spare", "a check of the sentinel needed a spare worker, and none was available"),
            ("finding, past", "finding: the doctor reports a new problem; past: the problem has ended"),
            ("program", "a program with another pid responds: usually the same one, restarted"),
            ("connection", "the connection to the program was lost, or is back"),
            ("lost", "snapshots were skipped, because the console or the program was too slow"),
            ("runtime", "a runtime started or ended"),
            ("panic", "a task panicked"),
            ("process", "a process (actor) exited abnormally"),
            ("restart", "a supervisor restarted a process"),
        ],
    },
];

pub(super) const ROUTES: &[Section] = &[
    Section {
        title: "Keys of this screen",
        entries: &[
            ("Enter", "open the stack of the latest stuck poll of the selected route"),
            ("< >", "sort by another column"),
            ("/", "filter by method or path"),
        ],
    },
    Section {
        title: "Columns (a row has all requests with one method that one route matched)",
        entries: &[
            ("req/s", "requests that ended, per second"),
            ("active", "requests that are being handled"),
            ("p50", "half of the responses came within this time, without their body, since the runtime started"),
            ("p99", "99 % of the responses came within this time"),
            ("failed", "responses with a status of 500 or above"),
            ("busy", "total duration of the polls of their handlers"),
            ("longest", "longest poll of a handler"),
            ("delay", "total time in which their tasks were ready and waited for a worker"),
            ("abandoned", "requests that ended without a response"),
            (
                "route",
                "method and path pattern; unmatched: no route matched; other other: all routes beyond the first 256",
            ),
        ],
    },
    Section {
        title: "Below the table: the selected route",
        entries: &[
            ("requests", "how the requests ended"),
            (
                "mean",
                "averages for each request: time to the response, time in polls, and time that it waited for a worker",
            ),
            ("incident", "the latest stuck poll of a request"),
        ],
    },
    Section {
        title: "Missing routes",
        entries: &[("counted by", "volt::axum::serve, RouteLayer and observe::Request; no other requests are counted")],
    },
];
