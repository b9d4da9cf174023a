//! A debugger stops the whole program for a while. The machine is the cause, not a task, so no task
//! may be blamed. On a busy machine some workers may be replaced, but never by all spares.
//!
//! The test is the debugger. Like gdb, it seizes every thread of a child with ptrace; the child
//! runs the same test with [`IN_CHILD`] set. A parent may do that to its child. If it may not, the
//! test fails with that message.

#![cfg(target_os = "linux")]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};
use std::io::{BufRead, BufReader};
use std::process::{ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
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
    // SAFETY: none of the requests made here reads or writes memory of this program.
    let done = unsafe { libc::ptrace(request as _, tid, none, none) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps every thread of a program stopped until it is dropped, on the thread that created it.
struct Held(BTreeSet<i32>);

impl Held {
    fn seize(pid: u32) -> Self {
        let mut held = Self(BTreeSet::new());
        // A thread that is not stopped yet may start another.
        while let Some(tid) = threads(pid).into_iter().find(|tid| !held.0.contains(tid)) {
            if let Err(error) = ptrace(libc::PTRACE_SEIZE as c_int, tid) {
                assert_eq!(error.raw_os_error(), Some(libc::ESRCH), "a child cannot be traced here: {error}");
                continue;
            }
            held.0.insert(tid);
            ptrace(libc::PTRACE_INTERRUPT as c_int, tid).expect("it is traced");
            // SAFETY: its only input is the thread's number, which is one of the tracer's.
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

/// Returns the processor time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_debugger_pause_blames_the_machine_and_no_task() {
    if std::env::var_os(IN_CHILD).is_some() {
        watched(be_held);
        return;
    }
    let test = "stuck::debugger::a_debugger_pause_blames_the_machine_and_no_task";
    let mut child = Command::new(std::env::current_exe().unwrap());
    let child = child.args([test, "--exact", "--nocapture"]).env(IN_CHILD, "1").stdout(Stdio::piped());
    let mut child = child.spawn().unwrap();
    let lines = lines_of(child.stdout.take().unwrap());
    let mut output = String::new();
    while !output.contains("works") {
        output += &lines.recv().expect("the child works");
    }
    let held = Held::seize(child.id());
    assert!(held.0.len() > WORKERS, "{:?}", held.0);
    std::thread::sleep(HELD_FOR);
    drop(held);
    output.extend(lines);
    assert!(child.wait().unwrap().success(), "{output}");
}

/// Returns the lines that the child prints.
fn lines_of(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (lines, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines() {
            lines.send(line.unwrap() + "\n").unwrap();
        }
    });
    receiver
}

fn be_held() {
    let runtime = builder(WORKERS).sentinel_interval(Some(Duration::from_millis(10))).build().unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    // Polls that are long enough that the stop falls into one, and short enough to be no stall.
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
    // And one task in which the stop certainly falls into a poll, which continues afterwards.
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
    // Not a synchronisation: any reaction comes within a few checks.
    std::thread::sleep(Duration::from_millis(100));
    let after = runtime.handle().snapshot();
    // ORDERING: Relaxed; the flag alone is the message.
    is_over.store(true, Ordering::Relaxed);
    tasks.into_iter().chain([burner]).for_each(|task| runtime.block_on(task).unwrap());

    // On a busy machine, the wait for a processor may have been the longer part.
    let machine = [Cause::Stopped, Cause::NotScheduled, Cause::Throttled];
    assert!(held.sentinel.last_pause.is_some_and(|cause| machine.contains(&cause)), "{:?}", held.sentinel);
    let held_for_ns = HELD_FOR.as_nanos() as u64;
    let is_charged = |incident: &&Incident| incident.for_ns >= held_for_ns && !machine.contains(&incident.cause);
    assert_eq!(after.incidents.latest.iter().find(is_charged), None);
    let findings = examine(&before, &after);
    assert!(findings.iter().any(|finding| finding.rule == Rule::ProgramPaused), "{findings:#?}");
    // A busy machine may delay some workers that wait for their processor, then and later. If the
    // sentinel blamed the tasks for the pause, it would call all spares.
    let called = after.sentinel.spare_calls - before.sentinel.spare_calls;
    assert!(called < after.sentinel.max_spares && after.sentinel.capped == 0, "{:?}", after.sentinel);
    wait_until(&runtime, |snapshot| snapshot.sentinel.spares_in_use == 0);
}
