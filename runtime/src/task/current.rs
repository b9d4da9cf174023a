//! Which task this thread polls, and whether it has woken itself.
//!
//! Who writes: `cell::run`, around each poll, and wakers, on the same thread. Who reads: ids, shields, and `cell::run` at the end of the poll.
//!
//! Invariants:
//! * *Alive while current*: the pointer is set only while the runner holds a reference.
//! * *Own poll*: `has_woken_itself` is about the poll that is going on here, and about no other: it is put by while a task is polled inside
//!   another one's poll.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::header::{Header, Task};

/// One poll.
#[derive(Clone, Copy)]
struct Running {
    task: Option<NonNull<Header>>,
    has_woken_itself: bool,
}

const NOTHING: Running = Running { task: None, has_woken_itself: false };

thread_local! {
    static CURRENT: Cell<Running> = const { Cell::new(NOTHING) };
}

/// Makes `task` current until it is dropped; the one before is current again afterwards.
#[must_use = "the task is current only while this lives"]
pub(super) struct Current<'a> {
    former: Running,
    _task: &'a Task,
}

impl<'a> Current<'a> {
    #[inline]
    pub(super) fn enter(task: &'a Task) -> Self {
        let running = Running { task: Some(task.as_raw()), has_woken_itself: false };
        Self { former: CURRENT.replace(running), _task: task }
    }
}

impl Drop for Current<'_> {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.former);
    }
}

/// Makes no task current while `f` runs: for worker threads, which may be simulated inside another task's poll.
pub(crate) fn run_outside_tasks(f: impl FnOnce()) {
    struct Reset(Running);
    impl Drop for Reset {
        fn drop(&mut self) {
            CURRENT.set(self.0);
        }
    }
    let _reset = Reset(CURRENT.replace(NOTHING));
    f();
}

/// Takes note of the wake-up if `task` is the one that this thread polls; its runner will see to it. False: it is another.
#[inline]
pub(super) fn has_noted_own_wake(task: NonNull<Header>) -> bool {
    let running = CURRENT.get();
    let is_own = running.task == Some(task);
    if is_own {
        CURRENT.set(Running { has_woken_itself: true, ..running });
    }
    is_own
}

/// Whether the task that this thread polls has woken itself since the poll began.
#[inline]
pub(super) fn has_woken_itself() -> bool {
    CURRENT.get().has_woken_itself
}

/// Calls `f` with the task that this thread polls, if it polls one.
pub(super) fn with<R>(f: impl FnOnce(Option<&Task>) -> R) -> R {
    match CURRENT.try_with(Cell::get).ok().and_then(|running| running.task) {
        None => f(None),
        Some(raw) => {
            // SAFETY: Alive while current; ManuallyDrop borrows the runner's reference and does not give it up.
            let task = ManuallyDrop::new(unsafe { Task::from_raw(raw) });
            f(Some(&task))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::task::cell::{Nowhere, new_task};
    use crate::task::id::Id;

    fn task() -> Task {
        let (notified, _join) = new_task(async {}, Nowhere, Id::next(), Location::caller(), None);
        notified.task().clone()
    }

    #[test]
    fn a_poll_inside_another_ones_takes_only_its_own_wake_ups_for_its_own() {
        let (outer, inner) = (task(), task());
        assert!(!has_noted_own_wake(outer.as_raw()), "nothing is polled");
        let _outer = Current::enter(&outer);
        assert!(!has_noted_own_wake(inner.as_raw()));
        {
            let _inner = Current::enter(&inner);
            assert!(!has_noted_own_wake(outer.as_raw()), "not the poll that is at its end next");
            assert!(!has_woken_itself());
            assert!(has_noted_own_wake(inner.as_raw()));
            assert!(has_woken_itself());
            run_outside_tasks(|| assert!(!has_noted_own_wake(inner.as_raw())));
            assert!(has_woken_itself());
        }
        assert!(!has_woken_itself());
        assert!(has_noted_own_wake(outer.as_raw()));
        assert!(has_woken_itself());
    }
}
