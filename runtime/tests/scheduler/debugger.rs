//! A debugger holds the whole process for a while: the machine's doing, not the tasks', and no
//! reason to replace anybody.
//!
//! The test is the debugger: it seizes every thread of a child, which runs the same test with
//! [`IN_CHILD`] set, by ptrace, as gdb does. A parent may do that to its child; where it may not,
//! the test fails and says so.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io, ptr};

use volt::Runtime;
use volt::telemetry::{Cause, Incident, Snapshot};
use volt_diagnosis::doctor::rule::examine;
use volt_telemetry::rule::Rule;

use crate::watchdog::{builder, watched};

const IN_CHILD: &str = "VOLT_DEBUGGER_CHILD";
/// The shortest time for which a person stops a program.
const HELD_FOR: Duration = Duration::from_millis(300);
const WORKERS: usize = 2;

fn ptrace(request: c_int, tid: i32) -> io::Result<()> {
    let none = ptr::null_mut::<c_void>();
    // SAFETY: none of the requests made here reads or writes memory of this process.
    let done = unsafe { libc::ptrace(request as _, tid, none, none) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Holds every thread of a process until it is dropped, in the thread that made it.
struct Held(BTreeSet<i32>);

impl Held {
    fn seize(pid: u32) -> Self {
        let mut held = Self(BTreeSet::new());
        // A thread that is not held yet may start another.
        while let Some(tid) = threads(pid).into_iter().find(|tid| !held.0.contains(tid)) {
            if let Err(error) = ptrace(libc::PTRACE_SEIZE as c_int, tid) {
                assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "a child cannot be traced here: {error}");
                continue;
            }
            held.0.insert(tid);
            ptrace(libc::PTRACE_INTERRUPT as c_int, tid).expect("it is traced");
            // SAFETY: it is told nothing but the thread's number, which is one of the tracer's.
            let stopped = unsafe { libc::waitpid(tid, ptr::null_mut(), libc::__WALL) };
            assert_eq!(stopped, tid, "{}", io::Error::last_os_error());
        }
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for tid in &self.0 {
            ptrace(libc::PTRACE_DETACH as c_int, *tid).expect("it is held");
        }
    }
}

fn threads(pid: u32) -> Vec<i32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the child is there");
    threads.filter_map(|thread| thread.ok()?.file_name().to_str()?.parse().ok()).collect()
}

fn wait_until(runtime: &Runtime, is_so: impl Fn(&Snapshot) -> bool) -> Snapshot {
    loop {
        let snapshot = runtime.handle().snapshot();
        if is_so(&snapshot) {
            return snapshot;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// What this thread has had of a processor.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_process_that_a_debugger_held_blames_the_machine_and_no_task_and_replaces_nobody() {
    if std::env::var_os(IN_CHILD).is_some() {
        watched(be_held);
        return;
    }
    let test = "debugger::a_process_that_a_debugger_held_blames_the_machine_and_no_task_and_replaces_nobody";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let child = child.args([test, "--exact", "--nocapture"]).env(IN_CHILD, "1").stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let (mut line, mut output) = (String::new(), BufReader::new(child.stdout.take().unwrap()));
    while !line.contains("works") {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the child works");
    }
    let held = Held::seize(child.id());
    assert!(held.0.len() > WORKERS, "{:?}", held.0);
    std::thread::sleep(HELD_FOR);
    drop(held);
    let mut told = String::new();
    while output.read_line(&mut told).unwrap() > 0 {}
    assert!(child.wait().unwrap().success(), "{told}");
}

fn be_held() {
    let runtime = builder(WORKERS).sentinel_interval(Some(Duration::from_millis(10))).build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    // Polls that are long enough to be found in one, and short enough to be no stall.
    let tasks = [(); 2 * WORKERS].map(|()| {
        let is_over = is_over.clone();
        runtime.spawn(async move {
            // ORDERING: Relaxed; the flag alone is the message.
            while !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(700));
                volt::task::yield_now().await;
            }
        })
    });
    // And one that is found in a poll for sure, and goes on with it afterwards.
    let burner = {
        let is_over = is_over.clone();
        runtime.spawn(async move {
            // ORDERING: Relaxed; as above.
            while !is_over.load(Ordering::Relaxed) {
                let began = cpu_time();
                while cpu_time() - began < Duration::from_millis(30) {}
                volt::task::yield_now().await;
            }
        })
    };
    let before = wait_until(&runtime, |snapshot| snapshot.sentinel.checks > 2);
    println!("works");
    let held = wait_until(&runtime, |snapshot| snapshot.sentinel.pauses > before.sentinel.pauses);
    // Not a synchronisation: what it does about it, it does within some checks.
    std::thread::sleep(Duration::from_millis(100));
    let after = runtime.handle().snapshot();
    // ORDERING: Relaxed; the flag alone is the message.
    is_over.store(true, Ordering::Relaxed);
    tasks.into_iter().chain([burner]).for_each(|task| runtime.block_on(task).unwrap());

    // On a machine that is busy, the wait for a processor may have been the longer part.
    let machine = [Cause::Stopped, Cause::NotScheduled, Cause::Throttled];
    assert!(held.sentinel.last_pause.is_some_and(|cause| machine.contains(&cause)), "{:?}", held.sentinel);
    let held_for_ns = HELD_FOR.as_nanos() as u64;
    let is_charged =
        |incident: &&Incident| incident.for_ns >= held_for_ns && incident.began_at_ns + held_for_ns <= held.at_ns;
    assert_eq!(after.incidents.latest.iter().find(is_charged), None);
    let findings = examine(&before, &after);
    assert!(findings.iter().any(|finding| finding.rule == Rule::ProgramPaused), "{findings:#?}");
    // A machine that is busy may hold up some that wait for their processor, then and later; a
    // storm would have called all spares.
    let called = after.sentinel.spare_calls - before.sentinel.spare_calls;
    assert!(called < after.sentinel.max_spares && after.sentinel.capped == 0, "{:?}", after.sentinel);
    wait_until(&runtime, |snapshot| snapshot.sentinel.spares_on_duty == 0);
}
