//! Counts the memory that a target uses, so that an input whose memory is not bounded is reported.
//!
//! The fuzzer's own limits apply to the whole program, which keeps a corpus of unknown size. This
//! allocator counts what the code under test allocates, and [`bounded`] compares the peak with the
//! bound that the target states. libFuzzer's own memory is not counted: it does not use Rust's
//! allocator.
//!
//! The counts belong to the program, because a target may have more than one thread.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A larger request fails, so that one wrong length does not fill the machine's memory before the
/// bound is checked.
const REQUEST_MAX: usize = 1 << 30;

/// Bytes that are allocated now.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// The most bytes that were allocated, or requested, since [`bounded`] began.
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: every call goes to the system's allocator with the same arguments, or returns null, which
// is a failed allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promises are those that `System` requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if !count(layout.size()) {
            return std::ptr::null_mut();
        }
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // ORDERING: Relaxed: a count, read by the thread that waits for the others.
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `at` is from `System`, as all allocations are.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both blocks exist while the contents are copied.
        if !count(size) {
            return std::ptr::null_mut();
        }
        // ORDERING: Relaxed: as in `dealloc`.
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Counts a request. Returns false if it is too large, and then counts it in the peak only.
fn count(size: usize) -> bool {
    let is_granted = size <= REQUEST_MAX;
    // ORDERING: Relaxed: counts; `bounded` reads them on the thread that ran the code under test.
    let live = if is_granted { LIVE.fetch_add(size, Relaxed) } else { LIVE.load(Relaxed) };
    PEAK.fetch_max(live.saturating_add(size), Relaxed);
    is_granted
}

/// Runs `target`.
///
/// # Panics
/// If it needed more than `max` bytes at one time, in addition to what was allocated before.
pub fn bounded<T>(max: usize, target: impl FnOnce() -> T) -> T {
    // ORDERING: Relaxed: see `count`.
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = target();
    let peak = PEAK.load(Relaxed).saturating_sub(before);
    assert!(peak <= max, "{peak} bytes of memory were needed or requested, and the bound is {max}");
    result
}
