//! Starts and upgrades of processes.

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
    /// Starts a process. It runs independently of whether its pid is kept.
    ///
    /// # Errors
    /// Returns an error if the process has no such entry method, its name is taken, there are too
    /// many processes, or the system is shutting down. In that case, none of its steps has run. If
    /// the runtime is shut down, the process starts and exits with
    /// [`Killed`](ExitReason::Killed).
    pub fn spawn(&self, spawn: Spawn) -> Result<Pid, SpawnError> {
        self.start(spawn, None).map(|entry| entry.pid())
    }

    /// Starts a process and waits for its result: the payload that the process passed to
    /// [`done_with`](crate::Output::done_with). The process is started by this call, not by the
    /// first poll of the future.
    ///
    /// # Errors
    /// Returns the exit reason if that is not [`Normal`](ExitReason::Normal). Returns
    /// [`Failed`](ExitReason::Failed) if the process could not be started.
    ///
    /// # Cancel safety
    /// If the future is dropped, the process continues to run.
    pub fn exec(&self, spawn: Spawn) -> impl Future<Output = Result<Payload, ExitReason>> + use<> {
        self.execute(spawn, None)
    }

    /// Replaces the state machine of a running process between two steps. Pid, mailbox, links and
    /// yields stay. `upgrade` creates the new state machine from the old one, which is dropped
    /// without a call of `close`. The process then takes a step with the new state machine,
    /// possibly without events.
    ///
    /// # Errors
    /// Returns an error if the process has exited or its state machine is not an `Old`, if another
    /// upgrade is pending, or if `upgrade` returned an error or panicked. The old state machine
    /// then continues.
    ///
    /// # Cancel safety
    /// If the future is dropped after its first poll, the upgrade still takes place.
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
        let entry = self.entry(pid).ok_or_else(|| Failure::new(format_args!("{pid} has exited")))?;
        let (waiter, upgraded) = oneshot::channel();
        let replace = Box::new(move |process: &mut dyn Any| {
            let process: &mut Box<dyn Process> = process.downcast_mut().expect("a runner passes its state machine");
            let any: &mut dyn Any = &mut **process;
            let kind = std::any::type_name::<Old>();
            let old = any.downcast_mut().ok_or_else(|| Failure::new(format_args!("{pid} is not a {kind}")))?;
            let new = Box::new(upgrade(old)?);
            // The new state machine is in place even if the old one's destructor panics.
            dropped(std::mem::replace(process, new));
            Ok(std::any::type_name::<New>())
        });
        entry.upgrade(replace, waiter);
        upgraded.await.unwrap_or_else(|_dropped| Err(Failure::new(format_args!("{pid} has exited"))))
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

    /// Starts a process that `parent` monitors from before its first step.
    pub(crate) fn start_monitored(&self, spawn: Spawn, parent: &Arc<Entry>) -> Result<(Pid, MonitorId), SpawnError> {
        let started = self.start_with(spawn, Some(parent), |entry| self.monitor_as(parent, entry.pid()));
        started.map(|(entry, monitor)| (entry.pid(), monitor))
    }

    /// Starts a process. `before` is called when the process can be found, and before its task is
    /// queued.
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
        // Refuses most processes here. The check below also covers a shutdown that begins in
        // between.
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
        let (inserted, is_refused) = self.stopping().start(|| {
            let entry = self.registry().insert(|pid| Arc::new(Entry::new(pid, birth)))?;
            // ORDERING: Relaxed; a counter.
            self.ends().started.fetch_add(1, Ordering::Relaxed);
            // Before the record of the start: its reader fetches the name once, with that record.
            let has_name = name.as_ref().is_none_or(|name| self.give_name(&entry, name));
            self.runtime().record(|| recording::Event::ProcessStart {
                process: entry.pid().number(),
                parent: parent.map_or(0, |parent| parent.pid().index().saturating_add(1)),
            });
            // From here on, the runner reports the exit, even if it is dropped below because the
            // process is refused or the name is taken.
            let runner = Runner::new(entry.clone(), process, Start { method, input, started });
            Some((entry, has_name, runner))
        });
        let inserted = inserted.ok_or_else(|| SpawnError(Refusal::TooMany(self.registry().max())));
        let (entry, has_name, runner) = inserted?;
        if is_refused {
            return Err(SpawnError(Refusal::ShuttingDown));
        }
        if let Some(name) = name.as_ref().filter(|_| !has_name) {
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
        // The process is watched before its task is queued. Otherwise it could exit unnoticed.
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
    /// Starts a process whose parent is this process.
    ///
    /// # Errors
    /// Fails as [`System::spawn`] does.
    pub fn spawn(&self, spawn: Spawn) -> Result<Pid, SpawnError> {
        self.system().start(spawn, Some(self.entry())).map(|entry| entry.pid())
    }

    /// Starts a process whose parent is this process, and monitors it from before its first step.
    /// The [`Event::Down`](crate::Event::Down) has the true exit reason, however soon the process
    /// exits.
    ///
    /// # Errors
    /// Fails as [`System::spawn`] does.
    pub fn spawn_monitored(&self, spawn: Spawn) -> Result<(Pid, MonitorId), SpawnError> {
        self.system().start_monitored(spawn, self.entry())
    }

    /// Starts a process whose parent is this process, and waits for its result.
    ///
    /// # Errors
    /// Fails as [`System::exec`] does.
    ///
    /// # Cancel safety
    /// Same as [`System::exec`].
    pub fn exec(&self, spawn: Spawn) -> impl Future<Output = Result<Payload, ExitReason>> + use<> {
        self.system().execute(spawn, Some(self.entry()))
    }
}
