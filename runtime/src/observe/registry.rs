//! The runtimes of this process, and the observer's thread, which lives as long as one of them wants a control socket.
//!
//! Who calls: a runtime registers itself when it is built and drops its [`Registration`] when it ends; the observer's thread and
//! [`process`] read the list.
//!
//! Protocol, all under the one lock but the sleeps. Start: (1) enter the runtime; (2) if it wants a socket and no observer of this
//! process runs, open the socket and start the thread. End: (1) take the runtime from the list; (2) if nobody wants a socket now,
//! wake the observer; (3) wait until it has ended or somebody wants it again. The observer, when woken: if nobody wants a socket,
//! close and unlink it, say that it has ended, end; all this before it gives back the lock. So a runtime that starts meanwhile
//! finds either an observer that goes on or none, never one on its way out.
//!
//! Invariants. *No lock is held while a snapshot is taken*, nor by a worker ever. *A forked child starts with nothing*: the
//! threads were not copied, so what it finds here is the parent's and is forgotten, not dropped.
//!
//! Whoever holds a runtime's last reference drops it, and for a moment that may be the observer's thread: what is observed must
//! bear being dropped there.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;
use std::{io, thread};

use mio::{Poll, Waker};
use volt_telemetry::snapshot::{Process, Snapshot};
use volt_telemetry::socket::{self, Environment};
use volt_telemetry::wire::{self, Hello};

use super::connection::Limits;
use super::health::Health;
use super::listener::Listener;
use super::server::{self, Server};
use crate::clock;

/// Name of the observer's thread.
const THREAD_NAME: &str = "volt-observer";
/// How long the last runtime waits for the observer to end: long enough for a snapshot, and not for ever if one never returns.
pub(super) const END_TIMEOUT: Duration = Duration::from_secs(5);

/// What can be seen of a runtime from outside; called on the observer's thread and on any that calls [`process`].
pub(crate) trait Observed: Send + Sync {
    /// Its name, unique in the process.
    fn name(&self) -> &str;
    /// Its numbers now. Waits for no worker.
    fn snapshot(&self) -> Snapshot;
}

/// Enters a runtime into the list of this process, and sees to a control socket if it wants one.
///
/// A socket that cannot be opened is a warning; the next registration tries again.
pub(crate) fn register(runtime: Weak<dyn Observed>, open_socket: bool) -> Registration {
    Registry::of_process().register(runtime, open_socket)
}

/// Every runtime of this process, now: what the control socket answers with, without the socket.
///
/// ```
/// let process = volt::observe::process();
/// assert_eq!(process.pid, std::process::id());
/// for runtime in &process.runtimes {
///     println!("{}: {} tasks alive", runtime.runtime, runtime.tasks.alive);
/// }
/// ```
pub fn process() -> Process {
    Registry::of_process().process()
}

/// Where consoles attach to this process; `None` while no runtime has a control socket open.
pub fn socket_path() -> Option<PathBuf> {
    Registry::of_process().socket_path()
}

