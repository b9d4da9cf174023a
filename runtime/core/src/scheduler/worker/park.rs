//! How a worker sleeps and wakes up.
//!
//! `idle` describes the protocol that loses no wake-up, and `parking` has its steps in their order.
//! The simulation calls the same steps one by one. This module implements the trait [`Parks`] for a
//! worker: which clock is read, how long the sleep lasts, and what is counted and recorded.
//!
//! Only the worker's own thread writes the state here.

use std::io;
use std::time::Duration;

use volt_telemetry::Phase;
use volt_telemetry::recording::event;

use super::{Worker, events};
use crate::clock;
use crate::config::hooks;
use crate::driver::parker::{Parker, Slept};
use crate::driver::spin::spin_until;
use crate::driver::turn::{Polled, Turn, Wait};
use crate::queue::injector::Injector;
use crate::scheduler::core::Core;
use crate::scheduler::idle::Idle;
use crate::scheduler::idle::parking::{self, Parks};
use crate::stats::counting;
use crate::stats::reasons::WakeReason;

/// How long a worker that was claimed during its spin waits for more tasks. In this time a worker
/// runs about ten tasks; to wake a sleeping worker takes ten times as long.
const LINGER_NS: u64 = 1_000;

impl Worker {
    /// Step 7 of `search`. Sleeps until woken, unless work comes before the sleep.
    pub(super) fn park(&self) {
        self.ensure_present();
        if self.shared.config.hooks.are_for_parks() {
            self.park_between_hooks();
        } else {
            parking::park(self);
        }
    }

    /// Parks between the program's callbacks. If the first one gives this worker a task, it does
    /// not sleep: with stealing off, the last check of a park leaves out the worker's own queues.
    #[cold]
    fn park_between_hooks(&self) {
        let hooks = &self.shared.config.hooks;
        hooks::call(hooks.park.as_ref());
        if self.remote.queued() == 0 {
            parking::park(self);
        }
        hooks::call(hooks.unpark.as_ref());
    }

    pub(super) fn turn_driver(&self, mut turn: Turn<'_>, wait: Wait) -> SleptBy {
        let mut core = self.core.borrow_mut();
        let polled = turn.poll(wait, &mut core.wakers);
        core.io_wakers = polled.as_ref().map_or(0, |polled| polled.io_wakers);
        drop(core);
        drop(turn);
        SleptBy::Driver(polled)
    }

    /// Doubles the next time-out if this sleep timed out and there was no work. If there was work,
    /// the time-out has caught a fault of the protocol, which is counted.
    fn back_off(&self, core: &mut Core, reason: WakeReason) {
        let config = &self.shared.config;
        if reason != WakeReason::Timeout {
            core.park_timeout = config.park_timeout;
            return;
        }
        let slept = core.park_timeout.unwrap_or_default();
        core.park_timeout = core.park_timeout.map(|timeout| (timeout * 2).min(config.max_park_timeout));
        // A task has waited for as long as this worker slept, no searcher was on the way to it, and
        // no thread is between its push and its wake-up: a wake-up was lost.
        let queues = [&self.shared.workers.injector, &self.remote.inbox];
        let oldest_at_ns = queues.into_iter().filter_map(Injector::oldest_at_ns).min();
        let waited_ns = oldest_at_ns.map_or(0, |at_ns| self.now_ns.get().saturating_sub(at_ns));
        if waited_ns >= clock::saturating_ns(slept)
            && self.shared.workers.idle.searching() == 0
            && !self.shared.workers.intake.submits.is_any_under_way()
        {
            self.cells().lost_wakeup_rescues.add(1);
        }
    }
}

impl Parks for Worker {
    type Turn<'a> = Turn<'a>;
    type Slept = SleptBy;

    fn idle(&self) -> &Idle {
        &self.shared.workers.idle
    }

    fn index(&self) -> usize {
        self.index
    }

    fn parker(&self) -> &Parker {
        &self.remote.parker
    }

    fn set_searching(&self, is_searching: bool) -> bool {
        std::mem::replace(&mut self.core.borrow_mut().is_searching, is_searching)
    }

    /// Timers are not checked: the worker that gets the driver turn sleeps at most until the next
    /// timer, and while another worker has the turn, that worker handles the timers. If the clock
    /// were read here, every worker that is about to park would spin from the moment a timer is due
    /// until the kernel has woken the worker that sleeps for it.
    fn is_needed(&self) -> bool {
        let shared = &self.shared;
        shared.workers.has_work_for(self.index)
            || !shared.workers.injector.is_empty_locked()
            || shared.is_done()
            || self.is_main_woken()
    }

