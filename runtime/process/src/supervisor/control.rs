//! The control interface of a running supervisor: adds, ends and lists children.
//!
//! Each request is a call to the supervisor's process. A start is answered when the child's `init`
//! has returned, an end when the child has exited.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::child_spec::{ChildSpec, Restart};
use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::system::call::CallError;
use crate::system::core::System;

/// The time-out of these calls: none. An end is answered only when the child has exited, which may
/// take any time. If the supervisor exits, the calls fail.
const LIMIT: Duration = Duration::MAX;

/// A request to a supervisor.
pub(super) enum Request {
    /// Answered by `Result<Pid, Refusal>`.
    Start(ChildSpec),
    /// Answered by `Result<ExitReason, Refusal>`.
    Terminate(String),
    /// Answered by `Vec<ChildInfo>`.
    List,
}

/// Why a supervisor refused a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    Duplicate(String),
    NoChild(String),
    NotStarted { id: String, why: Failure },
    Ending,
}

/// A handle that adds children to a supervisor, and ends and lists them. Cheap to clone.
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
    /// Returns a handle to the supervisor with this pid.
    pub fn new(system: &System, pid: Pid) -> Self {
        Self { system: system.clone(), supervisor: Which::Pid(pid) }
    }

    /// Returns a handle to the supervisor with this name. The name is looked up for each request,
    /// so the handle remains valid when the supervisor is restarted.
    pub fn named(system: &System, name: &str) -> Self {
        Self { system: system.clone(), supervisor: Which::Name(name.into()) }
    }

    /// Starts a child, after all others, and waits until its `init` has returned. From then on, it
    /// is treated like the children that the supervisor was created with.
    ///
    /// # Errors
    /// Returns an error if the supervisor does not exist or is ending, or if it has a child with
    /// this id. Also returns an error if the child could not be started or its `init` failed; the
    /// supervisor then removes the child.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the child may or may not be started.
    pub async fn start_child(&self, spec: ChildSpec) -> Result<Pid, SupervisorError> {
        self.request::<Result<Pid, Refusal>>(Request::Start(spec)).await?.map_err(SupervisorError::from)
    }

    /// Ends a child, waits until it has exited, and removes it, so that it is not restarted.
    /// Returns its exit reason; [`NoProcess`](ExitReason::NoProcess) if the child was waiting to be
    /// started.
    ///
    /// # Errors
    /// Returns an error if the supervisor or the child does not exist.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the child may or may not be ended.
    pub async fn terminate_child(&self, id: &str) -> Result<ExitReason, SupervisorError> {
        self.request::<Result<ExitReason, Refusal>>(Request::Terminate(id.to_owned()))
            .await?
            .map_err(SupervisorError::from)
    }

    /// Returns the children, in the order in which they are started.
    ///
    /// # Errors
    /// Returns an error if the supervisor does not exist.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn children(&self) -> Result<Vec<ChildInfo>, SupervisorError> {
        self.request(Request::List).await
    }

    async fn request<T: std::any::Any>(&self, request: Request) -> Result<T, SupervisorError> {
        let pid = match &self.supervisor {
            Which::Pid(pid) => *pid,
            Which::Name(name) => self.system.whereis(name).ok_or_else(|| SupervisorError(Why::NoName(name.clone())))?,
        };
        let answer = self
            .system
            .call(pid, Payload::new(request), LIMIT)
            .await
            .map_err(|error| SupervisorError(Why::Call(error)))?;
        answer.downcast().map_err(|_other| SupervisorError(Why::NoSupervisor(pid)))
    }
}

/// Information on a child of a supervisor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildInfo {
    /// Its id.
    pub id: String,
    /// Its pid; `None` while it waits to be started.
    pub pid: Option<Pid>,
    /// When it is restarted.
    pub restart: Restart,
    /// How many restarts its own failures have caused. Restarts because of a sibling are not
    /// counted.
    pub restarts: u64,
}

/// The error returned when a request to a supervisor failed.
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
    /// Returns whether the supervisor has exited or is ending.
    pub fn is_ended(&self) -> bool {
        match &self.0 {
            Why::NoName(_) | Why::Refused(Refusal::Ending) => true,
            Why::Call(error) => error.is_no_process(),
            _ => false,
        }
    }

    /// Returns whether the supervisor already has a child with this id.
    pub fn is_duplicate(&self) -> bool {
        matches!(self.0, Why::Refused(Refusal::Duplicate(_)))
    }

    /// Returns whether the supervisor has no child with this id.
    pub fn is_no_child(&self) -> bool {
        matches!(self.0, Why::Refused(Refusal::NoChild(_)))
    }

    /// Returns whether the child could not be started.
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
            Why::NoName(name) => {
                write!(f, "no process has the name {name:?}: the supervisor has exited, or was not started")
            }
            Why::NoSupervisor(pid) => write!(f, "{pid} is not a supervisor"),
            Why::Call(error) => error.fmt(f),
            Why::Refused(Refusal::Duplicate(id)) => write!(f, "the supervisor already has a child {id:?}"),
            Why::Refused(Refusal::NoChild(id)) => write!(f, "the supervisor has no child {id:?}"),
            Why::Refused(Refusal::NotStarted { id, why }) => write!(f, "the child {id:?} was not started: {why}"),
            Why::Refused(Refusal::Ending) => f.write_str("the supervisor is ending and starts no more children"),
        }
    }
}

impl std::error::Error for SupervisorError {}
