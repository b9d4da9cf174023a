//! A channel for sending a single value between tasks: [`channel`].

use std::fmt::{self, Debug};
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll};

use volt_core::context::expect_may_block;
use volt_core::task::details::awaits::{Awaits, Pending};
use volt_core::task::resources::{self, Awaited, Key};
use volt_telemetry::dump::Resource;

use super::spend::{kept, poll_pending, spend};
use super::wrapper::impl_debug;

#[doc(no_inline)]
pub use tokio::sync::oneshot::error;

/// Creates a channel for a single value.
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
    (Sender(sender), Receiver { value: receiver, pending: Pending::new(Awaits::Value, Location::caller()) })
}

/// Sends a value to the associated [`Receiver`].
pub struct Sender<T>(tokio::sync::oneshot::Sender<T>);

impl_debug!([T: Debug] Sender<T>);

/// Receives a value from the associated [`Sender`].
///
/// Awaiting the receiver returns the value, or an error if the sender is dropped without sending.
///
/// # Panics
/// Panics if it is polled again after it has returned the value or the error.
#[must_use = "futures do nothing unless awaited"]
pub struct Receiver<T> {
    value: tokio::sync::oneshot::Receiver<T>,
    /// Reported as the task's await point: an `.await` of the receiver itself has no caller
    /// location.
    pending: Pending,
}

impl<T> Sender<T> {
    /// Sends `value` to the receiver, without waiting.
    ///
    /// Success does not mean that the value is received: the receiver may be dropped before it
    /// takes the value.
    ///
    /// # Errors
    /// Returns `value` if the receiver is dropped or closed.
    pub fn send(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }

    /// Waits until the receiver is dropped or closed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[track_caller]
    pub fn closed(&mut self) -> impl Future<Output = ()> {
        spend(Awaits::Others, || None, self.0.closed())
    }

    /// Polls whether the receiver is dropped or closed; the poll function of
    /// [`closed`](Self::closed).
    #[track_caller]
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        kept(Awaits::Others, Location::caller(), |pending| poll_pending(pending, cx, |cx| self.0.poll_closed(cx)))
    }

    /// Returns `true` if the receiver is dropped or closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> Receiver<T> {
    /// Prevents the sender from sending a value. A value that was sent before can still be
    /// received.
    pub fn close(&mut self) {
        self.value.close();
    }

    /// Returns `true` if the receiver has returned a value, or the error that the sender was
    /// dropped. Awaiting it again would panic.
    ///
    /// ```
    /// let (sender, mut receiver) = volt::sync::oneshot::channel();
    /// sender.send("the answer").unwrap();
    /// assert!(!receiver.is_terminated());
    /// receiver.try_recv().unwrap();
    /// assert!(receiver.is_terminated());
    /// ```
    pub fn is_terminated(&self) -> bool {
        self.value.is_terminated()
    }

    /// Returns `true` if no value can be received now: none has been sent, or it has already been
    /// received.
    ///
    /// ```
    /// let (sender, receiver) = volt::sync::oneshot::channel();
    /// assert!(receiver.is_empty());
    /// sender.send("the answer").unwrap();
    /// assert!(!receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.value.is_empty()
    }

    /// Returns the value if it has been sent, without waiting.
    ///
    /// # Errors
    /// Returns an error if no value has been sent yet, or the sender was dropped without sending
    /// one.
    pub fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
        self.value.try_recv()
    }

    /// Receives the value, blocking the current thread until it is sent.
    ///
    /// # Errors
    /// Returns an error if the sender is dropped without sending a value.
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await the receiver
    /// there.
    ///
    /// ```
    /// let (sender, receiver) = volt::sync::oneshot::channel();
    /// let thread = std::thread::spawn(move || receiver.blocking_recv());
    /// sender.send("the answer").unwrap();
    /// assert_eq!(thread.join().unwrap(), Ok("the answer"));
    /// ```
    #[track_caller]
    pub fn blocking_recv(self) -> Result<T, error::RecvError> {
        expect_may_block("oneshot::Receiver");
        self.value.blocking_recv()
    }
}

impl<T: Debug> Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// # Cancel safety
/// Cancel safe: dropping a `&mut Receiver` future does not lose the value.
impl<T> Future for Receiver<T> {
    type Output = Result<T, error::RecvError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let polled = poll_pending(&mut this.pending, cx, |cx| Pin::new(&mut this.value).poll(cx));
        if polled.is_pending() {
            let numbers = Resource { senders: Some(1), ..Resource::default() };
            resources::note(|| Some(Awaited::new(Key::of(this), "oneshot", numbers)));
        }
        polled
    }
}
