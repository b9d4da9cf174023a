//! The part of a dump about the tasks that are being polled: they cannot be polled for the dump,
//! but their threads have a stack.

use std::time::Duration;

use volt_stacks::Marker;
use volt_telemetry::dump::{Running, TaskRef, is_of_dump};
use volt_telemetry::listing::order;

use super::{Maker, chain};
use crate::clock;
use crate::scheduler::worker::Worker;

/// From this duration on, the stack of a task that is being polled is captured.
const RUNNING_FROM_NS: u64 = 1_000_000;
/// How long to wait for the stack of a running task.
const STACK_TIMEOUT: Duration = Duration::from_millis(20);

impl Maker<'_> {
    /// Adds the tasks that are being polled, with the stacks of those whose poll lasts.
    pub(super) fn add_running(&mut self) {
        let mut running = Vec::new();
        for (worker, remote) in self.shared.workers.remotes_in_use().iter().enumerate() {
            let poll_seq = remote.cells.poll_seq();
            let Some((poll, _)) = remote.cells.in_flight_of(poll_seq, clock::now_ns()) else { continue };
            if is_of_dump(&poll.spawned_at) {
                // A batch that has sent its last task, or was cancelled.
                continue;
            }
            let name = self.shared.workers.registry.name_by_id(poll.task_id);
            let mut chain = Vec::new();
            if poll.for_ns >= RUNNING_FROM_NS
                && let (Some(sampler), Some(thread)) = (&self.shared.sentinel.sampler, remote.stack_of())
                && let marker = Marker::function(Worker::poll as *const ())
                && let Ok(resolved) = self.resolver.stack_of(sampler, &thread, Some(marker), STACK_TIMEOUT)
                && remote.cells.poll_seq() == poll_seq
            {
                chain = chain::of(&[(resolved.frames, 1)], self.query.is_whole);
            }
            if !self.selection.has_running(poll.task_id, name.as_deref(), &poll.spawned_at, &chain) {
                continue;
            }
            running.push(Running {
                task: TaskRef { id: poll.task_id, name, waiting_ns: 0 },
                spawned_at: poll.spawned_at,
                worker: worker as u32,
                for_ns: poll.for_ns,
                chain,
            });
        }
        order::sort_by_key(&mut running, |running| std::cmp::Reverse(running.for_ns));
        self.dump.running = running;
    }
}
