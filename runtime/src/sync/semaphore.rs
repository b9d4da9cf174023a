//! A counting semaphore.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, SemaphorePermit, TryAcquireError};

use super::{Awaits, spend};

/// A counting semaphore: limits concurrent access to N holders.
///
/// A permit returns to the semaphore when it is dropped. The semaphore is fair: permits go to tasks
/// in the order of their calls.
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
#[derive(Debug)]
#[repr(transparent)]
pub struct Semaphore(tokio::sync::Semaphore);

impl Semaphore {
    /// The maximum number of permits that a semaphore can have.
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// Creates a semaphore with `permits` permits.
    ///
    /// # Panics
    /// Panics if `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn new(permits: usize) -> Self {
        Self(tokio::sync::Semaphore::new(permits))
    }

    /// Creates a semaphore with `permits` permits in a constant context.
    ///
    /// # Panics
    /// Same as [`new`](Self::new); in a constant, compilation fails instead.
    pub const fn const_new(permits: usize) -> Self {
        Self(tokio::sync::Semaphore::const_new(permits))
    }

    /// Returns the number of permits that are currently available.
    pub fn available_permits(&self) -> usize {
        self.0.available_permits()
    }

    /// Adds `permits` new permits.
    ///
    /// # Panics
    /// Panics if the total would exceed [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn add_permits(&self, permits: usize) {
        self.0.add_permits(permits);
    }

    /// Removes up to `permits` available permits for good, and returns how many were removed.
    pub fn forget_permits(&self, permits: usize) -> usize {
        self.0.forget_permits(permits)
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
        spend(Awaits::Permits, self.0.acquire())
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
        spend(Awaits::Permits, self.0.acquire_many(permits))
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
        spend(Awaits::Permits, inner(self).acquire_owned())
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
        spend(Awaits::Permits, inner(self).acquire_many_owned(permits))
    }

    /// Acquires a permit if one is available, without waiting.
    ///
    /// # Errors
    /// Returns an error if no permit is available or the semaphore is closed.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.0.try_acquire()
    }

    /// Acquires `permits` permits together if all are available, without waiting.
    ///
    /// # Errors
    /// Returns an error if fewer permits are available or the semaphore is closed.
    pub fn try_acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.0.try_acquire_many(permits)
    }

    /// Acquires a permit like [`try_acquire`](Self::try_acquire), and returns an owned permit that
    /// can be moved into a task.
    ///
    /// # Errors
    /// Returns an error if no permit is available or the semaphore is closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        inner(self).try_acquire_owned()
    }

    /// Acquires permits like [`try_acquire_many`](Self::try_acquire_many), and returns an owned
    /// permit that can be moved into a task.
    ///
    /// # Errors
    /// Returns an error if fewer permits are available or the semaphore is closed.
    pub fn try_acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        inner(self).try_acquire_many_owned(permits)
    }

    /// Closes the semaphore: all pending and future attempts to acquire a permit fail.
    pub fn close(&self) {
        self.0.close();
    }

    /// Returns `true` if the semaphore is closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

fn inner(semaphore: Arc<Semaphore>) -> Arc<tokio::sync::Semaphore> {
    let semaphore = Arc::into_raw(semaphore).cast::<tokio::sync::Semaphore>();
    // SAFETY: the pointer comes from `into_raw`, and a transparent wrapper has the same size and
    // alignment as the wrapped type.
    unsafe { Arc::from_raw(semaphore) }
}
