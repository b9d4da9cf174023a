//! The guards that contain an `Arc` of their lock.

use std::fmt::{self, Debug, Display};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::RwLock;
use crate::sync::wrapper::{Alias, impl_debug};

/// A guard for shared access that contains an `Arc` of its [`RwLock`]. Returned by
/// [`RwLock::read_owned`]. `U` is the part of the value that the guard gives access to.
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockReadGuard<T: ?Sized, U: ?Sized = T>(tokio::sync::OwnedRwLockReadGuard<T, U>, Alias<RwLock<T>>);

/// A guard for exclusive access that contains an `Arc` of its [`RwLock`]. Returned by
/// [`RwLock::write_owned`].
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockWriteGuard<T: ?Sized>(tokio::sync::OwnedRwLockWriteGuard<T>, Alias<RwLock<T>>);

/// A guard for exclusive access to a component of the value, which contains an `Arc` of its
/// [`RwLock`]. Returned by [`OwnedRwLockWriteGuard::map`].
#[must_use = "if unused, the lock is released immediately"]
#[clippy::has_significant_drop]
pub struct OwnedRwLockMappedWriteGuard<T: ?Sized, U: ?Sized = T>(
    tokio::sync::OwnedRwLockMappedWriteGuard<T, U>,
    Alias<RwLock<T>>,
);

impl_debug!(
    [T: ?Sized, U: ?Sized + Debug] OwnedRwLockReadGuard<T, U>,
    [T: ?Sized + Debug] OwnedRwLockWriteGuard<T>,
    [T: ?Sized, U: ?Sized + Debug] OwnedRwLockMappedWriteGuard<T, U>,
);

impl<T: ?Sized, U: ?Sized> OwnedRwLockReadGuard<T, U> {
    pub(super) fn new(guard: tokio::sync::OwnedRwLockReadGuard<T, U>) -> Self {
        let lock = tokio::sync::OwnedRwLockReadGuard::rwlock(&guard);
        // SAFETY: the guard keeps its `Arc`. Both are in the same struct, and a method that takes
        // the guard out drops the alias.
        let lock = unsafe { Alias::of(lock) };
        Self(guard, lock)
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
        OwnedRwLockReadGuard::new(tokio::sync::OwnedRwLockReadGuard::map(this.0, f))
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, V: ?Sized>(this: Self, f: F) -> Result<OwnedRwLockReadGuard<T, V>, Self>
    where
        F: FnOnce(&U) -> Option<&V>,
    {
        let mapped = tokio::sync::OwnedRwLockReadGuard::try_map(this.0, f);
        mapped.map(OwnedRwLockReadGuard::new).map_err(Self::new)
    }

    /// Returns a reference to the `Arc` of the guard's lock.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.1.get()
    }
}

