//! Measures how late an idle runtime is: timers of four lengths, and a packet that finds all
//! workers asleep. Volt and Tokio take turns.
//!
//!     cargo bench -p volt-runtime --bench latency            # a minute
//!     cargo bench -p volt-runtime --bench latency -- --quick
//!     cargo bench -p volt-runtime --bench latency -- --markdown   # the table of docs/tokio.md
//!     cargo bench -p volt-runtime --bench latency -- --crowd --markdown   # one of RESULTS.md
//!     cargo bench -p volt-runtime --bench latency -- --dump --markdown    # in no document
//!
//! The lateness of a timer is the time between its deadline and the task's next line. The latency
//! of a packet is the time between the call that sends it, on a separate thread, and the task's
//! next line. Each is given as median and 99th percentile, µs, over all rounds. There are one task,
//! two workers and no other work; for a loaded runtime see the benchmark `peers`. The machine's
//! load is printed too, since it affects the figures.
//!
//! It also measures, or with `--crowd` only, how long arming and disarming a timer takes while very
//! many timers come due within half a second (the crowd), and before that. *Busy* is the longest in
//! processor time of the whole program. It bounds how long a lock was held only on a quiet machine:
//! for a waiter that is ready but gets no processor, the work of all other threads counts.
//!
//! With `--dump` only, it also measures the latency of a packet on Volt beside 100,000 waiting
//! tasks: while nothing else runs, and while all of these tasks are dumped, again and again.

use std::io::Write;
use std::net;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use volt::telemetry::dump::Query;

const WORKERS: usize = 2;
const ROUNDS: usize = 3;
/// The label of a timer, its length, and how many of them a round has.
const TIMERS: [(&str, Duration, usize); 4] = [
    ("timer of 50 µs", Duration::from_micros(50), 2_000),
    ("timer of 500 µs", Duration::from_micros(500), 1_000),
    ("timer of 5 ms", Duration::from_millis(5), 200),
    ("timer of 100 ms", Duration::from_millis(100), 20),
];
const PACKETS: usize = 1_000;
/// Timers in the crowd, and the time from the first of them to the last: less than the width of a
/// slot of the wheel.
const CROWD: usize = 1_000_000;
const CROWD_LASTS: Duration = Duration::from_millis(500);
/// Time from the start to the first of them: more than it takes to arm them.
const CROWD_BEGINS: Duration = Duration::from_secs(4);
/// Tasks that wait while packets are received, and then are dumped.
const WAITING: usize = 100_000;
/// Time between two packets: long enough that a spinning thread is asleep.
const PAUSE: Duration = Duration::from_millis(2);

/// The format of the output.
#[derive(Clone, Copy)]
enum Form {
    Table,
    Markdown,
}

fn main() {
    let has = |option: &str| std::env::args().any(|argument| argument == option);
    let form = if has("--markdown") { Form::Markdown } else { Form::Table };
    let part = if has("--quick") { 10 } else { 1 };
    println!("load {}", load());
    if !has("--crowd") && !has("--dump") {
        timers_and_packets(form, part);
    }
    // The tables of the crowd and of the dump are separate ones.
    if has("--crowd") || (matches!(form, Form::Table) && !has("--dump")) {
        crowds(form, CROWD / part);
    }
    if has("--dump") {
        dumps(form, part);
    }
    println!("load {}", load());
}

fn timers_and_packets(form: Form, part: usize) {
    match form {
        Form::Table => {
            println!("{:<16} {:>12} {:>12} {:>12} {:>12}", "µs", "Volt p50", "Volt p99", "Tokio p50", "Tokio p99");
        }
        Form::Markdown => println!("\n| | Volt p50 | p99 | Tokio p50 | p99 |\n|---|---|---|---|---|"),
    }
    for (name, length, count) in TIMERS {
        report(form, name, || volt_timers(length, count / part), || tokio_timers(length, count / part));
    }
    let (volt, tokio) = (volt_runtime, tokio_runtime);
    report(form, "packet", || volt_packets(&volt(), PACKETS / part), || tokio_packets(&tokio(), PACKETS / part));
}

fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}

