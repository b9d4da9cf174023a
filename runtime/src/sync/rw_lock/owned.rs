//! The guards that contain an `Arc` of their lock.

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use super::RwLock;
use super::lock::Access;
use crate::sync::guard::impl_guard;

/// A guard for shared access that contains an `Arc` of its [`RwLock`]. Returned by
/// [`RwLock::read_owned`]. `U` is the part of the value that the guard gives access to.
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockReadGuard<T: ?Sized, U: ?Sized = T> {
    part: *const U,
    lock: Arc<RwLock<T>>,
}

/// A guard for exclusive access that contains an `Arc` of its [`RwLock`]. Returned by
/// [`RwLock::write_owned`].
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockWriteGuard<T: ?Sized> {
    lock: Arc<RwLock<T>>,
}

/// A guard for exclusive access to a component of the value, which contains an `Arc` of its
/// [`RwLock`]. Returned by [`OwnedRwLockWriteGuard::map`].
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockMappedWriteGuard<T: ?Sized, U: ?Sized = T> {
    part: *mut U,
    lock: Arc<RwLock<T>>,
}

// SAFETY: the guard is a shared reference to the component, and an `Arc` of the lock.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Sync> Send for OwnedRwLockReadGuard<T, U> {}
// SAFETY: as above; Tokio's guard also requires that the component is Send.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Send + Sync> Sync for OwnedRwLockReadGuard<T, U> {}
// SAFETY: the guard is an exclusive reference to the component, and an `Arc` of the lock.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Send + Sync> Send for OwnedRwLockMappedWriteGuard<T, U> {}
// SAFETY: a shared guard gives shared access to the component only.
unsafe impl<T: ?Sized + Send + Sync, U: ?Sized + Send + Sync> Sync for OwnedRwLockMappedWriteGuard<T, U> {}

impl<T: ?Sized> OwnedRwLockReadGuard<T> {
    /// The caller has acquired the lock for shared access.
    pub(super) fn new(lock: Arc<RwLock<T>>) -> Self {
        Self { part: lock.value.get(), lock }
    }
}

