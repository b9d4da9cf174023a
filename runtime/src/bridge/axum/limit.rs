//! How many connections a server may have at a time.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// Counts connections, for the one task that accepts them.
#[derive(Clone)]
pub(super) struct Limit(Arc<Mutex<Open>>);

struct Open {
    /// Permits left.
    free: usize,
    /// The task that waits for one; there is only one that accepts.
    waiter: Option<Waker>,
}

impl Limit {
    pub(super) fn new(max: usize) -> Self {
        Self(Arc::new(Mutex::new(Open { free: max, waiter: None })))
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more connection is allowed.
    pub(super) async fn acquire(&self) -> Permit {
        poll_fn(|cx| {
            let mut open = self.open();
            if open.free == 0 {
                open.waiter = Some(cx.waker().clone());
                return Poll::Pending;
            }
            open.free -= 1;
            Poll::Ready(Permit(self.clone()))
        })
        .await
    }
}

/// The right to one connection; given back on drop.
pub(super) struct Permit(Limit);

impl Drop for Permit {
    fn drop(&mut self) {
        let waiter = {
            let mut open = self.0.open();
            open.free += 1;
            open.waiter.take()
        };
        waiter.into_iter().for_each(Waker::wake);
    }
}
