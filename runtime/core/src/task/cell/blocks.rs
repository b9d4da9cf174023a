//! Memory for tasks: a worker keeps the blocks of tasks that ended on it for the next ones that are
//! spawned on it.
//!
//! To the allocator a task is a call to get a block and one to give it back, and, for a crowd of
//! tasks, a walk through its lists besides: a fifth of the instructions of a spawn. Here each is a
//! few.
//!
//! Shape: by thread, for each size class a list of free blocks, linked through their first words. A
//! class is 16 bytes wide, and its blocks are as long as what the C library hands out anyway, so
//! that no task takes more memory than before.
//!
//! Who writes, who reads: the thread itself. Only workers keep blocks, between [`keep`]'s begin and
//! end; everybody else goes to the allocator, and so do the few tasks that are larger than
//! [`LARGEST`] or aligned to more than a word or two. A block may come from one thread and be freed
//! on another.
//!
//! Invariants:
//! * *Bounded*: a thread keeps [`MOST_BYTES`] at most. When it is full, a block of another class
//!   makes room, so that what tasks are like now is kept, not what they were like once.
//! * *One layout a class*: a block comes from the allocator, and goes back to it, with the layout
//!   of its class, whatever it was used for.
//!
//! Under Miri nothing is kept, so that a use after the end is found.
//!
//! Rejected: a store between threads, for what one spawns and another ends: it outlives the
//! runtime, or is one more lock at the end of each task's life.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::cell::Cell;
use std::ptr::{self, NonNull};

/// Width of a class, and what blocks are aligned to.
const STEP: usize = 16;
/// What the C library keeps beside each block.
const OVERHEAD: usize = 8;
const CLASSES: usize = 64;
/// The largest block that is kept.
const LARGEST: usize = CLASSES * STEP - OVERHEAD;
/// What a thread keeps: some 8,000 small tasks.
const MOST_BYTES: usize = 1024 * 1024;

/// A free block, as it begins.
struct Free {
    next: *mut Free,
}

/// The free blocks of one thread.
struct Kept {
    /// By class.
    first: [Cell<*mut Free>; CLASSES],
    /// Classes that have any.
    filled: Cell<u64>,
    bytes: Cell<usize>,
    /// 0: none are kept.
    limit: Cell<usize>,
}

const _: () = assert!(CLASSES == u64::BITS as usize);

thread_local! {
    /// Without a destructor, since what has none is cheaper to reach: `keep` gives the blocks back.
    static KEPT: Kept = const {
        Kept {
            first: [const { Cell::new(ptr::null_mut()) }; CLASSES],
            filled: Cell::new(0),
            bytes: Cell::new(0),
            limit: Cell::new(0),
        }
    };
}

/// Where blocks for `T` are kept, if they are.
const fn class_of<T>() -> Option<usize> {
    let layout = Layout::new::<T>();
    let class = (layout.size() + OVERHEAD).div_ceil(STEP) - 1;
    if layout.size() == 0 || layout.size() > LARGEST || layout.align() > STEP { None } else { Some(class) }
}

const fn bytes_of(class: usize) -> usize {
    // At least a `Free`.
    (class + 1) * STEP - OVERHEAD
}

fn layout_of(class: usize) -> Layout {
    Layout::from_size_align(bytes_of(class), STEP).expect("a small size and a power of two")
}

/// What the allocator is asked for.
fn layout<T>() -> Layout {
    match const { class_of::<T>() } {
        Some(class) => layout_of(class),
        None => Layout::new::<T>(),
    }
}

/// A block with `value` in it.
#[inline]
pub(super) fn allocate<T>(value: T) -> NonNull<T> {
    const { assert!(size_of::<T>() > 0, "a block holds something") };
    let kept = match const { class_of::<T>() } {
        Some(class) => KEPT.with(|kept| kept.take(class)),
        None => None,
    };
    let block = kept.map_or_else(|| from_allocator(layout::<T>()), NonNull::cast).cast::<T>();
    // SAFETY: the block is as long and as aligned as a T, at least, and nobody else's.
    unsafe { block.write(value) };
    block
}

fn from_allocator(layout: Layout) -> NonNull<Free> {
    // SAFETY: the size is not 0: `allocate` has seen to it.
    let block = unsafe { alloc(layout) };
    NonNull::new(block.cast()).unwrap_or_else(|| handle_alloc_error(layout))
}