    fn count_park(&self) {
        self.cells().count_park();
    }

    fn is_spin_worth(&self) -> bool {
        let (shared, core) = (&self.shared, self.core.borrow());
        let spin = shared.config.park_spin;
        let until_ns = self.now_ns.get().saturating_add(spin.lasts_ns());
        core.spin.is_worth(spin) && shared.workers.driver.can_wait_until(until_ns)
    }

    fn watch(&self) -> bool {
        let spun = self.core.borrow_mut().spin.spin(self.shared.config.park_spin, || self.remote.parker.has_token());
        if let Some(has_helped) = spun {
            let cells = self.cells();
            if has_helped { &cells.spins_helped } else { &cells.spins_in_vain }.add(1);
        }
        spun == Some(true)
    }

    fn linger(&self) {
        linger();
    }

    fn try_turn(&self) -> Option<Turn<'_>> {
        self.shared.workers.driver.try_turn(self.index)
    }

    fn begin_sleep(&self, is_in_driver: bool) -> Option<Duration> {
        let (shared, cells) = (&self.shared, self.cells());
        let now_ns = counting::now_ns();
        let (phase, target) = if is_in_driver {
            (Phase::Driver, event::ParkTarget::Driver)
        } else {
            (Phase::Parked, event::ParkTarget::Futex)
        };
        cells.enter_phase(phase, now_ns);
        self.recorder.park(|| now_ns, target);
        let timeout = self.core.borrow().park_timeout;
        // Only the worker in the driver keeps a time-out for good. One safety net is enough, and
        // the other workers sleep undisturbed.
        let timeout = timeout.filter(|timeout| is_in_driver || *timeout < shared.config.max_park_timeout);
        cells.park_timeout_ns.set(timeout.map_or(0, clock::saturating_ns));
        timeout
    }

    /// Sockets' and timers' wakers are collected here, and woken later.
    fn sleep(&self, target: ParkTarget<'_>) -> SleptBy {
        match target {
            ParkTarget::Driver { turn, timeout } => {
                let wait = if self.shared.workers.driver.is_paused() {
                    Wait::Paused { next_ns: self.shared.next_at_rest(self.index) }
                } else {
                    Wait::UntilTimer { at_most: timeout }
                };
                self.turn_driver(turn, wait)
            }
            ParkTarget::Futex { timeout } => SleptBy::Futex(self.remote.parker.sleep(timeout)),
            ParkTarget::Token => SleptBy::Token,
        }
    }

    /// After a sleep: counts it, and wakes what the driver has collected.
    fn begin_search(&self, slept: Option<&SleptBy>, is_claimed: bool) {
        let cells = self.cells();
        let mut core = self.core.borrow_mut();
        core.has_slept = true;
        let Some(slept) = slept else { return };
        // The driver has already checked the clock.
        let now_ns = if matches!(slept, SleptBy::Futex(_)) { clock::check() } else { clock::now_ns() };
        let began_ns = self.now_ns.replace(now_ns);
        let reason = if is_claimed { WakeReason::Notified } else { slept.reason() };
        if !matches!(slept, SleptBy::Token) {
            let slept_ns = self.now_ns.get().saturating_sub(began_ns);
            core.spin.note_sleep(slept_ns, reason == WakeReason::Notified);
        }
        cells.count_unpark(reason);
        if let Some(writer) = self.recorder.get() {
            writer.unpark(self.now_ns.get(), events::reason(reason));
        }
        cells.enter_phase(Phase::Searching, self.now_ns.get());
        self.back_off(&mut core, reason);
        drop(core);
        self.wake_collected();
        if let SleptBy::Driver(polled) = slept {
            // After the wake-ups: writing the log may block, and there is a pause after a failure.
            self.report(polled);
        }
    }
}

/// Waits a short time for further tasks after a token that came during the spin. Such a task is
/// often the first of many, from a thread that takes longer to submit each one than a worker takes
/// to run it. Threads that submit more meanwhile see that there is a searcher, and wake no worker.
/// Without this wait, each of them would find the worker about to sleep again.
fn linger() {
    spin_until(LINGER_NS, 1, || false);
}

