//! The processes of a node: who they are, how they are started and found.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use volt_telemetry::processes::{ProcessList, Processes, Query};

use crate::entry;
use crate::messages::event::MonitorId;
use crate::messages::pid::{Node, Pid};
use crate::nodes::cluster::Remote;
use crate::registry;
use crate::report::info::ProcessInfo;
use crate::report::listing::Listing;
use crate::report::survey::Survey;
use crate::steps::output::Yield;
use crate::steps::work::Work;
use volt::Handle;
use volt::observe::ProcessSource;
use volt::sync::Notify;

/// The processes of one node. Cheap to clone; all clones are the same system, which lives as long
/// as one of them or a process.
///
/// A process finds another by its [`Pid`] or its name, on whatever worker it runs. See [the
/// module](crate) for an example.
#[derive(Clone)]
pub struct System(Arc<Inner>);

/// A process of a system.
pub(crate) type Entry = entry::Entry<System>;

/// The processes of a system.
pub(crate) type Registry = registry::Registry<Entry>;

/// Carries out what steps yield.
pub(crate) trait Dispatch: Send + Sync {
    /// Carries out one command of `entry`.
    fn dispatch(&self, entry: &Arc<Entry>, work: &mut Work, command: Yield);
}

/// What all clones share.
pub(crate) struct Inner {
    node: Node,
    runtime: Handle,
    registry: Registry,
    handlers: Box<dyn Dispatch>,
    remote: Option<Remote>,
    next_monitor: AtomicU64,
    is_stopping: AtomicBool,
    /// Told at every end while the system shuts down.
    ended: Notify,
    ends: Ends,
    survey: Survey,
    listing: Listing,
}

/// How processes have ended since the start.
#[derive(Debug, Default)]
pub(crate) struct Ends {
    pub started: AtomicU64,
    pub normal: AtomicU64,
    pub abnormal: AtomicU64,
    /// Restarts that supervisors have decided on.
    pub restarts: AtomicU64,
    /// Messages that found no room.
    pub lost: AtomicU64,
    /// Of those that have ended, of whose ends everybody was told.
    pub told: AtomicU64,
}

impl Ends {
    /// Whether all who wanted to know of an end know.
    pub(crate) fn are_told(&self) -> bool {
        // ORDERING: Relaxed; counted before `notify_ended`, whose lock orders it. Ends first, so
        // that none is missed that is started meanwhile.
        let told = self.told.load(Ordering::Relaxed);
        self.started.load(Ordering::Relaxed) <= told
    }
}

impl System {
    /// A system of these parts, which `runtime` shows.
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
            is_stopping: AtomicBool::new(false),
            ended: Notify::new(),
            ends: Ends::default(),
            survey: Survey::default(),
            listing: Listing::default(),
        }));
        let shown: Weak<Inner> = Arc::downgrade(&system.0);
        runtime.show_processes(shown);
        system
    }

    /// The process that bears `name`.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.registry().named(name)
    }

    /// Gives a process a name; false if it has one, has ended, or another bears it.
    pub fn register(&self, name: &str, pid: Pid) -> bool {
        self.entry(pid).is_some_and(|entry| self.give_name(&entry, name))
    }

    pub(crate) fn give_name(&self, entry: &Entry, name: &str) -> bool {
        let (name, pid): (Arc<str>, Pid) = (name.into(), entry.pid());
        if entry.name().is_some() || !self.registry().name(name.clone(), pid) {
            return false;
        }
        // An end takes the process out of the registry first, and reads which name it has then: if
        // it is there still, its end sees the name.
        if entry.set_name(name.clone()) && self.entry(pid).is_some() {
            return true;
        }
        self.registry().unname(&name, pid);
        false
    }

    /// What there is to say of a process; `None` if it has ended.
    pub fn info(&self, pid: Pid) -> Option<ProcessInfo> {
        self.entry(pid).map(|entry| ProcessInfo::of(&entry))
    }

    /// All processes. Not at one moment: those that start or end meanwhile are in it or not.
    pub fn list(&self) -> impl Iterator<Item = ProcessInfo> {
        self.registry().list().map(|entry| ProcessInfo::of(&entry))
    }

    /// How many processes live.
    pub fn process_count(&self) -> usize {
        self.registry().len()
    }

    /// Its name among other nodes.
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

    /// Its part in a cluster, if it has one.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        self.0.remote.as_ref()
    }

    pub(crate) fn from_inner(inner: Arc<Inner>) -> System {
        System(inner)
    }

    /// For those who are not to keep it alive.
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
        // ORDERING: Relaxed; only unique.
        MonitorId(self.0.next_monitor.fetch_add(1, Ordering::Relaxed))
    }

    /// Starts no more processes. Who starts one puts it into the registry first and asks then; a
    /// shutdown stops first and lists the registry then: so that it is refused, or seen.
    pub(crate) fn stop(&self) {
        // ORDERING: Relaxed; ordered by the lock of the process's shard, which who starts or ends
        // it takes before it asks, and a shutdown takes after this. Models: `state::loom_models`.
        self.0.is_stopping.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        // ORDERING: Relaxed; see `stop`.
        self.0.is_stopping.load(Ordering::Relaxed)
    }

    /// Told at every end.
    pub(crate) fn notify_ended(&self) -> &Notify {
        &self.0.ended
    }
}

impl ProcessSource for Inner {
    fn totals(&self) -> Processes {
        // ORDERING: Relaxed, all; counts. Ends before starts, so that there are never more of
        // those.
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
            ..self.survey.tell(&self.registry)
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
