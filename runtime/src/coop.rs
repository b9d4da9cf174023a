//! The cooperative budget: how many operations a task may do in one poll before its leaves make it yield.
//!
//! Every leaf of ours (net, time, task joins) spends one unit an operation; with none left it wakes its task by the yield road
//! and returns Pending. Without this a task that loops over things that are always ready keeps its worker for ever.
//!
//! Who writes: the worker, which fills the budget before each poll, and the leaves on the same thread. Outside a worker's poll
//! the budget is unlimited.

use std::cell::Cell;
use std::task::{Context, Poll};

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget { left: None, was_exhausted: false }) };
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

/// Gives back the unit it stands for, unless the operation made progress.
#[derive(Debug)]
#[must_use = "dropping it gives the unit back"]
pub(crate) struct Unit {
    is_spent: bool,
}

impl Unit {
    /// The operation did something: the unit stays spent.
    #[inline]
    pub(crate) fn made_progress(mut self) {
        self.is_spent = true;
    }
}

impl Drop for Unit {
    #[inline]
    fn drop(&mut self) {
        if !self.is_spent {
            let budget = BUDGET.get();
            BUDGET.set(Budget { left: budget.left.map(|left| left + 1), ..budget });
        }
    }
}

/// Spends one unit; Pending, with the task woken by the yield road, when none is left.
#[inline]
pub(crate) fn poll_proceed(cx: &mut Context<'_>) -> Poll<Unit> {
    let budget = BUDGET.get();
    match budget.left {
        Some(0) => {
            BUDGET.set(Budget { was_exhausted: true, ..budget });
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Some(left) => {
            BUDGET.set(Budget { left: Some(left - 1), ..budget });
            Poll::Ready(Unit { is_spent: false })
        }
        None => Poll::Ready(Unit { is_spent: true }),
    }
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
