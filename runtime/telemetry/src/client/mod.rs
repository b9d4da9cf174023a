//! The client of a control socket: what console, exporter and tests attach with.
//!
//! Shape: blocking, one connection, one thread; every wait has an end. Bytes are gathered in a
//! buffer of the client's own, so that a time-out in the middle of a frame loses nothing and the
//! next call goes on from there.
//!
//! Protocol. (1) Connect, within [`CONNECT_TIMEOUT`]. (2) Ask the kernel who listens there, before
//! a byte is read: this user, or root, or anybody if this is root. (3) Read the server's hello,
//! within [`HELLO_TIMEOUT`]. (4) Ask; a server drops a client that has asked nothing after 5 s.
//!
//! Invariants: *every wait has an end*, whatever the server says in between, or reads of what it is
//! asked; *nothing is allocated by a declared length*, the buffer grows by what has come; *a server
//! is not trusted*, what is not our protocol ends the connection with an error and never a panic.

mod connection;
mod error;
mod open;
mod resolve;

#[cfg(test)]
mod tests;

pub use connection::{CONNECT_TIMEOUT, Client, HELLO_TIMEOUT, REPLY_TIMEOUT, Update};
pub use error::ConnectError;
pub use resolve::resolve;
