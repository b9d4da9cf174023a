//! The facts of a poll that the cells count: the task that is polled, and the poll that has ended.

use std::panic::Location;

/// A task that is polled, as these cells use it.
pub(crate) trait PolledTask {
    /// Returns the task's id.
    fn id(&self) -> u64;

    /// Returns where the task was spawned, and whether it has neither a name nor a span, so that it
    /// needs no place in the registry.
    fn spawned_at(&self) -> (&'static Location<'static>, bool);

    /// Returns the number of the task's place in the registry.
    fn place_number(&self) -> u64;

    /// Returns when the task was last submitted, on the program's clock, ns.
    fn submitted_at_ns(&self) -> u64;

    /// Adds the time for which the task has waited for this poll to the task's account.
    fn count_delay(&self, delay_ns: u64, now_ns: u64);
}

/// A poll that has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Polled {
    pub(crate) location: &'static Location<'static>,
    pub(crate) took_ns: u64,
    pub(crate) has_woken_itself: bool,
}
