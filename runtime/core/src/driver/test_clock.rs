//! A clock that tests pause and advance. It belongs to one runtime and drives only its timers.
//!
//! A runtime has one if it was built for tests. While the clock runs, it is the program's clock
//! with an offset. While it is paused, it moves only by [`advance`] or, when the runtime is at
//! rest, to the next deadline.
//!
//! Threads that pause, resume or advance it write, and so does the worker in the driver when all
//! threads are at rest. Timers and `Instant::now` read it, under the lock. In a runtime without
//! such a clock all this costs one check of an `Option`.
//!
//! *At rest* is determined exactly. All workers are parked, none of them has found a task to wake,
//! and no queue contains a task (the worker in the driver checks, see `scheduler/worker/park`). No
//! job runs on a thread for blocking work or waits for one. Every thread in `block_on` sleeps; it
//! counts until it leaves the call (`Outsider`), and not for as long as its waker is kept
//! somewhere. Only three things could wake a task then: a timer; the kernel, which is polled first;
//! or a thread that the program started itself, which is not detected.
//!
//! Rejected: pausing any runtime at any time, even one that was not built for it. `block_on` would
//! have to register itself in a list only for tests.
//!
//! [`advance`]: TestClock::advance

use std::sync::Arc;
use std::time::Duration;

use volt_shim::{AtomicBool, AtomicUsize, Mutex, MutexGuard, Ordering};

use crate::clock::{self, Both};
use crate::driver::parker::Parker;

/// Whether the program has ever created a test clock. While it is false, `Instant::now` need not
/// read the current runtime.
static IS_IN_USE: AtomicBool = AtomicBool::new(false);

/// Returns whether the program has created a test clock.
#[inline]
pub(crate) fn is_in_use() -> bool {
    // ORDERING: Relaxed; a thread in which a runtime is current got its handle after
    // `TestClock::new` had stored this, and sees the store through whatever passed it the handle.
    IS_IN_USE.load(Ordering::Relaxed)
}

/// See the header of this file.
#[derive(Debug)]
pub struct TestClock {
    /// An instant, and this clock's time at that instant.
    base: Both,
    state: Mutex<State>,
    /// The parkers of the threads in `block_on`.
    outsiders: Mutex<Vec<Arc<Parker>>>,
    /// Workers that have collected wakers in the driver and not called them yet. In that state they
    /// appear to be parked there.
    waking: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Paused {
        at_ns: u64,
    },
    /// Offset to the program's clock, ns.
    Running {
        ahead_ns: i128,
    },
}

/// The error of an operation on a clock that is in the wrong state: paused instead of running, or
/// the reverse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongState;

impl TestClock {
    pub(crate) fn new(is_paused: bool) -> Self {
        // ORDERING: Relaxed; see `is_in_use`.
        IS_IN_USE.store(true, Ordering::Relaxed);
        let base = Both::read();
        let state = if is_paused { State::Paused { at_ns: base.now_ns() } } else { State::Running { ahead_ns: 0 } };
        Self { base, state: Mutex::new(state), outsiders: Mutex::new(Vec::new()), waking: AtomicUsize::new(0) }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        match *self.state.lock() {
            State::Paused { at_ns } => at_ns,
            State::Running { ahead_ns } => shifted(ahead_ns),
        }
    }

    pub(crate) fn now(&self) -> Both {
        self.base.later(Duration::from_nanos(self.now_ns().saturating_sub(self.base.now_ns())))
    }

    pub(crate) fn is_paused(&self) -> bool {
        matches!(*self.state.lock(), State::Paused { .. })
    }

    /// Pauses the clock.
    ///
    /// # Errors
    /// Returns [`WrongState`] if it is already paused.
    pub fn pause(&self) -> Result<(), WrongState> {
        let mut state = self.state.lock();
        let State::Running { ahead_ns } = *state else { return Err(WrongState) };
        *state = State::Paused { at_ns: shifted(ahead_ns) };
        Ok(())
    }

    /// Lets a paused clock run on.
    ///
    /// # Errors
    /// Returns [`WrongState`] if it is running.
    pub fn resume(&self) -> Result<(), WrongState> {
        let mut state = self.state.lock();
        let at_ns = paused_at(&state)?;
        *state = State::Running { ahead_ns: i128::from(at_ns) - i128::from(clock::now_ns()) };
        Ok(())
    }

    /// Advances a paused clock.
    ///
    /// # Errors
    /// Returns [`WrongState`] if it is running.
    pub fn advance(&self, by: Duration) -> Result<(), WrongState> {
        let mut state = self.state.lock();
        let at_ns = paused_at(&state)?.saturating_add(clock::saturating_ns(by));
        *state = State::Paused { at_ns };
        Ok(())
    }

