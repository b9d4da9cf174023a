//! The resources that pending operations of `sync` await, in numbers, for a dump: how many senders
//! a channel has, or how many permits are available.
//!
//! A dump polls each waiting task once (`scheduler/dump`). An operation that is pending in such a
//! poll records its primitive here. In all other polls it only checks a flag of its thread, and
//! only if it is pending. So no operation pays for the numbers, and they are those of this moment.
//!
//! Writers: operations in a poll for a dump. Reader: the dump, on the same thread, after the poll.
//!
//! Each record has a *key*, which identifies the primitive. So a dump can count the tasks that
//! await the same one, and list them. The key is the address of the primitive, or of what its
//! handles share if each of them is at another address. A primitive may be freed after its poll,
//! and another one be created at its address before the dump ends. Then the two count as one.
//!
//! Which tasks own the senders of a channel is not known: a sender may be moved anywhere.
//!
//! Bound: the first `RESOURCES_MAX` distinct primitives of a poll are recorded. If there were more,
//! a flag records that: the counts of the dump are then incomplete.
//!
//! Rejected: an entry in the table of `waits` for each operation that waits, as locks have. The
//! lock of the table and the look-up cost a tenth of what a message to a waiting task costs.

use std::cell::{Cell, RefCell};

use volt_telemetry::dump::Resource;

/// The number of resources that one poll may record.
const RESOURCES_MAX: usize = 16;

/// Identifies a primitive while operations wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The address of the primitive, or of the only handle that can wait.
    Address(usize),
    /// The address of a channel, of which a sender awaits that the receivers are dropped.
    Receivers(usize),
    /// The id of the task whose end is awaited.
    Task(u64),
    /// The number of a semaphore (`waits::SemaphoreId`).
    Semaphore(u64),
}

impl Key {
    /// Returns the key of a primitive at this address.
    pub fn of<T: ?Sized>(primitive: *const T) -> Self {
        Self::Address(primitive.addr())
    }

    /// Returns the key of the receivers of the channel at this address, which are awaited by a
    /// sender.
    pub fn receivers_of<T: ?Sized>(channel: *const T) -> Self {
        Self::Receivers(channel.addr())
    }
}

/// A primitive that a pending operation awaits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Awaited {
    /// Which one it is.
    pub key: Key,
    /// Its kind and its numbers.
    pub resource: Resource,
}

impl Awaited {
    /// Returns a primitive of this kind, with these numbers.
    pub fn new(key: Key, kind: &'static str, numbers: Resource) -> Self {
        Self { key, resource: Resource { kind: kind.to_owned(), ..numbers } }
    }
}

/// The resources awaited by the operations that were pending in a poll for a dump.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Noted {
    pub(crate) awaited: Vec<Awaited>,
    /// Whether there were more than `RESOURCES_MAX`.
    pub(crate) is_cut: bool,
}

thread_local! {
    /// Whether this thread polls a task for a dump.
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
    static NOTED: RefCell<Noted> = const { RefCell::new(Noted { awaited: Vec::new(), is_cut: false }) };
}

/// Records what a pending operation awaits, if this poll is for a dump.
#[inline]
pub fn note(awaited: impl FnOnce() -> Option<Awaited>) {
    if IS_TRACED.get()
        && let Some(awaited) = awaited()
    {
        record(awaited);
    }
}

#[cold]
fn record(awaited: Awaited) {
    NOTED.with_borrow_mut(|noted| {
        if noted.awaited.contains(&awaited) {
            return;
        }
        noted.is_cut = noted.awaited.len() >= RESOURCES_MAX;
        if !noted.is_cut {
            noted.awaited.push(awaited);
        }
    });
}

/// Returns whether this thread polls a task for a dump.
#[inline]
pub fn is_traced() -> bool {
    IS_TRACED.get()
}

/// Runs `poll`, and returns the records of the operations that were pending in it.
pub(crate) fn recorded_in<R>(poll: impl FnOnce() -> R) -> (R, Noted) {
    // Inside of such a poll, `block_in_place` allows a `block_on`, which another dump may trace.
    struct Reset(bool, Noted);
    impl Drop for Reset {
        fn drop(&mut self) {
            IS_TRACED.set(self.0);
            NOTED.set(std::mem::take(&mut self.1));
        }
    }
    let reset = Reset(IS_TRACED.replace(true), NOTED.take());
    let polled = poll();
    let noted = NOTED.take();
    drop(reset);
    (polled, noted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(senders: u64) -> Awaited {
        Awaited::new(Key::Task(senders), "mpsc", Resource { senders: Some(senders), ..Resource::default() })
    }

    #[test]
    fn only_a_poll_for_a_dump_records_resources_and_each_once() {
        note(|| unreachable!("no dump"));
        let ((), recorded) = recorded_in(|| (0..100).for_each(|number| note(|| Some(channel(number % 3)))));
        assert_eq!((recorded.awaited, recorded.is_cut), ([0, 1, 2].map(channel).to_vec(), false));
        note(|| unreachable!("no dump any more"));
        let ((), recorded) = recorded_in(|| (0..100).for_each(|number| note(|| Some(channel(number)))));
        assert_eq!((recorded.awaited.len(), recorded.is_cut), (RESOURCES_MAX, true));
        assert_eq!(recorded_in(|| ()).1, Noted::default());
        let ((), outer) = recorded_in(|| {
            note(|| Some(channel(1)));
            recorded_in(|| note(|| Some(channel(2))));
            note(|| Some(channel(3)));
        });
        assert_eq!(outer.awaited, [1, 3].map(channel), "not those of the poll inside");
    }

    #[test]
    fn a_panic_in_a_poll_for_a_dump_ends_the_recording() {
        let poll = || recorded_in(|| std::panic::resume_unwind(Box::new("on purpose")));
        assert!(std::panic::catch_unwind(|| poll().0).is_err());
        note(|| unreachable!("no dump any more"));
    }
}
