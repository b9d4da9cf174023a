//! How a worker sleeps, and gets up.
//!
//! The protocol by which no wake-up is lost stands in `idle`; its steps are named here where they are taken. Each is a method, so that the
//! simulation can take them one by one.
//!
//! Who writes: the worker's own thread.

use std::time::Duration;

use volt_telemetry::Phase;
use volt_telemetry::recording::event;

use super::{Worker, record};
use crate::clock;
use crate::config::ParkSpin;
use crate::driver::parker::Slept;
use crate::driver::spin::spin_until;
use crate::driver::{Polled, Turn, Wait};
use crate::queue::injector::Injector;
use crate::scheduler::core::Core;
use crate::stats::cells::WakeReason;
use crate::stats::counting;

/// How long a worker that was claimed in its spin waits for more: ten tasks or so, and a tenth of what it takes to wake one that sleeps.
const LINGER_NS: u64 = 1_000;

impl Worker {
    /// 7. Sleeps until woken, unless something came up meanwhile.
    pub(super) fn park(&self) {
        self.ensure_present();
        self.begin_park();
        if self.is_needed() {
            let is_claimed = self.retract();
            self.stay_up(is_claimed);
            return;
        }
        let bed = self.lie_down();
        let slept = self.sleep(bed);
        let is_claimed = self.retract();
        self.get_up(&slept, is_claimed);
    }

    /// Park (1), Park (2).
    pub(super) fn begin_park(&self) {
        let was_searching = std::mem::take(&mut self.core.borrow_mut().is_searching);
        self.shared.idle.begin_park(self.index, was_searching);
    }

    /// Retract. Returns whether somebody has claimed this worker: then a token comes.
    pub(super) fn retract(&self) -> bool {
        !self.shared.idle.retract(self.index)
    }

    /// After a hit in Park (3): on as a searcher, with stealing off too. There may be more than this worker takes, from submitters that relied
    /// on it before it left the searchers: the chain is for them.
    pub(super) fn stay_up(&self, is_claimed: bool) {
        if is_claimed {
            self.parker().wait_token();
        } else {
            self.shared.idle.start_searching();
        }
        let mut core = self.core.borrow_mut();
        core.is_searching = true;
        core.has_slept = true;
    }

    /// After a sleep: takes the token if one was promised, and wakes what the driver has collected.
    pub(super) fn get_up(&self, slept: &SleptBy, is_claimed: bool) {
        let cells = self.cells();
        let mut core = self.core.borrow_mut();
        // In the driver the clock was tended.
        let now_ns = if matches!(slept, SleptBy::Futex(_)) { clock::tend() } else { clock::now_ns() };
        let lay_down_ns = std::mem::replace(&mut core.now_ns, now_ns);
        core.has_slept = true;
        let reason = if is_claimed {
            self.parker().wait_token();
            core.is_searching = true;
            WakeReason::Notified
        } else {
            // Nobody has claimed me. A token may be there all the same only if a claimer of an earlier sleep was late, which ONE-TOKEN excludes.
            let had_token = self.parker().take_token();
            debug_assert!(!had_token, "ONE-TOKEN: a token without a claim");
            slept.reason()
        };
        if !matches!(slept, SleptBy::Token) {
            let slept_ns = core.now_ns.saturating_sub(lay_down_ns);
            core.spin.note_sleep(slept_ns, reason == WakeReason::Notified);
        }
        cells.count_unpark(reason);
        if let Some(pen) = self.pen.get() {
            pen.unpark(core.now_ns, record::reason(reason));
        }
        cells.enter_phase(Phase::Searching, core.now_ns);
        self.back_off(&mut core, reason);
        drop(core);
        self.wake_collected();
    }

    /// The look of Park (3) into everything that may have been published before the bit was seen.
    ///
    /// Timers are not in it: whoever gets the driver turn sleeps until the next one, at most, and if somebody else has the turn it is that
    /// one's. A look at the clock here would make every worker that wants to park spin from the moment a timer is due until the kernel has
    /// woken the one that sleeps for it.
    pub(super) fn is_needed(&self) -> bool {
        let shared = &self.shared;
        shared.has_work_for(self.index) || !shared.injector.is_empty_locked() || shared.is_done()
    }

