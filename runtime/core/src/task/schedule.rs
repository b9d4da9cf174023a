//! [`Schedule`]: what a task requires of the scheduler that runs it. A task depends on this trait
//! only, not on a scheduler.

use std::ptr::NonNull;

use super::header::{Header, Notified, Task};
use super::join::Refused;

/// The part of a scheduler that belongs to the calling thread, such as a worker. Only the scheduler
/// that made it can use it.
#[derive(Clone, Copy, Debug)]
pub struct Here(NonNull<()>);

impl Here {
    #[inline]
    pub(crate) fn of<T>(part: &T) -> Self {
        Self(NonNull::from(part).cast())
    }

    /// Returns the pointer that `of` was called with.
    #[inline]
    pub(crate) fn pointer<T>(self) -> NonNull<T> {
        self.0.cast()
    }
}

/// The interface that a task requires of the scheduler that runs it.
pub trait Schedule: Send + Sync + 'static {
    /// Whether the polls of its tasks are timed and added to their accounts.
    const IS_COUNTED: bool;
    /// Enqueues a task that was woken.
    fn schedule(&self, task: Notified);
    /// Returns the calling thread's part of this scheduler, which keeps the scheduler alive, if the
    /// thread has one. It is valid until the caller returns.
    fn here(&self) -> Option<Here> {
        None
    }
    /// Enqueues a task as [`schedule`](Self::schedule) does, on a thread of this scheduler. It has
    /// no `self`: the scheduler in the task's cell may be freed as soon as other threads can see
    /// the task.
    ///
    /// # Safety
    /// A call of [`here`](Self::here) for this task returned `here` to the calling function.
    unsafe fn schedule_here(_here: Here, _task: Notified) {
        unreachable!("no thread is this scheduler's own");
    }
    /// Returns whether the scheduler is shutting down, so that tasks are cancelled instead of
    /// polled.
    fn is_closing(&self) -> bool;
    /// Returns whether shields protect no task any more, because the time limit of the shutdown has
    /// passed. Called while the scheduler is shutting down.
    fn have_shields_ended(&self) -> bool {
        false
    }
    /// Called by the runner when the task is about to wait, or is woken again while the scheduler
    /// is shutting down. The scheduler keeps a reference to it from then on, unless it has one
    /// already, so that the task is not freed before it has ended. If the scheduler is shutting
    /// down, it cancels the task.
    fn keep(&self, task: &Task);
    /// Called when the task is about to end. Returns the reference that the scheduler keeps, if it
    /// has one.
    fn release(&self, task: &Header) -> Option<Task>;
    /// Returns why the scheduler refused to start the task, if it did. Called for a task that is
    /// cancelled before its first poll.
    #[inline]
    fn take_refusal(&self) -> Option<Refused> {
        None
    }
}
