//! A fictitious program for tests: its workers are in every phase, and one of them is stuck in a
//! poll.

use std::time::Duration;

use volt_telemetry::dump::{self, Dump, Group, Running, TaskRef};
use volt_telemetry::finding::{Finding, Place, Seen, Severity, TaskName};
use volt_telemetry::incident::{Blame, Cause, Frame, Incident, Incidents, Remedy};
use volt_telemetry::processes::{self, Process as Machine, ProcessList, Processes};
use volt_telemetry::rule::Rule;
use volt_telemetry::snapshot::{
    Blocking, Config, Driver, Duty, GlobalChecks, GlobalQueue, InFlight, Phase, Process, Sentinel, Snapshot, Tasks,
    Timers, Unparks, Worker,
};
use volt_telemetry::tasks::{self, Rank, Task, TaskList};
use volt_telemetry::why::{End, Link, State, Why, Woken};
use volt_telemetry::wire::{Hello, MAGIC, VERSION};

use crate::model::{Action, Message, Model, Screen};

/// The time between two snapshots.
pub(crate) const STEP: Duration = Duration::from_millis(500);

/// Returns a program with a runtime `app` of `workers` and a small second runtime, `step` intervals
/// after its start.
pub(crate) fn process(workers: u32, step: u64) -> Process {
    let at_ns = 765_000_000_000 + step * STEP.as_nanos() as u64;
    let exporter =
        Snapshot { tasks: Tasks { spawned: 12, alive: 2, ..Tasks::default() }, ..runtime("exporter", 1, at_ns, 0) };
    Process {
        pid: 48_213,
        program: "demo".into(),
        at_ns,
        observer: None,
        runtimes: vec![runtime("app", workers, at_ns, step), exporter],
    }
}

/// Returns a runtime that has worked for `step` intervals.
pub(crate) fn runtime(name: &str, workers: u32, at_ns: u64, step: u64) -> Snapshot {
    let workers: Vec<Worker> = (0..workers).map(|index| worker(index, step)).collect();
    let mut parked_bitmap = vec![0; workers.len().div_ceil(64)];
    for worker in workers.iter().filter(|worker| matches!(worker.phase, Phase::Parked | Phase::Driver)) {
        parked_bitmap[worker.index as usize / 64] |= 1 << (worker.index % 64);
    }
    Snapshot {
        runtime: name.into(),
        at_ns,
        started_at_ns: 1_000_000,
        incomplete: Vec::new(),
        config: Config {
            budget_per_tick: 128,
            coop_budget: 128,
            max_lifo_polls_per_tick: 3,
            local_queue_capacity: 256,
            global_queue_batch_size: 64,
            global_queue_capacity: 65_536,
            min_global_queue_interval: 8,
            max_global_queue_interval: 255,
            target_global_queue_latency_ns: 1_000_000,
            ewma_alpha: 0.1,
            min_global_queue_batch: 4,
            max_global_queue_batch: 64,
            driver_interval_ns: 50_000,
            lifo_steal_after_ns: 1_000_000,
            placement: "global".into(),
            park_spin: "adaptive".into(),
            enable_stealing: true,
            park_timeout_ns: Some(10_000_000),
            flavor: "multi_thread".into(),
            io_backend: "epoll".into(),
        },
        parked_bitmap,
        searching: 1,
        global_queue: GlobalQueue {
            len: 3,
            oldest_age_ns: Some(412_000),
            injected: 9_000 * step,
            overflowed: 128 * step,
        },
        processes: Some(Processes {
            systems: 1,
            alive: 60,
            started: 66,
            ended_normally: 4,
            ended_abnormally: 2,
            restarts: 2,
            messages_lost: 31_000 * step,
            ..Processes::default()
        }),
        tasks: Tasks { spawned: 61_000 * step, completed: 60_800 * step, cancelled: 14, panicked: 2, alive: 214 },
        blocking: Blocking {
            threads: 5,
            idle_threads: 3,
            max_threads: 512,
            queue_len: 0,
            submitted: 40 * step,
            completed: 40 * step,
        },
        timers: Timers { armed: 96, fired: 700 * step, last_lag_ns: 812_000, next_in_ns: Some(3_400_000) },
        sentinel: Sentinel { checks: 50 * step, ..Sentinel::default() },
        driver: Driver {
            owner: Some(3),
            turns: 5_200 * step,
            events: 11_000 * step,
            registrations: 67,
            accept_backoffs: 0,
            idle_ns: 0,
        },
        workers,
        ..Snapshot::default()
    }
}

