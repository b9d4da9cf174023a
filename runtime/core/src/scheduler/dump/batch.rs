//! A batch of a dump: a task of the runtime that polls waiting tasks in its own polls.
//!
//! The thread that makes a dump must not poll tasks itself: a poll belongs on a worker, where the
//! runtime is current and a stuck poll is detected. So it spawns a [`Batch`], whose future claims
//! and polls up to a fixed number of waiting tasks (the *targets*). Each poll of the batch is a
//! *slice*: it polls targets for [`SLICE`], sends the recorded stacks to the thread through a
//! channel, and yields to other tasks. `dump` describes the protocol.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::time::Duration;

use volt_stacks::{Recorded, Tape};

use crate::clock;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::Worker;
use crate::scheduler::worker::current;
use crate::task::details::awaits::Awaits;
use crate::task::details::dump::SPAWNED_AT;
use crate::task::header::{Header, Place};
use crate::task::join::JoinHandle;
use crate::task::resources::{self, Noted};

/// How long a batch polls tasks before it yields to other tasks.
pub(super) const SLICE: Duration = Duration::from_micros(50);
/// The value of `polled` while no task is being polled. Ids begin with 1.
const NO_TASK: u64 = 0;

/// A task that waited when it was listed.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) id: u64,
    place: Place,
    pub(super) spawned_at: &'static Location<'static>,
    /// When it was woken last, ns on the program's clock.
    pub(super) since_ns: u64,
    /// Whether the query's filter accepts it without its chain.
    pub(super) is_chosen: bool,
    /// The await that it recorded in its last own poll. The poll for the dump may record less:
    /// `FuturesUnordered` polls only children that were woken.
    pub(super) awaits: Option<(Awaits, Option<&'static Location<'static>>)>,
}

impl Target {
    pub(super) fn of(header: &Header, is_chosen: bool) -> Self {
        Self {
            id: header.id.as_u64(),
            place: header.place(),
            spawned_at: header.location(),
            since_ns: header.submitted_at_ns(),
            is_chosen,
            awaits: header.awaits(),
        }
    }
}

/// The results about a task.
pub(super) struct Traced {
    pub(super) target: Target,
    /// Whether it waits. If not, it was woken or has ended since it was listed.
    pub(super) still_waits: bool,
    pub(super) recorded: Recorded,
    /// The resources that its pending operations await.
    pub(super) resources: Noted,
}

/// A batch that was spawned. It is aborted when this is dropped.
pub(super) struct Batch {
    slices: Receiver<Vec<Traced>>,
    /// The number of its tasks that were not received yet.
    left: usize,
    polled: Arc<AtomicU64>,
    task: JoinHandle<()>,
}

impl Batch {
    /// Protocol (2).
    pub(super) fn spawn(shared: &Arc<Shared>, targets: &[Target]) -> Self {
        let polled = Arc::new(AtomicU64::new(NO_TASK));
        // Each slice has at least one task, so there is room for all of them.
        let (sender, slices) = sync_channel(targets.len());
        let polls = Polls { targets: targets.to_vec(), traced: Vec::new(), tape: None, sender, polled: polled.clone() };
        Self { slices, left: targets.len(), polled, task: shared.spawn(polls, None, SPAWNED_AT) }
    }

    /// Waits until a slice of the batch was polled, and returns it. Fails after `timeout`, or if
    /// the runtime shuts down.
    pub(super) fn next(&mut self, timeout: Duration) -> Result<Vec<Traced>, RecvTimeoutError> {
        let slice = self.slices.recv_timeout(timeout)?;
        self.left = self.left.saturating_sub(slice.len());
        Ok(slice)
    }

    /// Returns whether all slices were received.
    pub(super) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// Returns the id of the task that is being polled, if there is one.
    pub(super) fn polled(&self) -> Option<u64> {
        // ORDERING: Relaxed; a hint for a remark, which publishes nothing.
        Some(self.polled.load(Ordering::Relaxed)).filter(|&id| id != NO_TASK)
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The future of a batch.
struct Polls {
    /// The tasks that are left, the next one last.
    targets: Vec<Target>,
    /// The tasks of this slice that were polled.
    traced: Vec<Traced>,
    /// Created in the first poll.
    tape: Option<Tape>,
    sender: SyncSender<Vec<Traced>>,
    /// The id of the task that is being polled, or [`NO_TASK`].
    polled: Arc<AtomicU64>,
}

impl Future for Polls {
    type Output = ();

    /// Protocol (3).
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let tape = this.tape.get_or_insert_with(Tape::new);
        let until_ns = clock::now_ns() + SLICE.as_nanos() as u64;
        while let Some(target) = this.targets.pop() {
            // ORDERING: Relaxed, both: see `Batch::polled`.
            this.polled.store(target.id, Ordering::Relaxed);
            let traced = current::with_worker(|worker| trace(worker?, target, tape));
            this.polled.store(NO_TASK, Ordering::Relaxed);
            this.traced.extend(traced);
            if clock::now_ns() >= until_ns {
                break;
            }
        }
        if !this.traced.is_empty() {
            // Fails only if the dump was cancelled.
            let _is_sent = this.sender.try_send(std::mem::take(&mut this.traced));
        }
        // A worker polls the driver within a tick only if polls are slow. This one was, on purpose.
        current::with_worker(|worker| worker.map(Worker::request_driver));
        if this.targets.is_empty() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Polls one task, if it still waits. `None` while the runtime shuts down.
fn trace(worker: &Worker, target: Target, tape: &mut Tape) -> Option<Traced> {
    let shared = worker.shared();
    if shared.is_closed() {
        return None;
    }
    let claimed = shared.workers.registry.get(target.id, target.place).and_then(|task| task.claim());
    let (still_waits, resources) =
        resources::recorded_in(|| claimed.is_some_and(|task| worker.poll_traced(task, tape)));
    Some(Traced { target, still_waits, recorded: tape.take(), resources })
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::pin::pin;

    use super::*;
    use crate::builder::Builder;

    #[test]
    fn a_batch_requests_a_poll_of_the_driver_after_its_own() {
        let runtime = Builder::new_multi_thread().worker_threads(1).control_socket(false).build().unwrap();
        let waiting = runtime.spawn(pending::<()>());
        let registry = &runtime.handle().shared().workers.registry;
        let mut targets = Vec::new();
        while targets.is_empty() {
            registry.walk(usize::MAX, |header| targets.push(Target::of(header, true)));
        }
        let (sender, slices) = sync_channel(targets.len());
        let polled = Arc::new(AtomicU64::new(NO_TASK));
        let polls = Polls { targets, traced: Vec::new(), tape: None, sender, polled };
        let has_requested = || current::with_worker(|worker| worker.is_some_and(Worker::has_requested_driver));
        let batch = runtime.spawn(async move {
            let mut polls = pin!(polls);
            poll_fn(|cx| {
                let before = has_requested();
                _ = polls.as_mut().poll(cx);
                Poll::Ready((before, has_requested()))
            })
            .await
        });
        assert_eq!(runtime.block_on(batch).unwrap(), (false, true));
        assert_eq!(slices.recv().unwrap().len(), 1);
        waiting.abort();
    }
}
