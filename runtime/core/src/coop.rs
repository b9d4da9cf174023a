//! The cooperative budget: how many operations a task may do in one poll before its leaves make it
//! yield.
//!
//! Every leaf of ours (net, time, sync, task joins) spends one unit an operation; with none left it
//! wakes its task by the yield road and returns Pending. Without this a task that loops over things
//! that are always ready keeps its worker for ever.
//!
//! A third reason to yield, beside this and the tick's: the sentinel has seen that the poll lasts
//! while others wait, and asks for it.
//!
//! Who polls inside a poll may keep the refusal to himself, and poll again at once: an executor of
//! somebody else's, in a callback that is not async. So one of `REFUSALS_MAX` refusals in one poll
//! has the budget filled again, and takes back what the sentinel asked; it asks again at its next
//! check.
//!
//! Invariant: *Worker while set*: the pointer to the worker's cells is set only by `run_as`, for
//! the time that they are borrowed there.
//!
//! Who writes: the worker and `block_on`, which fill the budget before each poll, and the leaves on
//! the same thread. Outside their polls the budget is unlimited.

use std::cell::Cell;
#[cfg(not(loom))]
use std::ptr;
use std::task::{Context, Poll};

#[cfg(not(loom))]
use crate::stats::cells::WorkerCells;

/// Refusals in one poll after which it is plain that whoever is refused does not hand it on: more
/// than a poll has leaves as a rule, which are refused once each; and as many operations pass then.
const REFUSALS_MAX: u32 = 1_000;

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget { left: None, refusals: 0 }) };
    /// Where the sentinel says that this worker's poll is to yield.
    #[cfg(not(loom))]
    static WORKER: Cell<*const WorkerCells> = const { Cell::new(ptr::null()) };
}

#[derive(Clone, Copy)]
struct Budget {
    /// Operations left; `None` = unlimited.
    left: Option<u32>,
    /// Of leaves, since the poll began, in polls inside it too; from `REFUSALS_MAX` on they are
    /// counted anew.
    refusals: u32,
}

impl Budget {
    #[cold]
    fn after_refusal(self) -> Self {
        if self.refusals < REFUSALS_MAX {
            return Self { refusals: self.refusals + 1, ..self };
        }
        ask_no_more();
        Self { left: Some(REFUSALS_MAX), refusals: 1 }
    }
}

/// Fills the budget for a poll that begins.
#[inline]
pub(crate) fn begin_poll(operations: u32) {
    BUDGET.set(Budget { left: Some(operations), refusals: 0 });
}

/// Lifts the limit after a poll; says whether the poll ran into it.
#[inline]
pub(crate) fn end_poll() -> bool {
    BUDGET.replace(Budget { left: None, refusals: 0 }).refusals > 0
}

/// Runs `f` on the thread of a worker, whose polls the sentinel may ask to yield.
#[cfg(not(loom))]
pub(crate) fn run_as(cells: &WorkerCells, f: impl FnOnce()) {
    set_worker(cells, f);
}

/// Runs `f`, which blocks in the middle of a poll, without a limit, and as on a thread of no
/// worker, whose polls nobody asks to yield.
#[cfg(not(loom))]
pub(crate) fn outside_polls<R>(f: impl FnOnce() -> R) -> R {
    set_worker(ptr::null(), || unlimited(f))
}

/// The worker before is set again afterwards.
#[cfg(not(loom))]
fn set_worker<R>(cells: *const WorkerCells, f: impl FnOnce() -> R) -> R {
    struct Reset(*const WorkerCells);
    impl Drop for Reset {
        fn drop(&mut self) {
            WORKER.set(self.0);
        }
    }
    let _reset = Reset(WORKER.replace(cells));
    f()
}

/// Whether the sentinel wants this poll to yield.
#[cfg(not(loom))]
#[inline]
fn is_to_yield() -> bool {
    let cells = WORKER.get();
    // SAFETY: *Worker while set*: `run_as`, further up this thread's stack, borrows what it points
    // to.
    unsafe { cells.as_ref() }.is_some_and(WorkerCells::is_to_yield)
}

#[cfg(loom)]
fn is_to_yield() -> bool {
    false
}

/// Takes that wish back.
#[cfg(not(loom))]
fn ask_no_more() {
    let cells = WORKER.get();
    // SAFETY: as in `is_to_yield`.
    if let Some(cells) = unsafe { cells.as_ref() } {
        cells.ask_no_more();
    }
}

#[cfg(loom)]
fn ask_no_more() {}

/// Runs `f` without a limit, in the middle of a poll.
#[cfg(not(loom))]
pub fn unlimited<R>(f: impl FnOnce() -> R) -> R {
    run_within(None, f)
}

/// Runs `f`, a poll of `block_on`'s future or one in the middle of another, with a budget of its
/// own.
#[cfg(not(loom))]
pub fn limited<R>(operations: u32, f: impl FnOnce() -> R) -> R {
    run_within(Some(operations), f)
}

/// The budget before is as it was afterwards.
#[cfg(not(loom))]
fn run_within<R>(left: Option<u32>, f: impl FnOnce() -> R) -> R {
    struct Reset(Option<u32>);
    impl Drop for Reset {
        fn drop(&mut self) {
            BUDGET.set(Budget { left: self.0, ..BUDGET.get() });
        }
    }
    let budget = BUDGET.get();
    let _reset = Reset(budget.left);
    BUDGET.set(Budget { left, ..budget });
    f()
}

/// Leave to do one operation, which spends a unit if it makes progress. One that is made of others
/// spends theirs and its own, and so never waits for the unit that it stands for itself.
#[derive(Debug)]
#[must_use = "an operation that made progress spends it"]
pub struct Unit(());

impl Unit {
    /// The operation did something: the unit is spent, if one is left.
    #[inline]
    pub fn made_progress(self) {
        let budget = BUDGET.get();
        BUDGET.set(Budget { left: budget.left.map(|left| left.saturating_sub(1)), ..budget });
    }
}

/// Whether a unit is left; Pending, with the task woken by the yield road, when none is.
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<Unit> {
    let budget = BUDGET.get();
    if budget.left.is_some_and(|left| left == 0 || is_to_yield()) {
        BUDGET.set(budget.after_refusal());
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(Unit(()))
}

/// Has the task polled again, behind those that are ready now.
pub(crate) async fn yield_once() {
    let mut has_yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Spends one unit without doing anything else.
pub(crate) async fn consume() {
    std::future::poll_fn(|cx| poll_proceed(cx).map(Unit::made_progress)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_budget_of_two_lets_two_operations_pass_and_refuses_the_third() {
        let mut cx = Context::from_waker(Waker::noop());
        begin_poll(2);
        for _ in 0..2 {
            let Poll::Ready(unit) = poll_proceed(&mut cx) else { panic!("refused with budget left") };
            unit.made_progress();
        }
        assert!(poll_proceed(&mut cx).is_pending());
        assert!(end_poll(), "the refusal is told");
        assert!(poll_proceed(&mut cx).is_ready(), "no limit outside a poll");
    }

    #[test]
    fn an_operation_without_progress_costs_nothing() {
        let mut cx = Context::from_waker(Waker::noop());
        begin_poll(1);
        for _ in 0..5 {
            assert!(poll_proceed(&mut cx).is_ready());
        }
        assert!(!end_poll());
    }
}
