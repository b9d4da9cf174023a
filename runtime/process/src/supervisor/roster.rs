//! The children of a supervisor, found by the order of their start, by id, by monitor and by
//! deadline.
//!
//! Every operation on one child takes at most logarithmic time, since a supervisor may have a child
//! for each connection.
//!
//! # Invariants
//!
//! * *ONE DEADLINE PER CHILD*: a child has at most one deadline, for its start or its end. It is in
//!   `due_at` exactly while the child has it.
//! * *ALL OR NOTHING*: a child is in `ids` as long as it is in `children`. Its monitor is in
//!   `monitors` as long as its process is alive.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::child_spec::ChildSpec;
use super::control::ChildInfo;
use crate::messages::event::{MonitorId, Reply};
use crate::messages::pid::Pid;
use volt::sync::oneshot;
use volt::time::Instant;

/// The position of a child in the order of starts. It is never reused.
pub(super) type Seq = u64;

/// The children of a supervisor. See the module's documentation.
#[derive(Default)]
pub(super) struct Roster {
    children: BTreeMap<Seq, Child>,
    ids: HashMap<String, Seq>,
    monitors: HashMap<MonitorId, Seq>,
    due_at: BTreeSet<(Instant, Seq)>,
    next: Seq,
}

/// One child.
pub(super) struct Child {
    pub spec: ChildSpec,
    /// Whether the child was added while the supervisor was running.
    pub is_added: bool,
    pub phase: Phase,
    /// Whether the child is removed, and not restarted, once it has exited.
    pub is_leaving: bool,
    /// Failures in a row, without a long lifetime between them.
    pub failures: u32,
    pub restarts: u64,
    /// Replies to the request that added this child, once its `init` has returned.
    pub starter: Option<Reply>,
    /// Reply to the requests to terminate this child, once it has exited.
    pub terminators: Vec<Reply>,
    deadline: Option<Instant>,
}

/// The state of a child, as seen by its supervisor.
pub(super) enum Phase {
    /// It has no process, and waits to be started.
    Down,
    /// Its process exists, and `init` has not succeeded yet. The receiver is `None` once `init` has
    /// failed.
    Starting(Live, Option<oneshot::Receiver<()>>),
    /// It has been running since that instant.
    Up(Live, Instant),
    /// It was cancelled, and is killed at its deadline.
    Ending(Live),
}

/// The process of a child.
#[derive(Clone, Copy)]
pub(super) struct Live {
    pub pid: Pid,
    pub is_supervisor: bool,
}

impl Child {
    pub(super) fn live(&self) -> Option<Live> {
        match self.phase {
            Phase::Down => None,
            Phase::Starting(live, _) | Phase::Up(live, _) | Phase::Ending(live) => Some(live),
        }
    }
}

impl Roster {
    /// Adds a child after all others. Returns the spec if its id is taken.
    pub(super) fn add(
        &mut self,
        spec: ChildSpec,
        is_added: bool,
        starter: Option<Reply>,
    ) -> Result<Seq, (ChildSpec, Option<Reply>)> {
        if self.ids.contains_key(spec.id()) {
            return Err((spec, starter));
        }
        let seq = self.next;
        self.next += 1;
        self.ids.insert(spec.id().to_owned(), seq);
        let child = Child {
            spec,
            is_added,
            phase: Phase::Down,
            is_leaving: false,
            failures: 0,
            restarts: 0,
            starter,
            terminators: Vec::new(),
            deadline: None,
        };
        self.children.insert(seq, child);
        Ok(seq)
    }

    pub(super) fn remove(&mut self, seq: Seq) -> Option<Child> {
        self.set_deadline(seq, None);
        let child = self.children.remove(&seq)?;
        self.ids.remove(child.spec.id());
        Some(child)
    }

    pub(super) fn get(&mut self, seq: Seq) -> Option<&mut Child> {
        self.children.get_mut(&seq)
    }

    pub(super) fn by_id(&self, id: &str) -> Option<Seq> {
        self.ids.get(id).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Returns the positions of all children, in the order of starts.
    pub(super) fn seqs(&self) -> Vec<Seq> {
        self.children.keys().copied().collect()
    }

    /// Registers the monitor of a child's process.
    pub(super) fn watch(&mut self, seq: Seq, monitor: MonitorId) {
        self.monitors.insert(monitor, seq);
    }

    /// Removes a monitor whose process has exited. Returns the child.
    pub(super) fn unwatch(&mut self, monitor: MonitorId) -> Option<Seq> {
        self.monitors.remove(&monitor)
    }

    /// Sets or removes the deadline of a child.
    pub(super) fn set_deadline(&mut self, seq: Seq, deadline: Option<Instant>) {
        let Some(child) = self.children.get_mut(&seq) else { return };
        if let Some(before) = std::mem::replace(&mut child.deadline, deadline) {
            self.due_at.remove(&(before, seq));
        }
        if let Some(deadline) = deadline {
            self.due_at.insert((deadline, seq));
        }
    }

    /// Returns the earliest deadline.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due_at.first().map(|&(at, _)| at)
    }

    /// Returns a child whose deadline has passed by `now`, and removes that deadline.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Seq> {
        let &(_, seq) = self.due_at.first().filter(|&&(at, _)| at <= now)?;
        self.set_deadline(seq, None);
        Some(seq)
    }

    pub(super) fn list(&self) -> Vec<ChildInfo> {
        let info = |child: &Child| ChildInfo {
            id: child.spec.id().to_owned(),
            pid: child.live().map(|live| live.pid),
            restart: child.spec.restart(),
            restarts: child.restarts,
        };
        self.children.values().map(info).collect()
    }
}
