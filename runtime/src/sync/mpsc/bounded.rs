//! The bounded channel: [`channel`].
//!
//! The handles share a [`Link`]. By its address a dump recognizes the tasks that wait for room in
//! the same channel. It also records the task that receives. A dump shows that task, and the search
//! for deadlocks finds tasks that wait for room in each other's channels.

use std::future::poll_fn;
use std::panic::Location;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc::{Permit, PermitIterator};
use volt_core::context::expect_may_block;
use volt_core::task::details::awaits::{Awaits, Pending};
use volt_core::task::resources::{self, Awaited, Key};
use volt_core::task::waits::{Holder, Wait};
use volt_telemetry::dump::Resource;

use super::error;
use super::receive::receive;
use crate::sync::spend::{kept, poll_pending, spend, spend_queued_at};
use crate::sync::wrapper::impl_debug;
use crate::time::timeout;

/// Creates a bounded channel for up to `capacity` values. Senders wait while it is full.
///
/// # Panics
/// Panics if `capacity` is 0 or exceeds [`MAX_PERMITS`](crate::sync::Semaphore::MAX_PERMITS).
#[track_caller]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::mpsc::channel(capacity);
    let link = Arc::<Link>::default();
    (Sender(sender, link.clone()), Receiver(receiver, link))
}

/// The state that the handles of a channel share.
#[derive(Default)]
struct Link {
    /// The task that receives.
    receiver: Holder,
}

impl Link {
    fn key(self: &Arc<Self>) -> Key {
        Key::of(Arc::as_ptr(self))
    }
}

/// Sends values to the associated [`Receiver`].
pub struct Sender<T>(tokio::sync::mpsc::Sender<T>, Arc<Link>);

/// Receives values from the associated [`Sender`]s.
pub struct Receiver<T>(tokio::sync::mpsc::Receiver<T>, Arc<Link>);

/// A [`Sender`] that does not keep its channel open.
///
/// ```
/// let (sender, receiver) = volt::sync::mpsc::channel::<u32>(1);
/// let weak = sender.downgrade();
/// assert!(weak.upgrade().is_some());
/// drop(sender);
/// assert!(weak.upgrade().is_none());
/// assert!(receiver.is_closed());
/// ```
pub struct WeakSender<T>(tokio::sync::mpsc::WeakSender<T>, Arc<Link>);

impl_debug!([T] Sender<T>, [T] Receiver<T>, [T] WeakSender<T>, [T] OwnedPermit<T>);

impl<T> Sender<T> {
    /// Sends `value`, waiting until there is capacity.
    ///
    /// Success does not mean that the value is received: the receiver may be dropped before it
    /// takes the value.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the receiver is dropped or closed.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the value is not sent and is dropped too. To
    /// keep the value, call [`reserve`](Self::reserve) and send through the permit.
    #[track_caller]
    pub fn send(&self, value: T) -> impl Future<Output = Result<(), error::SendError<T>>> {
        self.spend_room(self.0.reserve(), |reserved| match reserved {
            Ok(permit) => {
                permit.send(value);
                Ok(())
            }
            Err(_) => Err(error::SendError(value)),
        })
    }

    /// Sends `value`, waiting for capacity for at most `limit`.
    ///
    /// # Errors
    /// Returns an error that contains `value` if the timeout elapses, or the receiver is dropped or
    /// closed.
    ///
    /// # Panics
    /// Panics if first polled outside a runtime, like [`timeout`](crate::time::timeout).
    ///
    /// # Cancel safety
    /// Same as [`send`](Self::send).
    #[track_caller]
    pub fn send_timeout(
        &self,
        value: T,
        limit: Duration,
    ) -> impl Future<Output = Result<(), error::SendTimeoutError<T>>> {
        // Here, where the location of the caller is known.
        let reserved = self.reserve();
        async move {
            match timeout(limit, reserved).await {
                Ok(Ok(permit)) => {
                    permit.send(value);
                    Ok(())
                }
                Ok(Err(_)) => Err(error::SendTimeoutError::Closed(value)),
                Err(_) => Err(error::SendTimeoutError::Timeout(value)),
            }
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
    /// # Errors
    /// Returns an error that contains `value` if the receiver is dropped or closed.
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
    /// [`send`](Self::send) there.
    ///
    /// ```
    /// let (sender, mut receiver) = volt::sync::mpsc::channel(1);
    /// let thread = std::thread::spawn(move || sender.blocking_send("from a thread"));
    /// assert_eq!(receiver.blocking_recv(), Some("from a thread"));
    /// thread.join().unwrap().unwrap();
    /// ```
    #[track_caller]
    pub fn blocking_send(&self, value: T) -> Result<(), error::SendError<T>> {
        expect_may_block("mpsc::Sender::send");
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
        self.spend_room(self.0.reserve(), |permit| permit)
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
        self.spend_room(self.0.reserve_many(n), |permits| permits)
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
        let (Self(sender, link), at) = (self, Location::caller());
        async move {
            // The numbers are in the sender, which the operation has consumed.
            let numbers = || Resource { received_by: link.receiver.receiver(), ..Resource::default() };
            let resource = || Some(Awaited::new(link.key(), "mpsc", numbers()));
            let reserve = sender.reserve_owned();
            let reserved =
                spend_queued_at(at, Awaits::Room, Wait::new(&link.receiver), resource, reserve, |reserved, _| reserved)
                    .await;
            reserved.map(|permit| OwnedPermit(permit, link))
        }
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
        let Self(sender, link) = self;
        match sender.try_reserve_owned() {
            Ok(permit) => Ok(OwnedPermit(permit, link)),
            Err(error::TrySendError::Full(sender)) => Err(error::TrySendError::Full(Self(sender, link))),
            Err(error::TrySendError::Closed(sender)) => Err(error::TrySendError::Closed(Self(sender, link))),
        }
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
    #[must_use = "downgrade does not consume the sender, which keeps the channel open"]
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.downgrade(), self.1.clone())
    }

    /// Returns the number of [`Sender`]s.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of [`WeakSender`]s.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count()
    }

