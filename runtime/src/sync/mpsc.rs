//! A multi-producer, single-consumer queue for sending values between tasks.
//!
//! [`channel`] creates a bounded queue, whose senders wait while it is full. [`unbounded_channel`]
//! creates a queue without a bound.
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

/// Channel error types.
pub mod error {
    use std::fmt;

    #[doc(no_inline)]
    pub use tokio::sync::mpsc::error::{SendError, TryRecvError, TrySendError};

    /// Error returned by [`Sender::send_timeout`](super::Sender::send_timeout). It contains the
    /// value that was not sent.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum SendTimeoutError<T> {
        /// The channel stayed full for the whole timeout.
        Timeout(T),
        /// The receiver is dropped or closed.
        Closed(T),
    }

    impl<T> SendTimeoutError<T> {
        /// Returns the value that was not sent.
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

/// Creates a bounded channel for up to `capacity` values. Senders wait while it is full.
///
/// # Panics
/// Panics if `capacity` is 0 or exceeds [`Semaphore::MAX_PERMITS`](super::Semaphore::MAX_PERMITS).
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::mpsc::channel(capacity);
    (Sender(sender), Receiver(receiver))
}

/// Creates an unbounded channel.
///
/// Memory is the only bound: the caller must make sure by other means that the receiver keeps up.
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    (UnboundedSender(sender), UnboundedReceiver(receiver))
}

/// Sends values to the associated [`Receiver`].
#[derive(Debug)]
pub struct Sender<T>(tokio::sync::mpsc::Sender<T>);

/// Receives values from the associated [`Sender`]s.
#[derive(Debug)]
pub struct Receiver<T>(tokio::sync::mpsc::Receiver<T>);

/// Sends values to the associated [`UnboundedReceiver`].
#[derive(Debug)]
pub struct UnboundedSender<T>(tokio::sync::mpsc::UnboundedSender<T>);

/// Receives values from the associated [`UnboundedSender`]s.
#[derive(Debug)]
pub struct UnboundedReceiver<T>(tokio::sync::mpsc::UnboundedReceiver<T>);

/// A [`Sender`] that does not keep its channel open.
#[derive(Debug)]
pub struct WeakSender<T>(tokio::sync::mpsc::WeakSender<T>);

impl<T> Sender<T> {
    /// Sends `value`, waiting until there is capacity.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the receiver is dropped or closed.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the value is not sent and is dropped too. To
    /// keep the value, call [`reserve`](Self::reserve) and send through the permit.
    #[track_caller]
    pub fn send(&self, value: T) -> impl Future<Output = Result<(), error::SendError<T>>> {
        spend(Awaits::Room, self.0.send(value))
    }

    /// Sends `value`, waiting for capacity for at most `limit`.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the timeout elapses, or the receiver is dropped or
    /// closed.
    ///
    /// # Cancel safety
    /// Same as [`send`](Self::send).
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

    /// Sends `value` if there is capacity, without waiting.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the channel is full, or the receiver is dropped or
    /// closed.
    pub fn try_send(&self, value: T) -> Result<(), error::TrySendError<T>> {
        self.0.try_send(value)
    }

    /// Sends `value`, blocking the current thread until there is capacity.
    ///
    /// Use this only on threads that do not run tasks: on a worker, it blocks all tasks of that
    /// worker.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the receiver is dropped or closed.
    pub fn blocking_send(&self, value: T) -> Result<(), error::SendError<T>> {
        self.0.blocking_send(value)
    }

    /// Reserves capacity for one value, waiting until there is capacity.
    ///
    /// # Errors
    /// Returns an error if the receiver is dropped or closed.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before it completes, the task loses its place in the
    /// queue.
    #[track_caller]
    pub fn reserve(&self) -> impl Future<Output = Result<Permit<'_, T>, error::SendError<()>>> {
        spend(Awaits::Room, self.0.reserve())
    }

    /// Reserves capacity for `n` values together, waiting until there is capacity for all.
    ///
    /// # Errors
    /// Returns an error if the receiver is dropped or closed, or if `n` exceeds the maximum
    /// capacity.
    ///
    /// # Cancel safety
    /// Same as [`reserve`](Self::reserve).
    #[track_caller]
    pub fn reserve_many(&self, n: usize) -> impl Future<Output = Result<PermitIterator<'_, T>, error::SendError<()>>> {
        spend(Awaits::Room, self.0.reserve_many(n))
    }

    /// Reserves capacity for one value if there is any, without waiting.
    ///
    /// # Errors
    /// Returns an error if the channel is full, or the receiver is dropped or closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, error::TrySendError<()>> {
        self.0.try_reserve()
    }

    /// Reserves capacity for `n` values together if there is enough, without waiting.
    ///
    /// # Errors
    /// Returns an error if there is less capacity, or the receiver is dropped or closed.
    pub fn try_reserve_many(&self, n: usize) -> Result<PermitIterator<'_, T>, error::TrySendError<()>> {
        self.0.try_reserve_many(n)
    }

    /// Reserves capacity for one value, and returns an owned permit that can be moved into a task.
    ///
    /// Consumes the sender; the permit returns it when it is used.
    ///
    /// # Errors
    /// Returns an error if the receiver is dropped or closed.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the task loses its place in the queue and the
    /// sender is dropped. To avoid that, clone the sender first.
    #[track_caller]
    pub fn reserve_owned(self) -> impl Future<Output = Result<OwnedPermit<T>, error::SendError<()>>> {
        let reserved = spend(Awaits::Room, self.0.reserve_owned());
        async { reserved.await.map(OwnedPermit) }
    }

    /// Reserves capacity for one value if there is any, and returns an owned permit that can be
    /// moved into a task.
    ///
    /// Consumes the sender; the permit returns it when it is used.
    ///
    /// # Errors
    /// Returns an error that contains the sender if the channel is full, or the receiver is dropped
    /// or closed.
    pub fn try_reserve_owned(self) -> Result<OwnedPermit<T>, error::TrySendError<Self>> {
        self.0.try_reserve_owned().map(OwnedPermit).map_err(|refused| match refused {
            error::TrySendError::Full(sender) => error::TrySendError::Full(Sender(sender)),
            error::TrySendError::Closed(sender) => error::TrySendError::Closed(Sender(sender)),
        })
    }

    /// Waits until the receiver is dropped or closed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        spend(Awaits::Others, self.0.closed())
    }

    /// Returns `true` if the receiver is dropped or closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns the current capacity: the number of values that can be sent now without waiting.
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the maximum capacity, as passed to [`channel`].
    pub fn max_capacity(&self) -> usize {
        self.0.max_capacity()
    }

    /// Returns `true` if both senders belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Creates a [`WeakSender`], which does not keep the channel open.
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.downgrade())
    }

    /// Returns the number of [`Sender`]s.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of [`WeakSender`]s.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count()
    }
}

