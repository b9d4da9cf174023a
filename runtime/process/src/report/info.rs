//! Information on one process at one moment: its state, mailbox, counters and relations.

use crate::entry::{Entry, Home};
use crate::messages::pid::Pid;
use crate::state::Lifecycle;
use volt::task::Id;

/// Information on one process. [`System::info`](crate::System::info) and
/// [`System::list`](crate::System::list) return it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProcessInfo {
    /// The pid of the process.
    pub pid: Pid,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// The type of its state machine.
    pub kind: &'static str,
    /// The process that started it; `None` if it was started from outside of any process.
    pub parent: Option<Pid>,
    /// Its state.
    pub lifecycle: Lifecycle,
    /// The number of messages in its mailbox.
    pub mailbox_len: usize,
    /// The largest number of messages that were in its mailbox at the same time.
    pub mailbox_high_water: usize,
    /// The capacity of its mailbox in messages.
    pub mailbox_capacity: usize,
    /// The number of messages that its mailbox has refused or dropped.
    pub dropped: u64,
    /// The number of steps so far, including `init`.
    pub steps: u64,
    /// The number of processes with which it is linked.
    pub link_count: usize,
    /// The number of monitors that watch it.
    pub monitor_count: usize,
    /// The number of restarts that it has decided on, if it is a [`Supervisor`](crate::Supervisor).
    pub restarts: u64,
    /// The task in which it runs. The time that the process uses is accounted to that task.
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
