//! Processes on other nodes: the relay that carries bytes between nodes, the format of those bytes,
//! and what happens to processes when a node is lost.
//!
//! A *node* is a system with a name. `relay` is the interface to the transport, and `hub` a
//! transport within one program. `frame` is the format. `line` is the conversation with one other
//! node, and `cluster` has all of them. `remote` sends frames, `hearing` handles those that arrive,
//! and `traffic` counts both.

pub(crate) mod cluster;
pub(crate) mod frame;
pub(crate) mod hearing;
mod hub;
mod line;
pub(crate) mod relay;
pub(crate) mod remote;
mod traffic;

pub use {
    frame::FRAME_BYTES_MAX,
    hub::{Hub, HubRelay},
    relay::{Incoming, Peer, Relay, RelayError},
    remote::LookupError,
    traffic::RelayCounts,
};
