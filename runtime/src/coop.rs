//! The cooperative budget: how many operations a task may do in one poll before its leaves make it yield.
//!
//! Every leaf of ours (net, time, sync, task joins) spends one unit an operation; with none left it wakes its task by the yield road
//! and returns Pending. Without this a task that loops over things that are always ready keeps its worker for ever.
//!
//! A third reason to yield, beside this and the tick's: the sentinel has seen that the poll lasts while others wait, and asks for it.
//!
//! Invariant: *Worker while set*: the pointer to the worker's cells is set only by [`run_as`], for the time that they are borrowed there.
//!
//! Who writes: the worker, which fills the budget before each poll, and the leaves on the same thread. Outside a worker's poll
//! the budget is unlimited.

use std::cell::Cell;
#[cfg(not(loom))]
use std::ptr;
use std::task::{Context, Poll};

#[cfg(not(loom))]
use crate::stats::cells::WorkerCells;

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget { left: None, was_exhausted: false }) };
    /// Where the sentinel says that this worker's poll is to yield.
    #[cfg(not(loom))]
    static WORKER: Cell<*const WorkerCells> = const { Cell::new(ptr::null()) };
}

#[derive(Clone, Copy)]
struct Budget {
    /// Operations left; `None` = unlimited.
    left: Option<u32>,
    /// Whether a leaf was refused since the budget was filled.
    was_exhausted: bool,
}

/// Fills the budget for a poll that begins.
#[inline]
pub(crate) fn begin_poll(operations: u32) {
    BUDGET.set(Budget { left: Some(operations), was_exhausted: false });
}

/// Lifts the limit after a poll; says whether the poll ran into it.
#[inline]
pub(crate) fn end_poll() -> bool {
    BUDGET.replace(Budget { left: None, was_exhausted: false }).was_exhausted
}

/// Runs `f` on the thread of a worker, whose polls the sentinel may ask to yield.
#[cfg(not(loom))]
pub(crate) fn run_as(cells: &WorkerCells, f: impl FnOnce()) {
    struct Reset(*const WorkerCells);
    impl Drop for Reset {
        fn drop(&mut self) {
            WORKER.set(self.0);
        }
    }
    let _reset = Reset(WORKER.replace(cells));
    f();
}

/// Whether the sentinel wants this poll to yield.
#[cfg(not(loom))]
#[inline]
fn is_to_yield() -> bool {
    let cells = WORKER.get();
    // SAFETY: *Worker while set*: `run_as`, further up this thread's stack, borrows what it points to.
    unsafe { cells.as_ref() }.is_some_and(WorkerCells::is_to_yield)
}

#[cfg(loom)]
fn is_to_yield() -> bool {
    false
}

/// Runs `f` without a limit, in the middle of a poll.
#[cfg(not(loom))]
pub(crate) fn unlimited<R>(f: impl FnOnce() -> R) -> R {
    run_within(None, f)
}

/// Runs `f`, a poll in the middle of another one, with a budget of its own.
#[cfg(not(loom))]
pub(crate) fn limited<R>(operations: u32, f: impl FnOnce() -> R) -> R {
    run_within(Some(operations), f)
}

/// The budget before is as it was afterwards.
#[cfg(not(loom))]
fn run_within<R>(left: Option<u32>, f: impl FnOnce() -> R) -> R {
    struct Reset(Budget);
    impl Drop for Reset {
        fn drop(&mut self) {
            BUDGET.set(self.0);
        }
    }
    let _reset = Reset(BUDGET.replace(Budget { left, was_exhausted: false }));
    f()
}

/// Leave to do one operation, which spends a unit if it makes progress. One that is made of others spends theirs and its own, and so never
/// waits for the unit that it stands for itself.
#[derive(Debug)]
#[must_use = "an operation that made progress spends it"]
pub(crate) struct Unit(());

impl Unit {
    /// The operation did something: the unit is spent, if one is left.
    #[inline]
    pub(crate) fn made_progress(self) {
        let budget = BUDGET.get();
        BUDGET.set(Budget { left: budget.left.map(|left| left.saturating_sub(1)), ..budget });
    }
}

/// Whether a unit is left; Pending, with the task woken by the yield road, when none is.
#[inline]
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<Unit> {
    let budget = BUDGET.get();
    if budget.left.is_some_and(|left| left == 0 || is_to_yield()) {
        BUDGET.set(Budget { was_exhausted: true, ..budget });
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
