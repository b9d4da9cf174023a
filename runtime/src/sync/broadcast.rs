//! A channel that delivers each value to every receiver: [`channel`].

use volt_core::context::expect_may_block;
use volt_core::task::details::awaits::Awaits;

use super::handles::{Lag, OfReceiver, OfSender, OfWeakSender};
use super::spend::spend;
use super::wrapper::impl_debug;

#[doc(no_inline)]
pub use tokio::sync::broadcast::error;

/// Creates a channel that keeps the last `capacity` values for receivers that have not seen them.
///
/// `capacity` is rounded up to a power of two. A receiver that falls behind by more values loses
/// the oldest ones.
///
/// # Panics
/// Panics if `capacity` is 0 or exceeds half of `usize::MAX`.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let (sender, mut one) = volt::sync::broadcast::channel(16);
/// let mut other = sender.subscribe();
/// sender.send("to all").unwrap();
/// assert_eq!((one.recv().await, other.recv().await), (Ok("to all"), Ok("to all")));
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[track_caller]
pub fn channel<T: Clone>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::broadcast::channel(capacity);
    let sender = Sender::with(sender, capacity);
    let of_receiver = sender.1.receiver();
    (sender, Receiver(receiver, of_receiver))
}

/// The channel, and how many values it keeps.
struct Values<T>(tokio::sync::broadcast::WeakSender<T>, usize);

impl<T> Lag for Values<T> {
    fn messages(&self) -> Option<(usize, usize)> {
        Some((self.0.upgrade()?.len(), self.1))
    }
}

/// Sends values to all associated [`Receiver`]s.
pub struct Sender<T>(tokio::sync::broadcast::Sender<T>, OfSender<Values<T>>);

/// A [`Sender`] that does not keep its channel open.
pub struct WeakSender<T>(tokio::sync::broadcast::WeakSender<T>, OfWeakSender<Values<T>>);

/// Receives the values that were sent after it was created.
pub struct Receiver<T>(tokio::sync::broadcast::Receiver<T>, OfReceiver<Values<T>>);

impl_debug!([T] Sender<T>, [T] WeakSender<T>, [T] Receiver<T>);

impl<T> Sender<T> {
    /// Creates a channel that has no receiver yet. [`subscribe`](Self::subscribe) creates
    /// receivers.
    ///
    /// # Panics
    /// Same as [`channel`].
    #[track_caller]
    pub fn new(capacity: usize) -> Self {
        Self::with(tokio::sync::broadcast::Sender::new(capacity), capacity)
    }

    fn with(sender: tokio::sync::broadcast::Sender<T>, capacity: usize) -> Self {
        let values = Values(sender.downgrade(), capacity.next_power_of_two());
        Self(sender, OfSender::new(values))
    }

    /// Sends `value` to all receivers without waiting, and returns the number of receivers.
    ///
    /// A receiver that has fallen behind by more than the capacity loses its oldest value.
    ///
    /// # Errors
    /// Returns an error that contains `value` if there is no receiver. A later send may succeed,
    /// since [`subscribe`](Self::subscribe) creates receivers.
    #[track_caller]
    pub fn send(&self, value: T) -> Result<usize, error::SendError<T>> {
        self.0.send(value)
    }

    /// Creates a new receiver for values sent after this call.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver(self.0.subscribe(), self.1.receiver())
    }

    /// Returns the number of values that at least one receiver has not seen.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if every receiver has seen every value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.0.receiver_count()
    }

    /// Returns `true` if both senders belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Creates a [`WeakSender`], which does not keep the channel open.
    #[must_use = "downgrade does not consume the sender, which keeps the channel open"]
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender(self.0.downgrade(), self.1.downgrade())
    }

    /// Returns the number of [`Sender`]s.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of [`WeakSender`]s.
    pub fn weak_count(&self) -> usize {
        // The channel's `Values` has a weak sender of Tokio's, too, which is not counted.
        self.0.weak_count().saturating_sub(1)
    }

    /// Waits until all receivers are dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        let resource = || Some(self.1.awaited("broadcast", self.receiver_count()));
        spend(Awaits::Others, resource, self.0.closed())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl<T> WeakSender<T> {
    /// Returns a [`Sender`], or `None` if all senders are dropped.
    #[must_use]
    pub fn upgrade(&self) -> Option<Sender<T>> {
        let handle = self.1.upgrade()?;
        Some(Sender(self.0.upgrade()?, handle))
    }

    /// Returns the number of [`Sender`]s.
    pub fn strong_count(&self) -> usize {
        self.0.strong_count()
    }

    /// Returns the number of [`WeakSender`]s.
    pub fn weak_count(&self) -> usize {
        self.0.weak_count().saturating_sub(usize::from(self.1.has_senders()))
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl<T: Clone> Receiver<T> {
    /// Receives the next value, blocking the current thread until there is one.
    ///
    /// # Errors
    /// Same as [`recv`](Self::recv).
    ///
    /// # Panics
    /// Panics in a task and in [`Runtime::block_on`](crate::Runtime::block_on): await
    /// [`recv`](Self::recv) there.
    ///
    /// ```
    /// let (sender, mut receiver) = volt::sync::broadcast::channel(16);
    /// let thread = std::thread::spawn(move || receiver.blocking_recv());
    /// sender.send("to all").unwrap();
    /// assert_eq!(thread.join().unwrap(), Ok("to all"));
    /// ```
    #[track_caller]
    pub fn blocking_recv(&mut self) -> Result<T, error::RecvError> {
        expect_may_block("broadcast::Receiver::recv");
        self.0.blocking_recv()
    }

    /// Receives the next value, waiting until there is one.
    ///
    /// # Errors
    /// - `Lagged(n)`: the receiver fell behind and `n` values were lost. The next call returns the
    ///   oldest value that is still kept.
    /// - `Closed`: all senders are dropped and no value is left.
    ///
    /// # Cancel safety
    /// Cancel safe: no value is lost.
    #[track_caller]
    pub fn recv(&mut self) -> impl Future<Output = Result<T, error::RecvError>> {
        spend(Awaits::Message, || Some(self.1.awaited("broadcast")), self.0.recv())
    }

    /// Returns the next value if there is one, without waiting.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`recv`](Self::recv), and if there is no value yet.
    pub fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
        self.0.try_recv()
    }

    /// Creates another receiver, for values sent after this call.
    pub fn resubscribe(&self) -> Self {
        Receiver(self.0.resubscribe(), self.1.clone())
    }
}

impl<T> Receiver<T> {
    /// Returns the number of [`Sender`]s.
    ///
    /// ```
    /// let (sender, receiver) = volt::sync::broadcast::channel::<u32>(16);
    /// let (_weak, _other) = (sender.downgrade(), sender.clone());
    /// assert_eq!((receiver.sender_strong_count(), receiver.sender_weak_count()), (2, 1));
    /// ```
    pub fn sender_strong_count(&self) -> usize {
        self.0.sender_strong_count()
    }

    /// Returns the number of [`WeakSender`]s.
    pub fn sender_weak_count(&self) -> usize {
        self.0.sender_weak_count().saturating_sub(usize::from(self.1.has_senders()))
    }

    /// Returns `true` if all senders are dropped.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Returns `true` if both receivers belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Returns the number of values that this receiver has not seen, including lost ones.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if this receiver has seen every value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