    /// Runs `operation`, which waits for room in the channel, and converts its output.
    #[track_caller]
    fn spend_room<F: Future, O>(&self, operation: F, convert: impl FnOnce(F::Output) -> O) -> impl Future<Output = O> {
        let resource = || Some(self.awaited());
        let convert = |reserved, _| convert(reserved);
        spend_queued_at(Location::caller(), Awaits::Room, Wait::new(&self.1.receiver), resource, operation, convert)
    }

    fn awaited(&self) -> Awaited {
        let (capacity, free) = (self.max_capacity() as u64, self.capacity() as u64);
        let (senders, messages) = (Some(self.strong_count() as u64), Some(capacity.saturating_sub(free)));
        let received_by = self.1.receiver.receiver();
        let numbers = Resource { senders, messages, capacity: Some(capacity), received_by, ..Resource::default() };
        Awaited::new(self.1.key(), "mpsc", numbers)
    }
}

/// Capacity for one value, reserved by [`Sender::reserve_owned`].
///
/// Dropping the permit returns the capacity to the channel.
pub struct OwnedPermit<T>(tokio::sync::mpsc::OwnedPermit<T>, Arc<Link>);

impl<T> OwnedPermit<T> {
    /// Sends `value` with the reserved capacity, and returns the sender.
    pub fn send(self, value: T) -> Sender<T> {
        Sender(self.0.send(value), self.1)
    }

    /// Returns the reserved capacity to the channel, and the sender to the caller.
    pub fn release(self) -> Sender<T> {
        Sender(self.0.release(), self.1)
    }

    /// Returns `true` if both permits belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Returns `true` if the permit and `sender` belong to the same channel.
    ///
    /// ```
    /// let (sender, _receiver) = volt::sync::mpsc::channel::<u32>(1);
    /// let permit = sender.clone().try_reserve_owned().unwrap();
    /// assert!(permit.same_channel_as_sender(&sender));
    /// ```
    pub fn same_channel_as_sender(&self, sender: &Sender<T>) -> bool {
        self.0.same_channel_as_sender(&sender.0)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl<T> WeakSender<T> {
    /// Returns a [`Sender`], or `None` if all senders are dropped.
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.0.upgrade().map(|sender| Sender(sender, self.1.clone()))
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

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

receive!(Receiver);

impl<T> Receiver<T> {
    /// Returns the current capacity: the number of values that can be sent now without waiting.
    ///
    /// ```
    /// let (sender, receiver) = volt::sync::mpsc::channel(5);
    /// sender.try_send("one").unwrap();
    /// assert_eq!((receiver.capacity(), receiver.max_capacity()), (4, 5));
    /// ```
    pub fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns the maximum capacity, as passed to [`channel`].
    pub fn max_capacity(&self) -> usize {
        self.0.max_capacity()
    }

    /// Records the task that receives, in each poll that is pending. In a poll that is ready, does
    /// so only if another task received last: a receiver may move to a task that always finds
    /// messages.
    #[inline]
    fn note_receiver(&self, is_pending: bool, at: &'static Location<'static>) {
        if is_pending || !self.1.receiver.has_receiver_here() {
            self.1.receiver.received(at);
        }
    }

    /// Returns the number of values that the channel has room for, if there is a bound.
    fn bound(&self) -> Option<u64> {
        Some(self.max_capacity() as u64)
    }
}
