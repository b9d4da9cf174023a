//! The control socket's file and its listening end.
//!
//! The thread that builds the first runtime with a control socket opens one. The observer's thread
//! accepts clients from it.
//!
//! An ordinary case: program 812 starts. It unlinks the socket that a killed program left behind,
//! creates `812-STARTTIME.sock`, checks the file, and listens. When the last runtime that uses the
//! socket has ended, it unlinks the file.
//!
//! The race: another program starts, and finds the new socket between steps (4) and (6), when it
//! refuses connections as a stale one does. It leaves the file, because program 812 still runs.
//!
//! Protocol of opening:
//! 1. create or find the folder, and refuse it if it is not safe;
//! 2. unlink the sockets of programs that no longer run;
//! 3. create the socket and set mode 0600 *before* it is bound, so that other users can never
//!    connect. macOS and the BSDs allow that only afterwards; until then the folder protects it;
//! 4. bind;
//! 5. check the file in the folder: it must be a socket of mode 0600, and its inode is remembered;
//! 6. listen.
//!
//! Invariant: *only our own file is unlinked*: by the program that created it, not by a forked
//! child, and only while the name still refers to the inode of step (5).
//!
//! Rejected: changing the umask around `bind`, which affects other threads; abstract sockets, which
//! have no mode.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mio::net::UnixStream;
use rustix::fs::{AtFlags, FileType};
use rustix::io::Errno;
use volt_telemetry::socket::{self, Environment};

/// Connections that the kernel queues until they are accepted.
const BACKLOG: i32 = 16;

/// See the module documentation. Dropping it closes the socket and gives up the file.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: UnixListener,
    pub(super) file: Arc<SocketFile>,
}

/// The socket's file, which the last drop unlinks.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    dir: OwnedFd,
    name: String,
    /// Device and inode of the socket's file.
    inode: (u64, u64),
    /// The process id of the program that created it.
    pid: u32,
}

impl Listener {
    /// Opens this program's control socket.
    ///
    /// # Errors
    /// Errors of the folder, of the path and of the kernel. The text includes the remedy.
    pub(super) fn open(environment: &Environment) -> io::Result<Self> {
        let directory = environment.directory();
        let dir = socket::create_directory(&directory, environment.user_id).map_err(io::Error::other)?;
        let pid = std::process::id();
        let name = socket::file_name(pid, socket::own_start_time());
        let path = directory.join(&name);
        // Checked before anything is changed: the path may be too long.
        socket::address(&path).map_err(io::Error::other)?;
        socket::remove_stale(&directory, &dir, environment.user_id);

        let listener = match bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                // The name is unique to this process id and start time. So the file was left behind
                // by this program before an `exec`, or belongs to another copy of Volt in it.
                if socket::is_listening(&path)? {
                    let shown = path.display();
                    return Err(io::Error::other(format!(
                        "another copy of Volt in this program already listens at {shown}: build with one version of Volt"
                    )));
                }
                rustix::fs::unlinkat(&dir, &name, AtFlags::empty())?;
                bind(&path)
            }
            other => other,
        };
        let shown = path.display();
        let listener = listener.map_err(|error| io::Error::new(error.kind(), format!("bind {shown}: {error}")))?;
        let stat = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let inode = inode_of(&stat);
        let file = Arc::new(SocketFile { path, dir, name, inode, pid });
        let opened = Self { socket: listener.into(), file };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Socket || stat.st_mode & 0o077 != 0 {
            let mode = stat.st_mode & 0o777;
            return Err(io::Error::other(format!(
                "{} was created with mode {mode:04o} instead of 0600: set VOLT_SOCKET_DIR to a directory on another file system",
                opened.path().display()
            )));
        }
        rustix::net::listen(&opened.socket, BACKLOG)?;
        Ok(opened)
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Returns the next waiting connection.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there is none. Also returns the errors of the kernel.
    pub(super) fn accept(&self) -> io::Result<UnixStream> {
        // Not mio's listener: its `accept` panics if the path of the client has 108 bytes, the most
        // that Linux allows.
        let (socket, _) = self.socket.accept()?;
        socket.set_nonblocking(true)?;
        Ok(UnixStream::from_std(socket))
    }
}

