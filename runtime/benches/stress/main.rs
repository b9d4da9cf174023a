//! A stress test of mixed work: 10^8 polls over many runtimes and in one that lives long, with
//! everything counted twice.
//!
//! ```text
//! cargo bench -p volt-runtime --bench stress                        10^8 polls, some minutes
//! cargo bench -p volt-runtime --bench stress -- --polls 1000000     another number of polls
//! cargo bench -p volt-runtime --bench stress -- --seed 7            the same work again
//! ```
//! Prints a summary of the work, or panics with the property that does not hold; see `mix` for the
//! properties. In addition, memory must not grow. What is allocated at rest, between two runtimes
//! and inside the long-lived one, must be at the end what it was in the first third. The tolerance
//! is one hundredth, plus what is allocated once. Resident memory is printed too; it includes what
//! the allocator keeps for later.

mod heap;
mod mix;

use std::fmt;
use std::time::{Duration, Instant};

use heap::Live;
use mix::{Done, Mix};
use volt::Placement;
use volt::telemetry::Snapshot;

#[global_allocator]
static ALLOCATOR: heap::Counting = heap::Counting;

const POLLS: u64 = 100_000_000;
/// Runtimes that run one after the other and do half of the polls.
const ROUNDS: u64 = 24;
/// Stretches of the long-lived runtime, which does the other half.
const STRETCHES: u64 = 24;
/// Tasks of the long-lived runtime that are alive together in the beginning. The mix itself has
/// some hundreds.
const CROWD: usize = 5_000;
const WORKERS: [usize; 6] = [2, 1, 4, 3, 8, 66];
const PLACEMENTS: [Placement; 3] = [Placement::Global, Placement::TwoChoices, Placement::LeastLoaded];
/// Maximum growth of what is allocated at rest since the first third, as a fraction.
const GROWTH_MAX: f64 = 0.01;
/// Permitted in addition: values that are allocated when first needed and then kept may come late.
/// Far less than one byte per task.
const MADE_ONCE: Live = Live { allocations: 16, bytes: 256 << 10 };
/// Maximum memory of completed tasks that each worker keeps for new ones; it takes long to fill.
/// Between runtimes all of it is freed.
const KEPT_BYTES: i64 = 1 << 20;
/// A task takes more than this.
const TASK_BYTES_MIN: i64 = 64;
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

/// Returns the resident memory of this program, bytes; `None` if the system does not report it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let kibibytes = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?.trim().strip_suffix(" kB")?;
    Some(kibibytes.parse::<u64>().ok()? << 10)
}

/// Returns the number of threads of this program; `None` if the system does not report it.
fn threads() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

/// The allocated memory at each rest.
struct Rests {
    what: &'static str,
    /// Memory that may be allocated late in addition.
    late: Live,
    live: Vec<Live>,
    resident_bytes: Vec<u64>,
}

impl Rests {
    /// Allocates room for all, so that the list itself does not grow.
    fn new(what: &'static str, count: u64, workers: usize) -> Self {
        let kept_bytes = KEPT_BYTES * workers as i64;
        let late = Live {
            allocations: MADE_ONCE.allocations + kept_bytes / TASK_BYTES_MIN,
            bytes: MADE_ONCE.bytes + kept_bytes,
        };
        let (live, resident_bytes) = (Vec::with_capacity(count as usize), Vec::with_capacity(count as usize));
        Self { what, late, live, resident_bytes }
    }

    /// Adds a rest, and returns its description.
    fn add(&mut self) -> String {
        let live = Live::now();
        self.live.push(live);
        self.resident_bytes.extend(resident_bytes());
        let resident = self.resident_bytes.last().map_or(f64::NAN, |&bytes| bytes as f64 / f64::from(1 << 20));
        format!("live {:>8} B in {:>5}  rss {resident:>5.2} MiB", live.bytes, live.allocations)
    }

    /// Prints how each measure has changed from the first third's maximum to the last rest, and
    /// checks what is allocated against its limit.
    fn check(&self) {
        let allocations = Growth::of(self.live.iter().map(|live| live.allocations));
        let bytes = Growth::of(self.live.iter().map(|live| live.bytes));
        let resident = Growth::of(self.resident_bytes.iter().map(|&bytes| bytes as i64));
        println!(
            "{}: since the first third live allocations {allocations}, live bytes {bytes}, resident bytes {resident}",
            self.what
        );
        let is_flat = allocations.is_within(self.late.allocations) && bytes.is_within(self.late.bytes);
        assert!(is_flat, "{}, something grows", self.what);
    }
}

