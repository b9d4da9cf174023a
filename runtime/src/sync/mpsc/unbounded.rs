//! The unbounded channel: [`unbounded_channel`].

use std::future::poll_fn;
use std::panic::Location;
use std::task::{Context, Poll};

use volt_core::context::expect_may_block;
use volt_core::task::details::awaits::{Awaits, Pending};
use volt_core::task::resources::{self, Awaited, Key};
use volt_telemetry::dump::Resource;

use super::error;
use super::receive::receive;
use crate::sync::spend::{kept, poll_pending, spend};
use crate::sync::wrapper::impl_debug;

/// Creates an unbounded channel.
///
/// Memory is the only bound: the caller must make sure by other means that the receiver keeps up.
pub fn unbounded_channel<T>() -> (UnboundedSender<T>, UnboundedReceiver<T>) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    (UnboundedSender(sender), UnboundedReceiver(receiver))
}

/// Sends values to the associated [`UnboundedReceiver`].
pub struct UnboundedSender<T>(tokio::sync::mpsc::UnboundedSender<T>);

/// Receives values from the associated [`UnboundedSender`]s.
pub struct UnboundedReceiver<T>(tokio::sync::mpsc::UnboundedReceiver<T>);

/// An [`UnboundedSender`] that does not keep its channel open.
///
/// ```
/// let (sender, receiver) = volt::sync::mpsc::unbounded_channel::<u32>();
/// let weak = sender.downgrade();
/// assert_eq!((weak.strong_count(), weak.weak_count()), (1, 1));
/// drop(sender);
/// assert!(weak.upgrade().is_none());
/// assert!(receiver.is_closed());
/// ```
pub struct WeakUnboundedSender<T>(tokio::sync::mpsc::WeakUnboundedSender<T>);

impl_debug!([T] UnboundedSender<T>, [T] UnboundedReceiver<T>, [T] WeakUnboundedSender<T>);

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
        spend(Awaits::Others, || None, self.0.closed())
    }

    /// Returns `true` if the receiver is dropped or closed.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns `true` if both senders belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Creates a [`WeakUnboundedSender`], which does not keep the channel open.
    #[must_use = "downgrade does not consume the sender, which keeps the channel open"]
    pub fn downgrade(&self) -> WeakUnboundedSender<T> {
        WeakUnboundedSender(self.0.downgrade())
    }

    /// Returns the number of [`UnboundedSender`]s.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of [`WeakUnboundedSender`]s.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count()
    }
}

impl<T> Clone for UnboundedSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> WeakUnboundedSender<T> {
    /// Returns an [`UnboundedSender`], or `None` if all senders are dropped.
    pub fn upgrade(&self) -> Option<UnboundedSender<T>> {
        self.0.upgrade().map(UnboundedSender)
    }

    /// Returns the number of [`UnboundedSender`]s.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of [`WeakUnboundedSender`]s.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count()
    }
}

impl<T> Clone for WeakUnboundedSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

receive!(UnboundedReceiver);

impl<T> UnboundedReceiver<T> {
    /// Does nothing: no task waits for room in this channel.
    #[inline]
    fn note_receiver(&self, _is_pending: bool, _at: &'static Location<'static>) {}

    /// Returns the number of values that the channel has room for, if there is a bound.
    fn bound(&self) -> Option<u64> {
        None
    }
}