/// The object that a worker is about to park on.
pub(super) type ParkTarget<'a> = parking::ParkTarget<Turn<'a>>;

/// How a sleep in the driver or on the futex ended. Whether the worker was claimed is separate: see
/// `retract`.
pub(crate) enum SleptBy {
    Driver(io::Result<Polled>),
    Futex(Slept),
    /// It did not sleep: a token was already there.
    Token,
}

impl SleptBy {
    /// Returns why a worker that was not claimed woke up.
    fn reason(&self) -> WakeReason {
        match self {
            SleptBy::Driver(Ok(polled)) if polled.events > 0 => WakeReason::Io,
            SleptBy::Driver(Ok(polled)) if polled.timers_fired > 0 || polled.was_rearmed => WakeReason::Timer,
            SleptBy::Driver(Ok(polled)) if polled.timed_out => WakeReason::Timeout,
            SleptBy::Futex(Slept::TimedOut) => WakeReason::Timeout,
            _ => WakeReason::Spurious,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::shared::without_threads;
    #[cfg(target_os = "linux")]
    use crate::scheduler::worker::current;
    use std::sync::Arc;

    /// Writing the log may block; it must not delay the tasks that the driver has collected.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_driver_that_fails_is_reported_after_its_wake_ups() {
        use std::sync::Mutex;
        use std::sync::atomic::{AtomicBool, Ordering};
        use std::task::{Wake, Waker};

        struct Woken(AtomicBool);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                // ORDERING: Relaxed, here and below; the test has one thread.
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let (shared, mut cores) = without_threads(2);
        let shared = Arc::new(shared);
        shared.workers.idle.begin_park(1, false);
        let worker = Worker::new(shared.clone(), 0, cores.remove(0));
        let woken = Arc::new(Woken(AtomicBool::new(false)));
        let _due = shared.workers.driver.arm_timer(0, Waker::from(woken.clone())).unwrap();
        let reports = Arc::new(Mutex::new(Vec::new()));
        let log = crate::failures::log::Log::new({
            let (reports, shared, woken) = (reports.clone(), shared.clone(), woken.clone());
            move |text| {
                let is_other_parked = shared.workers.idle.is_parked(1);
                reports.lock().unwrap().push((text, woken.0.load(Ordering::Relaxed), is_other_parked));
            }
        });
        tracing::subscriber::with_default(log, || {
            current::run_as(&worker, || {
                let turn = shared.workers.driver.try_turn(0).unwrap();
                turn.break_poller();
                worker.begin_park();
                let slept = worker.turn_driver(turn, Wait::No);
                let is_claimed = worker.retract();
                parking::finish_sleep(&worker, &slept, is_claimed);
            });
        });
        let reports = reports.lock().unwrap();
        let [(text, is_woken, is_other_parked)] = &reports[..] else { panic!("one report: {reports:?}") };
        assert!(text.contains("the I/O driver failed"), "{text}");
        assert!(*is_woken, "the log came before the wake-ups");
        assert!(!is_other_parked, "nobody was woken to take what this worker may not come to");
    }

    #[test]
    fn reasons_are_distinguished() {
        let polled = |polled| SleptBy::Driver(Ok(polled)).reason();
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

    /// The kernel may stop a thread between the push of a task and the wake-up for it.
    #[test]
    fn a_submit_under_way_is_no_lost_wake_up() {
        use crate::task::cell::{Nowhere, new_task};
        use crate::task::id::Id;

        let (shared, mut cores) = without_threads(1);
        let shared = Arc::new(shared);
        let worker = Worker::new(shared.clone(), 0, cores.remove(0));
        let (task, _join) = new_task(async {}, Nowhere, Id::next(), std::panic::Location::caller(), None);
        let submit = shared.workers.intake.submits.begin();
        assert!(shared.workers.injector.push(task, 1).is_ok(), "the queue is open");
        let rescues_after_a_time_out = || {
            let mut core = worker.core.borrow_mut();
            worker.now_ns.set(clock::now_ns());
            core.park_timeout = Some(Duration::from_nanos(1));
            worker.back_off(&mut core, WakeReason::Timeout);
            worker.cells().lost_wakeup_rescues.get()
        };
        assert_eq!(rescues_after_a_time_out(), 0);
        drop(submit);
        assert_eq!(rescues_after_a_time_out(), 1, "the thread has gone without a wake-up");
    }
}
