//! What there is to say of a process at one moment.

use crate::entry::{Entry, Home};
use crate::messages::pid::Pid;
use crate::state::Lifecycle;
use volt::task::Id;

/// One process, as [`System::info`](crate::System::info) and [`System::list`](crate::System::list)
/// found it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// Who it is.
    pub pid: Pid,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: &'static str,
    /// Which process started it; `None` if none did.
    pub parent: Option<Pid>,
    /// What it does.
    pub lifecycle: Lifecycle,
    /// Messages that wait for it.
    pub mailbox_len: usize,
    /// The most messages that have waited for it at once.
    pub mailbox_high_water: usize,
    /// How many may.
    pub mailbox_capacity: usize,
    /// Messages that its mailbox has refused or dropped.
    pub dropped: u64,
    /// Steps so far, the call of `init` among them.
    pub steps: u64,
    /// Processes that it is linked with.
    pub link_count: usize,
    /// Who watches it.
    pub monitor_count: usize,
    /// Restarts that it has decided on, if it is a [`Supervisor`](crate::Supervisor).
    pub restarts: u64,
    /// The task in which it runs; what it costs is that task's account.
    pub task: Option<Id>,
}

impl ProcessInfo {
    pub(crate) fn of<S: Home>(entry: &Entry<S>) -> Self {
        let depth = entry.mailbox.depth();
        let life = entry.life();
        let (link_count, monitor_count) = life.counts();
        let (kind, restarts) = (life.kind, life.restarts());
        drop(life);
        Self {
            pid: entry.pid(),
            name: entry.name().map(str::to_owned),
            kind,
            parent: entry.parent(),
            lifecycle: entry.state.lifecycle(),
            mailbox_len: depth.messages as usize,
            mailbox_high_water: depth.high_water as usize,
            mailbox_capacity: entry.mailbox.capacity(),
            dropped: depth.dropped,
            steps: entry.steps(),
            link_count,
            monitor_count,
            restarts,
            task: entry.task().map(|task| task.id()),
        }
    }
}
