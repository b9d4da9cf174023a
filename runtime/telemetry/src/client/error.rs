//! Why a client has no connection, or no longer one.

use crate::socket::SocketError;

/// Why there is no connection, or no longer one; the text says what to do.
#[derive(Debug)]
pub struct ConnectError {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Missing,
    NotASocket,
    Stale,
    ForeignOwner,
    NotVolt,
    WrongVersion,
    Closed,
    Permission,
    TimedOut,
    Busy,
    Answer,
    Ambiguous,
    Io,
}

impl ConnectError {
    pub(super) fn new(kind: Kind, message: String) -> Self {
        Self { kind, message }
    }

    /// There is no such socket.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// The path is something else than a socket.
    pub fn is_not_a_socket(&self) -> bool {
        self.kind == Kind::NotASocket
    }

    /// The socket's program has ended.
    pub fn is_stale(&self) -> bool {
        self.kind == Kind::Stale
    }

    /// Another user listens there.
    pub fn is_foreign_owner(&self) -> bool {
        self.kind == Kind::ForeignOwner
    }

    /// What came is not Volt's protocol.
    pub fn is_not_volt(&self) -> bool {
        self.kind == Kind::NotVolt
    }

    /// The server speaks another major version.
    pub fn is_wrong_version(&self) -> bool {
        self.kind == Kind::WrongVersion
    }

    /// The server closed the connection.
    pub fn is_closed(&self) -> bool {
        self.kind == Kind::Closed
    }

    /// This user may not connect.
    pub fn is_permission_denied(&self) -> bool {
        self.kind == Kind::Permission
    }

    /// The server did not react in time.
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::TimedOut
    }

    /// The server refused this client; as a rule it has as many as it serves.
    pub fn is_busy(&self) -> bool {
        self.kind == Kind::Busy
    }

    /// The server could not serve this request; the connection stays.
    pub fn is_answer(&self) -> bool {
        self.kind == Kind::Answer
    }

    /// The name fits several processes.
    pub fn is_ambiguous(&self) -> bool {
        self.kind == Kind::Ambiguous
    }
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConnectError {}

impl From<SocketError> for ConnectError {
    fn from(error: SocketError) -> Self {
        Self::new(Kind::Io, error.to_string())
    }
}
