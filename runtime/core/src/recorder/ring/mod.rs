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
//! Rejected:
//! * A sequence number in each slot: one more word, for what `head` already implies.
//! * Handing over blocks of records through a queue: the writer would have to stop, allocate or
//!   drop records when the reader is slow, and no history would be kept.
//! * A lock that the reader takes: a preempted reader would stop a worker.
//! * Release stores of the words instead of the fence: on ARM three barriers instead of one.

use std::cell::Cell;
use std::marker::PhantomData;

use volt_telemetry::recording::record::{Record, WORDS};

use volt_shim::{Arc, AtomicBool, AtomicU64, CachePadded, Ordering, fence};

/// How many copies a reader makes before it gives up against a faster writer.
const MAX_COPIES: usize = 4;

/// See the header of this file.
pub(crate) struct Ring {
    head: CachePadded<AtomicU64>,
    slots: Box<[Slot]>,
    is_claimed: AtomicBool,
}

struct Slot([AtomicU64; WORDS]);

impl Ring {
    /// Creates an empty ring. Its capacity is rounded up to a power of two, at least 2.
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        let capacity = capacity.max(2).next_power_of_two();
        let slot = || Slot(std::array::from_fn(|_| AtomicU64::new(0)));
        Arc::new(Self {
            head: CachePadded(AtomicU64::new(0)),
            slots: (0..capacity).map(|_| slot()).collect(),
            is_claimed: AtomicBool::new(false),
        })
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
        self.slots.len()
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
        // ORDERING: Relaxed; a single-writer cell (ONE-WRITER). The claim has acquired what a
        // former writer stored.
        let head = self.ring.head.load(Ordering::Relaxed);
        let slots = &self.ring.slots;
        // Always `Some`. `get` instead of an index, so that nothing here can panic.
        let Some(slot) = slots.get(head as usize & (slots.len() - 1)) else { return };
        // Push (1)
        // ORDERING: Release; pairs with Copy (3): a reader that reads a word of this record sees
        // that `head` has grown up to it.
        fence(Ordering::Release);
        // Push (2)
        for (to, word) in slot.0.iter().zip(record.words()) {
            // ORDERING: Relaxed; published by Push (3), and guarded by the fence.
            to.store(word, Ordering::Relaxed);
        }
        // Push (3)
        // ORDERING: Release; pairs with Copy (1), which publishes the words.
        self.ring.head.store(head + 1, Ordering::Release);
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
        let head = ring.head.load(Ordering::Acquire);
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
        let head = ring.head.load(Ordering::Acquire);
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
            // Nothing was whole: the writer has overwritten the whole ring in the meantime.
            if copied.count > 0 || copied.lost == 0 {
                break;
            }
        }
        copied
    }

    fn copy_once(&mut self, records: &mut Vec<Record>, lost: u64) -> Copied {
        let (slots, capacity, already) = (&self.ring.slots, self.ring.capacity(), records.len());
        // Copy (1)
        // ORDERING: Acquire; pairs with Push (3), which publishes the words.
        let head = self.ring.head.load(Ordering::Acquire);
        let first = self.next.max(first_whole(head, capacity));
        // Copy (2)
        records.extend((first..head).map(|number| {
            let slot = &slots[number as usize & (capacity - 1)];
            // ORDERING: Relaxed; published by Copy (1), and guarded by Copy (3).
            Record::from_words(std::array::from_fn(|word| slot.0[word].load(Ordering::Relaxed)))
        }));
        // Copy (3)
        // ORDERING: Acquire; pairs with Push (1).
        fence(Ordering::Acquire);
        // Copy (4)
        // ORDERING: Relaxed; ordered by the fence.
        let head_after = self.ring.head.load(Ordering::Relaxed);
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
