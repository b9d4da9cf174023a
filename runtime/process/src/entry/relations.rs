//! Who wants to know when a process ends, and what it has to do before its next step.
//!
//! Under one short lock a process: `Alive`, until its end takes everything out and leaves `Dead`.
//! Two processes that are linked are locked in the order of their pids; nobody holds more than
//! these two, and no code of the user runs meanwhile.
//!
//! Nothing bounds how many there are: each is one that some process or some future that lives has
//! asked for, and holds. A bound would make watching fail, and with it whatever stands on it. Of
//! upgrades at most one waits.
//!
//! Invariants:
//! * *Both or none*: a link stands in both processes, a process's monitor in the watched and in the
//!   watcher, so that whoever ends first clears the other's side; nothing of the dead stays.
//! * *Nothing after it is undone*: who is told of an end has the relation taken away and the event
//!   put in under its lock, so that none comes once `unlink` or `demonitor` has returned.
//! * *Nothing after the end*: what comes to `Dead` is answered at once, as for a process that never
//!   was.

use std::any::Any;
use std::collections::{HashMap, HashSet};

use crate::messages::event::MonitorId;
use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;
use crate::messages::pid::{Node, Pid};
use volt::sync::oneshot;

/// Replaces a process's state machine, a `Box<dyn Process>`, and returns the type of the new one,
/// or why it did not. An entry knows nothing of state machines, and so the type is erased here.
pub(crate) type Upgrade = Box<dyn FnOnce(&mut dyn Any) -> Result<&'static str, Failure> + Send>;

/// One that waits for its step, and who waits to hear what came of it.
pub(crate) type PendingUpgrade = (Upgrade, oneshot::Sender<Result<(), Failure>>);

/// See the header of this file.
#[derive(Default)]
pub(crate) struct Life {
    /// Why it is to end, from whoever said so first. In a box, as few are told to.
    pub doom: Option<Box<ExitReason>>,
    /// What replaces its state machine before the next step, and who waits to hear whether it did.
    pub upgrade: Option<Box<PendingUpgrade>>,
    pub is_dead: bool,
    /// The type of its state machine.
    pub kind: &'static str,
    /// Most processes have none.
    relations: Option<Box<Relations>>,
}

/// What stands in a process about others.
#[derive(Default)]
pub(crate) struct Relations {
    pub links: HashSet<Pid>,
    /// Who watches it.
    pub watchers: HashMap<MonitorId, Watcher>,
    /// Whom it watches.
    pub watched: HashMap<MonitorId, Pid>,
    /// Restarts that it has decided on; of supervisors only, so that the others hold no place for
    /// the number.
    pub restarts: u64,
}

/// Who is told of an end.
pub(crate) enum Watcher {
    /// A process, by an event.
    Process(Pid),
    /// A process of another node, or somebody there, by the number of the monitor.
    Remote(Node, u64),
    /// Somebody outside.
    Waiter(oneshot::Sender<(ExitReason, Option<Payload>)>),
    /// Who executes it, and gets the result.
    Executor(oneshot::Sender<(ExitReason, Option<Payload>)>),
}

impl Life {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, ..Self::default() }
    }

    /// What others have to do with it, to be changed. `None` if it is dead.
    pub(crate) fn relations(&mut self) -> Option<&mut Relations> {
        if self.is_dead { None } else { Some(self.relations.get_or_insert_default()) }
    }

    /// Forgets a link; false if there was none.
    pub(crate) fn unlink(&mut self, pid: Pid) -> bool {
        self.forget(|relations| relations.links.remove(&pid).then_some(())).is_some()
    }

    /// Forgets that it watches, and gives whom.
    pub(crate) fn unwatch(&mut self, monitor: MonitorId) -> Option<Pid> {
        self.forget(|relations| relations.watched.remove(&monitor))
    }

    /// Forgets who watches it. To be dropped without the lock, since a waker goes with it.
    #[must_use]
    pub(crate) fn remove_watcher(&mut self, monitor: MonitorId) -> Option<Watcher> {
        self.forget(|relations| relations.watchers.remove(&monitor))
    }

    /// Links, and who watches it.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.relations.as_ref().map_or((0, 0), |relations| (relations.links.len(), relations.watchers.len()))
    }

    /// Restarts that it has decided on.
    pub(crate) fn restarts(&self) -> u64 {
        self.relations.as_ref().map_or(0, |relations| relations.restarts)
    }

    /// It is dead from now on.
    pub(crate) fn end(&mut self) -> Relations {
        self.is_dead = true;
        self.relations.take().map(|relations| *relations).unwrap_or_default()
    }

    /// Gives the memory back with the last relation.
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
