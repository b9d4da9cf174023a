//! The record of an acquisition: which semaphore, how many permits, which task, where and when.
//!
//! One thread writes into free records: that of the page to which the record belongs (`permits`).
//! The owner of the permits clears the record, on any thread. A dump reads it at any time.
//!
//! The race: a dump reads a record while it is cleared and written again, and has words of two
//! acquisitions. So the dump reads each record twice, and leaves it out if a word has changed. If
//! none has, the words are those of one acquisition, as the fences in [`Record::fill`] and
//! [`Record::read`] ensure: if a word of a later acquisition was loaded, the second load of *what*
//! returns 0 or a later value. That is certain unless *what* was changed and changed back, as when
//! permits are split and merged. Even then the task and the line are those of the permits.
//!
//! Protocol:
//! 1. Acquire ([`Record::fill`]): the thread writes the task, the time and the line into a free
//!    record, and then *what*: the semaphore and the number of permits.
//! 2. Release ([`Record::clear`]): the owner of the permits clears *what*, before the permits are
//!    returned.
//! 3. Read ([`Record::read`]): load *what*, then the other words; and all of them once more.
//!
//! Neither (1) nor (2) needs a read-modify-write. `loom_models` checks the protocol.

use std::panic::Location;
use std::ptr;

use volt_shim::{AtomicPtr, AtomicU64, Ordering, const_new, fence};

#[cfg(all(test, loom))]
mod loom_models;

/// The number of bits of *what* with the number of permits.
const PERMITS_BITS: u32 = 24;
/// More permits than this are recorded as this number.
const PERMITS_MAX: u64 = (1 << PERMITS_BITS) - 1;

/// See the header of this file.
#[derive(Debug)]
pub(super) struct Record {
    /// `| number of the semaphore 40 | number of permits 24 |`; 0 if the record is free.
    what: AtomicU64,
    /// The id of the task; 0 if that was no task.
    task: AtomicU64,
    /// When the task was woken for the poll in which it acquired the permits, ns.
    since_ns: AtomicU64,
    at: AtomicPtr<Location<'static>>,
}

/// A copy of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acquisition {
    /// The number of the semaphore.
    pub(crate) semaphore: u64,
    pub(crate) permits: u64,
    /// The task that acquired the permits; `None` if that was no task.
    pub(crate) task: Option<u64>,
    pub(crate) at: &'static Location<'static>,
    /// When the task was woken for the poll in which it acquired the permits, on the program's
    /// clock. `None` if it was no task.
    pub(crate) since_ns: Option<u64>,
}

impl Record {
    const_new! {
        /// Returns a free record.
        pub(super) fn new() -> Self {
            Self::with_what(0)
        }
    }

    const_new! {
        /// Returns a record that is never free.
        pub(super) fn never_free() -> Self {
            Self::with_what(u64::MAX)
        }
    }

    const_new! {
        fn with_what(what: u64) -> Self {
            Self {
                what: AtomicU64::new(what),
                task: AtomicU64::new(0),
                since_ns: AtomicU64::new(0),
                at: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    #[inline]
    pub(super) fn is_free(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `clear`.
        self.what.load(Ordering::Acquire) == 0
    }

    /// Protocol (1). Only for the thread of the page, if the record is free.
    #[inline]
    pub(super) fn fill(&self, semaphore: u64, permits: u64, task: u64, since_ns: u64, at: &'static Location<'static>) {
        // ORDERING: a Release fence; pairs with the Acquire fence in `read`: a reader that loads
        // one of the words below also sees that the record was free before.
        fence(Ordering::Release);
        self.fill_unfenced(semaphore, permits, task, since_ns, at);
    }

    #[inline]
    fn fill_unfenced(&self, semaphore: u64, permits: u64, task: u64, since_ns: u64, at: &'static Location<'static>) {
        // ORDERING: Relaxed; no other thread writes to a free record.
        self.task.store(task, Ordering::Relaxed);
        self.since_ns.store(since_ns, Ordering::Relaxed);
        self.at.store(ptr::from_ref(at).cast_mut(), Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire in `words`: the words above are complete.
        self.what.store(semaphore << PERMITS_BITS | permits.min(PERMITS_MAX), Ordering::Release);
    }

    /// Protocol (2). Only for the owner of the permits.
    #[inline]
    pub(super) fn clear(&self) {
        // ORDERING: Release; pairs with the Acquire in `is_free`: the thread that writes the next
        // acquisition sees all that was written for this one.
        self.what.store(0, Ordering::Release);
    }

    // ORDERING: Relaxed, in the next ones: the caller owns the permits, so no other thread writes.

    pub(super) fn permits(&self) -> u64 {
        self.what.load(Ordering::Relaxed) & PERMITS_MAX
    }

    pub(super) fn set_permits(&self, permits: u64) {
        let what = self.what.load(Ordering::Relaxed);
        // ORDERING: Release; pairs with the Acquire in `words`, as in `fill`, whose words the
        // owner of the permits has seen.
        self.what.store(what & !PERMITS_MAX | permits.min(PERMITS_MAX), Ordering::Release);
    }

    /// Returns whether the permits of both were acquired by one task at one line.
    pub(super) fn has_source_of(&self, other: &Self) -> bool {
        let source = |record: &Self| (record.task.load(Ordering::Relaxed), record.at.load(Ordering::Relaxed));
        source(self) == source(other)
    }

    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        self.since_ns.load(Ordering::Relaxed) < other.since_ns.load(Ordering::Relaxed)
    }

    /// Writes a free record `to` for this number of the permits of this one.
    pub(super) fn copy_to(&self, to: &Self, permits: u64) {
        let [what, task, since_ns] = [&self.what, &self.task, &self.since_ns].map(|word| word.load(Ordering::Relaxed));
        // SAFETY: the record is in use, so `fill` has stored a `&'static Location`.
        let at = unsafe { &*self.at.load(Ordering::Relaxed) };
        to.fill(what >> PERMITS_BITS, permits, task, since_ns, at);
    }

    /// Protocol (3). `None` if the record is free, or was changed meanwhile.
    pub(super) fn read(&self) -> Option<Acquisition> {
        let words = self.words();
        // ORDERING: an Acquire fence; pairs with the Release fence in `fill`. If a word is from a
        // later acquisition, the second load of *what* returns 0, or what that acquisition or a
        // later one stored. Then the other words are at least as late.
        fence(Ordering::Acquire);
        if self.words() == words { Self::acquisition(words) } else { None }
    }

    /// Loads all words. If *what* is not 0, the others are those of the same acquisition, or of
    /// later ones.
    fn words(&self) -> (u64, u64, u64, *mut Location<'static>) {
        // ORDERING: Acquire; pairs with the Release in `fill`. The others are Relaxed: `read`
        // compares them.
        let what = self.what.load(Ordering::Acquire);
        let (task, since_ns) = (self.task.load(Ordering::Relaxed), self.since_ns.load(Ordering::Relaxed));
        (what, task, since_ns, self.at.load(Ordering::Relaxed))
    }

    fn acquisition((what, task, since_ns, at): (u64, u64, u64, *mut Location<'static>)) -> Option<Acquisition> {
        if what == 0 {
            return None;
        }
        // SAFETY: `fill` has stored a `&'static Location` before it stored *what*, and nothing else
        // is ever stored.
        let at = unsafe { at.as_ref() }?;
        let (task, since_ns) = ((task > 0).then_some(task), (task > 0).then_some(since_ns));
        Some(Acquisition { semaphore: what >> PERMITS_BITS, permits: what & PERMITS_MAX, task, at, since_ns })
    }
}
