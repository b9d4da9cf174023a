//! The await of a task (of a lock, a message, …) and its location, for dumps and task lists.
//!
//! Shape: `| Awaits 3 | number of the location 11 |`. During the poll the thread stores it
//! (`current`), and at the end of the poll it moves to the task's account. A pending operation of
//! `sync` records itself in every poll. So a record need not be removed from later polls: an
//! operation that has completed, was dropped, or moved to another task takes no part in them. Only
//! if it is dropped in the poll in which it was pending, as by a time-out or by another branch of
//! `select!`, it withdraws its record from that poll ([`Pending`]). Functions such as `poll_recv`
//! have no future, and cannot do so.
//!
//! If a task waits for several operations, the one that was polled last is reported. There is one
//! exception: the record of a lock or of permits is replaced only by another one of these two. Some
//! task holds them, which explains more than, for example, a server's wait for the request to shut
//! down. Moreover, `select!` polls its branches in a random order, and the report should not change
//! with each poll. Other kinds have no such precedence: the record of an operation that the task
//! stopped polling without dropping it, such as a JoinHandle behind a time-out, would stay.
//!
//! Writers: the thread that polls the task, when an operation is pending. Readers: the runner
//! at the end of the poll, unless that was a poll for a dump: see *Own polls* of `account`.
//!
//! Rejected: a separate word in the header, which takes 16 bytes per task after the allocator's
//! rounding.

use std::panic::Location;

use crate::stats::locations::{PLACES as LOCATIONS_MAX, number_of, of_number};

const KIND_BITS: u32 = 3;
const PLACE_BITS: u32 = 11;

/// The kinds of things that a task may wait for. The last ones, from `Permits` on, are held by
/// tasks: see `Note::has_holder`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Awaits {
    /// A notification, or the change of a value.
    Notice = 1,
    /// Other tasks: their arrival at a barrier, their end, or that one of them initializes a value.
    /// For a JoinHandle, the location is that of the spawn.
    Others,
    /// A message in a channel.
    Message,
    /// A value that another task sends or sets once.
    Value,
    /// Free capacity in a channel.
    Room,
    /// The permits of a semaphore.
    Permits,
    /// A lock.
    Lock,
}

impl Awaits {
    const ALL: [Awaits; 7] =
        [Awaits::Notice, Awaits::Others, Awaits::Message, Awaits::Value, Awaits::Room, Awaits::Permits, Awaits::Lock];

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
    /// Creates the record of an operation that was not polled yet.
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
    pub(crate) const BITS: u32 = KIND_BITS + PLACE_BITS;
    pub(crate) const MASK: u64 = (1 << Self::BITS) - 1;
    #[cfg(test)]
    pub(crate) const NOTHING: Note = Note(0);

    /// Returns whether the task waits for a lock or permits, which some task holds.
    #[inline]
    pub(crate) fn has_holder(self) -> bool {
        self.0 >= (Awaits::Permits as u16) << PLACE_BITS
    }

    /// Returns a note that the task waits for `awaits` at the location `at`.
    #[inline]
    pub(crate) fn of(awaits: Awaits, at: &'static Location<'static>) -> Self {
        Self((awaits as u16) << PLACE_BITS | number_of(at))
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
        let (kind, place) = (self.0 >> PLACE_BITS, self.0 & ((1 << PLACE_BITS) - 1));
        let awaits = Awaits::ALL.into_iter().find(|&awaits| awaits as u16 == kind)?;
        Some((awaits, of_number(place)))
    }
}

const _: () = assert!(LOCATIONS_MAX < 1 << PLACE_BITS);
