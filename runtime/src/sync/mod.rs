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
//! These types wrap the ones in `tokio::sync`, which do not depend on Tokio's runtime. Names,
//! signatures and semantics are the same, and everything that `tokio::sync` 1.54 has is here. Most
//! errors are Tokio's own types. Volt adds four things:
//!
//! - Each operation that may wait consumes one unit of the task's cooperative budget. A task that
//!   drains a channel that is never empty therefore yields to other tasks after 128 messages by
//!   default ([`Builder::coop_budget`](crate::Builder::coop_budget)). Tokio's types do this only on
//!   Tokio's runtime.
//! - Each operation that waits records what it awaits and the line that called it. `volt-console
//!   tasks` shows this for every task.
//! - If a task waits for a channel, a [`Notify`], a [`Semaphore`] or a [`Barrier`], a dump shows
//!   the numbers of senders, receivers, messages or permits, and the other tasks that wait there.
//! - A [`Mutex`], an [`RwLock`] and a [`Semaphore`] of one permit record the task that holds them
//!   and the line where it acquired them. An [`RwLock`] does so for a writer, and for a reader
//!   while it is the only one. `volt-console dump` shows the holder, and the doctor finds tasks
//!   that wait for each other.
//!
//! Methods whose names begin with `blocking_` block the current thread. They panic in a task and in
//! [`Runtime::block_on`](crate::Runtime::block_on), where they would delay other tasks. Call them
//! on other threads, in [`spawn_blocking`](crate::task::spawn_blocking) or in
//! [`block_in_place`](crate::task::block_in_place).
//!
//! Prefer `std::sync::Mutex` for a lock that is not held across an `.await`.

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use volt_core::context::expect_may_block;
use volt_core::coop::{self, Unit};
use volt_core::task::details::awaits::{Awaits, Pending};
use volt_core::task::resources::{self, Awaited};
use volt_core::task::waits::{Holder, Wait};

mod barrier;
mod guard;
mod handles;
mod lock;
mod mutex;
mod notify;
mod once_cell;
mod rw_lock;
mod semaphore;
mod set_once;
mod wrapper;

pub mod broadcast;
pub mod mpsc;
pub mod oneshot;
pub mod watch;

/// Named future types.
pub mod futures {
    pub use super::notify::{Notified, OwnedNotified};
}

pub use barrier::Barrier;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard, OwnedMappedMutexGuard, OwnedMutexGuard};
pub use notify::Notify;
pub use once_cell::OnceCell;
pub use rw_lock::{
    OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock, RwLockMappedWriteGuard,
    RwLockReadGuard, RwLockWriteGuard,
};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
pub use set_once::SetOnce;

#[doc(no_inline)]
pub use tokio::sync::{AcquireError, BarrierWaitResult, SetError, SetOnceError, TryAcquireError, TryLockError};

/// Runs `operation`, which consumes one unit of the cooperative budget when it completes.
///
/// Polls `operation` only while budget is left. When it is pending, records `awaits` and the
/// caller's location as the task's await point. `resource` returns what the operation waits for,
/// for a dump. As cancel safe as `operation`.
#[track_caller]
fn spend<F: Future>(
    awaits: Awaits,
    resource: impl Fn() -> Option<Awaited>,
    operation: F,
) -> impl Future<Output = F::Output> {
    let mut pending = Pending::new(awaits, Location::caller());
    async move {
        let mut operation = pin!(operation);
        let poll = |cx: &mut Context<'_>| {
            let polled = poll_pending(&mut pending, cx, |cx| operation.as_mut().poll(cx));
            if polled.is_pending() {
                resources::note(&resource);
            }
            polled
        };
        poll_fn(poll).await
    }
}

/// Runs `operation`, which waits in a fair queue, for a call at `at`, and converts its output.
/// Otherwise like [`spend`].
///
/// Polls `operation` even if no budget is left: the first poll joins the queue, and a task must not
/// lose its place because it was refused. An output that is refused stays in the future, and is
/// dropped with it: `operation` must only acquire, and `convert` does the rest. `resource` returns
/// what the operation waits for, for a dump. If the lock or channel has a `holder`, records that
/// the operation waits for it; `convert` records the acquisition, before the wait ends.
async fn spend_queued_at<F: Future, O>(
    at: &'static Location<'static>,
    awaits: Awaits,
    holder: Option<&Holder>,
    resource: impl Fn() -> Option<Awaited>,
    operation: F,
    convert: impl FnOnce(F::Output, &'static Location<'static>) -> O,
) -> O {
    // Declared first, so that it ends after the operation has left the queue.
    let mut wait = holder.map(Wait::new);
    let mut pending = Pending::new(awaits, at);
    let (Unshared(acquired), mut is_refused) = {
        let mut operation = pin!(operation);
        let poll = |cx: &mut Context<'_>| {
            let Poll::Ready(acquired) = operation.as_mut().poll(cx) else {
                pending.note();
                if let Some(wait) = &mut wait {
                    wait.pending(cx, awaits, at);
                }
                resources::note(&resource);
                return Poll::Pending;
            };
            pending.end();
            let unit = coop::poll_proceed(cx).map(Unit::made_progress);
            Poll::Ready((Unshared(acquired), unit.is_pending()))
        };
        poll_fn(poll).await
    };
    if is_refused {
        // The refusal has woken the task already: this poll only returns.
        let acquired = Unshared(acquired);
        let again = |cx: &mut Context<'_>| match std::mem::replace(&mut is_refused, false) {
            true => Poll::Pending,
            false => coop::poll_proceed(cx).map(Unit::made_progress),
        };
        poll_fn(again).await;
        return convert(acquired.0, at);
    }
    convert(acquired, at)
}

/// A value to which there are no shared references.
///
/// A future that contains a guard is then `Sync` also if the guard is not, as Tokio's are.
struct Unshared<T>(T);

// SAFETY: the only way to the value is to move it out, so a shared reference gives no access to it.
unsafe impl<T> Sync for Unshared<T> {}

/// One poll of [`spend`], whose operation is polled by `poll`.
fn poll_pending<T>(
    pending: &mut Pending,
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let unit = ready!(coop::poll_proceed(cx));
    match poll(cx) {
        Poll::Ready(output) => {
            pending.end();
            unit.made_progress();
            Poll::Ready(output)
        }
        Poll::Pending => {
            pending.note();
            Poll::Pending
        }
    }
}

/// Runs `poll`, one poll of an operation that has no future: nothing that is dropped could withdraw
/// its record, so the record is kept.
fn kept<T>(awaits: Awaits, at: &'static Location<'static>, poll: impl FnOnce(&mut Pending) -> Poll<T>) -> Poll<T> {
    let mut pending = Pending::new(awaits, at);
    let polled = poll(&mut pending);
    std::mem::forget(pending);
    polled
}
