//! Credentials of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use crate::net::unix::{gid_t, pid_t, uid_t};

/// Credentials of the process at the other end of a [`UnixStream`](crate::net::UnixStream).
/// Returned by [`UnixStream::peer_cred`](crate::net::UnixStream::peer_cred).
///
/// The kernel records them when that process calls `connect`, `listen` or `socketpair`. They do not
/// change if the process changes its user, or passes the socket to another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct UCred {
    pid: Option<pid_t>,
    uid: uid_t,
    gid: gid_t,
}

impl UCred {
    /// Returns the user ID of the process.
    pub fn uid(&self) -> uid_t {
        self.uid
    }

    /// Returns the group ID of the process.
    pub fn gid(&self) -> gid_t {
        self.gid
    }

    /// Returns the process ID of the process.
    ///
    /// Returns `None` if the system does not report it: on systems other than Linux and Android,
    /// and for a process in a PID namespace that is not visible to this process.
    pub fn pid(&self) -> Option<pid_t> {
        self.pid
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn of_peer(stream: &UnixStream) -> io::Result<UCred> {
    // Not through rustix: its process IDs cannot be 0, which is what the kernel returns for a
    // process that it does not report.
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&cred) as libc::socklen_t;
    let place = (&raw mut cred).cast();
    // SAFETY: the descriptor is open as long as the stream is borrowed, and `place` points to `len`
    // writable bytes.
    match unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut len) } {
        0 => Ok(UCred { pid: (cred.pid != 0).then_some(cred.pid), uid: cred.uid, gid: cred.gid }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn of_peer(stream: &UnixStream) -> io::Result<UCred> {
    let (mut uid, mut gid) = (0, 0);
    // SAFETY: the descriptor is open as long as the stream is borrowed, and both pointers are
    // writable.
    match unsafe { libc::getpeereid(stream.as_raw_fd(), &mut uid, &mut gid) } {
        0 => Ok(UCred { pid: None, uid, gid }),
        _ => Err(io::Error::last_os_error()),
    }
}
