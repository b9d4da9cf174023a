//! The guards that borrow their lock.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ptr;

use super::RwLock;
use super::lock::{Access, SharedLock};
use crate::sync::guard::impl_guard;

/// A guard for shared access that releases its [`RwLock`] when it is dropped. Returned by
/// [`RwLock::read`].
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a SharedLock,
    part: *const T,
    _shared: PhantomData<&'a T>,
}

/// A guard for exclusive access that releases its [`RwLock`] when it is dropped. Returned by
/// [`RwLock::write`].
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

/// A guard for exclusive access to a component of the value of an [`RwLock`], which releases the
/// lock when it is dropped. Returned by [`RwLockWriteGuard::map`].
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct RwLockMappedWriteGuard<'a, T: ?Sized> {
    lock: &'a SharedLock,
    part: *mut T,
    _exclusive: PhantomData<&'a mut T>,
}

// SAFETY: the guard is a shared reference to the value or its component.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: as above; Tokio's guard also requires Send.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: the guard is an exclusive reference to the component, and may be turned into shared ones.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockMappedWriteGuard<'_, T> {}
// SAFETY: a shared guard gives shared access to the component only.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockMappedWriteGuard<'_, T> {}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// The caller has acquired the lock for shared access.
    pub(super) fn new(lock: &'a RwLock<T>) -> Self {
        Self { lock: &lock.lock, part: lock.value.get(), _shared: PhantomData }
    }

    /// Converts the guard into a guard of a component of the value.
    ///
    /// This is an associated function, called as `RwLockReadGuard::map(guard, …)`: a method would
    /// hide a method of the value.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// use volt::sync::{RwLock, RwLockReadGuard};
    ///
    /// let prices = RwLock::new(vec![1, 2]);
    /// let first = RwLockReadGuard::map(prices.read().await, |prices| &prices[0]);
    /// assert_eq!(*first, 1);
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn map<F, U: ?Sized>(this: Self, f: F) -> RwLockReadGuard<'a, U>
    where
        F: FnOnce(&T) -> &U,
    {
        let part: *const _ = f(&this);
        RwLockReadGuard { lock: ManuallyDrop::new(this).lock, part, _shared: PhantomData }
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, U: ?Sized>(this: Self, f: F) -> Result<RwLockReadGuard<'a, U>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        let Some(part) = f(&this).map(ptr::from_ref) else { return Err(this) };
        Ok(RwLockReadGuard { lock: ManuallyDrop::new(this).lock, part, _shared: PhantomData })
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// The caller has acquired the lock for exclusive access.
    pub(super) fn new(lock: &'a RwLock<T>) -> Self {
        Self { lock }
    }

    /// Returns the lock, without releasing it.
    fn into_lock(self) -> &'a RwLock<T> {
        ManuallyDrop::new(self).lock
    }

    /// Converts the guard into a guard of a component of the value.
    ///
    /// This is an associated function, called as `RwLockWriteGuard::map(guard, …)`: a method would
    /// hide a method of the value.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// use volt::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let prices = RwLock::new(vec![1, 2]);
    /// *RwLockWriteGuard::map(prices.write().await, |prices| &mut prices[0]) = 5;
    /// assert_eq!(*prices.read().await, [5, 2]);
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn map<F, U: ?Sized>(mut this: Self, f: F) -> RwLockMappedWriteGuard<'a, U>
    where
        F: FnOnce(&mut T) -> &mut U,
    {
        let part: *mut _ = f(&mut this);
        RwLockMappedWriteGuard { lock: &this.into_lock().lock, part, _exclusive: PhantomData }
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, U: ?Sized>(mut this: Self, f: F) -> Result<RwLockMappedWriteGuard<'a, U>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        let Some(part) = f(&mut this).map(ptr::from_mut) else { return Err(this) };
        Ok(RwLockMappedWriteGuard { lock: &this.into_lock().lock, part, _exclusive: PhantomData })
    }

    /// Converts the guard into a guard for shared access to a component of the value. No writer can
    /// lock in between.
    pub fn downgrade_map<F, U: ?Sized>(this: Self, f: F) -> RwLockReadGuard<'a, U>
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
    pub fn try_downgrade_map<F, U: ?Sized>(this: Self, f: F) -> Result<RwLockReadGuard<'a, U>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        let Some(part) = f(&this).map(ptr::from_ref) else { return Err(this) };
        Ok(this.downgraded(part))
    }

    /// Converts the guard into a mapped guard of the whole value.
    pub fn into_mapped(this: Self) -> RwLockMappedWriteGuard<'a, T> {
        let lock = this.into_lock();
        RwLockMappedWriteGuard { lock: &lock.lock, part: lock.value.get(), _exclusive: PhantomData }
    }

    /// Converts the guard into a guard for shared access. No writer can lock in between.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// let prices = volt::sync::RwLock::new(vec![1, 2]);
    /// let mut guard = prices.write().await;
    /// guard.push(3);
    /// let guard = guard.downgrade();
    /// assert_eq!(*guard, *prices.read().await);
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub fn downgrade(self) -> RwLockReadGuard<'a, T> {
        let part = self.lock.value.get();
        self.downgraded(part)
    }

    fn downgraded<U: ?Sized>(self, part: *const U) -> RwLockReadGuard<'a, U> {
        let lock = &self.into_lock().lock;
        lock.downgrade();
        RwLockReadGuard { lock, part, _shared: PhantomData }
    }
}

impl<'a, T: ?Sized> RwLockMappedWriteGuard<'a, T> {
    /// Converts the guard into a guard of a component of its component; see
    /// [`RwLockWriteGuard::map`].
    pub fn map<F, U: ?Sized>(mut this: Self, f: F) -> RwLockMappedWriteGuard<'a, U>
    where
        F: FnOnce(&mut T) -> &mut U,
    {
        let part: *mut _ = f(&mut this);
        RwLockMappedWriteGuard { lock: ManuallyDrop::new(this).lock, part, _exclusive: PhantomData }
    }

    /// Converts the guard into a guard of a component of its component, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, U: ?Sized>(mut this: Self, f: F) -> Result<RwLockMappedWriteGuard<'a, U>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        let Some(part) = f(&mut this).map(ptr::from_mut) else { return Err(this) };
        Ok(RwLockMappedWriteGuard { lock: ManuallyDrop::new(this).lock, part, _exclusive: PhantomData })
    }
}

impl_guard!(shared ['a, T: ?Sized] RwLockReadGuard<'a, T>, T, this, this.part, this.lock.release(Access::Read));
impl_guard!(
    exclusive ['a, T: ?Sized] RwLockWriteGuard<'a, T>, T, this, this.lock.value.get(), this.lock.lock.release(Access::Write)
);
impl_guard!(
    exclusive ['a, T: ?Sized] RwLockMappedWriteGuard<'a, T>, T, this, this.part, this.lock.release(Access::Write)
);
