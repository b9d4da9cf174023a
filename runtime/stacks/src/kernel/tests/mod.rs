//! Tests with threads that are really delayed, each for one reason, and sampled meanwhile: from the
//! same program, without privileges.
//!
//! Each test takes samples until it finds the expected cause, and fails if that takes longer than
//! [`LIMIT`]. The pause between two samples is the window that is classified; it does not
//! synchronize any threads.

mod blocked;
mod memory;
mod probe;
mod processor;
mod stopped;
mod throttled;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use volt_telemetry::incident::Cause;

use super::cause::classify;
use super::cgroup::{Cgroup, CgroupSample};
use super::thread::ThreadProbe;

/// How long it may take until a cause is found, on a machine that is busy otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// The shortest window that must suffice.
const WINDOW: Duration = Duration::from_millis(1);

/// How often each cause was found.
type Tally = BTreeMap<Cause, u32>;

/// Serializes the tests that need processors to themselves. Other programs may still be busy.
fn processors() -> MutexGuard<'static, ()> {
    static PROCESSORS: Mutex<()> = Mutex::new(());
    PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread and its probe.
struct Watched {
    tid: u32,
    probe: ThreadProbe,
    cgroup: Option<Cgroup>,
    thread: JoinHandle<()>,
}

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Starts a thread that runs `body` and is delayed by it.
fn watch(body: impl FnOnce() + Send + 'static) -> Watched {
    let (tell, reported) = mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(own_tid()).unwrap();
        body();
    });
    let tid = reported.recv().unwrap();
    Watched { tid, probe: ThreadProbe::new(tid), cgroup: Cgroup::of_this_program(), thread }
}

impl Watched {
    /// Returns the cause that two samples give.
    fn cause(&self, window: Duration) -> Cause {
        let group = || self.cgroup.as_ref().map(Cgroup::sample);
        let (began, before, group_before) = (Instant::now(), self.probe.sample().unwrap(), group());
        thread::sleep(window);
        let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap();
        let after = self.probe.sample().unwrap();
        let group_after: Option<CgroupSample> = group();
        classify(&before, &after, group_before.as_ref(), group_after.as_ref(), elapsed_ns)
    }

    /// Takes samples until `cause` was found `times` times. Returns how often each other cause was
    /// found.
    fn see(&self, cause: Cause, times: u32, window: Duration) -> Tally {
        let (until, mut reported) = (Instant::now() + LIMIT, Tally::new());
        while reported.get(&cause).copied().unwrap_or(0) < times {
            assert!(Instant::now() < until, "not {times} times {cause:?} of {reported:?}: {:?}", self.probe.sample());
            *reported.entry(self.cause(window)).or_default() += 1;
        }
        reported.remove(&cause);
        reported
    }

    fn join(self) {
        self.thread.join().unwrap();
    }
}

/// A flag that makes a thread stop when it is cleared.
#[derive(Clone)]
struct Going(Arc<AtomicBool>);

impl Going {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn is_on(&self) -> bool {
        // ORDERING: Relaxed; only the value matters.
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        // ORDERING: Relaxed; as above.
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Spins until the flag is cleared.
fn spin(going: &Going) {
    while going.is_on() {
        std::hint::spin_loop();
    }
}

/// The environment variable for the role of a child process that a test starts from its own
/// program.
const ROLE: &str = "VOLT_KERNEL_TEST";

/// Returns whether this process is such a child.
fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The same test, run again in a child process where [`is_child`] is true. Dropping this value
/// kills the child.
struct Again {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Again {
    /// Starts the child. `test` is the calling test's full name, including the crate's.
    fn start(test: &str) -> Self {
        Self::start_with(test, &[])
    }

    /// Starts the child with additional environment variables.
    fn start_with(test: &str, variables: &[(&str, &OsStr)]) -> Self {
        let (_, test) = test.split_once("::").unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture"])
            .env(ROLE, test)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = mpsc::channel();
        let stderr: ChildStderr = child.stderr.take().unwrap();
        thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        Self { child, lines }
    }

    /// Returns the next line that the child writes to its standard error.
    fn line(&self) -> String {
        // The child times out earlier, with a message.
        self.lines.recv_timeout(2 * LIMIT).expect("the child prints a line")
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        // Also if the test failed. It is fine if the child has exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
