//! Threads that are really held up, each for one reason, and watched while they are: from the same
//! process, without privileges.
//!
//! Each test takes samples until it sees what it waits for, and fails when that does not come in
//! [`LIMIT`]. The pause between two samples is the window that is judged; nobody is synchronised by
//! it.

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

/// How long a cause may take to be told, on a machine that is busy with other things.
const LIMIT: Duration = Duration::from_secs(60);
/// The shortest window that has to do.
const WINDOW: Duration = Duration::from_millis(1);

/// How often each cause was told.
type Tally = BTreeMap<Cause, u32>;

/// The tests that need processors to themselves, one at a time. Other programs are busy as well.
fn processors() -> MutexGuard<'static, ()> {
    static PROCESSORS: Mutex<()> = Mutex::new(());
    PROCESSORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread, and its probe.
struct Watched {
    tid: u32,
    probe: ThreadProbe,
    cgroup: Option<Cgroup>,
    thread: JoinHandle<()>,
}

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Starts a thread that is held up by `body`.
fn watch(body: impl FnOnce() + Send + 'static) -> Watched {
    let (tell, told) = mpsc::channel();
    let thread = thread::spawn(move || {
        tell.send(own_tid()).unwrap();
        body();
    });
    let tid = told.recv().unwrap();
    Watched { tid, probe: ThreadProbe::new(tid), cgroup: Cgroup::of_this_process(), thread }
}

impl Watched {
    /// What two samples show.
    fn cause(&self, window: Duration) -> Cause {
        let group = || self.cgroup.as_ref().map(Cgroup::sample);
        let (began, before, group_before) = (Instant::now(), self.probe.sample().unwrap(), group());
        thread::sleep(window);
        let elapsed_ns = u64::try_from(began.elapsed().as_nanos()).unwrap();
        let after = self.probe.sample().unwrap();
        let group_after: Option<CgroupSample> = group();
        classify(&before, &after, group_before.as_ref(), group_after.as_ref(), elapsed_ns)
    }

    /// Takes samples until `cause` was found so many times; how often each other cause was found.
    fn see(&self, cause: Cause, times: u32, window: Duration) -> Tally {
        let (until, mut told) = (Instant::now() + LIMIT, Tally::new());
        while told.get(&cause).copied().unwrap_or(0) < times {
            assert!(Instant::now() < until, "not {times} times {cause:?} of {told:?}: {:?}", self.probe.sample());
            *told.entry(self.cause(window)).or_default() += 1;
        }
        told.remove(&cause);
        told
    }

    fn join(self) {
        self.thread.join().unwrap();
    }
}

/// A switch that a thread goes by until it is off.
#[derive(Clone)]
struct Going(Arc<AtomicBool>);

impl Going {
    fn new() -> Self {
        Self(Arc::new(AtomicBool::new(true)))
    }

    fn is_on(&self) -> bool {
        // ORDERING: Relaxed; only the value counts.
        self.0.load(Ordering::Relaxed)
    }

    fn end(&self) {
        // ORDERING: Relaxed; as above.
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Spins until it is over.
fn spin(going: &Going) {
    while going.is_on() {
        std::hint::spin_loop();
    }
}

/// Names the part that a process plays which a test has started of its own program.
const ROLE: &str = "VOLT_KERNEL_TEST";

/// Whether this process is such a child.
fn is_child() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// The same test once more, in a process of its own, where [`is_child`]. It ends with this value.
struct Again {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Again {
    /// `test` is the calling test's full name, with the crate's.
    fn start(test: &str) -> Self {
        Self::start_with(test, &[])
    }

    /// The same, with these in its environment.
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

    /// The next line that the child tells, on its standard error.
    fn line(&self) -> String {
        // The child gives up earlier, and says why.
        self.lines.recv_timeout(2 * LIMIT).expect("the child tells")
    }
}

impl Drop for Again {
    fn drop(&mut self) {
        // Also where the test failed. Gone already is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