fn worker(index: u32, step: u64) -> Worker {
    let phases = [Phase::Busy, Phase::Busy, Phase::Parked, Phase::Driver, Phase::Searching, Phase::Maintenance];
    let phase = phases[index as usize % phases.len()];
    let interval = STEP.as_nanos() as u64 * step;
    let load = 1 + u64::from(index % 3);
    let is_stuck = index == 1;
    let in_flight = (phase == Phase::Busy).then(|| InFlight {
        task_id: 48_211 + u64::from(index),
        task_name: (index < 2).then(|| if is_stuck { "GET /blocking" } else { "GET /fan-out" }.into()),
        spawned_at: "examples/src/bin/demo/handlers.rs:118:21".into(),
        for_ns: if is_stuck { 230_000_000 } else { 8_400 },
    });
    let mut worker = Worker {
        index,
        thread_id: Some(48_220 + index),
        phase,
        phase_for_ns: if is_stuck { 230_000_000 } else { 96_000 * load },
        in_flight,
        polls: 41_000 * step * load,
        ticks: 400 * step * load,
        busy_ns: interval / 4 * load,
        searching_ns: interval / 50,
        parked_ns: interval / 10 * (4 - load),
        driver_ns: interval / 20 * (4 - load),
        maintenance_ns: interval / 100,
        budget_left: 128 - (index * 37) % 128,
        budget_exhausted: 310 * step,
        coop_yields: 4 * step,
        is_lifo_filled: index.is_multiple_of(2),
        lifo_polls_this_tick: index % 4,
        lifo_hits: 9_100 * step,
        lifo_evictions: 820 * step,
        lifo_cap_flushes: 55 * step,
        ring_len: (index * 61) % 256,
        batch_len: (index * 5) % 32,
        overflows: step,
        tasks_overflowed: 128 * step,
        steal_attempts: 2_900 * step,
        steals: 640 * step,
        tasks_stolen: 2_210 * step,
        steal_races_lost: 17 * step,
        tasks_given: 2_190 * step,
        global_checks: Some(GlobalChecks { interval: 420 * step, elapsed: 30 * step, empty: 60 * step }),
        global_check_polls: Some(38_700 * step),
        global_batches: 500 * step,
        global_tasks: 4_400 * step,
        avg_poll_ns: 11_300 + 900 * u64::from(index),
        global_queue_interval: 88,
        parks: 1_300 * step,
        park_timeout_ns: Some(20_000_000),
        spins_helped: 210 * step,
        spins_in_vain: 30 * step,
        unparks: Unparks { notified: 900 * step, timeout: 2, io: 310 * step, timer: 90 * step, spurious: 1 },
        wakes_sent: 880 * step,
        lost_wakeup_rescues: 0,
        ..Worker::default()
    };
    for poll in 0..40 * step {
        worker.poll_time.record(700 + poll * poll * 31 % 60_000);
        worker.schedule_delay.record(200 + poll * 97 % 9_000);
    }
    if step > 1 {
        worker.poll_time.record(12_000_000);
    }
    worker
}