    /// Advances the clock to `to_ns`, if it is paused and earlier than that.
    pub(crate) fn advance_to(&self, to_ns: u64) {
        let mut state = self.state.lock();
        if let State::Paused { at_ns } = &mut *state {
            *at_ns = to_ns.max(*at_ns);
        }
    }

    /// Registers a thread in `block_on`, until the result is dropped.
    pub(crate) fn add_outsider<'a>(&'a self, parker: &'a Arc<Parker>) -> Outsider<'a> {
        self.outsiders.lock().push(parker.clone());
        Outsider { clock: self, parker }
    }

    /// Records that a worker has collected wakers in the driver. It still has the driver turn.
    pub(crate) fn begin_wakes(&self) {
        // ORDERING: AcqRel, as in `end_wakes`; pairs with the Acquire in `are_outsiders_at_rest`.
        self.waking.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that the worker has called them.
    pub(crate) fn end_wakes(&self) {
        // ORDERING: AcqRel; a thread that sees that the wakers were called sees what they did.
        self.waking.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns whether all threads in `block_on` sleep, none of them was woken, and no worker is
    /// about to wake any.
    pub(crate) fn are_outsiders_at_rest(&self) -> bool {
        // ORDERING: Acquire; pairs with `end_wakes`.
        if self.waking.load(Ordering::Acquire) > 0 {
            return false;
        }
        let outsiders = self.outsiders.lock();
        outsiders.iter().all(|parker| parker.is_parked())
    }
}

/// A thread in `block_on`, until this is dropped: when it leaves the call, or becomes a worker. Its
/// wakers own the parker, too, and may exist for longer.
#[must_use = "the thread is registered until this is dropped"]
pub(crate) struct Outsider<'a> {
    clock: &'a TestClock,
    parker: &'a Arc<Parker>,
}

impl Drop for Outsider<'_> {
    fn drop(&mut self) {
        self.clock.outsiders.lock().retain(|parker| !Arc::ptr_eq(parker, self.parker));
    }
}

/// Returns the time of a clock that is ahead of the program's. At the end of its range it stands
/// still.
fn shifted(ahead_ns: i128) -> u64 {
    let now_ns = i128::from(clock::now_ns()) + ahead_ns;
    u64::try_from(now_ns.max(0)).unwrap_or(u64::MAX)
}

fn paused_at(state: &MutexGuard<'_, State>) -> Result<u64, WrongState> {
    match **state {
        State::Paused { at_ns } => Ok(at_ns),
        State::Running { .. } => Err(WrongState),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paused_clock_stands_still_and_goes_on_from_where_it_stood() {
        let clock = TestClock::new(true);
        let began = clock.now();
        assert_eq!((clock.now_ns(), clock.now().now), (began.now_ns(), began.now));
        assert_eq!(clock.pause(), Err(WrongState));
        let hour = Duration::from_secs(3600);
        clock.advance(hour).unwrap();
        assert_eq!(clock.now().now - began.now, hour);
        clock.advance_to(0);
        assert_eq!(clock.now().now - began.now, hour, "never back");
        clock.resume().unwrap();
        assert_eq!(clock.advance(hour), Err(WrongState));
        assert!(clock.now().now - began.now >= hour);
        clock.pause().unwrap();
        let stands = clock.now_ns();
        assert!(clock.is_paused() && clock.now_ns() == stands);
    }

    #[test]
    fn a_clock_that_runs_past_its_range_does_not_go_back() {
        let clock = TestClock::new(true);
        clock.advance(Duration::MAX).unwrap();
        let end = clock.now();
        clock.resume().unwrap();
        let resumed_ns = clock::now_ns();
        while clock::now_ns() <= resumed_ns {
            std::thread::yield_now();
        }
        assert_eq!((clock.now_ns(), clock.now().now), (u64::MAX, end.now));
    }

    #[test]
    fn an_awake_thread_outside_prevents_rest_until_it_leaves() {
        let clock = TestClock::new(true);
        assert!(clock.are_outsiders_at_rest());
        let parker = Arc::new(Parker::new());
        let outsider = clock.add_outsider(&parker);
        assert!(!clock.are_outsiders_at_rest(), "it is awake");
        let sleeper = parker.clone();
        let thread = std::thread::spawn(move || sleeper.sleep(None));
        while !clock.are_outsiders_at_rest() {
            std::thread::yield_now();
        }
        _ = parker.unpark();
        thread.join().unwrap();
        assert!(!clock.are_outsiders_at_rest(), "it is awake again");
        drop(outsider);
        assert!(clock.are_outsiders_at_rest(), "though wakers may own its parker");
    }
}
