//! The turn of a dump: a runtime makes one dump at a time.
//!
//! A thread that makes a dump takes the turn, and with it the resolver, which has read the
//! program's debug information. Reading that takes most of a first dump, so the resolver is kept.
//! Other threads wait for the turn, up to [`WAITING_MAX`] of them and no longer than their limit.
//!
//! Invariant: *no lock while dumping*. The lock protects the fields of `State` for a few
//! instructions, and is not held while a thread has the turn.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use volt_stacks::Resolver;

use super::limit::Limit;

/// The number of threads that may wait for the turn.
const WAITING_MAX: usize = 8;
/// How often a thread that waits for the turn checks whether its dump was cancelled.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The turn of a runtime. See the module documentation.
#[derive(Default)]
pub(in crate::scheduler) struct Turns {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    is_taken: bool,
    waiting: usize,
    resolver: Option<Resolver>,
}

/// The turn, which is free again when this is dropped.
pub(in crate::scheduler) struct Turn<'a> {
    turns: &'a Turns,
    resolver: Option<Resolver>,
}

/// Why a thread did not get the turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::scheduler) enum NoTurn {
    /// Too many threads wait already.
    Full,
    /// Other dumps took all of the time.
    Late,
    /// The dump was cancelled.
    Cancelled,
}

impl Turns {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the turn and takes it.
    pub(in crate::scheduler) fn take(&self, limit: &Limit) -> Result<Turn<'_>, NoTurn> {
        let mut state = self.lock();
        if state.is_taken && state.waiting >= WAITING_MAX {
            return Err(NoTurn::Full);
        }
        state.waiting += 1;
        let got = loop {
            if limit.is_cancelled() {
                break Err(NoTurn::Cancelled);
            }
            if !state.is_taken {
                break Ok(());
            }
            let left = limit.left();
            if left.is_zero() {
                break Err(NoTurn::Late);
            }
            let waited = self.freed.wait_timeout(state, left.min(CHECK_INTERVAL));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        };
        state.waiting -= 1;
        got?;
        state.is_taken = true;
        let resolver = state.resolver.take().unwrap_or_default();
        Ok(Turn { turns: self, resolver: Some(resolver) })
    }
}

impl Turn<'_> {
    pub(in crate::scheduler) fn resolver(&mut self) -> &mut Resolver {
        self.resolver.get_or_insert_default()
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // A resolver that has panicked is not used again.
        let resolver = self.resolver.take().filter(|_| !thread::panicking());
        let mut state = self.turns.lock();
        state.is_taken = false;
        state.resolver = resolver;
        drop(state);
        self.turns.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::readers::limit::Canceller;

    const LONG: Duration = Duration::from_secs(20);

    fn long() -> (Limit, Canceller) {
        Limit::new(LONG)
    }

    #[test]
    fn one_thread_at_a_time_has_the_turn() {
        const THREADS: usize = 4;
        let (turns, inside) = (Turns::default(), Mutex::new(()));
        thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let (limit, _canceller) = long();
                    let _turn = turns.take(&limit).unwrap();
                    drop(inside.try_lock().expect("no other thread is inside"));
                });
            }
        });
        let state = turns.lock();
        assert_eq!((state.is_taken, state.waiting), (false, 0));
    }

    #[test]
    fn a_wait_for_the_turn_ends_by_cancellation_and_by_time() {
        let turns = Turns::default();
        let (limit, _canceller) = long();
        let turn = turns.take(&limit).unwrap();
        let (over, _over) = Limit::new(Duration::ZERO);
        assert_eq!(turns.take(&over).err(), Some(NoTurn::Late));
        let (cancelled, canceller) = long();
        thread::scope(|scope| {
            let waits = scope.spawn(|| turns.take(&cancelled).err());
            while turns.lock().waiting == 0 {
                thread::yield_now();
            }
            drop(canceller);
            assert_eq!(waits.join().unwrap(), Some(NoTurn::Cancelled));
        });
        drop(turn);
        assert!(turns.take(&limit).is_ok());
    }

    #[test]
    fn the_number_of_waiting_threads_is_bounded() {
        let turns = Turns::default();
        let (limit, _canceller) = long();
        let turn = turns.take(&limit).unwrap();
        thread::scope(|scope| {
            for _ in 0..WAITING_MAX {
                scope.spawn(|| drop(turns.take(&limit).unwrap()));
            }
            while turns.lock().waiting < WAITING_MAX {
                thread::yield_now();
            }
            assert_eq!(turns.take(&limit).err(), Some(NoTurn::Full));
            drop(turn);
        });
    }

    #[test]
    fn a_panic_frees_the_turn() {
        let turns = Turns::default();
        let (limit, _canceller) = long();
        let panics = thread::scope(|scope| {
            let dump = scope.spawn(|| {
                let _turn = turns.take(&limit);
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            dump.join().is_err()
        });
        assert!(panics && turns.take(&limit).is_ok());
    }
}
