//! What tasks wait for each other with: locks, permits, notices, and channels.
//!
//! | type | is for |
//! |---|---|
//! | [`Mutex`], [`RwLock`] | a value that is held across an `.await` |
//! | [`Semaphore`] | so many at a time |
//! | [`Notify`] | "look again", without a value |
//! | [`Barrier`], [`OnceCell`] | all arrive before any goes on; a value that is made once |
//! | [`mpsc`] | a queue with many senders and one receiver, bounded or not |
//! | [`oneshot`] | one value, once |
//! | [`broadcast`] | each value to every receiver |
//! | [`watch`] | the latest value |
//!
//! These are Tokio's, from the part of Tokio that has no runtime in it, under their names and with their semantics; guards, permits and errors are
//! Tokio's own types. What is ours is that each operation that may wait spends one unit of the task's cooperative budget: a task that drains
//! a channel that is always full gives way to others after 128 messages ([`Builder::coop_budget`](crate::Builder::coop_budget)), which
//! Tokio's types do on Tokio's own runtime only.
//!
//! A lock that is not held across an `.await` is better a `std::sync::Mutex`.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Poll, ready};

use crate::coop;

mod barrier;
mod mutex;
mod notify;
mod once_cell;
mod rw_lock;
mod semaphore;

pub mod broadcast;
pub mod mpsc;
pub mod oneshot;
pub mod watch;

pub use barrier::Barrier;
pub use mutex::Mutex;
pub use notify::{Notified, Notify};
pub use once_cell::OnceCell;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;

#[doc(no_inline)]
pub use tokio::sync::{
    AcquireError, BarrierWaitResult, MappedMutexGuard, MutexGuard, OwnedMappedMutexGuard, OwnedMutexGuard,
    OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit,
    RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard, SemaphorePermit, SetError, TryAcquireError,
    TryLockError,
};

/// `operation`, which spends a unit of the budget when it is done. Polled only while there is budget; as cancel safe as it is itself.
async fn spend<F: Future>(operation: F) -> F::Output {
    let mut operation = pin!(operation);
    poll_fn(|cx| {
        let unit = ready!(coop::poll_proceed(cx));
        let output = ready!(operation.as_mut().poll(cx));
        unit.made_progress();
        Poll::Ready(output)
    })
    .await
}
