//! How processes are started, and given new code while they run.

use std::any::Any;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use volt_telemetry::recording::event as recording;

use crate::entry::Birth;
use crate::entry::mailbox::Mailbox;
use crate::entry::relations::Watcher;
use crate::messages::event::MonitorId;
use crate::messages::failure::{ExitReason, Failure, dropped};
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::steps::context::Context;
use crate::steps::machine::Process;
use crate::steps::runner::{Runner, Start};
use crate::steps::spawn::{Refusal, Spawn, SpawnError};
use crate::system::core::{Entry, System};
use crate::system::ends::{tie, watch};
use volt::sync::oneshot;
use volt::task;

impl System {
    /// Starts a process. It runs whether or not anybody remembers its pid.
    ///
    /// # Errors
    /// The process has no such entry method; its name is taken; there are too many processes; the
    /// system is shutting down. Nothing of it has run then.
    pub fn spawn(&self, spawn: Spawn) -> Result<Pid, SpawnError> {
        self.start(spawn, None).map(|entry| entry.pid())
    }

    /// Starts a process and waits for its result, what it was [done
    /// with](crate::Output::done_with).
    ///
    /// # Errors
    /// Why it ended, if that was not because it was done; [`Failed`](ExitReason::Failed) if it
    /// could not be started.
    ///
    /// # Cancel safety
    /// The process runs on if this is dropped.
    pub fn exec(&self, spawn: Spawn) -> impl Future<Output = Result<Payload, ExitReason>> + use<> {
        self.execute(spawn, None)
    }

    /// Replaces the state machine of a running process, between two steps: new code, with the same
    /// pid, mailbox, links and yields. `upgrade` makes the new one of the old, which is dropped
    /// without being closed. The process steps once with the new one, maybe without events.
    ///
    /// # Errors
    /// The process has ended, or is no `Old`; another upgrade waits for its next step; `upgrade`
    /// returned an error or panicked. The old one stays.
    ///
    /// # Cancel safety
    /// The upgrade happens if this is dropped.
    ///
    /// ```
    /// use volt_process::{Context, Events, Failure, Output, Payload, Process, Spawn, System};
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
        let replace = Box::new(move |process: &mut dyn Any| {
            let process: &mut Box<dyn Process> = process.downcast_mut().expect("a runner passes its state machine");
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
        self.runtime().record(|| recording::Event::ProcessStart {
            process: entry.pid().number(),
            parent: parent.map_or(0, |parent| parent.pid().index().saturating_add(1)),
        });
        // From here on its end is its runner's, also if it is dropped right here, as another took
        // the name meanwhile.
        let runner = Runner::new(entry.clone(), process, Start { method, input, started });
        // Asked again when it is in the registry, where a shutdown that begins now finds it: see
        // `stop`.
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

    pub(crate) fn execute(
        &self,
        spawn: Spawn,
        parent: Option<&Arc<Entry>>,
    ) -> impl Future<Output = Result<Payload, ExitReason>> + use<> {
        // Watched before its task is queued, or it could end unseen.
        let started = self.start_watched(spawn, parent);
        async move {
            let ends = started.map_err(|error| ExitReason::Failed(error.into()))?;
            match ends.await {
                (ExitReason::Normal, result) => Ok(result.unwrap_or_default()),
                (reason, _) => Err(reason),
            }
        }
    }
}

impl Context {
    /// Starts a process, whose parent this one is.
    ///
    /// # Errors
    /// As [`System::spawn`].
    pub fn spawn(&self, spawn: Spawn) -> Result<Pid, SpawnError> {
        self.system().start(spawn, Some(self.entry())).map(|entry| entry.pid())
    }

    /// Starts a process, whose parent this one is, and watches it from before its first step on:
    /// its end is told by [`Event::Down`](crate::Event::Down) with its true reason, however
    /// soon it comes.
    ///
    /// # Errors
    /// As [`System::spawn`].
    pub fn spawn_monitored(&self, spawn: Spawn) -> Result<(Pid, MonitorId), SpawnError> {
        self.system().start_monitored(spawn, self.entry())
    }

    /// Starts a process, whose parent this one is, and waits for its result.
    ///
    /// # Errors
    /// As [`System::exec`].
    pub fn exec(&self, spawn: Spawn) -> impl Future<Output = Result<Payload, ExitReason>> + use<> {
        self.system().execute(spawn, Some(self.entry()))
    }
}
