//! What a supervisor knows of a child: its id, how it is started, whether it is started again, how
//! long it may take to end.

use std::fmt;
use std::time::Duration;

use crate::messages::failure::ExitReason;
use crate::steps::spawn::Spawn;

/// How long a child may take to end when it is asked to, unless it says otherwise: half of what a
/// system's shutdown allows for all.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(5);

/// A child of a [`Supervisor`](super::Supervisor): an id, unique among its siblings, how it is
/// started, and how it is to be treated.
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
#[must_use = "nothing is started before a supervisor gets it"]
pub struct ChildSpec {
    id: String,
    restart: Restart,
    start: Start,
    shutdown_limit: Limit,
}

/// When a child that has ended is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Always.
    Permanent,
    /// If it ended [abnormally](ExitReason::is_abnormal).
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
    /// [`SHUTDOWN_LIMIT`], or none for a supervisor.
    Usual,
    After(Duration),
    Never,
}

impl ChildSpec {
    /// A child that is always to be there: whenever it has ended, `make` makes it anew.
    pub fn permanent(id: impl Into<String>, make: impl FnMut() -> Spawn + Send + 'static) -> Self {
        Self::new(id.into(), Restart::Permanent, Start::Again(Box::new(make)))
    }

    /// A child that has something to get done: when it has ended
    /// [abnormally](ExitReason::is_abnormal), `make` makes it anew.
    pub fn transient(id: impl Into<String>, make: impl FnMut() -> Spawn + Send + 'static) -> Self {
        Self::new(id.into(), Restart::Transient, Start::Again(Box::new(make)))
    }

    /// A child that is started once, as a connection is served once.
    pub fn temporary(id: impl Into<String>, spawn: Spawn) -> Self {
        Self::new(id.into(), Restart::Temporary, Start::Once(Some(Box::new(spawn))))
    }

    fn new(id: String, restart: Restart, start: Start) -> Self {
        Self { id, restart, start, shutdown_limit: Limit::Usual }
    }

    /// How long it may take to end when it is asked to, before it is killed; `None` for as long as
    /// it likes. Unless this is said, 5 s, and `None` for a child that is a supervisor, as its
    /// children have limits of their own.
    pub fn shutdown_limit(self, limit: impl Into<Option<Duration>>) -> Self {
        Self { shutdown_limit: limit.into().map_or(Limit::Never, Limit::After), ..self }
    }

    /// Its id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// When it is started again.
    pub fn restart(&self) -> Restart {
        self.restart
    }

    /// What starts it now; `None` if it was to be started once, and was. The code of the user may
    /// panic.
    pub(super) fn make(&mut self) -> Option<Spawn> {
        match &mut self.start {
            Start::Once(spawn) => spawn.take().map(|spawn| *spawn),
            Start::Again(make) => Some(make()),
        }
    }

    /// How long it is waited for once it was asked to end.
    pub(super) fn limit(&self, is_supervisor: bool) -> Option<Duration> {
        match self.shutdown_limit {
            Limit::After(limit) => Some(limit),
            Limit::Never => None,
            Limit::Usual => (!is_supervisor).then_some(SHUTDOWN_LIMIT),
        }
    }
}

impl Restart {
    /// Whether a child that ended for `reason` is started again.
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
