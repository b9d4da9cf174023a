//! A client of the control socket, used by the console, the exporter and tests.
//!
//! The client is blocking and has one connection. Received bytes are kept in a buffer of the
//! client, so a timeout in the middle of a frame loses nothing: the next call continues there.
//!
//! An ordinary case: a console of user 1000 connects to the socket of a program. The kernel reports
//! that the program belongs to user 1000, too. The client reads the hello, requests a snapshot, and
//! reads until the reply is complete.
//!
//! The race: the program may exit while the client waits for a reply. The client then finds the
//! connection closed, and the call fails with an error for which [`ConnectError::is_closed`] is
//! true.
//!
//! Steps of a connection:
//! 1. Connect, within [`CONNECT_TIMEOUT`].
//! 2. Before reading any byte, query the kernel for the user that listens. It must be the same
//!    user, or root; if the client runs as root, any user. Only Linux and Android have this check.
//! 3. Read the server's hello, within [`HELLO_TIMEOUT`].
//! 4. Send requests. A server drops a client that sends no request within 5 s.
//!
//! Invariants:
//! * EVERY WAIT ENDS, whatever the server sends in the meantime, and however slowly it reads
//!   requests.
//! * NO ALLOCATION BY DECLARED LENGTH: the buffer grows only with received bytes.
//! * THE SERVER IS NOT TRUSTED: bytes that are not a valid message end the connection with an
//!   error, never with a panic.

mod disconnector;
mod error;
mod open;

mod connection;
mod resolve;

#[cfg(test)]
mod tests;

pub use connection::{CONNECT_TIMEOUT, Client, DUMP_TIMEOUT, HELLO_TIMEOUT, REPLY_TIMEOUT, Update};
pub use disconnector::Disconnector;
pub use error::ConnectError;
pub use resolve::resolve;
