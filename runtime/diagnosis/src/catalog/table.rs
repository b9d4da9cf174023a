//! The rows of the catalog: every metric, with its name, unit, labels, help and how to read it.
//!
//! A new number of a snapshot gets its row here and nowhere else; the rules that a row keeps are in
//! the header of [`catalog`](super), and its tests hold every row to them.

use volt_telemetry::snapshot::{Duty, GlobalChecks, Snapshot};

use super::metric::{Kind, Metric, ProcessReading, Read, Reading, seconds};
use crate::rates::worker_count;

const RUNTIME: &[&str] = &["runtime"];
const WORKER: &[&str] = &["runtime", "worker"];
const LOCATION: &[&str] = &["runtime", "location"];

/// Those that have a series; a worker of a duty that this reader does not know has 0 in all of
/// them.
const DUTIES: [Duty; 4] = [Duty::Present, Duty::Away, Duty::Blocking, Duty::Off];

/// Every metric, in the order in which `/metrics` and the documentation show them.
pub static METRICS: &[Metric] = &[
    // The program, and the thread that reports on it.
    Metric {
        name: "volt_program_up",
        kind: Kind::Gauge,
        unit: "1",
        help: "1 if the program answered for this page, 0 if it was too slow.",
        labels: &[],
        read: Read::Process(|r| r.push(&[], r.process.is_some())),
    },
    of_observer(
        "volt_observer_clients",
        Kind::Gauge,
        "clients",
        &[],
        "Consoles and exporters attached to the control socket.",
        |r| {
            r.observer(|h| h.clients);
        },
    ),
    of_observer(
        "volt_observer_connections_total",
        Kind::Counter,
        "connections",
        &["reason"],
        "Connections to the control socket, by what became of them: accepted, or refused since there were enough (full), since they came \
         from another user (foreign), or since the kernel gave none (failed).",
        |r| {
            r.observer_by(|h| {
                let accepted = ("accepted", h.accepted);
                [accepted, ("full", h.refused_full), ("foreign", h.refused_foreign), ("failed", h.accept_failures)]
            });
        },
    ),
    of_observer(
        "volt_observer_drops_total",
        Kind::Counter,
        "clients",
        &["reason"],
        "Clients dropped, by why: they sent what is no request (malformed), asked nothing (silent), or did not read (slow).",
        |r| {
            r.observer_by(|h| {
                [("malformed", h.dropped_malformed), ("silent", h.dropped_silent), ("slow", h.dropped_slow)]
            });
        },
    ),
    of_observer(
        "volt_observer_throttles_total",
        Kind::Counter,
        "waits",
        &[],
        "Times that a client had to wait for its next answer, since its answers took more than 2 % of a processor.",
        |r| r.observer(|h| h.throttles),
    ),
    of_observer("volt_observer_snapshots_total", Kind::Counter, "snapshots", &[], "Snapshots sent to clients.", |r| {
        r.observer(|h| h.snapshots);
    }),
    of_observer(
        "volt_observer_snapshot_faults_total",
        Kind::Counter,
        "snapshots",
        &["reason"],
        "Snapshots that clients did not get whole, by why: skipped for a slow one (lost), larger than a frame (cut), or taking it \
         panicked (panicked).",
        |r| {
            r.observer_by(|h| [("lost", h.snapshots_lost), ("cut", h.snapshots_cut), ("panicked", h.snapshot_panics)]);
        },
    ),
    // The runtime as a whole.
    gauge("volt_build_info", "1", &["runtime", "version"], "Is 1; `version` says which Volt this is.", |r| {
        r.one_by(|_| [(env!("CARGO_PKG_VERSION"), 1.0)]);
    }),
    gauge("volt_runtime_info", "1", &["runtime", "backend"], "Is 1; `backend` says what waits for I/O.", |r| {
        r.one_by(|s| [(s.config.io_backend.as_str(), 1.0)]);
    }),
    gauge("volt_runtime_uptime_seconds", "seconds", RUNTIME, "How long ago the runtime was built.", |r| {
        r.one(|s| seconds(s.at_ns.saturating_sub(s.started_at_ns)));
    }),
    gauge("volt_runtime_workers", "workers", RUNTIME, "Workers of the runtime, spares left out.", |r| {
        r.one_of("workers", worker_count);
    }),
    gauge(
        "volt_runtime_searching_workers",
        "workers",
        RUNTIME,
        "Workers that look for work right now, woken ones on their way included.",
        |r| r.one(|s| s.searching),
    ),
    gauge(
        "volt_runtime_snapshot_gaps",
        "fields",
        RUNTIME,
        "Fields that could not be read for this scrape, or had no room in it; what is told of them is missing.",
        |r| r.one(|s| s.incomplete.len()),
    ),
    gauge(
        "volt_doctor_findings",
        "findings",
        &["runtime", "rule", "severity"],
        "What the runtime's doctor finds wrong now, by rule and severity: warning or critical. A finding stays for 30 s after it was last seen, at least; `volt-console doctor` explains it.",
        |r| r.each_rule(),
    ),
    histogram("volt_poll_duration_seconds", "How long polls of tasks took; a poll counts when it has ended.", |r| {
        r.one_of("poll_time", Snapshot::poll_time);
    }),
    histogram("volt_schedule_delay_seconds", "How long tasks waited from their wake-up to their poll.", |r| {
        r.one_of("schedule_delay", Snapshot::schedule_delay);
    }),
    // Tasks.
    counter("volt_tasks_spawned_total", "tasks", RUNTIME, "Tasks that were spawned.", |r| r.one(|s| s.tasks.spawned)),
    counter(
        "volt_tasks_finished_total",
        "tasks",
        &["runtime", "reason"],
        "Tasks that ended, by how: completed, cancelled or panicked.",
        |r| {
            r.one_by(|s| {
                let tasks = &s.tasks;
                [("completed", tasks.completed), ("cancelled", tasks.cancelled), ("panicked", tasks.panicked)]
            });
        },
    ),
    gauge("volt_tasks_alive", "tasks", RUNTIME, "Tasks that live now; grows for ever when tasks leak.", |r| {
        r.one(|s| s.tasks.alive);
    }),
    // Processes, of `volt_process`; not there without a system of them.
    gauge(
        "volt_processes_alive",
        "processes",
        RUNTIME,
        "Processes, state machines with mailboxes, that live now.",
        |r| {
            r.one_known(|s| s.processes.as_ref().map(|all| all.alive));
        },
    ),
    gauge(
        "volt_processes_doing",
        "processes",
        &["runtime", "state"],
        "Processes by what they do: ready for a step, running one, blocked until their yields are completed, or idle until a message comes. Of \
         very many, when they were last looked at.",
        |r| r.each_state(),
    ),
    counter("volt_processes_started_total", "processes", RUNTIME, "Processes that were started.", |r| {
        r.one_known(|s| s.processes.as_ref().map(|all| all.started));
    }),
    counter(
        "volt_processes_ended_total",
        "processes",
        &["runtime", "reason"],
        "Processes that ended, by how: normally (done, or asked to end), or abnormally (failed, panicked, killed).",
        |r| r.each_end(),
    ),
    counter(
        "volt_processes_restarts_total",
        "processes",
        RUNTIME,
        "Of the processes that were started, those that a supervisor started in place of one that had ended.",
        |r| r.one_known(|s| s.processes.as_ref().map(|all| all.restarts)),
    ),
    gauge(
        "volt_mailbox_messages",
        "messages",
        RUNTIME,
        "Messages that wait in the mailboxes of all processes; of very many, when they were last looked at.",
        |r| r.one_known(|s| Some(s.processes.as_ref()?.states?.messages)),
    ),
    gauge(
        "volt_mailbox_deepest_messages",
        "messages",
        RUNTIME,
        "Messages in the deepest mailbox; `volt-console processes` says whose it is.",
        |r| r.one_known(|s| s.processes.as_ref().map(|all| all.deepest.first().map_or(0, |mailbox| mailbox.len))),
    ),
    counter(
        "volt_mailbox_lost_total",
        "messages",
        RUNTIME,
        "Messages that mailboxes dropped or refused since they were full.",
        |r| r.one_known(|s| s.processes.as_ref().map(|all| all.messages_lost)),
    ),
    // The global queue.
    gauge("volt_global_queue_depth", "tasks", RUNTIME, "Tasks in the global queue.", |r| r.one(|s| s.global_queue.len)),
    gauge("volt_global_queue_capacity", "tasks", RUNTIME, "Tasks that the global queue takes from `try_spawn`.", |r| {
        r.one(|s| s.config.global_queue_capacity);
    }),
    gauge(
        "volt_global_queue_oldest_age_seconds",
        "seconds",
        RUNTIME,
        "How long the oldest task in the global queue has waited; 0 when the queue is empty.",
        |r| r.one(|s| seconds(s.global_queue.oldest_age_ns.unwrap_or(0))),
    ),
    gauge(
        "volt_global_queue_target_latency_seconds",
        "seconds",
        RUNTIME,
        "Time between two checks of the global queue by a busy worker; the tuner aims at it.",
        |r| r.one(|s| seconds(s.config.target_global_queue_latency_ns)),
    ),
    counter(
        "volt_global_queue_tasks_total",
        "tasks",
        &["runtime", "reason"],
        "Tasks that went into the global queue: injected from outside the workers, or overflowed from a full ring.",
        |r| {
            r.one_by(|s| [("injected", s.global_queue.injected), ("overflowed", s.global_queue.overflowed)]);
        },
    ),
    // Threads for blocking work.
    gauge("volt_blocking_threads", "threads", &["runtime", "state"], "Threads for blocking work, busy or idle.", |r| {
        r.one_by(|s| {
            let (threads, idle) = (s.blocking.threads, s.blocking.idle_threads);
            [("busy", threads.saturating_sub(idle)), ("idle", idle)]
        });
    }),
    gauge("volt_blocking_threads_max", "threads", RUNTIME, "Threads for blocking work that there may be.", |r| {
        r.one(|s| s.blocking.max_threads);
    }),
    gauge("volt_blocking_queue_depth", "jobs", RUNTIME, "Blocking jobs that wait for a thread.", |r| {
        r.one(|s| s.blocking.queue_len);
    }),
    counter("volt_blocking_jobs_submitted_total", "jobs", RUNTIME, "Blocking jobs that were handed in.", |r| {
        r.one(|s| s.blocking.submitted);
    }),
    counter("volt_blocking_jobs_completed_total", "jobs", RUNTIME, "Blocking jobs that are done.", |r| {
        r.one(|s| s.blocking.completed);
    }),
    // The Tokio runtime of `Builder::tokio_compat`; not there without one.
    gauge(
        "volt_tokio_tasks_alive",
        "tasks",
        RUNTIME,
        "Tasks that live in the Tokio runtime beside it, outside Volt.",
        |r| {
            r.one_known(|s| s.tokio.as_ref().map(|tokio| tokio.tasks));
        },
    ),
    gauge(
        "volt_tokio_queue_depth",
        "tasks",
        RUNTIME,
        "Tasks in the global queue of the Tokio runtime beside it.",
        |r| {
            r.one_known(|s| s.tokio.as_ref().map(|tokio| tokio.queue_len));
        },
    ),
    counter(
        "volt_tokio_busy_seconds_total",
        "seconds",
        RUNTIME,
        "Time in polls of the Tokio runtime beside it; a poll counts when it is over, so one that is stuck does not.",
        |r| r.one_known(|s| s.tokio.as_ref().map(|tokio| seconds(tokio.busy_ns))),
    ),
    // The sentinel.
    counter("volt_sentinel_looks_total", "looks", RUNTIME, "Looks of the sentinel after the workers.", |r| {
        r.one(|s| s.sentinel.looks);
    }),
    counter(
        "volt_sentinel_rescues_total",
        "looks",
        RUNTIME,
        "Looks that woke a worker, for tasks of one stuck in a poll or for timers and I/O that nobody attended.",
        |r| r.one(|s| s.sentinel.rescues),
    ),
    counter(
        "volt_sentinel_tasks_rescued_total",
        "tasks",
        RUNTIME,
        "Tasks taken out of the queues of workers that were declared stuck.",
        |r| r.one(|s| s.sentinel.tasks_rescued),
    ),
    counter(
        "volt_sentinel_preempts_total",
        "polls",
        RUNTIME,
        "Polls that were asked to yield at their next operation.",
        |r| r.one(|s| s.sentinel.preempts),
    ),
    counter(
        "volt_sentinel_replacements_total",
        "workers",
        RUNTIME,
        "Workers that were declared stuck, and replaced if there was a spare.",
        |r| r.one(|s| s.sentinel.replacements),
    ),
    counter(
        "volt_sentinel_capped_total",
        "looks",
        RUNTIME,
        "Looks that wanted a spare worker and found none; while it grows, tasks wait that nobody runs.",
        |r| r.one(|s| s.sentinel.capped),
    ),
    counter(
        "volt_sentinel_pauses_total",
        "looks",
        RUNTIME,
        "Looks that came so late that the whole program must have stood still.",
        |r| r.one(|s| s.sentinel.pauses),
    ),
    counter("volt_sentinel_blocks_total", "calls", RUNTIME, "Calls of `block_in_place`.", |r| {
        r.one(|s| s.sentinel.blocks);
    }),
    counter("volt_sentinel_spare_calls_total", "times", RUNTIME, "Times that a spare worker went on duty.", |r| {
        r.one(|s| s.sentinel.spare_calls)
    }),
    counter(
        "volt_sentinel_spare_failures_total",
        "times",
        RUNTIME,
        "Times that no thread could be started for a spare worker.",
        |r| r.one(|s| s.sentinel.spare_failures),
    ),
    gauge("volt_recorder_on", "1", RUNTIME, "1 while the flight recorder notes things down, else 0.", |r| {
        r.one(|s| u64::from(s.is_recorded));
    }),
    gauge("volt_spare_workers", "workers", RUNTIME, "Spare workers that are on duty beside the others.", |r| {
        r.one(|s| s.sentinel.spares_on_duty);
    }),
    gauge("volt_spare_workers_max", "workers", RUNTIME, "Spare workers that there may be.", |r| {
        r.one(|s| s.sentinel.max_spares);
    }),
    // Polls that did not end in time.
    counter(
        "volt_incidents_total",
        "polls",
        &["runtime", "cause"],
        "Polls that did not end in time, by what held them: the processor, a sleep, a lock, I/O, or the machine.",
        |r| {
            let incidents = &r.snapshot.incidents;
            incidents.counts().for_each(|(cause, count)| r.push(&[cause.name()], count));
        },
    ),
    counter(
        "volt_incidents_suppressed_total",
        "polls",
        RUNTIME,
        "Stalled polls whose record was skipped or delayed because their kind was rate-limited.",
        |r| r.one(|s| s.incidents.suppressed),
    ),
    counter(
        "volt_incidents_evicted_total",
        "polls",
        RUNTIME,
        "Of the polls that did not end in time, those that were written down and have made room for newer ones.",
        |r| r.one(|s| s.incidents.evicted),
    ),
    // Who pays for whom.
    counter(
        "volt_location_delay_caused_seconds_total",
        "seconds",
        LOCATION,
        "How long tasks waited behind polls of tasks spawned here, summed over those that waited.",
        |r| r.each_location(|l| seconds(l.delay_caused_ns)),
    ),
    counter(
        "volt_location_delay_suffered_seconds_total",
        "seconds",
        LOCATION,
        "How long tasks spawned here waited behind polls of others.",
        |r| r.each_location(|l| seconds(l.delay_suffered_ns)),
    ),
    counter(
        "volt_location_stalls_total",
        "polls",
        LOCATION,
        "Polls of tasks spawned here that did not end in time.",
        |r| r.each_location(|l| l.stalls),
    ),
    counter("volt_location_busy_seconds_total", "seconds", LOCATION, "Time in polls of tasks spawned here.", |r| {
        r.each_location(|l| seconds(l.busy_ns));
    }),
    // Timers and the I/O driver.
    gauge("volt_timers_armed", "timers", RUNTIME, "Timers that wait for their deadline.", |r| {
        r.one(|s| s.timers.armed)
    }),
    counter("volt_timers_fired_total", "timers", RUNTIME, "Timers that fired.", |r| r.one(|s| s.timers.fired)),
    gauge("volt_timers_lag_seconds", "seconds", RUNTIME, "How late the timers that fired last were, at worst.", |r| {
        r.one(|s| seconds(s.timers.last_lag_ns))
    }),
    counter("volt_driver_turns_total", "turns", RUNTIME, "Looks at the kernel's list of what is ready.", |r| {
        r.one(|s| s.driver.turns);
    }),
    counter("volt_driver_events_total", "events", RUNTIME, "Readiness events delivered to tasks.", |r| {
        r.one(|s| s.driver.events);
    }),
    gauge("volt_driver_registrations", "sockets", RUNTIME, "Sockets registered with the I/O driver.", |r| {
        r.one(|s| s.driver.registrations);
    }),
    gauge(
        "volt_driver_idle_seconds",
        "seconds",
        RUNTIME,
        "How long ago the I/O driver was last looked at; 0 while a worker waits in it.",
        |r| r.one(|s| seconds(s.driver.idle_ns)),
    ),
    counter(
        "volt_driver_accept_backoffs_total",
        "times",
        RUNTIME,
        "Times that an accept waited because the program was out of file descriptors or memory.",
        |r| r.one(|s| s.driver.accept_backoffs),
    ),
    // The machine.
    gauge(
        "volt_host_processors",
        "processors",
        RUNTIME,
        "Processors that the program may use, by its affinity and its quota.",
        |r| {
            r.one_known(|s| s.host.as_ref().map(|host| host.processors));
        },
    ),
    counter(
        "volt_host_throttles_total",
        "periods",
        RUNTIME,
        "Periods in which the control group was held up since its quota was spent; not there without a quota.",
        |r| r.one_known(|s| s.host.as_ref()?.throttles),
    ),
    counter(
        "volt_host_throttled_seconds_total",
        "seconds",
        RUNTIME,
        "For how long, summed over processors; not there without a quota.",
        |r| r.one_known(|s| s.host.as_ref()?.throttled_ns.map(seconds)),
    ),
    gauge(
        "volt_clock_fast",
        "1",
        RUNTIME,
        "1 while the clock reads the processor's cycle counter, 0 while it reads the system's clock, which takes three times as long. The same for all runtimes of a program.",
        |r| {
            r.one_known(|s| s.clock.as_ref().map(|clock| u64::from(clock.is_fast)));
        },
    ),
    counter(
        "volt_clock_faults_total",
        "faults",
        RUNTIME,
        "Times that the cycle counter stepped back, jumped, stopped or lost the kernel's trust. The clock reads the system's then. The same for all runtimes of a program.",
        |r| r.one_known(|s| s.clock.as_ref().map(|clock| clock.faults)),
    ),
    // Workers: what they do.
    gauge(
        "volt_worker_in_flight_poll_seconds",
        "seconds",
        WORKER,
        "How long the poll that is going on has lasted; 0 between polls. Large while a task blocks its worker.",
        |r| r.each(|w| seconds(w.in_flight.as_ref().map_or(0, |poll| poll.for_ns))),
    ),
    gauge("volt_worker_parked", "1", WORKER, "1 while the worker is parked and nobody has woken it yet.", |r| {
        let snapshot = r.snapshot;
        r.each(|w| snapshot.is_parked(w.index as usize));
    }),
    gauge("volt_worker_in_driver", "1", WORKER, "1 while the worker polls the I/O driver or sleeps in it.", |r| {
        let owner = r.snapshot.driver.owner;
        r.each(|w| owner == Some(w.index));
    }),
    counter(
        "volt_worker_time_seconds_total",
        "seconds",
        &["runtime", "worker", "state"],
        "Where the worker's time went: busy, searching, parked, driver or maintenance. The states add up to its life.",
        |r| {
            r.each_by(|w| {
                [
                    ("busy", seconds(w.busy_ns)),
                    ("searching", seconds(w.searching_ns)),
                    ("parked", seconds(w.parked_ns)),
                    ("driver", seconds(w.driver_ns)),
                    ("maintenance", seconds(w.maintenance_ns)),
                ]
            });
        },
    ),
    gauge(
        "volt_worker_duty",
        "1",
        &["runtime", "worker", "duty"],
        "1 for the worker's duty, 0 for the others: present, away (stuck in a poll), blocking, or off (a spare not needed).",
        |r| r.each_by(|w| DUTIES.map(|duty| (duty.name(), w.duty == duty))),
    ),
    counter(
        "volt_worker_cpu_seconds_total",
        "seconds",
        WORKER,
        "Time that the worker's thread was on a processor, as the kernel says.",
        |r| r.each_known(|w| w.cpu_ns.map(seconds)),
    ),
    counter(
        "volt_worker_run_delay_seconds_total",
        "seconds",
        WORKER,
        "Time that the worker's thread could have run and the kernel ran others.",
        |r| r.each_known(|w| w.run_delay_ns.map(seconds)),
    ),
    counter("volt_worker_polls_total", "polls", WORKER, "Polls of tasks.", |r| r.each(|w| w.polls)),
    counter(
        "volt_worker_ticks_total",
        "ticks",
        WORKER,
        "Ticks: runs of polls between two looks at the I/O driver.",
        |r| {
            r.each(|w| w.ticks);
        },
    ),
    gauge("volt_worker_avg_poll_seconds", "seconds", WORKER, "Moving average (EWMA) of poll time.", |r| {
        r.each(|w| seconds(w.avg_poll_ns));
    }),
    gauge("volt_worker_budget_left", "polls", WORKER, "Polls left in this tick.", |r| r.each(|w| w.budget_left)),
    counter(
        "volt_worker_budget_exhausted_total",
        "ticks",
        WORKER,
        "Ticks that ended because their budget was spent.",
        |r| {
            r.each(|w| w.budget_exhausted);
        },
    ),
    counter(
        "volt_worker_coop_yields_total",
        "yields",
        WORKER,
        "Times that a task was made to yield because its cooperative budget was spent.",
        |r| r.each(|w| w.coop_yields),
    ),
    // Workers: their queues.
    gauge(
        "volt_worker_queue_depth",
        "tasks",
        &["runtime", "worker", "queue"],
        "Tasks that wait at the worker: in its ring, in its batch buffer, in its inbox, in its LIFO slot.",
        |r| {
            r.each_by(|w| {
                [
                    ("ring", w.ring_len),
                    ("batch", w.batch_len),
                    ("inbox", w.inbox_len),
                    ("lifo", u32::from(w.is_lifo_filled)),
                ]
            });
        },
    ),
    counter("volt_worker_lifo_hits_total", "tasks", WORKER, "Tasks run from the LIFO slot.", |r| {
        r.each(|w| w.lifo_hits)
    }),
    counter(
        "volt_worker_lifo_evictions_total",
        "tasks",
        WORKER,
        "Tasks that a newer one pushed out of the LIFO slot into the ring.",
        |r| r.each(|w| w.lifo_evictions),
    ),
    counter(
        "volt_worker_lifo_cap_flushes_total",
        "times",
        WORKER,
        "Times that the LIFO slot was flushed into the ring because its cap was reached.",
        |r| r.each(|w| w.lifo_cap_flushes),
    ),
    gauge("volt_worker_lifo_polls", "polls", WORKER, "Polls from the LIFO slot in this tick.", |r| {
        r.each(|w| w.lifo_polls_this_tick);
    }),
    counter(
        "volt_worker_overflows_total",
        "times",
        WORKER,
        "Times that the ring was full and half of it went to the global queue.",
        |r| r.each(|w| w.overflows),
    ),
    counter(
        "volt_worker_tasks_overflowed_total",
        "tasks",
        WORKER,
        "Tasks that went from a full ring to the global queue.",
        |r| r.each(|w| w.tasks_overflowed),
    ),
    // Workers: stealing.
    counter("volt_worker_steal_attempts_total", "attempts", WORKER, "Other workers looked at for work.", |r| {
        r.each(|w| w.steal_attempts);
    }),
    counter("volt_worker_steals_total", "attempts", WORKER, "Attempts to steal that brought something.", |r| {
        r.each(|w| w.steals);
    }),
    counter(
        "volt_worker_steal_races_lost_total",
        "attempts",
        WORKER,
        "Attempts to steal that lost to another thief or to the owner.",
        |r| r.each(|w| w.steal_races_lost),
    ),
    counter("volt_worker_tasks_stolen_total", "tasks", WORKER, "Tasks taken from other workers.", |r| {
        r.each(|w| w.tasks_stolen);
    }),
    counter("volt_worker_tasks_given_total", "tasks", WORKER, "Tasks that other workers took from this one.", |r| {
        r.each(|w| w.tasks_given);
    }),
    // Workers: the global queue.
    counter(
        "volt_worker_global_checks_total",
        "checks",
        &["runtime", "worker", "trigger"],
        "Checks of the global queue, by trigger: as many local polls as the interval had passed (interval), the target latency had passed \
         earlier (elapsed), or the worker had nothing left to poll (empty).",
        |r| r.each_by_known(|w| w.global_checks.as_ref().map(GlobalChecks::by_trigger)),
    ),
    counter(
        "volt_worker_global_check_polls_total",
        "polls",
        WORKER,
        "Local polls before the checks of the global queue that came between local polls; divided by these checks (trigger interval and \
         elapsed) the average spacing, to be read beside the interval.",
        |r| r.each_known(|w| w.global_check_polls),
    ),
    counter(
        "volt_worker_global_batches_total",
        "batches",
        WORKER,
        "Checks of the global queue that took tasks.",
        |r| {
            r.each(|w| w.global_batches);
        },
    ),
    counter("volt_worker_global_tasks_total", "tasks", WORKER, "Tasks taken from the global queue.", |r| {
        r.each(|w| w.global_tasks);
    }),
    gauge(
        "volt_worker_global_queue_interval",
        "polls",
        WORKER,
        "Local polls between two checks of the global queue: the target latency divided by the average poll time, within its bounds.",
        |r| r.each(|w| w.global_queue_interval),
    ),
    // Workers: sleeping and waking.
    counter("volt_worker_parks_total", "times", WORKER, "Times that the worker went to sleep.", |r| {
        r.each(|w| w.parks)
    }),
    counter(
        "volt_worker_unparks_total",
        "times",
        &["runtime", "worker", "reason"],
        "Times that the worker woke up, by why: notified, timeout, io, timer or spurious.",
        |r| r.each_by(|w| w.unparks.by_reason()),
    ),
    counter(
        "volt_worker_spins_total",
        "spins",
        &["runtime", "worker", "outcome"],
        "Times that the worker stayed awake for a moment before a sleep, by what came of it: it was woken (helped), or went to sleep after all \
         (in_vain).",
        |r| r.each_by(|w| [("helped", w.spins_helped), ("in_vain", w.spins_in_vain)]),
    ),
    counter("volt_worker_wakes_sent_total", "wakes", WORKER, "Workers that this worker woke.", |r| {
        r.each(|w| w.wakes_sent);
    }),
    counter(
        "volt_worker_lost_wakeup_rescues_total",
        "times",
        WORKER,
        "Park time-outs that found work nobody had woken the worker for; above 0 is a fault in Volt.",
        |r| r.each(|w| w.lost_wakeup_rescues),
    ),
];

const fn counter(
    name: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&mut Reading<'_>),
) -> Metric {
    Metric { name, kind: Kind::Counter, unit, help, labels, read: Read::Runtime(read) }
}

const fn gauge(
    name: &'static str,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&mut Reading<'_>),
) -> Metric {
    Metric { name, kind: Kind::Gauge, unit, help, labels, read: Read::Runtime(read) }
}

const fn histogram(name: &'static str, help: &'static str, read: fn(&mut Reading<'_>)) -> Metric {
    Metric { name, kind: Kind::Histogram, unit: "seconds", help, labels: RUNTIME, read: Read::Runtime(read) }
}

const fn of_observer(
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
    read: fn(&mut ProcessReading<'_>),
) -> Metric {
    Metric { name, kind, unit, help, labels, read: Read::Process(read) }
}
