//! Task ids. They are unique in the program and never reused.
//!
//! Each thread takes a block of ids at a time, so that spawns on many threads do not contend for
//! one cache line. Therefore ids increase over time on each thread, but not across threads. The ids
//! that are left when a thread ends are never used.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::LocalKey;

use volt_shim::CachePadded;

/// The number of ids in a block: small enough that ids stay short, large enough that taking a block
/// costs nothing noticeable.
const BLOCK: u64 = 64;

thread_local! {
    /// The next id of this thread's block. A multiple of `BLOCK` means that the block is used up.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// The id of a task, as the console and log lines show it.
///
/// An id is unique for the lifetime of the program. It is not a time stamp: a task that was spawned
/// later on another thread may have a lower id.
///
/// ```
/// # use volt_core as volt;
/// let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// let task = runtime.spawn(async { volt::task::id() });
/// let outside = task.id();
/// assert_eq!(runtime.block_on(task).unwrap(), outside);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(NonZeroU64);

impl Id {
    /// Returns an id that no other task of the program has.
    #[doc(hidden)]
    pub fn next() -> Self {
        #[cfg(test)]
        if let Some(id) = simulated::next() {
            return id;
        }
        static BLOCKS: CachePadded<AtomicU64> = CachePadded(AtomicU64::new(0));
        let id = next_number(&NEXT, &BLOCKS);
        Self(NonZeroU64::new(id).expect("2^64 tasks take longer than a program runs"))
    }

    /// Returns the id as a number, as logs, task lists and consoles show it.
    pub fn as_u64(self) -> u64 {
        self.0.get()
    }
}

/// Returns the next number of this thread's block, or of a new block. `next` is this thread's next
/// number, where a multiple of `BLOCK` means that the block is used up. `blocks` is the number of
/// blocks that the program has taken.
#[inline]
pub(super) fn next_number(next: &'static LocalKey<Cell<u64>>, blocks: &AtomicU64) -> u64 {
    let left = next.get();
    let number = if left.is_multiple_of(BLOCK) { take_block(blocks) } else { left };
    next.set(number + 1);
    number
}

/// Returns the first number of an unused block. The first block begins at 1 and is one shorter.
#[cold]
fn take_block(blocks: &AtomicU64) -> u64 {
    // ORDERING: Relaxed: only the value matters, and fetch_add returns each value once.
    let block = blocks.fetch_add(1, Ordering::Relaxed);
    (block * BLOCK).max(1)
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Ids that do not depend on other threads, for a test that repeats a run exactly. They apply to
/// the thread that called `begin`.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;

    use super::{Id, NonZeroU64};

    thread_local! {
        static LAST: Cell<Option<NonZeroU64>> = const { Cell::new(None) };
    }

    pub(super) fn next() -> Option<Id> {
        let last = LAST.try_with(Cell::get).ok().flatten()?;
        let next = last.checked_add(1)?;
        LAST.set(Some(next));
        Some(Id(next))
    }

    /// Starts simulated ids after `last`; `None` returns to real ones.
    pub(crate) fn begin(last: Option<NonZeroU64>) {
        LAST.set(last);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn no_two_threads_get_the_same_id_and_each_gets_rising_ones() {
        let take = || (0..3 * BLOCK + 1).map(|_| Id::next()).collect::<Vec<_>>();
        let threads = [(); if cfg!(miri) { 2 } else { 4 }].map(|()| thread::spawn(take));
        let mut all = HashSet::new();
        for ids in threads.map(|thread| thread.join().unwrap()) {
            assert!(ids.is_sorted());
            assert!(ids.into_iter().all(|id| all.insert(id)), "an id was given twice");
        }
    }
}
