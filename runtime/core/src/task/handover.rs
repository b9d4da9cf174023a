//! The hand-over of a task's output and join waker between the runner that completes the task and
//! the JoinHandle.
//!
//! A task that completes leaves an output for its JoinHandle. If the handle was polled before, it
//! left a waker in the task, the *join waker*, which is woken at the end.
//!
//! In the ordinary case the handle publishes its waker; the runner stores the output, completes the
//! task, and wakes the joiner; the handle is polled again, takes the output, and is dropped. The
//! race is about the clean-up when the task completes while its handle is dropped: the output, the
//! waker and the memory must each be dropped once, after their last use.
//!
//! The steps below are numbered as in the code and in the models (`state/loom_models`). *Join
//! hand-over* in `state` defines which side owns what.
//!
//! Complete, by the runner, when the output is in place:
//! 1. Unobserved: if the runner owns all remaining references, no other thread can see the task,
//!    and it is freed as it is.
//! 2. COMPLETE is set. Without a handle, the runner drops the output.
//! 3. A published join waker is woken in place.
//! 4. The join waker is released, and from then on belongs to the handle. If the handle was dropped
//!    in the meantime, the runner drops the waker.
//! 5. The runner's references are released. This happens within (2) or (4) if nothing has to be
//!    dropped after that step.
//!
//! Poll, by the handle:
//! 1. If the task is complete, the handle may take the output.
//! 2. If the published waker wakes the same task, nothing is left to do. Otherwise it is retracted
//!    first.
//! 3. The new waker is stored and then published. If the task completes in the meantime, the output
//!    is ready.
//!
//! Drop, by the handle:
//! 1. JOIN_INTEREST is cleared, and JOIN_WAKER if the task is not complete. Nothing is cleared if
//!    the completer has already finished: it does not read the flags again.
//! 2. The handle drops what it owns: the output after completion, and the waker unless the
//!    completer is using it.
//! 3. The handle's reference is released. This happens within (1) if nothing has to be dropped.
//!
//! The memory is behind the trait [`Joined`]: the runtime implements it for the cell of a task, and
//! the models for cells that loom checks.

use super::state::{Complete, DropJoin, IsComplete, State};

/// A pointer to a task, to its output and to its join waker. It is passed by value and not as a
/// reference: after a step has released a reference, other threads may free the task while the
/// function is still returning.
pub(super) trait Joined: Copy {
    type Waker;

    /// # Safety
    /// The caller owns a reference to the task, and uses the state only until it has released it.
    unsafe fn state<'a>(self) -> &'a State
    where
        Self: 'a;

    /// Returns whether waking the join waker would wake the same task as `waker`.
    ///
    /// # Safety
    /// JOIN_WAKER is set, and the caller is the JoinHandle.
    unsafe fn does_as_well(self, waker: &Self::Waker) -> bool;

    /// Replaces the join waker by a clone of `waker`, or by nothing.
    ///
    /// # Safety
    /// The caller owns the join waker.
    unsafe fn set_join_waker(self, waker: Option<&Self::Waker>);

    /// Wakes the join waker.
    ///
    /// # Safety
    /// JOIN_WAKER is set, and the caller is the completer.
    unsafe fn wake_joiner(self);

    /// Drops the output.
    ///
    /// # Safety
    /// The caller owns the output.
    unsafe fn drop_output(self);

    // The steps on the task word that a model can replace by incorrect ones.

    /// Poll (2).
    ///
    /// # Safety
    /// As for [`state`](Self::state), here and in the methods below.
    #[inline]
    unsafe fn retract_join_waker(self) -> Result<(), IsComplete> {
        // SAFETY: by contract.
        unsafe { self.state() }.retract_join_waker()
    }

    /// Poll (3).
    ///
    /// # Safety
    /// As above.
    #[inline]
    unsafe fn publish_join_waker(self) -> Result<(), IsComplete> {
        // SAFETY: by contract.
        unsafe { self.state() }.publish_join_waker()
    }

