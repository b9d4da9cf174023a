//! A notice without a value.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;

use crate::coop;

/// Wakes tasks that wait for something to have changed. Holds one notice at most for whoever comes next.
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
pub struct Notify(tokio::sync::Notify);

impl Notify {
    /// Without a notice.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a notice.
    ///
    /// # Cancel safety
    /// Dropped before it is done, it gives up its place in the line; a notice that it was given already goes to the next.
    pub fn notified(&self) -> Notified<'_> {
        Notified { waiter: self.0.notified() }
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
    }
}

impl Notified<'_> {
    /// Takes a place in the line before the first poll. Returns whether there is a notice already.
    ///
    /// So that one can look whether there is something to wait for, between this and the `.await`, and miss nothing.
    pub fn enable(self: Pin<&mut Self>) -> bool {
        self.project().waiter.enable()
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let unit = ready!(coop::poll_proceed(cx));
        ready!(self.project().waiter.poll(cx));
        unit.made_progress();
        Poll::Ready(())
    }
}
