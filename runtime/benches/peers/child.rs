//! Measurements that need a separate program: the benchmark starts itself with `--child` and reads
//! the output.

use std::fs;
use std::future::poll_fn;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::meter::cpu_time;
use crate::runtimes::peer::Peer;
use crate::runtimes::smol::Smol;
use crate::runtimes::tokio::Tokio;
use crate::runtimes::volt::Volt;
use crate::workloads::http_load;

const CHILD: &str = "--child";
/// Tasks spawned before waiting until all of them were polled, so that the queues do not grow to
/// hold them all.
const TASKS_AT_ONCE: usize = 1_000;
/// Until it has settled, an idle runtime may wake up now and then.
const SETTLING: Duration = Duration::from_secs(3);
const COUNTED: Duration = Duration::from_secs(6);
const QUICK_COUNTED: Duration = Duration::from_secs(2);

/// The measurement that a child makes.
pub(crate) enum Still {
    /// Bytes per parked task.
    Memory { workers: usize, tasks: usize },
    /// Context switches per second, and µs of processor time per second.
    Idle { workers: usize, quick: bool },
}

impl Still {
    /// Returns the arguments for a measurement on the runtime of that name.
    pub(crate) fn arguments(&self, runtime: &str) -> Vec<String> {
        let (what, workers, much) = match *self {
            Still::Memory { workers, tasks } => ("memory", workers, tasks),
            Still::Idle { workers, quick } => ("idle", workers, usize::from(quick)),
        };
        vec![what.to_owned(), runtime.to_owned(), workers.to_string(), much.to_string()]
    }
}

/// Starts this program as a child with these arguments. Its input and output are pipes.
pub(crate) fn start(arguments: &[String]) -> Child {
    let program = std::env::current_exe().expect("this program can be started again");
    let mut command = Command::new(program);
    command.arg(CHILD).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("a child starts")
}

/// Starts all children at the same time, and returns the figures of each.
pub(crate) fn measure(children: &[Vec<String>]) -> Vec<Vec<f64>> {
    let started: Vec<_> = children.iter().map(|arguments| start(arguments)).collect();
    let figures = started.into_iter().map(|child| {
        let output = child.wait_with_output().expect("a child ends");
        assert!(output.status.success(), "a child failed: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_whitespace().map(|figure| figure.parse().expect("a child prints numbers")).collect()
    });
    figures.collect()
}

/// In a child: runs the measurement, and returns the exit code.
pub(crate) fn run(arguments: &[String]) -> Option<ExitCode> {
    let (first, arguments) = arguments.split_first()?;
    if first != CHILD {
        return None;
    }
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [http_load::LOAD, address, counted_ms] => http_load::load(address, counted_ms).expect("the load runs"),
        [what, runtime, workers, much] => {
            let number = |text: &str| text.parse::<usize>().expect("the bench gives numbers");
            let (workers, much) = (number(workers), number(much));
            let figures = match runtime {
                Volt::NAME => still::<Volt>(what, workers, much),
                <Tokio>::NAME => still::<Tokio>(what, workers, much),
                _ => still::<Smol>(what, workers, much),
            };
            let texts: Vec<_> = figures.iter().map(f64::to_string).collect();
            println!("{}", texts.join(" "));
        }
        _ => return Some(ExitCode::FAILURE),
    }
    Some(ExitCode::SUCCESS)
}

fn still<P: Peer>(what: &str, workers: usize, much: usize) -> Vec<f64> {
    if what == "memory" { memory::<P>(workers, much) } else { idle::<P>(workers, much != 0) }
}

fn memory<P: Peer>(workers: usize, tasks: usize) -> Vec<f64> {
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

fn idle<P: Peer>(workers: usize, is_quick: bool) -> Vec<f64> {
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
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("the kernel tells the resident size");
    let kilobytes = line.split_whitespace().nth(1).and_then(|text| text.parse::<f64>().ok());
    kilobytes.expect("the resident size is a number") * 1024.0
}
