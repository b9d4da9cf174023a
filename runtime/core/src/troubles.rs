//! What the runtime's own machinery cannot do: noted down by whoever finds out, told in the
//! application's log by a thread that may wait.
//!
//! A log may block, for as long as it likes. A worker between two polls and the sentinel must not
//! wait for it: nobody would heal the one, and the other is who heals. So they note here, and the
//! thread that tells of incidents tells of this as well. A runtime without a sentinel has
//! no such thread, and nothing to be healed by: there it is told where it is found.
//!
//! The sentinel may doze, so whoever notes something rouses it. When it ends it *leaves*: the rest
//! is told on its way out, whatever `QUIET_TIME` says, and what is noted after that is told where
//! it is found. A note is made under the lock under which the sentinel leaves, so it is either part
//! of the rest or told by its finder.
//!
//! Who writes: any thread, under a lock that is held for a copy of a few words. Who reads: the
//! sentinel reads one flag at each check.
//!
//! Bounds: of each kind the latest error and a number; told at most once in `QUIET_TIME`, with how
//! often it was meanwhile; what came since is told when the runtime ends.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use crate::clock;

/// Between two times that the same is told.
const QUIET_TIME: Duration = Duration::from_secs(1);
const KINDS: usize = Trouble::ALL.len();
const NEVER: u64 = u64::MAX;

/// What cannot be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A worker is stuck, and no thread could be started in its place.
    NoSpare,
    /// The kernel does not say what has happened on sockets.
    DriverFailed,
    /// The worker that sleeps in the I/O driver cannot be woken.
    DriverNotWoken,
    /// No thread could be started for blocking work.
    NoBlockingThread,
    /// The processor's cycle counter failed, and the clock is read from the system.
    ClockFault,
}

impl Trouble {
    /// In the order of their values.
    const ALL: [Self; 5] =
        [Self::NoSpare, Self::DriverFailed, Self::DriverNotWoken, Self::NoBlockingThread, Self::ClockFault];
}

/// See the header of this file.
#[derive(Debug)]
pub(crate) struct Troubles {
    runtime: String,
    /// The sentinel, to be roused.
    watcher: OnceLock<Weak<dyn Watcher>>,
    /// When the next is to be told; `NEVER` = nothing is.
    due_at_ns: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Whether the sentinel has what is noted told, now or when it starts.
    is_watched: bool,
    notes: [Note; KINDS],
}

/// Whoever has told what is noted.
pub(crate) trait Watcher: Send + Sync {
    /// Something was noted: it is not to sleep for good.
    fn rouse(&self);
}

/// What is known of one kind.
#[derive(Debug, Default)]
struct Note {
    error: String,
    /// Since it was last told.
    times: u64,
    told_at_ns: Option<u64>,
}

impl Note {
    /// When it is to be told; `None` = it is not.
    fn due_at_ns(&self) -> Option<u64> {
        let not_before_ns = |at_ns: u64| at_ns.saturating_add(clock::saturating_ns(QUIET_TIME));
        (self.times > 0).then(|| self.told_at_ns.map_or(0, not_before_ns))
    }
}

impl Troubles {
    /// Of the runtime of that name, which has a sentinel that asks, or none.
    pub(crate) fn new(runtime: &str, is_watched: bool) -> Self {
        let state = State { is_watched, notes: Default::default() };
        let due_at_ns = AtomicU64::new(NEVER);
        Self { runtime: runtime.to_owned(), watcher: OnceLock::new(), due_at_ns, state: Mutex::new(state) }
    }

    /// Whom to rouse, once.
    pub(crate) fn set_watcher(&self, watcher: Weak<dyn Watcher>) {
        let set = self.watcher.set(watcher);
        debug_assert!(set.is_ok(), "there is one sentinel");
    }

    /// Something failed, once more. Without a sentinel this runs subscribers' code.
    pub(crate) fn note(&self, trouble: Trouble, error: &io::Error) {
        let mut state = self.lock();
        let note = &mut state.notes[trouble as usize];
        note.times += 1;
        note.error = error.to_string();
        self.set_due(&state.notes);
        let is_watched = state.is_watched;
        drop(state);
        if !is_watched {
            self.tell(clock::now_ns());
        } else if let Some(watcher) = self.watcher.get().and_then(Weak::upgrade) {
            watcher.rouse();
        }
    }

    /// The sentinel ends, or could not be started. Its last act is [`tell_rest`](Self::tell_rest).
    pub(crate) fn leave(&self) {
        self.lock().is_watched = false;
    }

    /// Whether something is to be told, now or later. One load, as `is_due`, for who asks often.
    pub(crate) fn has_news(&self) -> bool {
        // ORDERING: Relaxed; a hint, what it says is read under the lock.
        self.due_at_ns.load(Ordering::Relaxed) != NEVER
    }

