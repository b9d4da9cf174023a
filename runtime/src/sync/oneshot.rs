//! One value, once: [`channel`].

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::{Awaits, poll_spend, spend};
use volt_core::coop;

#[doc(no_inline)]
pub use tokio::sync::oneshot::error;

/// A channel for one value.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let (sender, receiver) = volt::sync::oneshot::channel();
/// volt::spawn(async move { sender.send("the answer") });
/// assert_eq!(receiver.await, Ok("the answer"));
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[track_caller]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    (Sender(sender), Receiver { value: receiver, made_at: Location::caller() })
}

/// Sends the value.
#[derive(Debug)]
pub struct Sender<T>(tokio::sync::oneshot::Sender<T>);

/// Is the value, when it has come.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Receiver<T> {
    value: tokio::sync::oneshot::Receiver<T>,
    /// Told as the place where a task waits: an `.await` has none.
    made_at: &'static Location<'static>,
}

impl<T> Sender<T> {
    /// Sends `value`, at once.
    ///
    /// # Errors
    /// The receiver is gone: the value comes back.
    pub fn send(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }

    /// Waits until the receiver is gone.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    #[track_caller]
    pub fn closed(&mut self) -> impl Future<Output = ()> {
        spend(Awaits::Others, self.0.closed())
    }

    /// As [`closed`](Self::closed), for futures that are written by hand.
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let unit = ready!(coop::poll_proceed(cx));
        ready!(self.0.poll_closed(cx));
        unit.made_progress();
        Poll::Ready(())
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Receiver<T> {
    /// Has the sender know that nothing is wanted any more. A value that was sent before still
    /// comes.
    pub fn close(&mut self) {
        self.value.close();
    }

    /// The value, if it has come.
    ///
    /// # Errors
    /// It has not come yet, or the sender is gone.
    pub fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
        self.value.try_recv()
    }

    /// Waits for the value on this thread: for threads that are no workers.
    ///
    /// # Errors
    /// The sender is gone.
    pub fn blocking_recv(self) -> Result<T, error::RecvError> {
        self.value.blocking_recv()
    }
}

/// # Cancel safety
/// To poll a `&mut Receiver` and let go of it loses nothing.
impl<T> Future for Receiver<T> {
    type Output = Result<T, error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        poll_spend(Awaits::Value, this.made_at, Pin::new(&mut this.value), cx)
    }
}
