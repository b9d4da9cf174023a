//! A counting semaphore.

use std::sync::Arc;

use tokio::sync::{AcquireError, TryAcquireError};

use super::wrapper::{Alias, impl_debug, impl_wrapper, unwrap_arc, wrap_ref};
use super::{Awaits, expect_may_block, spend_queued};

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
#[repr(transparent)]
pub struct Semaphore(tokio::sync::Semaphore);

impl_debug!([] Semaphore, [] SemaphorePermit<'_>, [] OwnedSemaphorePermit);
impl_wrapper!([] Semaphore, tokio::sync::Semaphore);

impl Semaphore {
    /// The maximum number of permits that a semaphore can have.
    pub const MAX_PERMITS: usize = tokio::sync::Semaphore::MAX_PERMITS;

    /// Creates a semaphore with `permits` permits.
    ///
    /// # Panics
    /// Panics if `permits` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[track_caller]
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
        spend_queued(Awaits::Permits, self.0.acquire(), |permit| permit.map(SemaphorePermit))
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
        spend_queued(Awaits::Permits, self.0.acquire_many(permits), |permit| permit.map(SemaphorePermit))
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
        spend_queued(Awaits::Permits, unwrap_arc(self).acquire_owned(), |permit| permit.map(OwnedSemaphorePermit::new))
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
        spend_queued(Awaits::Permits, unwrap_arc(self).acquire_many_owned(permits), |permit| {
            permit.map(OwnedSemaphorePermit::new)
        })
    }

    /// Acquires a permit if one is available, without waiting.
    ///
    /// # Errors
    /// Returns an error if no permit is available or the semaphore is closed.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.0.try_acquire().map(SemaphorePermit)
    }

    /// Acquires `permits` permits together if all are available, without waiting.
    ///
    /// # Errors
    /// Returns an error if fewer permits are available or the semaphore is closed.
    pub fn try_acquire_many(&self, permits: u32) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.0.try_acquire_many(permits).map(SemaphorePermit)
    }

    /// Acquires a permit like [`try_acquire`](Self::try_acquire), and returns an owned permit that
    /// can be moved into a task.
    ///
    /// # Errors
    /// Returns an error if no permit is available or the semaphore is closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        unwrap_arc(self).try_acquire_owned().map(OwnedSemaphorePermit::new)
    }

    /// Acquires permits like [`try_acquire_many`](Self::try_acquire_many), and returns an owned
    /// permit that can be moved into a task.
    ///
    /// # Errors
    /// Returns an error if fewer permits are available or the semaphore is closed.
    pub fn try_acquire_many_owned(self: Arc<Self>, permits: u32) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        unwrap_arc(self).try_acquire_many_owned(permits).map(OwnedSemaphorePermit::new)
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
        self.0.blocking_acquire().map(SemaphorePermit)
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
        self.0.blocking_acquire_many(permits).map(SemaphorePermit)
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
        unwrap_arc(self).blocking_acquire_owned().map(OwnedSemaphorePermit::new)
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
        unwrap_arc(self).blocking_acquire_many_owned(permits).map(OwnedSemaphorePermit::new)
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
pub struct SemaphorePermit<'a>(tokio::sync::SemaphorePermit<'a>);

impl SemaphorePermit<'_> {
    /// Drops the permits without returning them to the semaphore.
    pub fn forget(self) {
        self.0.forget();
    }

    /// Adds the permits of `other` to this one.
    ///
    /// # Panics
    /// Panics if the permits belong to different semaphores.
    #[track_caller]
    pub fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    /// Takes `n` permits out of this one, or returns `None` if it has fewer.
    pub fn split(&mut self, n: usize) -> Option<Self> {
        self.0.split(n).map(SemaphorePermit)
    }

    /// Returns a reference to the semaphore.
    pub fn semaphore(&self) -> &Semaphore {
        wrap_ref(self.0.semaphore())
    }

    /// Returns the number of permits.
    pub fn num_permits(&self) -> usize {
        self.0.num_permits()
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
pub struct OwnedSemaphorePermit(tokio::sync::OwnedSemaphorePermit, Alias<Semaphore>);

impl OwnedSemaphorePermit {
    fn new(permit: tokio::sync::OwnedSemaphorePermit) -> Self {
        // SAFETY: the permit keeps its `Arc`. Both are in the same struct, and a method that takes
        // the permit out drops the alias.
        let semaphore = unsafe { Alias::of(permit.semaphore()) };
        Self(permit, semaphore)
    }

    /// Drops the permits without returning them to the semaphore.
    pub fn forget(self) {
        self.0.forget();
    }

    /// Adds the permits of `other` to this one.
    ///
    /// # Panics
    /// Panics if the permits belong to different semaphores.
    #[track_caller]
    pub fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }

    /// Takes `n` permits out of this one, or returns `None` if it has fewer.
    pub fn split(&mut self, n: usize) -> Option<Self> {
        self.0.split(n).map(Self::new)
    }

    /// Returns a reference to the `Arc` of the semaphore.
    pub fn semaphore(&self) -> &Arc<Semaphore> {
        self.1.get()
    }

    /// Returns the number of permits.
    pub fn num_permits(&self) -> usize {
        self.0.num_permits()
    }
}
