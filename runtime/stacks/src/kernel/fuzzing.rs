//! The entry point of the fuzz target for the texts of `/proc` and of control groups. Compiled only
//! with `cfg(fuzzing)`.

use super::{cause, cgroup, thread};

/// Parses two texts as all files that the kernel provides, and classifies the result as two samples
/// of a thread.
pub fn texts(one: &str, other: &str) {
    cgroup::parse(one, other);
    let (before, after) = (thread::parse(one), thread::parse(other));
    if let (Some(before), Some(after)) = (&before, &after) {
        cause::classify(before, after, None, None, 1_000_000);
    }
}
