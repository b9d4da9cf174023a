//! A clock that tests stop and move on: that of one runtime, for its timers and for nothing else.
//!
//! Shape. While it runs it is the process's clock, some way ahead or behind; while it is paused it
//! stands still, and moves by [`advance`] or, when nothing is left to be done, to the next timer
//! that is due.
//!
//! Who writes: whoever pauses, resumes or advances; the worker in the driver, when all are at rest.
//! Who reads: timers, under the lock. A runtime without such a clock has nothing of this but a
//! check of an `Option`.
//!
//! *At rest* is known, not guessed: all workers are parked, none of them has found somebody to
//! wake, and no queue holds a task (the worker in the driver checks, see `scheduler/worker/park`);
//! no job is on a thread for blocking work, or waits for one; and every thread in `block_on`
//! sleeps. What could wake a task then is a timer, the kernel, which is asked first, or a thread of
//! the program's own, of which nobody here knows.
//!
//! Rejected: pausing any runtime at any time, without having asked for it when it was built:
//! `block_on` would have to enter itself in a list for the sake of tests.
//!
//! [`advance`]: TestClock::advance

use std::sync::{Arc, Weak};
use std::time::Duration;

use volt_shim::{AtomicUsize, Mutex, MutexGuard, Ordering};

use crate::clock::{self, Both};
use crate::driver::parker::Parker;

/// See the header of this file.
#[derive(Debug)]
pub struct TestClock {
    /// An instant, and what this clock said then.
    base: Both,
    state: Mutex<State>,
    outsiders: Mutex<Vec<Weak<Parker>>>,
    /// Workers that have found in the driver whom to wake, and have not done so yet. Between the
    /// two they look as if they were parked there.
    waking: AtomicUsize,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Paused {
        at_ns: u64,
    },
    /// How far it is ahead of the process's clock, ns.
    Running {
        ahead_ns: i128,
    },
}

/// What was asked of a clock that is in the other state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongState;

impl TestClock {
    pub(crate) fn new(is_paused: bool) -> Self {
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

    /// Stops the clock.
    ///
    /// # Errors
    /// It is paused already.
    pub fn pause(&self) -> Result<(), WrongState> {
        let mut state = self.state.lock();
        let State::Running { ahead_ns } = *state else { return Err(WrongState) };
        *state = State::Paused { at_ns: shifted(ahead_ns) };
        Ok(())
    }

    /// Lets a paused clock run on.
    ///
    /// # Errors
    /// It runs.
    pub fn resume(&self) -> Result<(), WrongState> {
        let mut state = self.state.lock();
        let at_ns = paused_at(&state)?;
        *state = State::Running { ahead_ns: i128::from(at_ns) - i128::from(clock::now_ns()) };
        Ok(())
    }

    /// Moves a paused clock forward.
    ///
    /// # Errors
    /// It runs.
    pub fn advance(&self, by: Duration) -> Result<(), WrongState> {
        let mut state = self.state.lock();
        let at_ns = paused_at(&state)?.saturating_add(clock::saturating_ns(by));
        *state = State::Paused { at_ns };
        Ok(())
    }

    /// Moves on to `to_ns`, if it is paused and that lies ahead.
    pub(crate) fn advance_to(&self, to_ns: u64) {
        let mut state = self.state.lock();
        if let State::Paused { at_ns } = &mut *state {
            *at_ns = to_ns.max(*at_ns);
        }
    }

    /// A thread in `block_on`, as long as its parker lives.
    pub(crate) fn add_outsider(&self, parker: &Arc<Parker>) {
        let mut outsiders = self.outsiders.lock();
        outsiders.retain(|outsider| outsider.strong_count() > 0);
        outsiders.push(Arc::downgrade(parker));
    }

    /// A worker has collected wakers in the driver, which it still has.
    pub(crate) fn begin_wakes(&self) {
        // ORDERING: AcqRel, as in `end_wakes`; pairs with the Acquire in `are_outsiders_at_rest`.
        self.waking.fetch_add(1, Ordering::AcqRel);
    }

    /// It has called them.
    pub(crate) fn end_wakes(&self) {
        // ORDERING: AcqRel; whoever sees that it has called them sees what they did.
        self.waking.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether all threads in `block_on` sleep, nobody has woken them, and nobody is about to wake
    /// anybody.
    pub(crate) fn are_outsiders_at_rest(&self) -> bool {
        // ORDERING: Acquire; pairs with `end_wakes`.
        if self.waking.load(Ordering::Acquire) > 0 {
            return false;
        }
        let outsiders = self.outsiders.lock();
        outsiders.iter().filter_map(Weak::upgrade).all(|parker| parker.is_parked())
    }
}

fn shifted(ahead_ns: i128) -> u64 {
    u64::try_from(i128::from(clock::now_ns()) + ahead_ns).unwrap_or(0)
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
    fn an_outsider_counts_while_it_lives_and_is_awake() {
        let clock = TestClock::new(true);
        assert!(clock.are_outsiders_at_rest());
        let parker = Arc::new(Parker::new());
        clock.add_outsider(&parker);
        assert!(!clock.are_outsiders_at_rest(), "it is awake");
        drop(parker);
        assert!(clock.are_outsiders_at_rest());
    }
}
