//! Where a task comes from, in one word: the line that spawned it, or, for the few that have a name
//! or a span, a box with that line and these.
//!
//! Shape: a pointer to a `Location`, lowest bit clear; or one to an [`Extra`], lowest bit set.
//! Immutable; whoever holds the task may read it.

use std::marker::PhantomData;
use std::panic::Location;
use std::ptr::NonNull;

const IS_EXTRA: usize = 1;
const _: () = assert!(align_of::<Location<'static>>() > IS_EXTRA && align_of::<Extra>() > IS_EXTRA);

/// A task's name and spans.
pub struct Extra {
    pub(crate) location: &'static Location<'static>,
    pub(crate) name: Option<Box<str>>,
    pub(crate) span: tracing::Span,
    /// What tokio-console takes for the task.
    pub(crate) console: tracing::Span,
}

/// See the header of this file.
pub(crate) struct Origin {
    pointer: NonNull<()>,
    _owned: PhantomData<Box<Extra>>,
}

// SAFETY: it is a box of what is Send, or a shared reference to what is Sync.
unsafe impl Send for Origin {}
// SAFETY: it gives out shared references to what is Sync.
unsafe impl Sync for Origin {}

impl Origin {
    /// `extra`, if there is one, knows the location as well.
    pub(crate) fn new(location: &'static Location<'static>, extra: Option<Box<Extra>>) -> Self {
        let pointer = match extra {
            None => NonNull::from(location).cast(),
            Some(extra) => NonNull::from(Box::leak(extra)).cast().map_addr(|addr| addr | IS_EXTRA),
        };
        Self { pointer, _owned: PhantomData }
    }

    /// The pointer to the box, if it is one.
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
        // SAFETY: the tag says that `new` made the pointer from a box, which lives as long as this.
        self.boxed().map(|extra| unsafe { extra.as_ref() })
    }

    #[inline]
    pub(crate) fn location(&self) -> &'static Location<'static> {
        match self.extra() {
            Some(extra) => extra.location,
            // SAFETY: without the tag `new` made the pointer from a `&'static Location`.
            None => unsafe { self.pointer.cast().as_ref() },
        }
    }
}

impl Drop for Origin {
    #[inline]
    fn drop(&mut self) {
        if let Some(extra) = self.boxed() {
            // SAFETY: `new` took the pointer from a box, and nothing uses it after this.
            drop(unsafe { Box::from_raw(extra.as_ptr()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_give_back_what_they_were_made_of() {
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
