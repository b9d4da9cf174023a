//! Settings of a node, and its way to the server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{ConnectOptions, Event};
use volt::time::timeout;
use volt_process::Node;

use crate::presence::{HEARTBEAT, LOSS};
use crate::relay::{BACKLOG, Nats, QUEUE, State};
use crate::subject::Subjects;

/// How long the server, and whoever bears our name, may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A node that is to be connected: its cluster, its name, and how it is to behave. See [the
/// crate](crate) for an example.
#[derive(Clone)]
#[must_use = "a node is connected by connect()"]
pub struct Options {
    cluster: String,
    node: Node,
    heartbeat: Duration,
    loss: Duration,
    queue: usize,
    client: ConnectOptions,
}

impl Options {
    /// The node `node` of `cluster`, which is letters, digits, `-` and `_`, at most 64 of them. All
    /// nodes of one cluster reach each other; other clusters on the same server do not notice.
    pub fn new(cluster: impl Into<String>, node: Node) -> Self {
        let (cluster, client) = (cluster.into(), ConnectOptions::new());
        Self { cluster, node, heartbeat: HEARTBEAT, loss: LOSS, queue: QUEUE, client }
    }

    /// How often the node says that it is there, and how long it takes others to be silent until
    /// they are lost: [`HEARTBEAT`] and [`LOSS`] unless said otherwise. The same for all nodes of a
    /// cluster.
    ///
    /// # Panics
    /// `heartbeat` is zero, or `loss` is not at least twice as long.
    pub fn presence(self, heartbeat: Duration, loss: Duration) -> Self {
        assert!(!heartbeat.is_zero(), "a heartbeat takes some time");
        assert!(
            loss >= 2 * heartbeat,
            "a node would be lost with one late heartbeat: loss has to be twice as long at least"
        );
        Self { heartbeat, loss, ..self }
    }

    /// How many frames may wait for the connection, [`QUEUE`] unless said otherwise.
    ///
    /// # Panics
    /// `frames` is 0.
    pub fn queue(self, frames: usize) -> Self {
        assert!(frames > 0, "a queue has room for a frame at least");
        Self { queue: frames, ..self }
    }

    /// Credentials and other settings of async-nats. Its event callback and subscription capacity
    /// are set by the relay.
    pub fn client(self, client: ConnectOptions) -> Self {
        Self { client, ..self }
    }

    /// Connects to the server at `address`, as `127.0.0.1:4222` or `nats://name:4222`, and finds
    /// out whether the name is free.
    ///
    /// # Errors
    /// No server answers there, or it does not let us in; another node bears the name; the
    /// cluster's name does not fit; the runtime was built without `tokio_compat(true)`.
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the node is not connected.
    pub async fn connect(self, address: &str) -> Result<Nats, ConnectError> {
        let Self { cluster, node, heartbeat, loss, queue, client } = self;
        let Some(subjects) = Subjects::new(&cluster) else {
            return Err(ConnectError(format!(
                "{cluster:?} is no name for a cluster: use 1 to 64 letters, digits, - and _"
            )));
        };
        if tokio::runtime::Handle::try_current().is_err() {
            let remedy = "build the runtime with volt::Builder::tokio_compat(true), and connect inside of it";
            return Err(ConnectError(format!("the NATS client needs a Tokio runtime beside Volt's: {remedy}")));
        }
        let state = Arc::new(State::default());
        let events = state.clone();
        let client = client.subscription_capacity(BACKLOG).event_callback(move |event| {
            match event {
                Event::Connected => events.reconnected(),
                Event::SlowConsumer(_) => events.fell_behind(),
                _ => {}
            }
            std::future::ready(())
        });
        let connected = timeout(PATIENCE, client.connect(address)).await;
        let client = match connected {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(unreachable(address, &error)),
            Err(_elapsed) => return Err(unreachable(address, &format_args!("no answer within {PATIENCE:?}"))),
        };
        let asked = timeout(PATIENCE, client.request(subjects.name(node), "".into())).await;
        match asked {
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {}
            Ok(Err(error)) if error.kind() != RequestErrorKind::TimedOut => {
                return Err(ConnectError(format!(
                    "the NATS server at {address} does not let node {node} ask: {error}"
                )));
            }
            // One that does not answer bears the name all the same: it was stopped, say.
            _ => {
                return Err(ConnectError(format!(
                    "cluster {cluster} has a node {node} already: take another name, or end that one"
                )));
            }
        }
        // From here on the name is ours: who asks for it gets no answer before the relay starts,
        // and takes that for one.
        let refused = |error: &dyn fmt::Display| {
            ConnectError(format!("the NATS server at {address} does not let node {node} listen: {error}"))
        };
        let name = client.subscribe(subjects.name(node)).await.map_err(|error| refused(&error))?;
        client.flush().await.map_err(|error| refused(&error))?;
        Ok(Nats::new((node, subjects), client, name, state, (heartbeat, loss), queue))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("cluster", &self.cluster).field("node", &self.node).finish_non_exhaustive()
    }
}

fn unreachable(address: &str, why: &dyn fmt::Display) -> ConnectError {
    ConnectError(format!("no NATS server at {address} ({why}): start one (nats-server), or give the address of one"))
}

/// A node could not be connected.
#[derive(Clone, Debug)]
pub struct ConnectError(String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}
