//! Calling code of the user's where nobody is left who could be told of its panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls `f`. If it panics nothing comes of it but what the panic hook prints; a payload whose destructor panics as well is leaked.
pub(crate) fn contain(f: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(f))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics when dropped, with another of its kind.
    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn a_payload_that_panics_when_it_is_dropped_is_contained_too() {
        contain(|| std::panic::panic_any(Bomb(3)));
    }
}
