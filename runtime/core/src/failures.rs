//! Reports failures of the runtime itself, such as a thread that could not be started, in the
//! application's log.
//!
//! Writing to a log may block for any time. A worker between two polls must not wait for it, and
//! neither must the sentinel, which has to replace stuck workers. Therefore they only record the
//! failure here, and the thread that logs incidents logs it. A runtime without a sentinel has no
//! such thread, and no sentinel to protect; there the thread that detects a failure logs it.
//!
//! The sentinel may have suspended its checks of the runtime, so a recorded failure resumes them.
//! When all workers of the runtime have exited, the runtime leaves the sentinel's list
//! (`sentinel::program`). With it the sentinel *leaves* this module: the rest is logged, regardless
//! of `QUIET_TIME`. Later failures are logged by the thread that detects them. Recording and
//! leaving take the same lock, so each failure is either part of that rest or logged by the thread
//! that detects it.
//!
//! Writers: any thread, under a lock that is held while a few words are copied. Readers: the
//! sentinel reads one flag at each check.
//!
//! Bounds: for each kind, the latest error and a count are stored. A kind is logged at most once
//! per `QUIET_TIME`, with the number of failures since the last time. The rest is logged when the
//! runtime ends.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::clock;

/// The shortest time between two log lines of the same kind.
const QUIET_TIME: Duration = Duration::from_secs(1);
const KINDS: usize = Failure::ALL.len();
const NEVER: u64 = u64::MAX;

/// A kind of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A worker is stuck, and no thread could be started to replace it.
    NoSpare,
    /// The kernel fails to report the events of sockets.
    DriverFailed,
    /// The worker that sleeps in the I/O driver cannot be woken.
    DriverNotWoken,
    /// No thread could be started for blocking work.
    NoBlockingThread,
    /// The processor's cycle counter failed, and the clock is read from the system.
    ClockFault,
}

impl Failure {
    /// All kinds, in the order of their values.
    const ALL: [Self; 5] =
        [Self::NoSpare, Self::DriverFailed, Self::DriverNotWoken, Self::NoBlockingThread, Self::ClockFault];
}

/// The recorded failures of a runtime. See the module documentation.
#[derive(Debug)]
pub(crate) struct Failures {
    runtime: String,
    /// Resumes the sentinel's checks.
    watcher: OnceLock<Weak<dyn Watcher>>,
    /// When the next failure must be logged; `NEVER` if there is none.
    due_at_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Whether the sentinel has failures logged: until the runtime leaves its list.
    is_watched: bool,
    notes: [Note; KINDS],
}

/// The sentinel, as this module uses it.
pub(crate) trait Watcher: Send + Sync {
    /// Resumes the checks of this runtime if they are suspended: a failure was recorded.
    fn resume_checks(&self);
}

/// The failures of one kind.
#[derive(Debug, Default)]
struct Note {
    error: String,
    /// The number of failures since the last log line.
    times: u64,
    logged_at_ns: Option<u64>,
}

impl Note {
    /// Returns when the failures must be logged; `None` if there are none.
    fn due_at_ns(&self) -> Option<u64> {
        let not_before_ns = |at_ns: u64| at_ns.saturating_add(clock::saturating_ns(QUIET_TIME));
        (self.times > 0).then(|| self.logged_at_ns.map_or(0, not_before_ns))
    }
}

impl Failures {
    /// Creates the store of the runtime `runtime`. `is_watched`: the runtime has a sentinel.
    pub(crate) fn new(runtime: &str, is_watched: bool) -> Self {
        let state = State { is_watched, notes: Default::default() };
        let due_at_ns = AtomicU64::new(NEVER);
        Self { runtime: runtime.to_owned(), watcher: OnceLock::new(), due_at_ns, state: Mutex::new(state) }
    }

