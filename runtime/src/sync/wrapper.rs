//! Conversions between Volt's types and the Tokio types that they wrap, behind references and
//! `Arc`s.

use std::mem::ManuallyDrop;
use std::sync::Arc;

/// A transparent wrapper of a Tokio type.
///
/// # Safety
/// The type is `repr(transparent)` over `Inner`, and both methods only change the type of the
/// pointer.
pub(super) unsafe trait Wrapper {
    /// The Tokio type.
    type Inner: ?Sized;

    /// Changes the type of a pointer to the wrapped type.
    fn to_inner(wrapper: *const Self) -> *const Self::Inner;

    /// Changes the type of a pointer to this type.
    fn from_inner(inner: *const Self::Inner) -> *const Self;
}

/// Converts an `Arc` of a wrapper into an `Arc` of the wrapped type, with the same count.
pub(super) fn unwrap_arc<W: Wrapper + ?Sized>(wrapper: Arc<W>) -> Arc<W::Inner> {
    let inner = W::to_inner(Arc::into_raw(wrapper));
    // SAFETY: the pointer comes from `into_raw`, and a transparent wrapper has the same size and
    // alignment as the wrapped type.
    unsafe { Arc::from_raw(inner) }
}

/// An `Arc` of a wrapper that borrows its count from an `Arc` of the wrapped type.
///
/// Tokio's owned guards contain an `Arc` of Tokio's type. An alias beside it lets Volt's guards
/// return a reference to an `Arc` of Volt's type. Creating and dropping it does not touch the
/// count.
pub(super) struct Alias<W: ?Sized>(ManuallyDrop<Arc<W>>);

impl<W: Wrapper + ?Sized> Alias<W> {
    /// Creates an alias of `inner`.
    ///
    /// # Safety
    /// Until the last use of the alias, an `Arc` of the same allocation must exist: `inner` itself,
    /// or one that it was moved into.
    pub(super) unsafe fn of(inner: &Arc<W::Inner>) -> Self {
        let wrapper = W::from_inner(Arc::as_ptr(inner));
        // SAFETY: the pointer is that of an `Arc` of a type with the same size and alignment, which
        // the caller keeps alive. The count is not changed: `ManuallyDrop` never gives back the
        // one that was not taken here.
        let wrapper = unsafe { Arc::from_raw(wrapper) };
        Self(ManuallyDrop::new(wrapper))
    }

    /// Returns the `Arc`, whose clones are counted as usual.
    pub(super) fn get(&self) -> &Arc<W> {
        &self.0
    }
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

            fn from_inner(inner: *const Self::Inner) -> *const Self {
                inner as *const Self
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
