//! Conversions between Volt's types and the Tokio types that they wrap, behind `Arc`s.

use std::sync::Arc;

/// A transparent wrapper of a Tokio type.
///
/// # Safety
/// The type is `repr(transparent)` over `Inner`, and the method only changes the type of the
/// pointer.
pub(super) unsafe trait Wrapper {
    /// The Tokio type.
    type Inner: ?Sized;

    /// Changes the type of a pointer to the wrapped type.
    fn to_inner(wrapper: *const Self) -> *const Self::Inner;
}

/// Converts an `Arc` of a wrapper into an `Arc` of the wrapped type, with the same count.
pub(super) fn unwrap_arc<W: Wrapper + ?Sized>(wrapper: Arc<W>) -> Arc<W::Inner> {
    let inner = W::to_inner(Arc::into_raw(wrapper));
    // SAFETY: the pointer comes from `into_raw`, and a transparent wrapper has the same size and
    // alignment as the wrapped type.
    unsafe { Arc::from_raw(inner) }
}

/// Implements [`Wrapper`] for a tuple struct that is `repr(transparent)`.
macro_rules! impl_wrapper {
    ([$($generics:tt)*] $wrapper:ty, $inner:ty) => {
        // SAFETY: the type is `repr(transparent)` over the inner type, where it is defined, and
        // casts do not change a pointer's address and metadata.
        unsafe impl<$($generics)*> $crate::sync::wrapper::Wrapper for $wrapper {
            type Inner = $inner;

            fn to_inner(wrapper: *const Self) -> *const Self::Inner {
                wrapper as *const Self::Inner
            }
        }
    };
}
pub(super) use impl_wrapper;

/// Implements `Debug` for tuple structs as their first field does, so that the output is Tokio's.
macro_rules! impl_debug {
    ($([$($generics:tt)*] $type:ty),+ $(,)?) => {
        $(impl<$($generics)*> std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        })+
    };
}
pub(super) use impl_debug;