/// How the observer itself is doing.
pub fn health() -> Health {
    *Registry::of_process().health.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One for the process; tests make their own.
pub(super) struct Registry {
    environment: Box<dyn Fn() -> Environment + Send + Sync>,
    limits: Limits,
    state: Mutex<State>,
    /// An observer has ended, or somebody wants one again.
    changed: Condvar,
    /// Written by the observer's thread.
    health: Mutex<Health>,
}

#[derive(Default)]
struct State {
    /// The process that all of this belongs to.
    pid: u32,
    next_id: u64,
    /// In the order of registration.
    entries: Vec<Entry>,
    observer: Option<Observer>,
    /// Threads of observers that have ended, until somebody joins them.
    ended: Vec<JoinHandle<()>>,
}

struct Entry {
    id: u64,
    runtime: Weak<dyn Observed>,
    wants_socket: bool,
}

/// An observer that runs.
struct Observer {
    thread: JoinHandle<()>,
    waker: Waker,
    path: PathBuf,
}

impl State {
    fn is_observer_wanted(&self) -> bool {
        self.entries.iter().any(|entry| entry.wants_socket)
    }

    fn runs(&self, thread: ThreadId) -> bool {
        self.observer.as_ref().is_some_and(|observer| observer.thread.thread().id() == thread)
    }
}

impl Registry {
    fn of_process() -> &'static Arc<Registry> {
        static OF_PROCESS: LazyLock<Arc<Registry>> =
            LazyLock::new(|| Registry::new(Environment::of_process, Limits::DEFAULT));
        &OF_PROCESS
    }

    pub(super) fn new(environment: impl Fn() -> Environment + Send + Sync + 'static, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            environment: Box::new(environment),
            limits,
            state: Mutex::default(),
            changed: Condvar::new(),
            health: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = std::process::id();
        if state.pid != pid {
            // A forked child, or the very first look. The handles of a parent are of threads that are not here: not to be touched.
            std::mem::forget(std::mem::replace(&mut *state, State { pid, ..State::default() }));
            self.count(|health| *health = Health::default());
        }
        state
    }

    pub(super) fn register(self: &Arc<Self>, runtime: Weak<dyn Observed>, open_socket: bool) -> Registration {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        state.entries.push(Entry { id, runtime, wants_socket: open_socket });
        let started = if open_socket { self.start(&mut state) } else { Ok(()) };
        drop(state);
        self.changed.notify_all();
        // After unlocking: a subscriber is foreign code.
        if let Err(error) = started {
            tracing::warn!(
                target: "volt::observe",
                %error,
                "no control socket: consoles cannot attach until another runtime is built; the program runs on"
            );
        }
        Registration { registry: Arc::clone(self), id, pid: std::process::id() }
    }

    fn start(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        if state.observer.is_some() {
            return Ok(());
        }
        let listener = Listener::open(&(self.environment)())?;
        let path = listener.path().to_path_buf();
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), server::WAKER)?;
        let server = Server::new(poll, listener, self.limits)?;
        let registry = Arc::clone(self);
        let thread = thread::Builder::new().name(THREAD_NAME.into()).spawn(move || registry.observe(server))?;
        state.observer = Some(Observer { thread, waker, path });
        Ok(())
    }

    /// What the observer's thread does.
    fn observe(&self, server: Server) {
        let mut run = Run { registry: self, server: Some(server) };
        while let Some(server) = &mut run.server {
            let turn = server.turn(self);
            match turn {
                Ok(false) => continue,
                Ok(true) => {
                    let mut state = self.lock();
                    if !state.is_observer_wanted() {
                        run.end(&mut state);
                    }
                }
                Err(error) => {
                    run.end(&mut self.lock());
                    tracing::warn!(target: "volt::observe", %error, "the control socket was closed: its poll failed");
                }
            }
        }
    }

    pub(super) fn process(&self) -> Process {
        let runtimes = self.runtimes();
        Process {
            pid: std::process::id(),
            program: program_name(),
            at_ns: clock::now_ns(),
            runtimes: runtimes.iter().map(|runtime| runtime.snapshot()).collect(),
        }
    }

    pub(super) fn hello(&self) -> Hello {
        Hello {
            magic: wire::MAGIC.into(),
            version: wire::VERSION,
            pid: std::process::id(),
            program: program_name(),
            runtimes: self.runtimes().iter().map(|runtime| runtime.name().to_owned()).collect(),
            start_time: socket::own_start_time(),
            volt: env!("CARGO_PKG_VERSION").into(),
        }
    }

    fn runtimes(&self) -> Vec<Arc<dyn Observed>> {
        self.lock().entries.iter().filter_map(|entry| entry.runtime.upgrade()).collect()
    }

    pub(super) fn socket_path(&self) -> Option<PathBuf> {
        self.lock().observer.as_ref().map(|observer| observer.path.clone())
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Health)) {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner));
    }

    #[cfg(test)]
    pub(super) fn health(&self) -> Health {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The observer's thread on its way; ends in order even if it panics, so that nobody waits for it in vain.
struct Run<'a> {
    registry: &'a Registry,
    server: Option<Server>,
}

impl Run<'_> {
    fn end(&mut self, state: &mut State) {
        // Closes every connection and unlinks the socket.
        self.server = None;
        self.registry.count(|health| health.clients = 0);
        state.ended.extend(state.observer.take().map(|observer| observer.thread));
        self.registry.changed.notify_all();
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.end(&mut self.registry.lock());
        }
    }
}

/// A place in the list. When the last that wants a control socket is dropped, the socket is gone on return.
#[must_use = "a runtime is seen for as long as its registration lives"]
pub(crate) struct Registration {
    registry: Arc<Registry>,
    id: u64,
    /// The process that registered.
    pid: u32,
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // A forked child's copy. The lock may be held by a thread that was not copied.
            return;
        }
        let mut state = self.registry.lock();
        state.entries.retain(|entry| entry.id != self.id);
        if state.is_observer_wanted() {
            return;
        }
        let Some(observer) = &state.observer else { return };
        let thread = observer.thread.thread().id();
        // Without a wake-up there is no end to wait for; and the observer cannot wait for itself.
        if observer.waker.wake().is_err() || thread == thread::current().id() {
            return;
        }
        let still_ends = |state: &mut State| state.runs(thread) && !state.is_observer_wanted();
        let (mut state, _) = self
            .registry
            .changed
            .wait_timeout_while(state, END_TIMEOUT, still_ends)
            .unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::take(&mut state.ended);
        drop(state);
        for thread in ended {
            // It holds no lock any more and is about to return; a panic of its was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// `argv[0]` without its folder.
fn program_name() -> String {
    let program = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