    /// In the I/O driver if nobody else is there, else on the futex.
    pub(super) fn lie_down(&self) -> Bed<'_> {
        let (shared, cells) = (&self.shared, self.cells());
        cells.parks.add(1);
        if self.spin() {
            return Bed::Token;
        }
        let timeout = self.core.borrow().park_timeout;
        let publish = |timeout: Option<Duration>| cells.park_timeout_ns.set(timeout.map_or(0, clock::saturating_ns));
        if let Some(turn) = shared.driver.try_turn(self.index) {
            let now_ns = counting::now_ns();
            cells.enter_phase(Phase::Driver, now_ns);
            self.pen.park(|| now_ns, event::Bed::Driver);
            publish(timeout);
            return if self.parker().begin_driver() { Bed::Driver { turn, timeout } } else { Bed::Token };
        }
        let now_ns = counting::now_ns();
        cells.enter_phase(Phase::Parked, now_ns);
        self.pen.park(|| now_ns, event::Bed::Futex);
        // Only the worker in the driver keeps a time-out for good: one net is enough, and the others sleep undisturbed.
        let timeout = timeout.filter(|timeout| *timeout < shared.config.max_park_timeout);
        publish(timeout);
        Bed::Futex { timeout }
    }

    /// Spin: stays awake for a moment, if that is worth while. Returns whether a token came.
    fn spin(&self) -> bool {
        let (shared, core) = (&self.shared, &mut *self.core.borrow_mut());
        let spin = shared.config.park_spin;
        let until_ns = core.now_ns.saturating_add(spin.lasts_ns());
        if !core.spin.is_worth(spin) || !shared.driver.can_wait_until(until_ns) {
            return false;
        }
        // Spin (1)
        let is_told = shared.idle.begin_spin(self.index);
        // Before every sleep is before this one too, though nobody is told of it.
        if !is_told && spin != ParkSpin::Stepped {
            return false;
        }
        // Spin (2)
        let spun = core.spin.spin(spin, || self.parker().has_token());
        // Spin (3)
        if is_told {
            shared.idle.end_spin();
        }
        let has_come = spun == Some(true);
        if let Some(has_helped) = spun {
            let cells = self.cells();
            if has_helped { &cells.spins_helped } else { &cells.spins_in_vain }.add(1);
        }
        if has_come {
            linger();
        }
        has_come
    }

    /// Wakes of sockets and timers are collected, not yet made.
    pub(super) fn sleep(&self, bed: Bed<'_>) -> SleptBy {
        match bed {
            Bed::Driver { turn, timeout } => {
                let wait = if self.shared.driver.is_paused() {
                    Wait::Paused { next_ns: self.shared.next_at_rest(self.index) }
                } else {
                    Wait::UntilTimer { at_most: timeout }
                };
                self.turn_driver(turn, wait)
            }
            Bed::Futex { timeout } => SleptBy::Futex(self.parker().sleep(timeout)),
            Bed::Token => SleptBy::Token,
        }
    }

    pub(super) fn turn_driver(&self, mut turn: Turn<'_>, wait: Wait) -> SleptBy {
        let mut core = self.core.borrow_mut();
        let polled = turn.poll(wait, &mut core.wakers);
        core.io_wakers = polled.as_ref().map_or(0, |polled| polled.io_wakers);
        drop(core);
        drop(turn);
        self.report(&polled);
        SleptBy::Driver(polled.unwrap_or_default())
    }

    /// A time-out that found nothing doubles the next one; one that found work has caught a fault of the protocol, and counts it.
    fn back_off(&self, core: &mut Core, reason: WakeReason) {
        let config = &self.shared.config;
        if reason != WakeReason::Timeout {
            core.park_timeout = config.park_timeout;
            return;
        }
        let slept = core.park_timeout.unwrap_or_default();
        core.park_timeout = core.park_timeout.map(|timeout| (timeout * 2).min(config.max_park_timeout));
        // Waiting for as long as I slept, and nobody on the way to it: a wake-up was lost.
        let queues = [&self.shared.injector, &self.remote.inbox];
        let oldest_at_ns = queues.into_iter().filter_map(Injector::oldest_at_ns).min();
        let waited_ns = oldest_at_ns.map_or(0, |at_ns| core.now_ns.saturating_sub(at_ns));
        if waited_ns >= clock::saturating_ns(slept) && self.shared.idle.searching() == 0 {
            self.cells().lost_wakeup_rescues.add(1);
        }
    }
}

/// For whoever came at once: it is often the first of many, from a thread that needs longer to hand each in than a worker to run it. Those who hand in
/// more meanwhile see that somebody searches, and wake nobody; without this each of them would find the worker about to sleep again.
fn linger() {
    spin_until(LINGER_NS, 1, || false);
}

/// What a worker is about to sleep on.
pub(super) enum Bed<'a> {
    /// The driver, until a timer is due, for `timeout` at most.
    Driver {
        turn: Turn<'a>,
        timeout: Option<Duration>,
    },
    Futex {
        timeout: Option<Duration>,
    },
    /// Nothing: a token is already there.
    Token,
}

/// What a sleep ended with, unless it was a claim.
pub(super) enum SleptBy {
    Driver(Polled),
    Futex(Slept),
    /// It did not sleep: a token was there.
    Token,
}

impl SleptBy {
    fn reason(&self) -> WakeReason {
        match self {
            SleptBy::Driver(polled) if polled.events > 0 => WakeReason::Io,
            SleptBy::Driver(polled) if polled.timers_fired > 0 || polled.was_rearmed => WakeReason::Timer,
            SleptBy::Driver(polled) if polled.timed_out => WakeReason::Timeout,
            SleptBy::Futex(Slept::TimedOut) => WakeReason::Timeout,
            _ => WakeReason::Spurious,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart() {
        let polled = |polled| SleptBy::Driver(polled).reason();
        let nothing = Polled::default();
        assert_eq!(polled(Polled { events: 1, timers_fired: 1, ..nothing }), WakeReason::Io);
        assert_eq!(polled(Polled { timers_fired: 1, ..nothing }), WakeReason::Timer);
        assert_eq!(polled(Polled { was_unparked: true, was_rearmed: true, ..nothing }), WakeReason::Timer);
        assert_eq!(polled(Polled { timed_out: true, ..nothing }), WakeReason::Timeout);
        assert_eq!(
            polled(Polled { was_unparked: true, ..nothing }),
            WakeReason::Spurious,
            "a token of an earlier sleep"
        );
        assert_eq!(SleptBy::Futex(Slept::TimedOut).reason(), WakeReason::Timeout);
        assert_eq!(SleptBy::Futex(Slept::Woken).reason(), WakeReason::Spurious);
    }
}
