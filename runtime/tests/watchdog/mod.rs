//! What every test here runs under: a watchdog, and runtimes without the park time-out and the sentinel, which
//! would hide a lost wake-up.

#![allow(dead_code, reason = "each test binary uses what it needs")]

use std::sync::mpsc;
use std::time::Duration;

use volt::{Builder, Runtime};

/// How long a test may take, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs `test` with one worker, with two and with several; the process aborts, with the test's name, when that hangs.
pub fn with_workers(test: impl Fn(Runtime)) {
    for workers in [1, 2, 4] {
        watched(|| test(runtime(workers)));
    }
}

/// Runs `test` with one worker.
pub fn with_one_worker(test: impl Fn(Runtime)) {
    watched(|| test(runtime(1)));
}

/// Runs `test`; the process aborts, with the test's name, when it hangs.
pub fn watched(test: impl FnOnce()) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let (done, is_done) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if is_done.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs");
            std::process::abort();
        }
    });
    test();
    drop(done);
    watchdog.join().unwrap();
}

/// A runtime without the park time-out and without the sentinel.
pub fn runtime(workers: usize) -> Runtime {
    builder(workers).build().unwrap()
}

/// As [`runtime`], for further settings.
pub fn builder(workers: usize) -> Builder {
    Builder::new_multi_thread().worker_threads(workers).park_timeout(None).sentinel_interval(None).control_socket(false)
}