    /// Whether something is to be told now.
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        // ORDERING: Relaxed; as above.
        self.due_at_ns.load(Ordering::Relaxed) <= now_ns
    }

    fn set_due(&self, notes: &[Note; KINDS]) {
        let due_at_ns = notes.iter().filter_map(Note::due_at_ns).min().unwrap_or(NEVER);
        // ORDERING: Relaxed; one writer at a time, under the lock, which publishes what it is
        // about.
        self.due_at_ns.store(due_at_ns, Ordering::Relaxed);
    }

    /// Tells what was not told yet, but for what was told a moment ago. Runs subscribers' code.
    pub(crate) fn tell(&self, now_ns: u64) {
        for trouble in Trouble::ALL {
            if let Some((error, times)) = self.take(trouble, now_ns) {
                tell(&self.runtime, trouble, &error, times);
            }
        }
    }

    /// Tells all that was not told yet, at the end of the runtime. Runs subscribers' code.
    pub(crate) fn tell_rest(&self) {
        self.forget_times();
        self.tell(clock::now_ns());
    }

    /// Nothing was told a moment ago.
    fn forget_times(&self) {
        let mut state = self.lock();
        state.notes.iter_mut().for_each(|note| note.told_at_ns = None);
        self.set_due(&state.notes);
    }

    pub(crate) fn take(&self, trouble: Trouble, now_ns: u64) -> Option<(String, u64)> {
        let mut state = self.lock();
        let note = &mut state.notes[trouble as usize];
        let taken = note.due_at_ns().is_some_and(|due_at_ns| due_at_ns <= now_ns).then(|| {
            note.told_at_ns = Some(now_ns);
            (std::mem::take(&mut note.error), std::mem::take(&mut note.times))
        });
        self.set_due(&state.notes);
        taken
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(runtime: &str, trouble: Trouble, error: &str, times: u64) {
    match trouble {
        Trouble::NoSpare => tracing::error!(
            target: "volt", runtime, error, times,
            "a worker is stuck, and no thread could be started to take its place"
        ),
        Trouble::DriverFailed => {
            tracing::error!(target: "volt", runtime, error, times, "the I/O driver failed to wait for events");
        }
        // An eventfd takes a write as long as it exists; should it not, the next event or timer
        // ends the sleep.
        Trouble::DriverNotWoken => {
            tracing::error!(target: "volt", runtime, error, times, "the I/O driver cannot be woken");
        }
        Trouble::NoBlockingThread => tracing::error!(
            target: "volt", runtime, error, times,
            "no thread could be started for blocking work: jobs wait for those that there are, or fail if there is none"
        ),
        // Nothing is lost but speed.
        Trouble::ClockFault => tracing::warn!(
            target: "volt", runtime, error, times,
            "the processor's cycle counter failed, and the clock is read from the system"
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

    /// Calls a function with the text of each warning and error of Volt's.
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
    fn of_each_kind_the_latest_is_kept_and_told_once_a_second_with_how_often_it_was() {
        let troubles = Troubles::new("test", true);
        let second = clock::saturating_ns(QUIET_TIME);
        let failed = |what: &'static str| io::Error::other(what);
        assert!(!troubles.has_news() && troubles.take(Trouble::NoSpare, 0).is_none());
        ["first", "second"].into_iter().for_each(|what| troubles.note(Trouble::NoSpare, &failed(what)));
        troubles.note(Trouble::DriverFailed, &failed("other"));
        assert_eq!(troubles.take(Trouble::NoSpare, 5), Some(("second".to_owned(), 2)));
        assert!(troubles.has_news(), "the other kind is left");
        assert_eq!(troubles.take(Trouble::DriverFailed, 5), Some(("other".to_owned(), 1)));
        assert!(!troubles.has_news());
        troubles.note(Trouble::NoSpare, &failed("third"));
        assert_eq!(troubles.take(Trouble::NoSpare, 5 + second - 1), None);
        assert!(troubles.has_news() && !troubles.is_due(5 + second - 1), "it is told later");
        assert_eq!(troubles.take(Trouble::NoSpare, 5 + second), Some(("third".to_owned(), 1)));
    }

    #[test]
    fn whoever_notes_something_rouses_the_sentinel() {
        use std::sync::Arc;
        #[derive(Default)]
        struct Roused(AtomicU64);
        impl Watcher for Roused {
            fn rouse(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (troubles, roused) = (Troubles::new("test", true), Arc::new(Roused::default()));
        troubles.note(Trouble::NoBlockingThread, &io::Error::other("before it starts"));
        let watcher: Weak<Roused> = Arc::downgrade(&roused);
        troubles.set_watcher(watcher);
        troubles.note(Trouble::NoBlockingThread, &io::Error::other("any"));
        assert_eq!(roused.0.load(Ordering::Relaxed), 1);
        assert!(troubles.has_news());
        troubles.leave();
        assert!(troubles.has_news(), "the rest is told by who leaves");
        troubles.note(Trouble::DriverFailed, &io::Error::other("any"));
        assert_eq!(roused.0.load(Ordering::Relaxed), 1);
        assert!(!troubles.has_news(), "told by who found it");
    }

    #[test]
    fn what_came_a_moment_after_the_last_report_is_told_at_the_end() {
        let troubles = Troubles::new("test", false);
        (0..3).for_each(|_| troubles.note(Trouble::DriverFailed, &io::Error::other("any")));
        assert!(troubles.has_news(), "two are kept back");
        troubles.tell_rest();
        assert!(!troubles.has_news());
    }

    #[test]
    fn where_nobody_asks_it_is_told_at_once() {
        let troubles = Troubles::new("test", false);
        troubles.note(Trouble::DriverNotWoken, &io::Error::other("any"));
        assert!(!troubles.has_news());
    }
}
