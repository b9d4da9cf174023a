//! Unix domain sockets, which connect programs on the same machine, and pipes.
//!
//! The address of a Unix socket is a path. On Linux, a path that begins with a zero byte is an
//! abstract name: it exists in no file system, and disappears with its socket. Any other path
//! remains when its socket is closed. Remove the file before you bind to the same path again.

mod cred;
pub(super) mod datagram;
mod halves;
pub(super) mod listener;
pub mod pipe;
pub(super) mod stream;

use std::io;
use std::path::Path;
use std::time::Duration;

pub use cred::UCred;
pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
#[doc(no_inline)]
pub use std::os::unix::net::SocketAddr;

/// The first wait before an attempt is repeated because a queue was full. It is used for queues for
/// which the kernel sends no event when they have room. The wait doubles up to [`MAX_RETRY`].
const MIN_RETRY: Duration = Duration::from_millis(1);
/// See [`MIN_RETRY`].
const MAX_RETRY: Duration = Duration::from_millis(32);

/// Converts a path to a socket address.
fn address(path: &Path) -> io::Result<SocketAddr> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::ffi::OsStrExt;

        if let [0, name @ ..] = path.as_os_str().as_bytes() {
            return SocketAddr::from_abstract_name(name);
        }
    }
    SocketAddr::from_pathname(path)
}
