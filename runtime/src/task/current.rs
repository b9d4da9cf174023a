//! Which task this thread polls.
//!
//! Who writes: `cell::run`, around each poll. Who reads: ids, shields, on the same thread.
//!
//! Invariant: *Alive while current*: the pointer is set only while the runner holds a reference.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::header::{Header, Task};

thread_local! {
    static CURRENT: Cell<Option<NonNull<Header>>> = const { Cell::new(None) };
}

/// Makes `task` current until it is dropped; the one before is current again afterwards.
#[must_use = "the task is current only while this lives"]
pub(super) struct Current<'a> {
    former: Option<NonNull<Header>>,
    _task: &'a Task,
}

impl<'a> Current<'a> {
    pub(super) fn enter(task: &'a Task) -> Self {
        Self { former: CURRENT.replace(Some(task.as_raw())), _task: task }
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        CURRENT.set(self.former);
    }
}

/// Calls `f` with the task that this thread polls, if it polls one.
pub(super) fn with<R>(f: impl FnOnce(Option<&Task>) -> R) -> R {
    match CURRENT.try_with(Cell::get).ok().flatten() {
        None => f(None),
        Some(raw) => {
            // SAFETY: Alive while current; ManuallyDrop borrows the runner's reference and does not give it up.
            let task = ManuallyDrop::new(unsafe { Task::from_raw(raw) });
            f(Some(&task))
        }
    }
}
