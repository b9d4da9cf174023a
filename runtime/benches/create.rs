//! Measures what it costs to create a runtime and to drop it again, compared with Tokio: test
//! suites do that for each test.
//!
//! ```text
//! cargo bench -p volt-runtime --bench create                   the table
//! cargo bench -p volt-runtime --bench create -- --markdown     the table of runtime/benches/RESULTS.md
//! cargo bench -p volt-runtime --bench create -- --quick        fewer batches
//! cargo bench -p volt-runtime --bench create -- volt current_thread 20000     only that, for profilers
//! ```
//!
//! Both runtimes have their defaults and the same number of workers, and take turns in batches. A
//! figure is the median over the batches. The rows `used` run one task before the drop, which wakes
//! what watches the runtime. At the end, the bench prints the number of threads of this program
//! after the last drop.

use std::time::Instant;

/// Runtimes per batch.
const RUNTIMES: u32 = 50;
const BATCHES: usize = 61;
const QUICK_BATCHES: usize = 5;
const WORKERS: usize = 2;

/// A workload: its name, its limit for Volt's cost divided by Tokio's, and its runs on the two.
type Row = (&'static str, Option<f64>, [fn(); 2]);

const ROWS: [Row; 4] = [
    ("current_thread", Some(2.0), [|| drop(volt_current()), || drop(tokio_current())]),
    ("current_thread_used", None, [|| volt_use(&volt_current()), || tokio_use(&tokio_current())]),
    ("multi_thread", Some(1.5), [|| drop(volt_multi()), || drop(tokio_multi())]),
    ("multi_thread_used", None, [|| volt_use(&volt_multi()), || tokio_use(&tokio_multi())]),
];
const NAMES: [&str; 2] = ["volt", "tokio"];

fn volt_current() -> volt::Runtime {
    volt::Builder::new_current_thread().build().expect("Volt starts")
}

fn volt_multi() -> volt::Runtime {
    volt::Builder::new_multi_thread().worker_threads(WORKERS).build().expect("Volt starts")
}

fn volt_use(runtime: &volt::Runtime) {
    runtime.block_on(async { volt::spawn(async {}).await.expect("the task does not panic") });
}

fn tokio_current() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("Tokio starts")
}

fn tokio_multi() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(WORKERS).enable_all().build().expect("Tokio starts")
}

fn tokio_use(runtime: &tokio::runtime::Runtime) {
    runtime.block_on(async { tokio::spawn(async {}).await.expect("the task does not panic") });
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    if let [runtime, row, times] = &arguments[..] {
        let (_, _, runs) = ROWS.iter().find(|(name, ..)| name == row).expect("a row of the table");
        let run = runs[NAMES.iter().position(|name| name == runtime).expect("volt or tokio")];
        (0..times.parse::<u64>().expect("a number of runtimes")).for_each(|_| run());
        return;
    }
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    let (is_markdown, batches) = (has("--markdown"), if has("--quick") { QUICK_BATCHES } else { BATCHES });
    if is_markdown {
        println!("| us per runtime | Volt | Tokio | ratio | target | |\n|---|---|---|---|---|---|");
    } else {
        println!("{:<20} {:>10} {:>10} {:>6}  target", "us per runtime", "volt", "tokio", "ratio");
    }
    let (mut met, mut targets) = (0, 0);
    for (name, limit, runs) in ROWS {
        let [volt, tokio] = medians_us(runs, batches);
        let is_met = limit.map(|limit| volt <= limit * tokio);
        targets += usize::from(is_met.is_some());
        met += usize::from(is_met == Some(true));
        let limit = limit.map_or("–".to_owned(), |limit| format!("≤ {limit:.2}"));
        let verdict = is_met.map_or("", |is_met| if is_met { "met" } else { "missed" });
        let ratio = volt / tokio;
        if is_markdown {
            println!("| `{name}` | {volt:.1} | {tokio:.1} | {ratio:.2} | {limit} | {verdict} |");
        } else {
            println!("{name:<20} {volt:>10.1} {tokio:>10.1} {ratio:>6.2}  {limit} {verdict}");
        }
    }
    println!("\n{met} of {targets} targets met");
    if let Ok(threads) = std::fs::read_dir("/proc/self/task") {
        println!("threads after the last drop: {}", threads.count());
    }
}

/// Returns the median over the batches for each of the two.
fn medians_us(runs: [fn(); 2], batches: usize) -> [f64; 2] {
    let mut took = [Vec::new(), Vec::new()];
    for _ in 0..batches {
        for (run, took) in runs.into_iter().zip(&mut took) {
            let began = Instant::now();
            (0..RUNTIMES).for_each(|_| run());
            took.push(began.elapsed().as_secs_f64() * 1e6 / f64::from(RUNTIMES));
        }
    }
    took.map(|mut took| {
        took.sort_by(f64::total_cmp);
        took[batches / 2]
    })
}
