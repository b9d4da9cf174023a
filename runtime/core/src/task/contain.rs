//! Calling code of the user's where nobody is left who could be told of its panic.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How often a payload's destructor may panic with another payload before that one is leaked.
const MAX_PAYLOADS: usize = 8;

/// Calls `f`. If it panics nothing comes of it but what the panic hook prints.
pub fn contain(f: impl FnOnce()) {
    let Err(mut payload) = catch_unwind(AssertUnwindSafe(f)) else { return };
    for _ in 0..MAX_PAYLOADS {
        match catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            Ok(()) => return,
            Err(next) => payload = next,
        }
    }
    std::mem::forget(payload);
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