/// Returns a model that has received [`process`] for `steps` intervals, every 500 ms.
pub(crate) fn model(workers: u32, steps: u64) -> Model {
    let mut model = Model::new(STEP);
    let hello =
        Hello { magic: MAGIC.into(), version: VERSION, pid: 48_213, program: "demo".into(), ..Hello::default() };
    model.update(Message::Connected(hello));
    for step in 1..=steps {
        model.update(Message::Tick(STEP * step as u32));
        // The load varies, so that the curve has a shape.
        let mut process = process(workers, step);
        let wave: u64 = (1..=step).map(|step| (step % 48).abs_diff(24) * 1_700).sum();
        process.runtimes[0].workers.iter_mut().for_each(|worker| worker.polls += wave);
        model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    }
    model
}

/// Returns [`model`] with one worker stuck now, and others in the past.
pub(crate) fn stalled_model(workers: u32, steps: u64) -> Model {
    let mut model = model(workers, steps - 1);
    model.update(Message::Tick(STEP * steps as u32));
    model.update(Message::Snapshot { process: Box::new(stalled(process(workers, steps), 7)), lost: 0 });
    model
}

/// Returns `process` with one spare on duty and one off duty, `written` incidents of which the
/// latest is current, and blame.
pub(crate) fn stalled(mut process: Process, written: u64) -> Process {
    let runtime = &mut process.runtimes[0];
    let first = runtime.workers.len() as u32;
    for (index, duty) in [(first, Duty::Present), (first + 1, Duty::Off)] {
        let spare = worker(index, 1);
        let in_flight = None;
        runtime.workers.push(Worker { is_spare: true, duty, phase: Phase::Searching, in_flight, ..spare });
    }
    runtime.workers[1].duty = Duty::Away;
    runtime.sentinel = Sentinel {
        checks: 9_120,
        rescues: 61,
        tasks_rescued: 204,
        preempts: 7,
        replacements: 12,
        spare_calls: 12,
        spares_on_duty: 1,
        max_spares: 4,
        ..Sentinel::default()
    };
    let latest: Vec<Incident> = (1..=written).map(|id| incident(id, written, runtime.at_ns)).collect();
    let by_cause = vec![written / 3, 2 * written, 0, 1];
    runtime.incidents = Incidents { by_cause, suppressed: written + 2, evicted: 0, latest };
    runtime.blame = (0..12).map(blame).collect();
    process
}

/// Returns the tasks of the named runtime after `step` intervals: `count` of them, some in queues.
pub(crate) fn tasks(runtime: &str, count: u64, step: u64) -> TaskList {
    let states = [tasks::State::Waits, tasks::State::Queued, tasks::State::Waits, tasks::State::Stranded];
    let by = ["io", "task", "timer", "outside", "spawn"];
    let task = |rank: u64| {
        let is_stuck = rank == 1;
        let busy_ns = step * (90_000_000_000 / (rank * rank + 2)) / 100;
        Task {
            id: 48_200 + rank,
            name: (rank % 3 == 1).then(|| if is_stuck { "GET /blocking".into() } else { format!("session {rank}") }),
            spawned_at: format!("examples/src/bin/demo/handlers.rs:{}:21", 118 + rank % 4),
            state: if is_stuck { tasks::State::Polled } else { states[rank as usize % states.len()] },
            worker: is_stuck.then_some(1),
            in_poll_ns: is_stuck.then_some(230_000_000),
            polls: Some(step * 12_000 / (rank + 1)),
            busy_ns: Some(busy_ns),
            longest_ns: Some(if is_stuck { 230_000_000 } else { 41_000 + 400_000 * (rank % 40) }),
            delay_ns: Some(13_000_000 * rank * step % 9_000_000_000),
            age_ns: Some(3_600_000_000_000 / (rank + 1)),
            woken_ago_ns: Some(1_700_000 * (rank + 1)),
            woken_by: Some(by[rank as usize % by.len()].into()),
            awaits: (rank % 4 == 3).then(|| "message".into()),
            awaits_at: (rank % 4 == 3).then(|| "examples/src/bin/demo/handlers.rs:133:40".into()),
            wakers: Some(if rank % 4 == 3 { 0 } else { 1 + rank % 2 }),
            ..Task::default()
        }
    };
    let first_poll = Task {
        id: 91_000,
        spawned_at: "examples/src/bin/demo/main.rs:40:9".into(),
        state: tasks::State::Polled,
        worker: Some(0),
        in_poll_ns: Some(12_000_000),
        ..Task::default()
    };
    TaskList {
        runtime: runtime.into(),
        at_ns: 765_000_000_000 + step * STEP.as_nanos() as u64,
        query: tasks::Query { rank: Rank::Busy, limit: 300, ..tasks::Query::default() },
        rows: (0..count).map(task).chain([first_poll]).collect(),
        alive: count + 14,
        seen: count + 1,
        matching: count + 1,
        ..TaskList::default()
    }
}

