//! The code that the guards of all locks have in common: access to the value, and the release.

/// Implements access to the value, and the release, for a guard. `$value` is the path from the
/// guard to a pointer to the value, and `$release` the call that releases the lock. An `exclusive`
/// guard also gives exclusive access.
///
/// The access relies on the invariant *Guarded* of the module that uses the macro.
macro_rules! impl_guard {
    (exclusive [$($generics:tt)*] $guard:ty, $target:ident, $this:ident, $value:expr, $release:expr) => {
        impl<$($generics)*> ::std::ops::DerefMut for $guard {
            fn deref_mut(&mut self) -> &mut $target {
                let $this = self;
                // SAFETY: Guarded, and the guard is borrowed exclusively.
                unsafe { &mut *$value }
            }
        }

        impl_guard!(shared [$($generics)*] $guard, $target, $this, $value, $release);
    };
    (shared [$($generics:tt)*] $guard:ty, $target:ident, $this:ident, $value:expr, $release:expr) => {
        impl<$($generics)*> Drop for $guard {
            fn drop(&mut self) {
                let $this = self;
                $release;
            }
        }

        impl<$($generics)*> ::std::ops::Deref for $guard {
            type Target = $target;

            fn deref(&self) -> &$target {
                let $this = self;
                // SAFETY: Guarded.
                unsafe { &*$value }
            }
        }

        impl<$($generics)*> ::std::fmt::Debug for $guard where $target: ::std::fmt::Debug {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Debug::fmt(&**self, f)
            }
        }

        impl<$($generics)*> ::std::fmt::Display for $guard where $target: ::std::fmt::Display {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(&**self, f)
            }
        }
    };
}
pub(super) use impl_guard;
