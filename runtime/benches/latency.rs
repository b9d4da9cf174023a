//! How late an idle runtime is: timers of four lengths, and a packet that finds all workers asleep. Volt and Tokio in turns.
//!
//!     cargo bench -p volt-runtime --bench latency            # a minute
//!     cargo bench -p volt-runtime --bench latency -- --quick
//!
//! Lateness of a timer is what passes between its deadline and the task's next line; latency of a packet is what passes between the call that
//! sends it, on a thread of its own, and the task's next line. Each is given as median and 99th percentile, µs, over all rounds. One task, two
//! workers, nothing else to do: of a loaded runtime the bench `peers` tells. The machine's load is printed with it, since it is in the numbers.

use std::io::Write;
use std::net;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const WORKERS: usize = 2;
const ROUNDS: usize = 3;
/// How long a timer lasts, and how many of them a round has.
const TIMERS: [(Duration, usize); 4] = [
    (Duration::from_micros(50), 2_000),
    (Duration::from_micros(500), 1_000),
    (Duration::from_millis(5), 200),
    (Duration::from_millis(100), 20),
];
const PACKETS: usize = 1_000;
/// Between two packets: long enough that whoever spins has given up.
const PAUSE: Duration = Duration::from_millis(2);

fn main() {
    let is_quick = std::env::args().any(|argument| argument == "--quick");
    let part = if is_quick { 10 } else { 1 };
    println!("load {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
    println!("{:<16} {:>12} {:>12} {:>12} {:>12}", "µs", "Volt p50", "Volt p99", "Tokio p50", "Tokio p99");
    for (length, count) in TIMERS {
        report(
            &format!("timer {length:?}"),
            || volt_timers(length, count / part),
            || tokio_timers(length, count / part),
        );
    }
    report("packet", || volt_packets(PACKETS / part), || tokio_packets(PACKETS / part));
    println!("load {}", std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim());
}

/// Rounds in turns, so that what the machine does meanwhile hits both.
fn report(what: &str, volt: impl Fn() -> Vec<Duration>, tokio: impl Fn() -> Vec<Duration>) {
    let (mut of_volt, mut of_tokio) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        of_volt.extend(volt());
        of_tokio.extend(tokio());
    }
    let [volt, tokio] = [of_volt, of_tokio].map(|mut times| {
        times.sort();
        [times.len() / 2, times.len() * 99 / 100].map(|index| times[index].as_nanos() as f64 / 1e3)
    });
    println!("{what:<16} {:>12.1} {:>12.1} {:>12.1} {:>12.1}", volt[0], volt[1], tokio[0], tokio[1]);
}

fn volt_runtime() -> volt::Runtime {
    volt::Builder::new_multi_thread().worker_threads(WORKERS).control_socket(false).build().unwrap()
}

fn tokio_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap()
}

/// How late `sleep` is, again and again, in a task.
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

/// How long a byte takes from the sender's call to the task that waits for it.
macro_rules! packets {
    ($name:ident, $runtime:ident, $spawn:path, $stream:ty, $read:path) => {
        fn $name(count: usize) -> Vec<Duration> {
            let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut sender = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            sender.set_nodelay(true).unwrap();
            let (receiver, _) = listener.accept().unwrap();
            receiver.set_nonblocking(true).unwrap();
            let began = Instant::now();
            let sent_at_ns = Arc::new(AtomicU64::new(0));
            let stamp = sent_at_ns.clone();
            let runtime = $runtime();
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

packets!(volt_packets, volt_runtime, volt::spawn, volt::net::TcpStream, volt::io::AsyncReadExt::read_exact);
packets!(tokio_packets, tokio_runtime, tokio::spawn, tokio::net::TcpStream, tokio::io::AsyncReadExt::read_exact);
