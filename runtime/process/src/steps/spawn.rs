//! What a process is started with.

use std::fmt;
use std::panic::Location;

use crate::entry::mailbox::{CAPACITY, CAPACITY_MAX, Overflow};
use crate::messages::payload::Payload;
use crate::steps::machine::Process;
use volt::sync::oneshot;

/// A process that is to be started: its state machine, its entry method and input, and how it is to
/// be treated.
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
#[must_use = "nothing is started before a system gets it"]
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
    /// Told once `init` has succeeded; dropped if it has not.
    pub(crate) started: Option<oneshot::Sender<()>>,
    pub(crate) is_supervisor: bool,
    pub(crate) location: &'static Location<'static>,
}

impl Spawn {
    /// `process`, by its first entry method and with no input. Reports name the line of the caller.
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

    /// By another entry method.
    pub fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    /// With this input.
    pub fn input(self, input: Payload) -> Self {
        Self { input, ..self }
    }

    /// Under a name, by which [`whereis`](crate::System::whereis) finds it as long as it lives.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// How many messages may wait for it, 1,024 unless said otherwise, and what happens to one
    /// more.
    ///
    /// # Panics
    /// `capacity` is 0 or above 1,048,576.
    #[track_caller]
    pub fn mailbox(self, capacity: usize, overflow: Overflow) -> Self {
        assert!(
            (1..=CAPACITY_MAX).contains(&capacity),
            "a mailbox has room for 1 to {CAPACITY_MAX} messages, not {capacity}"
        );
        Self { capacity: capacity as u32, overflow, ..self }
    }

    /// It is told of the end of linked processes ([`Event::Exit`](crate::Event::Exit)) instead of
    /// ending with them.
    pub fn trap_exits(self) -> Self {
        Self { traps_exits: true, ..self }
    }

    /// It is [linked](crate::Context::link) with the process that starts it, from before its first
    /// step on.
    pub fn link(self) -> Self {
        Self { is_linked: true, ..self }
    }
}

impl fmt::Debug for Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spawn").field("kind", &self.kind).field("method", &self.method).finish_non_exhaustive()
    }
}

/// A process was not started.
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
    /// The process has no entry method of that name.
    pub fn is_unknown_method(&self) -> bool {
        matches!(self.0, Refusal::UnknownMethod { .. })
    }

    /// Another process bears that name.
    pub fn is_name_taken(&self) -> bool {
        matches!(self.0, Refusal::NameTaken(_))
    }

    /// There are as many processes as there may be.
    pub fn is_full(&self) -> bool {
        matches!(self.0, Refusal::TooMany(_))
    }

    /// The system is shutting down.
    pub fn is_shut_down(&self) -> bool {
        matches!(self.0, Refusal::ShuttingDown)
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Refusal::UnknownMethod { kind, method, methods } => {
                write!(f, "{kind} has no entry method {method:?}, but {}", methods.join(", "))
            }
            Refusal::NameTaken(name) => write!(f, "another process bears the name {name:?}"),
            Refusal::TooMany(max) => write!(f, "max_processes is {max}, and as many live: raise it, or end some"),
            Refusal::ShuttingDown => f.write_str("the system is shutting down and starts no more processes"),
            Refusal::NoParent => f.write_str("the process that starts it has ended, and it was to be linked with that"),
        }
    }
}

impl std::error::Error for SpawnError {}
