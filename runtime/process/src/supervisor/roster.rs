//! The children of a supervisor: in the order of their start, by id, by who watches them, and by
//! when something is due.
//!
//! Everything is found in logarithmic time at most, as a supervisor may have a child for each
//! connection.
//!
//! Invariants: *one clock a child*: a child has at most one deadline, for its start or its end, and
//! what is due stands in `due_at` exactly then; *all or nothing*: a child stands in `ids` as long
//! as it stands in `children`, its monitor in `monitors` as long as it lives.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

use super::child_spec::ChildSpec;
use super::control::ChildInfo;
use crate::messages::event::{MonitorId, Reply};
use crate::messages::pid::Pid;
use volt::sync::oneshot;

/// A child's place in the order of starts; never used again.
pub(super) type Seq = u64;

/// See the header of this file.
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
    /// It was added while the supervisor ran.
    pub is_added: bool,
    pub phase: Phase,
    /// It is not to be started again once it has ended.
    pub is_leaving: bool,
    /// Ends in a row, without a long life between them.
    pub failures: u32,
    pub restarts: u64,
    /// Who waits for its first start.
    pub starter: Option<Reply>,
    /// Who wait for its end.
    pub terminators: Vec<Reply>,
    deadline: Option<Instant>,
}

/// What a child does, as its supervisor sees it.
pub(super) enum Phase {
    /// There is no process: it waits to be started.
    Down,
    /// Its process is there, and `init` has not succeeded; the receiver until it is known that it
    /// has failed.
    Starting(Live, Option<oneshot::Receiver<()>>),
    /// It runs, since then.
    Up(Live, Instant),
    /// It was asked to end, and is killed at its deadline.
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
    /// Adds a child after all others; gives the spec back if there is one with that id.
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

    /// All places, in the order of starts.
    pub(super) fn seqs(&self) -> Vec<Seq> {
        self.children.keys().copied().collect()
    }

    /// A child's process is there.
    pub(super) fn watch(&mut self, seq: Seq, monitor: MonitorId) {
        self.monitors.insert(monitor, seq);
    }

    /// Whose process has ended.
    pub(super) fn unwatch(&mut self, monitor: MonitorId) -> Option<Seq> {
        self.monitors.remove(&monitor)
    }

    /// Something is due for a child, or no longer.
    pub(super) fn set_deadline(&mut self, seq: Seq, deadline: Option<Instant>) {
        let Some(child) = self.children.get_mut(&seq) else { return };
        if let Some(before) = std::mem::replace(&mut child.deadline, deadline) {
            self.due_at.remove(&(before, seq));
        }
        if let Some(deadline) = deadline {
            self.due_at.insert((deadline, seq));
        }
    }

    /// When something is due next.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.due_at.first().map(|&(at, _)| at)
    }

    /// A child for which something is due by `now`.
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
