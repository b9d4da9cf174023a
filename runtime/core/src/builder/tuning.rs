//! The settings that few programs need: the scheduler, the driver, the sentinel and the recorder.
//!
//! The defaults suit most programs. The documentation of each setting therefore states when to
//! change it, in which direction, and which metric shows whether that helped. [`crate::config`] has
//! the reasons for the defaults.

use std::path::PathBuf;
use std::time::Duration;

use super::Builder;
use crate::clock;
use crate::config::{self, Backend, ParkSpin, Placement};
use crate::coop;

/// # Tuning
///
/// Most programs need none of these settings. Change one only if a metric or a finding of
/// `volt-console doctor` points to it, and compare the metric named in its description before and
/// after. Each description states the unit, the bounds and the default.
///
/// The defaults assume tasks whose polls take from a microsecond to about 100 µs, with a few long
/// ones, on a machine that the program shares with others. They favour short delays for tasks that
/// come from outside the workers over the last percent of throughput. The *sentinel*, a thread that
/// watches the workers, bounds the damage of polls that block, so no default need be changed
/// because of them.
impl Builder {
    /// Sets how many polls a worker runs before it checks timers, I/O and statistics: 1 to 65,536
    /// polls, default 128. Lower it if timers or sockets react late while workers are busy; raise
    /// it if polls take well under a microsecond and the checks show up in a profile.
    /// `volt_worker_ticks_total` counts the checks, and `volt_worker_budget_exhausted_total` those
    /// that the budget caused.
    pub fn budget_per_tick(mut self, polls: u32) -> Self {
        self.config.budget_per_tick = polls;
        self
    }

