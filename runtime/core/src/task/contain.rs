//! Calls user code in places where no caller could receive its panic: destructors, callbacks of the
//! program, subscribers of the log.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many nested payloads are dropped, if the destructor of each panics with another, before the
/// next one is leaked.
const MAX_PAYLOADS: usize = 8;

/// Calls `f`. If it panics, only the panic hook reports the panic.
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

    /// Panics with another `Bomb` when dropped.
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
