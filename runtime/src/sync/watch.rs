//! A channel that keeps only the latest value: [`channel`].

use std::fmt::Debug;

use volt_core::task::details::awaits::Awaits;

use super::handles::{OfReceiver, OfSender};
use super::spend::spend;
use super::wrapper::impl_debug;

#[doc(no_inline)]
pub use tokio::sync::watch::{Ref, error};

/// Creates a channel that stores a single value, the latest one sent, and is initially `value`.
///
/// The returned receiver has seen the initial value. A receiver that is slower than the sender
/// misses values, except the latest one.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let (sender, mut receiver) = volt::sync::watch::channel("first");
/// sender.send("second").unwrap();
/// receiver.changed().await.unwrap();
/// assert_eq!(*receiver.borrow_and_update(), "second");
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let (sender, receiver) = tokio::sync::watch::channel(value);
    let handle = OfSender::new(());
    let of_receiver = handle.receiver();
    (Sender(sender, handle), Receiver(receiver, of_receiver))
}

/// Sends values to the associated [`Receiver`]s.
pub struct Sender<T>(tokio::sync::watch::Sender<T>, OfSender<()>);

/// Receives values from the associated [`Sender`]s.
pub struct Receiver<T>(tokio::sync::watch::Receiver<T>, OfReceiver<()>);

impl_debug!([T: Debug] Sender<T>, [T: Debug] Receiver<T>);

impl<T> Sender<T> {
    /// Creates a channel that has no receiver yet. [`subscribe`](Self::subscribe) creates
    /// receivers.
    pub fn new(value: T) -> Self {
        Self(tokio::sync::watch::Sender::new(value), OfSender::new(()))
    }

    /// Replaces the value and notifies all receivers.
    ///
    /// # Errors
    /// Returns an error that contains `value` if there is no receiver.
    pub fn send(&self, value: T) -> Result<(), error::SendError<T>> {
        self.0.send(value)
    }

    /// Replaces the value, notifies all receivers, and returns the previous value.
    ///
    /// Succeeds even if there is no receiver.
    pub fn send_replace(&self, value: T) -> T {
        self.0.send_replace(value)
    }

    /// Modifies the value in place and notifies all receivers.
    ///
    /// Succeeds even if there is no receiver.
    ///
    /// # Panics
    /// Panics if `modify` panics. Changes that it has made stay, and no receiver is notified.
    pub fn send_modify<F>(&self, modify: F)
    where
        F: FnOnce(&mut T),
    {
        self.0.send_modify(modify);
    }

    /// Modifies the value in place, and notifies the receivers only if `modify` returns `true`.
    ///
    /// Returns the result of `modify`.
    ///
    /// # Panics
    /// Same as [`send_modify`](Self::send_modify).
    ///
    /// ```
    /// let (sender, receiver) = volt::sync::watch::channel(1);
    /// let set_to_three = |value: &mut i32| std::mem::replace(value, 3) != 3;
    /// assert!(sender.send_if_modified(set_to_three));
    /// assert!(!sender.send_if_modified(set_to_three));
    /// assert_eq!(*receiver.borrow(), 3);
    /// ```
    pub fn send_if_modified<F>(&self, modify: F) -> bool
    where
        F: FnOnce(&mut T) -> bool,
    {
        self.0.send_if_modified(modify)
    }

    /// Returns a reference to the value. Sends block while the returned guard is alive.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// Creates a new receiver that has seen the current value.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver(self.0.subscribe(), self.1.receiver())
    }

    /// Returns the number of receivers.
    pub fn receiver_count(&self) -> usize {
        self.0.receiver_count()
    }

    /// Returns the number of senders.
    pub fn sender_count(&self) -> usize {
        self.0.sender_count()
    }

    /// Returns `true` if both senders belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Returns `true` if there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Waits until all receivers are dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    #[track_caller]
    pub fn closed(&self) -> impl Future<Output = ()> {
        spend(Awaits::Others, || Some(self.1.awaited("watch", self.receiver_count())), self.0.closed())
    }
}

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}

impl<T> Receiver<T> {
    /// Returns a reference to the value. Sends block while the returned guard is alive.
    ///
    /// Does not mark the value as seen. Drop the guard before the next `.await`, and before this
    /// thread sends or borrows again: otherwise the thread may wait for itself.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// Returns a reference to the value and marks it as seen. See [`borrow`](Self::borrow) for how
    /// long to keep the guard.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.0.borrow_and_update()
    }

    /// Returns `true` if the channel contains a value that this receiver has not seen.
    ///
    /// # Errors
    /// Returns an error if all senders are dropped.
    pub fn has_changed(&self) -> Result<bool, error::RecvError> {
        self.0.has_changed()
    }

    /// Returns `true` if all senders are dropped. The last value can still be borrowed.
    ///
    /// ```
    /// let (sender, receiver) = volt::sync::watch::channel("last");
    /// drop(sender);
    /// assert!(receiver.is_closed());
    /// assert_eq!(*receiver.borrow(), "last");
    /// ```
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    /// Marks the current value as not seen: the next call of [`changed`](Self::changed) returns
    /// immediately.
    pub fn mark_changed(&mut self) {
        self.0.mark_changed();
    }

    /// Marks the current value as seen.
    pub fn mark_unchanged(&mut self) {
        self.0.mark_unchanged();
    }

    /// Returns `true` if both receivers belong to the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Waits until the channel contains a value that this receiver has not seen, and marks it as
    /// seen.
    ///
    /// # Errors
    /// Returns an error if all senders are dropped and the receiver has seen the last value.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before it completes, no value is marked as seen.
    #[track_caller]
    pub fn changed(&mut self) -> impl Future<Output = Result<(), error::RecvError>> {
        spend(Awaits::Notice, || Some(self.1.awaited("watch")), self.0.changed())
    }

    /// Waits until `is_it` returns `true` for the value, and returns a reference to that value.
    /// Checks the current value first, even if the receiver has seen it.
    ///
    /// # Errors
    /// Returns an error if all senders are dropped and `is_it` has returned `false` for the last
    /// value.
    ///
    /// # Panics
    /// Panics if `is_it` panics.
    ///
    /// # Cancel safety
    /// Cancel safe. Each value that was checked is marked as seen.
    #[track_caller]
    pub fn wait_for(
        &mut self,
        is_it: impl FnMut(&T) -> bool,
    ) -> impl Future<Output = Result<Ref<'_, T>, error::RecvError>> {
        spend(Awaits::Notice, || Some(self.1.awaited("watch")), self.0.wait_for(is_it))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone(), self.1.clone())
    }
}
