//! Sockets of this machine, with a path for an address, and pipes.
//!
//! On Linux a path that begins with a zero byte is an abstract name: it is in no file system, and
//! gone with its socket. A path stays when its socket is closed: whoever binds to it again has to
//! remove it first.

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

/// First wait of an attempt that found a queue full of which nothing tells when it has room;
/// doubled up to the second.
const MIN_RETRY: Duration = Duration::from_millis(1);
/// See [`MIN_RETRY`].
const MAX_RETRY: Duration = Duration::from_millis(32);

/// The address that a path is.
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
