//! Tests of threads and processes that are stopped by a signal or a debugger.

use std::io::Read;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use volt_telemetry::incident::Cause;

use super::{Again, Going, LIMIT, WINDOW, is_child, own_tid, processors, spin, watch};
use crate::kernel::cause::classify_delay;
use crate::kernel::cgroup::Cgroup;
use crate::kernel::thread::ThreadProbe;

/// How long a watcher sleeps between two samples.
const TICK: Duration = Duration::from_millis(2);
/// How long it is stopped.
const STOP: Duration = Duration::from_millis(300);

/// A watcher like a runtime's: prints what delayed it.
fn watch_the_clock() {
    let probe = ThreadProbe::new(own_tid());
    let cgroup = Cgroup::of_this_program();
    let group = || cgroup.as_ref().map(Cgroup::sample);
    let (began, mut before, mut group_before, mut at) =
        (Instant::now(), probe.sample().unwrap(), group(), Instant::now());
    eprintln!("watching");
    while began.elapsed() < LIMIT {
        thread::sleep(TICK);
        let (now, after, group_after) = (Instant::now(), probe.sample().unwrap(), group());
        let of = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap();
        let reported =
            classify_delay(of(TICK), of(now - at), &before, &after, group_before.as_ref(), group_after.as_ref());
        if let Some(cause) = reported {
            eprintln!("{} after {:?}", cause.name(), now - at);
        }
        (before, group_before, at) = (after, group_after, now);
    }
}

fn pid_of(child: &Again) -> Pid {
    Pid::from_child(&child.child)
}

/// Returns the state letter of the process's main thread.
fn state_of(pid: Pid) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap();
    stat.rsplit_once(") ").unwrap().1[..1].to_owned()
}

#[test]
fn a_watcher_in_a_stopped_program_reports_the_stop() {
    if is_child() {
        return watch_the_clock();
    }
    let _alone = processors();
    let child = Again::start(concat!(module_path!(), "::a_watcher_in_a_stopped_program_reports_the_stop"));
    while child.line() != "watching" {}
    let pid = pid_of(&child);
    kill_process(pid, Signal::STOP).unwrap();
    while state_of(pid) != "T" {
        thread::yield_now();
    }
    // Lines printed so far belong to the time before, perhaps to a suspended machine. While it is
    // stopped, the child prints nothing.
    let _before = child.lines.try_iter().count();
    thread::sleep(STOP);
    kill_process(pid, Signal::CONT).unwrap();
    while !child.line().starts_with("stopped") {}
}

#[test]
fn a_thread_under_a_debugger_is_stopped() {
    if is_child() {
        let going = Going::new();
        let watched = watch(move || spin(&going));
        // Not printed by the thread itself: it may be stopped while it holds the lock of standard
        // error.
        eprintln!("tid {}", watched.tid);
        watched.see(Cause::Stopped, 20, WINDOW);
        eprintln!("stopped");
        // Must not exit before the test has detached: see `Released`. Dropping `Again` kills it.
        std::io::stdin().read_to_string(&mut String::new()).unwrap();
        return;
    }
    let child = Again::start(concat!(module_path!(), "::a_thread_under_a_debugger_is_stopped"));
    let tid: i32 = loop {
        if let Some(tid) = child.line().strip_prefix("tid ") {
            break tid.parse().unwrap();
        }
    };
    let nothing = ptr::null_mut::<libc::c_void>();
    // SAFETY: the C library's function, for a thread of our child process; no memory is involved.
    let failed = unsafe { libc::ptrace(libc::PTRACE_SEIZE, tid, nothing, nothing) };
    if failed != 0 {
        eprintln!("SKIPPED: this process may not debug its child: {}", std::io::Error::last_os_error());
        return;
    }
    // SAFETY: as above.
    let failed = unsafe { libc::ptrace(libc::PTRACE_INTERRUPT, tid, nothing, nothing) };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
    // `__WALL`: also for threads other than the child's first.
    let any_thread = WaitOptions::from_bits_retain(0x4000_0000);
    waitpid(Pid::from_raw(tid), any_thread).unwrap().expect("`waitpid` returns its status");
    let _released = Released(tid);
    while child.line() != "stopped" {}
}

/// Detaches from a stopped thread. Otherwise its killed process would wait for this debugger to
/// reap the thread first.
struct Released(i32);

impl Drop for Released {
    fn drop(&mut self) {
        let nothing = ptr::null_mut::<libc::c_void>();
        // SAFETY: the C library's function, for a thread that this process debugs; no memory is
        // involved.
        let failed = unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, nothing, nothing) };
        assert!(failed == 0 || thread::panicking(), "{}", std::io::Error::last_os_error());
    }
}