impl<T: ?Sized> OwnedRwLockWriteGuard<T> {
    pub(super) fn new(guard: tokio::sync::OwnedRwLockWriteGuard<T>) -> Self {
        let lock = tokio::sync::OwnedRwLockWriteGuard::rwlock(&guard);
        // SAFETY: as in `OwnedRwLockReadGuard::new`.
        let lock = unsafe { Alias::of(lock) };
        Self(guard, lock)
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
    pub fn map<F, U: ?Sized>(this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, U>
    where
        F: FnOnce(&mut T) -> &mut U,
    {
        OwnedRwLockMappedWriteGuard::new(tokio::sync::OwnedRwLockWriteGuard::map(this.0, f))
    }

    /// Converts the guard into a guard of a component of the value, if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, U: ?Sized>(this: Self, f: F) -> Result<OwnedRwLockMappedWriteGuard<T, U>, Self>
    where
        F: FnOnce(&mut T) -> Option<&mut U>,
    {
        let mapped = tokio::sync::OwnedRwLockWriteGuard::try_map(this.0, f);
        mapped.map(OwnedRwLockMappedWriteGuard::new).map_err(Self::new)
    }

    /// Converts the guard into a guard for shared access to a component of the value. No writer can
    /// lock in between.
    pub fn downgrade_map<F, U: ?Sized>(this: Self, f: F) -> OwnedRwLockReadGuard<T, U>
    where
        F: FnOnce(&T) -> &U,
    {
        OwnedRwLockReadGuard::new(tokio::sync::OwnedRwLockWriteGuard::downgrade_map(this.0, f))
    }

    /// Converts the guard like [`downgrade_map`](Self::downgrade_map), if `f` returns `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_downgrade_map<F, U: ?Sized>(this: Self, f: F) -> Result<OwnedRwLockReadGuard<T, U>, Self>
    where
        F: FnOnce(&T) -> Option<&U>,
    {
        let mapped = tokio::sync::OwnedRwLockWriteGuard::try_downgrade_map(this.0, f);
        mapped.map(OwnedRwLockReadGuard::new).map_err(Self::new)
    }

    /// Converts the guard into a mapped guard of the whole value.
    pub fn into_mapped(this: Self) -> OwnedRwLockMappedWriteGuard<T> {
        OwnedRwLockMappedWriteGuard::new(tokio::sync::OwnedRwLockWriteGuard::into_mapped(this.0))
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
        OwnedRwLockReadGuard::new(self.0.downgrade())
    }

    /// Returns a reference to the `Arc` of the guard's lock.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.1.get()
    }
}

impl<T: ?Sized, U: ?Sized> OwnedRwLockMappedWriteGuard<T, U> {
    fn new(guard: tokio::sync::OwnedRwLockMappedWriteGuard<T, U>) -> Self {
        let lock = tokio::sync::OwnedRwLockMappedWriteGuard::rwlock(&guard);
        // SAFETY: as in `OwnedRwLockReadGuard::new`.
        let lock = unsafe { Alias::of(lock) };
        Self(guard, lock)
    }

    /// Converts the guard into a guard of a component of its part of the value; see
    /// [`OwnedRwLockWriteGuard::map`].
    pub fn map<F, V: ?Sized>(this: Self, f: F) -> OwnedRwLockMappedWriteGuard<T, V>
    where
        F: FnOnce(&mut U) -> &mut V,
    {
        OwnedRwLockMappedWriteGuard::new(tokio::sync::OwnedRwLockMappedWriteGuard::map(this.0, f))
    }

    /// Converts the guard into a guard of a component of its part of the value, if `f` returns
    /// `Some`.
    ///
    /// # Errors
    /// Returns the guard if `f` returns `None`.
    pub fn try_map<F, V: ?Sized>(this: Self, f: F) -> Result<OwnedRwLockMappedWriteGuard<T, V>, Self>
    where
        F: FnOnce(&mut U) -> Option<&mut V>,
    {
        let mapped = tokio::sync::OwnedRwLockMappedWriteGuard::try_map(this.0, f);
        mapped.map(OwnedRwLockMappedWriteGuard::new).map_err(Self::new)
    }

    /// Returns a reference to the `Arc` of the guard's lock.
    pub fn rwlock(this: &Self) -> &Arc<RwLock<T>> {
        this.1.get()
    }
}

impl<T: ?Sized, U: ?Sized> Deref for OwnedRwLockReadGuard<T, U> {
    type Target = U;

    fn deref(&self) -> &U {
        &self.0
    }
}

impl<T: ?Sized> Deref for OwnedRwLockWriteGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> DerefMut for OwnedRwLockWriteGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: ?Sized, U: ?Sized> Deref for OwnedRwLockMappedWriteGuard<T, U> {
    type Target = U;

    fn deref(&self) -> &U {
        &self.0
    }
}

impl<T: ?Sized, U: ?Sized> DerefMut for OwnedRwLockMappedWriteGuard<T, U> {
    fn deref_mut(&mut self) -> &mut U {
        &mut self.0
    }
}

impl<T: ?Sized, U: ?Sized + Display> Display for OwnedRwLockReadGuard<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized + Display> Display for OwnedRwLockWriteGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: ?Sized, U: ?Sized + Display> Display for OwnedRwLockMappedWriteGuard<T, U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
