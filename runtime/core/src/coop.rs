//! The cooperative budget: how many operations a task may complete in one poll before it must
//! yield.
//!
//! A task that always finds its sockets and channels ready would never return Pending, and would
//! keep its worker from all other tasks. Therefore each of Volt's own leaf futures (net, time,
//! sync, task joins) spends one unit of the budget per operation. With no unit left, it wakes its
//! task so that the task is enqueued behind the others, and returns Pending. This is called a
//! *refusal*.
//!
//! The sentinel can also request that a poll yields, if the poll lasts while other tasks wait. The
//! next operation of the poll is then refused.
//!
//! Some code polls futures inside a poll and does not pass Pending on: for example a foreign
//! executor in a callback that is not async. It may poll again immediately, in a loop. Therefore
//! one of every `REFUSALS_MAX` refusals in a poll refills the budget and withdraws the sentinel's
//! request. The sentinel repeats it at its next check.
//!
//! Invariant: *Worker while set*: only `run_as` sets the pointer to the worker's cells, and only
//! while it borrows them.
//!
//! Writers: the worker and `block_on`, which fill the budget before each poll, and the leaf
//! futures on the same thread. Outside of their polls the budget is unlimited.

use std::cell::Cell;
#[cfg(not(loom))]
use std::ptr;
use std::task::{Context, Poll};

#[cfg(not(loom))]
use crate::stats::cells::WorkerCells;

/// The number of refusals in one poll that shows that Pending is not passed on. A poll usually has
/// fewer leaf futures, which are refused once each. This is also the size of the refilled budget.
const REFUSALS_MAX: u32 = 1_000;

thread_local! {
    static BUDGET: Cell<Budget> = const { Cell::new(Budget::UNLIMITED) };
    /// The cells in which the sentinel requests that this worker's poll yields.
    #[cfg(not(loom))]
    static WORKER: Cell<*const WorkerCells> = const { Cell::new(ptr::null()) };
}

/// One word, so that it is filled in one step.
#[derive(Clone, Copy)]
#[repr(align(8))]
struct Budget {
    /// The operations left; [`UNLIMITED`] means that there is no limit.
    left: u32,
    /// The refusals of leaf futures since the poll began, including those in nested polls. Counted
    /// from 1 again after `REFUSALS_MAX`.
    refusals: u32,
}

/// More operations than a budget has: a poll that completed as many would take seconds.
pub(crate) const UNLIMITED: u32 = u32::MAX;

impl Budget {
    const UNLIMITED: Self = Self { left: UNLIMITED, refusals: 0 };

    /// Returns whether the next operation is to be refused.
    #[inline]
    fn is_spent(self) -> bool {
        self.left != UNLIMITED && (self.left == 0 || is_to_yield())
    }

    #[cold]
    fn after_refusal(self) -> Self {
        if self.refusals < REFUSALS_MAX {
            return Self { refusals: self.refusals + 1, ..self };
        }
        withdraw_yield();
        Self { left: REFUSALS_MAX, refusals: 1 }
    }
}

/// Fills the budget at the beginning of a poll.
#[inline]
pub(crate) fn begin_poll(operations: u32) {
    BUDGET.set(Budget { left: operations, refusals: 0 });
}

/// Removes the limit at the end of a poll. Returns whether an operation was refused.
#[inline]
pub(crate) fn end_poll() -> bool {
    BUDGET.replace(Budget::UNLIMITED).refusals > 0
}

/// Runs `f` on the thread of a worker, so that the sentinel can request that its polls yield.
///
/// The thread may be in the poll of another runtime's task, whose budget is restored afterwards.
#[cfg(not(loom))]
pub(crate) fn run_as(cells: &WorkerCells, f: impl FnOnce()) {
    struct Reset(Budget);
    impl Drop for Reset {
        fn drop(&mut self) {
            BUDGET.set(self.0);
        }
    }
    let _reset = Reset(BUDGET.replace(Budget::UNLIMITED));
    set_worker(cells, f);
}

/// Runs `f`, which blocks in the middle of a poll. The budget is unlimited, and the sentinel's
/// requests do not apply.
#[cfg(not(loom))]
pub(crate) fn outside_polls<R>(f: impl FnOnce() -> R) -> R {
    set_worker(ptr::null(), || unlimited(f))
}

