//! The interface between a system and the transport that connects it with other nodes. With a
//! [`Relay`], a [`Pid`](crate::Pid) on another node can be used to send, call, monitor and link.
//!
//! A relay handles nodes and bytes only. The meaning of the bytes, and what happens to processes
//! when a node is lost, are up to the system (`remote`, `frame`).
//!
//! The system calls the relay from any thread, and may hold one of its own locks. The relay calls
//! [`Incoming`] from its own tasks, never from inside a call that the system makes.
//!
//! The system's guarantees to users depend on these guarantees of a relay, and on no others:
//!
//! * *IN ORDER*: each frame from one peer to another arrives at most once, and after those that
//!   were sent before it. Frames may be missing: the system detects gaps by the numbers in its
//!   frames.
//! * *TO THAT INCARNATION ONLY*: a frame for a [`Peer`] is delivered to the system with that
//!   incarnation, or to none.
//! * *PRESENCE*: [`up`](Incoming::up) is called before the first frame of a peer, and
//!   [`down`](Incoming::down) some time after the peer was lost. There is no frame between `down`
//!   and the next `up`.
//!
//! Nodes of one cluster trust each other: a program that can send frames can kill processes. An
//! invalid frame is counted and ignored.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::messages::pid::Node;
use volt::Handle;

/// One incarnation of a node: its name, and a number that no earlier or later system of that name
/// has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The name of the node.
    pub node: Node,
    /// The number of the incarnation. A later incarnation has a higher number if the clocks of the
    /// machines are correct.
    pub incarnation: u64,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (incarnation {:x})", self.node, self.incarnation)
    }
}

/// Carries frames to the systems of other nodes. [`Hub`](crate::Hub) is a relay within one program.
///
/// An implementation must deliver the frames from one peer to another in order and each at most
/// once. It must deliver them only to the system with the receiving peer's incarnation. See
/// [`Incoming`] for the calls that a relay makes.
pub trait Relay: Send + Sync + 'static {
    /// Returns the name of the node whose relay this is. The system takes this name.
    fn node(&self) -> Node;

    /// Starts the relay. It reports peers and frames to `incoming`.
    ///
    /// # Errors
    /// Returns an error if the relay cannot start, for example because another node has the same
    /// name. In that case, the system is not built.
    fn start(&self, incoming: Incoming) -> Result<(), RelayError>;

    /// Accepts a frame for `to`. Must not block, and must not call [`Incoming`]: frames wait in a
    /// bounded queue of the relay.
    ///
    /// # Errors
    /// Returns an error if the queue is full ([`RelayError::full`]), the peer is not connected
    /// ([`RelayError::lost`]), or the frame is too large ([`RelayError::too_large`]). The frame is
    /// dropped.
    fn send(&self, to: Peer, frame: Bytes) -> Result<(), RelayError>;

    /// Stops the relay and notifies the other nodes. The future completes when all frames sent
    /// before have been handed over, or after a time limit of the relay. If a relay is dropped
    /// without this call, the other nodes have to detect its loss.
    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// The error of a relay that rejected a request.
#[derive(Clone, Debug)]
pub struct RelayError(Why);

#[derive(Clone, Debug)]
enum Why {
    Full,
    Lost,
    TooLarge,
    Other(String),
}

impl RelayError {
    /// Returns an error that reports a full queue.
    pub fn full() -> Self {
        Self(Why::Full)
    }

    /// Returns an error that reports that the peer is not connected.
    pub fn lost() -> Self {
        Self(Why::Lost)
    }

    /// Returns an error that reports a frame that is too large for the relay.
    pub fn too_large() -> Self {
        Self(Why::TooLarge)
    }

    /// Returns any other error. `message` describes the problem and what to do about it.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(Why::Other(message.to_string()))
    }

    /// Returns whether the relay's queue is full.
    pub fn is_full(&self) -> bool {
        matches!(self.0, Why::Full)
    }

    /// Returns whether the frame is too large for the relay.
    pub fn is_too_large(&self) -> bool {
        matches!(self.0, Why::TooLarge)
    }

    /// Returns whether the peer is not connected.
    pub fn is_lost(&self) -> bool {
        matches!(self.0, Why::Lost)
    }
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Full => f.write_str("the relay's queue is full: send later, or make the queue longer"),
            Why::Lost => f.write_str("the node cannot be reached"),
            Why::TooLarge => f.write_str("the relay does not accept frames of that size"),
            Why::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for RelayError {}

/// The reaction of a system to the calls of its relay; see [`Incoming`].
pub(crate) trait Receives: Send + Sync {
    fn up(self: Arc<Self>, peer: Peer);
    fn down(self: Arc<Self>, peer: Peer);
    fn received(self: Arc<Self>, from: Peer, frame: Bytes);
    fn interrupted(self: Arc<Self>);
}

/// The handle by which a relay reports peers and frames to its system. Calls that concern one peer
/// must be made one after another. Cheap to clone. It does not keep the system alive; once the
/// system is dropped, calls have no effect.
#[derive(Clone)]
pub struct Incoming {
    system: Weak<dyn Receives>,
    me: Peer,
    runtime: Handle,
}

impl Incoming {
    pub(crate) fn new(system: Weak<dyn Receives>, me: Peer, runtime: Handle) -> Self {
        Self { system, me, runtime }
    }

    /// Returns the incarnation that the relay serves. The relay must report it to the other nodes.
    pub fn me(&self) -> Peer {
        self.me
    }

    /// Returns the runtime of the system, for the tasks of the relay. Those tasks must not keep the
    /// relay alive.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Reports that a peer is connected. May be called repeatedly, at any sign of life. If another
    /// incarnation of the same name was connected, that one counts as lost.
    pub fn up(&self, peer: Peer) {
        self.with(|system| system.up(peer));
    }

    /// Reports that a peer is lost: it left, or was silent for too long. Calls to it fail, and
    /// monitors and links report [`NoConnection`](crate::ExitReason::NoConnection).
    pub fn down(&self, peer: Peer) {
        self.with(|system| system.down(peer));
    }

    /// Delivers a frame from a connected peer. Its content may be arbitrary: an invalid frame is
    /// counted and ignored.
    pub fn received(&self, from: Peer, frame: Bytes) {
        self.with(|system| system.received(from, frame));
    }

    /// Reports that frames may have been lost in either direction: a connection was interrupted, or
    /// a queue overflowed. The system then probes its peers to find out.
    pub fn interrupted(&self) {
        self.with(|system| system.interrupted());
    }

    fn with(&self, notify: impl FnOnce(Arc<dyn Receives>)) {
        if let Some(system) = self.system.upgrade() {
            notify(system);
        }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("me", &self.me).finish_non_exhaustive()
    }
}
