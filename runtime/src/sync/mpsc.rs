//! A queue with many senders and one receiver: [`channel`], which makes senders wait when it is
//! full, and [`unbounded_channel`].
//!
//! ```
//! # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
//! # runtime.block_on(async {
//! let (sender, mut receiver) = volt::sync::mpsc::channel(16);
//! for name in ["one", "two"] {
//!     let sender = sender.clone();
//!     volt::spawn(async move { sender.send(name).await });
//! }
//! drop(sender);
//! let mut received = Vec::new();
//! while let Some(name) = receiver.recv().await {
//!     received.push(name);
//! }
//! received.sort();
//! assert_eq!(received, ["one", "two"]);
//! # });
//! # Ok::<(), volt::BuildError>(())
//! ```

use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::{Awaits, spend};
use crate::time::timeout;
use volt_core::coop;

#[doc(no_inline)]
pub use tokio::sync::mpsc::{Permit, PermitIterator};

/// Why something could not be sent or received.
pub mod error {
    use std::fmt;

    #[doc(no_inline)]
    pub use tokio::sync::mpsc::error::{SendError, TryRecvError, TrySendError};

    /// Why [`Sender::send_timeout`](super::Sender::send_timeout) did not send; the value comes
    /// back.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum SendTimeoutError<T> {
        /// There was no room in that time.
        Timeout(T),
        /// The receiver is gone, or has closed.
        Closed(T),
    }

    impl<T> SendTimeoutError<T> {
        /// The value.
        pub fn into_inner(self) -> T {
            match self {
                SendTimeoutError::Timeout(value) | SendTimeoutError::Closed(value) => value,
            }
        }
    }

    impl<T> fmt::Debug for SendTimeoutError<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                SendTimeoutError::Timeout(_) => "Timeout(..)",
                SendTimeoutError::Closed(_) => "Closed(..)",
            })
        }
    }

    impl<T> fmt::Display for SendTimeoutError<T> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(match self {
                SendTimeoutError::Timeout(_) => "no room in the channel within the time",
                SendTimeoutError::Closed(_) => "channel closed",
            })
        }
    }

    impl<T> std::error::Error for SendTimeoutError<T> {}
}

/// A queue for `capacity` values. Who sends waits while it is full.
///
/// # Panics
/// `capacity` is 0, or above [`Semaphore::MAX_PERMITS`](super::Semaphore::MAX_PERMITS).
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::mpsc::channel(capacity);
    (Sender(sender), Receiver(receiver))
}

/// A queue without a bound: memory is the bound, so something else has to see to it that the
/// receiver keeps up.
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    (UnboundedSender(sender), UnboundedReceiver(receiver))
}

/// Sends into a [`channel`].
#[derive(Debug)]
pub struct Sender<T>(tokio::sync::mpsc::Sender<T>);

/// Receives from a [`channel`].
#[derive(Debug)]
pub struct Receiver<T>(tokio::sync::mpsc::Receiver<T>);

/// Sends into an [`unbounded_channel`].
#[derive(Debug)]
pub struct UnboundedSender<T>(tokio::sync::mpsc::UnboundedSender<T>);

/// Receives from an [`unbounded_channel`].
#[derive(Debug)]
pub struct UnboundedReceiver<T>(tokio::sync::mpsc::UnboundedReceiver<T>);

/// A [`Sender`] that does not keep its channel open.
#[derive(Debug)]
pub struct WeakSender<T>(tokio::sync::mpsc::WeakSender<T>);

impl<T> Sender<T> {
    /// Waits for room, and sends `value`.
    ///
    /// # Errors
    /// The receiver is gone, or has closed: the value comes back.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it has not sent, and the value is dropped with it;
    /// [`reserve`](Self::reserve) keeps the value outside.
    #[track_caller]
    pub fn send(&self, value: T) -> impl Future<Output = Result<(), error::SendError<T>>> {
        spend(Awaits::Room, self.0.send(value))
    }

