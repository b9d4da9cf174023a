//! The lists, compiled with Tokio's types.

use tokio::{fs, io, net, process, signal};

#[path = "sockets.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod sockets;

#[path = "system.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod system;

#[path = "unix.rs"]
#[expect(clippy::duplicate_mod, reason = "one list, compiled twice")]
pub mod unix;
