//! The plan of a supervisor before it runs: its strategy, its limits and its initial children.

use std::fmt;
use std::time::Duration;

use super::child_spec::ChildSpec;
use super::restart::{Backoff, RESTARTS_MAX, WINDOW};

/// The children that a supervisor restarts when one of them fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Only that child. For children that do not depend on each other.
    OneForOne,
    /// All children: the others are ended, then all are started. For children that are useless
    /// without each other.
    OneForAll,
    /// That child and those that were started after it, which are ended first. For children that
    /// depend on those before them.
    RestForOne,
}

/// A process that starts other processes, its children, and restarts them when they fail.
///
/// # Behaviour
///
/// * *Start*: children are started in the order in which they were added, each after the `init` of
///   the one before has returned. A child that is a supervisor counts as started when its own
///   children have started, or wait for a pause because one of them failed.
/// * *Restart*: a child that exits is restarted if its [`Restart`](crate::Restart) demands it,
///   together with the children that the [`Strategy`] selects. Before that, the supervisor
///   [pauses](Backoff), for 1 s at first and up to 90 s later. A child that cannot be started, or
///   whose `init` fails, counts as failed. Other children that the strategy selects are ended
///   first, the last first, and start again in order. Temporary children among them are not started
///   again.
/// * *Giving up*: more than [5 restarts within 60 s](Self::intensity) show that restarts do not
///   help. The supervisor ends its children, the last first, and
///   [fails](crate::ExitReason::Failed). Its own supervisor then restarts it with all of its
///   children, or gives up, too. The topmost supervisor has none: [wait](crate::System::wait) for
///   its exit to detect that.
/// * *End*: a supervisor that is cancelled ([`Event::Cancel`](crate::Event::Cancel)) starts no more
///   children, and ends its children, the last first. Each is cancelled, and killed if it has not
///   exited within its [limit](ChildSpec::shutdown_limit). Under
///   [`OneForOne`](Strategy::OneForOne), children that were added while it was running have no
///   defined order: they are ended first, all at the same time.
/// * *No orphans*: children are [linked](crate::Context::link) with their supervisor, and exit when
///   it does, for whatever reason. If its parent is killed, a child that is a supervisor ends in
///   order, and so does a function that awaits [`recv`](crate::Inbox::recv). Any other child that
///   [traps exits](crate::Spawn::trap_exits) receives an event and has to complete. Until it does,
///   it keeps its name.
///
/// A child that has exited and is not to be restarted is removed. Between an exit and the restart,
/// a child cannot be found by its name, and callers get an error.
///
/// # State
///
/// A restarted child begins with new state; that is why a restart helps. If state must survive a
/// restart, keep it in another process that does less and therefore fails less often, for example
/// in a child that is started earlier and passes the state on. See `examples/src/bin/chat`.
///
/// # Observing a supervisor
///
/// The [kind](crate::ProcessInfo::kind) of the process is the name of this type, and
/// [`ProcessInfo::restarts`](crate::ProcessInfo::restarts) counts the restarts of its children.
/// Each restart is logged as a warning, and giving up as an error, with the target `volt::process`.
/// [`SupervisorRef`](crate::SupervisorRef) adds, ends and lists children of a running supervisor.
///
/// ```
/// use volt_process::{ChildSpec, Payload, Spawn, Strategy, Supervisor, SupervisorRef, System};
///
/// fn worker(name: &'static str) -> ChildSpec {
///     ChildSpec::permanent(name, move || {
///         let echo = volt_process::from_fn(async |mut inbox, _input| {
///             while let Some(message) = inbox.recv().await {
///                 if let Some(reply) = message.reply {
///                     reply.send(message.payload);
///                 }
///             }
///             Ok(Payload::empty())
///         });
///         Spawn::new(echo).name(name)
///     })
/// }
///
/// /// A supervisor is a child like any other.
/// fn workers() -> Spawn {
///     Supervisor::new(Strategy::OneForOne).child(worker("left")).child(worker("right")).into_spawn().name("workers")
/// }
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
/// # runtime.block_on(async {
/// let system = System::new(&volt::Handle::current());
/// let root = Supervisor::new(Strategy::RestForOne).child(worker("store")).child(ChildSpec::permanent("workers", workers));
/// let root = system.spawn(root.into_spawn()).unwrap();
/// let root = SupervisorRef::new(&system, root);
/// while system.whereis("right").is_none() {
///     volt::task::yield_now().await;
/// }
/// assert_eq!(root.children().await.unwrap().len(), 2);
/// assert!(system.shutdown(None).await.forced.is_empty());
/// # });
/// # Ok::<(), volt::BuildError>(())
/// ```
///
/// # Differences from Erlang/OTP
///
/// OTP's `supervisor` restarts a child immediately, and fails if the `init` of a child fails. Both
/// cause a storm of restarts when a dependency is not available for a minute.
#[must_use = "a supervisor does nothing until it is started: see into_spawn"]
pub struct Supervisor {
    pub(super) strategy: Strategy,
    pub(super) backoff: Backoff,
    pub(super) restarts_max: u32,
    pub(super) window: Duration,
    pub(super) children: Vec<ChildSpec>,
}

impl Supervisor {
    /// Creates a supervisor without children.
    pub fn new(strategy: Strategy) -> Self {
        Self { strategy, backoff: Backoff::default(), restarts_max: RESTARTS_MAX, window: WINDOW, children: Vec::new() }
    }

    /// Adds a child. Children are started in the order in which they were added. If two children
    /// have the same id, the supervisor fails when it is started.
    pub fn child(mut self, spec: ChildSpec) -> Self {
        self.children.push(spec);
        self
    }

    /// Sets the pauses before restarts, 1 s to 90 s by default.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Sets the restart intensity: the supervisor gives up if more than `restarts` restarts are
    /// necessary within the time `within`. The default is 5 restarts within 60 s. Restarting
    /// several children together counts as one restart.
    pub fn intensity(self, restarts: u32, within: Duration) -> Self {
        Self { restarts_max: restarts, window: within, ..self }
    }
}

impl fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Supervisor")
            .field("strategy", &self.strategy)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}
