//! What carries bytes between nodes, so that a [`Pid`](crate::Pid) on another node can be sent to,
//! called, watched and linked with.
//!
//! A [`Relay`] knows nodes and bytes. What the bytes mean, and what becomes of processes when a
//! node is lost, is the system's (`remote`, `frame`).
//!
//! Who calls whom: the system calls the relay from any thread, with a lock of its own held; the
//! relay calls [`Incoming`] from tasks of its own, never from inside a call of the system's.
//!
//! What is promised to users stands on what a relay promises, which is this and no more:
//! * *In order*: of the frames of one peer for another, each comes at most once, after those that
//!   were sent before it. Some may be missing: the system finds gaps by the numbers in its frames.
//! * *To that life only*: a frame for a [`Peer`] comes to the system that bears its incarnation, or
//!   to none.
//! * *Presence*: [`up`](Incoming::up) before the first frame of a peer, [`down`](Incoming::down)
//!   some time after it is gone, and no frame between `down` and the next `up`.
//!
//! Nodes of one cluster trust each other: whoever can send frames can kill processes. A frame that
//! is no frame does no harm and is counted.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use bytes::Bytes;

use crate::messages::pid::Node;
use volt::Handle;

/// One life of a node: its name, and a number that no earlier and no later system of that name has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The name.
    pub node: Node,
    /// The number. Of two lives, the later one has the higher, if the machines' clocks go as they
    /// should.
    pub incarnation: u64,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (incarnation {:x})", self.node, self.incarnation)
    }
}

/// Carries frames to the systems of other nodes. See [`Hub`](crate::Hub) for one within a program.
///
/// What an implementation has to keep to: frames from one peer to another arrive in the order in
/// which they were sent, each at most once, and only in the system that bears the peer's
/// incarnation; see [`Incoming`] for what comes back.
pub trait Relay: Send + Sync + 'static {
    /// The name of the node that this is the relay of; its system takes it.
    fn node(&self) -> Node;

    /// Begins. `incoming` is what the system wants to hear of.
    ///
    /// # Errors
    /// It cannot begin, for example because another node bears the name. The system is not built
    /// then.
    fn start(&self, incoming: Incoming) -> Result<(), RelayError>;

    /// Takes a frame for `to`. Never blocks, and never calls [`Incoming`]: frames wait in a queue
    /// of the relay's own, which has a bound.
    ///
    /// # Errors
    /// The queue is full ([`RelayError::full`]), the peer is not there ([`RelayError::lost`]), or
    /// the frame is too large ([`RelayError::too_large`]). It is dropped then.
    fn send(&self, to: Peer, frame: Bytes) -> Result<(), RelayError>;

    /// Ends, and tells the others: ready when what was sent before has been handed over, or after a
    /// limit of its own. A relay that is dropped without it lets them find out.
    fn leave(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// Why a relay does not do what it was asked for.
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
    /// The relay's queue is full.
    pub fn full() -> Self {
        Self(Why::Full)
    }

    /// The peer is not there.
    pub fn lost() -> Self {
        Self(Why::Lost)
    }

    /// The relay does not take frames of that size.
    pub fn too_large() -> Self {
        Self(Why::TooLarge)
    }

    /// Anything else; `message` says what, and what to do about it.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(Why::Other(message.to_string()))
    }

    /// The relay's queue is full.
    pub fn is_full(&self) -> bool {
        matches!(self.0, Why::Full)
    }

    /// The relay does not take frames of that size.
    pub fn is_too_large(&self) -> bool {
        matches!(self.0, Why::TooLarge)
    }

    /// The peer is not there.
    pub fn is_lost(&self) -> bool {
        matches!(self.0, Why::Lost)
    }
}

impl fmt::Display for RelayError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Full => f.write_str("the relay's queue is full: send later, or give it a longer one"),
            Why::Lost => f.write_str("the node cannot be reached"),
            Why::TooLarge => f.write_str("the relay does not take frames of that size"),
            Why::Other(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for RelayError {}

/// What a system does about what its relay hears; see [`Incoming`].
pub(crate) trait Hears: Send + Sync {
    fn up(self: Arc<Self>, peer: Peer);
    fn down(self: Arc<Self>, peer: Peer);
    fn received(self: Arc<Self>, from: Peer, frame: Bytes);
    fn interrupted(self: Arc<Self>);
}

/// Where a relay says what it hears. Calls that concern one peer are made one after another. Cheap
/// to clone; it does not keep the system alive: once that is gone, calls do nothing.
#[derive(Clone)]
pub struct Incoming {
    system: Weak<dyn Hears>,
    me: Peer,
    runtime: Handle,
}

impl Incoming {
    pub(crate) fn new(system: Weak<dyn Hears>, me: Peer, runtime: Handle) -> Self {
        Self { system, me, runtime }
    }

    /// The life that the relay serves; what others are to know it by.
    pub fn me(&self) -> Peer {
        self.me
    }

    /// The runtime of the system, for the relay's own tasks. They must not keep the relay alive
    /// that they serve.
    pub fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// A peer is there. May be said again at any sign of life. If another life of its name was
    /// there, that is lost.
    pub fn up(&self, peer: Peer) {
        self.with(|system| system.up(peer));
    }

    /// A peer is gone: it said so, or nothing was heard of it for too long. What processes here
    /// have to do with it ends as [`NoConnection`](crate::ExitReason::NoConnection).
    pub fn down(&self, peer: Peer) {
        self.with(|system| system.down(peer));
    }

    /// A frame from a peer that is up. Anything may be in it: what is no frame is counted and left.
    pub fn received(&self, from: Peer, frame: Bytes) {
        self.with(|system| system.received(from, frame));
    }

    /// Frames may have been lost, in either direction: a connection was interrupted, or a queue ran
    /// over. The system asks its peers, and so finds out.
    pub fn interrupted(&self) {
        self.with(|system| system.interrupted());
    }

    fn with(&self, tell: impl FnOnce(Arc<dyn Hears>)) {
        if let Some(system) = self.system.upgrade() {
            tell(system);
        }
    }
}

impl fmt::Debug for Incoming {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").field("me", &self.me).finish_non_exhaustive()
    }
}
