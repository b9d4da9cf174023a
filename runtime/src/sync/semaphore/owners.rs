//! The records of the tasks that acquired the permits of a semaphore.
//!
//! A semaphore of a single permit is used as a lock, so its holder is recorded like a mutex's. In
//! any other semaphore, each acquisition has a record, which its permit owns. Once permits were
//! added or forgotten, a semaphore of a single permit is no longer a lock. Its permits then have
//! records of the second kind, and operations that began to wait before learn that it has no holder
//! (step 5 of `task::waits` in the engine).
//!
//! An acquisition costs a few stores to memory of the thread, or of the semaphore.

use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering};

use volt_core::task::waits::{Acquired, Guard, Holder, SemaphoreId, Wait};

/// See the header of this file.
pub(super) struct Owners {
    holder: Holder,
    id: SemaphoreId,
    /// The number of permits with which the semaphore was created.
    total: usize,
    /// Whether no permit was added or forgotten.
    has_all: AtomicBool,
}

impl Owners {
    pub(super) const fn new(permits: usize) -> Self {
        let has_all = AtomicBool::new(true);
        Self { holder: Holder::new(), id: SemaphoreId::new(), total: permits, has_all }
    }

    /// Returns a wait for this number of permits that has not begun yet.
    pub(super) fn wait(&self, permits: u32) -> Wait<'_> {
        match self.holder() {
            Some(holder) if permits <= 1 => Wait::new(holder),
            // The release of the only permit does not end a wait for several.
            _ => Wait::for_permits(&self.holder, self.id.get()),
        }
    }

    /// Records that the calling task has acquired this number of permits.
    #[inline]
    pub(super) fn acquired(&self, permits: usize, at: &'static Location<'static>, guard: Guard) -> Acquired {
        match self.holder() {
            // A caller may acquire no permit while another one has the only one.
            _ if permits == 0 => {}
            Some(holder) => holder.acquired(at, guard),
            None => return Acquired::new(self.id.get(), permits, at),
        }
        Acquired::default()
    }

    /// Records that permits are about to be released.
    #[inline]
    pub(super) fn release(&self, acquired: &mut Acquired) {
        acquired.release();
        if self.total == 1 {
            self.holder.released();
        }
    }

    /// Corrects what operations that wait know of the holder, if there can be only one: they began
    /// to wait before the calling task, which has the permit, has recorded that.
    #[cold]
    pub(super) fn copy_again(&self) {
        if let Some(holder) = self.holder() {
            holder.copy_again();
        }
    }

    /// Returns the record of the holder, if there can be only one.
    #[inline]
    pub(super) fn holder(&self) -> Option<&Holder> {
        // A thread that does not see that permits were added records itself as the holder, and
        // removes that when it releases its permit.
        (self.total == 1 && self.total().is_some()).then_some(&self.holder)
    }

    /// Returns the number of the semaphore.
    pub(super) fn id(&self) -> u64 {
        self.id.get()
    }

    /// Returns the number of permits, if none was added or forgotten.
    #[inline]
    pub(super) fn total(&self) -> Option<usize> {
        // ORDERING: Relaxed: a hint for reports.
        self.has_all.load(Ordering::Relaxed).then_some(self.total)
    }

    /// Records that permits are about to be added or forgotten.
    pub(super) fn lose_total(&self) {
        // ORDERING: Relaxed: as in `total`.
        self.has_all.store(false, Ordering::Relaxed);
        if self.holder.is_recorded() {
            self.holder.released();
            // No operation that waits is handed the permit, as it would be by a release.
            self.holder.copy_again();
        }
    }
}
