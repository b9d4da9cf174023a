//! A program that is flooded with signals: every wait in the kernel is interrupted a thousand times
//! per second, without any effect. Each test runs in a separate program, since the handler belongs
//! to the whole program.
#![cfg(target_os = "linux")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::watchdog::{alone, builder, watched};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};
use volt::Runtime;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};
use volt::task::{JoinHandle, spawn_blocking};
use volt::time::sleep;

const SIGUSR1: i32 = 10;
const MS: Duration = Duration::from_millis(1);
/// Minimum duration of the flood.
const FLOOD: Duration = Duration::from_millis(500);
/// Number of signals that must have arrived before it ends.
const SIGNALS: u64 = 1_000;

static RECEIVED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
    fn siginterrupt(number: i32, interrupts: i32) -> i32;
    fn tgkill(process: i32, thread: i32, number: i32) -> i32;
}

/// Counts the errors in the log.
struct Complaints;

static COMPLAINTS: AtomicU64 = AtomicU64::new(0);

impl Subscriber for Complaints {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && *metadata.level() == Level::ERROR
    }

    fn event(&self, _: &Event<'_>) {
        COMPLAINTS.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

extern "C" fn count(_: i32) {
    RECEIVED.fetch_add(1, Ordering::Relaxed);
}

/// Sends the signal to each thread of this program, about a thousand times per second, until it is
/// stopped.
fn flood(stop: &AtomicBool) {
    let process = std::process::id() as i32;
    while !stop.load(Ordering::Relaxed) {
        for entry in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // SAFETY: a function of the C library. It may fail, since the thread may have exited.
            unsafe { tgkill(process, thread, SIGUSR1) };
        }
        thread::sleep(MS);
    }
}

/// Uses everything that waits in the kernel, repeatedly until `is_over`. The tasks return how
/// often.
fn traffic(runtime: &Runtime, is_over: &Arc<AtomicBool>) -> Vec<JoinHandle<u64>> {
    let goes_on = || {
        let is_over = is_over.clone();
        move || !is_over.load(Ordering::Relaxed)
    };
    let (timers_go_on, sockets_go_on, jobs_go_on) = (goes_on(), goes_on(), goes_on());
    let timers = runtime.spawn(async move {
        let mut rounds = 0;
        while timers_go_on() {
            let (began, time) = (Instant::now(), MS * (1 + rounds as u32 % 3));
            sleep(time).await;
            assert!(began.elapsed() >= time, "early");
            rounds += 1;
        }
        rounds
    });
    let sockets = runtime.spawn(async move {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut rounds = 0;
        while sockets_go_on() {
            let client = volt::spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&[7; 100_000]).await.unwrap();
                let mut reply = Vec::new();
                stream.read_to_end(&mut reply).await.unwrap();
                reply
            });
            let (mut stream, _peer) = listener.accept().await.unwrap();
            let mut request = vec![0; 100_000];
            stream.read_exact(&mut request).await.unwrap();
            stream.write_all(&request).await.unwrap();
            drop(stream);
            assert_eq!(client.await.unwrap(), request);
            rounds += 1;
        }
        rounds
    });
    let jobs = runtime.spawn(async move {
        let mut rounds = 0;
        while jobs_go_on() {
            rounds = spawn_blocking(move || rounds + 1).await.unwrap();
            // So that the workers fall asleep in between.
            sleep(MS).await;
        }
        rounds
    });
    vec![timers, sockets, jobs]
}

#[test]
fn signal_storms_interrupt_waits_without_errors() {
    alone(|| {
        tracing::subscriber::set_global_default(Complaints).unwrap();
        // SAFETY: a function of the C library; the handler does only what a handler may do: one
        // atomic addition.
        unsafe { signal(SIGUSR1, count) };
        // SAFETY: a function of the C library; from now on the kernel does not restart system
        // calls.
        unsafe { siginterrupt(SIGUSR1, 1) };
        watched(|| {
            for workers in [1, 3] {
                let runtime = builder(workers).park_timeout(Some(10 * MS)).sentinel_interval(Some(MS)).build().unwrap();
                let (stop, is_over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
                let flooder = thread::spawn({
                    let stop = stop.clone();
                    move || flood(&stop)
                });
                let (before, began) = (RECEIVED.load(Ordering::Relaxed), Instant::now());
                let tasks = traffic(&runtime, &is_over);
                while began.elapsed() < FLOOD || RECEIVED.load(Ordering::Relaxed) < before + SIGNALS {
                    thread::yield_now();
                }
                is_over.store(true, Ordering::Relaxed);
                for task in tasks {
                    assert!(runtime.block_on(task).unwrap() > 0, "{workers} workers");
                }
                // Also while it ends.
                drop(runtime);
                stop.store(true, Ordering::Relaxed);
                flooder.join().unwrap();
            }
            assert_eq!(COMPLAINTS.load(Ordering::Relaxed), 0, "an interrupted wait is no fault");
        });
    });
}
