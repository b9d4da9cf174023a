//! A counting semaphore.
//!
//! A semaphore of a single permit is used as a lock, so its holder is recorded like a mutex's. In
//! any other, each acquisition has a record, which its permit owns (`owners`).

use std::fmt::{self, Debug};
use std::future::poll_fn;
use std::mem;
use std::panic::Location;
use std::sync::Arc;

use tokio::sync::{AcquireError, TryAcquireError};
use volt_core::context::expect_may_block;
use volt_core::coop::{self, Unit};
use volt_core::task::details::awaits::Awaits;
use volt_core::task::resources::{Awaited, Key};
use volt_core::task::waits::{Acquired, Guard};
use volt_telemetry::dump::Resource;

use self::owners::Owners;
use super::spend::spend_queued_at;

mod owners;

/// A counting semaphore: limits concurrent access to N holders.
///
/// A permit returns to the semaphore when it is dropped. The semaphore is fair: permits go to tasks
/// in the order of their calls. So a task that waits for many permits also delays later calls that
/// need fewer.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let connections = volt::sync::Semaphore::new(2);
/// let _first = connections.acquire().await.unwrap();
/// let _second = connections.acquire().await.unwrap();
/// assert!(connections.try_acquire().is_err());
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
pub struct Semaphore {
    permits: tokio::sync::Semaphore,
    owners: Owners,
}

impl Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.permits.fmt(f)
    }
}

impl Semaphore {
    /// The maximum number of permits that a semaphore can have.
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// Creates a semaphore with `permits` permits.
    ///
    /// # Panics
    /// Panics if `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[track_caller]
    pub fn new(permits: usize) -> Self {
        Self { permits: tokio::sync::Semaphore::new(permits), owners: Owners::new(permits) }
    }

    /// Creates a semaphore with `permits` permits in a constant context.
    ///
    /// # Panics
    /// Same as [`new`](Self::new); in a constant, compilation fails instead.
    pub const fn const_new(permits: usize) -> Self {
        Self { permits: tokio::sync::Semaphore::const_new(permits), owners: Owners::new(permits) }
    }

    /// Returns the number of permits that are currently available.
    pub fn available_permits(&self) -> usize {
        self.permits.available_permits()
    }