    /// Sets the object that resumes the sentinel's checks. Called once.
    pub(crate) fn set_watcher(&self, watcher: Weak<dyn Watcher>) {
        let set = self.watcher.set(watcher);
        debug_assert!(set.is_ok(), "there is one sentinel");
    }

    /// Records a failure. Without a sentinel this logs it, and so runs code of `tracing`
    /// subscribers.
    pub(crate) fn note(&self, failure: Failure, error: &io::Error) {
        let mut state = self.lock();
        let note = &mut state.notes[failure as usize];
        note.times += 1;
        note.error = error.to_string();
        self.set_due(&state.notes);
        let is_watched = state.is_watched;
        drop(state);
        if !is_watched {
            self.log(clock::now_ns());
        } else if let Some(watcher) = self.watcher.get().and_then(Weak::upgrade) {
            watcher.resume_checks();
        }
    }

    /// Called when the runtime leaves the sentinel's list. The caller then has the rest logged, by
    /// [`log_rest`](Self::log_rest).
    pub(crate) fn leave(&self) {
        self.lock().is_watched = false;
    }

    /// Returns whether there is a failure to log, now or later. Costs one load, as `is_due`.
    pub(crate) fn has_news(&self) -> bool {
        // ORDERING: Relaxed: a hint; the failures are read under the lock.
        self.due_at_ns.load(Ordering::Relaxed) != NEVER
    }

