//! Mixed work, much of it: 10^8 polls over many runtimes, with everything counted twice.
//!
//! ```text
//! cargo bench -p volt-runtime --bench stress                        10^8 polls, some minutes
//! cargo bench -p volt-runtime --bench stress -- --polls 1000000     as many as you like
//! cargo bench -p volt-runtime --bench stress -- --seed 7            the same work again
//! ```
//! Ends with what was done, or with a panic that says what does not hold; see `mix` for what must. Resident memory, taken between
//! two runtimes, must not grow once a quarter is done.

mod mix;

use std::time::{Duration, Instant};

use mix::{Done, Mix};
use volt::Placement;

const POLLS: u64 = 100_000_000;
/// Runtimes, one after the other.
const ROUNDS: u64 = 24;
const WORKERS: [usize; 6] = [2, 1, 4, 3, 8, 66];
const PLACEMENTS: [Placement; 3] = [Placement::Global, Placement::TwoChoices, Placement::LeastLoaded];
/// How much resident memory may grow from the first quarter's largest to the last quarter's, in bytes. The allocator keeps arenas for as
/// many threads as there were at once, and returns pages when it likes.
const DRIFT_MAX: u64 = 8 << 20;
const PROGRESS: Duration = Duration::from_secs(5);

fn option(name: &str, default: u64) -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    let Some(_) = arguments.next() else { return default };
    match arguments.next().as_deref().map(str::parse) {
        Some(Ok(value)) => value,
        _ => {
            eprintln!("{name} wants a whole number");
            std::process::exit(2);
        }
    }
}

/// Resident memory of this process, bytes; `None` where the system does not say.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    Some(kibibytes.parse::<u64>().ok()? << 10)
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn main() {
    let (polls, seed) = (option("--polls", POLLS), option("--seed", 1));
    let began = Instant::now();
    let (mut all, mut resident) = (Done::default(), Vec::new());
    println!("{polls} polls in {ROUNDS} runtimes, seed {seed}");
    for round in 0..ROUNDS {
        let mix = Mix {
            workers: WORKERS[round as usize % WORKERS.len()],
            outsiders: 1 + round / 3 % 2,
            placement: PLACEMENTS[(round / 2) as usize % PLACEMENTS.len()],
            // With the net what it catches is counted; without it a lost wake-up hangs.
            park_timeout: (round % 2 == 0).then_some(Duration::from_millis(10)),
            local_queue_capacity: [256, 8][(round / 4) as usize % 2],
            polls: polls / ROUNDS,
            seed: seed.wrapping_mul(ROUNDS).wrapping_add(round),
        };
        let (started, mut told_at) = (Instant::now(), Instant::now());
        let done = mix::run(&mix, |snapshot| {
            if told_at.elapsed() > PROGRESS {
                told_at = Instant::now();
                let polls: u64 = snapshot.workers.iter().map(|worker| worker.polls).sum();
                println!("  … {polls} polls, {} tasks alive", snapshot.tasks.alive);
            }
        });
        all.add(&done);
        resident.extend(resident_bytes());
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{:>2}  {:>2} workers {:<11} ring {:>3} {:<6} {:>9} polls {:>8} tasks {:>6} steals {:>8} parks {:>5.1} s {:>6.1} M polls/s  rss {:>6.1} MiB",
            round + 1,
            mix.workers,
            format!("{:?}", mix.placement),
            mix.local_queue_capacity,
            if mix.park_timeout.is_some() { "net" } else { "no net" },
            done.polls,
            done.spawned,
            done.steals,
            done.parks,
            seconds,
            done.polls as f64 / seconds / 1e6,
            resident.last().copied().map_or(f64::NAN, mebibytes),
        );
    }
    println!("{all:#?}");
    println!(
        "spawned = completed + cancelled + panicked: {} = {} + {} + {}",
        all.spawned, all.completed, all.cancelled, all.panicked
    );
    assert_eq!(all.spawned, all.completed + all.cancelled + all.panicked);
    let quarter = resident.len() / 4;
    let largest = |part: &[u64]| part.iter().copied().max();
    if let (Some(first), Some(last)) = (largest(&resident[..quarter]), largest(&resident[resident.len() - quarter..])) {
        let drift = 100.0 * (last as f64 / first as f64 - 1.0);
        println!(
            "rss: {:.1} MiB in the first quarter, {:.1} in the last: {drift:+.1} %",
            mebibytes(first),
            mebibytes(last)
        );
        assert!(last <= first + DRIFT_MAX, "resident memory grows");
    }
    println!("lost wake-ups {}; took {:.1} s", all.rescues, began.elapsed().as_secs_f64());
}
