//! The network interface that a socket is bound to (`SO_BINDTODEVICE`).

use std::io;
use std::os::fd::{AsRawFd, RawFd};

/// Returns the name of the interface, or `None` if the socket is bound to none.
pub(super) fn of(socket: &impl AsRawFd) -> io::Result<Option<Vec<u8>>> {
    let mut name = [0_u8; libc::IFNAMSIZ];
    let mut len = name.len() as libc::socklen_t;
    let (fd, place): (RawFd, _) = (socket.as_raw_fd(), name.as_mut_ptr().cast());
    // SAFETY: the descriptor is open as long as the socket is borrowed, and `place` points to `len`
    // writable bytes.
    if unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, place, &mut len) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // The kernel ends a name with a zero byte, and returns nothing if there is none.
    let name = name[..len as usize].split(|&byte| byte == 0).next().unwrap_or_default();
    Ok((!name.is_empty()).then(|| name.to_vec()))
}

/// Binds the socket to the interface of this name, or to none.
pub(super) fn bind(socket: &impl AsRawFd, interface: Option<&[u8]>) -> io::Result<()> {
    let name = interface.unwrap_or_default();
    let (fd, len): (RawFd, _) = (socket.as_raw_fd(), name.len() as libc::socklen_t);
    // SAFETY: the descriptor is open as long as the socket is borrowed, and the kernel reads `len`
    // bytes of `name`.
    match unsafe { libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name.as_ptr().cast(), len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Defines `device` and `bind_device` of a socket type. The last argument is its descriptor.
macro_rules! device {
    ($socket:ident, $self:ident => $fd:expr) => {
        impl $socket {
            /// Returns the name of the network interface that the socket is bound to, or `None` if
            /// it is bound to none (`SO_BINDTODEVICE`).
            ///
            /// # Errors
            /// Returns an error if the underlying system call fails.
            pub fn device(&$self) -> std::io::Result<Option<Vec<u8>>> {
                crate::net::device::of($fd)
            }

            /// Binds the socket to the network interface of this name. It then receives only from
            /// that interface, and sends only through it. `None` removes the binding
            /// (`SO_BINDTODEVICE`).
            ///
            /// # Errors
            /// Returns an OS error `ENODEV` if there is no such interface. Returns
            /// `PermissionDenied` if the socket is already bound to one, and the program has no
            /// right to change it. Also returns an error if the underlying system call fails.
            pub fn bind_device(&$self, interface: Option<&[u8]>) -> std::io::Result<()> {
                crate::net::device::bind($fd, interface)
            }
        }
    };
}

pub(super) use device;
