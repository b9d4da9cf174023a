//! Processes on other nodes: what carries bytes between nodes, what the bytes mean, and what becomes of processes when a node is lost.

pub(super) mod frame;
pub(super) mod hearing;
mod hub;
mod line;
pub(super) mod relay;
pub(super) mod remote;
mod traffic;

pub use {
    hub::{Hub, HubRelay},
    relay::{FRAME_BYTES_MAX, Incoming, Peer, Relay, RelayError},
    remote::LookupError,
    traffic::RelayCounts,
};
