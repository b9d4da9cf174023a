//! The latest value: [`channel`].

use super::{Awaits, spend};

#[doc(no_inline)]
pub use tokio::sync::watch::{Ref, error};

/// A channel that holds one value, the latest.
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
    (Sender(sender), Receiver(receiver))
}

/// Changes the value.
#[derive(Debug)]
pub struct Sender<T>(tokio::sync::watch::Sender<T>);

/// Sees the value.
#[derive(Debug)]
pub struct Receiver<T>(tokio::sync::watch::Receiver<T>);

impl<T> Sender<T> {
    /// A channel without a receiver, so far: [`subscribe`](Self::subscribe) makes them.
    pub fn new(value: T) -> Self {
        Self(tokio::sync::watch::Sender::new(value))
    }

    /// Puts `value` in the place of what was there.
    ///
    /// # Errors
    /// There is no receiver: the value comes back.
    pub fn send(&self, value: T) -> Result<(), error::SendError<T>> {
        self.0.send(value)
    }

    /// Puts `value` in the place of what was there, which comes back, receivers or not.
    pub fn send_replace(&self, value: T) -> T {
        self.0.send_replace(value)
    }

    /// Changes the value where it is, and tells the receivers.
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.0.send_modify(modify);
    }

    /// As [`send_modify`](Self::send_modify); tells the receivers only if `modify` says so, and
    /// returns what it says.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        self.0.send_if_modified(modify)
    }

    /// The value. It cannot be changed while the guard lives.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// A receiver, which has seen the value of now.
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver(self.0.subscribe())
    }

    /// How many receivers there are.
    pub fn receiver_count(&self) -> usize {
        self.0.receiver_count()
    }

    /// How many senders there are.
    pub fn sender_count(&self) -> usize {
        self.0.sender_count()
    }

    /// Whether both send into the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Whether there is no receiver.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed()
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

impl<T: Default> Default for Sender<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Receiver<T> {
    /// The value. It cannot be changed while the guard lives.
    pub fn borrow(&self) -> Ref<'_, T> {
        self.0.borrow()
    }

    /// As [`borrow`](Self::borrow), and has seen it.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.0.borrow_and_update()
    }

    /// Whether there is a value that it has not seen.
    ///
    /// # Errors
    /// All senders are gone.
    pub fn has_changed(&self) -> Result<bool, error::RecvError> {
        self.0.has_changed()
    }

    /// Has not seen the value of now: the next [`changed`](Self::changed) is done at once.
    pub fn mark_changed(&mut self) {
        self.0.mark_changed();
    }

    /// Has seen the value of now.
    pub fn mark_unchanged(&mut self) {
        self.0.mark_unchanged();
    }

    /// Whether both see the same channel.
    pub fn same_channel(&self, other: &Self) -> bool {
        self.0.same_channel(&other.0)
    }

    /// Waits for a value that it has not seen, and has seen it.
    ///
    /// # Errors
    /// All senders are gone.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it has seen nothing.
    #[track_caller]
    pub fn changed(&mut self) -> impl Future<Output = Result<(), error::RecvError>> {
        spend(Awaits::Value, self.0.changed())
    }

    /// Waits for a value of which `is_it` is true, the present one included.
    ///
    /// # Errors
    /// All senders are gone.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    #[track_caller]
    pub fn wait_for(
        &mut self,
        is_it: impl FnMut(&T) -> bool,
    ) -> impl Future<Output = Result<Ref<'_, T>, error::RecvError>> {
        spend(Awaits::Value, self.0.wait_for(is_it))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}