/// The largest value of the first third, and the last one.
struct Growth {
    first: i64,
    last: i64,
}

impl Growth {
    fn of(values: impl ExactSizeIterator<Item = i64> + Clone) -> Self {
        let third = values.len().div_ceil(3);
        let first = values.clone().take(third).max().unwrap_or_default();
        Self { first, last: values.last().unwrap_or_default() }
    }

    fn is_within(&self, made_once: i64) -> bool {
        (self.last - self.first - made_once) as f64 <= GROWTH_MAX * self.first as f64
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = 100.0 * (self.last as f64 / self.first as f64 - 1.0);
        write!(f, "{} -> {} ({percent:+.2} %)", self.first, self.last)
    }
}

/// Prints progress now and then.
fn progress() -> impl FnMut(&Snapshot) {
    let mut reported_at = Instant::now();
    move |snapshot| {
        if reported_at.elapsed() > PROGRESS {
            reported_at = Instant::now();
            let polls: u64 = snapshot.workers.iter().map(|worker| worker.polls).sum();
            println!("  … {polls} polls, {} tasks alive", snapshot.tasks.alive);
        }
    }
}

/// Runs many runtimes, one after the other.
fn come_and_go(polls: u64, seed: u64, all: &mut Done) -> Rests {
    let mut rests = Rests::new("between runtimes", ROUNDS, 0);
    let threads_before = threads();
    for round in 0..ROUNDS {
        let mix = Mix {
            workers: WORKERS[round as usize % WORKERS.len()],
            outsiders: 1 + round / 3 % 2,
            placement: PLACEMENTS[(round / 2) as usize % PLACEMENTS.len()],
            // With the park time-out, lost wake-ups are rescued and counted; without it, one hangs.
            park_timeout: (round % 2 == 0).then_some(Duration::from_millis(10)),
            local_queue_capacity: [256, 8][(round / 4) as usize % 2],
            polls: polls / ROUNDS,
            stretches: 1,
            crowd: 0,
            seed: seed.wrapping_mul(ROUNDS).wrapping_add(round),
        };
        let started = Instant::now();
        let done = mix::run(&mix, progress(), || ());
        all.add(&done);
        let seconds = started.elapsed().as_secs_f64();
        // A thread for blocking work still holds memory for a moment after it has announced its
        // end.
        while threads() > threads_before {
            std::thread::yield_now();
        }
        println!(
            "{:>2}  {:>2} workers {:<11} ring {:>3} {:<6} {:>9} polls {:>8} tasks {:>6} steals {:>8} parks {:>5.1} s {:>6.1} M polls/s  {}",
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
            rests.add(),
        );
    }
    rests
}

/// Runs one runtime, which rests now and then.
fn live_long(polls: u64, seed: u64, all: &mut Done) -> Rests {
    let mix = Mix {
        workers: 3,
        outsiders: 2,
        placement: Placement::TwoChoices,
        park_timeout: Some(Duration::from_millis(10)),
        local_queue_capacity: 64,
        polls,
        stretches: STRETCHES,
        crowd: CROWD,
        seed,
    };
    println!("{} workers in one runtime, {STRETCHES} stretches", mix.workers);
    let mut rests = Rests::new("at rest in the long-lived runtime", STRETCHES, mix.workers);
    all.add(&mix::run(&mix, progress(), || println!("    {}", rests.add())));
    rests
}

fn main() {
    let (polls, seed) = (option("--polls", POLLS), option("--seed", 1));
    let began = Instant::now();
    let mut all = Done::default();
    println!("{polls} polls, half of them in {ROUNDS} runtimes, seed {seed}");
    let between = come_and_go(polls / 2, seed, &mut all);
    let within = live_long(polls / 2, seed, &mut all);
    println!("{all:#?}");
    println!(
        "spawned = completed + cancelled + panicked: {} = {} + {} + {}",
        all.spawned, all.completed, all.cancelled, all.panicked
    );
    assert_eq!(all.spawned, all.completed + all.cancelled + all.panicked);
    between.check();
    within.check();
    println!("lost wake-ups {}; took {:.1} s", all.rescues, began.elapsed().as_secs_f64());
}
