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
//!   the numbers of senders, receivers, messages or permits, the tasks that acquired the permits,
//!   and the other tasks that wait there.
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

mod handles;
mod spend;
mod wrapper;

mod barrier;
mod guard;
mod lock;
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
