//! A lock that tasks wait for.

use std::sync::Arc;

use tokio::sync::{MutexGuard, OwnedMutexGuard, TryLockError};

use super::{Awaits, spend};

/// A lock that may be held across an `.await`. First come, first served.
///
/// Dropping the guard unlocks, also when the task is cancelled or panics; the lock is not poisoned
/// by a panic.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let log = volt::sync::Mutex::new(Vec::new());
/// log.lock().await.push("first");
/// assert_eq!(*log.lock().await, ["first"]);
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(tokio::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// An unlocked one.
    pub fn new(value: T) -> Self {
        Self(tokio::sync::Mutex::new(value))
    }

    /// An unlocked one, in a constant.
    pub const fn const_new(value: T) -> Self {
        Self(tokio::sync::Mutex::const_new(value))
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until it is unlocked, and locks it.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives up its place in the line and has locked nothing.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = MutexGuard<'_, T>> {
        spend(Awaits::Lock, self.0.lock())
    }

    /// As [`lock`](Self::lock), with a guard that can be moved into a task.
    ///
    /// # Cancel safety
    /// As [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_owned(self: Arc<Self>) -> impl Future<Output = OwnedMutexGuard<T>> {
        spend(Awaits::Lock, inner(self).lock_owned())
    }

    /// Locks it if it is unlocked.
    ///
    /// # Errors
    /// It is locked.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.0.try_lock()
    }

    /// As [`try_lock`](Self::try_lock), with a guard that can be moved into a task.
    ///
    /// # Errors
    /// It is locked.
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        inner(self).try_lock_owned()
    }

    /// Waits on this thread until it is unlocked, and locks it: for threads that are no workers.
    pub fn blocking_lock(&self) -> MutexGuard<'_, T> {
        self.0.blocking_lock()
    }

    /// As [`blocking_lock`](Self::blocking_lock), with a guard that can be moved.
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        inner(self).blocking_lock_owned()
    }

    /// The value, which nobody else can have locked.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

fn inner<T: ?Sized>(mutex: Arc<Mutex<T>>) -> Arc<tokio::sync::Mutex<T>> {
    let mutex = Arc::into_raw(mutex) as *const tokio::sync::Mutex<T>;
    // SAFETY: it comes from `into_raw`, and a transparent wrapper has the size and alignment of
    // what it wraps.
    unsafe { Arc::from_raw(mutex) }
}
