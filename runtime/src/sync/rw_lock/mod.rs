//! An asynchronous reader-writer lock.
//!
//! Invariants:
//! * *Guarded*: each of the six guards exists only while its lock is acquired for the guard's kind
//!   of access. `read`, `write` and their variants create one, converting a guard consumes the
//!   former without dropping it, and dropping a guard releases the lock. So a guard for exclusive
//!   access is the only guard, and otherwise all guards are for shared access.
//!
//! Rejected: a wrapper of Tokio's lock, which has no room for the record of the holder, as in
//! `mutex`.

use std::cell::UnsafeCell;
use std::fmt::{self, Debug};
use std::panic::Location;
use std::sync::Arc;

use tokio::sync::TryLockError;
use volt_core::context::expect_may_block;
use volt_core::task::waits::Guard;

use self::lock::{Access, READERS_MAX, SharedLock};

mod lock;

mod guards;
mod owned;

pub use guards::{RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard};
pub use owned::{OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard};

/// An asynchronous reader-writer lock, whose guards can be held across an `.await`.
///
/// Many readers or a single writer can hold the lock at a time. The lock is fair: tasks acquire it
/// in the order of their calls. A reader that arrives after a waiting writer therefore waits for
/// that writer. A task that has a read guard must not call [`read`](Self::read) again: if a writer
/// waits between the two calls, the task and the writer wait for each other forever.
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
pub struct RwLock<T: ?Sized> {
    lock: SharedLock,
    value: UnsafeCell<T>,
}

// SAFETY: Guarded: several threads have shared access to the value, or one has exclusive access.
// So it has to be `Sync` and `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// Creates a new, unlocked lock.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self::const_new(value)
    }

    /// Creates a new, unlocked lock in a constant context.
    pub const fn const_new(value: T) -> Self {
        Self::const_with_max_readers(value, READERS_MAX)
    }

    /// Creates a new, unlocked lock for at most `max_reads` readers at a time. Further readers
    /// wait.
    ///
    /// # Panics
    /// Panics if `max_reads` is 0 or exceeds `u32::MAX >> 3`.
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
        Self::const_with_max_readers(value, max_reads)
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
    #[track_caller]
    pub const fn const_with_max_readers(value: T, max_reads: u32) -> Self {
        Self { lock: SharedLock::new(max_reads), value: UnsafeCell::new(value) }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
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
        let at = Location::caller();
        async move {
            self.lock.acquire(Access::Read, at, Guard::Borrowed).await;
            RwLockReadGuard::new(self)
        }
    }

    /// Locks for exclusive write access, waiting until no other task holds the lock.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = RwLockWriteGuard<'_, T>> {
        let at = Location::caller();
        async move {
            self.lock.acquire(Access::Write, at, Guard::Borrowed).await;
            RwLockWriteGuard::new(self)
        }
    }

    /// Locks like [`read`](Self::read), and returns an owned guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn read_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockReadGuard<T>> {
        let at = Location::caller();
        async move {
            self.lock.acquire(Access::Read, at, Guard::Owned).await;
            OwnedRwLockReadGuard::new(self)
        }
    }

    /// Locks like [`write`](Self::write), and returns an owned guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// Same as [`read`](Self::read).
    #[track_caller]
    pub fn write_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockWriteGuard<T>> {
        let at = Location::caller();
        async move {
            self.lock.acquire(Access::Write, at, Guard::Owned).await;
            OwnedRwLockWriteGuard::new(self)
        }
    }

    /// Locks for shared read access, without waiting.
    ///
    /// # Errors
    /// Returns an error if the lock is not available: a writer holds it or waits for it, or the
    /// maximum number of readers hold it.
    #[track_caller]
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        self.lock.try_acquire(Access::Read, Location::caller(), Guard::Borrowed)?;
        Ok(RwLockReadGuard::new(self))
    }

    /// Locks for exclusive write access, without waiting.
    ///
    /// # Errors
    /// Returns an error if a reader or a writer holds the lock.
    #[track_caller]
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        self.lock.try_acquire(Access::Write, Location::caller(), Guard::Borrowed)?;
        Ok(RwLockWriteGuard::new(self))
    }

    /// Locks like [`try_read`](Self::try_read), and returns an owned guard that can be moved into a
    /// task.
    ///
    /// # Errors
    /// Same as [`try_read`](Self::try_read).
    #[track_caller]
    pub fn try_read_owned(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, TryLockError> {
        self.lock.try_acquire(Access::Read, Location::caller(), Guard::Owned)?;
        Ok(OwnedRwLockReadGuard::new(self))
    }

    /// Locks like [`try_write`](Self::try_write), and returns an owned guard that can be moved into
    /// a task.
    ///
    /// # Errors
    /// Same as [`try_write`](Self::try_write).
    #[track_caller]
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, TryLockError> {
        self.lock.try_acquire(Access::Write, Location::caller(), Guard::Owned)?;
        Ok(OwnedRwLockWriteGuard::new(self))
    }

    /// Locks for shared read access, blocking the current thread until the lock is available.
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
    /// [`read`](Self::read) there.
    #[track_caller]
    pub fn blocking_read(&self) -> RwLockReadGuard<'_, T> {
        expect_may_block("RwLock::read");
        self.lock.acquire_blocking(Access::Read, Location::caller(), Guard::Borrowed);
        RwLockReadGuard::new(self)
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
        self.lock.acquire_blocking(Access::Write, Location::caller(), Guard::Borrowed);
        RwLockWriteGuard::new(self)
    }

    /// Returns a mutable reference to the value.
    ///
    /// No locking takes place: the mutable borrow proves that no guard exists.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + Debug> Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("RwLock");
        match self.try_read() {
            Ok(guard) => all.field("data", &&*guard),
            Err(_) => all.field("data", &format_args!("<locked>")),
        };
        all.finish()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}