/// Returns the processes of the named runtime after `step` intervals: `count` of them. The first
/// has a full mailbox.
pub(crate) fn processes(runtime: &str, count: u64, step: u64) -> ProcessList {
    let states = [processes::State::Idle, processes::State::Ready, processes::State::Blocked, processes::State::Idle];
    let process = |rank: u64| {
        let (is_slow, is_room) = (rank == 0, rank.is_multiple_of(4));
        Machine {
            pid: format!("local:{}.{}", rank * 64, rank % 3),
            number: ((rank * 64) << 32) | (rank % 3),
            name: is_room.then(|| if is_slow { "lobby".into() } else { format!("room {rank}") }),
            kind: if is_room { "chat::rooms::Room".into() } else { "chat::session::Session<Tcp>".into() },
            spawned_at: format!("examples/src/bin/chat/rooms.rs:{}:14", 31 + rank % 4),
            state: if is_slow { processes::State::Running } else { states[rank as usize % states.len()] },
            mailbox_len: if is_slow { 1024 } else { 600 / (rank + 1) },
            mailbox_high_water: if is_slow { 1024 } else { 700 },
            mailbox_capacity: 1024,
            messages_lost: if is_slow { 31_000 * step } else { 0 },
            steps: step * 12_000 / (rank + 1),
            busy_ns: Some(step * (90_000_000_000 / (rank * rank + 2)) / 100),
            in_poll_ns: is_slow.then_some(31_000_000),
            parent: (!is_slow).then(|| "local:0.0".into()),
            links: u64::from(rank % 4 == 1),
            monitors: rank % 2,
            task: Some(48_200 + rank),
        }
    };
    ProcessList {
        runtime: runtime.into(),
        at_ns: 765_000_000_000 + step * STEP.as_nanos() as u64,
        query: processes::Query { limit: 300, ..processes::Query::default() },
        rows: (0..count).map(process).collect(),
        alive: count,
        matching: count,
        ..ProcessList::default()
    }
}

/// Returns [`stalled_model`] on the processes screen, with `count` processes.
pub(crate) fn processes_model(workers: u32, count: u64) -> Model {
    let mut model = stalled_model(workers, 3);
    model.update(Message::Do(Action::Show(Screen::Processes)));
    for step in [2, 3] {
        model.update(Message::Processes(Box::new(processes("app", count, step))));
    }
    model
}

/// Returns why a task of [`tasks`] was polled last.
pub(crate) fn why(task: u64) -> Why {
    let link = |task, by: &str, waker: Option<u64>| Link {
        task,
        spawned_at: "examples/src/bin/demo/handlers.rs:121:21".into(),
        state: State::Waits,
        woken: Some(Woken {
            by: by.into(),
            task: waker,
            spawned_at: waker.map(|_| "examples/src/bin/demo/feed.rs:9:5".into()),
            ago_ns: 4_200_000,
            ..Woken::default()
        }),
        ..Link::default()
    };
    let links = vec![link(task, "task", Some(48_300)), link(48_300, "timer", None)];
    Why { runtime: "app".into(), links, end: End::Source }
}

