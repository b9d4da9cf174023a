//! The list of this program's runtimes, and the protocol by which the observer's thread starts and
//! ends. The thread runs while a runtime needs a control socket, and for a moment afterwards.
//!
//! An ordinary case: a program builds its only runtime, which opens the socket and starts the
//! thread. The runtime ends, and the thread lingers for a second. A test suite builds the next
//! runtime in that time, which finds the socket open. The race is between the end of the thread and
//! a new runtime.
//!
//! A runtime registers its name when it is built, enters itself when it is complete, and drops its
//! `Registration` when it ends. The observer's thread and [`program`] read the list.
//!
//! Protocol, all under the one lock except the sleeps:
//! * Start: (1) take a place in the list, and with it a name; (2) enter the runtime; (3) if it
//!   needs a socket and no observer of this program runs, open the socket and start the thread.
//! * End: (1) give up the place; (2) if no runtime needs a socket now, wake the observer, unless it
//!   lingers already; (3) if it does not linger, wait until it has ended or a runtime needs it
//!   again.
//! * The observer, when woken: if no runtime needs a socket, *linger*: wait for some time, without
//!   holding the lock. If no runtime has needed one meanwhile, close and unlink the socket, record
//!   that the thread has exited, and end. It does all this before it releases the lock.
//! * Exit of the program: unlink the socket, if the observer still has it.
//!
//! So a runtime that starts meanwhile finds either an observer that continues or none, never one
//! that is about to end. The observer of a program lingers, those of most tests do not.
//!
//! Invariants:
//! * *No lock is held while a snapshot is taken*. No worker takes the lock, except in a task that
//!   calls this module's functions, or that builds or drops a runtime.
//! * *One name, one runtime*: no two places in the list have the same name, so that consoles,
//!   metrics and logs can distinguish runtimes by name.
//! * *A forked child starts with nothing*: the threads were not copied, and one of them may have
//!   held the lock. So this list is the parent's, and the child creates its own.
//!
//! The thread that has the last reference to a runtime drops the runtime, and that may be the
//! observer's thread. So observed runtimes must allow being dropped there.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{JoinHandle, ThreadId};
use std::{ptr, thread};

use mio::Waker;
use volt_stacks::fork::Home;
use volt_telemetry::dump::{self, Dump};
use volt_telemetry::health::Health;
use volt_telemetry::processes::{self, ProcessList};
use volt_telemetry::snapshot::{Program, Snapshot};
use volt_telemetry::socket::{self, Environment};
use volt_telemetry::tasks::{Query, TaskList};
use volt_telemetry::why::Why;
use volt_telemetry::wire::{self, Hello};

use super::limits::Limits;
use super::listener::SocketFile;
use crate::clock;
use crate::recorder::drain::Names;
use crate::recorder::lanes::Recorder;
use crate::scheduler::readers::limit::Limit;
use crate::task::details::origin::MAX_NAME_BYTES;

/// The interface of a runtime to observers. Called on the observer's thread and on any thread that
/// calls [`program`], or the functions of the module `tasks`.
pub(crate) trait Observed: Send + Sync {
    /// Returns its present figures, under the name of its `Registration`. Waits for no worker.
    fn snapshot(&self) -> Snapshot;

    /// Returns its flight recorder, if it has one.
    fn recorder(&self) -> Option<&Arc<Recorder>> {
        None
    }

    /// Returns why the task with this id or name was polled last. Waits for no worker.
    fn why(&self, _task: &str) -> Option<Why> {
        None
    }

    /// Lists the tasks that match `query`. Waits for no worker.
    fn tasks(&self, _query: &Query) -> TaskList {
        TaskList::default()
    }

    /// Makes a dump of the tasks that match `query`, of those that it reaches within `limit`. Waits
    /// for workers, up to seconds.
    fn dump(self: Arc<Self>, _query: &dump::Query, _limit: &Limit) -> Dump {
        Dump::default()
    }

    /// Lists the processes that match `query`. Waits for no worker.
    fn processes(&self, _query: &processes::Query) -> ProcessList {
        ProcessList::default()
    }

    /// Returns the look-up of texts for the numbers in the recorder's records. Waits for no worker.
    fn names(&self) -> Option<&dyn Names> {
        None
    }
}

