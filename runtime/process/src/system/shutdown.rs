//! The end of a system: everybody is asked, waited for, and then made to.
//!
//! 1. `stop`: no process is started any more; one that is being started at this moment is refused,
//!    or seen in 2.
//! 2. Every process gets `Event::Cancel`.
//! 3. The shutdown waits until none is left, for at most its limit.
//! 4. Those that are left are doomed: each ends before its next step.
//! 5. Those that are left after `GRACE`, in a step that does not return or queued behind others,
//!    are completed from here: their watchers are told, their pids are nobody's; their tasks are
//!    aborted, which takes effect when the step returns, if it does.
//! 6. The relay, if there is one, tells other nodes, after all that these were told before.

use std::sync::Arc;
use std::time::Duration;

use crate::messages::failure::ExitReason;
use crate::report::info::ProcessInfo;
use crate::state::Lifecycle;
use crate::system::core::{Entry, System};
use volt::time::timeout;

/// How long a shutdown waits for processes to end by themselves, unless it says otherwise.
const LIMIT: Duration = Duration::from_secs(10);
/// How long a step may take that was running when its process was doomed. Anything that yields
/// returns in far less.
const GRACE: Duration = Duration::from_millis(100);

/// How a system ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Processes that lived when it began.
    pub processes: usize,
    /// Those that did not end within the limit, as they were then, and were made to.
    pub forced: Vec<ProcessInfo>,
    /// Of these, how many were in a step that did not return either; it may still run. Those that
    /// no worker came to are not among them.
    pub stuck: usize,
}

impl System {
    /// Ends the system: asks every process to end ([`Event::Cancel`](crate::Event::Cancel)), waits
    /// for at most `limit`, 10 s if `None`, and ends those that are left. Their monitors are
    /// told [`Killed`](ExitReason::Killed). No process is started from the first moment on. Awaited
    /// by a process, it waits for that one too, and ends it at the limit.
    pub async fn shutdown(&self, limit: Option<Duration>) -> ShutdownReport {
        self.stop();
        let mut processes = 0;
        for entry in self.registry().list() {
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
            entry.doom(ExitReason::Killed);
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
            // Whom a process's end concerns is told after the process is nobody's.
            let _told = timeout(LIMIT, self.told()).await;
            remote.relay.leave().await;
            self.forget_peers();
        }
    }

    async fn told(&self) {
        loop {
            let mut ended = std::pin::pin!(self.notify_ended().notified());
            ended.as_mut().enable();
            if self.ends().are_told() {
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
            if self.process_count() == 0 {
                return;
            }
            ended.await;
        }
    }
}
