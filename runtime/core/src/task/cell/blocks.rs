//! The allocator of tasks: each worker keeps the memory blocks of tasks that ended on it, and
//! reuses them for tasks that are spawned on it.
//!
//! With the general allocator, a task costs a call to allocate and a call to free, and with many
//! tasks also a walk through the allocator's lists: a fifth of the instructions of a spawn. Here
//! each operation takes a few instructions.
//!
//! Shape: each thread has a list of free blocks per size class, linked through their first words. A
//! class is 16 bytes wide. Its blocks are as long as those of the C library, so no task takes more
//! memory than with the general allocator.
//!
//! Writer and reader: only the thread itself. Only workers keep blocks, while the function
//! passed to [`keep`] runs. All other threads use the general allocator, and so do the few tasks
//! that are larger than [`LARGEST`] or have a larger alignment than 16. A block may be allocated on
//! one thread and freed on another.
//!
//! Invariants:
//! * *Bounded*: a thread keeps at most [`MOST_BYTES`]. If that is reached, a block of another class
//!   is freed to make room, so that the thread keeps the sizes in current use and not those of the
//!   past.
//! * *One layout per class*: a block is allocated and freed with the layout of its class,
//!   regardless of the types that used it.
//!
//! Under Miri no block is kept, so that a use after free is detected.
//!
//! Rejected: a store shared by threads, for tasks that are spawned on one and end on another. It
//! outlives the runtime, or it takes one more lock at the end of each task.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// The width of a class, and the alignment of blocks.
const STEP: usize = 16;
/// The bytes that the C library stores with each block.
const OVERHEAD: usize = 8;
const CLASSES: usize = 64;
/// The largest block that is kept.
const LARGEST: usize = CLASSES * STEP - OVERHEAD;
/// The most bytes that a thread keeps: some 8,000 small tasks.
const MOST_BYTES: usize = 1024 * 1024;

/// The first words of a free block.
struct Free {
    next: *mut Free,
}

/// The free blocks of one thread.
struct Kept {
    /// The lists, by class.
    first: [Cell<*mut Free>; CLASSES],
    /// A bit for each class with a non-empty list.
    filled: Cell<u64>,
    bytes: Cell<usize>,
    /// The most bytes to keep; 0 outside of [`keep`].
    limit: Cell<usize>,
}

const _: () = assert!(CLASSES == u64::BITS as usize);

thread_local! {
    /// It has no destructor, since a thread-local without one is cheaper to access. `keep` frees
    /// the blocks.
    static KEPT: Kept = const {
        Kept {
            first: [const { Cell::new(ptr::null_mut()) }; CLASSES],
            filled: Cell::new(0),
            bytes: Cell::new(0),
            limit: Cell::new(0),
        }
    };
}

/// Returns the class of blocks for `T`, unless they are never kept.
const fn class_of<T>() -> Option<usize> {
    let layout = Layout::new::<T>();
    let class = (layout.size() + OVERHEAD).div_ceil(STEP) - 1;
    if layout.size() == 0 || layout.size() > LARGEST || layout.align() > STEP { None } else { Some(class) }
}

const fn bytes_of(class: usize) -> usize {
    // At least the size of a `Free`.
    (class + 1) * STEP - OVERHEAD
}

fn layout_of(class: usize) -> Layout {
    Layout::from_size_align(bytes_of(class), STEP).expect("a small size and a power of two")
}

/// Returns the layout that is passed to the general allocator.
fn layout<T>() -> Layout {
    match const { class_of::<T>() } {
        Some(class) => layout_of(class),
        None => Layout::new::<T>(),
    }
}

/// Allocates a block and moves `value` into it.
#[inline]
pub(super) fn allocate<T>(value: T) -> NonNull<T> {
    const { assert!(size_of::<T>() > 0, "a block holds something") };
    let kept = match const { class_of::<T>() } {
        Some(class) => KEPT.with(|kept| kept.take(class)),
        None => None,
    };
    let block = kept.map_or_else(|| from_allocator(layout::<T>()), NonNull::cast).cast::<T>();
    // SAFETY: the block is at least as long and as aligned as a T, and no other code has it.
    unsafe { block.write(value) };
    block
}

