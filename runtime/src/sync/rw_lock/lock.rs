//! The lock inside [`RwLock`](super::RwLock): a fair semaphore, and a record of its holder.
//!
//! A reader has one permit, a writer all of them. The record names a writer, or a reader that was
//! alone when it acquired the lock. As soon as a second reader comes, no holder is recorded, since
//! the record has room for one. Each reader that releases the lock also clears the record, so it
//! never names a task that has released the lock: it names one that holds it, or none.

use std::future::poll_fn;
use std::mem;
use std::panic::Location;

use tokio::sync::{SemaphorePermit, TryLockError};
use volt_core::coop::{self, Unit};
use volt_core::task::details::awaits::Awaits;
use volt_core::task::resources::{Awaited, Key};
use volt_core::task::waits::{Guard, Holder, Wait};
use volt_telemetry::dump::Resource;

use crate::sync::lock::{NEVER_CLOSED, locked};
use crate::sync::spend::spend_queued_at;

/// The number of readers that can hold a lock, unless its creator sets a lower limit.
pub(super) const READERS_MAX: u32 = u32::MAX >> 3;

/// The access that a guard permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A reader-writer lock without a value. The caller that acquires it must release it.
#[derive(Debug)]
pub(super) struct SharedLock {
    permits: tokio::sync::Semaphore,
    readers_max: u32,
    holder: Holder,
}

impl SharedLock {
    /// # Panics
    /// Panics if `readers_max` is 0 or exceeds [`READERS_MAX`].
    #[track_caller]
    pub(super) const fn new(readers_max: u32) -> Self {
        assert!(readers_max > 0, "a RwLock may not be created with 0 readers");
        assert!(readers_max <= READERS_MAX, "a RwLock has at most u32::MAX >> 3 readers");
        Self { permits: tokio::sync::Semaphore::const_new(readers_max as usize), readers_max, holder: Holder::new() }
    }

    fn permits_of(&self, access: Access) -> u32 {
        match access {
            Access::Read => 1,
            Access::Write => self.readers_max,
        }
    }

    /// Acquires the lock for a call at `at`, which returns a guard of this kind. Cancel safe.
    pub(super) async fn acquire(&self, access: Access, at: &'static Location<'static>, guard: Guard) {
        // First without the queue, as in `sync::lock`: permits are available only if no operation
        // waits for them.
        if let Ok(permit) = self.permits.try_acquire_many(self.permits_of(access)) {
            if coop::try_proceed() {
                return self.own(permit, access, at, guard);
            }
            poll_fn(|cx| coop::poll_proceed(cx).map(Unit::made_progress)).await;
            self.own(permit, access, at, guard);
            // Others may have begun to wait meanwhile, and know no holder, or another reader.
            return self.holder.copy_again();
        }
        let own = |permit: Result<_, _>, _| self.own(permit.expect(NEVER_CLOSED), access, at, guard);
        let acquire = self.permits.acquire_many(self.permits_of(access));
        let resource = || {
            let kind = match access {
                Access::Read => "rwlock_read",
                Access::Write => "rwlock_write",
            };
            // A holder that is recorded is shown instead.
            (!self.holder.is_recorded()).then(|| Awaited::new(Key::of(self), kind, Resource::default()))
        };
        spend_queued_at(at, Awaits::Lock, Wait::new(&self.holder), resource, acquire, own).await;
    }

    /// Acquires the lock like [`acquire`](Self::acquire) if it is available.
    #[inline]
    pub(super) fn try_acquire(
        &self,
        access: Access,
        at: &'static Location<'static>,
        guard: Guard,
    ) -> Result<(), TryLockError> {
        match self.permits.try_acquire_many(self.permits_of(access)) {
            Ok(permit) => {
                self.own(permit, access, at, guard);
                Ok(())
            }
            Err(_) => Err(locked()),
        }
    }

    /// Acquires the lock like [`acquire`](Self::acquire), and blocks the thread meanwhile.
    pub(super) fn acquire_blocking(&self, access: Access, at: &'static Location<'static>, guard: Guard) {
        if self.try_acquire(access, at, guard).is_ok() {
            return;
        }
        let mut wait = Wait::new(&self.holder);
        wait.blocking(Awaits::Lock, at);
        let permit = self.permits.blocking_acquire_many(self.permits_of(access)).expect(NEVER_CLOSED);
        self.own(permit, access, at, guard);
    }

    #[inline]
    fn own(&self, permit: SemaphorePermit<'_>, access: Access, at: &'static Location<'static>, guard: Guard) {
        mem::forget(permit);
        match access {
            Access::Write => self.holder.acquired(at, guard),
            Access::Read if self.permits.available_permits() + 1 == self.readers_max as usize => {
                self.holder.acquired(at, Guard::Shared);
            }
            Access::Read => self.holder.forget(),
        }
    }

    /// Releases the lock, which the caller owns.
    #[inline]
    pub(super) fn release(&self, access: Access) {
        match access {
            Access::Read => self.holder.forget(),
            Access::Write => self.holder.released(),
        }
        self.permits.add_permits(self.permits_of(access) as usize);
    }

    /// Turns the caller's write access into read access. No writer can lock in between.
    pub(super) fn downgrade(&self) {
        self.holder.share();
        self.permits.add_permits(self.readers_max as usize - 1);
    }
}
