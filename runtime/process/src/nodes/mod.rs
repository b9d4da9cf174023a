//! Processes on other nodes: the relay that carries bytes between nodes, the format of those bytes,
//! and what happens to processes when a node is lost.

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