/// Registers a runtime that is being built, under the name `wanted` or, if that is taken,
/// `wanted-2`, `wanted-3`, …: see [`Registration::name`].
pub(crate) fn register(wanted: &str) -> Registration {
    Registry::of_program().register(wanted)
}

/// Returns a snapshot of every runtime of this program. This is what the control socket sends,
/// without the socket.
///
/// ```
/// # use volt_core as volt;
/// let program = volt::observe::program();
/// assert_eq!(program.pid, std::process::id());
/// for runtime in &program.runtimes {
///     println!("{}: {} tasks alive", runtime.runtime, runtime.tasks.alive);
/// }
/// ```
pub fn program() -> Program {
    Registry::of_program().program()
}

/// Returns the runtimes of this program that are complete, in the order of registration.
pub(super) fn observed() -> Vec<Weak<dyn Observed>> {
    let state = Registry::of_program().lock();
    state.entries.iter().filter_map(|entry| entry.runtime.clone()).collect()
}

/// Returns the runtime of this program that has this name.
pub(super) fn find(name: &str) -> Option<Arc<dyn Observed>> {
    Registry::of_program().find(Some(name)).ok()?.1.upgrade()
}

/// Same as [`program`], but returns `None` if a snapshot panics.
pub(super) fn try_program() -> Option<Program> {
    Registry::of_program().try_program()
}

/// Returns the path of the program's control socket, to which consoles attach. `None` while no
/// runtime of the program has the socket open.
pub fn socket_path() -> Option<PathBuf> {
    Registry::of_program().socket_path()
}

/// Returns the counters of the observer itself: its clients, and why it refused or dropped some.
pub fn health() -> Health {
    Registry::of_program().health()
}

/// The list of this program's runtimes. Never freed, so that references to it stay valid forever. A
/// forked child replaces its parent's by its own.
static OF_PROGRAM: AtomicPtr<Arc<Registry>> = AtomicPtr::new(ptr::null_mut());

/// The list of runtimes. There is one per program; tests create their own.
pub(super) struct Registry {
    pub(super) environment: Box<dyn Fn() -> Environment + Send + Sync>,
    pub(super) limits: Limits,
    pub(super) state: Mutex<State>,
    /// Notified when an observer has ended, or a runtime needs one again.
    pub(super) changed: Condvar,
    /// Written by the observer's thread and by that of the page.
    health: Mutex<Health>,
    /// Counts the threads that make dumps for clients: each one has a reference.
    pub(super) dumps: Arc<()>,
    /// The program that this registry belongs to; a forked child is another one.
    home: Home,
}

#[derive(Default)]
pub(super) struct State {
    /// How many runtimes have ever registered.
    next_id: u64,
    /// How many runtimes have ever needed a control socket.
    pub(super) wanted: u64,
    /// In the order of registration.
    pub(super) entries: Vec<Entry>,
    pub(super) observer: Option<Observer>,
    /// Threads of observers that have ended and are not joined yet. Those that linger are detached.
    pub(super) ended: Vec<JoinHandle<()>>,
}

pub(super) struct Entry {
    pub(super) id: u64,
    name: String,
    /// `None` while it is being built.
    pub(super) runtime: Option<Weak<dyn Observed>>,
    pub(super) wants_socket: bool,
}

impl Entry {
    fn upgrade(&self) -> Option<Arc<dyn Observed>> {
        self.runtime.as_ref()?.upgrade()
    }
}

/// A running observer.
pub(super) struct Observer {
    pub(super) thread: JoinHandle<()>,
    pub(super) waker: Waker,
    pub(super) file: Arc<SocketFile>,
    /// No runtime needs it, and its thread is to end after a while.
    pub(super) is_lingering: bool,
}

impl State {
    pub(super) fn is_observer_wanted(&self) -> bool {
        self.entries.iter().any(|entry| entry.wants_socket)
    }

    fn runs(&self, thread: ThreadId) -> bool {
        self.observer.as_ref().is_some_and(|observer| observer.thread.thread().id() == thread)
    }

