//! What tasks wait for each other with: locks, permits, notices, and channels.
//!
//! | type | is for |
//! |---|---|
//! | [`Mutex`], [`RwLock`] | a value that is held across an `.await` |
//! | [`Semaphore`] | so many at a time |
//! | [`Notify`] | "look again", without a value |
//! | [`Barrier`] | all arrive before any goes on |
//! | [`OnceCell`], [`SetOnce`] | a value that is made once, by whoever needs it first; one that is set once, and waited for |
//! | [`mpsc`] | a queue with many senders and one receiver, bounded or not |
//! | [`oneshot`] | one value, once |
//! | [`broadcast`] | each value to every receiver |
//! | [`watch`] | the latest value |
//!
//! These are Tokio's, from the part of Tokio that has no runtime in it, under their names and with
//! their semantics; guards, permits and errors are Tokio's own types. What is ours is that each
//! operation that may wait spends one unit of the task's cooperative budget: a task that drains
//! a channel that is always full gives way to others after 128 messages
//! ([`Builder::coop_budget`](crate::Builder::coop_budget)), which Tokio's types do on Tokio's own
//! runtime only. And each that has to wait says so, with the line that it was called at:
//! `volt-console tasks` shows of a task what it waits for.
//!
//! A lock that is not held across an `.await` is better a `std::sync::Mutex`.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use volt_core::coop;
use volt_core::task::awaits::Awaits;

mod barrier;
mod mutex;
mod notify;
mod once_cell;
mod rw_lock;
mod semaphore;
mod set_once;

pub mod broadcast;
pub mod mpsc;
pub mod oneshot;
pub mod watch;

pub use barrier::Barrier;
pub use mutex::Mutex;
pub use notify::{Notified, Notify, OwnedNotified};
pub use once_cell::OnceCell;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;
pub use set_once::SetOnce;

#[doc(no_inline)]
pub use tokio::sync::{
    AcquireError, BarrierWaitResult, MappedMutexGuard, MutexGuard, OwnedMappedMutexGuard, OwnedMutexGuard,
    OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, OwnedSemaphorePermit,
    RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard, SemaphorePermit, SetError, SetOnceError,
    TryAcquireError, TryLockError,
};

/// `operation`, which spends a unit of the budget when it is done, and notes down for the task that
/// it waits for this. Polled only while there is budget; as cancel safe as it is itself.
#[track_caller]
fn spend<F: Future>(awaits: Awaits, operation: F) -> impl Future<Output = F::Output> {
    let at = Location::caller();
    async move {
        let mut operation = pin!(operation);
        poll_fn(|cx| poll_spend(awaits, at, operation.as_mut(), cx)).await
    }
}

/// As [`spend`], of one poll.
fn poll_spend<F: Future>(
    awaits: Awaits,
    at: &'static Location<'static>,
    operation: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let unit = ready!(coop::poll_proceed(cx));
    match operation.poll(cx) {
        Poll::Ready(output) => {
            unit.made_progress();
            Poll::Ready(output)
        }
        Poll::Pending => {
            awaits.note(at);
            Poll::Pending
        }
    }
}
