//! How a thread in `block_on` is the worker of a current-thread runtime; see `scheduler::seat`.
//!
//! The thread polls the *main future*, which it was given, and the tasks of the runtime in turn:
//! the main future if it was woken, then one tick of tasks, and so on. It parks as any worker does.
//! The check before the sleep, Park (2) of `parking`, includes whether the main future was woken.
//! The waker of the main future is a submit: it sets the flag, and wakes the worker if it is
//! parked.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;
use std::time::{Duration, Instant};

use volt_telemetry::Phase;

use super::Worker;
use crate::clock;
use crate::coop;
use crate::driver::parker::{Parker, Unparked};
use crate::scheduler::parking::Parks;
use crate::scheduler::shared::Shared;
use crate::stats::blame::LONG_NS;
use crate::task::id::Id;

/// The worker of a current-thread runtime; it has only this one.
const WORKER: usize = 0;
/// The shortest time-out of a park during a shutdown.
const PARK_MIN: Duration = Duration::from_millis(1);

/// The main future of a `block_on`, as its waker and the worker see it.
pub(crate) struct Main {
    id: Id,
    location: &'static Location<'static>,
    is_woken: AtomicBool,
    /// For a thread that waits for the seat.
    pub(crate) parker: Arc<Parker>,
    /// Weak: a waker may outlive the runtime, and must not keep it.
    shared: Weak<Shared>,
}

impl Main {
    /// A main future that has not been polled, and so is to be polled. `location` is the line that
    /// called `block_on`.
    pub(crate) fn new(shared: &Arc<Shared>, location: &'static Location<'static>) -> Arc<Self> {
        let parker = Arc::new(Parker::new());
        Arc::new(Self {
            id: Id::next(),
            location,
            is_woken: AtomicBool::new(true),
            parker,
            shared: Arc::downgrade(shared),
        })
    }

    fn is_woken(&self) -> bool {
        // ORDERING: Relaxed; Park (2) of `parking` calls it after the fence of its Park (1), and
        // the waker executes a fence in Submit (2) of `idle` after it has set the flag.
        self.is_woken.load(Ordering::Relaxed)
    }

    /// Returns whether it was woken since the last call.
    pub(crate) fn take_woken(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `wake_by_ref`: the poll that follows sees
        // what the waking thread did before.
        self.is_woken() && self.is_woken.swap(false, Ordering::Acquire)
    }
}

impl Wake for Main {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Submit (1)
        // ORDERING: Release; pairs with the Acquire in `take_woken`. Each swap of the flag reads
        // the last one, so a wake-up that finds the flag set is covered by the wake-up that set it.
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        // The thread waits for the seat, or has it: it sleeps here or as the worker.
        let unparked = self.parker.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "a thread that waits for the seat sleeps in no driver");
        // In a forked child, the worker and the driver's waker are those of the parent.
        if let Some(shared) = self.shared.upgrade().filter(|shared| shared.home.is_here()) {
            // Submit (2) and (3)
            shared.wake_worker(WORKER);
        }
    }
}

impl Worker {
    /// Makes this thread the worker until `poll_main` returns `true`. `poll_main` polls the main
    /// future, and does not panic.
    pub(crate) fn run_seated(&mut self, main: &Arc<Main>, poll_main: &mut dyn FnMut() -> bool) {
        self.main = Some(main.clone());
        self.take_seat();
        self.on_duty(|| {
            loop {
                if main.take_woken() && self.poll_main(main, poll_main) {
                    break;
                }
                self.turn();
            }
        });
        self.leave_seat();
        self.main = None;
    }

    /// Runs all tasks of a runtime that is shut down to their end, on this thread. Tasks with a
    /// shield may continue until `deadline`; after that they are cancelled, too.
    pub(crate) fn run_to_end(self, deadline: Option<Instant>) {
        self.retract_seat();
        self.run_with(|worker| {
            let shared = &worker.shared;
            while !shared.is_done() {
                let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
                if left == Some(Duration::ZERO) {
                    shared.registry.cancel_unshielded();
                }
                // The next park ends in time for the next check.
                worker.core.borrow_mut().park_timeout = left.map(|left| left.max(PARK_MIN));
                worker.turn();
            }
        });
    }

    /// Returns whether this is the worker of a current-thread runtime.
    pub(crate) fn is_seated(&self) -> bool {
        self.shared.seat.is_some()
    }

    /// Returns whether the main future of this thread was woken.
    pub(super) fn is_main_woken(&self) -> bool {
        self.main.as_ref().is_some_and(|main| main.is_woken())
    }

    fn take_seat(&self) {
        self.retract_seat();
        self.start_cells();
    }

    /// The worker was parked while the seat was free: Park (6) and (7) of `parking`.
    fn retract_seat(&self) {
        let is_claimed = self.retract();
        self.settle_after_sleep(is_claimed);
        // The sentinel may doze.
        self.core.borrow_mut().has_slept = true;
    }

    /// Park (1) of `parking`. The core keeps what is queued for the next thread that takes the
    /// seat.
    fn leave_seat(&self) {
        self.begin_park();
        self.cells().stop(clock::now_ns());
    }

    /// Polls the main future. Returns whether it is ready.
    fn poll_main(&self, main: &Main, poll_main: &mut dyn FnMut() -> bool) -> bool {
        let (cells, began_at_ns) = (self.cells(), clock::now_ns());
        self.now_ns.set(began_at_ns);
        self.begin_work_if_needed(&mut self.core.borrow_mut());
        cells.ensure_phase(Phase::Busy, began_at_ns);
        cells.begin_poll_of_main(main.id, main.location, began_at_ns);
        coop::begin_poll(self.shared.config.coop_budget);
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
