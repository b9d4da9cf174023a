//! How a worker parks: the steps of `idle` and of `driver::turn_lock`, in their order.
//!
//! A worker that found no task publishes that it is parked, checks every queue once more, and
//! sleeps: in the driver if no other worker is there, otherwise on its park word. A thread that
//! submits a task *claims* a parked worker and gives it a *token*, which ends the sleep. The race
//! is between the last check and a submit. `idle` proves that no wake-up is lost in this race; the
//! code that the proof is about is here. The worker calls it, and so do the loom models of `idle`
//! and of `turn_lock`.
//!
//! An ordinary case: worker 1 publishes that it is parked (1), finds all queues empty (2), gets the
//! driver turn (4), and sleeps in the driver (5). A thread submits a task, claims worker 1 and
//! gives it a token. Worker 1 wakes up, finds that it was claimed (6), takes the token (7), and
//! searches.
//!
//! Park, by a worker that found no work:
//! 1. Park (1) and (2) of `idle`: the worker leaves the searchers and publishes that it is parked.
//! 2. Park (3) of `idle`: it checks everything once more. On a hit it continues with (6).
//! 3. Spin (1) to (3) of `idle`, if spinning is worthwhile. A token that arrives is not taken yet.
//! 4. Hand-off (2) of `driver::turn_lock`: it gets the driver turn, or will sleep on the futex. If
//!    it got the turn, it marks its park word accordingly, which fails if a token is already there.
//! 5. It sleeps. Afterwards it gives up the turn if it had it.
//! 6. Retract of `idle`: it clears its bit, and finds out whether it was claimed.
//! 7. If it was claimed, it waits for the token, and is a searcher, already counted by the claimer.
//!    If not, it resets its park word after a sleep, and becomes a searcher after a hit.
//!
//! Search, by a searcher that found work, before it runs that work: it leaves the searchers. The
//! last searcher to leave checks everything, and wakes one more worker if there is work.
//!
//! Hand-off (3), by a worker that goes on to poll tasks: a fence, then a check whether a worker is
//! in the driver, then a claim. The proof requires this order.
//!
//! The trait [`Parks`] abstracts the worker. A model can replace its provided methods, which are
//! steps of the protocol, with faulty ones.

use std::time::Duration;

use super::Idle;
use crate::driver::parker::Parker;

/// A worker that parks. Its own thread calls the methods.
pub(crate) trait Parks {
    /// The driver turn.
    type Turn<'a>
    where
        Self: 'a;
    /// The reason why a sleep ended.
    type Slept;

    fn idle(&self) -> &Idle;

    fn index(&self) -> usize;

    fn parker(&self) -> &Parker;

    /// Sets whether this worker is a searcher. Returns whether it was one.
    fn set_searching(&self, is_searching: bool) -> bool;

    /// Park (2): returns whether there is anything that this worker could run or must react to.
    fn is_needed(&self) -> bool;

    /// Counts a park: the worker found no work and is about to sleep.
    fn count_park(&self);

    /// Returns whether a spin is worthwhile, provided that no other worker is entered as the
    /// spinner.
    fn is_spin_worth(&self) -> bool;

    /// Spin (2): checks [`Parker::has_token`] for a while. Returns whether there was a token.
    fn watch(&self) -> bool;

    /// Called after a spin in which a token came.
    fn linger(&self);

    /// Takes the driver turn, if no other worker has it.
    fn try_turn(&self) -> Option<Self::Turn<'_>>;

    /// Called when the worker is about to sleep, in the driver or on the futex. Returns the maximum
    /// time.
    fn begin_sleep(&self, is_in_driver: bool) -> Option<Duration>;

