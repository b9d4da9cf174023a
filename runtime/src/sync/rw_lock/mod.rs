//! An asynchronous reader-writer lock.

use std::fmt::Debug;
use std::sync::Arc;

use tokio::sync::{RwLockReadGuard, RwLockWriteGuard, TryLockError};

use super::wrapper::{impl_debug, impl_wrapper, unwrap_arc};
use super::{Awaits, expect_may_block, spend_queued};

mod owned;

pub use owned::{OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

/// An asynchronous reader-writer lock, whose guards can be held across an `.await`.
///
/// Many readers or a single writer can hold the lock at a time. The lock is fair: tasks acquire it
/// in the order of their calls. A reader that arrives after a waiting writer therefore waits for
/// that writer. A task that has a read guard must not call [`read`](Self::read) again: if a writer
/// has come in between, both wait forever.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let prices = volt::sync::RwLock::new(vec![1, 2]);
/// {
///     let (one, other) = (prices.read().await, prices.read().await);
///     assert_eq!(*one, *other);
/// }
/// prices.write().await.push(3);
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(tokio::sync::RwLock<T>);

impl_debug!([T: ?Sized + Debug] RwLock<T>);
impl_wrapper!([T: ?Sized] RwLock<T>, tokio::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates a new, unlocked lock.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(tokio::sync::RwLock::new(value))
    }

    /// Creates a new, unlocked lock in a constant context.
    pub const fn const_new(value: T) -> Self {
        Self(tokio::sync::RwLock::const_new(value))
    }

    /// Creates a new, unlocked lock for at most `max_reads` readers at a time. Further readers
    /// wait.
    ///
    /// # Panics
    /// Panics if `max_reads` exceeds `u32::MAX >> 3`.
    ///
    /// ```
    /// let prices = volt::sync::RwLock::with_max_readers(vec![1, 2], 1);
    /// let first = prices.try_read().unwrap();
    /// assert!(prices.try_read().is_err());
    /// drop(first);
    /// assert!(prices.try_read().is_ok());
    /// ```
    #[track_caller]
    pub fn with_max_readers(value: T, max_reads: u32) -> Self {
        Self(tokio::sync::RwLock::with_max_readers(value, max_reads))
    }

    /// Creates a lock as [`with_max_readers`](Self::with_max_readers) does, in a constant context.
    ///
    /// # Panics
    /// Same as [`with_max_readers`](Self::with_max_readers); in a constant, compilation fails
    /// instead.
    ///
    /// ```
    /// static PRICE: volt::sync::RwLock<u32> = volt::sync::RwLock::const_with_max_readers(7, 16);
    /// assert_eq!(*PRICE.blocking_read(), 7);
    /// ```
    pub const fn const_with_max_readers(value: T, max_reads: u32) -> Self {
        Self(tokio::sync::RwLock::const_with_max_readers(value, max_reads))
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for shared read access, waiting while a writer holds the lock or is ahead in the
    /// queue.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before it completes, nothing is locked and the task
    /// loses its place in the queue.
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = RwLockReadGuard<'_, T>> {
        spend_queued(Awaits::Lock, self.0.read(), |guard| guard)
    }

    /// Locks for exclusive write access, waiting until no other task holds the lock.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = RwLockWriteGuard<'_, T>> {
        spend_queued(Awaits::Lock, self.0.write(), |guard| guard)
    }

    /// Locks like [`read`](Self::read), and returns an owned guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn read_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockReadGuard<T>> {
        spend_queued(Awaits::Lock, unwrap_arc(self).read_owned(), OwnedRwLockReadGuard::new)
    }

    /// Locks like [`write`](Self::write), and returns an owned guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn write_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockWriteGuard<T>> {
        spend_queued(Awaits::Lock, unwrap_arc(self).write_owned(), OwnedRwLockWriteGuard::new)
    }

    /// Locks for shared read access, without waiting.
    ///
    /// # Errors
    /// Returns an error if the lock is not available: a writer holds it or waits for it, or the
    /// maximum number of readers hold it.
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        self.0.try_read()
    }

    /// Locks for exclusive write access, without waiting.
    ///
    /// # Errors
    /// Returns an error if a reader or a writer holds the lock.
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        self.0.try_write()
    }

    /// Locks like [`try_read`](Self::try_read), and returns an owned guard that can be moved into a
    /// task.
    ///
    /// # Errors
    /// Same as [`try_read`](Self::try_read).
    pub fn try_read_owned(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, TryLockError> {
        unwrap_arc(self).try_read_owned().map(OwnedRwLockReadGuard::new)
    }

    /// Locks like [`try_write`](Self::try_write), and returns an owned guard that can be moved into
    /// a task.
    ///
    /// # Errors
    /// Same as [`try_write`](Self::try_write).
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, TryLockError> {
        unwrap_arc(self).try_write_owned().map(OwnedRwLockWriteGuard::new)
    }

    /// Locks for shared read access, blocking the current thread until the lock is available.
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
    /// [`read`](Self::read) there.
    #[track_caller]
    pub fn blocking_read(&self) -> RwLockReadGuard<'_, T> {
        expect_may_block("RwLock::read");
        self.0.blocking_read()
    }

    /// Locks for exclusive write access, blocking the current thread until the lock is available.
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
    /// [`write`](Self::write) there.
    ///
    /// ```
    /// let prices = volt::sync::RwLock::new(vec![1, 2]);
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| prices.blocking_write().push(3));
    /// });
    /// assert_eq!(*prices.blocking_read(), [1, 2, 3]);
    /// ```
    #[track_caller]
    pub fn blocking_write(&self) -> RwLockWriteGuard<'_, T> {
        expect_may_block("RwLock::write");
        self.0.blocking_write()
    }

    /// Returns a mutable reference to the value.
    ///
    /// No locking takes place: the mutable borrow proves that no guard exists.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}