/// Frees a block, whose value was dropped.
///
/// # Safety
/// It is from [`allocate`], for the same `T`, and not used any more.
#[inline]
pub(super) unsafe fn free<T>(block: NonNull<T>) {
    let block = block.cast();
    if let Some(class) = const { class_of::<T>() }
        // SAFETY: One layout a class; the block is the caller's to give.
        && KEPT.with(|kept| unsafe { kept.put(class, block) })
    {
        return;
    }
    // SAFETY: One layout a class, or that of T itself, as in `allocate`.
    unsafe { dealloc(block.as_ptr().cast(), layout::<T>()) };
}

impl Kept {
    #[inline]
    fn take(&self, class: usize) -> Option<NonNull<Free>> {
        let block = NonNull::new(self.first[class].get())?;
        // SAFETY: what is in a list is free, and begins with a `Free`.
        let next = unsafe { block.as_ref() }.next;
        self.first[class].set(next);
        if next.is_null() {
            self.filled.set(self.filled.get() & !(1 << class));
        }
        self.bytes.set(self.bytes.get() - bytes_of(class));
        Some(block)
    }

    /// Keeps a block, if there is room, or can be made. Returns whether it does.
    ///
    /// # Safety
    /// The block is of that class, and nobody else's.
    #[inline]
    unsafe fn put(&self, class: usize, block: NonNull<Free>) -> bool {
        if self.bytes.get() + bytes_of(class) > self.limit.get() {
            // Mostly so: outside workers, and where more tasks end than are spawned.
            if self.filled.get() & !(1 << class) == 0 {
                return false;
            }
            if !self.make_room(class) {
                return false;
            }
        }
        let next = self.first[class].replace(block.as_ptr());
        // SAFETY: by contract; each class is as long as a `Free`, at least.
        unsafe { block.write(Free { next }) };
        self.filled.set(self.filled.get() | 1 << class);
        self.bytes.set(self.bytes.get() + bytes_of(class));
        true
    }

    /// Bounded: frees blocks of other classes until one more of `class` has room. Returns whether
    /// it has.
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

    /// Frees a block of `class`, which has one.
    fn give_back(&self, class: usize) {
        if let Some(block) = self.take(class) {
            // SAFETY: One layout a class; it is out of the list.
            unsafe { dealloc(block.as_ptr().cast(), layout_of(class)) };
        }
    }
}

/// Has this thread keep blocks while `f` runs.
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

    /// Little enough for Miri, which is slow.
    const LIMIT: usize = 32 * 1024;

    fn held() -> usize {
        KEPT.with(|kept| kept.bytes.get())
    }

    fn allocate_and_free<T: Copy>(value: T, count: usize) -> Vec<NonNull<T>> {
        let blocks: Vec<_> = (0..count).map(|_| allocate(value)).collect();
        // SAFETY: each is from `allocate`, for T, which needs no drop.
        blocks.iter().for_each(|block| unsafe { free(*block) });
        blocks
    }

    #[test]
    fn what_was_freed_last_is_used_first_by_all_of_its_class_and_by_no_other() {
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
    fn a_thread_keeps_so_much_and_what_is_used_now() {
        keep_at_most(LIMIT, || {
            allocate_and_free([0_u8; 200], 2 * LIMIT / 200);
            assert!(held() <= LIMIT && held() > LIMIT - 200, "{}", held());
            allocate_and_free([0_u8; 1000], 2 * LIMIT / 1000);
            assert!(held() <= LIMIT && held() > LIMIT - 1000, "{}", held());
            assert_eq!(KEPT.with(|kept| kept.filled.get()), 1 << class_of::<[u8; 1000]>().unwrap());
        });
    }

    #[test]
    fn nothing_is_kept_of_what_is_too_large_or_aligned_too_far_nor_outside_workers() {
        #[derive(Clone, Copy)]
        #[repr(align(64))]
        struct Aligned(#[expect(dead_code, reason = "room")] u8);
        keep_at_most(LIMIT, || {
            allocate_and_free([0_u8; LARGEST + 1], 1);
            allocate_and_free(Aligned(0), 1);
        });
        allocate_and_free([0_u8; 100], 1);
        assert_eq!(held(), 0);
    }

    #[test]
    fn a_block_is_as_long_as_its_value_and_no_longer_than_the_c_library_makes_it() {
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