    /// Returns `wanted` if it is free, otherwise `wanted` with the lowest number that makes it
    /// unique. See *one name, one runtime*.
    fn free_name(&self, wanted: &str) -> String {
        let is_taken = |name: &str| self.entries.iter().any(|entry| entry.name == name);
        if !is_taken(wanted) {
            return wanted.to_owned();
        }
        let numbered = |number: usize| {
            let suffix = format!("-{number}");
            // With its number, the name is no longer than a name may be.
            let cut = wanted.floor_char_boundary(MAX_NAME_BYTES - suffix.len());
            format!("{}{suffix}", &wanted[..cut])
        };
        // Each taken name excludes at most one number.
        (2..=self.entries.len() + 2).map(numbered).find(|name| !is_taken(name)).expect("more numbers than names")
    }
}

impl Registry {
    fn of_program() -> &'static Arc<Registry> {
        // ORDERING: Acquire; pairs with the Release of the exchange below, which publishes the
        // registry.
        let mut found = OF_PROGRAM.load(Ordering::Acquire);
        loop {
            // SAFETY: null, or from `Box::into_raw` below and never freed once it is stored here.
            if let Some(registry) = unsafe { found.as_ref() }.filter(|registry| registry.home.is_here()) {
                return registry;
            }
            let own = Box::into_raw(Box::new(Registry::new(Environment::of_program, Limits::OF_PROGRAM)));
            // ORDERING: AcqRel; see above. Acquire also on failure, since the found registry is
            // used.
            match OF_PROGRAM.compare_exchange(found, own, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    found = own;
                    exit::clean_up();
                }
                Err(other) => {
                    // SAFETY: from `Box::into_raw` above, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(own) });
                    found = other;
                }
            }
        }
    }

    pub(super) fn new(environment: impl Fn() -> Environment + Send + Sync + 'static, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            environment: Box::new(environment),
            limits,
            state: Mutex::default(),
            changed: Condvar::new(),
            health: Mutex::default(),
            dumps: Arc::default(),
            home: Home::here(),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(self: &Arc<Self>, wanted: &str) -> Registration {
        let mut state = self.lock();
        let id = state.next_id;
        state.next_id += 1;
        let name = state.free_name(wanted);
        state.entries.push(Entry { id, name: name.clone(), runtime: None, wants_socket: false });
        Registration { registry: Arc::clone(self), id, name }
    }

    pub(super) fn program(&self) -> Program {
        let runtimes = self.runtimes();
        Program {
            pid: std::process::id(),
            name: program_name(),
            at_ns: clock::now_ns(),
            observer: Some(self.health()),
            runtimes: runtimes.iter().map(|runtime| runtime.snapshot()).collect(),
        }
    }

    /// Returns `None`, and counts that, if a snapshot panics.
    pub(super) fn try_program(&self) -> Option<Program> {
        // Unwind safe: a snapshot reads cells, and nothing that it has written in part is used
        // again.
        let program = catch_unwind(AssertUnwindSafe(|| self.program())).ok();
        if program.is_none() {
            self.count(|health| health.snapshot_panics += 1);
        }
        program
    }

    pub(super) fn hello(&self) -> Hello {
        Hello {
            magic: wire::MAGIC.into(),
            version: wire::VERSION,
            pid: std::process::id(),
            program: program_name(),
            runtimes: self.names(),
            start_time: socket::own_start_time(),
            volt: env!("CARGO_PKG_VERSION").into(),
        }
    }

    fn runtimes(&self) -> Vec<Arc<dyn Observed>> {
        self.lock().entries.iter().filter_map(Entry::upgrade).collect()
    }

    /// Returns the runtime with that name, or the only runtime; otherwise an error text with the
    /// remedy.
    pub(super) fn find(&self, name: Option<&str>) -> Result<(String, Weak<dyn Observed>), String> {
        let state = self.lock();
        let shown = state.entries.iter().filter_map(|entry| Some((&entry.name, entry.runtime.as_ref()?)));
        let found: Vec<_> = shown.filter(|(its, _)| name.is_none_or(|name| *its == name)).collect();
        match (&found[..], name) {
            ([(name, runtime)], _) => Ok(((*name).clone(), (*runtime).clone())),
            ([], None) => Err("the program has no runtime".to_owned()),
            ([], Some(name)) => {
                let names: Vec<_> = state.entries.iter().filter(|entry| entry.runtime.is_some()).collect();
                let names: Vec<_> = names.iter().map(|entry| entry.name.as_str()).collect();
                Err(match &names[..] {
                    [] => "the program has no runtime".to_owned(),
                    names => format!("there is no runtime named {name:?}; the program has: {}", names.join(", ")),
                })
            }
            (several, _) => {
                let names: Vec<_> = several.iter().map(|(name, _)| name.as_str()).collect();
                Err(format!("the program has several runtimes; name one of them: {}", names.join(", ")))
            }
        }
    }

    fn names(&self) -> Vec<String> {
        let shown = |entry: &&Entry| entry.runtime.is_some();
        self.lock().entries.iter().filter(shown).map(|entry| entry.name.clone()).collect()
    }

    pub(super) fn socket_path(&self) -> Option<PathBuf> {
        let state = self.lock();
        let observer = state.observer.as_ref().filter(|_| state.is_observer_wanted());
        observer.map(|observer| observer.file.path().to_path_buf())
    }

    pub(super) fn count(&self, change: impl FnOnce(&mut Health)) {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn health(&self) -> Health {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cleanup when the program exits.
mod exit {
    use std::sync::TryLockError;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::OF_PROGRAM;

    unsafe extern "C" {
        fn atexit(function: extern "C" fn()) -> i32;
    }

    /// Unlinks the control socket, if the observer still has it: a program may exit while the
    /// observer lingers, or while a runtime lives.
    extern "C" fn unlink() {
        // ORDERING: Acquire; pairs with the Release in `of_program`.
        let registry = OF_PROGRAM.load(Ordering::Acquire);
        // SAFETY: null, or never freed.
        let Some(registry) = unsafe { registry.as_ref() }.filter(|registry| registry.home.is_here()) else { return };
        let state = match registry.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // A thread opens or closes the socket at this moment. The next program that starts
            // unlinks what is left.
            Err(TryLockError::WouldBlock) => return,
        };
        state.observer.iter().for_each(|observer| observer.file.unlink());
    }

    /// Has the control socket unlinked when the program exits.
    pub(super) fn clean_up() {
        static IS_SET: AtomicBool = AtomicBool::new(false);
        // ORDERING: Relaxed; only the value matters. A forked child inherits the function.
        if !IS_SET.swap(true, Ordering::Relaxed) {
            // SAFETY: a function of the C standard, with one that stays valid and does not unwind.
            // If it is refused, the next program that starts unlinks the socket.
            let _refused = unsafe { atexit(unlink) };
        }
    }
}

/// A runtime's place in the list.
#[must_use = "a runtime is seen for as long as its registration lives"]
pub(crate) struct Registration {
    pub(super) registry: Arc<Registry>,
    pub(super) id: u64,
    name: String,
}

impl Registration {
    /// Returns the name of the runtime: the requested one, or that with a number if it was taken.
    /// It is unique in the program for as long as this lives.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.registry.home.is_here() {
            // This is a forked child's copy. A thread that was not copied may hold the lock.
            return;
        }
        let mut state = self.registry.lock();
        state.entries.retain(|entry| entry.id != self.id);
        if state.is_observer_wanted() {
            return;
        }
        let lingers = !self.registry.limits.linger.is_zero();
        let Some(observer) = &mut state.observer else { return };
        if lingers {
            if !std::mem::replace(&mut observer.is_lingering, true) {
                // If the wake-up failed, the observer does not end.
                let _is_woken = observer.waker.wake();
            }
            return;
        }
        let thread = observer.thread.thread().id();
        // If the wake-up failed, the observer does not end; and the observer cannot wait for
        // itself.
        if observer.waker.wake().is_err() || thread == thread::current().id() {
            return;
        }
        let still_ends = |state: &mut State| state.runs(thread) && !state.is_observer_wanted();
        let (mut state, _) = self
            .registry
            .changed
            .wait_timeout_while(state, self.registry.limits.end, still_ends)
            .unwrap_or_else(PoisonError::into_inner);
        let ended = std::mem::take(&mut state.ended);
        drop(state);
        for thread in ended {
            // The thread holds no lock any more and is about to return. If it panicked, the panic
            // was printed then.
            let _ = thread.join();
        }
    }
}

/// Returns `argv[0]` without its folder.
pub(crate) fn program_name() -> String {
    let program = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}
