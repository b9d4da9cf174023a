//! The allocation of a task, and the functions that fill and free it.

use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::{ManuallyDrop, needs_drop};
use std::ptr::NonNull;

use super::blocks;
use super::join_waker::JoinWaker;
use crate::task::contain::contain;
use crate::task::current::run_as_ended;
use crate::task::header::Header;
use crate::task::join::Panic;
use crate::task::schedule::Schedule;
use crate::task::stage::Content;

/// The allocation of a task. `repr(C)`: the header comes first, so a pointer to it is also one to
/// the cell.
///
/// `header.stage` records the content of the room. The room must be cleared before the cell is
/// dropped.
#[repr(C)]
pub(super) struct Cell<F: Future, S> {
    pub(super) header: Header,
    pub(super) scheduler: S,
    pub(super) join_waker: JoinWaker,
    pub(super) room: UnsafeCell<Room<F>>,
}

/// Room for the future or its output. `repr(C)`: both begin where it begins.
#[repr(C)]
pub(super) union Room<F: Future> {
    pub(super) future: ManuallyDrop<F>,
    output: ManuallyDrop<F::Output>,
}

/// Why a task has no output. A failure is stored without the task's id, which the header has.
pub(super) enum Failure {
    Cancelled,
    /// The task panicked, or its scheduler refused it.
    Panicked(Panic),
}

/// Returns the typed cell behind a header.
///
/// # Safety
/// `raw` comes from `new_task::<F, S>`, and the caller owns a reference during `'a`.
pub(super) unsafe fn cell_of<'a, F: Future, S>(raw: NonNull<Header>) -> &'a Cell<F, S> {
    // SAFETY: Whole provenance and Live by reference, by contract.
    unsafe { raw.cast::<Cell<F, S>>().as_ref() }
}

impl<F: Future, S> Cell<F, S> {
    /// Returns the address of the future, which only the owner of the content may use.
    #[inline]
    pub(super) fn future(&self) -> *mut F {
        self.room.get().cast()
    }

    #[inline]
    fn output(&self) -> *mut F::Output {
        self.room.get().cast()
    }

    /// Drops the future and puts its output in its place.
    ///
    /// # Safety
    /// The caller owns the content, which is the future.
    #[inline]
    pub(super) unsafe fn set_output(&self, output: F::Output) {
        /// Puts the output in place, even if the destructor of the future panics.
        struct Put<'a, F: Future, S>(&'a Cell<F, S>, ManuallyDrop<F::Output>);
        impl<F: Future, S> Drop for Put<'_, F, S> {
            #[inline]
            fn drop(&mut self) {
                let Self(cell, output) = self;
                // SAFETY: the value is not used again.
                let output = unsafe { ManuallyDrop::take(output) };
                // SAFETY: the caller of `set_output` owns the room, which is empty.
                unsafe { cell.output().write(output) };
                cell.header.stage.set(Content::Output);
            }
        }
        let put = Put(self, ManuallyDrop::new(output));
        if const { needs_drop::<F>() } {
            self.header.stage.set(Content::Nothing);
            // SAFETY: by contract, and the stage shows that it is no longer there. It is dropped in
            // place, as pinned values must be.
            unsafe { self.future().drop_in_place() };
        }
        drop(put);
    }

    /// Records why there is no output.
    ///
    /// # Safety
    /// The caller owns the content, and has cleared it.
    pub(super) unsafe fn set_failure(&self, failure: Failure) {
        self.header.stage.set(match failure {
            Failure::Cancelled => Content::Cancelled,
            Failure::Panicked(panic) => Content::Panicked(panic.into_raw()),
        });
    }

    /// Takes the output, or the reason why there is none.
    ///
    /// # Panics
    /// Panics if it was taken before.
    ///
    /// # Safety
    /// The caller owns the output of a complete task.
    #[inline]
    pub(super) unsafe fn take_output(&self) -> Result<F::Output, Failure> {
        let content = self.header.stage.content();
        self.header.stage.set(Content::Nothing);
        match content {
            // SAFETY: by contract; the stage shows that it is there, and was set to show that it is
            // no longer.
            Content::Output => Ok(unsafe { self.output().read() }),
            Content::Cancelled => Err(Failure::Cancelled),
            // SAFETY: `set_failure` made the pointer, and the stage no longer has it.
            Content::Panicked(panic) => Err(Failure::Panicked(unsafe { Panic::from_raw(panic) })),
            Content::Future | Content::Nothing => panic!("JoinHandle polled after it returned its output"),
        }
    }

    /// Drops what the cell contains. Afterwards that is nothing, even if a destructor panics.
    ///
    /// # Safety
    /// The caller owns the content.
    #[inline]
    pub(super) unsafe fn clear(&self) {
        let content = self.header.stage.content();
        self.header.stage.set(Content::Nothing);
        match content {
            // SAFETY: by contract, and the stage shows that it is there. It is dropped in place, as
            // pinned values must be.
            Content::Future => unsafe { self.future().drop_in_place() },
            // SAFETY: by contract, and the stage shows that it is there.
            Content::Output => unsafe { self.output().drop_in_place() },
            // SAFETY: `set_failure` made the pointer, and the stage no longer has it.
            Content::Panicked(panic) => drop(unsafe { Panic::from_raw(panic) }),
            Content::Cancelled | Content::Nothing => {}
        }
    }

    /// Drops what the cell still contains, under the id of the task. A panic of a destructor is
    /// contained, because no caller is left that could receive it.
    ///
    /// # Safety
    /// The caller owns the content.
    #[inline]
    pub(super) unsafe fn clear_ended(&self) {
        let needs_drop = match self.header.stage.content() {
            Content::Future => const { needs_drop::<F>() },
            Content::Output => const { needs_drop::<F::Output>() },
            Content::Panicked(_) => true,
            Content::Cancelled | Content::Nothing => false,
        };
        if needs_drop {
            // SAFETY: by contract.
            run_as_ended(self.header.id, || contain(|| unsafe { self.clear() }));
        }
    }
}

/// Frees a task and drops what is left in it.
///
/// # Safety
/// `raw` comes from `new_task::<F, S>`. The last reference was released, and it is not used again.
pub(super) unsafe fn dealloc<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // Whole provenance; the last reference was released, so this function owns the block.
    let cell = raw.cast::<Cell<F, S>>();
    // The destructor of an output that was never taken may read the task id. It may also panic:
    // the thread that releases the last reference is arbitrary and must not be affected.
    // SAFETY: no other thread can reach the cell, which is still whole.
    let whole = unsafe { cell.as_ref() };
    // SAFETY: as above, so this function owns the content.
    unsafe { whole.clear_ended() };
    // SAFETY: no other thread can reach the cell, and it is not used again.
    contain(|| unsafe { cell.drop_in_place() });
    // SAFETY: the block came from `allocate`, for the same type, and its value was dropped.
    unsafe { blocks::free(cell) }
}
