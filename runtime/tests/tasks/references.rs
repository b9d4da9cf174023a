//! What happens when a task is referred to more often than can be counted. The process ends, so it is one of its own: this test's
//! binary, started again.

use std::future::poll_fn;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::task::Poll;

/// Set in the process that is to end, to the number of references that it forgets.
const REFERENCES: &str = "VOLT_TEST_REFERENCES";
/// References of a task that abort the process: a quarter of what its 24 bits hold.
const LIMIT: u64 = 1 << 22;
/// The signal of `abort`.
const SIGABRT: i32 = 6;

/// Not a test when run as one: what the started process does.
#[test]
fn program() {
    let Some(count) = std::env::var_os(REFERENCES) else { return };
    let count: u64 = count.to_str().unwrap().parse().unwrap();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).control_socket(false).build().unwrap();
    let task = runtime.spawn(poll_fn(move |cx| {
        for _ in 0..count {
            std::mem::forget(cx.waker().clone());
        }
        Poll::Ready(())
    }));
    runtime.block_on(task).unwrap();
    println!("went on");
}

fn forget(count: u64) -> std::process::Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "references::program", "--nocapture"])
        .env(REFERENCES, count.to_string())
        .output()
        .unwrap()
}

#[test]
fn one_reference_too_many_aborts_the_process_before_the_count_can_wrap() {
    let output = forget(LIMIT);
    assert_eq!(output.status.signal(), Some(SIGABRT), "{output:?}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains("went on"));
}

#[test]
fn references_that_fit_are_none_of_anybodys_business() {
    // The runtime has some of its own.
    let output = forget(LIMIT - 10);
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("went on"));
}
