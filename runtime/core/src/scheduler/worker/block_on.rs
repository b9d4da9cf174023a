//! How a thread in `block_on` is the worker of a current-thread runtime; see
//! `scheduler::shared_core`.
//!
//! The thread polls the *main future*, which it was given, and the tasks of the runtime in turn:
//! the main future if it was woken, then one tick of tasks, and so on. If the main future has woken
//! itself, as `yield_now` does, and no task is ready, the thread polls the driver in between: a
//! program that yields expects that events which have arrived take effect. It parks as any worker
//! does. The check before the sleep, Park (2) of `parking`, includes whether the main future was
//! woken. The waker of the main future is a submit: it sets the flag, and wakes the worker if it is
//! parked.

use std::sync::Arc;
use std::time::{Duration, Instant};

use volt_telemetry::Phase;

use super::Worker;
use super::main_future::Main;
use crate::clock;
use crate::coop;
use crate::scheduler::idle::parking::Parks;
use crate::stats::blame::LONG_NS;

/// The shortest time-out of a park during a shutdown.
const PARK_MIN: Duration = Duration::from_millis(1);

impl Worker {
    /// Makes this thread the worker until `poll_main` returns `true`. `poll_main` polls the main
    /// future, and does not panic. In a runtime with a seed it also returns if the runtime cannot
    /// continue; see `run_seeded`.
    pub(crate) fn run_in_block_on(&mut self, main: &Arc<Main>, poll_main: &mut dyn FnMut() -> bool) {
        self.main = Some(main.clone());
        self.enter();
        self.run_as_current(|| {
            if let Some(seeded) = &self.shared.seeded {
                return self.run_seeded(seeded, main, poll_main);
            }
            loop {
                if main.take_woken() && self.poll_main(main, poll_main, self.shared.config.coop_budget) {
                    break;
                }
                if main.is_woken() && self.remote.queued() == 0 && !self.shared.workers.has_work_for(self.index) {
                    self.poll_driver_if_free();
                }
                self.turn();
            }
        });
        self.leave();
        self.main = None;
    }

    /// Runs all tasks of a runtime that is shut down to their end, on this thread. Tasks with a
    /// shield may continue until `deadline`; after that they are cancelled, too.
    pub(crate) fn run_to_end(self, deadline: Option<Instant>) {
        self.retract_idle();
        self.run_with(|worker| {
            let shared = &worker.shared;
            while !shared.is_done() {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    shared.end_shields();
                }
                // The next park ends in time for the next check.
                worker.core.borrow_mut().park_timeout = left.map(|left| left.max(PARK_MIN));
                if !worker.run_one_seeded() {
                    worker.turn();
                }
            }
        });
    }

    /// Returns whether this is the worker of a current-thread runtime.
    pub(crate) fn is_current_thread(&self) -> bool {
        self.shared.workers.shared_core.is_some()
    }

    /// Returns whether the main future of this thread was woken.
    pub(super) fn is_main_woken(&self) -> bool {
        self.main.as_ref().is_some_and(|main| main.is_woken())
    }

    fn enter(&self) {
        self.retract_idle();
        self.start_cells();
    }

    /// The worker was parked while the core was free: Park (6) and (7) of `parking`.
    fn retract_idle(&self) {
        let is_claimed = self.retract();
        self.settle_after_sleep(is_claimed);
        // The sentinel's checks may be suspended.
        self.core.borrow_mut().has_slept = true;
    }

    /// Park (1) of `parking`. The core keeps what is queued for the next thread that takes the
    /// core.
    fn leave(&self) {
        self.begin_park();
        self.cells().stop(clock::now_ns());
    }

    /// Polls the main future, with this cooperative budget. Returns whether it is ready.
    pub(super) fn poll_main(&self, main: &Main, poll_main: &mut dyn FnMut() -> bool, budget: u32) -> bool {
        let (cells, began_at_ns) = (self.cells(), clock::now_ns());
        self.now_ns.set(began_at_ns);
        self.begin_work_if_needed(&mut self.core.borrow_mut());
        cells.ensure_phase(Phase::Busy, began_at_ns);
        cells.begin_poll_of_main(main.id.as_u64(), main.location, began_at_ns);
        coop::begin_poll(budget);
        let is_ready = poll_main();
        if coop::end_poll() {
            cells.coop_yields.add(1);
        }
        cells.end_poll();
        let now_ns = clock::now_ns();
        let took_ns = now_ns.saturating_sub(began_at_ns);
        self.now_ns.set(now_ns);
        if took_ns >= LONG_NS {
            cells.note_long(main.location, took_ns);
            self.ensure_present();
        }
        is_ready
    }
}
