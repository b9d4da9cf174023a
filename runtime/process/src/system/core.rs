//! A system: the processes of one node, and the parts that they share.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use volt_telemetry::processes::{ProcessList, Processes, Query};

use crate::entry;
use crate::messages::event::MonitorId;
use crate::messages::pid::{Node, Pid};
use crate::nodes::cluster::Remote;
use crate::output::Yield;
use crate::output::work::Work;
use crate::registry;
use crate::report::info::ProcessInfo;
use crate::report::listing::Listing;
use crate::report::survey::Survey;
use crate::stopping::Stopping;
use volt::Handle;
use volt::observe::ProcessSource;
use volt::sync::Notify;

/// The processes of one node. Cheap to clone: all clones are the same system. It is alive as long
/// as there is a clone or a process.
///
/// A process can reach any other by its [`Pid`] or its name, on whichever worker it runs. See [the
/// crate's documentation](crate) for an example.
#[derive(Clone)]
pub struct System(Arc<Inner>);

/// The entry of a process of a [`System`].
pub(crate) type Entry = entry::Entry<System>;

/// The registry of a [`System`].
pub(crate) type Registry = registry::Registry<Entry>;

/// Executes the commands that steps yield.
pub(crate) trait Dispatch: Send + Sync {
    /// Executes one command of `entry`.
    fn dispatch(&self, entry: &Arc<Entry>, work: &mut Work, command: Yield);
}

/// The state that all clones share.
pub(crate) struct Inner {
    node: Node,
    runtime: Handle,
    registry: Registry,
    handlers: Box<dyn Dispatch>,
    remote: Option<Remote>,
    next_monitor: AtomicU64,
    stopping: Stopping,
    /// Notified at every exit while the system shuts down, and at every exit in a system with a
    /// relay.
    ended: Notify,
    ends: Ends,
    survey: Survey,
    listing: Listing,
}

/// Counters of starts and exits, since the system was created.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub started: AtomicU64,
    pub normal: AtomicU64,
    pub abnormal: AtomicU64,
    /// Restarts that supervisors have decided on.
    pub restarts: AtomicU64,
    /// Messages that found no room.
    pub lost: AtomicU64,
    /// Exits whose monitors and links have all been notified. Counted only in a system with a
    /// relay.
    pub notified: AtomicU64,
}

impl Ends {
    /// Whether monitors and links of all exits have been notified.
    pub(crate) fn are_all_notified(&self) -> bool {
        // ORDERING: Relaxed; incremented before `notify_ended`, whose lock orders it. `notified` is
        // read first, so that a process that starts in between is not missed.
        let notified = self.notified.load(Ordering::Relaxed);
        self.started.load(Ordering::Relaxed) <= notified
    }
}

impl System {
    /// Builds a system of these parts, and registers it with `runtime`, which reports its
    /// processes.
    pub(crate) fn of(
        node: Node,
        runtime: &Handle,
        registry: Registry,
        handlers: Box<dyn Dispatch>,
        remote: Option<Remote>,
    ) -> System {
        let system = System(Arc::new(Inner {
            node,
            runtime: runtime.clone(),
            registry,
            handlers,
            remote,
            next_monitor: AtomicU64::new(0),
            stopping: Stopping::new(),
            ended: Notify::new(),
            ends: Ends::default(),
            survey: Survey::default(),
            listing: Listing::default(),
        }));
        let shown: Weak<Inner> = Arc::downgrade(&system.0);
        runtime.show_processes(shown);
        system
    }

    /// Returns the process with this name.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.registry().named(name)
    }

    /// Gives a process a name. Returns false if the process has a name already or has exited, or if
    /// the name is taken.
    pub fn register(&self, name: &str, pid: Pid) -> bool {
        self.entry(pid).is_some_and(|entry| self.give_name(&entry, name))
    }

    pub(crate) fn give_name(&self, entry: &Entry, name: &str) -> bool {
        let (name, pid): (Arc<str>, Pid) = (name.into(), entry.pid());
        if entry.name().is_some() || !self.registry().name(name.clone(), pid) {
            return false;
        }
        // An exit first removes the process from the registry, and then reads its name. So if the
        // process is still in the registry here, its exit releases the name.
        if entry.set_name(name.clone()) && self.entry(pid).is_some() {
            return true;
        }
        self.registry().unname(&name, pid);
        false
    }

    /// Returns information on a process; `None` if it has exited.
    pub fn info(&self, pid: Pid) -> Option<ProcessInfo> {
        self.entry(pid).map(|entry| ProcessInfo::of(&entry))
    }

    /// Returns information on all processes. This is not a consistent snapshot: a process that
    /// starts or exits in the meantime may or may not be included.
    pub fn list(&self) -> impl Iterator<Item = ProcessInfo> {
        self.registry().list().map(|entry| ProcessInfo::of(&entry))
    }

    /// Returns the number of live processes.
    pub fn process_count(&self) -> usize {
        self.registry().len()
    }

    /// Returns the name of this node.
    pub fn node(&self) -> Node {
        self.0.node
    }

    pub(crate) fn entry(&self, pid: Pid) -> Option<Arc<Entry>> {
        self.registry().get(pid)
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn handlers(&self) -> &dyn Dispatch {
        &*self.0.handlers
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// Returns its part in a cluster, if it has a relay.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.0.remote.as_ref()
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> System {
        System(inner)
    }

    /// Returns a reference that does not keep the system alive.
    pub(crate) fn downgrade(&self) -> Weak<Inner> {
        Arc::downgrade(&self.0)
    }

    pub(crate) fn survey(&self) -> &Survey {
        &self.0.survey
    }

    pub(crate) fn ends(&self) -> &Ends {
        &self.0.ends
    }

    pub(crate) fn next_monitor(&self) -> MonitorId {
        // ORDERING: Relaxed; it only has to be unique.
        MonitorId(self.0.next_monitor.fetch_add(1, Ordering::Relaxed))
    }

    /// Refuses to start any more processes. Returns those that are alive: every process is either
    /// refused, or among them.
    pub(crate) fn stop(&self) -> impl Iterator<Item = Arc<Entry>> {
        self.0.stopping.stop(|| self.registry().list())
    }

    pub(crate) fn stopping(&self) -> &Stopping {
        &self.0.stopping
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.0.stopping.is_set()
    }

    /// See the field `ended` of `Inner`.
    pub(crate) fn notify_ended(&self) -> &Notify {
        &self.0.ended
    }
}

impl ProcessSource for Inner {
    fn totals(&self) -> Processes {
        // ORDERING: Relaxed for all; counters. Exits are read before starts, so that there are
        // never more exits.
        let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let (ended_normally, ended_abnormally) = (count(&self.ends.normal), count(&self.ends.abnormal));
        Processes {
            systems: 1,
            ended_normally,
            ended_abnormally,
            restarts: count(&self.ends.restarts),
            started: count(&self.ends.started),
            alive: self.registry.len() as u64,
            messages_lost: count(&self.ends.lost),
            ..self.survey.describe(&self.registry)
        }
    }

    fn describe(&self, process: u64) -> Option<String> {
        let pid = Pid::new(self.node, (process >> 32) as u32, process as u32);
        let entry = self.registry.get(pid)?;
        let kind = entry.life().kind;
        Some(entry.name().map_or_else(|| kind.to_owned(), |name| format!("{name} ({kind})")))
    }

    fn list(&self, query: &Query) -> ProcessList {
        ProcessList { alive: self.registry.len() as u64, ..self.listing.list(&self.registry, query) }
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("System")
            .field("node", &self.node())
            .field("processes", &self.process_count())
            .finish_non_exhaustive()
    }
}
