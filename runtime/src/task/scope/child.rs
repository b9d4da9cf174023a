//! [`Child`]: the value of a child task of a scope.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::{SetOnce, oneshot};
use volt_core::task::current;

/// A future that returns the value of a child of a [`scope`](super::scope). Await it inside the
/// scope.
///
/// # Panics
/// Panics if it is awaited outside the scope, the scope has ended, and the child returned no value:
/// the child failed, was cancelled, or was spawned after the end of the scope. Without the panic,
/// the code outside the scope would wait forever.
///
/// # Cancel safety
/// Cancel safe: the value is kept until it is received.
#[must_use = "await it to get the child's value; the child runs in any case"]
pub struct Child<T>(pub(super) Awaits<T>);

pub(super) enum Awaits<T> {
    /// Waiting for the child's value, or for the child to end without one.
    Value(oneshot::Receiver<T>, Arc<SetOnce<()>>),
    /// Waiting for the end of the scope.
    End(Pin<Box<dyn Future<Output = ()> + Send + Sync>>),
}

impl<T> Future for Child<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        if let Awaits::Value(value, over) = &mut self.0 {
            match ready!(Pin::new(value).poll(cx)) {
                Ok(value) => return Poll::Ready(value),
                Err(_failed) => {
                    let over = over.clone();
                    self.0 = Awaits::End(Box::pin(async move {
                        over.wait().await;
                    }));
                }
            }
        }
        if let Awaits::End(end) = &mut self.0 {
            ready!(end.as_mut().poll(cx));
        }
        // A child of a dropped scope can reach this line in the poll in which it is cancelled.
        assert!(
            current::is_cancellation_effective(),
            "the scope of this child has ended, and the child gave no value: it failed, was cancelled, or was started too late; await it inside \
             the scope"
        );
        Poll::Pending
    }
}

impl<T> fmt::Debug for Child<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").finish_non_exhaustive()
    }
}
