//! A lock for one writer or many readers.

use std::sync::Arc;

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLockReadGuard, RwLockWriteGuard, TryLockError};

use super::{Awaits, spend};

/// Held by many readers or one writer, across an `.await` if need be. First come, first served:
/// readers that come after a writer wait for it.
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
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self(tokio::sync::RwLock::new(value))
    }

    /// An unlocked one, in a constant.
    pub const fn const_new(value: T) -> Self {
        Self(tokio::sync::RwLock::const_new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer has it or is before this in the line.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives up its place in the line and has locked nothing.
    #[track_caller]
    pub fn read(&self) -> impl Future<Output = RwLockReadGuard<'_, T>> {
        spend(Awaits::Lock, self.0.read())
    }

    /// Waits until nobody has it.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn write(&self) -> impl Future<Output = RwLockWriteGuard<'_, T>> {
        spend(Awaits::Lock, self.0.write())
    }

    /// As [`read`](Self::read), with a guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn read_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockReadGuard<T>> {
        spend(Awaits::Lock, inner(self).read_owned())
    }

    /// As [`write`](Self::write), with a guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// As [`read`](Self::read).
    #[track_caller]
    pub fn write_owned(self: Arc<Self>) -> impl Future<Output = OwnedRwLockWriteGuard<T>> {
        spend(Awaits::Lock, inner(self).write_owned())
    }

    /// A reader's guard, if there is one to be had now.
    ///
    /// # Errors
    /// A writer has it.
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        self.0.try_read()
    }

    /// The writer's guard, if there is one to be had now.
    ///
    /// # Errors
    /// Somebody has it.
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        self.0.try_write()
    }

    /// As [`try_read`](Self::try_read), with a guard that can be moved into a task.
    ///
    /// # Errors
    /// A writer has it.
    pub fn try_read_owned(self: Arc<Self>) -> Result<OwnedRwLockReadGuard<T>, TryLockError> {
        inner(self).try_read_owned()
    }

    /// As [`try_write`](Self::try_write), with a guard that can be moved into a task.
    ///
    /// # Errors
    /// Somebody has it.
    pub fn try_write_owned(self: Arc<Self>) -> Result<OwnedRwLockWriteGuard<T>, TryLockError> {
        inner(self).try_write_owned()
    }

    /// As [`read`](Self::read), on this thread: for threads that are no workers.
    pub fn blocking_read(&self) -> RwLockReadGuard<'_, T> {
        self.0.blocking_read()
    }

    /// As [`write`](Self::write), on this thread: for threads that are no workers.
    pub fn blocking_write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.blocking_write()
    }

    /// The value, which nobody else can have locked.
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
    // SAFETY: it comes from `into_raw`, and a transparent wrapper has the size and alignment of
    // what it wraps.
    unsafe { Arc::from_raw(lock) }
}
