//! Counts what the program has allocated and not freed. Resident memory would depend more on the
//! allocator than on the program.
//!
//! It wraps the system's allocator and keeps two sums in shards, so that threads that allocate at
//! the same time do not compete for a cache line. A single shard may be negative, since one thread
//! may free what another has allocated. Only the sum is meaningful, and it is exact while no thread
//! allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

/// Shards: more than most machines have processors.
const SHARDS: usize = 16;
/// A thread that has no shard yet.
const NONE: usize = usize::MAX;

/// Two cache lines, since processors fetch them in pairs.
#[repr(align(128))]
struct Shard {
    allocations: AtomicI64,
    bytes: AtomicI64,
}

static HEAP: [Shard; SHARDS] = [const { Shard { allocations: AtomicI64::new(0), bytes: AtomicI64::new(0) } }; SHARDS];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// This thread's shard. It has no destructor, so that it may be used while a thread begins and
    /// ends.
    static SHARD: Cell<usize> = const { Cell::new(NONE) };
}

/// The allocated memory at one moment.
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
    // Relaxed: read while no thread allocates, after the threads were joined or found asleep.
    HEAP[shard].allocations.fetch_add(allocations, Ordering::Relaxed);
    HEAP[shard].bytes.fetch_add(allocations * bytes as i64, Ordering::Relaxed);
}

/// Counts, and delegates to the system's allocator.
pub struct Counting;

// SAFETY: delegates to `System`; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size());
        // SAFETY: the caller's contract is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-1, layout.size());
        // SAFETY: the caller's contract is System's, which returned `ptr` in `alloc`.
        unsafe { System.dealloc(ptr, layout) }
    }
}