impl SocketFile {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Unlinks the file, if it is still our own.
    pub(super) fn unlink(&self) {
        if self.pid != std::process::id() {
            return;
        }
        let stat = rustix::fs::statat(&self.dir, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        if stat.is_ok_and(|stat| inode_of(&stat) == self.inode) {
            // If it cannot be unlinked, it is stale from now on, and the next program that starts
            // tries again.
            let _ = rustix::fs::unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        self.unlink();
    }
}

/// Creates a non-blocking socket, bound to `path` with mode 0600, that does not listen yet.
fn bind(path: &Path) -> io::Result<OwnedFd> {
    let address = socket::address(path).map_err(io::Error::other)?;
    let fd = socket::stream_socket()?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    match rustix::fs::fchmod(&fd, mode) {
        Ok(()) => rustix::net::bind(&fd, &address)?,
        // macOS and the BSDs do not accept a mode for a socket without a name. Until it is named
        // and its mode is set, only the folder protects it.
        Err(Errno::INVAL) => {
            rustix::net::bind(&fd, &address)?;
            rustix::fs::chmod(path, mode)?;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(fd)
}

/// Returns device and inode. Their types differ between systems.
#[allow(clippy::unnecessary_cast)]
fn inode_of(stat: &rustix::fs::Stat) -> (u64, u64) {
    (stat.st_dev as u64, stat.st_ino as u64)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::observe::tests::Folder;

    #[test]
    fn the_socket_is_its_owners_only_and_goes_with_the_listener() {
        let folder = Folder::new();
        let listener = Listener::open(&folder.environment()).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(listener.path()), mode(&folder.sockets())), (0o600, 0o700));
        drop(listener);
        assert_eq!(folder.names(), [""; 0]);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_client_with_the_longest_path_is_accepted() {
        let folder = Folder::new();
        let listener = Listener::open(&folder.environment()).unwrap();
        // 108 bytes; the standard library allows one less.
        let begin = folder.sockets().join("").as_os_str().len();
        let path = folder.sockets().join("x".repeat(108 - begin));
        let client = socket::stream_socket().unwrap();
        rustix::net::bind(&client, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::connect(&client, &socket::address(listener.path()).unwrap()).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn a_forked_child_leaves_its_parents_socket() {
        let folder = Folder::new();
        let mut listener = Listener::open(&folder.environment()).unwrap();
        Arc::get_mut(&mut listener.file).unwrap().pid += 1;
        drop(listener);
        assert_eq!(folder.names().len(), 1);
    }

    #[test]
    fn a_socket_that_took_our_name_is_left() {
        let folder = Folder::new();
        let listener = Listener::open(&folder.environment()).unwrap();
        std::fs::remove_file(listener.path()).unwrap();
        let _other = std::os::unix::net::UnixListener::bind(listener.path()).unwrap();
        drop(listener);
        assert_eq!(folder.names().len(), 1);
    }

    #[test]
    fn a_socket_left_by_exec_is_replaced_and_a_live_one_is_not() {
        let folder = Folder::new();
        let mut former = Listener::open(&folder.environment()).unwrap();
        let error = Listener::open(&folder.environment()).unwrap_err();
        assert!(error.to_string().contains("another copy of Volt"), "{error}");
        Arc::get_mut(&mut former.file).unwrap().pid += 1;
        drop(former);
        let listener = Listener::open(&folder.environment()).expect("nobody listens there now");
        assert!(socket::is_listening(listener.path()).unwrap());
    }

    #[test]
    fn stale_sockets_are_cleaned_up_and_foreign_files_kept() {
        let folder = Folder::new();
        drop(Listener::open(&folder.environment()).unwrap());
        drop(std::os::unix::net::UnixListener::bind(folder.sockets().join("2000000001-1.sock")).unwrap());
        std::fs::write(folder.sockets().join("2000000002-1.sock"), "").unwrap();
        std::fs::write(folder.sockets().join("notes.txt"), "").unwrap();
        drop(Listener::open(&folder.environment()).unwrap());
        assert_eq!(folder.names(), ["2000000002-1.sock", "notes.txt"]);
    }
}