    /// As [`send`](Self::send), for at most `limit`.
    ///
    /// # Errors
    /// There was no room in that time, or the receiver is gone: the value comes back.
    ///
    /// # Cancel safety
    /// As [`send`](Self::send).
    pub async fn send_timeout(&self, value: T, limit: Duration) -> Result<(), error::SendTimeoutError<T>> {
        match timeout(limit, self.reserve()).await {
            Ok(Ok(permit)) => {
                permit.send(value);
                Ok(())
            }
            Ok(Err(_)) => Err(error::SendTimeoutError::Closed(value)),
            Err(_) => Err(error::SendTimeoutError::Timeout(value)),
        }
    }

    /// Sends `value` if there is room now.
    ///
    /// # Errors
    /// It is full, or the receiver is gone: the value comes back.
    pub fn try_send(&self, value: T) -> Result<(), error::TrySendError<T>> {
        self.0.try_send(value)
    }

    /// Sends from a thread that is no worker, which waits for room.
    ///
    /// # Errors
    /// The receiver is gone: the value comes back.
    pub fn blocking_send(&self, value: T) -> Result<(), error::SendError<T>> {
        self.0.blocking_send(value)
    }

    /// Waits for room, and keeps it for one value.
    ///
    /// # Errors
    /// The receiver is gone.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives up its place in the line.
    #[track_caller]
    pub fn reserve(&self) -> impl Future<Output = Result<Permit<'_, T>, error::SendError<()>>> {
        spend(Awaits::Room, self.0.reserve())
    }

    /// Waits for room for `n` values at once, and keeps it.
    ///
    /// # Errors
    /// The receiver is gone, or `n` is above the capacity.
    ///
    /// # Cancel safety
    /// As [`reserve`](Self::reserve).
    #[track_caller]
    pub fn reserve_many(&self, n: usize) -> impl Future<Output = Result<PermitIterator<'_, T>, error::SendError<()>>> {
        spend(Awaits::Room, self.0.reserve_many(n))
    }

    /// Keeps room for one value if there is any now.
    ///
    /// # Errors
    /// It is full, or the receiver is gone.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, error::TrySendError<()>> {
        self.0.try_reserve()
    }

    /// Keeps room for `n` values if there is so much now.
    ///
    /// # Errors
    /// There is less, or the receiver is gone.
    pub fn try_reserve_many(&self, n: usize) -> Result<PermitIterator<'_, T>, error::TrySendError<()>> {
        self.0.try_reserve_many(n)
    }

    /// As [`reserve`](Self::reserve), with a permit that can be moved into a task and gives the
    /// sender back.
    ///
    /// # Errors
    /// The receiver is gone.
    ///
    /// # Cancel safety
    /// As [`reserve`](Self::reserve); the sender is dropped with it.
    #[track_caller]
    pub fn reserve_owned(self) -> impl Future<Output = Result<OwnedPermit<T>, error::SendError<()>>> {
        let reserved = spend(Awaits::Room, self.0.reserve_owned());
        async { reserved.await.map(OwnedPermit) }
    }

    /// As [`try_reserve`](Self::try_reserve), with a permit that can be moved into a task and gives
    /// the sender back.
    ///
    /// # Errors
    /// It is full, or the receiver is gone: the sender comes back.
    pub fn try_reserve_owned(self) -> Result<OwnedPermit<T>, error::TrySendError<Self>> {
        self.0.try_reserve_owned().map(OwnedPermit).map_err(|refused| match refused {
            error::TrySendError::Full(sender) => error::TrySendError::Full(Sender(sender)),
            error::TrySendError::Closed(sender) => error::TrySendError::Closed(Sender(sender)),
        })
    }

    /// Waits until the receiver is gone.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        spend(Awaits::Others, self.0.closed())
    }

    /// Whether the receiver is gone, or has closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Room that there is now.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Room that there is when it is empty.
    pub fn max_capacity(&self) -> usize {
        self.0.max_capacity()
    }

    /// Whether both send into the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// One that does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.downgrade())
    }

    /// How many senders there are.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// How many there are that do not keep it open.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count()
    }
}

