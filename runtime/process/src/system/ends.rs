//! Monitors, links, cancellation and kills.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::entry::relations::Watcher;
use crate::messages::event::{Event, MonitorId};
use crate::messages::failure::ExitReason;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::system::core::{Entry, System};
use volt::sync::oneshot;
use volt::time::timeout;

impl System {
    /// Waits for a process to exit. The process is watched from this call on, not only from the
    /// first poll of the future. If it has exited already, the result is
    /// [`NoProcess`](ExitReason::NoProcess), immediately.
    ///
    /// # Cancel safety
    /// This method is cancel safe: dropping the future removes the monitor.
    pub fn wait(&self, pid: Pid) -> impl Future<Output = ExitReason> + Send + use<> {
        let ends = self.entry(pid).map(|entry| watch(entry, Watcher::Waiter));
        let elsewhere = self.is_remote(pid).then(|| self.watch_remote(pid));
        let absent = self.absent(pid);
        async move {
            match (ends, elsewhere) {
                (Some(ends), _) => ends.await.0,
                (None, Some(elsewhere)) => elsewhere.await,
                (None, None) => absent,
            }
        }
    }

    /// Requests that a process ends: it receives [`Event::Cancel`]. Returns false if it has exited
    /// already. For a process on another node, returns false only if the node cannot be reached.
    pub fn cancel(&self, pid: Pid) -> bool {
        if self.is_remote(pid) {
            return self.end_remote(pid, false);
        }
        let entry = self.entry(pid);
        entry.inspect(|entry| entry.cancel()).is_some()
    }

    /// Ends a process before its next step, with [`Killed`](ExitReason::Killed). Returns false if
    /// it has exited already. For a process on another node, returns false only if the node cannot
    /// be reached.
    pub fn kill(&self, pid: Pid) -> bool {
        if self.is_remote(pid) {
            return self.end_remote(pid, true);
        }
        let entry = self.entry(pid);
        entry.inspect(|entry| entry.request_exit(ExitReason::Killed)).is_some()
    }

    /// Cancels a process, and kills it if it has not exited after `limit`. Returns its exit reason
    /// once it has exited. A step that is running is never interrupted; if it does not return, this
    /// method does not either.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the process has been cancelled. It is not
    /// killed unless the limit was over.
    pub async fn terminate(&self, pid: Pid, limit: Duration) -> ExitReason {
        let ends = self.wait(pid);
        let mut ends = std::pin::pin!(ends);
        self.cancel(pid);
        match timeout(limit, ends.as_mut()).await {
            Ok(reason) => reason,
            Err(_elapsed) => {
                self.kill(pid);
                ends.await
            }
        }
    }

    pub(crate) fn monitor_as(&self, watcher: &Arc<Entry>, pid: Pid) -> MonitorId {
        let monitor = self.next_monitor();
        if pid == watcher.pid() {
            return monitor;
        }
        if self.is_remote(pid) {
            self.monitor_remote(watcher, monitor, pid);
            return monitor;
        }
        if let Some(watched) = self.entry(pid) {
            let (mut ours, mut theirs) = watcher.lives(&watched);
            if let (Some(ours), Some(theirs)) = (ours.relations(), theirs.relations()) {
                ours.watched.insert(monitor, pid);
                theirs.watchers.insert(monitor, Watcher::Process(watcher.pid()));
                return monitor;
            }
        }
        watcher.deliver(Event::Down { monitor, pid, reason: self.absent(pid) });
        monitor
    }

    pub(crate) fn demonitor_as(&self, watcher: &Entry, monitor: MonitorId) {
        let watched = watcher.life().unwatch(monitor);
        if let Some(pid) = watched.filter(|pid| self.is_remote(*pid)) {
            return self.demonitor_remote(monitor, pid);
        }
        if let Some(watched) = watched.and_then(|pid| self.entry(pid)) {
            let removed = watched.life().remove_watcher(monitor);
            drop(removed);
        }
    }

    pub(crate) fn link_as(&self, entry: &Arc<Entry>, pid: Pid) {
        if self.is_remote(pid) {
            return self.link_remote(entry, pid);
        }
        if pid == entry.pid() || self.entry(pid).is_some_and(|other| tie(entry, &other)) {
            return;
        }
        entry.exit(entry.life(), pid, self.absent(pid));
    }

    pub(crate) fn unlink_as(&self, entry: &Arc<Entry>, pid: Pid) {
        if self.is_remote(pid) {
            return self.unlink_remote(entry, pid);
        }
        let other = self.entry(pid).filter(|_| pid != entry.pid());
        match other {
            Some(other) => {
                let (mut ours, mut theirs) = entry.lives(&other);
                ours.unlink(pid);
                theirs.unlink(entry.pid());
            }
            // The other process is exiting at this moment, and has not notified this one.
            None => _ = entry.life().unlink(pid),
        }
    }

    /// Returns the exit reason that is reported for a process that is not found.
    pub(crate) fn absent(&self, pid: Pid) -> ExitReason {
        if pid.node() == self.node() { ExitReason::NoProcess } else { ExitReason::NoConnection }
    }
}

/// Links two processes. Returns false if one of them is dead.
pub(crate) fn tie(one: &Entry, other: &Entry) -> bool {
    let (mut ours, mut theirs) = one.lives(other);
    match (ours.relations(), theirs.relations()) {
        (Some(ours), Some(theirs)) => {
            ours.links.insert(other.pid());
            theirs.links.insert(one.pid());
            true
        }
        _ => false,
    }
}

/// The exit reason of a process, and its result.
type Ended = (ExitReason, Option<Payload>);

/// Watches a process from now on, as a [`Watcher::Waiter`] or as the [`Watcher::Executor`]. The
/// future completes when the process has exited. Dropping it removes the monitor.
pub(crate) fn watch(
    entry: Arc<Entry>,
    watcher: fn(oneshot::Sender<Ended>) -> Watcher,
) -> impl Future<Output = Ended> + Send + use<> {
    let monitor = entry.system().next_monitor();
    let (waiter, ended) = oneshot::channel();
    if let Some(relations) = entry.life().relations() {
        relations.watchers.insert(monitor, watcher(waiter));
    }
    let watch = Watch { entry, monitor };
    async move {
        let ended = ended.await;
        drop(watch);
        ended.unwrap_or((ExitReason::NoProcess, None))
    }
}

struct Watch {
    entry: Arc<Entry>,
    monitor: MonitorId,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let removed = self.entry.life().remove_watcher(self.monitor);
        drop(removed);
    }
}