    /// Sets [`budget_per_tick`](Self::budget_per_tick) under Tokio's name: how many polls a worker
    /// runs before it checks timers and I/O. An interval above 65,536 counts as 65,536.
    ///
    /// # Panics
    /// Panics if `interval` is 0.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).event_interval(61).build()?;
    /// assert_eq!(runtime.handle().snapshot().config.budget_per_tick, 61);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn event_interval(self, interval: u32) -> Self {
        assert!(interval > 0, "event_interval must be greater than 0");
        self.budget_per_tick(interval.min(config::MAX_BUDGET_PER_TICK))
    }

    /// Sets how many operations on sockets, timers, locks, channels and join handles a task may
    /// complete in one poll before it must yield: at least 1, default 128. Lower it if a few busy
    /// tasks keep others waiting; raise it if tasks that handle many ready items spend their time
    /// on yields. `volt_worker_coop_yields_total` counts the forced yields.
    pub fn coop_budget(mut self, operations: u32) -> Self {
        // The largest number means no limit, to which the sentinel's requests do not apply.
        self.config.coop_budget = operations.min(coop::UNLIMITED - 1);
        self
    }

    /// Sets how many polls of a tick may come from the LIFO slot, which runs the most recently
    /// woken task next: 0 to one less than [`budget_per_tick`](Self::budget_per_tick). Default 3,
    /// or less if the budget is smaller. 0 disables the slot. Raise it if pairs of tasks exchange
    /// many messages; lower it if such pairs delay other tasks. `volt_worker_lifo_hits_total`
    /// counts the polls from the slot, and `volt_worker_lifo_cap_flushes_total` how often the limit
    /// was reached.
    pub fn max_lifo_polls_per_tick(mut self, polls: u32) -> Self {
        self.config.max_lifo_polls_per_tick = polls;
        self.has_lifo_polls = true;
        self
    }

    /// Sets the size of each worker's local queue: a power of two from 2 to 32,768 tasks, default
    /// 256. When the queue is full, half of it moves to the global queue. Raise it if tasks spawn
    /// many others at a time and `volt_worker_overflows_total` grows quickly;
    /// `volt_worker_tasks_overflowed_total` counts the tasks that moved.
    pub fn local_queue_capacity(mut self, slots: usize) -> Self {
        self.config.local_queue_capacity = slots;
        self
    }

    /// Sets the size of each worker's batch buffer, which stores tasks fetched from the global
    /// queue until the worker polls them: a power of two from 2 to 32,768 tasks, default 64. A
    /// fetch returns one task for the next poll and stores the rest, so it takes at most one task
    /// more than this. Change it together with
    /// [`global_queue_batch_bounds`](Self::global_queue_batch_bounds).
    /// `volt_worker_queue_depth{queue="batch"}` reports how full the buffer is.
    pub fn global_queue_batch_size(mut self, slots: usize) -> Self {
        self.config.global_queue_batch_size = slots;
        self
    }

    /// Sets the smallest and the largest number of tasks that a worker fetches from the global
    /// queue at a time: 1 ≤ `min` ≤ `max`, default 4 and 64. Between these bounds a worker takes
    /// its fair share, the queue's length divided by the number of workers, as far as
    /// [`global_queue_batch_size`](Self::global_queue_batch_size) has room for it. A worker polls
    /// the whole batch before its next local task, so lower `max` if polls are long and local tasks
    /// must start quickly. `volt_worker_global_tasks_total` divided by
    /// `volt_worker_global_batches_total` is the average batch.
    pub fn global_queue_batch_bounds(mut self, min: usize, max: usize) -> Self {
        self.config.min_global_queue_batch = min;
        self.config.max_global_queue_batch = max;
        self
    }

    /// Sets how many tasks may wait to be picked up by a worker, in the global queue or where
    /// [`placement`](Self::placement) puts them: at least 1, default 65,536. Beyond that
    /// [`Handle::try_spawn`](crate::handle::Handle::try_spawn) fails. Plain spawns and wake-ups
    /// still succeed, since a refused wake-up would lose its task. Lower it to shed load earlier;
    /// raise it if bursts are larger and memory allows. `volt_global_queue_depth` reports the
    /// length of the global queue, and `volt_global_queue_capacity` this setting.
    pub fn global_queue_capacity(mut self, tasks: usize) -> Self {
        self.config.global_queue_capacity = tasks;
        self
    }

    /// Sets how often a busy worker checks the global queue: a duration above 0, default 3 µs. The
    /// worker divides it by its average poll time, and checks the queue after that number of local
    /// polls, within [`global_queue_interval_bounds`](Self::global_queue_interval_bounds). If polls
    /// suddenly take longer, it checks once this time has passed, though not before it has polled
    /// one local task. A check of an empty queue costs one load, so a longer target saves little
    /// and delays tasks from outside the workers; raise it only if local tasks matter far more. For
    /// example, 1 ms with bounds 8 and 255 gives intervals of 255, 100, 20, 10 and 8 for polls of 1
    /// µs, 10 µs, 50 µs, 100 µs and 1 ms. `volt_worker_global_checks_total` counts the checks by
    /// trigger (`interval` or `elapsed`), and `volt_worker_global_check_polls_total` the local
    /// polls between them.
    pub fn target_global_queue_latency(mut self, latency: Duration) -> Self {
        self.config.target_global_queue_latency_ns = clock::saturating_ns(latency);
        self
    }

    /// Sets the weight of one full tick ([`budget_per_tick`](Self::budget_per_tick) polls) in the
    /// moving average of poll time: 0.0005 to 1, rounded to a thousandth, default 0.1. A
    /// shorter tick weighs proportionally less. Raise it if the length of polls changes within
    /// milliseconds and the interval of global checks follows too slowly; lower it if the interval
    /// fluctuates. `volt_worker_avg_poll_seconds` reports the average.
    pub fn ewma_alpha(mut self, alpha: f64) -> Self {
        // A value out of bounds becomes 0, which `build` refuses.
        let is_valid = (0.0005..=1.0).contains(&alpha);
        self.config.ewma_alpha_per_mille = if is_valid { (alpha * 1000.0).round() as u32 } else { 0 };
        self
    }

    /// Sets the average poll time that a worker assumes before it has measured any: a duration
    /// above 0, default 50 µs. It determines the interval of global checks in a worker's first
    /// ticks only, so it matters for tests and for programs that run for milliseconds.
    /// `volt_worker_avg_poll_seconds` starts at this value.
    pub fn default_avg_task(mut self, time: Duration) -> Self {
        self.config.default_avg_task_ns = clock::saturating_ns(time);
        self
    }

    /// Sets the smallest and the largest number of local polls between two checks of the global
    /// queue: 1 ≤ `min` ≤ `max`, default 1 and 255. Equal bounds fix the interval. A check may
    /// still come earlier, once [`target_global_queue_latency`](Self::target_global_queue_latency)
    /// has passed since the last one. Raise `min` if local tasks must run in longer batches; lower
    /// `max` if tasks from outside wait too long while polls are very short.
    /// `volt_worker_global_queue_interval` reports the interval in use.
    pub fn global_queue_interval_bounds(mut self, min: u32, max: u32) -> Self {
        self.config.min_global_queue_interval = min;
        self.config.max_global_queue_interval = max;
        self
    }

    /// Sets both [`global_queue_interval_bounds`](Self::global_queue_interval_bounds) under Tokio's
    /// name: a worker checks the global queue after this many local polls, or earlier, once
    /// [`target_global_queue_latency`](Self::target_global_queue_latency) has passed.
    ///
    /// # Panics
    /// Panics if `interval` is 0.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).global_queue_interval(31).build()?;
    /// assert_eq!(runtime.handle().snapshot().config.max_global_queue_interval, 31);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn global_queue_interval(self, interval: u32) -> Self {
        assert!(interval > 0, "global_queue_interval must be greater than 0");
        self.global_queue_interval_bounds(interval, interval)
    }

    /// Sets how long a worker's current poll must last before other workers may steal the task in
    /// its LIFO slot: a duration, default 1 ms; 0 always allows it. Lower it if tasks are long and
    /// those woken by them should move to idle workers early; raise it if they should stay on the
    /// same worker for its caches. The sentinel uses it to decide between waking a thief and
    /// emptying the queues of a stuck worker itself; [`placement`](Self::placement) does not depend
    /// on it. `volt_worker_tasks_stolen_total` counts all stolen tasks, and
    /// `volt_schedule_delay_seconds` shows how long tasks wait.
    pub fn lifo_steal_after(mut self, time: Duration) -> Self {
        self.config.lifo_steal_after_ns = clock::saturating_ns(time);
        self
    }

    /// Sets whether idle workers steal tasks from busy ones. Default true. Without it, queued tasks
    /// move only from a worker that is stuck (the sentinel moves them), that calls
    /// `block_in_place`, or whose local queue is full. Disable it only if the program distributes
    /// its tasks evenly itself and needs each to stay with its worker. `volt_worker_steals_total`
    /// counts successful attempts, and `volt_worker_tasks_stolen_total` the tasks.
    pub fn enable_stealing(mut self, enable: bool) -> Self {
        self.config.enable_stealing = enable;
        self
    }

    /// Sets the queue for tasks that a thread outside the runtime's workers spawns or wakes.
    /// Default [`Placement::Global`]. [`Placement`] compares the choices; change it if many outside
    /// threads spawn short tasks onto 8 or more workers. `volt_worker_queue_depth{queue="inbox"}`
    /// reports the tasks that were placed at a worker and wait there, and
    /// `volt_schedule_delay_seconds` shows the effect on delays.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.config.placement = placement;
        self
    }

    /// Sets how long timers and I/O may go unchecked while workers are busy: a duration, default 50
    /// µs. Between two ticks a worker polls the driver if no worker did for this long; within a
    /// tick it does so after 20 times as long, 1 ms by default. Lower it for more precise timers
    /// under load; raise it to make fewer system calls. `volt_driver_polls_total` counts the polls
    /// of the driver, and `volt_timers_lag_seconds` reports how late timers fire.
    pub fn driver_interval(mut self, time: Duration) -> Self {
        self.config.driver_interval_ns = clock::saturating_ns(time);
        self
    }

    /// Sets whether a worker that leaves the driver to poll tasks wakes a sleeping worker, which
    /// then waits in the driver. Default false: if an I/O event arrives during the poll, the worker
    /// detects it after the poll, or the sentinel after 10 ms. Enable it if polls are long and I/O
    /// must not wait for them; each event then costs the wake-up of a second thread.
    /// `volt_driver_idle_seconds` reports for how long no worker has polled the driver, and
    /// `volt_worker_wakes_sent_total` counts the wake-ups.
    pub fn eager_driver_handoff(mut self, enable: bool) -> Self {
        self.config.eager_driver_handoff = enable;
        self
    }

    /// Sets how many I/O events a worker takes from the kernel in one poll of the driver: 1 to
    /// 65,536, default 256. Lower it if the wake-ups of a large batch delay other tasks; raise it
    /// if thousands of sockets are ready at a time. `volt_driver_events_total` divided by
    /// `volt_driver_polls_total` is the average per poll.
    pub fn max_io_completions(mut self, events: usize) -> Self {
        self.config.max_io_completions = events;
        self
    }

    /// Sets [`max_io_completions`](Self::max_io_completions) under Tokio's name: how many I/O
    /// events a worker takes from the kernel in one poll of the driver. A number above 65,536
    /// counts as 65,536.
    ///
    /// # Panics
    /// Panics if `events` is 0.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).max_io_events_per_tick(1024).build()?;
    /// # drop(runtime);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    #[track_caller]
    pub fn max_io_events_per_tick(self, events: usize) -> Self {
        assert!(events > 0, "max_io_events_per_tick must be non-zero");
        self.max_io_completions(events.min(config::MAX_IO_COMPLETIONS_BOUND))
    }

    /// Sets the I/O backend. `None`, the default, selects the backend of the operating system. Set
    /// it only to assert which backend the program runs on: with one that the system does not have,
    /// [`build`](Self::build) fails. `volt_runtime_info` reports the backend in its label
    /// `backend`.
    pub fn backend_type(mut self, backend: Option<Backend>) -> Self {
        self.config.backend_type = backend;
        self
    }

    /// Sets the first timeout of a parked worker: a duration above 0 and at most
    /// [`max_park_timeout`](Self::max_park_timeout), or `None` for no timeout; default 10 ms. It
    /// doubles as long as the worker finds no work. It is a safety net below the wake-up protocol,
    /// so leave it enabled unless a test needs workers to sleep undisturbed.
    /// `volt_worker_unparks_total{reason="timeout"}` counts the timeouts, and
    /// `volt_worker_lost_wakeup_rescues_total` those that found a task for which the worker should
    /// have been woken; it should stay 0.
    pub fn park_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.config.park_timeout = timeout;
        self
    }

    /// Sets the limit up to which the timeout of a parked worker doubles: a duration of at least
    /// [`park_timeout`](Self::park_timeout), default 1 s. From there on, only the worker in the I/O
    /// driver keeps a timeout. Raise it if an idle program must wake up less often, for example on
    /// battery power. `volt_worker_unparks_total{reason="timeout"}` counts these wake-ups.
    pub fn max_park_timeout(mut self, timeout: Duration) -> Self {
        self.config.max_park_timeout = timeout;
        self
    }

    /// Sets whether a thread that waits (a parked worker, a thread in `block_on`, an idle blocking
    /// thread) spins for a moment before it sleeps. Default [`ParkSpin::Adaptive`] with `at_most`
    /// 40 µs; `at_most` must be above 0 and at most 1 ms. A thread spins only if its last waits
    /// were about that short, and never on a machine with one processor. Disable it if processor
    /// time matters more than latency. `volt_worker_spins_total` counts the spins, by whether they
    /// helped.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).park_spin(volt::ParkSpin::Off).build()?;
    /// assert_eq!(runtime.block_on(runtime.spawn(async { 1 + 1 })).unwrap(), 2);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn park_spin(mut self, spin: ParkSpin) -> Self {
        self.config.park_spin = spin;
        self
    }

    /// Sets how long an idle thread of the blocking pool waits for a job before it exits: a
    /// duration above 0, default 10 s. Raise it if blocking jobs come in bursts and starting
    /// threads costs time; lower it to release memory sooner. `volt_blocking_threads{state="idle"}`
    /// reports the idle threads.
    pub fn thread_keep_alive(mut self, time: Duration) -> Self {
        self.config.blocking_keep_alive = time;
        self
    }

    /// Sets how many spare workers may replace workers that are stuck in a poll or in
    /// [`block_in_place`](crate::context::block_in_place::block_in_place): 0 to 1024; 0
    /// disables them. Default: the value of the environment variable `VOLT_MAX_SPARE_WORKERS`, or
    /// else as many as there are workers, but at least 4 and at most 64. Spare workers start when
    /// they are needed, stop running tasks one second after the last stall, and exit 10 s after
    /// that. Raise it if many tasks block at a time. `volt_spare_workers` reports those that run
    /// tasks now. `volt_sentinel_capped_total` counts the checks of the sentinel in which a spare
    /// worker was needed, and none was available.
    pub fn max_spare_workers(mut self, spares: usize) -> Self {
        self.spare_workers = Some(spares);
        self
    }

    /// Sets how often the sentinel checks the workers while at least one is awake: a duration above
    /// 0, default 10 ms, or `None` for no sentinel. While a worker is stuck in a poll, it checks
    /// every 1 ms. It then wakes a parked worker or starts a spare one, so that other tasks, timers
    /// and I/O continue; while all workers are parked, it sleeps. Leave it enabled unless a test
    /// needs full control over the threads. `volt_sentinel_checks_total` counts the checks, and
    /// `volt_sentinel_rescues_total` and `volt_sentinel_replacements_total` its actions.
    pub fn sentinel_interval(mut self, interval: Option<Duration>) -> Self {
        self.config.sentinel_interval = interval;
        self
    }

    /// Sets how long a poll must last to be recorded as an incident: a duration above 0, default 10
    /// ms, or `None` for no incidents. An incident is counted, recorded with its cause and stack,
    /// shown in the console, judged by the doctor, and logged as a `tracing` event with the target
    /// `volt::incident`. For each spawn location and cause, the log contains at most one incident
    /// per second. It contains at most one per minute while such polls are usual in this runtime,
    /// that is, shorter than four times the 99th percentile of all polls and than ten times this
    /// setting. Raise it for a program with long polls by design; lower it to find short stalls.
    /// `volt_incidents_total` counts incidents by cause.
    pub fn incident_after(mut self, time: Option<Duration>) -> Self {
        self.config.incident_after_ns = time.map(clock::saturating_ns);
        self
    }

    /// Sets whether the runtime captures the stack of a stuck poll, on Linux on x86-64 and aarch64.
    /// Default true. To do so, it sends a signal to the worker's thread; the handler only copies
    /// the stack. The signal interrupts a system call in which the thread waits. The kernel
    /// restarts most of these calls, and Rust's `sleep` continues, but `epoll_wait`, `poll`,
    /// `select`, `nanosleep` called from C, and socket calls with a timeout return EINTR, as they
    /// may for any signal. Disable it if a library does not handle EINTR. No metric shows it:
    /// `volt-console stacks` prints the stacks.
    pub fn incident_stacks(mut self, enable: bool) -> Self {
        self.config.incident_stacks = enable;
        self
    }

    /// Sets the signal for [`incident_stacks`](Self::incident_stacks): the number of a signal that
    /// a program may handle, or `None`, the default, for SIGURG. Change it if the program uses
    /// SIGURG itself; SIGUSR2 and real-time signals are suitable. With a signal that cannot be
    /// used, the runtime logs a warning and runs without stacks. No metric shows it:
    /// `volt-console stacks` reports a stack that could not be captured, and why.
    pub fn stack_signal(mut self, signal: Option<i32>) -> Self {
        self.config.stack_signal = signal;
        self
    }

    /// Sets whether the findings of `volt-console doctor` are also logged while the runtime is not
    /// idle. Default true. The target of the `tracing` events is `volt::doctor`. A WARN event with
    /// the rule, severity, location, evidence and advice marks the beginning of a finding. An INFO
    /// event marks its end, 30 s or more after it was last seen. A finding that recurs is logged at
    /// most once per minute. A stall is logged after its stack has been read, or without the stack
    /// after 10 s. If the finding has ended by then, both events are logged together. Disable it if
    /// alerts on metrics already cover the findings. The doctor checks the runtime once per second
    /// while its findings can be read, in the log or through the [control
    /// socket](Self::control_socket), and otherwise when a snapshot is taken.
    /// `volt_doctor_findings` reports the current findings.
    pub fn doctor_events(mut self, enable: bool) -> Self {
        self.config.doctor_events = enable;
        self
    }

    /// Sets whether tasks inherit the `tracing` span in which they are spawned. Default false: the
    /// span `volt.task` of a task has no parent. With true, it is a child of the spawner's span, so
    /// the log lines of the task carry that span, too. If the log's filter disables the span
    /// `volt.task`, the task runs directly in the spawner's span, as a job of `spawn_blocking`
    /// always does. The subscriber keeps the spawner's span, and those around it, open until the
    /// task has completed and its handle was dropped. Leave it disabled if tasks spawn their own
    /// successors: each span would keep the previous one, and memory would grow without a bound. A
    /// task without a name that is spawned inside a span then costs as much as one with a name: an
    /// allocation, and entering the span at each poll. No metric shows it.
    ///
    /// ```
    /// # use volt_core as volt;
    /// let runtime = volt::Builder::new_multi_thread().worker_threads(1).inherit_spans(true).build()?;
    /// runtime.block_on(async {
    ///     let request = tracing::info_span!("request", id = 7);
    ///     // The task's log lines contain `request{id=7}`.
    ///     request.in_scope(|| volt::spawn(async { tracing::info!("served") })).await.unwrap();
    /// });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn inherit_spans(mut self, enable: bool) -> Self {
        self.config.inherit_spans = enable;
        self
    }

    /// Sets whether the flight recorder is on from the start, so that a recording can include
    /// events from before its own start. Default false, since each poll costs 10 to 20 ns more
    /// while it is on. `volt-console record` enables it while it records, and `record --on`
    /// permanently. Enable it to investigate rare problems that are noticed only afterwards.
    /// `volt_recorder_on` reports whether it is on.
    pub fn flight_recorder(mut self, is_on: bool) -> Self {
        self.config.flight_recorder = is_on;
        self
    }

    /// Sets how many records of 24 bytes the flight recorder keeps per worker: a power of two from
    /// 1024 to 1,048,576, default 8192. A poll takes two to four records. The memory is allocated
    /// once the recorder is on. Raise it to cover a longer time; larger buffers displace more of
    /// the application from the processor's caches. No metric shows it; a recording covers a longer
    /// time.
    pub fn flight_records(mut self, records: usize) -> Self {
        self.config.flight_records = records;
        self
    }

    /// Keeps the runtime's state in a file of this directory, its *black box*, which outlives a
    /// program that is killed. Default none, or the directory in the environment variable
    /// `VOLT_BLACK_BOX`. Only on Linux. `volt-console post-mortem DIR` shows which task each worker
    /// polled and since when, the findings, the memory and, if the [flight
    /// recorder](Self::flight_recorder) was on, the last events. Choose a directory in memory, such
    /// as `/dev/shm`: on a disk, the kernel may delay a worker's store to the file while it writes
    /// a page back. A file takes 1.6 MiB, plus 2 KiB per worker and spare worker, plus
    /// [`flight_records`](Self::flight_records) × 24 bytes, rounded up to 64 KiB, for each thread
    /// that records events. Do not truncate it while the program runs. A program has at most eight
    /// files. When it starts, it keeps the files of all running programs of its name, and of the
    /// last three that ended, and deletes older ones. If the file cannot be created, the program
    /// reports that on stderr and in the log, and continues.
    ///
    /// ```no_run
    /// # use volt_core as volt;
    /// let builder = volt::Builder::new_multi_thread().name("api").flight_recorder(true);
    /// let runtime = builder.black_box("/dev/shm/boxes").build()?;
    /// assert_eq!(runtime.block_on(async { 1 + 1 }), 2);
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn black_box(mut self, dir: impl Into<PathBuf>) -> Self {
        self.config.black_box = Some(dir.into());
        self
    }
}
