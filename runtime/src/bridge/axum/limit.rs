//! Limits the number of open connections of a server.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A semaphore for the single task that accepts connections.
#[derive(Clone)]
pub(super) struct Limit(Arc<Mutex<Open>>);

struct Open {
    /// Number of free permits.
    free: usize,
    /// The accepting task, if it waits for a permit. There is only one such task.
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

/// Permission for one connection, returned when dropped.
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
