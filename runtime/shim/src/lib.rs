//! The atomics, cells and locks of Volt's protocols. They are those of the standard library, or
//! loom's when a model is checked (`--cfg loom`).
//!
//! Every file that has a loom model uses these types exclusively.

pub use imp::*;

#[cfg(not(loom))]
mod imp {
    pub use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use std::sync::{Arc, Condvar};

    /// Declares a `const fn`, or a plain `fn` under loom, whose atomics have no `const`
    /// constructors.
    #[macro_export]
    macro_rules! const_new {
        ($(#[$meta:meta])* $vis:vis fn $name:ident($($arguments:tt)*) -> Self $body:block) => {
            $(#[$meta])* $vis const fn $name($($arguments)*) -> Self $body
        };
    }

    /// An `UnsafeCell` with the interface of loom's, which checks accesses.
    #[derive(Debug, Default)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// Wraps `value`.
        #[inline]
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Calls `f` with a pointer for reading.
        #[inline]
        pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }

        /// Calls `f` with a pointer for writing.
        #[inline]
        pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }
}

#[cfg(loom)]
mod imp {
    pub use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
    pub use loom::sync::{Arc, Condvar};

    /// Declares a `const fn`, or a plain `fn` under loom, whose atomics have no `const`
    /// constructors.
    #[macro_export]
    macro_rules! const_new {
        ($(#[$meta:meta])* $vis:vis fn $name:ident($($arguments:tt)*) -> Self $body:block) => {
            $(#[$meta])* $vis fn $name($($arguments)*) -> Self $body
        };
    }
}

/// A lock that ignores poisoning. No such lock is held while code of the application runs, so a
/// panic never leaves the protected value half-changed.
#[derive(Debug, Default)]
pub struct Mutex<T>(Lock<T>);

#[cfg(loom)]
use loom::sync::{Mutex as Lock, MutexGuard as Guard};
#[cfg(not(loom))]
use std::sync::{Mutex as Lock, MutexGuard as Guard};

/// The guard of a [`Mutex`], as a [`Condvar`] accepts it.
pub type MutexGuard<'a, T> = Guard<'a, T>;

impl<T> Mutex<T> {
    /// Creates an unlocked lock around `value`.
    #[inline]
    pub fn new(value: T) -> Self {
        Self(Lock::new(value))
    }

    /// Takes the lock, and waits for it if necessary.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes the lock if it is free; otherwise returns `None`.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// Places a value on its own cache lines: 128 bytes, since processors fetch lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(pub T);

impl<T> std::ops::Deref for CachePadded<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}
