//! The relations of a process: its links, the monitors that watch it, the monitors by which it
//! watches others, and the requests that take effect before its next step (to exit, or to upgrade).
//!
//! Each process has one `Life` behind a short lock. An exit takes all relations out and leaves it
//! dead. An operation on two processes locks both lives in the order of their pids. No thread holds
//! more than these two locks, and no user code runs under them.
//!
//! An ordinary case: process A monitors process B. Under both locks, B becomes a watched process of
//! A, and A a watcher of B. B exits: it is marked dead, and its relations are taken out. Then its
//! lock is released, and for each watcher the watcher's lock is taken, the monitor is removed
//! there, and the event is added.
//!
//! The race: A removes the monitor while B exits. The thread that locks A first decides: the event
//! is in the mailbox before the removal returns, or it is never added.
//!
//! The number of relations has no bound: each was requested by a process or a future that is alive.
//! A bound would make monitors fail, and everything that depends on them. At most one upgrade waits
//! at a time.
//!
//! # Invariants
//!
//! * *BOTH OR NONE*: a link is stored in both processes, and a monitor of a process in the watched
//!   process and in the watcher. The process that exits first removes the other side, so that
//!   nothing refers to a dead process.
//! * *NOTHING AFTER IT IS UNDONE*: an exit is reported under the lock of the receiver, which
//!   removes the relation and adds the event. So no event is added after `unlink` or `demonitor`
//!   has returned.
//! * *NOTHING AFTER THE END*: a request to a dead process is answered immediately, like one to a
//!   process that never existed.

use std::any::Any;
use std::collections::{HashMap, HashSet};

use crate::messages::event::MonitorId;
use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;
use crate::messages::pid::{Node, Pid};
use volt::sync::oneshot;

/// Replaces a process's state machine, a `Box<dyn Process>`. Returns the type of the new state
/// machine, or why it was not replaced. The type is erased because an entry has no access to state
/// machines.
pub(crate) type Upgrade = Box<dyn FnOnce(&mut dyn Any) -> Result<&'static str, Failure> + Send>;

/// An upgrade that waits for the next step, and the channel that reports its result.
pub(crate) type PendingUpgrade = (Upgrade, oneshot::Sender<Result<(), Failure>>);

/// The relations of a process. See the module's documentation.
#[derive(Default)]
pub(crate) struct Life {
    /// The reason with which the process must exit; the first one counts. Boxed because it is rare.
    pub exit_reason: Option<Box<ExitReason>>,
    /// The upgrade that takes place before the next step.
    pub upgrade: Option<Box<PendingUpgrade>>,
    pub is_dead: bool,
    /// The type of the state machine.
    pub kind: &'static str,
    /// `None` for most processes.
    relations: Option<Box<Relations>>,
}

/// The relations of one process to others.
#[derive(Default)]
pub(crate) struct Relations {
    pub links: HashSet<Pid>,
    /// The monitors that watch this process.
    pub watchers: HashMap<MonitorId, Watcher>,
    /// The monitors by which this process watches others.
    pub watched: HashMap<MonitorId, Pid>,
    /// Restarts that this process has decided on. Only supervisors have any; the field is here so
    /// that it costs other processes no memory.
    pub restarts: u64,
}

/// The receiver of an exit notification.
pub(crate) enum Watcher {
    /// A process, by an event.
    Process(Pid),
    /// A monitor of another node, by its number.
    Remote(Node, u64),
    /// A future that waits for the exit.
    Waiter(oneshot::Sender<(ExitReason, Option<Payload>)>),
    /// The future that executes the process, and receives its result.
    Executor(oneshot::Sender<(ExitReason, Option<Payload>)>),
}

impl Life {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, ..Self::default() }
    }

    /// Returns the relations, to be changed; `None` if the process is dead.
    pub(crate) fn relations(&mut self) -> Option<&mut Relations> {
        if self.is_dead { None } else { Some(self.relations.get_or_insert_default()) }
    }

    /// Removes a link. Returns false if there was none.
    pub(crate) fn unlink(&mut self, pid: Pid) -> bool {
        self.forget(|relations| relations.links.remove(&pid).then_some(())).is_some()
    }

    /// Removes a monitor by which this process watches another. Returns the other's pid.
    pub(crate) fn unwatch(&mut self, monitor: MonitorId) -> Option<Pid> {
        self.forget(|relations| relations.watched.remove(&monitor))
    }

    /// Removes a monitor that watches this process. The result must be dropped without the lock,
    /// since it may contain a waker.
    #[must_use]
    pub(crate) fn remove_watcher(&mut self, monitor: MonitorId) -> Option<Watcher> {
        self.forget(|relations| relations.watchers.remove(&monitor))
    }

    /// Returns the number of links, and of monitors that watch the process.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.relations.as_ref().map_or((0, 0), |relations| (relations.links.len(), relations.watchers.len()))
    }

    /// Returns the number of restarts that the process has decided on.
    pub(crate) fn restarts(&self) -> u64 {
        self.relations.as_ref().map_or(0, |relations| relations.restarts)
    }

    /// Marks the process as dead. Returns its relations.
    pub(crate) fn end(&mut self) -> Relations {
        self.is_dead = true;
        self.relations.take().map(|relations| *relations).unwrap_or_default()
    }

    /// Removes something, and frees the memory when no relation is left.
    fn forget<T>(&mut self, forget: impl FnOnce(&mut Relations) -> Option<T>) -> Option<T> {
        let relations = self.relations.as_mut()?;
        let forgotten = forget(relations);
        let is_empty = relations.links.is_empty() && relations.watchers.is_empty() && relations.watched.is_empty();
        if is_empty && relations.restarts == 0 {
            self.relations = None;
        }
        forgotten
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Life").field("is_dead", &self.is_dead).finish_non_exhaustive()
    }
}
