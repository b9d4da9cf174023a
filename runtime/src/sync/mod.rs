//! Synchronization primitives for tasks: locks, semaphores, notifications and channels.
//!
//! | type | use |
//! |---|---|
//! | [`Mutex`], [`RwLock`] | protect a value whose guard is held across an `.await` |
//! | [`Semaphore`] | limits concurrent access to N holders |
//! | [`Notify`] | wakes tasks without sending a value |
//! | [`Barrier`] | blocks tasks until all of them have arrived |
//! | [`OnceCell`] | a value that an async function initializes once |
//! | [`SetOnce`] | a value that is set once and can be awaited |
//! | [`mpsc`] | a queue with many senders and one receiver, bounded or unbounded |
//! | [`oneshot`] | a channel for a single value |
//! | [`broadcast`] | a channel that delivers each value to every receiver |
//! | [`watch`] | a channel that keeps only the latest value |
//!
//! These types wrap the ones in `tokio::sync`, which do not depend on Tokio's runtime. Names and
//! semantics are the same; guards, permits and most errors are Tokio's own types. Volt adds two
//! things:
//!
//! - Each operation that may wait consumes one unit of the task's cooperative budget. A task that
//!   drains a channel that is never empty therefore yields to other tasks after 128 messages by
//!   default ([`Builder::coop_budget`](crate::Builder::coop_budget)). Tokio's types do this only on
//!   Tokio's runtime.
//! - Each operation that waits records what it awaits and the line that called it. `volt-console
//!   tasks` shows this for every task.
//!
//! Prefer `std::sync::Mutex` for a lock that is not held across an `.await`.

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

/// Runs `operation`, which consumes one unit of the cooperative budget when it completes.
///
/// Polls `operation` only while budget is left. When it is pending, records `awaits` and the
/// caller's location as the task's await point. As cancel safe as `operation`.
#[track_caller]
fn spend<F: Future>(awaits: Awaits, operation: F) -> impl Future<Output = F::Output> {
    let at = Location::caller();
    async move {
        let mut operation = pin!(operation);
        poll_fn(|cx| poll_spend(awaits, at, operation.as_mut(), cx)).await
    }
}

/// One poll of [`spend`].
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
