//! What pending operations of `sync` await, in numbers, for a dump: how many senders a channel has,
//! or how many permits are available.
//!
//! A dump polls each waiting task once (`scheduler/dump`). An operation that is pending in such a
//! poll records its primitive here. In all other polls it only checks a flag of its thread, and
//! only if it is pending. So no operation pays for the numbers, and they are those of this moment.
//!
//! Writers: operations in a poll for a dump. Reader: the dump, on the same thread, after the poll.
//!
//! Each record has a *key*, which identifies the primitive. So a dump can count the tasks that
//! await the same one, and list them. The key is the address of the primitive, or a number that its
//! handles share if each of them is at another address. A primitive may be freed after its poll,
//! and another one be created at its address before the dump ends. Then the two count as one.
//!
//! Which tasks own the senders of a channel is not known: a sender may be moved anywhere.
//!
//! Bound: the first `RESOURCES_MAX` distinct ones of a poll.
//!
//! Rejected: an entry in the table of `waits` for each operation that waits, as locks have. The
//! lock of the table and the look-up cost a tenth of what a message to a waiting task costs.

use std::cell::{Cell, RefCell};
use std::sync::atomic::AtomicU64;

use volt_telemetry::dump::Resource;

use super::id::next_number;

/// The number of resources that one poll may record.
const RESOURCES_MAX: usize = 16;

/// Identifies a primitive while operations wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The address of the primitive, or of the only handle that can wait.
    Address(usize),
    /// The number of a channel whose handles are at different addresses.
    Channel(u64),
    /// The id of the task whose end is awaited.
    Task(u64),
}

impl Key {
    /// Returns the key of a primitive at this address.
    pub fn of<T: ?Sized>(primitive: *const T) -> Self {
        Self::Address(primitive.addr())
    }

    /// Returns the number of a new channel, for its handles.
    pub fn next_channel() -> u64 {
        static BLOCKS: AtomicU64 = AtomicU64::new(0);
        next_number(&NEXT, &BLOCKS)
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

thread_local! {
    /// Whether this thread polls a task for a dump.
    static IS_TRACED: Cell<bool> = const { Cell::new(false) };
    static RECORDED: RefCell<Vec<Awaited>> = const { RefCell::new(Vec::new()) };
    /// The next number for a channel, as in `id`.
    static NEXT: Cell<u64> = const { Cell::new(0) };
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
    RECORDED.with_borrow_mut(|recorded| {
        if recorded.len() < RESOURCES_MAX && !recorded.contains(&awaited) {
            recorded.push(awaited);
        }
    });
}

/// Runs `poll`, and returns what the operations recorded that were pending in it.
pub(crate) fn recorded_in<R>(poll: impl FnOnce() -> R) -> (R, Vec<Awaited>) {
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

    fn channel(senders: u64) -> Awaited {
        Awaited::new(Key::Channel(senders), "mpsc", Resource { senders: Some(senders), ..Resource::default() })
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
