//! An asynchronous mutex.
//!
//! Invariants:
//! * *Guarded*: each of the four guards exists only while its lock is acquired, by exactly one
//!   guard: `lock` and its variants create one, converting a guard consumes the former without
//!   dropping it, and dropping a guard releases the lock. So a guard has exclusive access to the
//!   value.
//!
//! Rejected: a wrapper of Tokio's mutex, whose guards convert into Volt's. It has no room for the
//! record of the holder that a waiting task could read, since only the owner can access the value.

use std::cell::UnsafeCell;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::ptr;
use std::sync::Arc;

use tokio::sync::TryLockError;
use volt_core::context::expect_may_block;
use volt_core::task::waits::Guard;

use super::guard::impl_guard;
use super::lock::Lock;

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
pub struct Mutex<T: ?Sized> {
    lock: Lock,
    value: UnsafeCell<T>,
}

// SAFETY: Guarded: one thread at a time has access to the value, which therefore has to be `Send`
// and not `Sync`.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// Creates a new, unlocked mutex.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self::const_new(value)
    }

    /// Creates a new, unlocked mutex in a constant context.
    pub const fn const_new(value: T) -> Self {
        Self { lock: Lock::new(), value: UnsafeCell::new(value) }
    }

    /// Consumes the mutex and returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
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
        let at = Location::caller();
        async move {
            self.lock.acquire(at, Guard::Borrowed).await;
            MutexGuard { mutex: self }
        }
    }

    /// Locks the mutex like [`lock`](Self::lock), and returns an owned guard that can be moved into
    /// a task.
    ///
    /// # Cancel safety
    /// Same as [`lock`](Self::lock).
    #[track_caller]
    pub fn lock_owned(self: Arc<Self>) -> impl Future<Output = OwnedMutexGuard<T>> {
        let at = Location::caller();
        async move {
            self.lock.acquire(at, Guard::Owned).await;
            OwnedMutexGuard { mutex: self }
        }
    }

    /// Locks the mutex if it is unlocked, without waiting.
    ///
    /// # Errors
    /// Returns an error if the mutex is locked.
    #[track_caller]
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.lock.try_acquire(Location::caller(), Guard::Borrowed).map(|()| MutexGuard { mutex: self })
    }

    /// Locks the mutex like [`try_lock`](Self::try_lock), and returns an owned guard that can be
    /// moved into a task.
    ///
    /// # Errors
    /// Returns an error if the mutex is locked.
    #[track_caller]
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        self.lock.try_acquire(Location::caller(), Guard::Owned).map(|()| OwnedMutexGuard { mutex: self })
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
        self.lock.acquire_blocking(Location::caller(), Guard::Borrowed);
        MutexGuard { mutex: self }
    }

    /// Locks the mutex like [`blocking_lock`](Self::blocking_lock), and returns an owned guard.
    ///
    /// # Panics
    /// Same as [`blocking_lock`](Self::blocking_lock).
    #[track_caller]
    pub fn blocking_lock_owned(self: Arc<Self>) -> OwnedMutexGuard<T> {
        expect_may_block("Mutex::lock_owned");
        self.lock.acquire_blocking(Location::caller(), Guard::Owned);
        OwnedMutexGuard { mutex: self }
    }

    /// Returns a mutable reference to the value.
    ///
    /// No locking takes place: the mutable borrow proves that no guard exists.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized + Debug> Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut all = f.debug_struct("Mutex");
        match self.try_lock() {
            Ok(guard) => all.field("data", &&*guard),
            Err(_) => all.field("data", &format_args!("<locked>")),
        };
        all.finish()
    }
}

/// A guard that unlocks its [`Mutex`] when it is dropped. Returned by [`Mutex::lock`].
#[must_use = "if unused, the mutex is unlocked immediately"]
#[clippy::has_significant_drop]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
}

// SAFETY: a shared guard gives shared access to the value only.
unsafe impl<T: ?Sized + Send + Sync> Sync for MutexGuard<'_, T> {}

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
    pub fn map<U, F>(mut this: Self, f: F) -> MappedMutexGuard<'a, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        let part: *mut _ = f(&mut this);
        let lock = &ManuallyDrop::new(this).mutex.lock;
        MappedMutexGuard { lock, part, _exclusive: PhantomData }
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<U, F>(mut this: Self, f: F) -> Result<MappedMutexGuard<'a, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        let Some(part) = f(&mut this).map(ptr::from_mut) else { return Err(this) };
        let lock = &ManuallyDrop::new(this).mutex.lock;
        Ok(MappedMutexGuard { lock, part, _exclusive: PhantomData })
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
        this.mutex
    }
}

/// A guard that contains an `Arc` of its [`Mutex`], and unlocks it when it is dropped. Returned by
/// [`Mutex::lock_owned`].
#[must_use = "if unused, the mutex is unlocked immediately"]
#[clippy::has_significant_drop]
pub struct OwnedMutexGuard<T: ?Sized> {
    mutex: Arc<Mutex<T>>,
}

// SAFETY: as for `MutexGuard`.
unsafe impl<T: ?Sized + Send + Sync> Sync for OwnedMutexGuard<T> {}

