//! Measures a check of the doctor's history, which a program performs once per second.
//!
//! `cargo bench -p volt-diagnosis --bench judge`; ends by itself within a few seconds. With
//! `-- --markdown` it prints the table of `runtime/benches/RESULTS.md`. For each size it measures a
//! healthy runtime and an unhealthy one whose incidents are all different. The result is the median
//! of some hundred checks, a second apart on the snapshots' clock.

use std::time::{Duration, Instant};

use volt_diagnosis::doctor::History;
use volt_telemetry::snapshot::{InFlight, Tasks};
use volt_telemetry::{Blame, Cause, Frame, Incident, Snapshot, Worker};

const SECOND: u64 = 1_000_000_000;
const MS: u64 = 1_000_000;
const CHECKS: u64 = 300;
/// The maxima that the runtime keeps: rows of blame, incidents.
const LOCATIONS: u64 = 128;
const INCIDENTS: u64 = 64;
/// The calls of each stack, a quarter of the maximum.
const CALLS: u64 = 16;

fn incident(id: u64) -> Incident {
    let call = |line: u64| Frame {
        function: Some(format!("shop::orders::function_{line}")),
        file: Some(format!("/home/shop/src/orders/file_{id}.rs")),
        line: Some(line as u32),
        is_user_code: line > 3,
        ..Frame::default()
    };
    Incident {
        id,
        began_at_ns: id * SECOND / INCIDENTS,
        for_ns: 30 * MS,
        is_over: true,
        task_id: id,
        spawned_at: format!("src/main.rs:{}:5", id % LOCATIONS),
        cause: Cause::ALL[id as usize % 3],
        stack: (0..CALLS).map(call).collect(),
        ..Incident::default()
    }
}

/// A runtime after `second` seconds.
fn snapshot(workers: u32, second: u64, is_well: bool) -> Snapshot {
    let worker = |index: u32| {
        let mut worker = Worker { index, polls: second * 100_000, busy_ns: second * SECOND / 2, ..Worker::default() };
        (0..64).for_each(|bits| worker.poll_time.record(1 << (bits % 40)));
        if !is_well && index.is_multiple_of(4) {
            let spawned_at = format!("src/main.rs:{index}:5");
            worker.in_flight =
                Some(InFlight { task_id: index.into(), spawned_at, for_ns: 150 * MS, ..InFlight::default() });
        }
        worker
    };
    let blame = |line: u64| Blame {
        spawned_at: format!("src/main.rs:{line}:5"),
        polls: second * 1_000,
        busy_ns: second * MS,
        alive: Some(if is_well { 1_000 } else { 28 * second }),
        ..Blame::default()
    };
    let first = if is_well { 0 } else { second * INCIDENTS };
    let mut now = Snapshot {
        at_ns: second * SECOND,
        tasks: Tasks { spawned: second * 100_000, alive: LOCATIONS * 1_000, ..Tasks::default() },
        workers: (0..workers).map(worker).collect(),
        blame: (0..LOCATIONS).map(blame).collect(),
        ..Snapshot::default()
    };
    now.incidents.latest = (first..first + INCIDENTS).map(incident).collect();
    now
}

/// Returns the median check, the longest one, and the number of findings at the end.
fn measure(workers: u32, is_well: bool) -> (Duration, Duration, usize) {
    let mut history = History::default();
    let mut took: Vec<_> = (100..100 + CHECKS)
        .map(|second| {
            let mut now = snapshot(workers, second, is_well);
            let began = Instant::now();
            history.judge(&mut now);
            began.elapsed()
        })
        .collect();
    took.sort();
    let findings = history.findings((99 + CHECKS) * SECOND).len();
    (took[took.len() / 2], took[took.len() - 1], findings)
}

fn main() {
    let is_markdown = std::env::args().any(|argument| argument == "--markdown");
    if is_markdown {
        println!("| workers | without findings, ms | longest | with findings, ms | longest | findings |");
        println!("|---|---|---|---|---|---|");
    } else {
        println!("{:>7}  {:<6}  {:>10}  {:>10}  {:>8}", "workers", "", "median", "longest", "findings");
    }
    for workers in [4, 64, 128] {
        let both = [true, false].map(|is_well| measure(workers, is_well));
        if is_markdown {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let [(well, well_longest, _), (unwell, unwell_longest, findings)] = both;
            let times = [well, well_longest, unwell, unwell_longest].map(|time| format!("{:.2}", ms(time)));
            println!("| {workers} | {} | {findings} |", times.join(" | "));
            continue;
        }
        for (state, (median, longest, findings)) in ["well", "unwell"].into_iter().zip(both) {
            println!("{workers:>7}  {state:<6}  {median:>10.1?}  {longest:>10.1?}  {findings:>8}");
        }
    }
}