fn from_allocator(layout: Layout) -> NonNull<Free> {
    // SAFETY: the size is not 0, which `allocate` asserts.
    let block = unsafe { alloc(layout) };
    NonNull::new(block.cast()).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees a block whose value was dropped.
///
/// # Safety
/// The block came from [`allocate`] for the same `T`, and is not used any more.
#[inline]
pub(super) unsafe fn free<T>(block: NonNull<T>) {
    let block = block.cast();
    if let Some(class) = const { class_of::<T>() }
        // SAFETY: One layout per class; by contract the caller owns the block.
        && KEPT.with(|kept| unsafe { kept.put(class, block) })
    {
        return;
    }
    // SAFETY: One layout per class, or the layout of T, as in `allocate`.
    unsafe { dealloc(block.as_ptr().cast(), layout::<T>()) };
}

impl Kept {
    #[inline]
    fn take(&self, class: usize) -> Option<NonNull<Free>> {
        let block = NonNull::new(self.first[class].get())?;
        // SAFETY: a block in a list is free, and begins with a `Free`.
        let next = unsafe { block.as_ref() }.next;
        self.first[class].set(next);
        if next.is_null() {
            self.filled.set(self.filled.get() & !(1 << class));
        }
        self.bytes.set(self.bytes.get() - bytes_of(class));
        Some(block)
    }

    /// Keeps a block if there is room or room can be made. Returns whether it was kept.
    ///
    /// # Safety
    /// The block is of that class, and no other code has it.
    #[inline]
    unsafe fn put(&self, class: usize, block: NonNull<Free>) -> bool {
        if self.bytes.get() + bytes_of(class) > self.limit.get() {
            // The usual cases here: a thread that is not a worker, or one on which more tasks end
            // than are spawned.
            if self.filled.get() & !(1 << class) == 0 {
                return false;
            }
            if !self.make_room(class) {
                return false;
            }
        }
        let next = self.first[class].replace(block.as_ptr());
        // SAFETY: by contract; each class is at least as long as a `Free`.
        unsafe { block.write(Free { next }) };
        self.filled.set(self.filled.get() | 1 << class);
        self.bytes.set(self.bytes.get() + bytes_of(class));
        true
    }

    /// Frees blocks of other classes until there is room for one of `class` (*Bounded*). Returns
    /// whether there is.
    #[cold]
    fn make_room(&self, class: usize) -> bool {
        while self.bytes.get() + bytes_of(class) > self.limit.get() {
            let others = self.filled.get() & !(1 << class);
            if others == 0 {
                return false;
            }
            self.give_back(others.trailing_zeros() as usize);
        }
        true
    }

    /// Frees one kept block of `class`.
    fn give_back(&self, class: usize) {
        if let Some(block) = self.take(class) {
            // SAFETY: One layout per class; the block was removed from its list.
            unsafe { dealloc(block.as_ptr().cast(), layout_of(class)) };
        }
    }
}

/// Makes this thread keep blocks while `f` runs.
pub(crate) fn keep<R>(f: impl FnOnce() -> R) -> R {
    keep_at_most(if cfg!(miri) { 0 } else { MOST_BYTES }, f)
}

fn keep_at_most<R>(limit: usize, f: impl FnOnce() -> R) -> R {
    struct Reset {
        former: usize,
    }
    impl Drop for Reset {
        fn drop(&mut self) {
            KEPT.with(|kept| {
                kept.limit.set(self.former);
                while kept.bytes.get() > self.former {
                    kept.give_back(kept.filled.get().trailing_zeros() as usize);
                }
            });
        }
    }
    let _reset = Reset { former: KEPT.with(|kept| kept.limit.replace(limit)) };
    f()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Small enough for Miri, which is slow.
    const LIMIT: usize = 32 * 1024;

    fn held() -> usize {
        KEPT.with(|kept| kept.bytes.get())
    }

    fn allocate_and_free<T: Copy>(value: T, count: usize) -> Vec<NonNull<T>> {
        let blocks: Vec<_> = (0..count).map(|_| allocate(value)).collect();
        // SAFETY: each block came from `allocate`, for T, which needs no drop.
        blocks.iter().for_each(|block| unsafe { free(*block) });
        blocks
    }

    #[test]
    fn freed_blocks_are_reused_last_in_first_out_by_size_class() {
        keep_at_most(LIMIT, || {
            let freed = allocate_and_free([1_u64; 13], 3);
            assert_eq!(held(), 3 * 104);
            let other = allocate([0_u8; 105]);
            assert!(!freed.contains(&other.cast()));
            let same = allocate([0_u8; 97]);
            assert_eq!(same.cast(), freed[2]);
            // SAFETY: from `allocate`, of this type.
            unsafe { free(other) };
            // SAFETY: likewise.
            unsafe { free(same) };
            assert_eq!(held(), 3 * 104 + 120);
        });
        assert_eq!(held(), 0, "all are given back");
    }

    #[test]
    fn a_thread_keeps_a_bounded_number_of_blocks_of_current_sizes() {
        keep_at_most(LIMIT, || {
            allocate_and_free([0_u8; 200], 2 * LIMIT / 200);
            assert!(held() <= LIMIT && held() > LIMIT - 200, "{}", held());
            allocate_and_free([0_u8; 1000], 2 * LIMIT / 1000);
            assert!(held() <= LIMIT && held() > LIMIT - 1000, "{}", held());
            assert_eq!(KEPT.with(|kept| kept.filled.get()), 1 << class_of::<[u8; 1000]>().unwrap());
        });
    }

    #[test]
    fn large_and_over_aligned_blocks_are_not_cached() {
        #[derive(Clone, Copy)]
        #[repr(align(64))]
        struct Aligned(#[expect(dead_code, reason = "room")] u8);
        keep_at_most(LIMIT, || {
            allocate_and_free([0_u8; LARGEST + 1], 1);
            allocate_and_free(Aligned(0), 1);
            assert_eq!(held(), 0);
            allocate_and_free([0_u8; 100], 1);
            assert!(held() > 0, "others are");
        });
        allocate_and_free([0_u8; 100], 1);
        assert_eq!(held(), 0, "nor are those of a thread that is no worker");
    }

    #[test]
    fn block_sizes_match_the_c_librarys_rounding() {
        for (bytes, class) in [
            (8, class_of::<[u8; 8]>()),
            (9, class_of::<[u8; 9]>()),
            (24, class_of::<[u8; 24]>()),
            (96, class_of::<[u8; 96]>()),
            (LARGEST, class_of::<[u8; LARGEST]>()),
        ] {
            let block = bytes_of(class.unwrap());
            assert!(
                block >= bytes && block < bytes + STEP && (block + OVERHEAD).is_multiple_of(STEP),
                "{bytes} {block}"
            );
        }
    }
}
