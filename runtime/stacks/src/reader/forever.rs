//! A value that is created once and never freed, so that a signal handler can read it at any time.
//!
//! Writer: the first thread that calls `get_or_put`. Readers: all threads, including their signal
//! handlers, by one load.
//!
//! # Invariant
//!
//! FOR-EVER: the pointer is null at first. Once set, for the rest of the program, it points to a
//! value that is neither changed nor freed.
//!
//! # Rejected alternative
//!
//! `OnceLock`: a child that was forked while another thread created the value would wait forever.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// See the module documentation.
pub(super) struct Forever<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Forever<T> {
    pub(super) const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// Returns the value, if it was created.
    pub(super) fn get(&self) -> Option<&'static T> {
        // ORDERING: Acquire; pairs with the Release in `get_or_put`, publishes the value.
        let found = self.0.load(Ordering::Acquire);
        // SAFETY: FOR-EVER.
        unsafe { found.as_ref() }
    }

    /// Stores `value`, unless there is a value already. Returns the stored value.
    pub(super) fn get_or_put(&self, value: T) -> &'static T {
        let made = Box::into_raw(Box::new(value));
        // ORDERING: Release; pairs with the Acquire in `get`. Acquire on failure; pairs with the
        // Release of the thread that stored the value.
        match self.0.compare_exchange(ptr::null_mut(), made, Ordering::Release, Ordering::Acquire) {
            // SAFETY: FOR-EVER, from now on.
            Ok(_) => unsafe { &*made },
            Err(found) => {
                // SAFETY: allocated above, and not published to any other thread.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: FOR-EVER; not null, since the exchange failed.
                unsafe { &*found }
            }
        }
    }
}