/// Runs `f` with `cells` as the current worker's, and then restores the former ones.
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

/// Returns whether the sentinel requests that this poll yields.
#[cfg(not(loom))]
#[inline]
fn is_to_yield() -> bool {
    let cells = WORKER.get();
    // SAFETY: *Worker while set*: the pointer is set only while `run_as`, in an outer frame of this
    // thread's stack, borrows the cells.
    unsafe { cells.as_ref() }.is_some_and(WorkerCells::is_to_yield)
}

#[cfg(loom)]
fn is_to_yield() -> bool {
    false
}

/// Withdraws the sentinel's request.
#[cfg(not(loom))]
fn withdraw_yield() {
    let cells = WORKER.get();
    // SAFETY: as in `is_to_yield`.
    if let Some(cells) = unsafe { cells.as_ref() } {
        cells.withdraw_yield();
    }
}

#[cfg(loom)]
fn withdraw_yield() {}

/// Runs `f` in the middle of a poll without a limit.
#[cfg(not(loom))]
pub fn unlimited<R>(f: impl FnOnce() -> R) -> R {
    run_within(UNLIMITED, f)
}

/// Runs `f` with a separate budget: a poll of `block_on`'s future, or a poll inside another one.
#[cfg(not(loom))]
pub fn limited<R>(operations: u32, f: impl FnOnce() -> R) -> R {
    run_within(operations, f)
}

/// Runs `f` with `left` as the budget, and then restores the former one.
#[cfg(not(loom))]
fn run_within<R>(left: u32, f: impl FnOnce() -> R) -> R {
    struct Reset(u32);
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

/// The permission for one operation, which costs a unit of the budget if it makes progress. A
/// compound operation costs its parts' units and its own; it is never refused for its own unit
/// after its parts have made progress.
#[derive(Debug)]
#[must_use = "an operation that made progress spends it"]
pub struct Unit(());

impl Unit {
    /// Spends the unit, if one is left, because the operation made progress.
    #[inline]
    pub fn made_progress(self) {
        let budget = BUDGET.get();
        if budget.left != UNLIMITED {
            BUDGET.set(Budget { left: budget.left.saturating_sub(1), ..budget });
        }
    }
}

/// Returns Ready if a unit is left. Otherwise wakes the task, so that it is enqueued behind the
/// others, and returns Pending.
#[inline]
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<Unit> {
    let budget = BUDGET.get();
    if budget.is_spent() {
        BUDGET.set(budget.after_refusal());
        cx.waker().wake_by_ref();
        return Poll::Pending;
    }
    Poll::Ready(Unit(()))
}

/// Returns whether [`poll_proceed`] would return Ready now.
#[inline]
pub fn has_budget_remaining() -> bool {
    !BUDGET.get().is_spent()
}

/// Spends a unit. Returns false if none is left; then [`poll_proceed`] has to refuse the operation.
#[inline]
pub fn try_proceed() -> bool {
    let is_left = has_budget_remaining();
    if is_left {
        spend();
    }
    is_left
}

/// Spends a unit, if one is left.
#[inline]
pub(crate) fn spend() {
    Unit(()).made_progress();
}

/// Yields once: the task is polled again after those that are ready now.
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

/// Spends one unit without any other effect.
pub(crate) async fn consume() {
    std::future::poll_fn(|cx| poll_proceed(cx).map(Unit::made_progress)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    #[test]
    fn a_budget_of_two_allows_two_operations_and_refuses_a_third() {
        let mut cx = Context::from_waker(Waker::noop());
        begin_poll(2);
        for _ in 0..2 {
            let Poll::Ready(unit) = poll_proceed(&mut cx) else { panic!("refused with budget left") };
            unit.made_progress();
        }
        assert!(!has_budget_remaining());
        assert!(poll_proceed(&mut cx).is_pending());
        assert!(end_poll(), "the refusal is reported");
        assert!(has_budget_remaining());
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

    #[cfg(not(loom))]
    #[test]
    fn a_worker_inside_a_poll_leaves_the_polls_budget() {
        begin_poll(2);
        let cells = WorkerCells::default();
        run_as(&cells, || {
            begin_poll(1);
            end_poll();
        });
        assert_eq!(BUDGET.get().left, 2);
        end_poll();
    }
}
