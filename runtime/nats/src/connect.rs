//! The settings of a node, and its connection to the server.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{ConnectOptions, Event, ServerError, connection};
use volt::time::timeout;
use volt_process::Node;

use crate::presence::{HEARTBEAT, LOSS};
use crate::relay::{BACKLOG, Nats, QUEUE, State};
use crate::subject::Subjects;

/// How the server's error about a denied permission begins.
const DENIED: &str = "Permissions Violation";
/// How long the server, or another node with the same name, may take to respond.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The settings of a node that will be connected. See [the crate's documentation](crate) for an
/// example.
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
    /// Creates settings for the node `node` of `cluster`. The name of the cluster is 1 to 64
    /// letters, digits, `-` and `_`. All nodes of one cluster reach each other; clusters on the
    /// same server are separate.
    pub fn new(cluster: impl Into<String>, node: Node) -> Self {
        let (cluster, client) = (cluster.into(), ConnectOptions::new());
        Self { cluster, node, heartbeat: HEARTBEAT, loss: LOSS, queue: QUEUE, client }
    }

    /// Sets the interval of the node's heartbeats, and the time of silence after which it counts
    /// another node as lost. The defaults are [`HEARTBEAT`] and [`LOSS`]. Use the same values for
    /// all nodes of a cluster.
    ///
    /// # Panics
    /// Panics if `heartbeat` is zero, or if `loss` is less than twice as long.
    pub fn presence(self, heartbeat: Duration, loss: Duration) -> Self {
        assert!(!heartbeat.is_zero(), "the interval of heartbeats must not be zero");
        assert!(
            loss >= 2 * heartbeat,
            "loss must be at least twice as long as heartbeat: otherwise one late heartbeat loses a node"
        );
        Self { heartbeat, loss, ..self }
    }

    /// Sets how many frames may wait for the connection, [`QUEUE`] by default.
    ///
    /// # Panics
    /// Panics if `frames` is 0.
    pub fn queue(self, frames: usize) -> Self {
        assert!(frames > 0, "the queue must have room for at least one frame");
        Self { queue: frames, ..self }
    }

    /// Sets the credentials and other settings of async-nats. The relay overrides its event
    /// callback and its subscription capacity.
    pub fn client(self, client: ConnectOptions) -> Self {
        Self { client, ..self }
    }

    /// Connects to the server at `address`, such as `127.0.0.1:4222` or `nats://name:4222`, and
    /// checks that the name of the node is free.
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - No server responds, or the server denies access.
    /// - Another node of the cluster has the same name.
    /// - The name of the cluster is invalid.
    /// - The runtime was built without `tokio_compat(true)`.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the node is not connected.
    pub async fn connect(self, address: &str) -> Result<Nats, ConnectError> {
        let Self { cluster, node, heartbeat, loss, queue, client } = self;
        let Some(subjects) = Subjects::new(&cluster) else {
            return Err(ConnectError(format!(
                "{cluster:?} is not a cluster name: use 1 to 64 letters, digits, - and _"
            )));
        };
        if tokio::runtime::Handle::try_current().is_err() {
            let remedy = "build the runtime with volt::Builder::tokio_compat(true), and connect inside it";
            return Err(ConnectError(format!("the NATS client needs a Tokio runtime beside Volt's: {remedy}")));
        }
        let state = Arc::new(State::default());
        // The server reports a denied permission only as an event.
        let denied = Arc::new(OnceLock::new());
        let (events, denials) = (state.clone(), denied.clone());
        let client = client.subscription_capacity(BACKLOG).event_callback(move |event| {
            match event {
                Event::Connected => events.reconnected(),
                Event::SlowConsumer(_) => events.fell_behind(),
                Event::ServerError(ServerError::Other(error)) if error.starts_with(DENIED) => {
                    let _is_first = denials.set(error);
                }
                _ => {}
            }
            std::future::ready(())
        });
        let silent = || unreachable(address, &format_args!("no response within {TIMEOUT:?}"));
        let refused = |what: &str, error: &dyn fmt::Display| {
            ConnectError(format!("the NATS server at {address} does not allow node {node} to {what}: {error}"))
        };
        let connected = timeout(TIMEOUT, client.connect(address)).await;
        let client = match connected {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(unreachable(address, &error)),
            Err(_elapsed) => return Err(silent()),
        };
        let reply = timeout(TIMEOUT, client.request(subjects.name(node), "".into())).await;
        match (reply, denied.get()) {
            (Ok(Err(error)), _) if error.kind() == RequestErrorKind::NoResponders => {}
            (Ok(Err(error)), _) if error.kind() != RequestErrorKind::TimedOut => {
                return Err(refused("send requests", &error));
            }
            (Ok(Ok(_taken)), _) => {
                return Err(ConnectError(format!(
                    "cluster {cluster} has a node {node} already: choose another name, or stop that node"
                )));
            }
            // The client has sent nothing except the request.
            (_, Some(error)) => return Err(refused("send requests", error)),
            // The client may have been configured to connect in the background.
            _ if client.connection_state() != connection::State::Connected => return Err(silent()),
            // A node that does not respond still has the name: it may have been stopped.
            _ => {
                let remedy = "choose another name, stop that node, or, if its machine was lost, wait some minutes";
                return Err(ConnectError(format!(
                    "cluster {cluster} has a node {node} already, which does not respond: {remedy}"
                )));
            }
        }
        // From here on, this node has the name. Until the relay starts, it does not reply to
        // requests for the name; the requesting node treats that as a reply.
        let name = client.subscribe(subjects.name(node)).await.map_err(|error| refused("subscribe", &error))?;
        client.flush().await.map_err(|error| refused("subscribe", &error))?;
        Ok(Nats::new((node, subjects), client, name, state, (heartbeat, loss), queue))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("cluster", &self.cluster).field("node", &self.node).finish_non_exhaustive()
    }
}

fn unreachable(address: &str, why: &dyn fmt::Display) -> ConnectError {
    ConnectError(format!(
        "no NATS server at {address} ({why}): start one (nats-server), or give the address of another"
    ))
}

/// The error returned when a node could not be connected.
#[derive(Clone, Debug)]
pub struct ConnectError(String);

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConnectError {}
