//! Task notification without a value.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use volt_core::task::details::awaits::{Awaits, Pending};
use volt_core::task::resources::{self, Awaited, Key};
use volt_telemetry::dump::Resource;

use super::spend::poll_pending;
use super::wrapper::{impl_debug, impl_wrapper, unwrap_arc};

/// Notifies one or more tasks that something happened, without sending a value.
///
/// Stores at most one notification for a task that waits later. A `Notify` therefore works like a
/// [`Semaphore`](super::Semaphore) that starts with no permit and never has more than one.
///
/// ```
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let changed = std::sync::Arc::new(volt::sync::Notify::new());
/// let waiter = volt::spawn({
///     let changed = changed.clone();
///     async move { changed.notified().await }
/// });
/// changed.notify_one();
/// waiter.await.unwrap();
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Default)]
#[repr(transparent)]
pub struct Notify(tokio::sync::Notify);

impl_debug!([] Notify);
impl_wrapper!([] Notify, tokio::sync::Notify);

impl Notify {
    /// Creates a new `Notify` without a stored notification.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a new `Notify` without a stored notification, in a constant context.
    pub const fn const_new() -> Self {
        Self(tokio::sync::Notify::const_new())
    }

    /// Waits for a notification.
    ///
    /// The returned future joins the queue of waiters at its first poll, or earlier by
    /// [`Notified::enable`]. [`notify_waiters`](Self::notify_waiters) also completes futures that
    /// have not joined the queue yet.
    ///
    /// # Cancel safety
    /// Cancel safe. If the future is dropped before it completes, the task loses its place in the
    /// queue. A notification that it had received from `notify_one` or `notify_last` passes to
    /// another waiting task.
    #[track_caller]
    pub fn notified(&self) -> Notified<'_> {
        let pending = Pending::new(Awaits::Notice, Location::caller());
        Notified { waiter: self.0.notified(), pending, place: Place::of(&self.0) }
    }

    /// Waits for a notification like [`notified`](Self::notified), with a future that can be moved
    /// into a task.
    ///
    /// # Cancel safety
    /// Same as [`notified`](Self::notified).
    #[track_caller]
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        let (notify, pending) = (unwrap_arc(self), Pending::new(Awaits::Notice, Location::caller()));
        OwnedNotified { waiter: notify.clone().notified_owned(), pending, place: Place::of(notify) }
    }

    /// Notifies the task that has waited longest, or stores one notification for the next waiter.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Notifies the task that began to wait last, or stores one notification for the next waiter.
    pub fn notify_last(&self) {
        self.0.notify_last();
    }

    /// Notifies all tasks that currently wait, and completes all futures of
    /// [`notified`](Self::notified) that exist, even if they were not polled. Stores no
    /// notification for later ones.
    ///
    /// ```
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let changed = volt::sync::Notify::new();
    /// let (one, other) = (changed.notified(), changed.notified());
    /// changed.notify_waiters();
    /// one.await;
    /// other.await;
    /// # });
    /// ```
    pub fn notify_waiters(&self) {
        self.0.notify_waiters();
    }
}

pin_project! {
    /// The future returned by [`Notify::notified`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct Notified<'a> {
        #[pin]
        waiter: tokio::sync::futures::Notified<'a>,
        pending: Pending,
        place: Place<&'a tokio::sync::Notify>,
    }
}

impl Notified<'_> {
    /// Joins the queue of waiters before the first poll. Returns `true` if a notification is
    /// already available.
    ///
    /// To avoid missing a notification, call `enable`, then check the condition to wait for, and
    /// then `.await` the future.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        // The caller gets a notification that the future has received, so its drop passes none on.
        (this.place.has_joined, this.place.is_refused) = (true, false);
        this.waiter.enable()
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.waiter.fmt(f)
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        poll_notified(this.waiter, tokio::sync::futures::Notified::enable, this.pending, this.place, cx)
    }
}

pin_project! {
    /// The future returned by [`Notify::notified_owned`].
    #[must_use = "futures do nothing unless awaited"]
    pub struct OwnedNotified {
        #[pin]
        waiter: tokio::sync::futures::OwnedNotified,
        pending: Pending,
        place: Place<Arc<tokio::sync::Notify>>,
    }
}

impl OwnedNotified {
    /// Joins the queue of waiters before the first poll; see [`Notified::enable`].
    pub fn enable(self: Pin<&mut Self>) -> bool {
        let this = self.project();
        // The caller gets a notification that the future has received, so its drop passes none on.
        (this.place.has_joined, this.place.is_refused) = (true, false);
        this.waiter.enable()
    }
}

impl fmt::Debug for OwnedNotified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.waiter.fmt(f)
    }
}

impl Future for OwnedNotified {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        poll_notified(this.waiter, tokio::sync::futures::OwnedNotified::enable, this.pending, this.place, cx)
    }
}

/// The place of a future in the queue of its `Notify`.
struct Place<N: Deref<Target = tokio::sync::Notify>> {
    notify: N,
    /// Whether the future has joined the queue, or received a notification instead.
    has_joined: bool,
    /// Whether the future has received a notification, but could not complete, because no budget
    /// was left.
    is_refused: bool,
}

impl<N: Deref<Target = tokio::sync::Notify>> Place<N> {
    fn of(notify: N) -> Self {
        Self { notify, has_joined: false, is_refused: false }
    }
}

impl<N: Deref<Target = tokio::sync::Notify>> Drop for Place<N> {
    fn drop(&mut self) {
        // Tokio's future only passes on a notification that it received in the queue. One of
        // `notify_waiters` cannot be distinguished here, and leaves a superfluous notification.
        if self.is_refused {
            self.notify.notify_one();
        }
    }
}

/// Polls `waiter`. If no budget is left, the first poll joins the queue nevertheless, by `enable`:
/// later notifications must find the future there.
fn poll_notified<W: Future<Output = ()>, N: Deref<Target = tokio::sync::Notify>>(
    mut waiter: Pin<&mut W>,
    enable: impl FnOnce(Pin<&mut W>) -> bool,
    pending: &mut Pending,
    place: &mut Place<N>,
    cx: &mut Context<'_>,
) -> Poll<()> {
    let mut is_polled = false;
    let polled = poll_pending(pending, cx, |cx| {
        is_polled = true;
        waiter.as_mut().poll(cx)
    });
    if !is_polled && !place.has_joined {
        // The refusal has woken the task: its next poll adds the waker.
        place.is_refused = enable(waiter);
    }
    place.has_joined = true;
    if polled.is_ready() {
        place.is_refused = false;
    } else {
        resources::note(|| Some(Awaited::new(Key::of(&*place.notify), "notify", Resource::default())));
    }
    polled
}
