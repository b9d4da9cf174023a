//! The rows of the catalog: every metric, with its name, unit, labels, help and how to read it.
//!
//! Add a row here, and nowhere else, for a new number of a snapshot. The rules for rows are in the
//! header of [`catalog`](super), and its tests check them for every row.

use volt_telemetry::snapshot::{Duty, GlobalChecks, Snapshot};

use super::metric::{Kind, Metric, ProgramReading, Read, Reading, seconds};
use crate::rates::worker_count;

const RUNTIME: &[&str] = &["runtime"];
const WORKER: &[&str] = &["runtime", "worker"];
const LOCATION: &[&str] = &["runtime", "location"];
const ROUTE: &[&str] = &["runtime", "method", "route"];

/// The values of `duty` that have a series. A worker with a value that is unknown to this reader is
/// 0 in all of them.
const DUTIES: [Duty; 4] = [Duty::Present, Duty::Stuck, Duty::Blocking, Duty::Off];

/// Every metric, in the order in which `/metrics` and the documentation show them.
pub static METRICS: &[Metric] = &[
    // The program, and the thread that reports on it.
    Metric {
        name: "volt_program_up",
        kind: Kind::Gauge,
        unit: "1",
        help: "1 if the program responded to this scrape, 0 if it timed out.",
        labels: &[],
        read: Read::Program(|r| r.push(&[], r.program.is_some())),
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
        "Connections to the control socket by outcome: accepted, limit reached (full), another user (foreign), or \
         an error of the kernel (failed).",
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
        "Clients that the control socket disconnected, by reason: an invalid request (malformed), no request in \
         time (silent), or a client that did not read (slow).",
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
        "Responses that were delayed because a client had used more than 2 % of a processor.",
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
        "Snapshots that were incomplete or missing, by reason: slow client (lost), size limit (cut), or a panic \
         during collection (panicked).",
        |r| {
            r.observer_by(|h| [("lost", h.snapshots_lost), ("cut", h.snapshots_cut), ("panicked", h.snapshot_panics)]);
        },
    ),
    // The runtime as a whole.
    gauge(
        "volt_build_info",
        "1",
        &["runtime", "version"],
        "Always 1; the label `version` is the version of Volt.",
        |r| {
            r.one_by(|_| [(env!("CARGO_PKG_VERSION"), 1.0)]);
        },
    ),
    gauge(
        "volt_runtime_info",
        "1",
        &["runtime", "backend"],
        "Always 1; the label `backend` is the I/O driver's backend.",
        |r| {
            r.one_by(|s| [(s.config.io_backend.as_str(), 1.0)]);
        },
    ),
    gauge("volt_runtime_uptime_seconds", "seconds", RUNTIME, "Time since the runtime started.", |r| {
        r.one(|s| seconds(s.at_ns.saturating_sub(s.started_at_ns)));
    }),
    gauge("volt_runtime_workers", "workers", RUNTIME, "Workers of the runtime, without spare workers.", |r| {
        r.one_of("workers", worker_count);
    }),
    gauge(
        "volt_runtime_searching_workers",
        "workers",
        RUNTIME,
        "Workers that are searching for tasks, including those that were woken to search.",
        |r| r.one(|s| s.searching),
    ),
    gauge(
        "volt_runtime_snapshot_gaps",
        "fields",
        RUNTIME,
        "Fields missing from this scrape because they could not be read or exceeded the size limit.",
        |r| r.one(|s| s.incomplete.len()),
    ),
    gauge(
        "volt_doctor_findings",
        "findings",
        &["runtime", "rule", "severity"],
        "Current warnings and critical findings of the doctor, by rule. They remain for at least 30 s after they \
         were last seen. Details: `volt-console doctor`.",
        |r| r.each_rule(),
    ),
    histogram("volt_poll_duration_seconds", "Duration of completed polls of tasks.", |r| {
        r.one_of("poll_time", Snapshot::poll_time);
    }),
    histogram("volt_schedule_delay_seconds", "Time from a task's wake-up to its poll.", |r| {
        r.one_of("schedule_delay", Snapshot::schedule_delay);
    }),
    // Tasks.
    counter("volt_tasks_spawned_total", "tasks", RUNTIME, "Tasks spawned.", |r| r.one(|s| s.tasks.spawned)),
    counter(
        "volt_tasks_finished_total",
        "tasks",
        &["runtime", "reason"],
        "Tasks that ended, by reason: completed, cancelled or panicked.",
        |r| {
            r.one_by(|s| {
                let tasks = &s.tasks;
                [("completed", tasks.completed), ("cancelled", tasks.cancelled), ("panicked", tasks.panicked)]
            });
        },
    ),
    gauge("volt_tasks_alive", "tasks", RUNTIME, "Live tasks. Grows without bound if tasks leak.", |r| {
        r.one(|s| s.tasks.alive);
    }),
    // Processes, of `volt_process`; absent without a process system.
    gauge(
        "volt_processes_alive",
        "processes",
        RUNTIME,
        "Live processes. A process is an actor with a mailbox (crate volt-process).",
        |r| {
            r.one_known(|s| s.processes.as_ref().map(|all| all.alive));
        },
    ),
    gauge(
        "volt_processes_doing",
        "processes",
        &["runtime", "state"],
        "Processes by state: ready for a step, running a step, blocked on an operation, or idle until a message \
         arrives. Sampled if there are very many processes.",
        |r| r.each_state(),
    ),
    counter("volt_processes_started_total", "processes", RUNTIME, "Processes started.", |r| {
        r.one_known(|s| s.processes.as_ref().map(|all| all.started));
    }),
    counter(
        "volt_processes_finished_total",
        "processes",
        &["runtime", "reason"],
        "Processes that ended, by reason: normal (completed or stopped on request) or abnormal (failed, panicked \
         or killed).",
        |r| r.each_end(),
    ),
    counter(
        "volt_processes_restarts_total",
        "processes",
        RUNTIME,
        "Processes that a supervisor started as a replacement. Also counted in volt_processes_started_total.",
        |r| r.one_known(|s| s.processes.as_ref().map(|all| all.restarts)),
    ),
    gauge(
        "volt_mailbox_messages",
        "messages",
        RUNTIME,
        "Messages waiting in all mailboxes. Sampled if there are very many processes.",
        |r| r.one_known(|s| Some(s.processes.as_ref()?.states?.messages)),
    ),
    gauge(
        "volt_mailbox_deepest_messages",
        "messages",
        RUNTIME,
        "Messages in the fullest mailbox. Run `volt-console processes` to find its process.",
        |r| r.one_known(|s| s.processes.as_ref().map(|all| all.deepest.first().map_or(0, |mailbox| mailbox.len))),
    ),
    counter("volt_mailbox_lost_total", "messages", RUNTIME, "Messages that full mailboxes dropped or refused.", |r| {
        r.one_known(|s| s.processes.as_ref().map(|all| all.messages_lost))
    }),
    // The global queue.
    gauge("volt_global_queue_depth", "tasks", RUNTIME, "Tasks in the global queue.", |r| r.one(|s| s.global_queue.len)),
    gauge("volt_global_queue_capacity", "tasks", RUNTIME, "Limit of the global queue for `try_spawn`.", |r| {
        r.one(|s| s.config.global_queue_capacity);
    }),
    gauge(
        "volt_global_queue_oldest_age_seconds",
        "seconds",
        RUNTIME,
        "Time that the oldest task in the global queue has waited; 0 if the queue is empty.",
        |r| r.one(|s| seconds(s.global_queue.oldest_age_ns.unwrap_or(0))),
    ),
    gauge(
        "volt_global_queue_target_latency_seconds",
        "seconds",
        RUNTIME,
        "Intended time between two checks of the global queue by a busy worker. The tuner adapts the interval to \
         it.",
        |r| r.one(|s| seconds(s.config.target_global_queue_latency_ns)),
    ),
    counter(
        "volt_global_queue_tasks_total",
        "tasks",
        &["runtime", "reason"],
        "Tasks added to the global queue, by reason: spawned or woken outside the workers (injected), or moved from \
         a full local queue (overflowed).",
        |r| {
            r.one_by(|s| [("injected", s.global_queue.injected), ("overflowed", s.global_queue.overflowed)]);
        },
    ),
    // Threads of the blocking pool.
    gauge(
        "volt_blocking_threads",
        "threads",
        &["runtime", "state"],
        "Threads of the blocking pool by state: busy or idle.",
        |r| {
            r.one_by(|s| {
                let (threads, idle) = (s.blocking.threads, s.blocking.idle_threads);
                [("busy", threads.saturating_sub(idle)), ("idle", idle)]
            });
        },
    ),
    gauge("volt_blocking_threads_max", "threads", RUNTIME, "Maximum number of threads in the blocking pool.", |r| {
        r.one(|s| s.blocking.max_threads);
    }),
    gauge("volt_blocking_queue_depth", "jobs", RUNTIME, "Blocking jobs that wait for a thread.", |r| {
        r.one(|s| s.blocking.queue_len);
    }),
    counter("volt_blocking_jobs_submitted_total", "jobs", RUNTIME, "Blocking jobs submitted.", |r| {
        r.one(|s| s.blocking.submitted);
    }),
    counter("volt_blocking_jobs_completed_total", "jobs", RUNTIME, "Blocking jobs completed.", |r| {
        r.one(|s| s.blocking.completed);
    }),
    // The Tokio runtime of `Builder::tokio_compat`; absent without one.
    gauge(
        "volt_tokio_tasks_alive",
        "tasks",
        RUNTIME,
        "Tasks alive in the Tokio runtime that runs beside this one for compatibility.",
        |r| {
            r.one_known(|s| s.tokio.as_ref().map(|tokio| tokio.tasks));
        },
    ),
    gauge(
        "volt_tokio_queue_depth",
        "tasks",
        RUNTIME,
        "Tasks in the global queue of the Tokio runtime that runs beside this one.",
        |r| {
            r.one_known(|s| s.tokio.as_ref().map(|tokio| tokio.queue_len));
        },
    ),
    counter(
        "volt_tokio_busy_seconds_total",
        "seconds",
        RUNTIME,
        "Time that the Tokio runtime beside this one spent in completed polls. A stuck poll is not included.",
        |r| r.one_known(|s| s.tokio.as_ref().map(|tokio| seconds(tokio.busy_ns))),
    ),
    // The sentinel.
    counter("volt_sentinel_checks_total", "checks", RUNTIME, "Checks of all workers by the sentinel.", |r| {
        r.one(|s| s.sentinel.checks);
    }),
    counter(
        "volt_sentinel_rescues_total",
        "checks",
        RUNTIME,
        "Checks in which the sentinel woke a worker, to run tasks of a stuck worker or to poll neglected timers and \
         I/O.",
        |r| r.one(|s| s.sentinel.rescues),
    ),
    counter(
        "volt_sentinel_tasks_rescued_total",
        "tasks",
        RUNTIME,
        "Tasks that the sentinel moved out of the queues of stuck workers.",
        |r| r.one(|s| s.sentinel.tasks_rescued),
    ),
    counter(
        "volt_sentinel_preempts_total",
        "polls",
        RUNTIME,
        "Polls that the sentinel preempted: their next operation yields.",
        |r| r.one(|s| s.sentinel.preempts),
    ),
    counter(
        "volt_sentinel_replacements_total",
        "workers",
        RUNTIME,
        "Times that the sentinel declared a worker stuck, since no worker was parked to take over. A spare worker \
         replaces it if one is available.",
        |r| r.one(|s| s.sentinel.replacements),
    ),
    counter(
        "volt_sentinel_capped_total",
        "checks",
        RUNTIME,
        "Checks in which the sentinel needed a spare worker, and none was available. While it grows, tasks may wait \
         for a worker.",
        |r| r.one(|s| s.sentinel.capped),
    ),
    counter(
        "volt_sentinel_pauses_total",
        "checks",
        RUNTIME,
        "Checks that ran so late that the whole program must have been paused.",
        |r| r.one(|s| s.sentinel.pauses),
    ),
    counter("volt_sentinel_blocks_total", "calls", RUNTIME, "Calls of `block_in_place`.", |r| {
        r.one(|s| s.sentinel.blocks);
    }),
    counter(
        "volt_sentinel_spare_calls_total",
        "times",
        RUNTIME,
        "Times that a spare worker started to replace a worker.",
        |r| r.one(|s| s.sentinel.spare_calls),
    ),
    counter(
        "volt_sentinel_spare_failures_total",
        "times",
        RUNTIME,
        "Times that the thread of a spare worker could not be started.",
        |r| r.one(|s| s.sentinel.spare_failures),
    ),
    gauge("volt_recorder_on", "1", RUNTIME, "1 while the flight recorder records events, else 0.", |r| {
        r.one(|s| u64::from(s.is_recorded));
    }),
    gauge(
        "volt_spare_workers",
        "workers",
        RUNTIME,
        "Spare workers that are replacing stuck or blocking workers.",
        |r| {
            r.one(|s| s.sentinel.spares_in_use);
        },
    ),
    gauge("volt_spare_workers_max", "workers", RUNTIME, "Maximum number of spare workers.", |r| {
        r.one(|s| s.sentinel.max_spares);
    }),
    // Incidents.
    counter(
        "volt_incidents_total",
        "polls",
        &["runtime", "cause"],
        "Stuck polls by cause: cpu (the task computed), sleep, lock, io, page_in, not_scheduled, throttled, stopped, \
         unknown.",
        |r| {
            let incidents = &r.snapshot.incidents;
            incidents.counts().for_each(|(cause, count)| r.push(&[cause.name()], count));
        },
    ),
    counter(
        "volt_incidents_suppressed_total",
        "polls",
        RUNTIME,
        "Stuck polls whose record was skipped or delayed by the rate limit for their cause and location.",
        |r| r.one(|s| s.incidents.suppressed),
    ),
    counter(
        "volt_incidents_evicted_total",
        "polls",
        RUNTIME,
        "Recorded stuck polls that were overwritten by newer ones.",
        |r| r.one(|s| s.incidents.evicted),
    ),
    // Delay by spawn location.
    counter(
        "volt_location_delay_caused_seconds_total",
        "seconds",
        LOCATION,
        "Time that other tasks waited behind polls of tasks spawned at this location that lasted 1 ms or longer, \
         summed over the waiting tasks.",
        |r| r.each_location(|l| seconds(l.delay_caused_ns)),
    ),
    counter(
        "volt_location_delay_suffered_seconds_total",
        "seconds",
        LOCATION,
        "Time that tasks spawned at this location waited behind polls of other tasks that lasted 1 ms or longer.",
        |r| r.each_location(|l| seconds(l.delay_suffered_ns)),
    ),
    counter("volt_location_stalls_total", "polls", LOCATION, "Stuck polls of tasks spawned at this location.", |r| {
        r.each_location(|l| l.stalls)
    }),
    counter(
        "volt_location_busy_seconds_total",
        "seconds",
        LOCATION,
        "Time spent in polls of tasks spawned at this location.",
        |r| {
            r.each_location(|l| seconds(l.busy_ns));
        },
    ),
    // HTTP requests by route; absent without a server that counts them.
    counter(
        "volt_route_requests_total",
        "requests",
        &["runtime", "method", "route", "reason"],
        "HTTP requests that ended, by reason: succeeded (status below 500), failed, or abandoned (no response). The \
         route metrics count at most 256 routes per runtime separately, and the requests of all others as `other`.",
        |r| r.each_route_end(),
    ),
    gauge("volt_route_requests_active", "requests", ROUTE, "HTTP requests that are being handled.", |r| {
        r.each_route(|route| route.active)
    }),
    Metric {
        labels: ROUTE,
        ..histogram(
            "volt_route_duration_seconds",
            "Time from the call of an HTTP handler to its response, without the body.",
            |r| r.each_route_duration(),
        )
    },
    counter(
        "volt_route_busy_seconds_total",
        "seconds",
        ROUTE,
        "Time spent in polls of HTTP handlers, on workers.",
        |r| r.each_route(|route| seconds(route.busy_ns)),
    ),
    counter(
        "volt_route_delay_seconds_total",
        "seconds",
        ROUTE,
        "Time that the tasks of HTTP requests were ready to run and waited for a worker.",
        |r| r.each_route(|route| seconds(route.delay_ns)),
    ),
    // Timers and the I/O driver.
    gauge("volt_timers_armed", "timers", RUNTIME, "Timers waiting for their deadline.", |r| r.one(|s| s.timers.armed)),
    counter("volt_timers_fired_total", "timers", RUNTIME, "Timers that fired.", |r| r.one(|s| s.timers.fired)),
    gauge(
        "volt_timers_lag_seconds",
        "seconds",
        RUNTIME,
        "Largest delay past the deadline among the timers that fired last.",
        |r| r.one(|s| seconds(s.timers.last_lag_ns)),
    ),
    counter("volt_driver_polls_total", "polls", RUNTIME, "Polls of the I/O driver.", |r| {
        r.one(|s| s.driver.polls);
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
        "Time since the I/O driver was last polled; 0 while a worker waits in it.",
        |r| r.one(|s| seconds(s.driver.idle_ns)),
    ),
    counter(
        "volt_driver_accept_backoffs_total",
        "times",
        RUNTIME,
        "Times that an accept paused because the program was out of file descriptors or memory.",
        |r| r.one(|s| s.driver.accept_backoffs),
    ),
    // The machine.
    gauge(
        "volt_host_processors",
        "processors",
        RUNTIME,
        "Processors available to the program, according to its affinity and CPU quota.",
        |r| {
            r.one_known(|s| s.host.as_ref().map(|host| host.processors));
        },
    ),
    counter(
        "volt_host_throttles_total",
        "periods",
        RUNTIME,
        "Periods in which the kernel throttled the program's control group because its CPU quota was used up. \
         Absent without a quota.",
        |r| r.one_known(|s| s.host.as_ref()?.throttles),
    ),
    counter(
        "volt_host_throttled_seconds_total",
        "seconds",
        RUNTIME,
        "Time that the kernel throttled the program's control group, summed over processors. Absent without a \
         quota.",
        |r| r.one_known(|s| s.host.as_ref()?.throttled_ns.map(seconds)),
    ),
    gauge(
        "volt_clock_fast",
        "1",
        RUNTIME,
        "1 while the clock reads the processor's cycle counter, 0 while it reads the slower system clock. The same \
         for all runtimes of a program.",
        |r| {
            r.one_known(|s| s.clock.as_ref().map(|clock| u64::from(clock.is_fast)));
        },
    ),
    counter(
        "volt_clock_faults_total",
        "faults",
        RUNTIME,
        "Times that the cycle counter failed and the clock used the system clock instead. The same for all \
         runtimes of a program.",
        |r| r.one_known(|s| s.clock.as_ref().map(|clock| clock.faults)),
    ),
    // Workers: time and polls.
    gauge(
        "volt_worker_in_flight_poll_seconds",
        "seconds",
        WORKER,
        "Duration so far of the poll in progress; 0 between polls. Large while a task blocks its worker.",
        |r| r.each(|w| seconds(w.in_flight.as_ref().map_or(0, |poll| poll.for_ns))),
    ),
    gauge(
        "volt_worker_parked",
        "1",
        WORKER,
        "1 while the worker is parked, in the I/O driver or elsewhere, and has not been woken, else 0.",
        |r| {
            let snapshot = r.snapshot;
            r.each(|w| snapshot.is_parked(w.index as usize));
        },
    ),
    gauge(
        "volt_worker_in_driver",
        "1",
        WORKER,
        "1 while the worker polls the I/O driver or waits in it, else 0.",
        |r| {
            let owner = r.snapshot.driver.owner;
            r.each(|w| owner == Some(w.index));
        },
    ),
    counter(
        "volt_worker_time_seconds_total",
        "seconds",
        &["runtime", "worker", "state"],
        "Time by state: busy (polling tasks and taking them from its own queues), searching, parked, driver (parked \
         in it), maintenance (timers, I/O, statistics). They add up to the worker's lifetime.",
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
        "1 for the worker's state, 0 for the others: present, stuck (declared stuck in a poll), blocking (in \
         `block_in_place`), or off (not needed).",
        |r| r.each_by(|w| DUTIES.map(|duty| (duty.name(), w.duty == duty))),
    ),
    counter(
        "volt_worker_cpu_seconds_total",
        "seconds",
        WORKER,
        "Processor time of the worker's thread, measured by the kernel.",
        |r| r.each_known(|w| w.cpu_ns.map(seconds)),
    ),
    counter(
        "volt_worker_run_delay_seconds_total",
        "seconds",
        WORKER,
        "Time that the worker's thread was runnable but waited for a processor, measured by the kernel.",
        |r| r.each_known(|w| w.run_delay_ns.map(seconds)),
    ),
    counter("volt_worker_polls_total", "polls", WORKER, "Polls of tasks.", |r| r.each(|w| w.polls)),
    counter(
        "volt_worker_ticks_total",
        "ticks",
        WORKER,
        "Ticks: series of at most `budget_per_tick` polls. Before each, the worker polls the I/O driver if that is \
         due.",
        |r| {
            r.each(|w| w.ticks);
        },
    ),
    gauge("volt_worker_avg_poll_seconds", "seconds", WORKER, "Moving average (EWMA) of the duration of polls.", |r| {
        r.each(|w| seconds(w.avg_poll_ns));
    }),
    gauge("volt_worker_budget_left", "polls", WORKER, "Polls left in the current tick.", |r| r.each(|w| w.budget_left)),
    counter(
        "volt_worker_budget_exhausted_total",
        "ticks",
        WORKER,
        "Ticks that ended because their budget of polls was used up.",
        |r| {
            r.each(|w| w.budget_exhausted);
        },
    ),
    counter(
        "volt_worker_coop_yields_total",
        "yields",
        WORKER,
        "Times that a task yielded because its cooperative budget was used up, or because the sentinel preempted it.",
        |r| r.each(|w| w.coop_yields),
    ),
    // Workers: their queues.
    gauge(
        "volt_worker_queue_depth",
        "tasks",
        &["runtime", "worker", "queue"],
        "Tasks waiting at the worker by queue: ring (local queue), batch (from the global queue), inbox (placed from \
         outside), lifo (polled before the ring).",
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
    counter("volt_worker_lifo_hits_total", "tasks", WORKER, "Tasks polled from the LIFO slot.", |r| {
        r.each(|w| w.lifo_hits)
    }),
    counter(
        "volt_worker_lifo_evictions_total",
        "tasks",
        WORKER,
        "Tasks that a newer task moved from the LIFO slot to the ring.",
        |r| r.each(|w| w.lifo_evictions),
    ),
    counter(
        "volt_worker_lifo_cap_flushes_total",
        "times",
        WORKER,
        "Times that the LIFO slot was flushed to the ring because its limit of polls per tick was reached.",
        |r| r.each(|w| w.lifo_cap_flushes),
    ),
    gauge("volt_worker_lifo_polls", "polls", WORKER, "Polls from the LIFO slot in the current tick.", |r| {
        r.each(|w| w.lifo_polls_this_tick);
    }),
    counter(
        "volt_worker_overflows_total",
        "times",
        WORKER,
        "Times that the ring was full and half of it moved to the global queue.",
        |r| r.each(|w| w.overflows),
    ),
    counter(
        "volt_worker_tasks_overflowed_total",
        "tasks",
        WORKER,
        "Tasks that moved from the full ring to the global queue.",
        |r| r.each(|w| w.tasks_overflowed),
    ),
    // Workers: stealing.
    counter(
        "volt_worker_steal_attempts_total",
        "attempts",
        WORKER,
        "Attempts to steal tasks from another worker.",
        |r| {
            r.each(|w| w.steal_attempts);
        },
    ),
    counter("volt_worker_steals_total", "attempts", WORKER, "Attempts to steal that succeeded.", |r| {
        r.each(|w| w.steals);
    }),
    counter(
        "volt_worker_steal_races_lost_total",
        "attempts",
        WORKER,
        "Attempts to steal that failed because another thief or the owner was faster.",
        |r| r.each(|w| w.steal_races_lost),
    ),
    counter("volt_worker_tasks_stolen_total", "tasks", WORKER, "Tasks stolen from other workers.", |r| {
        r.each(|w| w.tasks_stolen);
    }),
    counter("volt_worker_tasks_given_total", "tasks", WORKER, "Tasks that other workers stole from this one.", |r| {
        r.each(|w| w.tasks_given);
    }),
    // Workers: the global queue.
    counter(
        "volt_worker_global_checks_total",
        "checks",
        &["runtime", "worker", "trigger"],
        "Checks of the global queue by trigger: number of local polls (interval), target latency (elapsed), or no \
         local tasks left (empty).",
        |r| r.each_by_known(|w| w.global_checks.as_ref().map(GlobalChecks::by_trigger)),
    ),
    counter(
        "volt_worker_global_check_polls_total",
        "polls",
        WORKER,
        "Local polls before checks of the global queue with trigger interval or elapsed. Divided by the number of \
         these checks, it is their average spacing in polls.",
        |r| r.each_known(|w| w.global_check_polls),
    ),
    counter(
        "volt_worker_global_batches_total",
        "batches",
        WORKER,
        "Checks of the global queue that found tasks.",
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
        "Local polls between two checks of the global queue: the target latency divided by the average duration of \
         a poll, within its bounds.",
        |r| r.each(|w| w.global_queue_interval),
    ),
    // Workers: parking and waking.
    counter("volt_worker_parks_total", "times", WORKER, "Times that the worker parked.", |r| r.each(|w| w.parks)),
    counter(
        "volt_worker_unparks_total",
        "times",
        &["runtime", "worker", "reason"],
        "Times that the worker woke up, by reason: notified, timeout, io, timer or spurious.",
        |r| r.each_by(|w| w.unparks.by_reason()),
    ),
    counter(
        "volt_worker_spins_total",
        "spins",
        &["runtime", "worker", "outcome"],
        "Times that the worker spun before it parked, by outcome: it was woken while it spun (helped), or it parked \
         (in_vain).",
        |r| r.each_by(|w| [("helped", w.spins_helped), ("in_vain", w.spins_in_vain)]),
    ),
    counter("volt_worker_wakes_sent_total", "wakes", WORKER, "Times that this worker woke another worker.", |r| {
        r.each(|w| w.wakes_sent);
    }),
    counter(
        "volt_worker_lost_wakeup_rescues_total",
        "times",
        WORKER,
        "Parks that timed out although a task was waiting, without a wake-up for it. Above 0, report a bug in Volt.",
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
    read: fn(&mut ProgramReading<'_>),
) -> Metric {
    Metric { name, kind, unit, help, labels, read: Read::Program(read) }
}
