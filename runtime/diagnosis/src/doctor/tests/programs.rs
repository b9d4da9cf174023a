//! Healthy programs, as two snapshots a second apart. Test cases modify them, and no rule may fire
//! on them unmodified.

use volt_telemetry::histogram::Histogram;
use volt_telemetry::incident::Blame;
use volt_telemetry::snapshot::{
    Blocking, Config, Driver, Duty, GlobalQueue, Host, InFlight, Phase, Sentinel, Snapshot, Tasks, Timers, Unparks,
    Worker,
};

pub(super) const MS: u64 = 1_000_000;
pub(super) const SECOND: u64 = 1_000 * MS;
/// The time of the first snapshot: two minutes after the start.
const FIRST_NS: u64 = 120 * SECOND;

/// The same runtime at two times.
pub(super) type Pair = (Snapshot, Snapshot);

/// Two workers and an inactive spare worker; nothing has ever happened.
fn quiet(at_ns: u64) -> Snapshot {
    let worker = |index| {
        let (phase, parked_ns, driver_ns) =
            if index == 0 { (Phase::Driver, 0, at_ns) } else { (Phase::Parked, at_ns, 0) };
        let phase_for_ns = 100 * MS;
        Worker {
            index,
            phase,
            phase_for_ns,
            parked_ns,
            driver_ns,
            cpu_ns: Some(0),
            run_delay_ns: Some(0),
            ..Worker::default()
        }
    };
    let spare = Worker { index: 2, is_spare: true, duty: Duty::Off, ..Worker::default() };
    Snapshot {
        runtime: "app".into(),
        at_ns,
        started_at_ns: 0,
        config: Config {
            budget_per_tick: 128,
            max_lifo_polls_per_tick: 3,
            target_global_queue_latency_ns: MS,
            enable_stealing: true,
            ..Config::default()
        },
        parked_bitmap: vec![0b11],
        tasks: Tasks { spawned: 40, completed: 30, alive: 10, ..Tasks::default() },
        blocking: Blocking { max_threads: 512, ..Blocking::default() },
        timers: Timers { armed: 3, fired: 5, next_in_ns: Some(300 * MS), ..Timers::default() },
        driver: Driver { owner: Some(0), registrations: 4, ..Driver::default() },
        sentinel: Sentinel { max_spares: 4, ..Sentinel::default() },
        workers: vec![worker(0), worker(1), spare],
        host: Some(Host { processors: 2, throttles: Some(0), throttled_ns: Some(0) }),
        ..Snapshot::default()
    }
}

/// A program without any load.
pub(super) fn idle() -> Pair {
    (quiet(FIRST_NS), quiet(FIRST_NS + SECOND))
}

/// A service under load: the state after `ms`, added to `quiet`.
fn loaded(ms: u64, busy_ratio: f64) -> Snapshot {
    let mut snapshot = quiet(FIRST_NS + ms * MS);
    snapshot.parked_bitmap = vec![0b10];
    snapshot.searching = 1;
    snapshot.tasks = Tasks { spawned: 40 + 5 * ms, completed: 20 + 5 * ms, alive: 20, ..Tasks::default() };
    snapshot.timers = Timers { armed: 60, fired: 5 + ms, last_lag_ns: 200_000, next_in_ns: Some(MS) };
    snapshot.driver =
        Driver { owner: None, polls: 4 * ms, events: 9 * ms, registrations: 64, idle_ns: 60_000, ..Driver::default() };
    snapshot.blocking = Blocking {
        threads: 4,
        idle_threads: 2,
        max_threads: 512,
        queue_len: 0,
        submitted: 50 + ms,
        completed: 48 + ms,
    };
    snapshot.global_queue = GlobalQueue { len: 2, oldest_age_ns: Some(300_000), injected: 2 * ms, overflowed: 0 };
    for worker in &mut snapshot.workers[..2] {
        let busy_ns = (ms as f64 * busy_ratio * MS as f64) as u64;
        worker.busy_ns = busy_ns;
        worker.parked_ns = FIRST_NS + (ms * MS - busy_ns) / 2;
        worker.driver_ns = (ms * MS - busy_ns) / 2;
        worker.polls = 20 * ms;
        worker.lifo_hits = 3 * ms;
        worker.steal_attempts = 5 * ms;
        worker.steals = ms;
        worker.steal_races_lost = ms / 50;
        worker.global_tasks = ms;
        worker.parks = 3 * ms;
        worker.unparks = Unparks { notified: ms, io: 2 * ms, ..Unparks::default() };
        worker.self_wakes = Some(ms / 2);
        worker.cpu_ns = Some(busy_ns);
        worker.run_delay_ns = Some(20_000 * ms);
        worker.poll_time = Histogram::default();
        for poll in 0..20 * ms.min(10) {
            worker.poll_time.record(20_000 + 1_000 * (poll % 20));
            worker.schedule_delay.record(50_000 + 10_000 * (poll % 40));
        }
    }
    snapshot.workers[0].phase = Phase::Busy;
    snapshot.workers[0].ring_len = 9;
    snapshot.workers[0].is_lifo_filled = true;
    let poll = InFlight {
        task_id: 7,
        task_name: Some("checkout".into()),
        spawned_at: "src/main.rs:12:5".into(),
        for_ns: 15_000,
        ..InFlight::default()
    };
    snapshot.workers[0].in_flight = Some(poll);
    let place = |at: &str, share: u64| Blame {
        spawned_at: at.into(),
        polls: 20 * ms,
        busy_ns: share * ms * 100_000,
        longest_poll_ns: 900_000,
        delay_caused_ns: 60_000 * ms,
        delay_suffered_ns: 55_000 * ms,
        self_wakes: Some(ms / 2),
        alive: Some(10),
        stranded: Some(0),
        ..Blame::default()
    };
    snapshot.blame = vec![place("src/main.rs:12:5", 4), place("src/feed.rs:8:9", 2)];
    snapshot
}

/// A service that handles all requests and is idle for a third of the time.
pub(super) fn busy() -> Pair {
    (loaded(1_000, 0.66), loaded(2_000, 0.66))
}

/// More work than processors, in turns of 5 ms. All tasks wait equally long, and the global queue
/// is served.
pub(super) fn saturated() -> Pair {
    let at = |ms| {
        let mut snapshot = loaded(ms, 1.0);
        snapshot.parked_bitmap = vec![0];
        snapshot.searching = 0;
        snapshot.global_queue = GlobalQueue { len: 30, oldest_age_ns: Some(80 * MS), injected: ms / 5, overflowed: 0 };
        snapshot.driver.idle_ns = 5 * MS;
        for worker in &mut snapshot.workers[..2] {
            worker.phase = Phase::Busy;
            worker.polls = ms / 5;
            worker.global_tasks = ms / 6;
            worker.ring_len = 40;
            worker.unparks = Unparks::default();
            worker.steals = ms / 100;
            worker.poll_time = Histogram::default();
            (0..ms / 5).for_each(|_| worker.poll_time.record(5 * MS));
            worker.self_wakes = Some(ms / 5);
        }
        for place in &mut snapshot.blame {
            (place.polls, place.busy_ns) = (ms / 5, ms * MS);
            (place.delay_caused_ns, place.delay_suffered_ns) = (80 * ms * MS, 80 * ms * MS);
            place.self_wakes = Some(ms / 5);
        }
        snapshot
    };
    (at(1_000), at(2_000))
}
