//! A notice without a value.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{Awaits, poll_spend};

/// Wakes tasks that wait for something to have changed. Holds one notice at most for whoever comes
/// next.
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
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Notify(tokio::sync::Notify);

impl Notify {
    /// Without a notice.
    pub fn new() -> Self {
        Self::default()
    }

    /// Without a notice, in a constant.
    pub const fn const_new() -> Self {
        Self(tokio::sync::Notify::const_new())
    }

    /// Waits for a notice.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives up its place in the line; a notice that it was given
    /// already goes to the next.
    #[track_caller]
    pub fn notified(&self) -> Notified<'_> {
        Notified { waiter: self.0.notified(), at: Location::caller() }
    }

    /// As [`notified`](Self::notified), with a future that can be moved into a task.
    ///
    /// # Cancel safety
    /// As [`notified`](Self::notified).
    #[track_caller]
    pub fn notified_owned(self: Arc<Self>) -> OwnedNotified {
        OwnedNotified { waiter: inner(self).notified_owned(), at: Location::caller() }
    }

    /// Wakes the task that has waited longest, or keeps one notice for the next that waits.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes the task that came last, or keeps one notice for the next that waits.
    pub fn notify_last(&self) {
        self.0.notify_last();
    }

    /// Wakes all that wait now, and keeps no notice.
    pub fn notify_waiters(&self) {
        self.0.notify_waiters();
    }
}

pin_project! {
    /// What [`Notify::notified`] gives.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Notified<'a> {
        #[pin]
        waiter: tokio::sync::futures::Notified<'a>,
        at: &'static Location<'static>,
    }
}

impl Notified<'_> {
    /// Takes a place in the line before the first poll. Returns whether there is a notice already.
    ///
    /// So that one can check whether there is something to wait for, between this and the `.await`,
    /// and miss nothing.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.project().waiter.enable()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        poll_spend(Awaits::Notice, this.at, this.waiter, cx)
    }
}

pin_project! {
    /// What [`Notify::notified_owned`] gives.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct OwnedNotified {
        #[pin]
        waiter: tokio::sync::futures::OwnedNotified,
        at: &'static Location<'static>,
    }
}

impl OwnedNotified {
    /// As [`Notified::enable`].
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.project().waiter.enable()
    }
}

impl Future for OwnedNotified {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        poll_spend(Awaits::Notice, this.at, this.waiter, cx)
    }
}

fn inner(notify: Arc<Notify>) -> Arc<tokio::sync::Notify> {
    let notify = Arc::into_raw(notify) as *const tokio::sync::Notify;
    // SAFETY: it comes from `into_raw`, and a transparent wrapper has the size and alignment of
    // what it wraps.
    unsafe { Arc::from_raw(notify) }
}
