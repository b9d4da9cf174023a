//! A dump of another program, which ends when it is no longer needed.
//!
//! The thread that requests the dump blocks in the client of the control socket. The task that
//! waits for that thread cancels the dump if it is dropped, on any thread: it ends the connection,
//! and with it the client's wait. The program notices that, and stops making the dump.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use volt_telemetry::client::{Client, ConnectError, Disconnector};
use volt_telemetry::dump::{Dump, Query};

/// Requests a dump by the control socket at `path`. Blocks until it is complete or cancelled.
pub(super) fn dump(
    path: &Path,
    runtime: &str,
    query: &Query,
    cancellation: &Cancellation,
) -> Result<Dump, ConnectError> {
    let mut client = Client::connect(path)?;
    cancellation.follow(&client);
    client.dump(Some(runtime), query)
}

/// Ends the connection to a program whose reply is no longer needed.
#[derive(Clone, Debug, Default)]
pub(super) struct Cancellation(Arc<Mutex<Connection>>);

#[derive(Debug, Default)]
enum Connection {
    #[default]
    NotOpen,
    Open(Disconnector),
    Cancelled,
}

/// Cancels when it is dropped.
pub(super) struct CancelOnDrop(pub(super) Cancellation);

impl Cancellation {
    fn replace(&self, connection: Connection) -> Connection {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), connection)
    }

    /// Disconnects `client` when this is cancelled, or now if it was cancelled before.
    fn follow(&self, client: &Client) {
        // Without a free file descriptor, the dump cannot be cancelled.
        let Ok(disconnector) = client.disconnector() else { return };
        if let Connection::Cancelled = self.replace(Connection::Open(disconnector)) {
            self.cancel();
        }
    }

    fn cancel(&self) {
        if let Connection::Open(disconnector) = self.replace(Connection::Cancelled) {
            disconnector.disconnect();
        }
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::sync::mpsc;
    use std::thread;

    use volt_telemetry::wire::{self, Hello, MAX_REPLY_BYTES, MAX_REQUEST_BYTES};

    use super::*;

    #[test]
    fn a_dump_of_another_program_ends_when_it_is_cancelled() {
        let path = std::env::temp_dir().join(format!("volt-cancelled-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        let (is_requested, waits) = mpsc::channel();
        let server = thread::spawn(move || {
            for _ in 0..2 {
                let (socket, _) = listener.accept().unwrap();
                let hello = Hello { magic: wire::MAGIC.to_owned(), version: wire::VERSION, ..Hello::default() };
                wire::write_frame(&socket, &wire::Reply::Hello(hello), MAX_REPLY_BYTES).unwrap();
                // Until the connection ends.
                while let Ok(Some(wire::Request::Dump { .. })) = wire::read_frame(&socket, MAX_REQUEST_BYTES) {
                    is_requested.send(()).unwrap();
                }
            }
        });
        let cancellation = Cancellation::default();
        let request = || {
            let (path, cancellation) = (path.clone(), cancellation.clone());
            thread::spawn(move || dump(&path, "main", &Query::default(), &cancellation))
        };
        let (dump, cancels) = (request(), CancelOnDrop(cancellation.clone()));
        waits.recv().unwrap();
        drop(cancels);
        assert!(dump.join().unwrap().unwrap_err().is_closed());
        assert!(request().join().unwrap().unwrap_err().is_closed(), "it was cancelled before");
        server.join().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
