//! The cooperative budget of a task, for futures that are not Volt's own.
//!
//! A task may complete 128 operations in one poll ([`Builder::coop_budget`]); then the next one
//! returns Pending once, so that other tasks run. Volt's sockets, timers, channels, locks and join
//! handles count as operations. This module lets other futures count, or lets them ignore the
//! limit.
//!
//! [`Builder::coop_budget`]: crate::Builder::coop_budget

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use volt_core::coop::{self, Unit};

pub use volt_core::task::consume_budget;

/// Returns whether the next operation of this poll may proceed.
///
/// Always true outside of a task and of `block_on`.
///
/// ```
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// async fn sum(numbers: &mut dyn Iterator<Item = u64>) -> u64 {
///     let mut sum = 0;
///     for number in numbers {
///         sum += number;
///         if !volt::task::coop::has_budget_remaining() {
///             volt::task::yield_now().await;
///         }
///     }
///     sum
/// }
/// assert_eq!(sum(&mut (0..10)).await, 45);
/// # });
/// ```
pub fn has_budget_remaining() -> bool {
    coop::has_budget_remaining()
}

/// Returns Ready if the operation may proceed. Otherwise wakes the task, so that it is polled again
/// after the other ready tasks, and returns Pending.
///
/// Call it at the beginning of a poll function, and
/// [`made_progress`](RestoreOnPending::made_progress) on the result if the operation completes.
///
/// ```
/// use std::task::{Context, Poll, ready};
///
/// fn poll_next(cx: &mut Context<'_>, queue: &mut Vec<u8>) -> Poll<Option<u8>> {
///     let unit = ready!(volt::task::coop::poll_proceed(cx));
///     unit.made_progress();
///     Poll::Ready(queue.pop())
/// }
/// # let mut cx = Context::from_waker(std::task::Waker::noop());
/// # assert_eq!(poll_next(&mut cx, &mut vec![1]), Poll::Ready(Some(1)));
/// ```
pub fn poll_proceed(cx: &mut Context<'_>) -> Poll<RestoreOnPending> {
    coop::poll_proceed(cx).map(|unit| RestoreOnPending { unit: Cell::new(Some(unit)), not_send: PhantomData })
}

/// The permission for one operation, from [`poll_proceed`].
///
/// Costs a unit of the budget only if the operation [made progress](Self::made_progress).
#[must_use = "an operation that completes without made_progress() costs nothing"]
pub struct RestoreOnPending {
    /// `None` after `made_progress`.
    unit: Cell<Option<Unit>>,
    /// The budget is this thread's.
    not_send: PhantomData<*mut ()>,
}

impl RestoreOnPending {
    /// Spends the unit. A second call has no effect.
    pub fn made_progress(&self) {
        if let Some(unit) = self.unit.take() {
            unit.made_progress();
        }
    }
}

impl fmt::Debug for RestoreOnPending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestoreOnPending").finish_non_exhaustive()
    }
}

/// Makes a future cooperative: its completion spends one unit of the task's budget, and it is not
/// polled while no unit is left.
///
/// # Cancel safety
/// Same as `future`.
///
/// ```
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// // Without it, a loop over ready futures of another library never yields.
/// for n in 0..1_000 {
///     assert_eq!(volt::task::coop::cooperative(std::future::ready(n)).await, n);
/// }
/// # });
/// ```
pub fn cooperative<F: Future>(future: F) -> Coop<F> {
    Coop { future }
}

pin_project! {
    /// The future returned by [`cooperative`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct Coop<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Coop<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let unit = ready!(coop::poll_proceed(cx));
        let output = ready!(self.project().future.poll(cx));
        unit.made_progress();
        Poll::Ready(output)
    }
}

/// Lets a future ignore the budget of its task.
///
/// A future that never waits then blocks its worker, and the doctor reports it.
///
/// # Cancel safety
/// Same as `future`.
///
/// ```
/// # let runtime = volt::Builder::new_current_thread().build().unwrap();
/// # runtime.block_on(async {
/// let (sender, mut receiver) = volt::sync::mpsc::unbounded_channel();
/// for n in 0..1_000 {
///     sender.send(n).unwrap();
/// }
/// let drain = async { while receiver.try_recv().is_ok() {} };
/// volt::task::coop::unconstrained(drain).await;
/// # });
/// ```
pub fn unconstrained<F>(future: F) -> Unconstrained<F> {
    Unconstrained { future }
}

pin_project! {
    /// The future returned by [`unconstrained`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless they are awaited"]
    pub struct Unconstrained<F> {
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Unconstrained<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        coop::unlimited(|| self.project().future.poll(cx))
    }
}
