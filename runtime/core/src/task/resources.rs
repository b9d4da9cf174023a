//! What pending operations of `sync` await, in numbers, for a dump: how many senders a channel has,
//! or how many permits are available.
//!
//! A dump polls each waiting task once (`scheduler/dump`). An operation that is pending in such a
//! poll records its primitive here. In all other polls it only checks a flag of its thread, and
//! only if it is pending. So no operation pays for the numbers, and they are those of this moment.
//!
//! Writers: operations in a poll for a dump. Reader: the dump, on the same thread, after the poll.
//!
//! Which tasks own the senders of a channel is not known: a sender may be moved anywhere.
//!
//! Bound: the first `RESOURCES_MAX` distinct ones of a poll.
//!
//! Rejected: an entry in the table of `waits` for each operation that waits, as locks have. The
//! lock of the table and the look-up cost a tenth of what a message to a waiting task costs.

use std::cell::{Cell, RefCell};

use volt_telemetry::dump::Resource;

/// The number of resources that one poll may record.
const RESOURCES_MAX: usize = 16;

thread_local! {
    /// Whether this thread polls a task for a dump.
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
    static RECORDED: RefCell<Vec<Resource>> = const { RefCell::new(Vec::new()) };
}

/// Records what a pending operation awaits, if this poll is for a dump.
#[inline]
pub fn note(resource: impl FnOnce() -> Option<Resource>) {
    if IS_TRACED.get()
        && let Some(resource) = resource()
    {
        record(resource);
    }
}

#[cold]
fn record(resource: Resource) {
    RECORDED.with_borrow_mut(|recorded| {
        if recorded.len() < RESOURCES_MAX && !recorded.contains(&resource) {
            recorded.push(resource);
        }
    });
}

/// Runs `poll`, and returns what the operations recorded that were pending in it.
pub(crate) fn recorded_in<R>(poll: impl FnOnce() -> R) -> (R, Vec<Resource>) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_TRACED.set(false);
        }
    }
    RECORDED.take();
    let reset = Reset;
    IS_TRACED.set(true);
    let polled = poll();
    drop(reset);
    (polled, RECORDED.take())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(senders: u64) -> Resource {
        Resource { senders: Some(senders), ..Resource::default() }
    }

    #[test]
    fn only_a_poll_for_a_dump_records_resources_and_each_once() {
        note(|| unreachable!("no dump"));
        let ((), recorded) = recorded_in(|| (0..100).for_each(|number| note(|| Some(channel(number % 3)))));
        assert_eq!(recorded, [0, 1, 2].map(channel));
        note(|| unreachable!("no dump any more"));
        let ((), recorded) = recorded_in(|| (0..100).for_each(|number| note(|| Some(channel(number)))));
        assert_eq!(recorded.len(), RESOURCES_MAX);
        assert_eq!(recorded_in(|| ()).1, []);
    }

    #[test]
    fn a_panic_in_a_poll_for_a_dump_ends_the_recording() {
        let poll = || recorded_in(|| std::panic::resume_unwind(Box::new("on purpose")));
        assert!(std::panic::catch_unwind(|| poll().0).is_err());
        note(|| unreachable!("no dump any more"));
    }
}
