//! Who is at the other end of a connection within this machine.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// Who made the other end of a [`UnixStream`](crate::net::UnixStream), as the kernel noted it down
/// when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UCred {
    pid: Option<i32>,
    uid: u32,
    gid: u32,
}

impl UCred {
    /// The user.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The process; `None` where the system does not say, as of one in a pid namespace that this
    /// process does not see.
    pub fn pid(&self) -> Option<i32> {
        self.pid
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn of_peer(stream: &UnixStream) -> io::Result<UCred> {
    // Not by rustix: for it no process is 0, and the kernel says so of one that it does not tell.
    let mut cred = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&cred) as libc::socklen_t;
    let place = (&raw mut cred).cast();
    // SAFETY: the descriptor is open as long as the stream is borrowed, and `len` bytes may be
    // written at `place`.
    match unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place, &mut len) } {
        0 => Ok(UCred { pid: (cred.pid != 0).then_some(cred.pid), uid: cred.uid, gid: cred.gid }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn of_peer(stream: &UnixStream) -> io::Result<UCred> {
    let (mut uid, mut gid) = (0, 0);
    // SAFETY: the descriptor is open as long as the stream is borrowed, and both places are written
    // to.
    match unsafe { libc::getpeereid(stream.as_raw_fd(), &mut uid, &mut gid) } {
        0 => Ok(UCred { pid: None, uid, gid }),
        _ => Err(io::Error::last_os_error()),
    }
}