/// Room for one value, kept by [`Sender::reserve_owned`]. Dropped, it gives the room back.
#[derive(Debug)]
pub struct OwnedPermit<T>(tokio::sync::mpsc::OwnedPermit<T>);

impl<T> OwnedPermit<T> {
    /// Sends `value` in the room that was kept; gives the sender back.
    pub fn send(self, value: T) -> Sender<T> {
        Sender(self.0.send(value))
    }

    /// Gives the room back, and the sender.
    pub fn release(self) -> Sender<T> {
        Sender(self.0.release())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> WeakSender<T> {
    /// A sender, if there is one left.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.0.upgrade().map(Sender)
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> UnboundedSender<T> {
    /// Sends `value`, at once.
    ///
    /// # Errors
    /// The receiver is gone, or has closed: the value comes back.
    pub fn send(&self, value: T) -> Result<(), error::SendError<T>> {
        self.0.send(value)
    }

    /// Waits until the receiver is gone.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        spend(Awaits::Others, self.0.closed())
    }

    /// Whether the receiver is gone, or has closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Whether both send into the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The methods that both receivers have.
macro_rules! receive {
    ($name:ident) => {
        impl<T> $name<T> {
            /// Waits for the next value; `None` when there is none and no sender is left, or it was
            /// closed.
            ///
            /// # Cancel safety
            /// Dropped before it is done, it has taken nothing.
            #[track_caller]
            pub fn recv(&mut self) -> impl Future<Output = Option<T>> {
                spend(Awaits::Message, self.0.recv())
            }

            /// Waits for values, and appends as many as there are to `buffer`, at most `limit`;
            /// says how many. 0 as `None` in [`recv`](Self::recv), and if `limit` is 0.
            ///
            /// # Cancel safety
            /// Dropped before it is done, it has taken nothing.
            #[track_caller]
            pub fn recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> impl Future<Output = usize> {
                spend(Awaits::Message, self.0.recv_many(buffer, limit))
            }

            /// The next value, if there is one.
            ///
            /// # Errors
            /// There is none yet, or there never will be.
            pub fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
                self.0.try_recv()
            }

            /// As [`recv`](Self::recv), on this thread: for threads that are no workers.
            pub fn blocking_recv(&mut self) -> Option<T> {
                self.0.blocking_recv()
            }

            /// As [`recv_many`](Self::recv_many), on this thread: for threads that are no workers.
            pub fn blocking_recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
                self.0.blocking_recv_many(buffer, limit)
            }

            /// As [`recv`](Self::recv), for futures that are written by hand.
            pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
                let unit = ready!(coop::poll_proceed(cx));
                let value = ready!(self.0.poll_recv(cx));
                unit.made_progress();
                Poll::Ready(value)
            }

            /// As [`recv_many`](Self::recv_many), for futures that are written by hand.
            pub fn poll_recv_many(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<T>, limit: usize) -> Poll<usize> {
                let unit = ready!(coop::poll_proceed(cx));
                let count = ready!(self.0.poll_recv_many(cx, buffer, limit));
                unit.made_progress();
                Poll::Ready(count)
            }

            /// How many senders there are.
            pub fn sender_strong_count(&self) -> usize {
                self.0.sender_strong_count()
            }

            /// Lets nobody send any more; what was sent before still comes.
            pub fn close(&mut self) {
                self.0.close();
            }

            /// Whether no sender is left, or it was closed.
            pub fn is_closed(&self) -> bool {
                self.0.is_closed()
            }

            /// Whether there is nothing in it.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// How many values are in it.
            pub fn len(&self) -> usize {
                self.0.len()
            }
        }
    };
}

receive!(Receiver);
receive!(UnboundedReceiver);
