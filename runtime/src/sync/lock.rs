//! The lock inside [`Mutex`](super::Mutex): a fair semaphore of one permit, and a record of its
//! holder.

use std::future::poll_fn;
use std::mem;
use std::panic::Location;

use tokio::sync::{SemaphorePermit, TryLockError};
use volt_core::coop::{self, Unit};
use volt_core::task::details::awaits::Awaits;
use volt_core::task::waits::{Guard, Holder, Wait};

use super::spend::spend_queued_at;

/// A lock without a value. The caller that acquires it must release it.
#[derive(Debug)]
pub(super) struct Lock {
    permit: tokio::sync::Semaphore,
    holder: Holder,
}

impl Lock {
    pub(super) const fn new() -> Self {
        Self { permit: tokio::sync::Semaphore::const_new(1), holder: Holder::new() }
    }

    /// Acquires the lock for a call at `at`, which returns a guard of this kind. Cancel safe.
    pub(super) async fn acquire(&self, at: &'static Location<'static>, guard: Guard) {
        // First without the queue of the semaphore, which takes three times as many instructions.
        // This is fair: a permit is available only if no operation waits for it.
        if let Ok(permit) = self.permit.try_acquire() {
            if coop::try_proceed() {
                return self.own(permit, at, guard);
            }
            poll_fn(|cx| coop::poll_proceed(cx).map(Unit::made_progress)).await;
            self.own(permit, at, guard);
            // Others may have begun to wait meanwhile, and know no holder.
            return self.holder.copy_again();
        }
        let own = |permit: Result<SemaphorePermit<'_>, _>, _| self.own(permit.expect(NEVER_CLOSED), at, guard);
        spend_queued_at(at, Awaits::Lock, Wait::new(&self.holder), || None, self.permit.acquire(), own).await;
    }

    /// Acquires the lock like [`acquire`](Self::acquire) if it is free.
    #[inline]
    pub(super) fn try_acquire(&self, at: &'static Location<'static>, guard: Guard) -> Result<(), TryLockError> {
        match self.permit.try_acquire() {
            Ok(permit) => {
                self.own(permit, at, guard);
                Ok(())
            }
            Err(_) => Err(locked()),
        }
    }

    /// Acquires the lock like [`acquire`](Self::acquire), and blocks the thread meanwhile.
    pub(super) fn acquire_blocking(&self, at: &'static Location<'static>, guard: Guard) {
        if self.try_acquire(at, guard).is_ok() {
            return;
        }
        let mut wait = Wait::new(&self.holder);
        wait.blocking(Awaits::Lock, at);
        self.own(self.permit.blocking_acquire().expect(NEVER_CLOSED), at, guard);
    }

    #[inline]
    fn own(&self, permit: SemaphorePermit<'_>, at: &'static Location<'static>, guard: Guard) {
        // Not the permit's own `forget`, which also drops the permit, by a function call.
        mem::forget(permit);
        self.holder.acquired(at, guard);
    }

    /// Releases the lock, which the caller owns.
    #[inline]
    pub(super) fn release(&self) {
        self.holder.released();
        self.permit.add_permits(1);
    }
}

pub(super) const NEVER_CLOSED: &str = "no method closes the semaphore of a lock";

/// Returns Tokio's error, which only a lock of Tokio's can create.
pub(super) fn locked() -> TryLockError {
    static LOCKED: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    loop {
        match LOCKED.try_lock() {
            // The first call locks it for good.
            Ok(guard) => mem::forget(guard),
            Err(error) => return error,
        }
    }
}