    /// Park (5): sleeps.
    fn sleep(&self, target: ParkTarget<Self::Turn<'_>>) -> Self::Slept;

    /// Called when the worker is awake and about to search. `None` = there was a hit, so that it
    /// has not slept.
    fn begin_search(&self, slept: Option<&Self::Slept>, is_claimed: bool);

    // Steps that a model can replace with faulty ones.

    /// Park (1).
    #[inline]
    fn begin_park(&self) {
        let was_searching = self.set_searching(false);
        self.idle().begin_park(self.index(), was_searching);
    }

    /// Park (6). Returns whether this worker was claimed, so that a token comes.
    #[inline]
    fn retract(&self) -> bool {
        !self.idle().retract(self.index())
    }

    /// Park (7) after a hit.
    ///
    /// The worker becomes a searcher even with stealing off: there may be more work than it takes,
    /// from submitters that relied on it before it left the searchers. The chain wakes workers for
    /// that work.
    #[inline]
    fn settle_after_hit(&self, is_claimed: bool) {
        if is_claimed {
            self.parker().wait_token();
        } else {
            self.idle().start_searching();
        }
        self.set_searching(true);
    }

    /// Park (7) after a sleep.
    #[inline]
    fn settle_after_sleep(&self, is_claimed: bool) {
        if is_claimed {
            self.parker().wait_token();
            self.set_searching(true);
        } else {
            // Without a claim there can be a token only from a claimer of an earlier sleep that was
            // late, which ONE-TOKEN excludes.
            let had_token = self.parker().take_token();
            debug_assert!(!had_token, "ONE-TOKEN: a token without a claim");
        }
    }
}

/// The object that a worker is about to park on.
pub(crate) enum ParkTarget<Turn> {
    /// The driver, until a timer is due, but at most for `timeout`.
    Driver {
        turn: Turn,
        timeout: Option<Duration>,
    },
    Futex {
        timeout: Option<Duration>,
    },
    /// Nothing: a token is already there.
    Token,
}

/// Park. Sleeps until woken, unless work or a token comes before the sleep.
#[inline]
pub(crate) fn park<W: Parks>(worker: &W) {
    // Park (1)
    worker.begin_park();
    // Park (2)
    if worker.is_needed() {
        // Park (6)
        let is_claimed = worker.retract();
        cancel_sleep(worker, is_claimed);
        return;
    }
    let target = prepare_sleep(worker);
    // Park (5)
    let slept = worker.sleep(target);
    // Park (6)
    let is_claimed = worker.retract();
    finish_sleep(worker, &slept, is_claimed);
}

/// Park (7) after a hit.
#[inline]
pub(crate) fn cancel_sleep<W: Parks>(worker: &W, is_claimed: bool) {
    worker.settle_after_hit(is_claimed);
    worker.begin_search(None, is_claimed);
}

/// Park (7) after a sleep.
#[inline]
pub(crate) fn finish_sleep<W: Parks>(worker: &W, slept: &W::Slept, is_claimed: bool) {
    worker.settle_after_sleep(is_claimed);
    worker.begin_search(Some(slept), is_claimed);
}

/// Park (3) and (4).
#[inline]
pub(crate) fn prepare_sleep<W: Parks>(worker: &W) -> ParkTarget<W::Turn<'_>> {
    worker.count_park();
    // Park (3)
    if spin(worker) {
        return ParkTarget::Token;
    }
    // Park (4)
    if let Some(turn) = worker.try_turn() {
        let timeout = worker.begin_sleep(true);
        return if worker.parker().begin_driver() { ParkTarget::Driver { turn, timeout } } else { ParkTarget::Token };
    }
    ParkTarget::Futex { timeout: worker.begin_sleep(false) }
}

/// Spin. Returns whether a token came.
#[inline]
fn spin<W: Parks>(worker: &W) -> bool {
    // Spin (1)
    if !worker.is_spin_worth() || !worker.idle().begin_spin(worker.index()) {
        return false;
    }
    // Spin (2)
    let has_come = worker.watch();
    // Spin (3)
    worker.idle().end_spin();
    if has_come {
        worker.linger();
    }
    has_come
}

/// Search, by a searcher. `has_work` returns whether any queue holds a task that another worker
/// could run.
#[inline]
pub(crate) fn leave_searchers(idle: &Idle, has_work: impl FnOnce() -> bool, wake_one: impl FnOnce()) {
    if idle.stop_searching() && has_work() {
        wake_one();
    }
}

/// Hand-off (3). Claims and returns a worker that will park in the driver, unless one is there or
/// on the way. The caller unparks it.
#[inline]
#[must_use = "a claimed worker waits for its token"]
pub(crate) fn claim_for_driver(idle: &Idle, owner: impl Fn() -> Option<usize>) -> Option<usize> {
    // Submit (2) is in the first of these calls: the check of the owner must come after it.
    if idle.is_any_parked() && owner().is_none() { idle.claim_for_submit(owner()) } else { None }
}
