//! A ring of fixed-size records: one thread writes, overwriting the oldest; others copy what is in
//! it without stopping the writer.
//!
//! Shape: a power of two of slots, each three words, and `head`, the number of records ever pushed:
//! record `n` is in slot `n % capacity`. All words are atomics, so there is no data race and no
//! unsafe code; a reader may copy a record of which half is new, and throws it away.
//!
//! Who writes: the thread that holds the [`RingWriter`] (ONE-WRITER). Who reads: any number of
//! [`RingReader`]s, on any threads.
//!
//! Invariants:
//! * ONE-WRITER: a ring has one writer at a time; it can move to another thread, and can be given
//!   back and claimed anew.
//! * WHOLE: a record that a reader gives out is one that was pushed, not parts of two.
//! * ONCE, IN ORDER: a reader gives each record once at most, in the order of pushing, and counts
//!   those that it missed.
//!
//! Protocol.
//! Push: (1) fence Release; (2) store the words, Relaxed; (3) store `head` + 1, Release.
//! Copy: (1) load `head`, Acquire; (2) copy the words, Relaxed, oldest first; (3) fence Acquire;
//! (4) load `head` again, Relaxed; (5) throw away what may have been overwritten meanwhile: record
//! `n` is whole only if `n + capacity` is greater than that `head`.
//! Claim: swap `is_claimed`, Acquire. Release: store `is_claimed`, Release.
//!
//! Why it holds. Copy (1) sees Push (3) of every record that is copied, and with it Push (2): no
//! word is older than its record. If a word is newer, it comes from the push of record `n +
//! capacity` or a later one; the fence of that push comes after the push (3) before it, and pairs
//! with Copy (3): so Copy (4) loads at least `n + capacity`, and (5) throws the record away. The
//! push of record `head` may be under way, so of `capacity` slots one less is sure.
//!
//! Rejected: a sequence number in each slot, a word more for what `head` says already; handing over
//! blocks of records by a queue (the writer would have to stop, allocate or drop when the reader is
//! slow, and there would be nothing to look back at); a lock that the reader takes (a preempted
//! reader would stop a worker); the words as Release stores instead of the fence, which on ARM is
//! three barriers for one.

use std::cell::Cell;
use std::marker::PhantomData;

use volt_telemetry::recording::record::{Record, WORDS};

use volt_shim::{Arc, AtomicBool, AtomicU64, CachePadded, Ordering, fence};

/// Copies that a reader makes before it leaves the field to a writer that is faster.
const MAX_COPIES: usize = 4;

/// See the header of this file.
pub(crate) struct Ring {
    head: CachePadded<AtomicU64>,
    slots: Box<[Slot]>,
    is_claimed: AtomicBool,
}

struct Slot([AtomicU64; WORDS]);

impl Ring {
    /// An empty ring; its capacity is rounded up to a power of two, at least 2.
    pub(crate) fn new(capacity: usize) -> Arc<Self> {
        let capacity = capacity.max(2).next_power_of_two();
        let slot = || Slot(std::array::from_fn(|_| AtomicU64::new(0)));
        Arc::new(Self {
            head: CachePadded(AtomicU64::new(0)),
            slots: (0..capacity).map(|_| slot()).collect(),
            is_claimed: AtomicBool::new(false),
        })
    }

    /// The writer, unless somebody has it.
    // Not a method: loom's `Arc` cannot be the type of `self`.
    pub(crate) fn claim(ring: &Arc<Self>) -> Option<RingWriter> {
        // Claim
        // ORDERING: Acquire; pairs with Release, which publishes how far the former writer had
        // come.
        let was_claimed = ring.is_claimed.swap(true, Ordering::Acquire);
        (!was_claimed).then(|| RingWriter { ring: ring.clone(), on_one_thread: PhantomData })
    }

    /// Records that it holds at most.
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
    /// Notes one record down. Never blocks, never fails.
    #[inline]
    pub(crate) fn push(&self, record: Record) {
        // ORDERING: Relaxed; single-writer cell: ONE-WRITER, and what a former writer left was
        // acquired by the claim.
        let head = self.ring.head.load(Ordering::Relaxed);
        let slots = &self.ring.slots;
        // Always there; asked for this way, nothing can panic here.
        let Some(slot) = slots.get(head as usize & (slots.len() - 1)) else { return };
        // Push (1)
        // ORDERING: Release; pairs with Copy (3): who reads a word of this record finds `head`
        // grown to it.
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

/// What a copy has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Copied {
    /// Records.
    pub(crate) count: usize,
    /// Records before them that were overwritten, and that no copy of this reader has brought.
    pub(crate) lost: u64,
}

/// One reader's place in a ring.
pub(crate) struct RingReader {
    ring: Arc<Ring>,
    /// The first record that it has neither given out nor counted as lost.
    next: u64,
}

impl RingReader {
    /// From the oldest record that is there: to look back.
    pub(crate) fn from_oldest(ring: &Arc<Ring>) -> Self {
        // ORDERING: Acquire; as Copy (1).
        let head = ring.head.load(Ordering::Acquire);
        Self { ring: ring.clone(), next: first_whole(head, ring.capacity()) }
    }

    /// From the first record ever pushed: of a ring that is newer than what it is read for.
    pub(crate) fn from_start(ring: &Arc<Ring>) -> Self {
        Self { ring: ring.clone(), next: 0 }
    }

    /// From the next record on.
    pub(crate) fn from_now(ring: &Arc<Ring>) -> Self {
        // ORDERING: Acquire; as Copy (1).
        let head = ring.head.load(Ordering::Acquire);
        Self { ring: ring.clone(), next: head }
    }

    /// Records that its ring holds at most.
    #[cfg(not(loom))]
    pub(crate) fn capacity(&self) -> usize {
        self.ring.capacity()
    }

    /// Appends what was pushed since the last copy to `records`.
    pub(crate) fn copy_into(&mut self, records: &mut Vec<Record>) -> Copied {
        let mut copied = Copied::default();
        for _attempt in 0..MAX_COPIES {
            copied = self.copy_once(records, copied.lost);
            // Nothing of it was whole: the writer has gone round in the meantime.
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

/// The oldest record that is sure to be whole when `head` were pushed and one more may be under
/// way.
fn first_whole(head: u64, capacity: usize) -> u64 {
    (head + 1).saturating_sub(capacity as u64)
}

#[cfg(all(test, loom))]
mod loom_models;

#[cfg(all(test, not(loom)))]
mod tests;
