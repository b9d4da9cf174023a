//! The frame of every test here: a watchdog, a separate program if a test needs one, and runtimes
//! without the park time-out and the sentinel, which would hide a lost wake-up.

#![allow(dead_code, reason = "each test binary uses what it needs")]

use std::any::type_name_of_val;
use std::io::{self, Write};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use volt::{Builder, Runtime};

/// The maximum duration of a test, on a machine that is busy with other work.
const LIMIT: Duration = Duration::from_secs(180);

/// Runs `test` with one worker, with two and with four. If that hangs, the program aborts with the
/// test's name.
pub fn with_workers(test: impl Fn(Runtime)) {
    for workers in [1, 2, 4] {
        watched(|| test(runtime(workers)));
    }
}

/// Runs `test` with one worker.
pub fn with_one_worker(test: impl Fn(Runtime)) {
    watched(|| test(runtime(1)));
}

/// Runs `test`. If it hangs, the program aborts with the test's name.
pub fn watched(test: impl FnOnce()) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    let (done, is_done) = mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if is_done.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Not a print macro: the harness captures these, and the abort would lose the name.
            let _result = writeln!(io::stderr(), "{name} hangs");
            std::process::abort();
        }
    });
    test();
    drop(done);
    watchdog.join().unwrap();
}

/// Set in the program that [`alone`] starts.
const ALONE: &str = "VOLT_TEST_ALONE";

/// Runs `test` in a separate program: for a test that changes, counts or receives something that
/// belongs to the whole program, such as the handler of a signal, the limit on descriptors or the
/// subscriber of `tracing`.
///
/// That program is this binary again, started with the name of this one test. The name of a closure
/// contains that of its function, so `test` must be a closure written in the test itself.
pub fn alone(test: impl FnOnce()) {
    alone_with(&[], test);
}

/// Same as [`alone`], with these environment variables. Returns what the program wrote to stderr;
/// `None` in that program itself.
pub fn alone_with(variables: &[(&str, &str)], test: impl FnOnce()) -> Option<String> {
    if std::env::var_os(ALONE).is_some() {
        test();
        return None;
    }
    let closure = type_name_of_val(&test);
    let (_program, name) = closure.strip_suffix("::{{closure}}").and_then(|name| name.split_once("::")).expect(closure);
    let program = std::env::current_exe().unwrap();
    let variables = variables.iter().copied().chain([(ALONE, "1")]);
    let child = Command::new(program).args([name, "--exact", "--nocapture"]).envs(variables).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&child.stdout), String::from_utf8_lossy(&child.stderr));
    // A run with an unknown name passes as well.
    let has_run = stdout.contains("test result: ok. 1 passed");
    assert!(child.status.success() && has_run, "{name}: {}\n{stdout}\n{stderr}", child.status);
    Some(stderr.into_owned())
}

/// Builds a runtime without the park time-out and without the sentinel.
pub fn runtime(workers: usize) -> Runtime {
    builder(workers).build().unwrap()
}

/// Same as [`runtime`], for further settings.
pub fn builder(workers: usize) -> Builder {
    Builder::new_multi_thread().worker_threads(workers).park_timeout(None).sentinel_interval(None).control_socket(false)
}
