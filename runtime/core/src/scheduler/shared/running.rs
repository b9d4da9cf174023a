//! Counts the workers that have a running thread, so that a shutdown can wait for them.

/// The workers that have a running thread.
#[derive(Default)]
pub(super) struct Running {
    pub(super) workers: usize,
    /// The shutdown no longer waits for them.
    pub(super) is_given_up: bool,
}
