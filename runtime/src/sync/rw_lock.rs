//! An asynchronous reader-writer lock.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use super::{Awaits, spend};

/// An asynchronous reader-writer lock, whose guards can be held across an `.await`.
///
/// Many readers or a single writer can hold the lock at a time. The lock is fair: tasks acquire it
/// in the order of their calls. A reader that arrives after a waiting writer therefore waits for
/// that writer.
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
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct RwLock<T: ?Sized>(tokio::sync::RwLock<T>);

impl<T> RwLock<T> {
    /// Creates a new, unlocked lock.
    pub fn new(value: T) -> Self {
        Self(tokio::sync::RwLock::new(value))
    }

    /// Creates a new, unlocked lock in a constant context.
    pub const fn const_new(value: T) -> Self {
        Self(tokio::sync::RwLock::const_new(value))
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
        spend(Awaits::Lock, self.0.read())
    }

    /// Locks for exclusive write access, waiting until no other task holds the lock.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = RwLockWriteGuard<'_, T>> {
        spend(Awaits::Lock, self.0.write())
    }

    /// Locks like [`read`](Self::read), and returns an owned guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn read_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockReadGuard<T>> {
        spend(Awaits::Lock, inner(self).read_owned())
    }

    /// Locks like [`write`](Self::write), and returns an owned guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn write_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockWriteGuard<T>> {
        spend(Awaits::Lock, inner(self).write_owned())
    }

    /// Locks for shared read access, without waiting.
    ///
    /// # Errors
    /// Returns an error if the lock is not available: a writer holds it or waits for it.
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
        inner(self).try_read_owned()
    }

    /// Locks like [`try_write`](Self::try_write), and returns an owned guard that can be moved into
    /// a task.
    ///
    /// # Errors
    /// Same as [`try_write`](Self::try_write).
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, TryLockError> {
        inner(self).try_write_owned()
    }

    /// Locks for shared read access, blocking the current thread until the lock is available.
    ///
    /// Use this only on threads that do not run tasks: on a worker, it blocks all tasks of that
    /// worker.
    pub fn blocking_read(&self) -> RwLockReadGuard<'_, T> {
        self.0.blocking_read()
    }

    /// Locks for exclusive write access, blocking the current thread until the lock is available.
    ///
    /// Use this only on threads that do not run tasks: on a worker, it blocks all tasks of that
    /// worker.
    pub fn blocking_write(&self) -> RwLockWriteGuard<'_, T> {
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

fn inner<T: ?Sized>(lock: Arc<RwLock<T>>) -> Arc<tokio::sync::RwLock<T>> {
    let lock = Arc::into_raw(lock) as *const tokio::sync::RwLock<T>;
    // SAFETY: the pointer comes from `into_raw`, and a transparent wrapper has the same size and
    // alignment as the wrapped type.
    unsafe { Arc::from_raw(lock) }
}