impl<T: ?Sized, U: ?Sized> OwnedRwLockReadGuard<T, U> {
    /// Returns the `Arc`, without releasing the lock.
    fn into_arc(self) -> Arc<RwLock<T>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the guard is not dropped, so its `Arc` is moved out once.
        unsafe { ptr::read(&this.lock) }
    }

    /// Converts the guard into a guard of a component of the value.
    ///
    /// This is an associated function, called as `OwnedRwLockReadGuard::map(guard, …)`: a method
    /// would hide a method of the value.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// use volt::sync::{OwnedRwLockReadGuard, RwLock};
    ///
    /// let prices = std::sync::Arc::new(RwLock::new(vec![1, 2]));
    /// let first = OwnedRwLockReadGuard::map(prices.read_owned().await, |prices| &prices[0]);
    /// assert_eq!(*first, 1);
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn map<F, V: ?Sized>(this: Self, f: F) -> OwnedRwLockReadGuard<T, V>
    where
        F: FnOnce(&U) -> &V,
    {
        let part: *const _ = f(&this);
        OwnedRwLockReadGuard { part, lock: this.into_arc() }
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, V: ?Sized>(this: Self, f: F) -> Result<OwnedRwLockReadGuard<T, V>, Self>
    where
        F: FnOnce(&U) -> Option<&V>,
    {
        let Some(part) = f(&this).map(ptr::from_ref) else { return Err(this) };
        Ok(OwnedRwLockReadGuard { part, lock: this.into_arc() })
    }

    /// Returns a reference to the `Arc` of the guard's lock.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        &this.lock
    }
}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    /// The caller has acquired the lock for exclusive access.
    pub(super) fn new(lock: Arc<RwLock<T>>) -> Self {
        Self { lock }
    }

    /// Returns the `Arc`, without releasing the lock.
    fn into_arc(self) -> Arc<RwLock<T>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the guard is not dropped, so its `Arc` is moved out once.
        unsafe { ptr::read(&this.lock) }
    }

    /// Converts the guard into a guard of a component of the value.
    ///
    /// This is an associated function, called as `OwnedRwLockWriteGuard::map(guard, …)`: a method
    /// would hide a method of the value.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// use volt::sync::{OwnedRwLockWriteGuard, RwLock};
    ///
    /// let prices = std::sync::Arc::new(RwLock::new(vec![1, 2]));
    /// let guard = prices.clone().write_owned().await;
    /// *OwnedRwLockWriteGuard::map(guard, |prices| &mut prices[0]) = 5;
    /// assert_eq!(*prices.read().await, [5, 2]);
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn map<F, U: ?Sized>(mut this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, U>
    where
        F: FnOnce(&mut T) -> &mut U,
    {
        let part: *mut _ = f(&mut this);
        OwnedRwLockMappedWriteGuard { part, lock: this.into_arc() }
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, U: ?Sized>(mut this: Self, f: F) -> Result<OwnedRwLockMappedWriteGuard<T, U>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        let Some(part) = f(&mut this).map(ptr::from_mut) else { return Err(this) };
        Ok(OwnedRwLockMappedWriteGuard { part, lock: this.into_arc() })
    }

    /// Converts the guard into a guard for shared access to a component of the value. No writer can
    /// lock in between.
    pub fn downgrade_map<F, U: ?Sized>(this: Self, f: F) -> OwnedRwLockReadGuard<T, U>
    where
        F: FnOnce(&T) -> &U,
    {
        let part: *const _ = f(&this);
        this.downgraded(part)
    }

    /// Converts the guard like [`downgrade_map`](Self::downgrade_map), if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_downgrade_map<F, U: ?Sized>(this: Self, f: F) -> Result<OwnedRwLockReadGuard<T, U>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        let Some(part) = f(&this).map(ptr::from_ref) else { return Err(this) };
        Ok(this.downgraded(part))
    }

    /// Converts the guard into a mapped guard of the whole value.
    pub fn into_mapped(this: Self) -> OwnedRwLockMappedWriteGuard<T> {
        let lock = this.into_arc();
        OwnedRwLockMappedWriteGuard { part: lock.value.get(), lock }
    }

    /// Converts the guard into a guard for shared access. No writer can lock in between.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// let prices = std::sync::Arc::new(volt::sync::RwLock::new(vec![1, 2]));
    /// let mut guard = prices.clone().write_owned().await;
    /// guard.push(3);
    /// let guard = guard.downgrade();
    /// assert_eq!(*guard, *prices.read().await);
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn downgrade(self) -> OwnedRwLockReadGuard<T> {
        let part = self.lock.value.get();
        self.downgraded(part)
    }

    fn downgraded<U: ?Sized>(self, part: *const U) -> OwnedRwLockReadGuard<T, U> {
        let lock = self.into_arc();
        lock.lock.downgrade();
        OwnedRwLockReadGuard { part, lock }
    }

    /// Returns a reference to the `Arc` of the guard's lock.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        &this.lock
    }
}

impl<T: ?Sized, U: ?Sized> OwnedRwLockMappedWriteGuard<T, U> {
    /// Returns the `Arc`, without releasing the lock.
    fn into_arc(self) -> Arc<RwLock<T>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the guard is not dropped, so its `Arc` is moved out once.
        unsafe { ptr::read(&this.lock) }
    }

    /// Converts the guard into a guard of a component of its part of the value; see
    /// [`OwnedRwLockWriteGuard::map`].
    pub fn map<F, V: ?Sized>(mut this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, V>
    where
        F: FnOnce(&mut U) -> &mut V,
    {
        let part: *mut _ = f(&mut this);
        OwnedRwLockMappedWriteGuard { part, lock: this.into_arc() }
    }

    /// Converts the guard into a guard of a component of its part of the value, if `f` returns
    /// `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, V: ?Sized>(mut this: Self, f: F) -> Result<OwnedRwLockMappedWriteGuard<T, V>, Self>
    where
        F: FnOnce(&mut U) -> Option<&mut V>,
    {
        let Some(part) = f(&mut this).map(ptr::from_mut) else { return Err(this) };
        Ok(OwnedRwLockMappedWriteGuard { part, lock: this.into_arc() })
    }

    /// Returns a reference to the `Arc` of the guard's lock.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        &this.lock
    }
}

impl_guard!(
    shared [T: ?Sized, U: ?Sized] OwnedRwLockReadGuard<T, U>, U, this, this.part, this.lock.lock.release(Access::Read)
);
impl_guard!(
    exclusive [T: ?Sized] OwnedRwLockWriteGuard<T>, T, this, this.lock.value.get(), this.lock.lock.release(Access::Write)
);
impl_guard!(
    exclusive [T: ?Sized, U: ?Sized] OwnedRwLockMappedWriteGuard<T, U>,
    U, this, this.part, this.lock.lock.release(Access::Write)
);