    /// Returns whether there is a failure to log now.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        // ORDERING: Relaxed: as above.
        self.due_at_ns.load(Ordering::Relaxed) <= now_ns
    }

    fn set_due(&self, notes: &[Note; KINDS]) {
        let due_at_ns = notes.iter().filter_map(Note::due_at_ns).min().unwrap_or(NEVER);
        // ORDERING: Relaxed: written under the lock only, which publishes the failures.
        self.due_at_ns.store(due_at_ns, Ordering::Relaxed);
    }

    /// Logs the failures that are due. Runs code of `tracing` subscribers.
    pub(crate) fn log(&self, now_ns: u64) {
        for failure in Failure::ALL {
            if let Some((error, times)) = self.take(failure, now_ns) {
                log(&self.runtime, failure, &error, times);
            }
        }
    }

    /// Logs all failures, due or not, at the end of the runtime. Runs code of `tracing`
    /// subscribers.
    pub(crate) fn log_rest(&self) {
        self.forget_times();
        self.log(clock::now_ns());
    }

    /// Forgets when kinds were last logged, so that all failures are due.
    fn forget_times(&self) {
        let mut state = self.lock();
        state.notes.iter_mut().for_each(|note| note.logged_at_ns = None);
        self.set_due(&state.notes);
    }

    /// Takes the failures of this kind, if they are due: the latest error, and their number.
    pub(crate) fn take(&self, failure: Failure, now_ns: u64) -> Option<(String, u64)> {
        let mut state = self.lock();
        let note = &mut state.notes[failure as usize];
        let taken = note.due_at_ns().is_some_and(|due_at_ns| due_at_ns <= now_ns).then(|| {
            note.logged_at_ns = Some(now_ns);
            (std::mem::take(&mut note.error), std::mem::take(&mut note.times))
        });
        self.set_due(&state.notes);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn log(runtime: &str, failure: Failure, error: &str, times: u64) {
    match failure {
        Failure::NoSpare => tracing::error!(
            target: "volt", runtime, error, times,
            "a worker is stuck, and no thread could be started to replace it"
        ),
        Failure::DriverFailed => {
            tracing::error!(target: "volt", runtime, error, times, "the I/O driver failed to wait for events");
        }
        // A write to an eventfd succeeds as long as it exists. If it fails after all, the next
        // event or timer ends the sleep.
        Failure::DriverNotWoken => {
            tracing::error!(
                target: "volt", runtime, error, times,
                "the I/O driver could not be woken; it continues at its next event or timer"
            );
        }
        Failure::NoBlockingThread => tracing::error!(
            target: "volt", runtime, error, times,
            "no thread could be started for blocking work: jobs wait for the existing threads, or fail if there are none"
        ),
        // Only speed is lost.
        Failure::ClockFault => tracing::warn!(
            target: "volt", runtime, error, times,
            "the processor's cycle counter failed; the clock is now read from the system"
        ),
    }
}

/// A log for tests.
#[cfg(test)]
pub(crate) mod log {
    use std::fmt::{Debug, Write};

    use tracing::field::Field;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Level, Metadata, Subscriber};

    /// Calls a function with the text of each warning and error that Volt logs.
    pub(crate) struct Log(Box<dyn Fn(String) + Send + Sync>);

    impl Log {
        pub(crate) fn new(report: impl Fn(String) + Send + Sync + 'static) -> Self {
            Self(Box::new(report))
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.is_event() && metadata.target() == "volt" && *metadata.level() <= Level::WARN
        }

        fn event(&self, event: &Event<'_>) {
            let mut text = String::new();
            event.record(&mut |field: &Field, value: &dyn Debug| {
                write!(text, "{field}={value:?} ").unwrap();
            });
            (self.0)(text);
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_failure_is_reported_once_a_second_with_a_count() {
        let failures = Failures::new("test", true);
        let second = clock::saturating_ns(QUIET_TIME);
        let failed = |what: &'static str| io::Error::other(what);
        assert!(!failures.has_news() && failures.take(Failure::NoSpare, 0).is_none());
        ["first", "second"].into_iter().for_each(|what| failures.note(Failure::NoSpare, &failed(what)));
        failures.note(Failure::DriverFailed, &failed("other"));
        assert_eq!(failures.take(Failure::NoSpare, 5), Some(("second".to_owned(), 2)));
        assert!(failures.has_news(), "the other kind is left");
        assert_eq!(failures.take(Failure::DriverFailed, 5), Some(("other".to_owned(), 1)));
        assert!(!failures.has_news());
        failures.note(Failure::NoSpare, &failed("third"));
        assert_eq!(failures.take(Failure::NoSpare, 5 + second - 1), None);
        assert!(failures.has_news() && !failures.is_due(5 + second - 1), "it is logged later");
        assert_eq!(failures.take(Failure::NoSpare, 5 + second), Some(("third".to_owned(), 1)));
    }

    #[test]
    fn recording_a_failure_wakes_the_sentinel() {
        use std::sync::Arc;
        #[derive(Default)]
        struct Resumed(AtomicU64);
        impl Watcher for Resumed {
            fn resume_checks(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (failures, resumed) = (Failures::new("test", true), Arc::new(Resumed::default()));
        failures.note(Failure::NoBlockingThread, &io::Error::other("before it starts"));
        let watcher: Weak<Resumed> = Arc::downgrade(&resumed);
        failures.set_watcher(watcher);
        failures.note(Failure::NoBlockingThread, &io::Error::other("any"));
        assert_eq!(resumed.0.load(Ordering::Relaxed), 1);
        assert!(failures.has_news());
        failures.leave();
        assert!(failures.has_news(), "the thread that leaves logs the rest");
        failures.note(Failure::DriverFailed, &io::Error::other("any"));
        assert_eq!(resumed.0.load(Ordering::Relaxed), 1);
        assert!(!failures.has_news(), "the thread that found it has logged it");
    }

    #[test]
    fn failures_after_the_last_report_are_reported_at_the_end() {
        let failures = Failures::new("test", false);
        (0..3).for_each(|_| failures.note(Failure::DriverFailed, &io::Error::other("any")));
        assert!(failures.has_news(), "two are kept back");
        failures.log_rest();
        assert!(!failures.has_news());
    }

    #[test]
    fn without_a_sentinel_failures_are_reported_immediately() {
        let failures = Failures::new("test", false);
        failures.note(Failure::DriverNotWoken, &io::Error::other("any"));
        assert!(!failures.has_news());
    }
}
