//! What the operations of this module have in common: each one consumes a unit of the task's
//! cooperative budget when it completes, and records what it awaits while it is pending.
//!
//! A dump recognizes these functions by the path of this file, and shows the operation that they
//! poll instead (`scheduler/dump/chain` in the engine).

use std::future::{Future, poll_fn};
use std::panic::Location;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use volt_core::coop::{self, Unit};
use volt_core::task::details::awaits::{Awaits, Pending};
use volt_core::task::resources::{self, Awaited};
use volt_core::task::waits::Wait;

/// Runs `operation`, which consumes one unit of the cooperative budget when it completes.
///
/// Polls `operation` only while budget is left. When it is pending, records `awaits` and the
/// caller's location as the task's await point. `resource` returns what the operation waits for,
/// for a dump. As cancel safe as `operation`.
#[track_caller]
pub(super) fn spend<F: Future>(
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
/// what the operation waits for, for a dump. `wait` is the entry in the table of waits; `convert`
/// records the acquisition, before the wait ends.
pub(super) async fn spend_queued_at<F: Future, O>(
    at: &'static Location<'static>,
    awaits: Awaits,
    wait: Wait<'_>,
    resource: impl Fn() -> Option<Awaited>,
    operation: F,
    convert: impl FnOnce(F::Output, &'static Location<'static>) -> O,
) -> O {
    // Declared first, so that it ends after the operation has left the queue.
    let mut wait = wait;
    let mut pending = Pending::new(awaits, at);
    let (Unshared(acquired), mut is_refused) = {
        let mut operation = pin!(operation);
        let poll = |cx: &mut Context<'_>| {
            let Poll::Ready(acquired) = operation.as_mut().poll(cx) else {
                pending.note();
                wait.pending(cx, awaits, at);
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
        let converted = convert(acquired.0, at);
        wait.correct();
        return converted;
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
pub(super) fn poll_pending<T>(
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

/// Runs `poll`, one poll of an operation that has no future. The record of its wait is kept: there
/// is no future whose drop could withdraw it.
pub(super) fn kept<T>(
    awaits: Awaits,
    at: &'static Location<'static>,
    poll: impl FnOnce(&mut Pending) -> Poll<T>,
) -> Poll<T> {
    let mut pending = Pending::new(awaits, at);
    let polled = poll(&mut pending);
    std::mem::forget(pending);
    polled
}