/// Returns [`stalled_model`] on the tasks screen, with `count` tasks.
pub(crate) fn tasks_model(workers: u32, count: u64) -> Model {
    let mut model = stalled_model(workers, 3);
    model.update(Message::Do(Action::Show(Screen::Tasks)));
    for step in [2, 3] {
        model.update(Message::Tasks(Box::new(tasks("app", count, step))));
    }
    model
}

/// Returns a dump of the runtime `app`: a task that is running, tasks that wait for a lock, and one
/// that waits for several operations.
pub(crate) fn dump() -> Dump {
    let link = |depth, function: &str, place: (&str, u32), code: Option<&str>| dump::Link {
        depth,
        function: Some(function.into()),
        file: Some(place.0.into()),
        line: Some(place.1),
        is_user_code: code.is_some(),
        times: 1,
        code: code.map(str::to_owned),
    };
    let task = |id, name: Option<&str>, waiting_ns| TaskRef { id, name: name.map(str::to_owned), waiting_ns };
    let serve =
        link(0, "shop::serve", ("/build/shop/src/server.rs", 121), Some("let order = orders::place(&db).await;"));
    let place =
        link(1, "shop::orders::place", ("/build/shop/src/orders.rs", 52), Some("let stock = db.stock.lock().await;"));
    let lock = link(2, "tokio::sync::mutex", ("tokio-1.54.1/src/sync/mutex.rs", 455), None);
    let waiting = Group {
        spawned_at: "src/server.rs:88:9".into(),
        tasks: 43,
        oldest_ns: 840_000_000_000,
        newest_ns: 130_000_000_000,
        examples: vec![task(1187, Some("settlement"), 840_000_000_000), task(1190, None, 700_000_000_000)],
        chain: vec![serve.clone(), place, lock],
        awaits: Some("lock".into()),
        awaits_at: Some("src/orders.rs:52:30".into()),
        locks: vec![dump::Lock {
            tasks: 43,
            held_by: Some(1201),
            held_by_name: Some("pricing".into()),
            held_at: "src/pricing.rs:31:38".into(),
            held_ns: Some(841_000_000_000),
            queue: vec![1187, 1190, 1191, 1188],
            waiters_len: Some(43),
        }],
        locks_left_out: 0,
        error: None,
    };
    let several = Group {
        spawned_at: "src/main.rs:40:5".into(),
        tasks: 1,
        oldest_ns: 4_000_000_000,
        newest_ns: 4_000_000_000,
        examples: vec![task(12, None, 4_000_000_000)],
        chain: vec![
            link(0, "shop::watch", ("/build/shop/src/main.rs", 61), Some("tokio::select! {")),
            link(1, "volt_core::sleep::Sleep", ("/volt/core/src/sleep.rs", 188), None),
            dump::Link {
                times: 20,
                ..link(1, "futures_channel::oneshot", ("futures-channel-0.3.34/src/oneshot.rs", 459), None)
            },
        ],
        ..Group::default()
    };
    let running = Running {
        task: task(77, None, 0),
        spawned_at: "src/main.rs:45:5".into(),
        worker: 1,
        for_ns: 1_400_000_000,
        chain: vec![link(0, "shop::report", ("/build/shop/src/report.rs", 9), Some("std::thread::sleep(PAUSE);"))],
    };
    Dump {
        runtime: "app".into(),
        took_ns: 25_000_000,
        alive: 46,
        waiting: 44,
        read: 44,
        queued: 1,
        running: vec![running],
        groups: vec![waiting, several],
        remarks: vec!["shop has no names of inlined functions: build it with `debug = \"limited\"`".into()],
        ..Dump::default()
    }
}

/// Returns a current finding about these tasks and locations.
pub(crate) fn finding(rule: Rule, severity: Severity, tasks: &[u64], locations: &[Place]) -> Finding {
    Finding {
        rule,
        severity,
        title: format!("{} in a test", rule.name()),
        evidence: Vec::new(),
        workers: Vec::new(),
        tasks: tasks.iter().map(|id| TaskName { id: *id, name: None }).collect(),
        locations: locations.to_vec(),
        advice: String::new(),
        seen: Seen::default(),
    }
}