    /// Adds `permits` new permits.
    ///
    /// # Panics
    /// Panics if the total would exceed [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn add_permits(&self, permits: usize) {
        if permits > 0 {
            self.owners.lose_total();
        }
        self.permits.add_permits(permits);
    }

    /// Removes up to `permits` available permits for good, and returns how many were removed.
    pub fn forget_permits(&self, permits: usize) -> usize {
        if permits > 0 {
            self.owners.lose_total();
        }
        self.permits.forget_permits(permits)
    }

    /// Acquires a permit, waiting until one is available.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before it completes, no permit is taken and the task
    /// loses its place in the queue.
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<SemaphorePermit<'_>, AcquireError>> {
        self.acquire_at(Location::caller(), 1)
    }

    /// Acquires `permits` permits together, waiting until all are available.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many(&self, permits: u32) -> impl Future<Output = Result<SemaphorePermit<'_>, AcquireError>> {
        self.acquire_at(Location::caller(), permits)
    }

    /// Acquires a permit like [`acquire`](Self::acquire), and returns an owned permit that can be
    /// moved into a task.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_owned(self: Arc<Self>) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> {
        self.acquire_owned_at(Location::caller(), 1)
    }

    /// Acquires permits like [`acquire_many`](Self::acquire_many), and returns an owned permit that
    /// can be moved into a task.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Cancel safety
    /// Same as [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many_owned(
        self: Arc<Self>,
        permits: u32,
    ) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> {
        self.acquire_owned_at(Location::caller(), permits)
    }

    /// Acquires a permit if one is available, without waiting.
    ///
    /// # Errors
    /// Returns an error if no permit is available or the semaphore is closed.
    #[track_caller]
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Acquires `permits` permits together if all are available, without waiting.
    ///
    /// # Errors
    /// Returns an error if fewer permits are available or the semaphore is closed.
    #[track_caller]
    pub fn try_acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        let permit = self.permits.try_acquire_many(permits)?;
        let acquired = self.own(permit, Location::caller(), Guard::Borrowed);
        Ok(SemaphorePermit { sem: self, permits: permits as usize, acquired })
    }

    /// Acquires a permit like [`try_acquire`](Self::try_acquire), and returns an owned permit that
    /// can be moved into a task.
    ///
    /// # Errors
    /// Returns an error if no permit is available or the semaphore is closed.
    #[track_caller]
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// Acquires permits like [`try_acquire_many`](Self::try_acquire_many), and returns an owned
    /// permit that can be moved into a task.
    ///
    /// # Errors
    /// Returns an error if fewer permits are available or the semaphore is closed.
    #[track_caller]
    pub fn try_acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        let acquired = self.own(self.permits.try_acquire_many(permits)?, Location::caller(), Guard::Owned);
        Ok(OwnedSemaphorePermit { sem: self, permits: permits as usize, acquired })
    }

    /// Acquires a permit, blocking the current thread until one is available.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
    /// [`acquire`](Self::acquire) there.
    ///
    /// ```
    /// let connections = volt::sync::Semaphore::new(0);
    /// std::thread::scope(|scope| {
    ///     let thread = scope.spawn(|| connections.blocking_acquire().unwrap().forget());
    ///     connections.add_permits(1);
    ///     thread.join().unwrap();
    /// });
    /// assert_eq!(connections.available_permits(), 0);
    /// ```
    #[track_caller]
    pub fn blocking_acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        expect_may_block("Semaphore::acquire");
        let acquired = self.acquire_blocking(Location::caller(), 1, Guard::Borrowed)?;
        Ok(SemaphorePermit { sem: self, permits: 1, acquired })
    }

    /// Acquires `permits` permits together, blocking the current thread until all are available.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Panics
    /// Same as [`blocking_acquire`](Self::blocking_acquire).
    #[track_caller]
    pub fn blocking_acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        expect_may_block("Semaphore::acquire_many");
        let acquired = self.acquire_blocking(Location::caller(), permits, Guard::Borrowed)?;
        Ok(SemaphorePermit { sem: self, permits: permits as usize, acquired })
    }

    /// Acquires a permit like [`blocking_acquire`](Self::blocking_acquire), and returns an owned
    /// permit.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Panics
    /// Same as [`blocking_acquire`](Self::blocking_acquire).
    #[track_caller]
    pub fn blocking_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        expect_may_block("Semaphore::acquire_owned");
        let acquired = self.acquire_blocking(Location::caller(), 1, Guard::Owned)?;
        Ok(OwnedSemaphorePermit { sem: self, permits: 1, acquired })
    }

    /// Acquires permits like [`blocking_acquire_many`](Self::blocking_acquire_many), and returns an
    /// owned permit.
    ///
    /// # Errors
    /// Returns an error if the semaphore is closed.
    ///
    /// # Panics
    /// Same as [`blocking_acquire`](Self::blocking_acquire).
    #[track_caller]
    pub fn blocking_acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, AcquireError> {
        expect_may_block("Semaphore::acquire_many_owned");
        let acquired = self.acquire_blocking(Location::caller(), permits, Guard::Owned)?;
        Ok(OwnedSemaphorePermit { sem: self, permits: permits as usize, acquired })
    }

    /// Closes the semaphore: all pending and future attempts to acquire a permit fail.
    pub fn close(&self) {
        self.permits.close();
    }

    /// Returns `true` if the semaphore is closed.
    pub fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }

    async fn acquire_at(
        &self,
        at: &'static Location<'static>,
        permits: u32,
    ) -> Result<SemaphorePermit<'_>, AcquireError> {
        let acquired = match self.permits.try_acquire_many(permits) {
            // First without the queue, as in `sync::lock`, and without the state of another future.
            Ok(permit) if coop::try_proceed() => self.own(permit, at, Guard::Borrowed),
            permit => self.wait(permit.ok(), at, permits, Guard::Borrowed).await?,
        };
        Ok(SemaphorePermit { sem: self, permits: permits as usize, acquired })
    }

    async fn acquire_owned_at(
        self: Arc<Self>,
        at: &'static Location<'static>,
        permits: u32,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        let acquired = match self.permits.try_acquire_many(permits) {
            Ok(permit) if coop::try_proceed() => self.own(permit, at, Guard::Owned),
            permit => self.wait(permit.ok(), at, permits, Guard::Owned).await?,
        };
        Ok(OwnedSemaphorePermit { sem: self, permits: permits as usize, acquired })
    }

    /// Acquires permits, which the caller must release, unless it already has them as `permit` and
    /// only waits until its budget is filled. Cancel safe.
    async fn wait(
        &self,
        permit: Option<tokio::sync::SemaphorePermit<'_>>,
        at: &'static Location<'static>,
        permits: u32,
        guard: Guard,
    ) -> Result<Acquired, AcquireError> {
        if let Some(permit) = permit {
            poll_fn(|cx| coop::poll_proceed(cx).map(Unit::made_progress)).await;
            let acquired = self.own(permit, at, guard);
            self.owners.copy_again();
            return Ok(acquired);
        }
        let own = |permit: Result<_, _>, _| permit.map(|permit| self.own(permit, at, guard));
        let acquire = self.permits.acquire_many(permits);
        spend_queued_at(at, Awaits::Permits, self.owners.wait(permits), || self.awaited(permits), acquire, own).await
    }

    /// Acquires permits like [`wait`](Self::wait), and blocks the thread meanwhile.
    fn acquire_blocking(
        &self,
        at: &'static Location<'static>,
        permits: u32,
        guard: Guard,
    ) -> Result<Acquired, AcquireError> {
        let mut wait = self.owners.wait(permits);
        if self.available_permits() < permits as usize {
            wait.blocking(Awaits::Permits, at);
        }
        Ok(self.own(self.permits.blocking_acquire_many(permits)?, at, guard))
    }

    /// Returns the record of this semaphore for a task that waits for this number of permits.
    #[cold]
    fn awaited(&self, permits: u32) -> Option<Awaited> {
        // If the semaphore is a lock, the dump shows its holder instead.
        if self.owners.holder().is_some() && permits <= 1 {
            return None;
        }
        let numbers = Resource {
            permits: Some(self.available_permits() as u64),
            capacity: self.owners.total().map(|total| total as u64),
            wanted: Some(u64::from(permits)),
            ..Resource::default()
        };
        Some(Awaited::new(Key::Semaphore(self.owners.id()), "semaphore", numbers))
    }

    /// Records that the current task has acquired `permit`, which the caller must release.
    #[inline]
    fn own(&self, permit: tokio::sync::SemaphorePermit<'_>, at: &'static Location<'static>, guard: Guard) -> Acquired {
        let permits = permit.num_permits();
        // Not the permit's own `forget`, which also drops the permit, by a function call.
        mem::forget(permit);
        self.owners.acquired(permits, at, guard)
    }

    #[inline]
    fn release(&self, permits: usize, acquired: &mut Acquired) {
        if permits > 0 {
            self.owners.release(acquired);
            self.permits.add_permits(permits);
        }
    }
}

