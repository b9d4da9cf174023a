//! The shutdown of a system. All processes are cancelled; those that do not exit in time are
//! killed.
//!
//! 1. `stop`: no process is started any more. A process that is being started at this moment is
//!    refused, or found in step 2.
//! 2. Every process receives `Event::Cancel`.
//! 3. The shutdown waits until no process is alive, for at most its limit.
//! 4. The remaining processes are killed: each exits before its next step.
//! 5. Processes that are alive after `GRACE` are in a step that does not return, or queued behind
//!    other tasks. The shutdown completes them itself: it notifies their monitors and links, and
//!    releases their pids. It aborts their tasks, which takes effect when the step returns.
//! 6. The relay, if there is one, leaves its cluster after all exits have been reported to other
//!    nodes.

use std::sync::Arc;
use std::time::Duration;

use crate::messages::failure::ExitReason;
use crate::report::info::ProcessInfo;
use crate::state::Lifecycle;
use crate::system::core::{Entry, System};
use volt::time::timeout;

/// How long a shutdown waits for processes to exit, unless the caller sets another limit.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a step may continue that was running when its process was killed. A step that does not
/// block returns in far less time.
const GRACE: Duration = Duration::from_millis(100);

/// The result of a shutdown.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// The number of processes that were alive when it began.
    pub processes: usize,
    /// The processes that did not exit within the limit, as they were at that time. They were
    /// killed.
    pub forced: Vec<ProcessInfo>,
    /// How many of those were in a step that did not return. Such a step may still run. Processes
    /// whose task was queued and not polled are not counted.
    pub stuck: usize,
}

impl System {
    /// Shuts the system down. Cancels every process ([`Event::Cancel`](crate::Event::Cancel)),
    /// waits for at most `limit`, 10 s if `None`, and kills the remaining processes, whose exit
    /// reason is [`Killed`](ExitReason::Killed). From this call on, no process can be started. A
    /// system with a relay then reports the exits to other nodes, for at most 10 s, and leaves its
    /// cluster.
    ///
    /// If a process awaits this itself, the shutdown waits for that process, too, and kills it at
    /// the limit.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, no process can be started, and all have been
    /// cancelled. Those that do not exit are not killed unless the limit was over.
    pub async fn shutdown(&self, limit: Option<Duration>) -> ShutdownReport {
        let mut processes = 0;
        for entry in self.stop() {
            processes += 1;
            entry.cancel();
        }
        if timeout(limit.unwrap_or(LIMIT), self.emptied()).await.is_ok() {
            self.leave().await;
            return ShutdownReport { processes, forced: Vec::new(), stuck: 0 };
        }
        let left: Vec<Arc<Entry>> = self.registry().list().collect();
        let forced = left.iter().map(|entry| ProcessInfo::of(entry)).collect();
        for entry in &left {
            entry.request_exit(ExitReason::Killed);
        }
        let mut stuck = 0;
        if timeout(GRACE, self.emptied()).await.is_err() {
            for entry in self.registry().list() {
                let is_in_step = entry.state.lifecycle() == Lifecycle::Running;
                if entry.state.complete() {
                    stuck += usize::from(is_in_step);
                    entry.end(&ExitReason::Killed, None);
                    if let Some(task) = entry.task() {
                        task.abort();
                    }
                }
            }
        }
        self.leave().await;
        ShutdownReport { processes, forced, stuck }
    }

    /// Step 6.
    async fn leave(&self) {
        if let Some(remote) = self.remote() {
            // A process is removed from the registry before its exit is reported. Wait for the
            // reports.
            let _notified = timeout(LIMIT, self.notified()).await;
            remote.relay.leave().await;
            self.forget_peers();
        }
    }

    async fn notified(&self) {
        loop {
            let mut ended = std::pin::pin!(self.notify_ended().notified());
            ended.as_mut().enable();
            if self.ends().are_all_notified() {
                return;
            }
            ended.await;
        }
    }

    async fn emptied(&self) {
        loop {
            let ended = self.notify_ended().notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            // Stop (3) of `stopping`.
            if self.process_count() == 0 {
                return;
            }
            ended.await;
        }
    }
}
