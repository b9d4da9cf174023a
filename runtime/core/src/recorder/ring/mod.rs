//! A ring of fixed-size records. One thread writes and overwrites the oldest records; other threads
//! copy the contents without stopping the writer.
//!
//! Each worker records its events into a ring, and the threads that make a recording copy them. A
//! ring has a power of two of *slots*, each of three words. `head` is the number of records ever
//! pushed, and record `n` is in slot `n % capacity`.
//!
//! An ordinary case. A worker pushes records 0 to 9 into a ring of 16 slots. A reader loads `head`,
//! copies the ten slots, loads `head` again, finds it unchanged and returns all ten. The next copy
//! begins with record 10.
//!
//! The race. While the reader copies a slot, the writer may overwrite it with a later record. The
//! reader then has a mixture of two records. It detects this by the second load of `head` and
//! discards the copy. All words are atomics, so there is no data race and no unsafe code.
//!
//! The thread that has the [`RingWriter`] writes (ONE-WRITER). Any number of [`RingReader`]s read,
//! on any threads.
//!
//! Invariants:
//! * ONE-WRITER: a ring has one writer at a time. The writer can move to another thread, and can be
//!   released and claimed again.
//! * WHOLE: each record that a reader returns was pushed as it is; it is not a mixture of two.
//! * ONCE, IN ORDER: a reader returns each record at most once, in the order of pushing, and counts
//!   the records that it missed.
//!
//! Protocol. Push: (1) fence Release; (2) store the words, Relaxed; (3) store `head` + 1, Release.
//! Copy: (1) load `head`, Acquire; (2) copy the words, Relaxed, oldest first; (3) fence Acquire;
//! (4) load `head` again, Relaxed; (5) discard what may have been overwritten meanwhile: record `n`
//! is whole only if `n + capacity` is greater than that `head`. Claim: swap `is_claimed`, Acquire.
//! Release: store `is_claimed`, Release.
//!
//! Why it holds. Copy (1) sees Push (3) of every record that is copied, and therefore its Push (2):
//! no word is older than its record. If a word is newer, it comes from the push of record `n +
//! capacity` or of a later one. The fence of that push comes after the Push (3) before it, and
//! pairs with Copy (3). So Copy (4) loads at least `n + capacity`, and (5) discards the record. The
//! push of record `head` may be under way, so only `capacity` − 1 slots are certain to be whole.
//!
//! The words are on the heap, or in a black box, so that they outlive a program that is killed
//! (`placed`).
//!
//! Rejected:
//! * A sequence number in each slot: one more word, for what `head` already implies.
//! * Handing over blocks of records through a queue: the writer would have to stop, allocate or
//!   drop records when the reader is slow, and no history would be kept.
//! * A lock that the reader takes: a preempted reader would stop a worker.
//! * Release stores of the words instead of the fence: on ARM three barriers instead of one.

use std::cell::Cell;
use std::marker::PhantomData;

use volt_telemetry::recording::record::{Record, WORDS};

use volt_shim::{Arc, AtomicBool, AtomicU64, Ordering, fence};

use crate::stats::placed::Placed;

/// How many copies a reader makes before it gives up against a faster writer.
const MAX_COPIES: usize = 4;
/// Words before the first slot, so that `head` is on other cache lines.
#[cfg(not(loom))]
const HEAD_WORDS: usize = volt_telemetry::recording::black_box::RING_HEAD_WORDS;
#[cfg(loom)]
const HEAD_WORDS: usize = 1;

/// See the header of this file.
pub(crate) struct Ring {
    /// `head`, then words that are not used, then the slots.
    words: Placed<[AtomicU64]>,
    /// The number of slots, minus one.
    mask: usize,
    is_claimed: AtomicBool,
}

impl Ring {
    /// Creates an empty ring. Its capacity is rounded up to a power of two, at least 2.
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        let capacity = capacity.max(2).next_power_of_two();
        let words = (0..HEAD_WORDS + capacity * WORDS).map(|_| AtomicU64::new(0)).collect();
        Self::placed(Placed::on_heap(words), capacity)
    }

    /// Creates a ring of `capacity` slots, a power of two, in memory that is zero.
    pub(crate) fn placed(words: Placed<[AtomicU64]>, capacity: usize) -> Arc<Self> {
        debug_assert!(capacity.is_power_of_two() && words.len() == HEAD_WORDS + capacity * WORDS);
        Arc::new(Self { words, mask: capacity - 1, is_claimed: AtomicBool::new(false) })
    }

    fn head(&self) -> &AtomicU64 {
        &self.words[0]
    }

    /// Returns the slot of the record with this number. Always `Some`, as is the first word. Not an
    /// index, so that nothing in a push can panic.
    #[inline(always)]
    fn slot(&self, number: u64) -> Option<&[AtomicU64]> {
        let first = HEAD_WORDS + (number as usize & self.mask) * WORDS;
        self.words.get(first..first + WORDS)
    }

    /// Returns the record with this number, or a mixture of two.
    fn load(&self, number: u64) -> Record {
        let slot = self.slot(number);
        // ORDERING: Relaxed; published by Copy (1), and guarded by Copy (3).
        let word = |word: usize| slot.map_or(0, |slot| slot[word].load(Ordering::Relaxed));
        Record::from_words(std::array::from_fn(word))
    }

    /// Claims the writer, unless another thread has it.
    // Not a method: loom's `Arc` cannot be the type of `self`.
    pub(crate) fn claim(ring: &Arc<Self>) -> Option<RingWriter> {
        // Claim
        // ORDERING: Acquire; pairs with Release, which publishes the former writer's `head`.
        let was_claimed = ring.is_claimed.swap(true, Ordering::Acquire);
        (!was_claimed).then(|| RingWriter { ring: ring.clone(), on_one_thread: PhantomData })
    }

    /// Returns the maximum number of records in the ring.
    pub(crate) fn capacity(&self) -> usize {
        self.mask + 1
    }
}