/// Permits of a [`Semaphore`], which return to it when this value is dropped. Returned by
/// [`Semaphore::acquire`].
///
/// ```
/// let connections = volt::sync::Semaphore::new(5);
/// let mut permit = connections.try_acquire_many(3).unwrap();
/// let other = permit.split(1).unwrap();
/// assert_eq!((permit.num_permits(), other.num_permits()), (2, 1));
/// permit.merge(other);
/// assert_eq!(permit.semaphore().available_permits(), 2);
/// permit.forget();
/// assert_eq!(connections.available_permits(), 2);
/// ```
#[must_use = "if unused, the permits return to the semaphore immediately"]
#[clippy::has_significant_drop]
pub struct SemaphorePermit<'a> {
    sem: &'a Semaphore,
    permits: usize,
    acquired: Acquired,
}

impl SemaphorePermit<'_> {
    /// Drops the permits without returning them to the semaphore.
    pub fn forget(mut self) {
        self.acquired.release();
        if mem::take(&mut self.permits) > 0 {
            self.sem.owners.lose_total();
        }
    }

    /// Adds the permits of `other` to this one.
    ///
    /// # Panics
    /// Panics if the permits belong to different semaphores.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(std::ptr::eq(self.sem, other.sem), "merging permits from different semaphore instances");
        self.permits += mem::take(&mut other.permits);
        self.acquired.merge(mem::take(&mut other.acquired));
    }

    /// Takes `n` permits out of this one, or returns `None` if it has fewer.
    pub fn split(&mut self, n: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(n)?;
        Some(Self { sem: self.sem, permits: n, acquired: self.acquired.split(n) })
    }

    /// Returns a reference to the semaphore.
    pub fn semaphore(&self) -> &Semaphore {
        self.sem
    }

    /// Returns the number of permits.
    pub fn num_permits(&self) -> usize {
        self.permits
    }
}

