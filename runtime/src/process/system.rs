//! The processes of a node: who they are, how they are started and found.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use volt_telemetry::processes::{ProcessList, Processes, Query};
use volt_telemetry::recording::event::{self as recording, Loss};
use volt_telemetry::recording::record::saturating_u32;

use super::dispatch::{CommandId, Handler, Handlers};
use super::ends::{tie, watch};
use super::entry::{Birth, Entry};
use super::event::MonitorId;
use super::failure::{ExitReason, Failure, dropped};
use super::info::ProcessInfo;
use super::listing::{Listing, number_of};
use super::machine::Process;
use super::mailbox::Mailbox;
use super::nodes::relay::{Incoming, Relay, RelayError};
use super::nodes::remote::{Remote, first_generation};
use super::payload::Payload;
use super::pid::{Node, Pid};
use super::registry::{Registry, SHARDS};
use super::relations::Watcher;
use super::runner::{Runner, Start};
use super::spawn::{Refusal, Spawn, SpawnError};
use super::survey::Survey;
use crate::handle::Handle;
use crate::observe::ProcessSource;
use crate::sync::{Notify, oneshot};
use crate::task;

/// Processes that may live in one system unless it says otherwise: 2 GB of idle ones.
const MAX_PROCESSES: usize = 1 << 22;
/// The most that it can say: even if all were in one shard, their indices would be 32 bits.
const MAX_PROCESSES_MAX: usize = u32::MAX as usize / SHARDS;

/// The processes of one node. Cheap to clone; all clones are the same system, which lives as long as one of them or a process.
///
/// A process finds another by its [`Pid`] or its name, on whatever worker it runs. See [the module](super) for an example.
#[derive(Clone)]
pub struct System(Arc<Inner>);

/// What all clones share.
pub(crate) struct Inner {
    node: Node,
    runtime: Handle,
    registry: Registry,
    handlers: Handlers,
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
        // ORDERING: Relaxed; counted before `notify_ended`, whose lock orders it. Ends first, so that none is missed that is started meanwhile.
        let told = self.told.load(Ordering::Relaxed);
        self.started.load(Ordering::Relaxed) <= told
    }
}

impl System {
    /// A system without commands of its own, called `local`, in the runtime of `handle`.
    pub fn new(handle: &Handle) -> System {
        let handlers = Handlers::new(Vec::new()).expect("nothing is there twice");
        System::with(handle, Node::LOCAL, MAX_PROCESSES, handlers, None)
    }

