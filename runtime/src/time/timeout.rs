//! [`timeout`]: limits how long a future may take.

use std::future::{Future, IntoFuture};
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::time::error::Elapsed;
use volt_core::sleep::{RawSleep, is_reachable};
use volt_core::time::Instant;
use volt_core::{context, coop};

/// Requires `future` to complete within `duration`.
///
/// Each poll polls `future` before it checks the time, so a future that is ready wins even if the
/// duration has elapsed. A future that never yields cannot be interrupted.
///
/// A `duration` of more than 30 years is shortened to 30 years. If the current time plus `duration`
/// cannot be represented, as with [`Duration::MAX`], the timeout never elapses.
///
/// # Errors
/// Returns [`Elapsed`] if the duration elapses first. Dropping the [`Timeout`] then drops `future`.
///
/// # Panics
/// Same as [`sleep`](super::sleep).
///
/// # Cancel safety
/// Dropping the returned future drops `future`: as cancel safe as `future`.
///
/// ```
/// use volt::time::{Duration, timeout};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// assert_eq!(timeout(Duration::from_secs(5), async { 42 }).await, Ok(42));
/// assert!(timeout(Duration::from_millis(5), std::future::pending::<()>()).await.is_err());
/// # });
/// ```
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    let future = future.into_future();
    let sleep = if is_reachable(duration) { Some(RawSleep::after(context::timers(), duration)) } else { None };
    Timeout::new(future, sleep)
}

/// Requires `future` to complete before `deadline`. Otherwise like [`timeout`].
///
/// # Errors
/// Same as [`timeout`].
///
/// # Panics
/// Same as [`sleep`](super::sleep).
///
/// # Cancel safety
/// Same as [`timeout`].
///
/// ```
/// use volt::time::{Duration, Instant, timeout_at};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let deadline = Instant::now() + Duration::from_millis(5);
/// assert!(timeout_at(deadline, std::future::pending::<()>()).await.is_err());
/// assert!(Instant::now() >= deadline);
/// # });
/// ```
#[track_caller]
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout::new(future.into_future(), Some(RawSleep::until(context::timers(), deadline)))
}

pin_project! {
    /// The future returned by [`timeout`] and [`timeout_at`].
    #[derive(Debug)]
    #[project(!Unpin)]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        // `None` = never.
        sleep: Option<RawSleep>,
        // Whether it had to yield after the time had elapsed, because no budget was left.
        was_refused: bool,
    }
}

impl<F> Timeout<F> {
    fn new(future: F, sleep: Option<RawSleep>) -> Timeout<F> {
        Timeout { future, sleep, was_refused: false }
    }

    /// Returns a reference to the wrapped future.
    pub fn get_ref(&self) -> &F {
        &self.future
    }

    /// Returns a mutable reference to the wrapped future.
    pub fn get_mut(&mut self) -> &mut F {
        &mut self.future
    }

    /// Consumes the timeout and returns the wrapped future.
    pub fn into_inner(self) -> F {
        self.future
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        let Some(sleep) = this.sleep else { return Poll::Pending };
        ready!(sleep.poll_elapsed(cx));
        // A task that loops over elapsed timeouts must yield. But a timeout is refused only once: a
        // future that spends the whole budget in each poll could otherwise never be timed out.
        match coop::poll_proceed(cx) {
            Poll::Ready(unit) => unit.made_progress(),
            Poll::Pending if !mem::replace(this.was_refused, true) => return Poll::Pending,
            Poll::Pending => {}
        }
        Poll::Ready(Err(Elapsed::new()))
    }
}
