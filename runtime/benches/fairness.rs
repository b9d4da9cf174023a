//! Measures how long a task from outside waits, in time, while every worker is busy with tasks that
//! wake themselves. The tasks from outside are in the global queue, the default placement.
//!
//! ```text
//! cargo bench -p volt-runtime --bench fairness            a table
//! cargo bench -p volt-runtime --bench fairness -- --json  one JSON object per line instead
//! cargo bench -p volt-runtime --bench fairness -- --markdown  the table of docs/benchmarks.md
//! cargo bench -p volt-runtime --bench fairness -- --quick  shorter
//! ```
//! One column is the target with one worker and a processor for each thread. With as many workers
//! as processors, the submitting thread occupies one of the processors, so the figures contain
//! whole scheduling quanta of the kernel.
//!
//! `tests/scheduler/fairness.rs` tests the same, measured in polls, on any machine.

use std::future::poll_fn;
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use volt::Runtime;
use volt::task::yield_now;

/// Poll lengths, and the target p99 with one worker, µs.
const CASES: [(u64, f64); 4] = [(1, 5.0), (10, 20.0), (100, 120.0), (1_000, 1_100.0)];
/// Maximum hops of two tasks that wake each other while a third waits in the ring.
const HOPS_TARGET: f64 = 4.0;
/// Maximum number of tasks submitted for a case, and maximum time.
const SAMPLES: usize = 2_000;
const TIME: Duration = Duration::from_secs(2);
const QUICK_TIME: Duration = Duration::from_millis(200);
const HOP_SAMPLES: usize = 10_000;

/// The format of the output.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Table,
    Markdown,
    Json,
}

struct Row {
    what: &'static str,
    workers: usize,
    poll_us: Option<u64>,
    unit: &'static str,
    values: Vec<f64>,
    target: f64,
    /// Whether the target applies to this case.
    is_judged: bool,
}

impl Row {
    /// Returns the value that a share of `ratio` of all values does not exceed.
    fn quantile(&self, ratio: f64) -> f64 {
        self.values[((self.values.len() - 1) as f64 * ratio).round() as usize]
    }

    /// Returns whether the target is met, if it applies.
    fn is_met(&self) -> Option<bool> {
        self.is_judged.then(|| self.quantile(0.99) <= self.target)
    }

    fn print(&self, form: Form) {
        let [p50, p99, max] = [0.5, 0.99, 1.0].map(|ratio| self.quantile(ratio));
        let (what, workers, unit, target, samples) =
            (self.what, self.workers, self.unit, self.target, self.values.len());
        let poll_us = self.poll_us.map(|micros| micros.to_string());
        if form == Form::Json {
            let poll_us = poll_us.as_deref().unwrap_or("null");
            let target = if self.is_judged { target.to_string() } else { "null".into() };
            println!(
                r#"{{"bench":"fairness","case":"{what}","workers":{workers},"poll_us":{poll_us},"unit":"{unit}","samples":{samples},"p50":{p50:.1},"p99":{p99:.1},"max":{max:.1},"p99_target":{target}}}"#
            );
            return;
        }
        let poll = poll_us.map_or("-".into(), |micros| format!("{micros} us"));
        let verdict = self.is_met().map_or("", |is_met| if is_met { "met" } else { "missed" });
        if form == Form::Markdown {
            let tasks = match self.poll_us {
                Some(micros) => format!("polls of {micros} us"),
                None => "two tasks that wake each other".to_owned(),
            };
            let target = if self.is_judged { format!("≤ {target:.0}") } else { "–".to_owned() };
            let plural = if workers == 1 { "" } else { "s" };
            let row = format!("{workers} worker{plural}, {tasks} | {unit} | {p50:.1} | {p99:.1} | {max:.1}");
            return println!("| {row} | {target} | {verdict} |");
        }
        println!(
            "{what:<10} {workers:>7} {poll:>8} {samples:>8} {p50:>9.1} {p99:>9.1} {max:>9.1} {unit:<5} {target:>8.1} {verdict}"
        );
    }
}

fn runtime(workers: usize) -> Runtime {
    volt::Builder::new_multi_thread().worker_threads(workers).name("fairness").control_socket(false).build().unwrap()
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        spin_loop();
    }
}

/// Checks that no wake-up was lost and rescued by the park time-out, which would make all figures
/// worthless.
fn has_lost_none(runtime: &Runtime) {
    let rescues: u64 = runtime.handle().snapshot().workers.iter().map(|worker| worker.lost_wakeup_rescues).sum();
    assert_eq!(rescues, 0, "a wake-up was lost, or came later than the park time-out");
}

