//! [`timeout`]: limits how long a future may take.

use std::error::Error;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use volt_core::driver::turn::Driver;
use volt_core::sleep::{Sleep, sleep, sleep_until};

/// Requires `future` to complete within `duration`.
///
/// Each poll polls `future` before it checks the time, so a future that is ready wins even if the
/// duration has elapsed. A future that never yields cannot be interrupted.
///
/// # Errors
/// Returns [`Elapsed`] if the duration elapses first. Dropping the [`Timeout`] then drops `future`.
///
/// # Panics
/// Same as [`sleep`].
///
/// # Cancel safety
/// Dropping the returned future drops `future`: as cancel safe as `future`.
///
/// ```
/// use std::time::Duration;
/// use volt::time::timeout;
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// assert_eq!(timeout(Duration::from_secs(5), async { 42 }).await, Ok(42));
/// assert!(timeout(Duration::from_millis(5), std::future::pending::<()>()).await.is_err());
/// # });
/// ```
#[track_caller]
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { future: future.into_future(), sleep: sleep(duration) }
}

/// Requires `future` to complete before `deadline`. Otherwise like [`timeout`].
///
/// # Errors
/// Same as [`timeout`].
///
/// # Panics
/// Same as [`sleep`].
///
/// # Cancel safety
/// Same as [`timeout`].
///
/// ```
/// use std::time::{Duration, Instant};
/// use volt::time::timeout_at;
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
    Timeout { future: future.into_future(), sleep: sleep_until(deadline) }
}

/// Creates a timeout on the timers of `driver`, which may belong to another runtime than the
/// current one.
pub(crate) fn timeout_on<F: Future>(driver: Arc<Driver>, duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: Sleep::after(driver, duration) }
}

pin_project! {
    /// The future returned by [`timeout`] and [`timeout_at`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        sleep: Sleep,
    }
}

impl<F> Timeout<F> {
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
        // Does not consume the task's budget: a future that spends all of it in each poll could
        // never be timed out.
        this.sleep.poll_elapsed(cx).map(|()| Err(Elapsed { _private: () }))
    }
}

/// Error returned by [`Timeout`] when the time elapses before the future completes.
///
/// Converts into an `io::Error` of kind `TimedOut`.
///
/// ```
/// let error = std::io::Error::from(
///     # volt::Builder::new_multi_thread().worker_threads(1).build().unwrap().block_on(async {
///     volt::time::timeout(std::time::Duration::ZERO, std::future::pending::<()>()).await.unwrap_err()
///     # })
/// );
/// assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed {
    _private: (),
}

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time given to it has passed")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
