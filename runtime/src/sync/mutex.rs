//! An asynchronous mutex.

use std::sync::Arc;

use tokio::sync::{MutexGuard, OwnedMutexGuard, TryLockError};

use super::{Awaits, spend};

/// An asynchronous mutex, whose guard can be held across an `.await`.
///
/// The lock is fair: tasks acquire it in the order in which they called [`lock`](Self::lock).
///
/// Dropping the guard unlocks the mutex, also when the task is cancelled or panics. A panic does
/// not poison the mutex.
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
    /// Creates a new, unlocked mutex.
    pub fn new(value: T) -> Self {
        Self(tokio::sync::Mutex::new(value))
    }

    /// Creates a new, unlocked mutex in a constant context.
    pub const fn const_new(value: T) -> Self {
        Self(tokio::sync::Mutex::const_new(value))
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, waiting until it is available.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before it completes, the mutex is not locked and the
    /// task loses its place in the queue.
    #[track_caller]
    pub fn lock(&self) -> impl Future<Output = MutexGuard<'_, T>> {
        spend(Awaits::Lock, self.0.lock())
    }

    /// Locks the mutex like [`lock`](Self::lock), and returns an owned guard that can be moved into
    /// a task.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_owned(self: Arc<Self>) -> impl Future<Output = OwnedMutexGuard<T>> {
        spend(Awaits::Lock, inner(self).lock_owned())
    }

    /// Locks the mutex if it is unlocked, without waiting.
    ///
    /// # Errors
    /// Returns an error if the mutex is locked.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.0.try_lock()
    }

    /// Locks the mutex like [`try_lock`](Self::try_lock), and returns an owned guard that can be
    /// moved into a task.
    ///
    /// # Errors
    /// Returns an error if the mutex is locked.
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        inner(self).try_lock_owned()
    }

    /// Locks the mutex, blocking the current thread until it is available.
    ///
    /// Use this only on threads that do not run tasks: on a worker, it blocks all tasks of that
    /// worker.
    pub fn blocking_lock(&self) -> MutexGuard<'_, T> {
        self.0.blocking_lock()
    }

    /// Locks the mutex like [`blocking_lock`](Self::blocking_lock), and returns an owned guard.
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        inner(self).blocking_lock_owned()
    }

    /// Returns a mutable reference to the value.
    ///
    /// No locking takes place: the mutable borrow proves that no guard exists.
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
    // SAFETY: the pointer comes from `into_raw`, and a transparent wrapper has the same size and
    // alignment as the wrapped type.
    unsafe { Arc::from_raw(mutex) }
}