impl Debug for SemaphorePermit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SemaphorePermit").field("sem", &self.sem).field("permits", &self.permits).finish()
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.sem.release(self.permits, &mut self.acquired);
    }
}

/// Permits of a [`Semaphore`] with an `Arc` of it, which return to it when this value is dropped.
/// Returned by [`Semaphore::acquire_owned`].
///
/// ```
/// use std::sync::Arc;
/// use volt::sync::Semaphore;
///
/// let connections = Arc::new(Semaphore::new(2));
/// let permit = connections.clone().try_acquire_owned().unwrap();
/// assert!(Arc::ptr_eq(permit.semaphore(), &connections));
/// ```
#[must_use = "if unused, the permits return to the semaphore immediately"]
#[clippy::has_significant_drop]
pub struct OwnedSemaphorePermit {
    sem: Arc<Semaphore>,
    permits: usize,
    acquired: Acquired,
}

impl OwnedSemaphorePermit {
    /// Drops the permits without returning them to the semaphore.
    pub fn forget(mut self) {
        self.acquired.release();
        if mem::take(&mut self.permits) > 0 {
            self.sem.owners.lose_total();
        }
    }

    /// Adds the permits of `other` to this one.
    ///
    /// # Panics
    /// Panics if the permits belong to different semaphores.
    #[track_caller]
    pub fn merge(&mut self, mut other: Self) {
        assert!(Arc::ptr_eq(&self.sem, &other.sem), "merging permits from different semaphore instances");
        self.permits += mem::take(&mut other.permits);
        self.acquired.merge(mem::take(&mut other.acquired));
    }

    /// Takes `n` permits out of this one, or returns `None` if it has fewer.
    pub fn split(&mut self, n: usize) -> Option<Self> {
        self.permits = self.permits.checked_sub(n)?;
        Some(Self { sem: self.sem.clone(), permits: n, acquired: self.acquired.split(n) })
    }

    /// Returns a reference to the `Arc` of the semaphore.
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        &self.sem
    }

    /// Returns the number of permits.
    pub fn num_permits(&self) -> usize {
        self.permits
    }
}

impl Debug for OwnedSemaphorePermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedSemaphorePermit").field("sem", &self.sem).field("permits", &self.permits).finish()
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        self.sem.release(self.permits, &mut self.acquired);
    }
}