/// Measures the time from submitting a task to its first poll, with two busy tasks per worker.
fn inject(workers: usize, poll_us: u64, target: f64, is_judged: bool, time: Duration) -> Row {
    let runtime = runtime(workers);
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..2 * workers)
        .map(|_| {
            let stop = stop.clone();
            runtime.spawn(poll_fn(move |cx| {
                spin(Duration::from_micros(poll_us));
                if stop.load(Ordering::Relaxed) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            }))
        })
        .collect();
    // After some ticks the tuner has its average.
    std::thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    let mut values = Vec::new();
    while values.len() < SAMPLES && began.elapsed() < time {
        // At a different moment of a poll each time: a quarter to five quarters of a poll later.
        spin(Duration::from_nanos(poll_us * (250 + values.len() as u64 * 618 % 1_000)));
        let handed_in = Instant::now();
        let task = runtime.spawn(async move { handed_in.elapsed() });
        values.push(runtime.block_on(task).unwrap().as_nanos() as f64 / 1e3);
    }
    stop.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| runtime.block_on(hog).unwrap());
    has_lost_none(&runtime);
    values.sort_by(f64::total_cmp);
    Row { what: "inject", workers, poll_us: Some(poll_us), unit: "us", values, target, is_judged }
}

/// One of two tasks that wake each other forever.
async fn play(mine: Arc<Baton>, other: Arc<Baton>, hops: Arc<AtomicU64>) {
    loop {
        poll_fn(|cx| {
            *mine.waker.lock().unwrap() = Some(cx.waker().clone());
            if mine.is_here.swap(false, Ordering::SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        hops.fetch_add(1, Ordering::SeqCst);
        other.give();
    }
}

#[derive(Default)]
struct Baton {
    is_here: AtomicBool,
    waker: std::sync::Mutex<Option<Waker>>,
}

impl Baton {
    fn give(&self) {
        self.is_here.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Counts the hops of two tasks that wake each other, from when a third is put into the ring until
/// it is polled.
fn ping_pong() -> Row {
    let runtime = runtime(1);
    let (ping, pong, hops) = (Arc::new(Baton::default()), Arc::new(Baton::default()), Arc::new(AtomicU64::new(0)));
    let players = [(&ping, &pong), (&pong, &ping)]
        .map(|(mine, other)| runtime.spawn(play(mine.clone(), other.clone(), hops.clone())));
    ping.give();
    let counted = hops.clone();
    let third = runtime.spawn(async move {
        let mut values = Vec::with_capacity(HOP_SAMPLES);
        for _ in 0..HOP_SAMPLES {
            let before = counted.load(Ordering::SeqCst);
            yield_now().await;
            values.push((counted.load(Ordering::SeqCst) - before) as f64);
        }
        values
    });
    let mut values = runtime.block_on(third).unwrap();
    players.iter().for_each(|player| player.abort());
    has_lost_none(&runtime);
    values.sort_by(f64::total_cmp);
    Row { what: "ping_pong", workers: 1, poll_us: None, unit: "hops", values, target: HOPS_TARGET, is_judged: true }
}

fn main() {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    let form = match (has("--json"), has("--markdown")) {
        (true, _) => Form::Json,
        (false, true) => Form::Markdown,
        (false, false) => Form::Table,
    };
    let time = if has("--quick") { QUICK_TIME } else { TIME };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    match form {
        Form::Json => {}
        Form::Markdown => {
            println!("| busy tasks | unit | p50 | p99 | max | target for p99 | |");
            println!("|---|---|---|---|---|---|---|");
        }
        Form::Table => {
            println!(
                "{processors} processors; a task from outside, from its spawn to its first poll, beside 2 x workers that wake themselves"
            );
            println!(
                "{:<10} {:>7} {:>8} {:>8} {:>9} {:>9} {:>9} {:<5} {:>8}",
                "case", "workers", "poll", "samples", "p50", "p99", "max", "unit", "p99 <="
            );
        }
    }
    let mut rows = Vec::new();
    let mut workers = vec![1, processors];
    workers.dedup();
    for workers in workers {
        for (poll_us, target) in CASES {
            let row = inject(workers, poll_us, target, workers < processors, time);
            row.print(form);
            rows.push(row);
        }
    }
    let row = ping_pong();
    row.print(form);
    rows.push(row);
    if form != Form::Json {
        let targets: Vec<_> = rows.iter().filter_map(Row::is_met).collect();
        println!("\n{} of {} targets met", targets.iter().filter(|is_met| **is_met).count(), targets.len());
    }
}
