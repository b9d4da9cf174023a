//! The main future of a `block_on` that is the worker of a current-thread runtime.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::Wake;

use crate::driver::parker::{Parker, Unparked};
use crate::scheduler::shared::Shared;
use crate::task::id::Id;

/// The worker of a current-thread runtime; it has only this one.
pub(super) const WORKER: usize = 0;

/// The main future of a `block_on`, as its waker and the worker see it.
pub(crate) struct Main {
    pub(super) id: Id,
    pub(super) location: &'static Location<'static>,
    is_woken: AtomicBool,
    /// For a thread that waits for the core.
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

    pub(super) fn is_woken(&self) -> bool {
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
        // ORDERING: AcqRel; the Release pairs with the Acquire in `take_woken`, and no code relies
        // on the Acquire. Each swap of the flag reads the last one, so a wake-up that finds the
        // flag set is covered by the wake-up that set it.
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        // The thread waits for the core, or has it: it sleeps here or as the worker.
        let unparked = self.parker.unpark();
        debug_assert_eq!(unparked, Unparked::Done, "a thread that waits for the core sleeps in no driver");
        // In a forked child, the worker and the driver's waker are those of the parent.
        if let Some(shared) = self.shared.upgrade().filter(|shared| shared.identity.home.is_here()) {
            // Submit (2) and (3)
            shared.workers.wake_worker(WORKER);
        }
    }
}
