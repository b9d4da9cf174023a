//! The await of a task (of a lock, a message, …) and its location, for dumps and task lists.
//!
//! Shape: `| number of the location 11 | Awaits 3 |`. During the poll the thread stores it
//! (`current`), and at the end of the poll it moves to the task's account. A pending operation of
//! `sync` records itself in every poll. So a record need not be removed from later polls: an
//! operation that has completed, was dropped, or moved to another task takes no part in them. Only
//! if it is dropped in the poll in which it was pending, as by a time-out or by another branch of
//! `select!`, it withdraws its record from that poll ([`Pending`]). Functions such as `poll_recv`
//! have no future, and cannot do so. If a task waits for several operations, the one that was
//! polled last is reported.
//!
//! Writers: the thread that polls the task, when an operation is pending. Readers: the runner
//! at the end of the poll.
//!
//! Rejected: a separate word in the header, which takes 16 bytes per task after the allocator's
//! rounding.

use std::panic::Location;

use crate::stats::locations::{PLACES as LOCATIONS_MAX, number_of, of_number};

const KIND_BITS: u32 = 3;

/// The kinds of things that a task may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Awaits {
    /// A lock.
    Lock = 1,
    /// The permits of a semaphore.
    Permits,
    /// A notification, or the change of a value.
    Notice,
    /// A message in a channel.
    Message,
    /// Free capacity in a channel.
    Room,
    /// A value that another task sends or sets once.
    Value,
    /// Other tasks: their arrival at a barrier, their end, or that one of them initializes a value.
    /// For a JoinHandle, the location is that of the spawn.
    Others,
}

impl Awaits {
    const ALL: [Awaits; 7] =
        [Awaits::Lock, Awaits::Permits, Awaits::Notice, Awaits::Message, Awaits::Room, Awaits::Value, Awaits::Others];

    /// Returns the name of the kind, as in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Awaits::Lock => "lock",
            Awaits::Permits => "permits",
            Awaits::Notice => "notice",
            Awaits::Message => "message",
            Awaits::Room => "room",
            Awaits::Value => "value",
            Awaits::Others => "others",
        }
    }
}

/// A part of the future of an operation: records the operation while it is pending, and withdraws
/// the record if it is dropped before it is ready.
#[derive(Debug)]
pub struct Pending {
    awaits: Awaits,
    at: &'static Location<'static>,
    is_pending: bool,
}

impl Pending {
    /// Of an operation that was not polled yet.
    #[inline]
    pub fn new(awaits: Awaits, at: &'static Location<'static>) -> Self {
        Self { awaits, at, is_pending: false }
    }

    /// Returns where the operation was called.
    #[inline]
    pub fn at(&self) -> &'static Location<'static> {
        self.at
    }

    /// Called in each poll in which the operation is pending.
    #[inline]
    pub fn note(&mut self) {
        self.is_pending = true;
        self.awaits.note(self.at);
    }

    /// Called when the operation is ready.
    #[inline]
    pub fn end(&mut self) {
        self.is_pending = false;
    }
}

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        if self.is_pending {
            self.awaits.withdraw(self.at);
        }
    }
}

/// The await of a task, with the location. See the module documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note(u16);

impl Note {
    /// The number of bits of a note.
    pub(crate) const BITS: u32 = KIND_BITS + 11;
    pub(crate) const MASK: u64 = (1 << Self::BITS) - 1;
    #[cfg(test)]
    pub(crate) const NOTHING: Note = Note(0);

    /// Returns a note that the task waits for `awaits` at the location `at`.
    #[inline]
    pub(crate) fn of(awaits: Awaits, at: &'static Location<'static>) -> Self {
        Self(number_of(at) << KIND_BITS | awaits as u16)
    }

    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.0)
    }

    /// Returns the note in the lowest [`BITS`](Self::BITS).
    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self((bits & Self::MASK) as u16)
    }

    /// Returns what the task waits for, and the location if it has a number.
    pub(crate) fn read(self) -> Option<(Awaits, Option<&'static Location<'static>>)> {
        let kind = self.0 & ((1 << KIND_BITS) - 1);
        let awaits = Awaits::ALL.into_iter().find(|&awaits| awaits as u16 == kind)?;
        Some((awaits, of_number(self.0 >> KIND_BITS)))
    }
}

const _: () = assert!(LOCATIONS_MAX < 1 << (Note::BITS - KIND_BITS));
