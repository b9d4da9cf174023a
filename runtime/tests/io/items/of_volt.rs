//! The lists, compiled with Volt's types.

use volt::{fs, io, net, process, signal};

#[path = "sockets.rs"]
pub mod sockets;

#[path = "system.rs"]
pub mod system;

#[path = "unix.rs"]
pub mod unix;