/// Measures arming and disarming a timer, before and during the crowd.
fn crowds(form: Form, crowd: usize) {
    match form {
        Form::Table => {
            println!("\n{:<26} {:>12} {:>12} {:>12} {:>12}", "arm and disarm, µs", "p50", "p99.9", "longest", "busy");
        }
        Form::Markdown => println!("\n| arm and disarm, µs | p50 | p99.9 | longest | busy |\n|---|---|---|---|---|"),
    }
    type Probe = fn(usize) -> [Vec<(Duration, Duration)>; 2];
    for (name, probe) in [("Volt", volt_crowd as Probe), ("Tokio", tokio_crowd)] {
        for (what, mut times) in ["before", "beside the crowd"].into_iter().zip(probe(crowd)) {
            times.sort();
            let us = |time: Duration| time.as_nanos() as f64 / 1e3;
            let [p50, p999] = [500, 999].map(|part| us(times[times.len() * part / 1_000].0));
            let longest = us(times.last().unwrap().0);
            let busy = us(times.iter().map(|&(_, busy)| busy).max().unwrap());
            let what = format!("{name}, {what}");
            match form {
                Form::Table => println!("{what:<26} {p50:>12.1} {p999:>12.1} {longest:>12.1} {busy:>12.1}"),
                Form::Markdown => {
                    let [p50, p999, longest, busy] = [p50, p999, longest, busy].map(cell);
                    println!("| {what} | {p50} | {p999} | {longest} | {busy} |");
                }
            }
        }
    }
}

/// Measures packets beside many waiting tasks, before and while these are dumped.
fn dumps(form: Form, part: usize) {
    let runtime = volt_runtime();
    let end = Arc::new(volt::sync::Notify::new());
    for _ in 0..WAITING / part {
        let end = end.clone();
        runtime.spawn(async move { end.notified().await });
    }
    let list = || runtime.block_on(runtime.handle().dump_with(Query { polls: false, ..Query::default() }));
    while list().waiting < (WAITING / part) as u64 {
        thread::sleep(Duration::from_millis(1));
    }
    let before = volt_packets(&runtime, PACKETS / part);
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, handle) = (is_over.clone(), runtime.handle().clone());
    let dumps = runtime.spawn(async move {
        let mut took = Vec::new();
        while !over.load(Ordering::Relaxed) {
            let dump = handle.dump().await;
            assert!(dump.read >= (WAITING / part) as u64, "{}", dump.text());
            took.push(Duration::from_nanos(dump.took_ns));
        }
        took
    });
    let during = volt_packets(&runtime, PACKETS / part);
    is_over.store(true, Ordering::Relaxed);
    let mut took = runtime.block_on(dumps).expect("the dumps");
    took.sort();
    match form {
        Form::Table => println!("{:<26} {:>12} {:>12} {:>12}", "packet, µs", "p50", "p99", "longest"),
        Form::Markdown => println!("\n| packet, µs | p50 | p99 | longest |\n|---|---|---|---|"),
    }
    for (what, mut times) in [("beside waiting tasks", before), ("during dumps of them", during)] {
        times.sort();
        let [p50, p99, longest] = [times.len() / 2, times.len() * 99 / 100, times.len() - 1]
            .map(|index| cell(times[index].as_nanos() as f64 / 1e3));
        match form {
            Form::Table => println!("{what:<26} {p50:>12} {p99:>12} {longest:>12}"),
            Form::Markdown => println!("| {what} | {p50} | {p99} | {longest} |"),
        }
    }
    let tasks = WAITING / part;
    println!(
        "\n{} dumps of {tasks} tasks, median {:?}, longest {:?}",
        took.len(),
        took[took.len() / 2],
        took[took.len() - 1]
    );
}

/// Runs rounds in turns, so that disturbances of the machine affect both.
fn report(form: Form, what: &str, volt: impl Fn() -> Vec<Duration>, tokio: impl Fn() -> Vec<Duration>) {
    let (mut of_volt, mut of_tokio) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_volt.extend(volt());
        of_tokio.extend(tokio());
    }
    let [volt, tokio] = [of_volt, of_tokio].map(|mut times| {
        times.sort();
        [times.len() / 2, times.len() * 99 / 100].map(|index| times[index].as_nanos() as f64 / 1e3)
    });
    match form {
        Form::Table => {
            println!("{what:<16} {:>12.1} {:>12.1} {:>12.1} {:>12.1}", volt[0], volt[1], tokio[0], tokio[1]);
        }
        Form::Markdown => {
            let [volt, tokio] = [volt, tokio].map(|times| times.map(cell));
            println!("| {what} | {} | {} | {} | {} |", volt[0], volt[1], tokio[0], tokio[1]);
        }
    }
}