/// The right to push. Not `Clone`, and not `Sync`: ONE-WRITER.
pub(crate) struct RingWriter {
    ring: Arc<Ring>,
    on_one_thread: PhantomData<Cell<()>>,
}

impl RingWriter {
    /// Writes one record. Never blocks, never fails.
    #[inline]
    pub(crate) fn push(&self, record: Record) {
        let Some(next) = self.ring.words.first() else { return };
        // ORDERING: Relaxed; a single-writer cell (ONE-WRITER). The claim has acquired what a
        // former writer stored.
        let head = next.load(Ordering::Relaxed);
        let Some(slot) = self.ring.slot(head) else { return };
        // Push (1)
        // ORDERING: Release; pairs with Copy (3): a reader that reads a word of this record sees
        // that `head` has grown up to it.
        fence(Ordering::Release);
        // Push (2)
        for (to, word) in slot.iter().zip(record.words()) {
            // ORDERING: Relaxed; published by Push (3), and guarded by the fence.
            to.store(word, Ordering::Relaxed);
        }
        // Push (3)
        // ORDERING: Release; pairs with Copy (1), which publishes the words.
        next.store(head + 1, Ordering::Release);
    }
}

impl Drop for RingWriter {
    fn drop(&mut self) {
        // Release
        // ORDERING: Release; pairs with Claim.
        self.ring.is_claimed.store(false, Ordering::Release);
    }
}

/// The result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Records copied.
    pub(crate) count: usize,
    /// Records before them that were overwritten before this reader copied them.
    pub(crate) lost: u64,
}

/// A reader with its position in a ring.
pub(crate) struct RingReader {
    ring: Arc<Ring>,
    /// The first record that was neither returned nor counted as lost.
    next: u64,
}

impl RingReader {
    /// Starts at the oldest record in the ring, to read its history.
    pub(crate) fn from_oldest(ring: &Arc<Ring>) -> Self {
        // ORDERING: Acquire; as Copy (1).
        let head = ring.head().load(Ordering::Acquire);
        Self { ring: ring.clone(), next: first_whole(head, ring.capacity()) }
    }

    /// Starts at the first record ever pushed: for a ring that was created after the recording
    /// began.
    pub(crate) fn from_start(ring: &Arc<Ring>) -> Self {
        Self { ring: ring.clone(), next: 0 }
    }

    /// Starts at the next record that is pushed.
    pub(crate) fn from_now(ring: &Arc<Ring>) -> Self {
        // ORDERING: Acquire; as Copy (1).
        let head = ring.head().load(Ordering::Acquire);
        Self { ring: ring.clone(), next: head }
    }

    /// Returns the maximum number of records in the ring.
    #[cfg(not(loom))]
    pub(crate) fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Appends the records pushed since the last copy to `records`.
    pub(crate) fn copy_into(&mut self, records: &mut Vec<Record>) -> Copied {
        let mut copied = Copied::default();
        for _attempt in 0..MAX_COPIES {
            copied = self.copy_once(records, copied.lost);
            // Otherwise nothing was whole: the writer has overwritten the whole ring in the
            // meantime, and another copy is made.
            if copied.count > 0 || copied.lost == 0 {
                break;
            }
        }
        copied
    }

    fn copy_once(&mut self, records: &mut Vec<Record>, lost: u64) -> Copied {
        let (capacity, already) = (self.ring.capacity(), records.len());
        // Copy (1)
        // ORDERING: Acquire; pairs with Push (3), which publishes the words.
        let head = self.ring.head().load(Ordering::Acquire);
        let first = self.next.max(first_whole(head, capacity));
        // Copy (2)
        records.extend((first..head).map(|number| self.ring.load(number)));
        // Copy (3)
        // ORDERING: Acquire; pairs with Push (1).
        fence(Ordering::Acquire);
        // Copy (4)
        // ORDERING: Relaxed; ordered by the fence.
        let head_after = self.ring.head().load(Ordering::Relaxed);
        // Copy (5)
        let whole = first.max(first_whole(head_after, capacity)).min(head);
        records.drain(already..already + (whole - first) as usize);
        let lost = lost + (whole - self.next);
        self.next = head;
        Copied { count: (head - whole) as usize, lost }
    }
}

/// Returns the oldest record that is certain to be whole when `head` records were pushed and one
/// more push may be under way.
fn first_whole(head: u64, capacity: usize) -> u64 {
    (head + 1).saturating_sub(capacity as u64)
}

#[cfg(all(test, loom))]
mod loom_models;

#[cfg(all(test, not(loom)))]
mod tests;
