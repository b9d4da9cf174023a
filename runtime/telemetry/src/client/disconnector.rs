//! Ends a connection from another thread than the one that waits for a reply.

use std::os::fd::OwnedFd;

use rustix::net::{Shutdown, shutdown};

/// Ends the connection of a [`Client`](super::Client), also while a call waits for a reply.
/// [`Client::disconnector`](super::Client::disconnector) returns it.
///
/// ```no_run
/// use volt_telemetry::client::Client;
/// use volt_telemetry::dump::Query;
///
/// let mut client = Client::connect("/run/user/1000/volt/4711-7.sock".as_ref())?;
/// let disconnector = client.disconnector().expect("a free file descriptor");
/// let dump = std::thread::spawn(move || client.dump(None, &Query::default()));
/// // The dump is not needed any more.
/// disconnector.disconnect();
/// assert!(dump.join().unwrap().is_err_and(|error| error.is_closed()));
/// # Ok::<(), volt_telemetry::client::ConnectError>(())
/// ```
#[derive(Debug)]
pub struct Disconnector(OwnedFd);

impl Disconnector {
    /// `socket` is another descriptor of the connection.
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Ends the connection. A call that waits for a reply fails with an error for which
    /// [`ConnectError::is_closed`](super::ConnectError::is_closed) is true, as do later calls. Has
    /// no effect after the client was dropped.
    pub fn disconnect(&self) {
        // Fails only if the connection has ended already.
        let _is_ended = shutdown(&self.0, Shutdown::Both);
    }
}
