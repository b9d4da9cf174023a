//! A supervisor from outside: children added, taken away and listed while it runs.
//!
//! Each request is a call to its process, answered there: a start when the child has begun, an end
//! when the child has ended.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::child_spec::{ChildSpec, Restart};
use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::system::call::CallError;
use crate::system::core::System;

/// A supervisor answers at the latest when a child has ended that may take as long as it likes, so
/// the calls have no limit of their own; if it ends, they end.
const LIMIT: Duration = Duration::MAX;

/// What a supervisor is asked.
pub(super) enum Ask {
    /// Answered by `Result<Pid, Refusal>`.
    Start(ChildSpec),
    /// Answered by `Result<ExitReason, Refusal>`.
    Terminate(String),
    /// Answered by `Vec<ChildInfo>`.
    List,
}

/// Why a supervisor did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Duplicate(String),
    NoChild(String),
    NotStarted { id: String, why: Failure },
    Ending,
}

/// A supervisor, for those who add children to it and take them away. Cheap to clone.
///
/// ```
/// use volt_process::{ChildSpec, ExitReason, Payload, Spawn, Strategy, Supervisor, SupervisorRef, System};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let system = System::new(&volt::Handle::current());
/// system.spawn(Supervisor::new(Strategy::OneForOne).into_spawn().name("guests")).unwrap();
/// let guests = SupervisorRef::named(&system, "guests");
/// let guest = Spawn::new(volt_process::from_fn(async |mut inbox, _input| {
///     while inbox.recv().await.is_some() {}
///     Ok(Payload::empty())
/// }));
/// let pid = guests.start_child(ChildSpec::temporary("ada", guest)).await.unwrap();
/// assert_eq!(guests.children().await.unwrap()[0].pid, Some(pid));
/// assert_eq!(guests.terminate_child("ada").await.unwrap(), ExitReason::Shutdown);
/// assert!(guests.terminate_child("ada").await.unwrap_err().is_no_child());
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SupervisorRef {
    system: System,
    supervisor: Which,
}

#[derive(Clone, Debug)]
enum Which {
    Pid(Pid),
    Name(Arc<str>),
}

impl SupervisorRef {
    /// The supervisor that is `pid`.
    pub fn new(system: &System, pid: Pid) -> Self {
        Self { system: system.clone(), supervisor: Which::Pid(pid) }
    }

    /// The supervisor that bears `name` whenever it is asked: also the one that was started in the
    /// place of another.
    pub fn named(system: &System, name: &str) -> Self {
        Self { system: system.clone(), supervisor: Which::Name(name.into()) }
    }

    /// Starts a child, after all others, and waits until its `init` is done. Afterwards it is a
    /// child like those that the supervisor began with.
    ///
    /// # Errors
    /// There is no such supervisor, or it is ending; it has a child with this id; the child could
    /// not be started, or its `init` failed, and the supervisor has forgotten it.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the child may be started or not.
    pub async fn start_child(&self, spec: ChildSpec) -> Result<Pid, SupervisorError> {
        self.ask::<Result<Pid, Refusal>>(Ask::Start(spec)).await?.map_err(SupervisorError::from)
    }

    /// Ends a child, waits until it has ended, and forgets it: it is not started again. Why it
    /// ended; [`NoProcess`](ExitReason::NoProcess) if it was waiting to be started again.
    ///
    /// # Errors
    /// There is no such supervisor, or no such child.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the child may be ended or not.
    pub async fn terminate_child(&self, id: &str) -> Result<ExitReason, SupervisorError> {
        self.ask::<Result<ExitReason, Refusal>>(Ask::Terminate(id.to_owned())).await?.map_err(SupervisorError::from)
    }

    /// Its children, in the order in which they are started.
    ///
    /// # Errors
    /// There is no such supervisor.
    pub async fn children(&self) -> Result<Vec<ChildInfo>, SupervisorError> {
        self.ask(Ask::List).await
    }

    async fn ask<T: std::any::Any>(&self, ask: Ask) -> Result<T, SupervisorError> {
        let pid = match &self.supervisor {
            Which::Pid(pid) => *pid,
            Which::Name(name) => self.system.whereis(name).ok_or_else(|| SupervisorError(Why::NoName(name.clone())))?,
        };
        let answer =
            self.system.call(pid, Payload::new(ask), LIMIT).await.map_err(|error| SupervisorError(Why::Call(error)))?;
        answer.downcast().map_err(|_other| SupervisorError(Why::NoSupervisor(pid)))
    }
}

/// A child, as its supervisor sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Its id.
    pub id: String,
    /// Who it is; `None` while it waits to be started.
    pub pid: Option<Pid>,
    /// When it is started again.
    pub restart: Restart,
    /// How often it was to be started again because it had failed by itself.
    pub restarts: u64,
}

/// A supervisor did not do what it was asked.
#[derive(Clone, Debug)]
pub struct SupervisorError(Why);

#[derive(Clone, Debug)]
enum Why {
    NoName(Arc<str>),
    NoSupervisor(Pid),
    Call(CallError),
    Refused(Refusal),
}

impl SupervisorError {
    /// The supervisor has ended, or is about to.
    pub fn is_ended(&self) -> bool {
        match &self.0 {
            Why::NoName(_) | Why::Refused(Refusal::Ending) => true,
            Why::Call(error) => error.is_no_process(),
            _ => false,
        }
    }

    /// It has a child with this id already.
    pub fn is_duplicate(&self) -> bool {
        matches!(self.0, Why::Refused(Refusal::Duplicate(_)))
    }

    /// It has no child with this id.
    pub fn is_no_child(&self) -> bool {
        matches!(self.0, Why::Refused(Refusal::NoChild(_)))
    }

    /// The child could not be started.
    pub fn is_not_started(&self) -> bool {
        matches!(self.0, Why::Refused(Refusal::NotStarted { .. }))
    }
}

impl From<Refusal> for SupervisorError {
    fn from(refusal: Refusal) -> Self {
        Self(Why::Refused(refusal))
    }
}

impl fmt::Display for SupervisorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::NoName(name) => write!(f, "no process bears the name {name:?}, which a supervisor should"),
            Why::NoSupervisor(pid) => write!(f, "{pid} is no supervisor"),
            Why::Call(error) => error.fmt(f),
            Why::Refused(Refusal::Duplicate(id)) => write!(f, "there is a child {id:?} already"),
            Why::Refused(Refusal::NoChild(id)) => write!(f, "there is no child {id:?}"),
            Why::Refused(Refusal::NotStarted { id, why }) => write!(f, "the child {id:?} was not started: {why}"),
            Why::Refused(Refusal::Ending) => f.write_str("the supervisor is ending and starts no more children"),
        }
    }
}

impl std::error::Error for SupervisorError {}