    /// A system with settings.
    ///
    /// ```
    /// use volt::process::{CommandId, Payload, Request, System};
    ///
    /// const UPPERCASE: CommandId = CommandId::new(CommandId::FIRST);
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let system = System::builder()
    ///     .node("alpha".parse()?)
    ///     .handler(UPPERCASE, |mut request: Request<'_>| {
    ///         let upper = request.take::<String>().map(|text| Payload::new(text.to_uppercase()));
    ///         request.complete_yield(upper);
    ///     })
    ///     .build(runtime.handle())?;
    /// assert_eq!(system.node().name(), "alpha");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> Builder {
        Builder { node: Node::LOCAL, max_processes: MAX_PROCESSES, handlers: Vec::new(), relay: None }
    }

    fn with(runtime: &Handle, node: Node, max_processes: usize, handlers: Handlers, remote: Option<Remote>) -> System {
        let first_generation = remote.as_ref().map_or(0, |_| first_generation());
        let system = System(Arc::new(Inner {
            node,
            runtime: runtime.clone(),
            registry: Registry::new(node, max_processes, first_generation),
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

    /// Starts a process. It runs whether or not anybody remembers its pid.
    ///
    /// # Errors
    /// The process has no such entry method; its name is taken; there are too many processes; the system is shutting down. Nothing of it has run
    /// then.
    pub fn spawn(&self, spawn: Spawn) -> Result<Pid, SpawnError> {
        self.start(spawn, None).map(|entry| entry.pid())
    }

    /// Starts a process and waits for its result, what it was [done with](super::Output::done_with).
    ///
    /// # Errors
    /// Why it ended, if that was not because it was done; [`Failed`](ExitReason::Failed) if it could not be started.
    ///
    /// # Cancel safety
    /// The process runs on if this is dropped.
    pub fn exec(&self, spawn: Spawn) -> impl Future<Output = Result<Payload, ExitReason>> + use<> {
        self.execute(spawn, None)
    }

    /// The process that bears `name`.
    pub fn whereis(&self, name: &str) -> Option<Pid> {
        self.registry().named(name)
    }

    /// Gives a process a name; false if it has one, has ended, or another bears it.
    pub fn register(&self, name: &str, pid: Pid) -> bool {
        self.entry(pid).is_some_and(|entry| self.give_name(&entry, name))
    }

    fn give_name(&self, entry: &Entry, name: &str) -> bool {
        let (name, pid): (Arc<str>, Pid) = (name.into(), entry.pid());
        if entry.name().is_some() || !self.registry().name(name.clone(), pid) {
            return false;
        }
        // An end takes the process out of the registry first, and looks which name it has then: if it is there still, its end sees the name.
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

    /// Replaces the state machine of a running process, between two steps: new code, with the same pid, mailbox, links and yields. `upgrade`
    /// makes the new one of the old, which is dropped without being closed. The process steps once with the new one, maybe without events.
    ///
    /// # Errors
    /// The process has ended, or is no `Old`; another upgrade waits for its next step; `upgrade` returned an error or panicked. The old one stays.
    ///
    /// # Cancel safety
    /// The upgrade happens if this is dropped.
    ///
    /// ```
    /// use volt::process::{Context, Events, Failure, Output, Payload, Process, Spawn, System};
    ///
    /// struct First(u64);
    /// struct Second { count: u64 }
    /// # impl Process for First {
    /// #     fn init(&mut self, _: &Context, _: &str, _: Payload) -> Result<(), Failure> { Ok(()) }
    /// #     fn step(&mut self, _: Events<'_>, _: &mut Output) -> Result<(), Failure> { Ok(()) }
    /// # }
    /// # impl Process for Second {
    /// #     fn init(&mut self, _: &Context, _: &str, _: Payload) -> Result<(), Failure> { Ok(()) }
    /// #     fn step(&mut self, _: Events<'_>, _: &mut Output) -> Result<(), Failure> { Ok(()) }
    /// # }
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// # runtime.block_on(async {
    /// let system = System::new(&volt::Handle::current());
    /// let pid = system.spawn(Spawn::new(First(7))).unwrap();
    /// system.upgrade(pid, |old: &mut First| Ok(Second { count: old.0 })).await.unwrap();
    /// assert!(system.info(pid).unwrap().kind.ends_with("Second"));
    /// # });
    /// # Ok::<(), volt::BuildError>(())
    /// ```
    pub async fn upgrade<Old: Process, New: Process>(
        &self,
        pid: Pid,
        upgrade: impl FnOnce(&mut Old) -> Result<New, Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let entry = self.entry(pid).ok_or_else(|| Failure::new(format_args!("{pid} has ended")))?;
        let (waiter, upgraded) = oneshot::channel();
        let replace = Box::new(move |process: &mut Box<dyn Process>| {
            let any: &mut dyn Any = &mut **process;
            let kind = std::any::type_name::<Old>();
            let old = any.downcast_mut().ok_or_else(|| Failure::new(format_args!("{pid} is no {kind}")))?;
            let new = Box::new(upgrade(old)?);
            // The new one is there whatever the old one's destructor does.
            dropped(std::mem::replace(process, new));
            Ok(std::any::type_name::<New>())
        });
        entry.upgrade(replace, waiter);
        upgraded.await.unwrap_or_else(|_dropped| Err(Failure::new(format_args!("{pid} has ended"))))
    }

    pub(crate) fn start(&self, spawn: Spawn, parent: Option<&Arc<Entry>>) -> Result<Arc<Entry>, SpawnError> {
        self.start_with(spawn, parent, |_| {}).map(|(entry, ())| entry)
    }

    pub(crate) fn start_watched(
        &self,
        spawn: Spawn,
        parent: Option<&Arc<Entry>>,
    ) -> Result<impl Future<Output = (ExitReason, Option<Payload>)> + Send + use<>, SpawnError> {
        self.start_with(spawn, parent, |entry| watch(entry.clone(), Watcher::Executor)).map(|(_, ends)| ends)
    }

    /// Starts a process that `parent` watches from before its first step on.
    pub(crate) fn start_monitored(&self, spawn: Spawn, parent: &Arc<Entry>) -> Result<(Pid, MonitorId), SpawnError> {
        let started = self.start_with(spawn, Some(parent), |entry| self.monitor_as(parent, entry.pid()));
        started.map(|(entry, monitor)| (entry.pid(), monitor))
    }

    /// Starts a process; `before` is called when it can be found, and before its task is queued.
    fn start_with<T>(
        &self,
        spawn: Spawn,
        parent: Option<&Arc<Entry>>,
        before: impl FnOnce(&Arc<Entry>) -> T,
    ) -> Result<(Arc<Entry>, T), SpawnError> {
        let Spawn {
            process,
            kind,
            method,
            input,
            name,
            capacity,
            overflow,
            traps_exits,
            is_linked,
            started,
            location,
            ..
        } = spawn;
        let methods = process.methods();
        if !methods.contains(&method) {
            return Err(SpawnError(Refusal::UnknownMethod { kind, method, methods: methods.to_vec() }));
        }
        // Most are refused here; one that begins at this moment, below.
        if self.is_stopping() {
            return Err(SpawnError(Refusal::ShuttingDown));
        }
        if let Some(name) = name.as_deref().filter(|name| self.whereis(name).is_some()) {
            return Err(SpawnError(Refusal::NameTaken(name.to_owned())));
        }
        let birth = Birth {
            parent: parent.map(|parent| parent.pid()),
            system: self.clone(),
            kind,
            traps_exits,
            location,
            mailbox: Mailbox::new(capacity, overflow),
        };
        let entry = self.registry().insert(|pid| Arc::new(Entry::new(pid, birth)));
        let entry = entry.ok_or_else(|| SpawnError(Refusal::TooMany(self.registry().max())))?;
        // ORDERING: Relaxed; a count.
        self.ends().started.fetch_add(1, Ordering::Relaxed);
        self.runtime().note(|| recording::Event::ProcessStart {
            process: number_of(entry.pid()),
            parent: parent.map_or(0, |parent| parent.pid().index().saturating_add(1)),
        });
        // From here on its end is its runner's, also if it is dropped right here, as another took the name meanwhile.
        let runner = Runner::new(entry.clone(), process, Start { method, input, started });
        // Asked again when it is in the registry, where a shutdown that begins now finds it: see `stop`.
        if self.is_stopping() {
            return Err(SpawnError(Refusal::ShuttingDown));
        }
        if let Some(name) = name.as_ref().filter(|name| !self.give_name(&entry, name)) {
            return Err(SpawnError(Refusal::NameTaken(name.clone())));
        }
        if let Some(parent) = parent.filter(|_| is_linked)
            && !tie(parent, &entry)
        {
            return Err(SpawnError(Refusal::NoParent));
        }
        let seen = before(&entry);
        let builder = task::Builder::new().location(location);
        let builder = if let Some(name) = &name { builder.name(name) } else { builder };
        entry.set_task(builder.spawn_on(runner, self.runtime()).abort_handle());
        Ok((entry, seen))
    }

    pub(crate) fn entry(&self, pid: Pid) -> Option<Arc<Entry>> {
        self.registry().get(pid)
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.0.registry
    }

    pub(crate) fn handlers(&self) -> &Handlers {
        &self.0.handlers
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

    pub(crate) fn ends(&self) -> &Ends {
        &self.0.ends
    }

    pub(crate) fn next_monitor(&self) -> MonitorId {
        // ORDERING: Relaxed; only unique.
        MonitorId(self.0.next_monitor.fetch_add(1, Ordering::Relaxed))
    }

    /// Starts no more processes. Who starts one puts it into the registry first and asks then; a shutdown stops first and lists the registry
    /// then: so that it is refused, or seen.
    pub(crate) fn stop(&self) {
        // ORDERING: Relaxed; ordered by the lock of the process's shard, which who starts or ends it takes before it asks, and a shutdown takes
        // after this. Models: `state_loom`.
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

    /// A message found no room.
    #[cold]
    pub(crate) fn count_lost(&self, pid: Pid, loss: Loss) {
        // ORDERING: Relaxed; a count.
        self.ends().lost.fetch_add(1, Ordering::Relaxed);
        self.runtime().note(|| recording::Event::MessageLost { process: number_of(pid), loss });
    }

    /// A process has ended; nobody was told yet, so that whoever is finds it counted.
    pub(crate) fn count_end(&self, entry: &Entry, reason: &ExitReason) {
        let ended = if reason.is_abnormal() { &self.ends().abnormal } else { &self.ends().normal };
        // ORDERING: Relaxed; a count.
        ended.fetch_add(1, Ordering::Relaxed);
        self.runtime().note(|| recording::Event::ProcessEnd {
            process: number_of(entry.pid()),
            ending: reason.ending(),
            steps: saturating_u32(entry.steps()),
        });
        if matches!(reason, ExitReason::Failed(_) | ExitReason::Panicked(_)) {
            self.0.survey.note_failure(entry, reason);
        }
    }

    /// A process has ended, and everybody who wanted to know was told.
    pub(crate) fn ended(&self, entry: &Entry, reason: &ExitReason) {
        if self.remote().is_some() {
            // ORDERING: Relaxed; see `Ends::are_told`.
            self.ends().told.fetch_add(1, Ordering::Relaxed);
        }
        if self.is_stopping() || self.remote().is_some() {
            self.0.ended.notify_waiters();
        }
        if matches!(reason, ExitReason::Failed(_) | ExitReason::Panicked(_)) {
            // Taken out first: a subscriber is code of the user, and runs under no lock.
            let (pid, name, kind) = (entry.pid(), entry.name().unwrap_or_default(), entry.life().kind);
            tracing::warn!(target: "volt::process", %pid, name, kind, %reason, "a process ended abnormally");
        }
    }
}

impl ProcessSource for Inner {
    fn totals(&self) -> Processes {
        // ORDERING: Relaxed, all; counts. Ends before starts, so that there are never more of those.
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

/// Settings of a [`System`].
#[must_use = "a builder does nothing until build() is called"]
pub struct Builder {
    node: Node,
    max_processes: usize,
    handlers: Vec<(CommandId, Box<dyn Handler>)>,
    relay: Option<Box<dyn Relay>>,
}

impl Builder {
    /// The system's name among others, `local` unless set. Two systems that can reach each other must not bear the same.
    pub fn node(self, node: Node) -> Self {
        Self { node, ..self }
    }

    /// How many processes may live at once, 4,194,304 unless set.
    pub fn max_processes(self, max_processes: usize) -> Self {
        Self { max_processes, ..self }
    }

    /// Who carries `command` out. Handlers are fixed once the system is built.
    pub fn handler(mut self, command: CommandId, handler: impl Handler) -> Self {
        self.handlers.push((command, Box::new(handler)));
        self
    }

    /// What carries messages to and from other nodes. The system takes the relay's [node](Relay::node) for its name.
    pub fn relay(self, relay: impl Relay) -> Self {
        Self { node: relay.node(), relay: Some(Box::new(relay)), ..self }
    }

    /// The system, in the runtime of `handle`.
    ///
    /// # Errors
    /// The relay cannot begin, its node has no name of its own, or not the one that was given; a command has two handlers; `max_processes` is 0 or
    /// more than pids can tell apart.
    pub fn build(self, handle: &Handle) -> Result<System, BuildError> {
        if !(1..=MAX_PROCESSES_MAX).contains(&self.max_processes) {
            return Err(BuildError(Mistake::MaxProcesses(self.max_processes)));
        }
        let handlers = Handlers::new(self.handlers).map_err(|command| BuildError(Mistake::Duplicate(command)))?;
        let remote = self.relay.map(Remote::new);
        if remote.as_ref().is_some_and(|remote| remote.me.node != self.node || self.node == Node::LOCAL) {
            return Err(BuildError(Mistake::Unnamed));
        }
        let system = System::with(handle, self.node, self.max_processes, handlers, remote);
        if let Some(remote) = system.remote() {
            let incoming = Incoming::new(system.downgrade(), remote.me, handle.clone());
            remote.relay.start(incoming).map_err(|error| BuildError(Mistake::Relay(remote.me.node, error)))?;
        }
        Ok(system)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("node", &self.node).finish_non_exhaustive()
    }
}

/// A system cannot be built as it was asked for.
#[derive(Debug)]
pub struct BuildError(Mistake);

#[derive(Debug)]
enum Mistake {
    Duplicate(CommandId),
    MaxProcesses(usize),
    Unnamed,
    Relay(Node, RelayError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Mistake::Duplicate(command) => {
                write!(f, "command {} has two handlers: take one away, or give it another number", command.number())
            }
            Mistake::Unnamed => f.write_str(
                "a node with a relay needs a name: name it where the relay is made, not local, and nowhere else",
            ),
            Mistake::Relay(node, error) => write!(f, "the relay of node {node} cannot begin: {error}"),
            Mistake::MaxProcesses(max) => write!(f, "max_processes is {max}: it has to be 1 to {MAX_PROCESSES_MAX}"),
        }
    }
}

impl std::error::Error for BuildError {}
