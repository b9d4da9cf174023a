//! Panics of the libraries that read debug information and unwind tables.
//!
//! The resolver of stacks catches them, and then reports that a stack cannot be read; see
//! `volt_stacks::Resolver`. With overflow checks, which release builds do not have, gimli panics on
//! some damaged tables. The targets therefore catch such a panic as the resolver does. A panic
//! anywhere else is a find.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

/// The libraries, by the names of their packages.
const LIBRARIES: [&str; 5] = ["framehop", "gimli", "object", "flate2", "miniz_oxide"];

/// Runs `read`. Returns `None` if a library panicked.
pub fn caught<T>(read: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        // The hook of libFuzzer, which ends the process.
        let end = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            let file = panic.location().map_or("", |location| location.file());
            if !LIBRARIES.iter().any(|library| file.contains(&format!("/{library}-"))) {
                end(panic);
            }
        }));
    });
    panic::catch_unwind(AssertUnwindSafe(read)).ok()
}