/// Returns a model of a program whose runtime `app` sends these findings.
pub(crate) fn found_model(findings: Vec<Finding>) -> Model {
    let mut model = model(2, 2);
    let mut process = process(2, 3);
    process.runtimes.iter_mut().for_each(|runtime| runtime.findings = Some(Vec::new()));
    process.runtimes[0].findings = Some(findings);
    model.update(Message::Snapshot { process: Box::new(process), lost: 0 });
    model
}

fn incident(id: u64, last: u64, at_ns: u64) -> Incident {
    let is_over = id < last;
    let causes = [Cause::Sleep, Cause::Cpu, Cause::Io, Cause::NotScheduled];
    let call = |function: &str, file: &str, line: u64, is_user_code| Frame {
        address: 0x9f_8c00 + line,
        function: Some(function.into()),
        file: Some(file.into()),
        line: Some(line as u32),
        module: Some("demo".into()),
        is_user_code,
    };
    let rust = "/rustc/59807616e1fa2540724bfbac14d7976d7e4a3860/library";
    let mut stack = vec![
        Frame { address: 0xcf545, module: Some("libc.so.6".into()), ..Frame::default() },
        call("std::thread::functions::sleep", &format!("{rust}/std/src/thread/functions.rs"), 289, false),
        call("demo::handlers::price", "/home/shop/examples/src/bin/demo/handlers.rs", 61, true),
        call("demo::handlers::blocking::<demo::State>", "/home/shop/examples/src/bin/demo/handlers.rs", 118, true),
        call("<demo::Traced<F> as core::future::Future>::poll", "/home/shop/examples/src/bin/demo/trace.rs", 7, true),
    ];
    let run = (0..14).map(|depth| {
        let function = format!("volt::task::cell::run::<volt::task::Layer{depth}<demo::State, alloc::sync::Arc<str>>>");
        call(&function, "/home/shop/runtime/src/task/cell.rs", 140 + depth, false)
    });
    stack.extend(run);
    let for_ns = if is_over { 31_000_000 * id } else { 230_000_000 };
    let began_at_ns = if is_over { at_ns.saturating_sub(1_300_000_000 * (last + 1 - id)) } else { at_ns - for_ns };
    Incident {
        id,
        began_at_ns,
        for_ns,
        is_over,
        worker: 1,
        task_id: 48_205 + id,
        task_name: (id != 2).then(|| "GET /blocking".into()),
        spawned_at: "examples/src/bin/demo/handlers.rs:118:21".into(),
        cause: if is_over { causes[id as usize % causes.len()] } else { Cause::Sleep },
        wait_channel: Some("hrtimer_nanosleep".into()),
        stack_error: (id == 3).then(|| "the poll ended before its stack could be captured".into()),
        stack: if id == 3 { Vec::new() } else { stack },
        waiting: id % 3,
        remedy: if id.is_multiple_of(2) { Remedy::Rescued } else { Remedy::Replaced },
        suppressed: if is_over { 0 } else { 3 },
    }
}

fn blame(rank: u64) -> Blame {
    let caused_ns = 64_000_000_000 >> (2 * rank);
    Blame {
        spawned_at: format!("examples/src/bin/demo/handlers.rs:{}:21", 118 + 9 * rank),
        polls: 12_000 * (rank + 1),
        busy_ns: 9_000_000_000 / (rank + 1),
        longest_poll_ns: caused_ns / 80,
        stalls: if rank < 2 { 12 - 11 * rank } else { 0 },
        delay_caused_ns: caused_ns,
        delay_suffered_ns: 800_000 * rank * rank,
        alive: Some(40 * rank),
        stranded: Some(0),
        ..Blame::default()
    }
}
