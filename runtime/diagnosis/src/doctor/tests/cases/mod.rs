//! Tests of each rule: programs on which it fires, and similar ones on which it does not. All are
//! modified healthy programs.

mod case;
pub(super) mod edges;
mod others;
pub(super) mod processes;
mod queues;
pub(super) mod stalls;

use self::case::Case;

/// Returns all cases.
pub(super) fn all() -> impl Iterator<Item = &'static Case> {
    [stalls::CASES, queues::CASES, others::CASES, processes::CASES].into_iter().flatten()
}
