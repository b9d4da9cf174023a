//! An asynchronous mutex.

use std::fmt::{self, Debug, Display};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio::sync::{MappedMutexGuard, OwnedMappedMutexGuard, TryLockError};

use super::wrapper::{Alias, impl_debug, impl_wrapper, unwrap_arc, wrap_ref};
use super::{Awaits, expect_may_block, spend_queued};

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
#[derive(Default)]
#[repr(transparent)]
pub struct Mutex<T: ?Sized>(tokio::sync::Mutex<T>);

impl_debug!([T: ?Sized + Debug] Mutex<T>, [T: ?Sized + Debug] MutexGuard<'_, T>, [T: ?Sized + Debug] OwnedMutexGuard<T>);
impl_wrapper!([T: ?Sized] Mutex<T>, tokio::sync::Mutex<T>);

impl<T> Mutex<T> {
    /// Creates a new, unlocked mutex.
    #[track_caller]
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
        spend_queued(Awaits::Lock, self.0.lock(), MutexGuard)
    }

    /// Locks the mutex like [`lock`](Self::lock), and returns an owned guard that can be moved into
    /// a task.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_owned(self: Arc<Self>) -> impl Future<Output = OwnedMutexGuard<T>> {
        spend_queued(Awaits::Lock, unwrap_arc(self).lock_owned(), OwnedMutexGuard::new)
    }

    /// Locks the mutex if it is unlocked, without waiting.
    ///
    /// # Errors
    /// Returns an error if the mutex is locked.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.0.try_lock().map(MutexGuard)
    }

    /// Locks the mutex like [`try_lock`](Self::try_lock), and returns an owned guard that can be
    /// moved into a task.
    ///
    /// # Errors
    /// Returns an error if the mutex is locked.
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        unwrap_arc(self).try_lock_owned().map(OwnedMutexGuard::new)
    }

    /// Locks the mutex, blocking the current thread until it is available.
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
    /// [`lock`](Self::lock) there.
    ///
    /// ```
    /// let log = std::sync::Arc::new(volt::sync::Mutex::new(Vec::new()));
    /// let thread = std::thread::spawn({
    ///     let log = log.clone();
    ///     move || log.blocking_lock().push("from a thread")
    /// });
    /// thread.join().unwrap();
    /// assert_eq!(*log.blocking_lock(), ["from a thread"]);
    /// ```
    #[track_caller]
    pub fn blocking_lock(&self) -> MutexGuard<'_, T> {
        expect_may_block("Mutex::lock");
        MutexGuard(self.0.blocking_lock())
    }

    /// Locks the mutex like [`blocking_lock`](Self::blocking_lock), and returns an owned guard.
    ///
    /// # Panics
    /// Same as [`blocking_lock`](Self::blocking_lock).
    #[track_caller]
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        expect_may_block("Mutex::lock_owned");
        OwnedMutexGuard::new(unwrap_arc(self).blocking_lock_owned())
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

/// A guard that unlocks its [`Mutex`] when it is dropped. Returned by [`Mutex::lock`].
///
/// [`map`](Self::map) and [`try_map`](Self::try_map) return Tokio's [`MappedMutexGuard`].
#[must_use = "if unused, the mutex is unlocked immediately"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized>(tokio::sync::MutexGuard<'a, T>);

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Converts the guard into a guard of a component of the value.
    ///
    /// This is an associated function, called as `MutexGuard::map(guard, …)`: a method would hide a
    /// method of the value.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// use volt::sync::{Mutex, MutexGuard};
    ///
    /// let pair = Mutex::new((1, "one"));
    /// *MutexGuard::map(pair.lock().await, |pair| &mut pair.0) = 2;
    /// assert_eq!(*pair.lock().await, (2, "one"));
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn map<U, F>(this: Self, f: F) -> MappedMutexGuard<'a, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        tokio::sync::MutexGuard::map(this.0, f)
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<U, F>(this: Self, f: F) -> Result<MappedMutexGuard<'a, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        tokio::sync::MutexGuard::try_map(this.0, f).map_err(MutexGuard)
    }

    /// Returns a reference to the mutex of the guard.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// use volt::sync::{Mutex, MutexGuard};
    ///
    /// /// Unlocks for a moment, so that other tasks can lock.
    /// async fn give_way(guard: MutexGuard<'_, u32>) -> MutexGuard<'_, u32> {
    ///     let mutex = MutexGuard::mutex(&guard);
    ///     drop(guard);
    ///     mutex.lock().await
    /// }
    ///
    /// let counter = Mutex::new(1);
    /// let guard = counter.lock().await;
    /// assert_eq!(*give_way(guard).await, 1);
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn mutex(this: &Self) -> &'a Mutex<T> {
        wrap_ref(tokio::sync::MutexGuard::mutex(&this.0))
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized + Display> Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A guard that contains an `Arc` of its [`Mutex`], and unlocks it when it is dropped. Returned by
/// [`Mutex::lock_owned`].
///
/// [`map`](Self::map) and [`try_map`](Self::try_map) return Tokio's [`OwnedMappedMutexGuard`].
#[must_use = "if unused, the mutex is unlocked immediately"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard<T: ?Sized>(tokio::sync::OwnedMutexGuard<T>, Alias<Mutex<T>>);

impl<T: ?Sized> OwnedMutexGuard<T> {
    fn new(guard: tokio::sync::OwnedMutexGuard<T>) -> Self {
        let mutex = tokio::sync::OwnedMutexGuard::mutex(&guard);
        // SAFETY: the guard keeps its `Arc`. Both are in the same struct, and a method that takes
        // the guard out drops the alias.
        let mutex = unsafe { Alias::of(mutex) };
        Self(guard, mutex)
    }

    /// Converts the guard into a guard of a component of the value.
    ///
    /// This is an associated function, called as `OwnedMutexGuard::map(guard, …)`: a method would
    /// hide a method of the value.
    pub fn map<U, F>(this: Self, f: F) -> OwnedMappedMutexGuard<T, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        tokio::sync::OwnedMutexGuard::map(this.0, f)
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<U, F>(this: Self, f: F) -> Result<OwnedMappedMutexGuard<T, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        tokio::sync::OwnedMutexGuard::try_map(this.0, f).map_err(Self::new)
    }

    /// Returns a reference to the `Arc` of the guard's mutex.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// use std::sync::Arc;
    /// use volt::sync::{Mutex, OwnedMutexGuard};
    ///
    /// let counter = Arc::new(Mutex::new(1));
    /// let guard = counter.clone().lock_owned().await;
    /// assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&guard), &counter));
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn mutex(this: &Self) -> &Arc<Mutex<T>> {
        this.1.get()
    }
}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized + Display> Display for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
