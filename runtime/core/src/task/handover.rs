//! How a task's output and its join waker change hands: between the runner that completes the task
//! and the JoinHandle.
//!
//! For a newcomer. A task that ends leaves an output, which its JoinHandle wants. A handle that was
//! polled before that has left a waker in the task, the *join waker*, so that it is woken at the
//! end. In the ordinary case the handle publishes its waker, the runner puts the output in place,
//! completes, and wakes the joiner; the handle is polled again, takes the output, and is dropped.
//! The race is about who cleans up when both go at the same moment: each of output, waker and
//! memory must be dropped once, after its last use.
//!
//! Steps, as in the code and in the model (`state/loom_models`). Who owns what is *Join hand-over*
//! of `state`.
//!
//! Complete, by the runner, when the output is in place:
//! 1. Unobserved: if the runner holds all references that are left, nobody else can see the task:
//!    it is freed as it is.
//! 2. COMPLETE is set. Without a handle, the output is the runner's to drop.
//! 3. A published join waker is woken where it is.
//! 4. The join waker is released: from now on it is the handle's. If the handle has gone meanwhile,
//!    it is the runner's to drop.
//! 5. The runner's references are given up, with (2) or (4) if nothing is left to be dropped after
//!    that.
//!
//! Poll, by the handle:
//! 1. If the task is complete, the output is the handle's to take.
//! 2. If the waker that is published does as well, nothing is left to do. If not, it is retracted
//!    first.
//! 3. The waker is put in place, and then published. If the task completes meanwhile, the output is
//!    there.
//!
//! Drop, by the handle:
//! 1. JOIN_INTEREST is cleared, and JOIN_WAKER if the task is not complete.
//! 2. What is the handle's is dropped: the output after completion; the waker unless the completer
//!    is using it.
//! 3. The handle's reference is given up.
//!
//! What owns the memory is behind the trait [`Joined`]: the cell of a task in the program, cells
//! that loom watches in the model.

use super::state::{Complete, DropJoin, IsComplete, State};

/// A pointer to a task, to its output and to its join waker. Passed by value: the task may be freed
/// by others as soon as a step has given a reference up, while the function that took it is still
/// returning.
pub(super) trait Joined: Copy {
    type Waker;

    /// # Safety
    /// The caller holds a reference to the task, or has not yet used what gives it up.
    unsafe fn state<'a>(self) -> &'a State
    where
        Self: 'a;

    /// Whether waking the join waker would wake what `waker` wakes.
    ///
    /// # Safety
    /// JOIN_WAKER is set, and the caller is the JoinHandle.
    unsafe fn does_as_well(self, waker: &Self::Waker) -> bool;

    /// Replaces the join waker, by a clone or by nothing.
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

    // The steps on the word that a model can do wrong.

    /// Poll (2).
    ///
    /// # Safety
    /// As for [`state`](Self::state); so below.
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

/// Complete. True: the last references were the caller's, who has to free the task.
///
/// # Safety
/// The caller is the runner, the output is in place, and `references` of the task are handed over.
#[inline]
#[must_use = "true means that the task must be freed"]
pub(super) unsafe fn complete<J: Joined>(task: J, references: u64) -> bool {
    // SAFETY: the caller's references are not given up yet.
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
            // SAFETY: Join hand-over: JOIN_WAKER is set, so nobody writes the field.
            unsafe { task.wake_joiner() };
            // Complete (4)
            // SAFETY: the caller's references are not given up yet.
            let is_left = unsafe { task.release_join_waker(references) };
            is_left && {
                // SAFETY: Join hand-over: the handle went and left the field to the completer.
                unsafe { task.set_join_waker(None) };
                // Complete (5)
                state.drop_references(references)
            }
        }
    }
}

/// Poll. True: the task is complete, and the output is the handle's to take.
///
/// # Safety
/// The caller is the JoinHandle, and holds its reference.
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
        // SAFETY: Join hand-over: JOIN_WAKER is set, both sides may read.
        if unsafe { task.does_as_well(waker) } {
            return false;
        }
        // SAFETY: by contract.
        if unsafe { task.retract_join_waker() }.is_err() {
            return true;
        }
    }
    // Poll (3)
    // SAFETY: Join hand-over: JOIN_WAKER is clear, so the field is the handle's, or the completer
    // has let go of it.
    unsafe { task.set_join_waker(Some(waker)) };
    // SAFETY: by contract.
    unsafe { task.publish_join_waker() }.is_err()
}

/// Drop. True: the handle's reference was the last, and the caller has to free the task.
///
/// # Safety
/// The caller is the JoinHandle, whose reference is handed over.
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
        // SAFETY: Join hand-over: JOIN_WAKER is clear, the field is the handle's.
        unsafe { task.set_join_waker(None) };
    }
    // Drop (3)
    if let DropJoin::Nothing { was_last_reference } = drops {
        return was_last_reference;
    }
    // SAFETY: the handle's reference is not given up yet.
    let is_last = unsafe { task.is_only_reference() };
    is_last || state.drop_references(1)
}
