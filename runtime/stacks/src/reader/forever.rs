//! What is made once and never freed, so that a signal handler can read it at any time.
//!
//! Who writes: whoever is first. Who reads: everybody, handlers included, by one load.
//!
//! Invariant FOR-EVER: the pointer is null, and then, for the rest of the process, one to a value
//! that is not changed or freed.
//!
//! Rejected: `OnceLock`, for which a child that was forked in the midst of making the value would
//! wait for ever.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// See the header of this file.
pub(super) struct Forever<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Forever<T> {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// What is there, if it was made.
    pub(super) fn get(&self) -> Option<&'static T> {
        // ORDERING: Acquire; pairs with the Release in `get_or_put`, publishes the value.
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: FOR-EVER.
        unsafe { found.as_ref() }
    }

    /// Puts `value` there, unless something is there already. Gives what is there.
    pub(super) fn get_or_put(&self, value: T) -> &'static T {
        let made = Box::into_raw(Box::new(value));
        // ORDERING: Release; pairs with the Acquire in `get`. Acquire if it fails; pairs with the
        // Release of whoever was first.
        match self.0.compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Acquire) {
            // SAFETY: FOR-EVER, from now on.
            Ok(_) => unsafe { &*made },
            Err(found) => {
                // SAFETY: made above, and nobody has seen it.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: FOR-EVER; not null, since the exchange failed.
                unsafe { &*found }
            }
        }
    }
}
