//! Records which tasks receive from bounded channels. Only these tasks record that they wait for
//! room in a channel.
//!
//! A *channel cycle* is a deadlock of tasks that send to each other: each waits for room in a
//! channel from which the next one receives. So a task can be in one only if it receives itself. A
//! table with one entry per task id, modulo its size, distinguishes these tasks from mere senders.
//! For those, an entry in the table of waits would be a waste: it costs a tenth of a message.
//!
//! An ordinary case: task 7 waits for a message, and writes its id into entry 7. Later it waits for
//! room in a channel. It finds its id in entry 7, and adds its wait to the table of waits. Task 8
//! has never received from a bounded channel, finds another id in entry 8, and adds nothing.
//!
//! The race: another task with the same entry may overwrite it in between. Then the wait is not
//! recorded, and a cycle is missed. No cycle is invented.
//!
//! Writers: tasks that receive. Readers: tasks that wait for room.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};

use super::holder::{Guard, Holder};
use crate::task::current;

/// The number of entries: more than the receiving tasks of most programs.
const ENTRIES: usize = 1024;

/// The ids of tasks that receive.
static ENTRIES_BY_ID: [AtomicU64; ENTRIES] = [const { AtomicU64::new(0) }; ENTRIES];

fn entry(task: u64) -> &'static AtomicU64 {
    &ENTRIES_BY_ID[task as usize % ENTRIES]
}

/// Returns whether the task with this id is known to receive from a bounded channel.
pub(super) fn is_receiver(task: u64) -> bool {
    // ORDERING: Relaxed; the task itself has written its id, if any did.
    entry(task).load(Ordering::Relaxed) == task
}

impl Holder {
    /// Records that the calling task receives from the channel of this holder, at the location
    /// `at`.
    pub fn received(&self, at: &'static Location<'static>) {
        self.acquired(at, Guard::Receiver);
        if let Some(task) = current::with(|task| task.map(|task| task.header().id.as_u64())) {
            // ORDERING: Relaxed; the id alone is the message.
            entry(task).store(task, Ordering::Relaxed);
        }
    }

    /// Returns whether the calling task is the one that was recorded last, at any location.
    #[inline]
    pub fn has_receiver_here(&self) -> bool {
        self.is_held_by(current::with(|task| task.map_or(0, |task| task.header().id.as_u64())))
    }

    /// Returns the task that received from the channel of this holder, as recorded last.
    pub fn receiver(&self) -> Option<u64> {
        self.read()?.task
    }
}