    /// Complete (4).
    ///
    /// # Safety
    /// As above.
    #[inline]
    unsafe fn release_join_waker(self, references: u64) -> bool {
        // SAFETY: by contract.
        unsafe { self.state() }.release_join_waker(references)
    }

    /// Drop (3).
    ///
    /// # Safety
    /// As above.
    #[inline]
    unsafe fn is_only_reference(self) -> bool {
        // SAFETY: by contract.
        unsafe { self.state() }.is_only_reference()
    }
}

/// Performs Complete. Returns true if the caller's references were the last ones: it must free the
/// task.
///
/// # Safety
/// The caller is the runner, the output is in place, and the caller gives up `references` of the
/// task.
#[inline]
#[must_use = "true means that the task must be freed"]
pub(super) unsafe fn complete<J: Joined>(task: J, references: u64) -> bool {
    // SAFETY: the caller's references are not released yet.
    let state = unsafe { task.state() };
    // Complete (1)
    if state.is_unobserved(references) {
        return true;
    }
    // Complete (2)
    match state.complete(references) {
        Complete::Keep => false,
        Complete::DropOutput => {
            // SAFETY: Join hand-over: no JOIN_INTEREST, so the output is the completer's.
            unsafe { task.drop_output() };
            // Complete (5)
            state.drop_references(references)
        }
        Complete::WakeJoiner => {
            // Complete (3)
            // SAFETY: Join hand-over: JOIN_WAKER is set, so no thread writes the field.
            unsafe { task.wake_joiner() };
            // Complete (4)
            // SAFETY: the caller's references are not released yet.
            let is_left = unsafe { task.release_join_waker(references) };
            is_left && {
                // SAFETY: Join hand-over: the handle was dropped and left the field to the
                // completer.
                unsafe { task.set_join_waker(None) };
                // Complete (5)
                state.drop_references(references)
            }
        }
    }
}

/// Performs Poll. Returns true if the task is complete: the handle may take the output.
///
/// # Safety
/// The caller is the JoinHandle, and owns its reference.
#[inline]
#[must_use = "true means that there is an output"]
pub(super) unsafe fn poll_join<J: Joined>(task: J, waker: &J::Waker) -> bool {
    // SAFETY: by contract.
    let state = unsafe { task.state() };
    // Poll (1)
    if state.is_complete() {
        return true;
    }
    // Poll (2)
    if state.has_join_waker() {
        // SAFETY: Join hand-over: JOIN_WAKER is set, so both sides may read.
        if unsafe { task.does_as_well(waker) } {
            return false;
        }
        // SAFETY: by contract.
        if unsafe { task.retract_join_waker() }.is_err() {
            return true;
        }
    }
    // Poll (3)
    // SAFETY: Join hand-over: JOIN_WAKER is clear, so the field belongs to the handle. If the task
    // is complete, the completer no longer uses it.
    unsafe { task.set_join_waker(Some(waker)) };
    // SAFETY: by contract.
    unsafe { task.publish_join_waker() }.is_err()
}

/// Performs Drop. Returns true if the handle's reference was the last one: the caller must free the
/// task.
///
/// # Safety
/// The caller is the JoinHandle, and gives up its reference.
#[inline]
#[must_use = "true means that the task must be freed"]
pub(super) unsafe fn drop_join<J: Joined>(task: J) -> bool {
    // SAFETY: by contract.
    let state = unsafe { task.state() };
    // Drop (1)
    let drops = state.drop_join_interest();
    // Drop (2)
    if let DropJoin::OutputAndWaker | DropJoin::Output = drops {
        // SAFETY: Join hand-over: complete with JOIN_INTEREST, so the output is the handle's.
        unsafe { task.drop_output() };
    }
    if let DropJoin::OutputAndWaker | DropJoin::Waker = drops {
        // SAFETY: Join hand-over: JOIN_WAKER is clear, so the field belongs to the handle.
        unsafe { task.set_join_waker(None) };
    }
    // Drop (3)
    if let DropJoin::Nothing { was_last_reference } = drops {
        return was_last_reference;
    }
    // SAFETY: the handle's reference is not released yet.
    let is_last = unsafe { task.is_only_reference() };
    is_last || state.drop_references(1)
}
