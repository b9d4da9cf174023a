//! Watching processes, tying their ends together, and ending them.

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
    /// Waits for a process to end, from this call on, whenever the future is polled. For one that
    /// is dead already: [`NoProcess`](ExitReason::NoProcess), at once.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
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

    /// Asks a process to end ([`Event::Cancel`]); false if it has ended already, or, on another
    /// node, if that cannot be told.
    pub fn cancel(&self, pid: Pid) -> bool {
        if self.is_remote(pid) {
            return self.end_remote(pid, false);
        }
        let entry = self.entry(pid);
        entry.inspect(|entry| entry.cancel()).is_some()
    }

    /// Ends a process before its next step, [`Killed`](ExitReason::Killed); false if it has ended
    /// already, or, on another node, if that cannot be told.
    pub fn kill(&self, pid: Pid) -> bool {
        if self.is_remote(pid) {
            return self.end_remote(pid, true);
        }
        let entry = self.entry(pid);
        entry.inspect(|entry| entry.doom(ExitReason::Killed)).is_some()
    }

    /// Asks a process to end, and kills it if it has not after `limit`. Waits for its end; a step
    /// that never returns is waited for, too.
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
            // It ends at this moment, and has not told yet.
            None => _ = entry.life().unlink(pid),
        }
    }

    /// Why a process is not there that nobody has heard of.
    pub(crate) fn absent(&self, pid: Pid) -> ExitReason {
        if pid.node() == self.node() { ExitReason::NoProcess } else { ExitReason::NoConnection }
    }
}

/// Links two processes; false if one is dead.
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

/// How a process ended, and what it was done with.
type Ended = (ExitReason, Option<Payload>);

/// Watches from now on, as a [`Watcher::Waiter`] or as the [`Watcher::Executor`]; ready when the
/// process has ended. Nothing is left behind if it is dropped before.
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
