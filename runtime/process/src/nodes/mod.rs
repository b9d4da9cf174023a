//! The conversations with other nodes: the relay that carries bytes between nodes, and the format
//! of those bytes.
//!
//! A *node* is a system with a name. `relay` is the interface to the transport, and `hub` a
//! transport within one program. `frame` is the format. `line` is the conversation with one other
//! node, and `cluster` has all of them. `traffic` counts the frames. The module `remote` of the
//! crate has the operations on remote processes.

pub(crate) mod frame;
pub(crate) mod relay;
pub(crate) mod traffic;

mod hub;
pub(crate) mod line;

pub(crate) mod cluster;

pub use {
    frame::FRAME_BYTES_MAX,
    hub::{Hub, HubRelay},
    relay::{Incoming, Peer, Relay, RelayError},
    traffic::RelayCounts,
};
