//! What a task waits for, in the words of the operation that it awaits: a lock, a message, and
//! where in the code.
//!
//! Shape: `| number of the location 11 | Awaits 3 |`, kept while the poll lasts by the thread
//! (`current`), and at its end in the task's account. An operation of `sync` that is pending notes
//! itself down in each poll that it is in, so nobody has to take a note back: an operation that is
//! done, was dropped, or went to another task is in no poll that follows. Of several at once
//! (`select!`) the last that was polled is told.
//!
//! Who writes: the thread that polls the task, when it has to wait. Who reads: its runner at the
//! end of the poll.
//!
//! Rejected: a word of its own in the header, 16 bytes a task with the allocator's rounding; taking
//! the note back when the operation ends, which costs those that waited a second store, and a task
//! that is cancelled a lookup.

use std::panic::Location;

use crate::stats::locations::{PLACES as LOCATIONS_MAX, number_of, of_number};

const KIND_BITS: u32 = 3;

/// What a task may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Awaits {
    /// Until a lock is free.
    Lock = 1,
    /// Permits of a semaphore.
    Permits,
    /// To be notified.
    Notice,
    /// What somebody sends.
    Message,
    /// Room in a queue.
    Room,
    /// A value that somebody sets.
    Value,
    /// Others, who are to arrive at a barrier, or to be gone.
    Others,
}

impl Awaits {
    const ALL: [Awaits; 7] =
        [Awaits::Lock, Awaits::Permits, Awaits::Notice, Awaits::Message, Awaits::Room, Awaits::Value, Awaits::Others];

    /// Its name, as in JSON.
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

/// See the header of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note(u16);

impl Note {
    /// What a note takes.
    pub(super) const BITS: u32 = KIND_BITS + 11;
    pub(super) const NOTHING: Note = Note(0);

    /// To wait for this, at that place.
    #[inline]
    pub(super) fn of(awaits: Awaits, at: &'static Location<'static>) -> Self {
        Self(number_of(at) << KIND_BITS | awaits as u16)
    }

    pub(super) fn to_bits(self) -> u64 {
        u64::from(self.0)
    }

    /// What is in the lower [`BITS`](Self::BITS).
    pub(super) fn from_bits(bits: u64) -> Self {
        Self((bits & ((1 << Self::BITS) - 1)) as u16)
    }

    /// What was noted down; and where, if there is a number for it.
    pub(super) fn read(self) -> Option<(Awaits, Option<&'static Location<'static>>)> {
        let kind = self.0 & ((1 << KIND_BITS) - 1);
        let awaits = Awaits::ALL.into_iter().find(|&awaits| awaits as u16 == kind)?;
        Some((awaits, of_number(self.0 >> KIND_BITS)))
    }
}

const _: () = assert!(LOCATIONS_MAX < 1 << (Note::BITS - KIND_BITS));
