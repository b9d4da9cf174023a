//! The specification of a supervisor's child: its id, how it is started, whether it is restarted,
//! and how long it may take to end.

use std::fmt;
use std::time::Duration;

use crate::messages::failure::ExitReason;
use crate::steps::spawn::Spawn;

/// The default shutdown limit of a child: half of what the shutdown of a system allows for all
/// processes.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// A child of a [`Supervisor`](super::Supervisor): an id, which is unique among its siblings, how
/// to start it, and when to restart it.
///
/// ```
/// use std::time::Duration;
/// use volt_process::{ChildSpec, Payload, Restart, Spawn};
///
/// let echo = ChildSpec::permanent("echo", || {
///     Spawn::new(volt_process::from_fn(async |mut inbox, _input| {
///         while let Some(message) = inbox.recv().await {
///             if let Some(reply) = message.reply {
///                 reply.send(message.payload);
///             }
///         }
///         Ok(Payload::empty())
///     }))
/// });
/// let echo = echo.shutdown_limit(Duration::from_millis(100));
/// assert_eq!((echo.id(), echo.restart()), ("echo", Restart::Permanent));
/// ```
#[must_use = "a specification does nothing until a supervisor starts it"]
pub struct ChildSpec {
    id: String,
    restart: Restart,
    start: Start,
    shutdown_limit: Limit,
}

/// The exits after which a supervisor restarts a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// After every exit.
    Permanent,
    /// After an [abnormal](ExitReason::is_abnormal) exit.
    Transient,
    /// Never.
    Temporary,
}

enum Start {
    Once(Option<Box<Spawn>>),
    Again(Box<dyn FnMut() -> Spawn + Send>),
}

#[derive(Clone, Copy)]
enum Limit {
    /// [`SHUTDOWN_LIMIT`]; no limit for a supervisor.
    Usual,
    After(Duration),
    Never,
}

impl ChildSpec {
    /// Specifies a child that is restarted after every exit. `make` is called for each start.
    pub fn permanent(id: impl Into<String>, make: impl FnMut() -> Spawn + Send + 'static) -> Self {
        Self::new(id.into(), Restart::Permanent, Start::Again(Box::new(make)))
    }

    /// Specifies a child that is restarted after an [abnormal](ExitReason::is_abnormal) exit, such
    /// as a job that must complete. `make` is called for each start.
    pub fn transient(id: impl Into<String>, make: impl FnMut() -> Spawn + Send + 'static) -> Self {
        Self::new(id.into(), Restart::Transient, Start::Again(Box::new(make)))
    }

    /// Specifies a child that is started once and never restarted, such as the handler of a
    /// connection.
    pub fn temporary(id: impl Into<String>, spawn: Spawn) -> Self {
        Self::new(id.into(), Restart::Temporary, Start::Once(Some(Box::new(spawn))))
    }

    fn new(id: String, restart: Restart, start: Start) -> Self {
        Self { id, restart, start, shutdown_limit: Limit::Usual }
    }

    /// Sets how long the child may take to exit after it was cancelled, before it is killed. `None`
    /// means no limit. The default is 5 s, and `None` for a child that is a supervisor, since its
    /// children have their own limits.
    pub fn shutdown_limit(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { shutdown_limit: limit.into().map_or(Limit::Never, Limit::After), ..self }
    }

    /// Returns the id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns when the child is restarted.
    pub fn restart(&self) -> Restart {
        self.restart
    }

    /// Returns the spawn of the next start of the child; `None` if the child can be started only
    /// once and already was. Runs user code, which may panic.
    pub(super) fn make(&mut self) -> Option<Spawn> {
        match &mut self.start {
            Start::Once(spawn) => spawn.take().map(|spawn| *spawn),
            Start::Again(make) => Some(make()),
        }
    }

    /// Returns how long to wait for the child after it was cancelled.
    pub(super) fn limit(&self, is_supervisor: bool) -> Option<Duration> {
        match self.shutdown_limit {
            Limit::After(limit) => Some(limit),
            Limit::Never => None,
            Limit::Usual => (!is_supervisor).then_some(SHUTDOWN_LIMIT),
        }
    }
}

impl Restart {
    /// Returns whether a child that exited with `reason` is restarted.
    pub(super) fn follows(self, reason: &ExitReason) -> bool {
        match self {
            Restart::Permanent => true,
            Restart::Transient => reason.is_abnormal(),
            Restart::Temporary => false,
        }
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec").field("id", &self.id).field("restart", &self.restart).finish_non_exhaustive()
    }
}
