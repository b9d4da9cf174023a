//! Connects to a control socket, and checks its owner before reading from it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;

use rustix::net::sockopt::{self, Timeout};

use super::error::{ConnectError, Kind};
use crate::socket;

pub(super) fn open(path: &Path, wait: Duration) -> Result<OwnedFd, ConnectError> {
    let shown = path.display();
    let io_error = |error: &dyn std::fmt::Display| ConnectError::new(Kind::Io, format!("{shown}: {error}"));
    let denied =
        || ConnectError::new(Kind::Permission, format!("{shown}: permission denied: attach as its user, or as root"));
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => missing(path),
        io::ErrorKind::PermissionDenied => denied(),
        _ => io_error(&error),
    })?;
    if !meta.file_type().is_socket() {
        return Err(ConnectError::new(Kind::NotASocket, format!("{shown} is not a socket")));
    }
    let address = socket::address(path)?;
    let fd = socket::stream_socket().map_err(|error| io_error(&error))?;
    // On Linux this also limits `connect`, which waits while the listener's queue is full.
    sockopt::set_socket_timeout(&fd, Timeout::Send, Some(wait)).map_err(|error| io_error(&error))?;
    let connected = rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address));
    connected.map_err(|error| match io::Error::from(error).kind() {
        io::ErrorKind::NotFound => missing(path),
        io::ErrorKind::PermissionDenied => denied(),
        io::ErrorKind::ConnectionRefused => {
            ConnectError::new(Kind::Stale, format!("{shown} is stale: its program has exited"))
        }
        io::ErrorKind::WouldBlock => ConnectError::new(
            Kind::TimedOut,
            format!("{shown} accepted no connection within {wait:?}: its program is stopped or overloaded"),
        ),
        _ if error == rustix::io::Errno::PROTOTYPE => {
            ConnectError::new(Kind::NotVolt, format!("{shown} is not a Volt control socket: it is not a stream socket"))
        }
        _ => io_error(&error),
    })?;
    Ok(fd)
}

pub(super) fn check_peer(path: &Path, socket: &OwnedFd) -> Result<(), ConnectError> {
    let own = rustix::process::geteuid().as_raw();
    match socket::peer_user(socket) {
        Ok(None) => Ok(()),
        Ok(Some(peer)) if peer == own || peer == 0 || own == 0 => Ok(()),
        Ok(Some(peer)) => Err(foreign(path, peer, own)),
        Err(error) => {
            let message = format!("{}: cannot determine its owner: {error}", path.display());
            Err(ConnectError::new(Kind::ForeignOwner, message))
        }
    }
}

pub(super) fn foreign(path: &Path, peer: u32, own: u32) -> ConnectError {
    let shown = path.display();
    let message = format!("{shown} belongs to user {peer}, but this is user {own}: attach as that user, or as root");
    ConnectError::new(Kind::ForeignOwner, message)
}

fn missing(path: &Path) -> ConnectError {
    ConnectError::new(Kind::Missing, format!("there is no socket {}", path.display()))
}
