//! Permits.

use std::sync::Arc;

use tokio::sync::{AcquireError, OwnedSemaphorePermit, SemaphorePermit, TryAcquireError};

use super::{Awaits, spend};

/// So many permits, for so many at a time. First come, first served.
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
    /// The most permits that one can have.
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// One with `permits` to give.
    ///
    /// # Panics
    /// `permits` is above [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn new(permits: usize) -> Self {
        Self(tokio::sync::Semaphore::new(permits))
    }

    /// As [`new`](Self::new), in a constant.
    ///
    /// # Panics
    /// As [`new`](Self::new); in a constant the compiler says so.
    pub const fn const_new(permits: usize) -> Self {
        Self(tokio::sync::Semaphore::const_new(permits))
    }

    /// Permits that are there.
    pub fn available_permits(&self) -> usize {
        self.0.available_permits()
    }

    /// Adds permits.
    ///
    /// # Panics
    /// There would be more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    pub fn add_permits(&self, permits: usize) {
        self.0.add_permits(permits);
    }

    /// Takes away as many of the permits that are there, up to `permits`; says how many.
    pub fn forget_permits(&self, permits: usize) -> usize {
        self.0.forget_permits(permits)
    }

    /// Waits for a permit, which is given back when it is dropped.
    ///
    /// # Errors
    /// It was closed.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives up its place in the line and has taken nothing.
    #[track_caller]
    pub fn acquire(&self) -> impl Future<Output = Result<SemaphorePermit<'_>, AcquireError>> {
        spend(Awaits::Permits, self.0.acquire())
    }

    /// As [`acquire`](Self::acquire), for `permits` at once.
    ///
    /// # Errors
    /// It was closed.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many(&self, permits: u32) -> impl Future<Output = Result<SemaphorePermit<'_>, AcquireError>> {
        spend(Awaits::Permits, self.0.acquire_many(permits))
    }

    /// As [`acquire`](Self::acquire), with a permit that can be moved into a task.
    ///
    /// # Errors
    /// It was closed.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_owned(self: Arc<Self>) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> {
        spend(Awaits::Permits, inner(self).acquire_owned())
    }

    /// As [`acquire_many`](Self::acquire_many), with permits that can be moved into a task.
    ///
    /// # Errors
    /// It was closed.
    ///
    /// # Cancel safety
    /// As [`acquire`](Self::acquire).
    #[track_caller]
    pub fn acquire_many_owned(
        self: Arc<Self>,
        permits: u32,
    ) -> impl Future<Output = Result<OwnedSemaphorePermit, AcquireError>> {
        spend(Awaits::Permits, inner(self).acquire_many_owned(permits))
    }

    /// A permit, if there is one now.
    ///
    /// # Errors
    /// There is none, or it was closed.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.0.try_acquire()
    }

    /// `permits` at once, if they are there now.
    ///
    /// # Errors
    /// They are not there, or it was closed.
    pub fn try_acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.0.try_acquire_many(permits)
    }

    /// As [`try_acquire`](Self::try_acquire), with a permit that can be moved into a task.
    ///
    /// # Errors
    /// There is none, or it was closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        inner(self).try_acquire_owned()
    }

    /// As [`try_acquire_many`](Self::try_acquire_many), with permits that can be moved into a task.
    ///
    /// # Errors
    /// They are not there, or it was closed.
    pub fn try_acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        inner(self).try_acquire_many_owned(permits)
    }

    /// Gives no more permits: whoever waits gets an error, now and later.
    pub fn close(&self) {
        self.0.close();
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

fn inner(semaphore: Arc<Semaphore>) -> Arc<tokio::sync::Semaphore> {
    let semaphore = Arc::into_raw(semaphore).cast::<tokio::sync::Semaphore>();
    // SAFETY: it comes from `into_raw`, and a transparent wrapper has the size and alignment of
    // what it wraps.
    unsafe { Arc::from_raw(semaphore) }
}
