//! The settings of a system (its node, its limit of processes, commands and relay), and their
//! checks.

use std::fmt;

use crate::messages::pid::Node;
use crate::nodes::cluster::{Remote, first_generation};
use crate::nodes::relay::{Incoming, Relay, RelayError};
use crate::output::command::CommandId;
use crate::registry::SHARDS;
use crate::steps::dispatch::Handler;
use crate::steps::handlers::Handlers;
use crate::system::core::{Registry, System};
use volt::Handle;

/// The default limit of live processes. This many idle ones use 2 GB.
const MAX_PROCESSES: usize = 1 << 22;
/// The largest limit. Even if all processes were in one shard, their indices would fit into 32
/// bits.
const MAX_PROCESSES_MAX: usize = u32::MAX as usize / SHARDS;

impl System {
    /// Creates a system in the runtime of `handle`, with the name `local` and no application
    /// commands.
    pub fn new(handle: &Handle) -> System {
        let handlers = Handlers::new(Vec::new()).expect("nothing is there twice");
        System::with(handle, Node::LOCAL, MAX_PROCESSES, handlers, None)
    }

    /// Returns a builder for a system with other settings.
    ///
    /// ```
    /// use volt_process::{CommandId, Payload, Request, System};
    ///
    /// const UPPERCASE: CommandId = CommandId::new(CommandId::FIRST);
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build()?;
    /// let system = System::builder()
    ///     .node("alpha".parse()?)
    ///     .handler(UPPERCASE, |mut request: Request<'_>| {
    ///         let upper = request.take::<String>().map(|text| Payload::new(text.to_uppercase()));
    ///         request.complete_yield(upper);
    ///     })
    ///     .build(runtime.handle())?;
    /// assert_eq!(system.node().name(), "alpha");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> Builder {
        Builder { node: Node::LOCAL, max_processes: MAX_PROCESSES, handlers: Vec::new(), relay: None }
    }

    fn with(runtime: &Handle, node: Node, max_processes: usize, handlers: Handlers, remote: Option<Remote>) -> System {
        let first_generation = remote.as_ref().map_or(0, |_| first_generation());
        let registry = Registry::new(node, max_processes, first_generation);
        System::of(node, runtime, registry, Box::new(handlers), remote)
    }
}

/// The settings of a [`System`].
#[must_use = "a builder does nothing until build() is called"]
pub struct Builder {
    node: Node,
    max_processes: usize,
    handlers: Vec<(CommandId, Box<dyn Handler>)>,
    relay: Option<Box<dyn Relay>>,
}

impl Builder {
    /// Sets the name of the node, `local` by default. Two systems that can reach each other must
    /// have different names.
    pub fn node(self, node: Node) -> Self {
        Self { node, ..self }
    }

    /// Sets how many processes may be alive at the same time: 1 to 67,108,863. Default 4,194,304.
    pub fn max_processes(self, max_processes: usize) -> Self {
        Self { max_processes, ..self }
    }

    /// Sets the handler of `command`. Handlers are fixed once the system is built.
    pub fn handler(mut self, command: CommandId, handler: impl Handler) -> Self {
        self.handlers.push((command, Box::new(handler)));
        self
    }

    /// Sets the relay, which carries messages to and from other nodes. The system takes the relay's
    /// [node](Relay::node) as its name.
    pub fn relay(self, relay: impl Relay) -> Self {
        Self { node: relay.node(), relay: Some(Box::new(relay)), ..self }
    }

    /// Builds the system in the runtime of `handle`.
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - The relay cannot start.
    /// - The relay's node is named `local`, or differs from the name that [`node`](Self::node) has
    ///   set.
    /// - A command has two handlers.
    /// - `max_processes` is 0 or above 67,108,863.
    pub fn build(self, handle: &Handle) -> Result<System, BuildError> {
        if !(1..=MAX_PROCESSES_MAX).contains(&self.max_processes) {
            return Err(BuildError(Mistake::MaxProcesses(self.max_processes)));
        }
        let handlers = Handlers::new(self.handlers).map_err(|command| BuildError(Mistake::Duplicate(command)))?;
        let remote = self.relay.map(Remote::new);
        if remote.as_ref().is_some_and(|remote| remote.me.node != self.node || self.node == Node::LOCAL) {
            return Err(BuildError(Mistake::Unnamed));
        }
        let system = System::with(handle, self.node, self.max_processes, handlers, remote);
        if let Some(remote) = system.remote() {
            let incoming = Incoming::new(system.downgrade(), remote.me, handle.clone());
            remote.relay.start(incoming).map_err(|error| BuildError(Mistake::Relay(remote.me.node, error)))?;
        }
        Ok(system)
    }
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("node", &self.node).finish_non_exhaustive()
    }
}

/// The error returned when a system could not be built.
#[derive(Debug)]
pub struct BuildError(Mistake);

#[derive(Debug)]
enum Mistake {
    Duplicate(CommandId),
    MaxProcesses(usize),
    Unnamed,
    Relay(Node, RelayError),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Mistake::Duplicate(command) => {
                write!(f, "command {} has two handlers: remove one, or use another number", command.number())
            }
            Mistake::Unnamed => f.write_str(
                "a node with a relay needs a name other than local: give it to the relay, and do not call node()",
            ),
            Mistake::Relay(node, error) => write!(f, "the relay of node {node} cannot start: {error}"),
            Mistake::MaxProcesses(max) => write!(f, "max_processes is {max}: give 1 to {MAX_PROCESSES_MAX}"),
        }
    }
}

impl std::error::Error for BuildError {}
