//! The description of a process that is to be started.

use std::fmt;
use std::panic::Location;

use crate::entry::mailbox::{CAPACITY, CAPACITY_MAX, Overflow};
use crate::messages::payload::Payload;
use crate::steps::machine::Process;
use volt::sync::oneshot;

/// A process to be started: its state machine, entry method, input and settings.
///
/// ```
/// use volt_process::{Overflow, Payload, Spawn, System};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let system = System::new(&volt::Handle::current());
/// let echo = volt_process::from_fn(async |mut inbox, _input| {
///     while let Some(message) = inbox.recv().await {
///         if let Some(reply) = message.reply {
///             reply.send(message.payload);
///         }
///     }
///     Ok(Payload::empty())
/// });
/// let pid = system.spawn(Spawn::new(echo).name("echo").mailbox(64, Overflow::Error)).unwrap();
/// assert_eq!(system.whereis("echo"), Some(pid));
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[must_use = "a description does nothing until a system starts it"]
pub struct Spawn {
    pub(crate) process: Box<dyn Process>,
    pub(crate) kind: &'static str,
    pub(crate) method: &'static str,
    pub(crate) input: Payload,
    pub(crate) name: Option<String>,
    pub(crate) capacity: u32,
    pub(crate) overflow: Overflow,
    pub(crate) traps_exits: bool,
    pub(crate) is_linked: bool,
    /// Notified when `init` has succeeded; dropped if it has failed.
    pub(crate) started: Option<oneshot::Sender<()>>,
    pub(crate) is_supervisor: bool,
    pub(crate) location: &'static Location<'static>,
}

impl Spawn {
    /// Describes a process that runs `process`, with its first entry method and no input. The
    /// console and findings show the line that calls `new` as the spawn location.
    #[track_caller]
    pub fn new<P: Process>(process: P) -> Self {
        Self {
            method: process.methods().first().copied().unwrap_or_default(),
            process: Box::new(process),
            kind: std::any::type_name::<P>(),
            input: Payload::empty(),
            name: None,
            capacity: CAPACITY as u32,
            overflow: Overflow::default(),
            traps_exits: false,
            is_linked: false,
            started: None,
            is_supervisor: false,
            location: Location::caller(),
        }
    }

    /// Sets the entry method.
    pub fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    /// Sets the input.
    pub fn input(self, input: Payload) -> Self {
        Self { input, ..self }
    }

    /// Sets the name, by which [`whereis`](crate::System::whereis) finds the process while it is
    /// alive.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the capacity of the mailbox in messages, 1,024 by default, and what happens to a
    /// message that finds it full.
    ///
    /// # Panics
    /// Panics if `capacity` is 0 or above 1,048,576.
    #[track_caller]
    pub fn mailbox(self, capacity: usize, overflow: Overflow) -> Self {
        assert!(
            (1..=CAPACITY_MAX).contains(&capacity),
            "a mailbox has room for 1 to {CAPACITY_MAX} messages, not {capacity}"
        );
        Self { capacity: capacity as u32, overflow, ..self }
    }

    /// Makes the process receive the exits of linked processes as
    /// [`Event::Exit`](crate::Event::Exit) instead of exiting with them.
    pub fn trap_exits(self) -> Self {
        Self { traps_exits: true, ..self }
    }

    /// [Links](crate::Context::link) the process with the process that starts it, before its first
    /// step.
    pub fn link(self) -> Self {
        Self { is_linked: true, ..self }
    }
}

impl fmt::Debug for Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawn").field("kind", &self.kind).field("method", &self.method).finish_non_exhaustive()
    }
}

/// The error returned when a process was not started.
#[derive(Debug)]
pub struct SpawnError(pub(crate) Refusal);

#[derive(Debug)]
pub(crate) enum Refusal {
    UnknownMethod { kind: &'static str, method: &'static str, methods: Vec<&'static str> },
    NameTaken(String),
    TooMany(usize),
    ShuttingDown,
    NoParent,
}

impl SpawnError {
    /// Returns whether the process has no such entry method.
    pub fn is_unknown_method(&self) -> bool {
        matches!(self.0, Refusal::UnknownMethod { .. })
    }

    /// Returns whether another process has the name.
    pub fn is_name_taken(&self) -> bool {
        matches!(self.0, Refusal::NameTaken(_))
    }

    /// Returns whether the system has as many processes as its limit allows.
    pub fn is_full(&self) -> bool {
        matches!(self.0, Refusal::TooMany(_))
    }

    /// Returns whether the system is shutting down.
    pub fn is_shut_down(&self) -> bool {
        matches!(self.0, Refusal::ShuttingDown)
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Refusal::UnknownMethod { kind, method, methods } => {
                write!(f, "{kind} has no entry method {method:?}; it has {}", methods.join(", "))
            }
            Refusal::NameTaken(name) => write!(f, "another process has the name {name:?}"),
            Refusal::TooMany(max) => {
                write!(f, "max_processes is {max}, and that many are alive: raise it, or end some")
            }
            Refusal::ShuttingDown => f.write_str("the system is shutting down and starts no more processes"),
            Refusal::NoParent => f.write_str("the process that starts it, and to which it would be linked, has exited"),
        }
    }
}

impl std::error::Error for SpawnError {}
