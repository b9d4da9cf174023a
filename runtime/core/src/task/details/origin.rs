//! The origin of a task in one word: its spawn location, or, for the few tasks with a name or a
//! span, a box with the location, the name and the spans.
//!
//! Shape: a pointer to a `Location`, with the lowest bit clear, or a pointer to an [`Extra`], with
//! the lowest bit set. It is immutable, and any owner of a reference to the task may read it.

use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;

/// The longest name of a task or a runtime, in bytes. Longer task names are cut, longer runtime
/// names refused.
pub(crate) const MAX_NAME_BYTES: usize = 64;
const IS_EXTRA: usize = 1;
const _: () = assert!(align_of::<Location<'static>>() > IS_EXTRA && align_of::<Extra>() > IS_EXTRA);

/// The name and the spans of a task.
pub struct Extra {
    pub(crate) location: &'static Location<'static>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) span: tracing::Span,
    /// The span that tokio-console treats as the task.
    pub(crate) console: tracing::Span,
}

/// The origin of a task. See the module documentation.
pub(crate) struct Origin {
    pointer: NonNull<()>,
    _owned: PhantomData<Box<Extra>>,
}

// SAFETY: it is a box of a Send type, or a shared reference to a Sync type.
unsafe impl Send for Origin {}
// SAFETY: it only returns shared references to Sync types.
unsafe impl Sync for Origin {}

impl Origin {
    /// Creates an origin. `extra`, if there is one, contains the location, too.
    pub(crate) fn new(location: &'static Location<'static>, extra: Option<Box<Extra>>) -> Self {
        let pointer = match extra {
            None => NonNull::from(location).cast(),
            Some(extra) => NonNull::from(Box::leak(extra)).cast().map_addr(|addr| addr | IS_EXTRA),
        };
        Self { pointer, _owned: PhantomData }
    }

    /// Returns the pointer to the box, if there is one.
    #[inline]
    fn boxed(&self) -> Option<NonNull<Extra>> {
        let addr = self.pointer.addr().get();
        if addr & IS_EXTRA == 0 {
            return None;
        }
        std::num::NonZero::new(addr & !IS_EXTRA).map(|untagged| self.pointer.with_addr(untagged).cast())
    }

    #[inline]
    pub(crate) fn extra(&self) -> Option<&Extra> {
        // SAFETY: the tag shows that `new` made the pointer from a box, which lives as long as
        // `self`.
        self.boxed().map(|extra| unsafe { extra.as_ref() })
    }

    #[inline]
    pub(crate) fn location(&self) -> &'static Location<'static> {
        if self.pointer.addr().get() & IS_EXTRA == 0 {
            // SAFETY: without the tag, `new` made the pointer from a `&'static Location`.
            return unsafe { self.pointer.cast().as_ref() };
        }
        self.extra().expect("it has the tag").location
    }
}

impl Drop for Origin {
    #[inline]
    fn drop(&mut self) {
        if let Some(extra) = self.boxed() {
            // SAFETY: `new` made the pointer from a box, and it is not used after this.
            drop(unsafe { Box::from_raw(extra.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_origin_return_the_parts_they_were_made_of() {
        let here = Location::caller();
        let plain = Origin::new(here, None);
        assert!(plain.extra().is_none());
        assert_eq!(plain.location(), here);
        let extra = Extra {
            location: here,
            name: Some("n".into()),
            span: tracing::Span::none(),
            console: tracing::Span::none(),
        };
        let named = Origin::new(here, Some(Box::new(extra)));
        assert_eq!(named.extra().unwrap().name.as_deref(), Some("n"));
        assert_eq!(named.location(), here);
        assert_eq!(size_of::<Origin>(), size_of::<usize>());
    }
}
