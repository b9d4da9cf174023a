//! What the program has allocated and not freed: counted, since resident memory says more of the
//! allocator than of the program.
//!
//! Shape: the system's allocator, and two sums kept in shards, so that threads that allocate at the
//! same time do not wait for each other's line. A shard by itself may be negative: what one thread
//! allocates another frees. Only their sum means something, and exactly so when nobody is at work.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Shards: more than there are processors on most machines.
const SHARDS: usize = 16;
/// A thread that has no shard yet.
const NONE: usize = usize::MAX;

/// Two lines, since processors fetch them in pairs.
#[repr(align(128))]
struct Shard {
    allocations: AtomicI64,
    bytes: AtomicI64,
}

static HEAP: [Shard; SHARDS] = [const { Shard { allocations: AtomicI64::new(0), bytes: AtomicI64::new(0) } }; SHARDS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's shard. Has no destructor, so that it may be used while a thread begins and
    /// ends.
    static SHARD: Cell<usize> = const { Cell::new(NONE) };
}

/// What is allocated now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    pub allocations: i64,
    pub bytes: i64,
}

impl Live {
    pub fn now() -> Self {
        HEAP.iter().fold(Self::default(), |sum, shard| Self {
            allocations: sum.allocations + shard.allocations.load(Ordering::Relaxed),
            bytes: sum.bytes + shard.bytes.load(Ordering::Relaxed),
        })
    }
}

fn count(allocations: i64, bytes: usize) {
    let mut shard = SHARD.get();
    if shard == NONE {
        shard = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
        SHARD.set(shard);
    }
    // Relaxed: read when nobody is at work, after the threads were joined or seen to sleep.
    HEAP[shard].allocations.fetch_add(allocations, Ordering::Relaxed);
    HEAP[shard].bytes.fetch_add(allocations * bytes as i64, Ordering::Relaxed);
}

/// Counts, and leaves the work to the system's allocator.
pub struct Counting;

// SAFETY: as `System`, which does the work; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size());
        // SAFETY: the caller's contract is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-1, layout.size());
        // SAFETY: the caller's contract is System's, which `alloc` got it from.
        unsafe { System.dealloc(ptr, layout) }
    }
}
