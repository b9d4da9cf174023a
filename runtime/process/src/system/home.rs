//! The functions that a system provides for the entries of its processes; see [`Home`]. Entries
//! call them at an exit, for example to release a pid or to notify a process on another node.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use volt_telemetry::recording::event::{self as recording, Loss};
use volt_telemetry::recording::record::saturating_u32;

use crate::entry::Home;
use crate::messages::event::MonitorId;
use crate::messages::failure::ExitReason;
use crate::messages::pid::{Node, Pid};
use crate::system::core::{Entry, System};

impl Home for System {
    fn find(&self, pid: Pid) -> Option<Arc<Entry>> {
        self.entry(pid)
    }

    fn remove(&self, pid: Pid) {
        self.registry().remove(pid);
    }

    fn is_remote(&self, pid: Pid) -> bool {
        self.is_remote(pid)
    }

    fn down_remote(&self, node: Node, id: u64, local: MonitorId, reason: &ExitReason) {
        self.down_remote(node, id, local, reason);
    }

    fn exit_remote(&self, ours: Pid, theirs: Pid, reason: &ExitReason) {
        self.exit_remote(ours, theirs, reason);
    }

    fn demonitor_remote(&self, monitor: MonitorId, pid: Pid) {
        self.demonitor_remote(monitor, pid);
    }

    fn count_restart(&self, supervisor: Pid) {
        // ORDERING: Relaxed; a counter.
        self.ends().restarts.fetch_add(1, Ordering::Relaxed);
        self.runtime().record(|| recording::Event::ProcessRestart { supervisor: supervisor.number() });
    }

    #[cold]
    fn count_lost(&self, pid: Pid, loss: Loss) {
        // ORDERING: Relaxed; a counter.
        self.ends().lost.fetch_add(1, Ordering::Relaxed);
        self.runtime().record(|| recording::Event::MessageLost { process: pid.number(), loss });
    }

    fn count_end(&self, entry: &Entry, reason: &ExitReason) {
        let ended = if reason.is_abnormal() { &self.ends().abnormal } else { &self.ends().normal };
        // ORDERING: Relaxed; a counter.
        ended.fetch_add(1, Ordering::Relaxed);
        self.runtime().record(|| recording::Event::ProcessEnd {
            process: entry.pid().number(),
            ending: reason.ending(),
            steps: saturating_u32(entry.steps()),
        });
        if matches!(reason, ExitReason::Failed(_) | ExitReason::Panicked(_)) {
            self.survey().note_failure(entry, reason);
        }
    }

    fn ended(&self, entry: &Entry, reason: &ExitReason) {
        if self.remote().is_some() {
            // ORDERING: Relaxed; see `Ends::are_all_notified`.
            self.ends().notified.fetch_add(1, Ordering::Relaxed);
        }
        // Exit (2) of `stopping`.
        if self.is_stopping() || self.remote().is_some() {
            self.notify_ended().notify_waiters();
        }
        if matches!(reason, ExitReason::Failed(_) | ExitReason::Panicked(_)) {
            // Read before the event is logged: a subscriber is user code, and must run without a
            // lock.
            let (pid, name, kind) = (entry.pid(), entry.name().unwrap_or_default(), entry.life().kind);
            tracing::warn!(target: "volt::process", %pid, name, kind, %reason, "a process exited abnormally");
        }
    }
}
