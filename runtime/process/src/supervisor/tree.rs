//! A supervisor before it runs: its strategy, its limits, and the children that it begins with.

use std::fmt;
use std::time::Duration;

use super::child_spec::ChildSpec;
use super::restart::{Backoff, RESTARTS_MAX, WINDOW};

/// Whom a supervisor starts again when one of its children fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// That child. For children that do not need each other.
    OneForOne,
    /// All children: the others are ended, then all are started. For children of which none is of
    /// use without the rest.
    OneForAll,
    /// That child and those that were started after it, which are ended first. For children each of
    /// which needs those before it.
    RestForOne,
}

/// A process that starts others, its children, and starts them again when they fail.
///
/// # What it does
/// * *Start*: children are started in the order in which they were added, each when the `init` of
///   the one before has returned; a supervisor among them has begun when its own children have, or
///   are in a pause because one of them has failed.
/// * *Restart*: when a child ends and its [kind](crate::Restart) says so, it is started again, and
///   with it whom the [`Strategy`] names, after a [pause](Backoff) that grows from 1 s to 90 s. A
///   child that cannot be started, or whose `init` fails, counts as one that has failed. Children
///   that the strategy takes along are ended first, the last first, and begin again in their order;
///   temporary ones among them do not.
/// * *Giving up*: more than [5 restarts within 60 s](Self::intensity) show that starting again does
///   not help. The supervisor ends its children, the last first, and
///   [fails](crate::ExitReason::Failed), so that the supervisor above it starts it again, with all
///   of its children, or gives up in its turn. Above the first there is nobody:
///   [wait](crate::System::wait) for it to know.
/// * *End*: asked to end ([`Event::Cancel`](crate::Event::Cancel)), it starts nobody any more, and
///   ends its children, the last first: each is asked, waited for until its
///   [limit](ChildSpec::shutdown_limit), and then killed. Under [`OneForOne`](Strategy::OneForOne)
///   those that were added while it ran, which have no order that anybody wrote down, are ended
///   first and all at once.
/// * *No orphans*: its children are [linked](crate::Context::link) with it: however it ends, they
///   do. A supervisor that is somebody's child ends in order when its parent is killed, and so does
///   a function that waits by [`recv`](crate::Inbox::recv). Another child that [traps
///   exits](crate::Spawn::trap_exits) is told, and has to end by itself: until it does, it keeps
///   its name.
///
/// A child that has ended and is not to be started again is forgotten. A process that wants to be
/// away for a while, and a name that has to be found meanwhile, are not its business: who calls a
/// child by name gets an error between end and restart.
///
/// # State
/// A child begins anew, with nothing of what it knew: that is what makes a restart a remedy. What
/// has to outlive it belongs to somebody else that does less and so fails less: a child of its own,
/// started before, which keeps it and hands it over. See `examples/src/bin/chat`.
///
/// # Seen from outside
/// The process's kind is this type; [`ProcessInfo::restarts`](crate::ProcessInfo::restarts) counts
/// what it has decided on. Each restart is logged as a warning, giving up as an error, with target
/// `volt::process`. [`SupervisorRef`](crate::SupervisorRef) adds, ends and lists children
/// while it runs.
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
/// Source: Erlang/OTP, `supervisor`. There, a child is started again at once, and its end in `init`
/// is its supervisor's; both make a storm of what is often a dependency that is away for a minute.
#[must_use = "nothing is started before a system gets it: see into_spawn"]
pub struct Supervisor {
    pub(super) strategy: Strategy,
    pub(super) backoff: Backoff,
    pub(super) restarts_max: u32,
    pub(super) window: Duration,
    pub(super) children: Vec<ChildSpec>,
}

impl Supervisor {
    /// One without children.
    pub fn new(strategy: Strategy) -> Self {
        Self { strategy, backoff: Backoff::default(), restarts_max: RESTARTS_MAX, window: WINDOW, children: Vec::new() }
    }

    /// With one child more, started after those before it. Two with the same id are an error when
    /// it is started.
    pub fn child(mut self, spec: ChildSpec) -> Self {
        self.children.push(spec);
        self
    }

    /// With other pauses before restarts than from 1 s to 90 s.
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// With another limit of restarts than 5 within 60 s; with one restart more it gives up. What
    /// starts again several children at once counts as one.
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
