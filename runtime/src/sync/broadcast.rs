//! Each value to every receiver: [`channel`].

use super::{Awaits, spend};

#[doc(no_inline)]
pub use tokio::sync::broadcast::error;

/// A channel that keeps the last `capacity` values, rounded up to a power of two, for receivers
/// that are slower than its senders.
///
/// # Panics
/// `capacity` is 0, or more than half of what a `usize` holds.
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
pub fn channel<T: Clone>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::broadcast::channel(capacity);
    (Sender(sender), Receiver(receiver))
}

/// Sends to every receiver.
#[derive(Debug)]
pub struct Sender<T>(tokio::sync::broadcast::Sender<T>);

/// A [`Sender`] that does not keep its channel open.
#[derive(Debug)]
pub struct WeakSender<T>(tokio::sync::broadcast::WeakSender<T>);

/// Receives what is sent after it was made.
#[derive(Debug)]
pub struct Receiver<T>(tokio::sync::broadcast::Receiver<T>);

impl<T> Sender<T> {
    /// A channel without a receiver, so far, as by [`channel`]: [`subscribe`](Self::subscribe)
    /// makes them.
    ///
    /// # Panics
    /// As [`channel`].
    pub fn new(capacity: usize) -> Self {
        Self(tokio::sync::broadcast::Sender::new(capacity))
    }

    /// Sends `value`, at once; says to how many receivers. One that has fallen behind by more than
    /// the capacity loses its oldest.
    ///
    /// # Errors
    /// There is no receiver: the value comes back.
    pub fn send(&self, value: T) -> Result<usize, error::SendError<T>> {
        self.0.send(value)
    }

    /// A receiver for what is sent from now on.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver(self.0.subscribe())
    }

    /// Values that some receiver has not seen.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether every receiver has seen everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.0.receiver_count()
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

    /// Waits until there is no receiver.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        spend(Awaits::Others, self.0.closed())
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

impl<T: Clone> Receiver<T> {
    /// As [`recv`](Self::recv), on this thread: for threads that are no workers.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn blocking_recv(&mut self) -> Result<T, error::RecvError> {
        self.0.blocking_recv()
    }

    /// Waits for the next value.
    ///
    /// # Errors
    /// Values were lost since it was slow, and how many; the next call goes on with the oldest that
    /// is kept. Or all senders are gone.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    #[track_caller]
    pub fn recv(&mut self) -> impl Future<Output = Result<T, error::RecvError>> {
        spend(Awaits::Message, self.0.recv())
    }

    /// The next value, if there is one.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), or there is none yet.
    pub fn try_recv(&mut self) -> Result<T, error::TryRecvError> {
        self.0.try_recv()
    }

    /// Another receiver for what is sent from now on.
    pub fn resubscribe(&self) -> Receiver<T> {
        Receiver(self.0.resubscribe())
    }
}

impl<T> Receiver<T> {
    /// Whether no sender is left.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Whether both receive from the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Values that it has not seen, lost ones included.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has seen everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