impl<T: ?Sized> OwnedMutexGuard<T> {
    /// Converts the guard into a guard of a component of the value.
    ///
    /// This is an associated function, called as `OwnedMutexGuard::map(guard, …)`: a method would
    /// hide a method of the value.
    pub fn map<U, F>(mut this: Self, f: F) -> OwnedMappedMutexGuard<T, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        let part: *mut _ = f(&mut this);
        OwnedMappedMutexGuard { part, mutex: this.into_arc() }
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<U, F>(mut this: Self, f: F) -> Result<OwnedMappedMutexGuard<T, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        match f(&mut this).map(ptr::from_mut) {
            Some(part) => Ok(OwnedMappedMutexGuard { part, mutex: this.into_arc() }),
            None => Err(this),
        }
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
        &this.mutex
    }

    /// Returns the `Arc`, without unlocking.
    fn into_arc(self) -> Arc<Mutex<T>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the guard is not dropped, so its `Arc` is moved out once.
        unsafe { ptr::read(&this.mutex) }
    }
}

/// A guard of a component of the value of a [`Mutex`], which unlocks it when it is dropped.
/// Returned by [`MutexGuard::map`].
#[must_use = "if unused, the mutex is unlocked immediately"]
#[clippy::has_significant_drop]
pub struct MappedMutexGuard<'a, T: ?Sized> {
    lock: &'a Lock,
    part: *mut T,
    _exclusive: PhantomData<&'a mut T>,
}

// SAFETY: the guard is an exclusive reference to the component.
unsafe impl<T: ?Sized + Send> Send for MappedMutexGuard<'_, T> {}
// SAFETY: a shared guard gives shared access to the component only.
unsafe impl<T: ?Sized + Sync> Sync for MappedMutexGuard<'_, T> {}

impl<'a, T: ?Sized> MappedMutexGuard<'a, T> {
    /// Converts the guard into a guard of a component of its component.
    pub fn map<U, F>(mut this: Self, f: F) -> MappedMutexGuard<'a, U>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> &mut U,
    {
        let part: *mut _ = f(&mut this);
        MappedMutexGuard { lock: ManuallyDrop::new(this).lock, part, _exclusive: PhantomData }
    }

    /// Converts the guard like [`map`](Self::map), if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<U, F>(mut this: Self, f: F) -> Result<MappedMutexGuard<'a, U>, Self>
    where
        U: ?Sized,
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        let Some(part) = f(&mut this).map(ptr::from_mut) else { return Err(this) };
        Ok(MappedMutexGuard { lock: ManuallyDrop::new(this).lock, part, _exclusive: PhantomData })
    }
}

/// A guard of a component of the value of a [`Mutex`], with an `Arc` of the mutex. Returned by
/// [`OwnedMutexGuard::map`].
#[must_use = "if unused, the mutex is unlocked immediately"]
#[clippy::has_significant_drop]
pub struct OwnedMappedMutexGuard<T: ?Sized, U: ?Sized = T> {
    part: *mut U,
    mutex: Arc<Mutex<T>>,
}

// SAFETY: the guard is an exclusive reference to the component, and an `Arc` of the mutex.
unsafe impl<T: ?Sized + Send, U: ?Sized + Send> Send for OwnedMappedMutexGuard<T, U> {}
// SAFETY: a shared guard gives shared access to the component only.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Send + Sync> Sync for OwnedMappedMutexGuard<T, U> {}

impl<T: ?Sized, U: ?Sized> OwnedMappedMutexGuard<T, U> {
    /// Converts the guard into a guard of a component of its component.
    pub fn map<S, F>(mut this: Self, f: F) -> OwnedMappedMutexGuard<T, S>
    where
        S: ?Sized,
        F: FnOnce(&mut U) -> &mut S,
    {
        let part: *mut _ = f(&mut this);
        OwnedMappedMutexGuard { part, mutex: this.into_arc() }
    }

    /// Converts the guard like [`map`](Self::map), if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<S, F>(mut this: Self, f: F) -> Result<OwnedMappedMutexGuard<T, S>, Self>
    where
        S: ?Sized,
        F: FnOnce(&mut U) -> Option<&mut S>,
    {
        match f(&mut this).map(ptr::from_mut) {
            Some(part) => Ok(OwnedMappedMutexGuard { part, mutex: this.into_arc() }),
            None => Err(this),
        }
    }

    /// Returns the `Arc`, without unlocking.
    fn into_arc(self) -> Arc<Mutex<T>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the guard is not dropped, so its `Arc` is moved out once.
        unsafe { ptr::read(&this.mutex) }
    }
}

impl_guard!(exclusive ['a, T: ?Sized] MutexGuard<'a, T>, T, this, this.mutex.value.get(), this.mutex.lock.release());
impl_guard!(exclusive [T: ?Sized] OwnedMutexGuard<T>, T, this, this.mutex.value.get(), this.mutex.lock.release());
impl_guard!(exclusive ['a, T: ?Sized] MappedMutexGuard<'a, T>, T, this, this.part, this.lock.release());
impl_guard!(exclusive [T: ?Sized, U: ?Sized] OwnedMappedMutexGuard<T, U>, U, this, this.part, this.mutex.lock.release());
