//! Unix domain sockets, which connect programs on the same machine, and pipes.
//!
//! The address of a Unix socket is a path. On Linux, a path that begins with a zero byte is an
//! abstract name: it exists in no file system, and disappears with its socket. Any other path
//! remains when its socket is closed. Remove the file before you bind to the same path again.

mod cred;
mod socket_addr;
pub(super) mod stream;

pub(super) mod datagram;
mod halves;
pub(super) mod listener;
pub mod pipe;
pub(super) mod socket;

use std::io;
use std::os::unix::net;
use std::path::Path;
use std::time::Duration;

pub use cred::UCred;
pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use socket_addr::SocketAddr;

/// A user ID.
#[allow(non_camel_case_types, reason = "Tokio's name")]
pub type uid_t = u32;
/// A group ID.
#[allow(non_camel_case_types, reason = "Tokio's name")]
pub type gid_t = u32;
/// The ID of an operating-system process or of a group of them.
#[allow(non_camel_case_types, reason = "Tokio's name")]
pub type pid_t = i32;

/// The first wait before an attempt is repeated because a queue was full. It is used for queues for
/// which the kernel sends no event when they have room. The wait doubles up to [`MAX_RETRY`].
const MIN_RETRY: Duration = Duration::from_millis(1);
/// See [`MIN_RETRY`].
const MAX_RETRY: Duration = Duration::from_millis(32);

/// Converts a path to a socket address.
fn address(path: &Path) -> io::Result<net::SocketAddr> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;

        if let [0, name @ ..] = path.as_os_str().as_bytes() {
            return net::SocketAddr::from_abstract_name(name);
        }
    }
    net::SocketAddr::from_pathname(path)
}