/// Formats a value with its significant digits.
fn cell(us: f64) -> String {
    if us < 100.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

fn volt_runtime() -> volt::Runtime {
    volt::Builder::new_multi_thread().worker_threads(WORKERS).control_socket(false).build().unwrap()
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap()
}

/// Measures repeatedly how late `sleep` is in a task.
macro_rules! timers {
    ($name:ident, $runtime:ident, $spawn:path, $sleep:path) => {
        fn $name(length: Duration, count: usize) -> Vec<Duration> {
            let runtime = $runtime();
            let task = async move {
                let mut late = Vec::with_capacity(count);
                for _ in 0..count {
                    let deadline = Instant::now() + length;
                    $sleep(length).await;
                    late.push(deadline.elapsed());
                }
                late
            };
            runtime.block_on(async { $spawn(task).await.unwrap() })
        }
    };
}

timers!(volt_timers, volt_runtime, volt::spawn, volt::time::sleep);
timers!(tokio_timers, tokio_runtime, tokio::spawn, tokio::time::sleep);

/// Returns the processor time of this program.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Measures repeatedly how long arming and disarming a timer takes, and the processor time that
/// passes meanwhile: while nothing is due, and while a crowd of timers is.
macro_rules! crowd {
    ($name:ident, $runtime:ident, $sleep_until:path, $instant:path) => {
        fn $name(count: usize) -> [Vec<(Duration, Duration)>; 2] {
            let runtime = $runtime();
            let _entered = runtime.enter();
            let mut cx = Context::from_waker(Waker::noop());
            let began = Instant::now();
            let first = began + CROWD_BEGINS;
            let mut timers = Vec::with_capacity(count);
            for index in 0..count {
                let deadline = first + CROWD_LASTS.mul_f64(index as f64 / count as f64);
                let mut timer = Box::pin($sleep_until($instant(deadline)));
                assert!(timer.as_mut().poll(&mut cx).is_pending());
                timers.push(timer);
            }
            assert!(Instant::now() < first - 2 * CROWD_LASTS, "it took too long to arm them");
            let mut probe = |from: Instant| {
                while Instant::now() < from {
                    thread::sleep(Duration::from_millis(1));
                }
                let mut took = Vec::new();
                let until = from + 3 * CROWD_LASTS / 2;
                while Instant::now() < until {
                    let began = Instant::now();
                    let busy = processor_time();
                    {
                        let mut timer = pin!($sleep_until($instant(began + Duration::from_secs(3_600))));
                        assert!(timer.as_mut().poll(&mut cx).is_pending());
                    }
                    took.push((began.elapsed(), processor_time() - busy));
                }
                took
            };
            let margin = CROWD_LASTS / 4;
            [probe(first - margin - 2 * CROWD_LASTS), probe(first - margin)]
        }
    };
}

crowd!(volt_crowd, volt_runtime, volt::time::sleep_until, volt::time::Instant::from_std);
crowd!(tokio_crowd, tokio_runtime, tokio::time::sleep_until, tokio::time::Instant::from_std);

/// Measures how long a byte takes from the sender's call to the task that waits for it.
macro_rules! packets {
    ($name:ident, $runtime:ty, $spawn:path, $stream:ty, $read:path) => {
        fn $name(runtime: &$runtime, count: usize) -> Vec<Duration> {
            let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut sender = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            sender.set_nodelay(true).unwrap();
            let (receiver, _) = listener.accept().unwrap();
            receiver.set_nonblocking(true).unwrap();
            let began = Instant::now();
            let sent_at_ns = Arc::new(AtomicU64::new(0));
            let stamp = sent_at_ns.clone();
            let sends = thread::spawn(move || {
                for _ in 0..count {
                    thread::sleep(PAUSE);
                    stamp.store(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
                    sender.write_all(b"x").unwrap();
                }
            });
            let took = runtime.block_on(async {
                let receives = async move {
                    let mut stream = <$stream>::from_std(receiver).unwrap();
                    let mut took = Vec::with_capacity(count);
                    for _ in 0..count {
                        $read(&mut stream, &mut [0]).await.unwrap();
                        let sent_at = Duration::from_nanos(sent_at_ns.load(Ordering::Relaxed));
                        took.push(began.elapsed() - sent_at);
                    }
                    took
                };
                $spawn(receives).await.unwrap()
            });
            sends.join().unwrap();
            took
        }
    };
}

packets!(volt_packets, volt::Runtime, volt::spawn, volt::net::TcpStream, volt::io::AsyncReadExt::read_exact);
packets!(
    tokio_packets,
    tokio::runtime::Runtime,
    tokio::spawn,
    tokio::net::TcpStream,
    tokio::io::AsyncReadExt::read_exact
);
