//! The error of a client that cannot connect or has lost its connection.

use crate::socket::SocketError;

/// Error returned when connecting or a request fails. The message contains a remedy, unless there
/// is none or it is obvious.
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

    /// Returns `true` if there is no such socket.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// Returns `true` if the path is not a socket.
    pub fn is_not_a_socket(&self) -> bool {
        self.kind == Kind::NotASocket
    }

    /// Returns `true` if no program listens on the socket, usually because its program has exited.
    pub fn is_stale(&self) -> bool {
        self.kind == Kind::Stale
    }

    /// Returns `true` if the socket belongs to another user, or the kernel does not report to whom.
    pub fn is_foreign_owner(&self) -> bool {
        self.kind == Kind::ForeignOwner
    }

    /// Returns `true` if the received bytes are not Volt's protocol.
    pub fn is_not_volt(&self) -> bool {
        self.kind == Kind::NotVolt
    }

    /// Returns `true` if the server's protocol version is not compatible.
    pub fn is_wrong_version(&self) -> bool {
        self.kind == Kind::WrongVersion
    }

    /// Returns `true` if the server closed the connection.
    pub fn is_closed(&self) -> bool {
        self.kind == Kind::Closed
    }

    /// Returns `true` if this user may not connect.
    pub fn is_permission_denied(&self) -> bool {
        self.kind == Kind::Permission
    }

    /// Returns `true` if the server did not respond in time.
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::TimedOut
    }

    /// Returns `true` if the server refused this client, usually because it has the maximum number
    /// of clients.
    pub fn is_busy(&self) -> bool {
        self.kind == Kind::Busy
    }

    /// Returns `true` if the server could not serve this request. The connection stays open.
    pub fn is_answer(&self) -> bool {
        self.kind == Kind::Answer
    }

    /// Returns `true` if several programs have the name.
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
