//! The cost of a runtime while nothing happens: memory for tasks that wait, and wake-ups of workers
//! that have nothing to do.
//!
//! Each is measured in a separate program: a child makes the measurement and prints its figures.

use std::fs;
use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::child;
use crate::meter::{Meter, cpu_time};
use crate::runtimes::peer::Peer;
use crate::runtimes::smol::Smol;
use crate::runtimes::tokio::Tokio;
use crate::runtimes::volt::Volt;

const TASKS: usize = 1_000_000;
const QUICK_TASKS: usize = 100_000;
/// µs per second.
const US_A_PER_CENT: f64 = 10_000.0;
/// Numbers of workers of the idle runtimes, independent of the machine.
const WORKERS: [usize; 3] = [2, 8, 64];
/// Tasks spawned before waiting until all of them were polled, so that the queues do not grow to
/// hold them all.
const TASKS_AT_ONCE: usize = 1_000;
/// Until it has settled, an idle runtime may wake up now and then.
const SETTLING: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(6);
const QUICK_COUNTED: Duration = Duration::from_secs(2);

/// Returns the bytes by which the program grows for each of a million waiting tasks, without what
/// they wait for.
pub(super) fn memory<P: Peer>(meter: &Meter) -> Vec<f64> {
    let tasks = if meter.is_quick { QUICK_TASKS } else { TASKS };
    child::measure(&[Still::Memory { workers: meter.workers, tasks }.arguments(P::NAME)]).concat()
}

/// Measures an idle runtime with 2, 8 and 64 workers, each in a separate program at the same time.
/// Returns its threads' context switches per second, then its processor time in per cent of one
/// processor.
pub(super) fn idle<P: Peer>(meter: &Meter) -> Vec<f64> {
    let children = WORKERS.map(|workers| Still::Idle { workers, quick: meter.is_quick }.arguments(P::NAME));
    let figures = child::measure(&children);
    let each = |of: fn(&Vec<f64>) -> f64| figures.iter().map(of);
    each(|figures| figures[0]).chain(each(|figures| figures[1] / US_A_PER_CENT)).collect()
}

/// The measurement that a child makes.
enum Still {
    /// Bytes per parked task.
    Memory { workers: usize, tasks: usize },
    /// Context switches per second, and µs of processor time per second.
    Idle { workers: usize, quick: bool },
}

impl Still {
    /// Returns the arguments for a measurement on the runtime of that name.
    fn arguments(&self, runtime: &str) -> Vec<String> {
        let (what, workers, much) = match *self {
            Still::Memory { workers, tasks } => ("memory", workers, tasks),
            Still::Idle { workers, quick } => ("idle", workers, usize::from(quick)),
        };
        vec![what.to_owned(), runtime.to_owned(), workers.to_string(), much.to_string()]
    }
}

/// In a child: makes the measurement that [`Still::arguments`] describes, and prints its figures.
pub(super) fn print(what: &str, runtime: &str, workers: &str, much: &str) {
    let number = |text: &str| text.parse::<usize>().expect("the bench gives numbers");
    let (workers, much) = (number(workers), number(much));
    let figures = match runtime {
        Volt::NAME => measure::<Volt>(what, workers, much),
        <Tokio>::NAME => measure::<Tokio>(what, workers, much),
        _ => measure::<Smol>(what, workers, much),
    };
    let texts: Vec<_> = figures.iter().map(f64::to_string).collect();
    println!("{}", texts.join(" "));
}

fn measure<P: Peer>(what: &str, workers: usize, much: usize) -> Vec<f64> {
    if what == "memory" { measure_memory::<P>(workers, much) } else { measure_idle::<P>(workers, much != 0) }
}

fn measure_memory<P: Peer>(workers: usize, tasks: usize) -> Vec<f64> {
    static POLLED: AtomicUsize = AtomicUsize::new(0);
    let peer = P::start(workers);
    let park = |count: usize| {
        let before = POLLED.load(Ordering::Acquire);
        for _ in 0..count {
            // Never ready, and no waker is kept. The rest is the memory that the runtime uses for a
            // task.
            P::detach(peer.spawn_from_outside(poll_fn(|_| {
                POLLED.fetch_add(1, Ordering::Release);
                Poll::<()>::Pending
            })));
        }
        while POLLED.load(Ordering::Acquire) < before + count {
            thread::yield_now();
        }
    };
    park(TASKS_AT_ONCE);
    let before = resident_bytes();
    (0..tasks / TASKS_AT_ONCE).for_each(|_| park(TASKS_AT_ONCE));
    let bytes = resident_bytes() - before;
    let tasks = (tasks / TASKS_AT_ONCE * TASKS_AT_ONCE) as f64;
    // The tasks end with the program: ending a million of them is not part of the measurement.
    std::mem::forget(peer);
    vec![bytes / tasks]
}

fn measure_idle<P: Peer>(workers: usize, is_quick: bool) -> Vec<f64> {
    let peer = P::start(workers);
    // Each worker has had a task, and one of them a timer.
    peer.run(async move {
        P::sleep(Duration::from_millis(1)).await;
        let tasks: Vec<_> = (0..100 * workers).map(|_| P::spawn(P::yield_now())).collect();
        for task in tasks {
            P::join(task).await;
        }
    });
    thread::sleep(SETTLING);
    let (switches, cpu, began) = (switches(), cpu_time(), Instant::now());
    thread::sleep(if is_quick { QUICK_COUNTED } else { COUNTED });
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_time() - cpu);
    let switches = self::switches() - switches;
    std::mem::forget(peer);
    vec![switches / seconds, cpu.as_nanos() as f64 / 1e3 / seconds]
}

/// Returns the context switches, voluntary or not, of all threads of this program except the main
/// one, which does the counting.
fn switches() -> f64 {
    let main = std::process::id().to_string();
    let tasks = fs::read_dir("/proc/self/task").expect("this system has /proc");
    let mut sum = 0.0;
    for task in tasks.flatten().filter(|task| *task.file_name() != *main) {
        // A thread may end meanwhile.
        let status = fs::read_to_string(task.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter(|line| line.contains("voluntary_ctxt_switches:"));
        sum += counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok()).sum::<f64>();
    }
    sum
}

fn resident_bytes() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("this system has /proc");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel reports the resident size");
    let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
    kilobytes.expect("the resident size is a number") * 1024.0
}