/// Capacity for one value, reserved by [`Sender::reserve_owned`].
///
/// Dropping the permit returns the capacity to the channel.
#[derive(Debug)]
pub struct OwnedPermit<T>(tokio::sync::mpsc::OwnedPermit<T>);

impl<T> OwnedPermit<T> {
    /// Sends `value` with the reserved capacity, and returns the sender.
    pub fn send(self, value: T) -> Sender<T> {
        Sender(self.0.send(value))
    }

    /// Returns the reserved capacity to the channel, and the sender to the caller.
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
    /// Returns a [`Sender`], or `None` if all senders are dropped.
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
    /// Sends `value`, without waiting.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the receiver is dropped or closed.
    pub fn send(&self, value: T) -> Result<(), error::SendError<T>> {
        self.0.send(value)
    }

    /// Waits until the receiver is dropped or closed.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        spend(Awaits::Others, self.0.closed())
    }

    /// Returns `true` if the receiver is dropped or closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns `true` if both senders belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// Implements the methods that both receivers share.
macro_rules! receive {
    ($name:ident) => {
        impl<T> $name<T> {
            /// Receives the next value, waiting until there is one.
            ///
            /// Returns `None` if no value is left and all senders are dropped, or the channel was
            /// closed.
            ///
            /// # Cancel safety
            /// Cancel safe. If the future is dropped before it completes, no value is received.
            #[track_caller]
            pub fn recv(&mut self) -> impl Future<Output = Option<T>> {
                spend(Awaits::Message, self.0.recv())
            }

            /// Waits for at least one value, appends up to `limit` values to `buffer`, and returns
            /// how many.
            ///
            /// Returns 0 where [`recv`](Self::recv) returns `None`, and if `limit` is 0.
            ///
            /// # Cancel safety
            /// Cancel safe. If the future is dropped before it completes, no value is received.
            #[track_caller]
            pub fn recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> impl Future<Output = usize> {
                spend(Awaits::Message, self.0.recv_many(buffer, limit))
            }

            /// Returns the next value if there is one, without waiting.
            ///
            /// # Errors
            /// Returns an error if there is no value yet, or the channel is closed and no value is
            /// left.
            pub fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
                self.0.try_recv()
            }

            /// Receives the next value like [`recv`](Self::recv), blocking the current thread.
            ///
            /// Use this only on threads that do not run tasks: on a worker, it blocks all tasks of
            /// that worker.
            pub fn blocking_recv(&mut self) -> Option<T> {
                self.0.blocking_recv()
            }

            /// Receives values like [`recv_many`](Self::recv_many), blocking the current thread.
            ///
            /// Use this only on threads that do not run tasks: on a worker, it blocks all tasks of
            /// that worker.
            pub fn blocking_recv_many(&mut self, buffer: &mut Vec<T>, limit: usize) -> usize {
                self.0.blocking_recv_many(buffer, limit)
            }

            /// Polls for the next value; the poll function of [`recv`](Self::recv).
            pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<T>> {
                let unit = ready!(coop::poll_proceed(cx));
                let value = ready!(self.0.poll_recv(cx));
                unit.made_progress();
                Poll::Ready(value)
            }

            /// Polls for values; the poll function of [`recv_many`](Self::recv_many).
            pub fn poll_recv_many(&mut self, cx: &mut Context<'_>, buffer: &mut Vec<T>, limit: usize) -> Poll<usize> {
                let unit = ready!(coop::poll_proceed(cx));
                let count = ready!(self.0.poll_recv_many(cx, buffer, limit));
                unit.made_progress();
                Poll::Ready(count)
            }

            /// Returns the number of senders, not counting weak ones.
            pub fn sender_strong_count(&self) -> usize {
                self.0.sender_strong_count()
            }

            /// Closes the channel: no more values can be sent. Values that were sent before can
            /// still be received.
            pub fn close(&mut self) {
                self.0.close();
            }

            /// Returns `true` if all senders are dropped, or the channel was closed.
            pub fn is_closed(&self) -> bool {
                self.0.is_closed()
            }

            /// Returns `true` if the channel is empty.
            pub fn is_empty(&self) -> bool {
                self.0.is_empty()
            }

            /// Returns the number of values in the channel.
            pub fn len(&self) -> usize {
                self.0.len()
            }
        }
    };
}

receive!(Receiver);
receive!(UnboundedReceiver);
