//! A batch of a dump: a task of the runtime that polls waiting tasks in its own polls.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::task::{Context, Poll};
use std::time::Duration;

use volt_stacks::{Recorded, Tape};

use crate::clock;
use crate::scheduler::current;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::Worker;
use crate::task::awaits::Awaits;
use crate::task::header::{Header, Place};
use crate::task::join::JoinHandle;

/// The file of the spawn location of batches.
pub(super) const FILE: &str = file!();
/// How long a batch polls tasks before it yields to other tasks.
pub(super) const SLICE: Duration = Duration::from_micros(50);

/// A task that waited when it was listed.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) id: u64,
    place: Place,
    pub(super) spawned_at: &'static Location<'static>,
    /// When it was woken last, ns on the process clock.
    pub(super) since_ns: u64,
    /// Whether the query's filter accepts it without its chain.
    pub(super) is_chosen: bool,
    /// What it has recorded that it awaits.
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

/// What was found out about a task.
pub(super) struct Traced {
    pub(super) target: Target,
    /// Whether it waits. If not, it was woken or has ended since it was listed.
    pub(super) still_waits: bool,
    pub(super) recorded: Recorded,
}

/// A batch that was spawned. It is aborted when this is dropped.
pub(super) struct Batch {
    traced: Receiver<Vec<Traced>>,
    task: JoinHandle<()>,
}

impl Batch {
    /// Protocol (2).
    pub(super) fn spawn(shared: &Arc<Shared>, targets: &[Target]) -> Self {
        let (sender, traced) = sync_channel(1);
        let polls = Polls { targets: targets.to_vec(), traced: Vec::new(), tape: None, sender };
        Self { traced, task: shared.spawn(polls, None, Location::caller()) }
    }

    /// Waits until all tasks of the batch were polled. Fails after `patience`, or if the runtime
    /// shuts down.
    pub(super) fn wait(self, patience: Duration) -> Result<Vec<Traced>, RecvTimeoutError> {
        self.traced.recv_timeout(patience)
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
    traced: Vec<Traced>,
    /// Created in the first poll.
    tape: Option<Tape>,
    sender: SyncSender<Vec<Traced>>,
}

impl Future for Polls {
    type Output = ();

    /// Protocol (3).
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let tape = this.tape.get_or_insert_with(Tape::new);
        let until_ns = clock::now_ns() + SLICE.as_nanos() as u64;
        while let Some(target) = this.targets.pop() {
            let traced = current::with_worker(|worker| trace(worker?, target, tape));
            this.traced.extend(traced);
            if clock::now_ns() >= until_ns && !this.targets.is_empty() {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        // Fails only if the dump was given up.
        let _is_sent = this.sender.try_send(std::mem::take(&mut this.traced));
        Poll::Ready(())
    }
}

/// Polls one task, if it still waits. `None` while the runtime shuts down.
fn trace(worker: &Worker, target: Target, tape: &mut Tape) -> Option<Traced> {
    let shared = worker.shared();
    if shared.is_closed() {
        return None;
    }
    let claimed = shared.registry.get(target.id, target.place).and_then(|task| task.claim());
    let still_waits = claimed.is_some_and(|task| worker.poll_traced(task, tape));
    Some(Traced { target, still_waits, recorded: tape.take() })
}
