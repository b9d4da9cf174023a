//! The allocation of a task, and the function that frees it.

use std::cell::UnsafeCell;
use std::future::Future;
use std::mem::needs_drop;
use std::ptr::NonNull;

use super::blocks;
use super::join_waker::JoinWaker;
use crate::task::contain::contain;
use crate::task::current::run_as_ended;
use crate::task::header::Header;
use crate::task::join::Panic;
use crate::task::schedule::Schedule;

/// The allocation of a task. `repr(C)`: the header comes first, so a pointer to it is also one to
/// the cell.
#[repr(C)]
pub(super) struct Cell<F: Future, S> {
    pub(super) header: Header,
    pub(super) scheduler: S,
    pub(super) join_waker: JoinWaker,
    pub(super) stage: UnsafeCell<Stage<F>>,
}

/// The future or the result of a task. A failure is stored without the task's id, which the header
/// has. Few tasks fail, and each task would have to reserve the space.
pub(super) enum Stage<F: Future> {
    Future(F),
    Output(F::Output),
    Cancelled,
    /// The task panicked, or its scheduler refused it.
    Panicked(Panic),
    Empty,
}

/// Returns the typed cell behind a header.
///
/// # Safety
/// `raw` comes from `new_task::<F, S>`, and the caller owns a reference during `'a`.
pub(super) unsafe fn cell_of<'a, F: Future, S>(raw: NonNull<Header>) -> &'a Cell<F, S> {
    // SAFETY: Whole provenance and Live by reference, by contract.
    unsafe { raw.cast::<Cell<F, S>>().as_ref() }
}

impl<F: Future, S: Schedule> Cell<F, S> {
    /// Replaces the stage and drops the former one.
    ///
    /// # Safety
    /// The caller owns the stage.
    pub(super) unsafe fn set_stage(&self, stage: Stage<F>) {
        // SAFETY: by contract.
        unsafe { *self.stage.get() = stage }
    }

    /// Drops the output if it is still there, under the id of the task. A panic of its destructor
    /// is contained, because no caller is left that could receive it.
    ///
    /// # Safety
    /// The caller owns the stage.
    #[inline]
    pub(super) unsafe fn drop_output(&self) {
        // SAFETY: by contract.
        if let Stage::Empty = unsafe { &*self.stage.get() } {
            return;
        }
        // SAFETY: by contract.
        let drop_it = || contain(|| unsafe { self.set_stage(Stage::Empty) });
        // If the output has no destructor, no code of the program reads the id. The destructor
        // of a panic's payload runs without it.
        if const { needs_drop::<F::Output>() } { run_as_ended(self.header.id, drop_it) } else { drop_it() }
    }
}

/// Frees a task and drops what is left of its output.
///
/// # Safety
/// `raw` comes from `new_task::<F, S>`. The last reference was released, and it is not used again.
pub(super) unsafe fn dealloc<F: Future, S: Schedule>(raw: NonNull<Header>) {
    // Whole provenance; the last reference was released, so this function owns the block.
    let cell = raw.cast::<Cell<F, S>>();
    // The destructor of an output that was never taken may read the task id. It may also panic:
    // the thread that releases the last reference is arbitrary and must not be affected.
    if const { needs_drop::<F::Output>() } {
        // SAFETY: no other thread can reach the cell, which is still whole.
        let whole = unsafe { cell.as_ref() };
        // SAFETY: as above, so this function owns the stage.
        unsafe { whole.drop_output() };
    }
    // SAFETY: no other thread can reach the cell, and it is not used again.
    contain(|| unsafe { cell.drop_in_place() });
    // SAFETY: the block came from `allocate`, for the same type, and its value was dropped.
    unsafe { blocks::free(cell) }
}
