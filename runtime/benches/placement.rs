//! Compares the three placements: throughput of tasks from outside, how long they wait, and how
//! even the workers' shares are.
//!
//! `cargo bench -p volt-runtime --bench placement` ends within half a minute. Two outside threads
//! spawn tasks of two lengths. The three placements take turns, and the figures are medians over
//! the rounds.

use std::time::{Duration, Instant};

use volt::Placement;

const ROUNDS: usize = 5;
const TASKS: usize = 20_000;
const WORKERS: [usize; 2] = [2, 8];
/// Nothing, and the time of a small request.
const LENGTHS: [Duration; 2] = [Duration::ZERO, Duration::from_micros(5)];

/// The figures of one round.
struct Measured {
    /// Time per task, ns.
    cost_ns: f64,
    /// From spawn to poll, ns: 99th percentile.
    delay_p99_ns: u64,
    /// Polls of the busiest worker ÷ those of the average one; 1 is even.
    skew_ratio: f64,
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn round(placement: Placement, workers: usize, length: Duration) -> Measured {
    let runtime = volt::Builder::new_multi_thread()
        .worker_threads(workers)
        .placement(placement)
        .control_socket(false)
        .build()
        .expect("the settings are valid");
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let tasks: Vec<_> = (0..TASKS / 2).map(|_| runtime.spawn(async move { spin(length) })).collect();
                tasks.into_iter().for_each(|task| runtime.handle().block_on(task).expect("it does not panic"));
            });
        }
    });
    let cost_ns = began.elapsed().as_nanos() as f64 / TASKS as f64;
    let snapshot = runtime.handle().snapshot();
    let rescues: u64 = snapshot.workers.iter().map(|worker| worker.lost_wakeup_rescues).sum();
    assert_eq!(rescues, 0, "a wake-up was lost, or came later than the park time-out");
    let polls: Vec<u64> = snapshot.workers.iter().map(|worker| worker.polls).collect();
    let (most, sum) = (polls.iter().max().copied().unwrap_or(0), polls.iter().sum::<u64>());
    Measured {
        cost_ns,
        delay_p99_ns: snapshot.schedule_delay().quantile_ns(0.99).unwrap_or(0),
        skew_ratio: most as f64 * workers as f64 / sum as f64,
    }
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).expect("no NaN is measured"));
    values[values.len() / 2]
}

fn main() {
    println!("{TASKS} tasks from two outside threads, medians of {ROUNDS} rounds in turns\n");
    println!(
        "{:>7}  {:>6}  {:<12}  {:>10}  {:>10}  {:>5}",
        "workers", "length", "placement", "ns a task", "delay p99", "skew"
    );
    let placements = [Placement::Global, Placement::TwoChoices, Placement::LeastLoaded];
    for workers in WORKERS {
        for length in LENGTHS {
            let mut measured: [Vec<Measured>; 3] = Default::default();
            for _ in 0..ROUNDS {
                for (of_one, placement) in measured.iter_mut().zip(placements) {
                    of_one.push(round(placement, workers, length));
                }
            }
            for (of_one, placement) in measured.iter().zip(placements) {
                let cost_ns = median(of_one.iter().map(|round| round.cost_ns).collect());
                let delay = Duration::from_nanos(median(of_one.iter().map(|round| round.delay_p99_ns).collect()));
                let skew = median(of_one.iter().map(|round| round.skew_ratio).collect());
                let (length, placement) = (format!("{length:?}"), format!("{placement:?}"));
                println!("{workers:>7}  {length:>6}  {placement:<12}  {cost_ns:>10.0}  {delay:>10.1?}  {skew:>5.2}");
            }
        }
    }
}
