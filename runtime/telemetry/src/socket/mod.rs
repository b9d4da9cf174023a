//! The paths and names of control sockets, and the detection of those that are in use.
//!
//! Each program that runs Volt listens on one *control socket*, through which consoles and
//! exporters read its state. All sockets of a user are in one directory of mode 0700:
//! `$VOLT_SOCKET_DIR`, else `$XDG_RUNTIME_DIR/volt`, else `/tmp/volt-UID`. Each socket has mode
//! 0600 and the name `PID-STARTTIME.sock`. The start time distinguishes a program from a later one
//! with the same pid.
//!
//! A program creates its socket, and the directory if necessary. It removes its own socket and
//! those of programs that have exited. Consoles and exporters only read the directory.
//!
//! Invariants:
//! * UNSAFE DIRECTORIES ARE REFUSED, NOT REPAIRED. The directory must belong to this user, must not
//!   be a link, and must have mode 0700. An error message suggests changing the directory only if
//!   it clearly exists for this purpose and is not shared.
//! * DEAD ONLY IF CERTAIN: a socket is dead only if nothing listens on it and its program has
//!   exited. A socket that is bound but does not listen yet refuses connections too.
//! * FOREIGN NAMES ARE LEFT ALONE: a file whose name does not parse is ignored.
//!
//! The environment is passed in as [`Environment`], so that tests need not change the environment
//! of their program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

mod found;

pub use found::{Candidate, Listing, list};

/// Maximum length of a socket path in bytes: the kernel's `sun_path` without its terminating zero.
pub const MAX_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// Maximum number of sockets read in one directory. The excess is skipped and reported in
/// [`Listing::refused`].
pub const MAX_SOCKETS: usize = 1024;
/// The sticky bit of a directory's mode, as on `/tmp`: only owners can remove files in it.
const STICKY: RawMode = 0o1000;
/// The bits of a directory's mode that let its group and other users write to it.
const WRITABLE_BY_OTHERS: RawMode = 0o022;

/// The environment that determines where this user's control sockets are.
///
/// ```
/// use volt_telemetry::socket::Environment;
/// let environment = Environment { socket_dir: None, runtime_dir: Some("/run/user/7".into()), user_id: 7 };
/// assert_eq!(environment.directory().to_str(), Some("/run/user/7/volt"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `VOLT_SOCKET_DIR`: the directory itself.
    pub socket_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`: the parent of the directory.
    pub runtime_dir: Option<PathBuf>,
    /// The user who must own the directory.
    pub user_id: u32,
}

impl Environment {
    /// Returns the environment of this program and its effective user.
    ///
    /// `XDG_RUNTIME_DIR` is used only if it is absolute and belongs to that user. Under `sudo` it
    /// often still belongs to another user.
    pub fn of_program() -> Self {
        let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let user_id = rustix::process::geteuid().as_raw();
        let is_own =
            |dir: &PathBuf| dir.is_absolute() && std::fs::metadata(dir).is_ok_and(|meta| meta.uid() == user_id);
        Self {
            socket_dir: variable("VOLT_SOCKET_DIR").map(|dir| std::path::absolute(&dir).unwrap_or(dir)),
            runtime_dir: variable("XDG_RUNTIME_DIR").filter(is_own),
            user_id,
        }
    }

    /// Returns the directory in which a program with this environment creates its socket.
    pub fn directory(&self) -> PathBuf {
        match (&self.socket_dir, &self.runtime_dir) {
            (Some(dir), _) => dir.clone(),
            (None, Some(dir)) => dir.join("volt"),
            (None, None) => self.fallback(),
        }
    }

    /// Returns the directories that may contain sockets of this user's programs. There are several
    /// because a service rarely has the environment of a shell.
    ///
    /// If `VOLT_SOCKET_DIR` is set, returns only that directory.
    pub fn directories(&self) -> Vec<PathBuf> {
        if let Some(dir) = &self.socket_dir {
            return vec![dir.clone()];
        }
        let login = PathBuf::from(format!("/run/user/{}/volt", self.user_id));
        let mut dirs = vec![self.directory(), login, self.fallback()];
        let mut seen = Vec::new();
        dirs.retain(|dir| {
            let is_new = !seen.contains(dir);
            seen.push(dir.clone());
            is_new
        });
        dirs
    }

    fn fallback(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/volt-{}", self.user_id))
    }
}

/// Error returned when a control socket's directory or path cannot be used. The message contains a
/// remedy, unless there is none or it is obvious.
#[derive(Debug)]
pub struct SocketError {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Missing,
    TooLong,
    Refused,
    Io,
}

impl SocketError {
    fn new(kind: Kind, message: String) -> Self {
        Self { kind, message }
    }

    /// Returns `true` if the directory does not exist.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// Returns `true` if the path is longer than [`MAX_PATH_BYTES`].
    pub fn is_path_too_long(&self) -> bool {
        self.kind == Kind::TooLong
    }

    /// Returns `true` if the directory is a link or not a directory, belongs to another user, or
    /// does not have mode 0700.
    pub fn is_refused(&self) -> bool {
        self.kind == Kind::Refused
    }
}

impl std::fmt::Display for SocketError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for SocketError {}

/// Opens the directory of control sockets, and creates it first if it does not exist.
///
/// # Errors
/// Returns the errors of [`open_directory`], and an error if the directory cannot be created.
pub fn create_directory(path: &Path, user_id: u32) -> Result<OwnedFd, SocketError> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => open_directory(path, user_id),
        Err(error) => {
            let path = path.display();
            let message = format!(
                "socket directory {path} cannot be created ({error}): make its parent writable, or set VOLT_SOCKET_DIR"
            );
            Err(SocketError::new(Kind::Io, message))
        }
    }
}

/// Opens the directory of control sockets, and checks that only `user_id` can access it.
///
/// # Errors
/// Returns an error for which [`SocketError::is_missing`] is true if the directory does not exist,
/// or [`SocketError::is_refused`] if it is not safe to use. Also returns the errors of the kernel.
pub fn open_directory(path: &Path, user_id: u32) -> Result<OwnedFd, SocketError> {
    // Without a trailing slash: with one, the kernel follows a link despite O_NOFOLLOW.
    let path = path.components().as_path();
    let shown = path.display();
    let refused = |message| Err(SocketError::new(Kind::Refused, message));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => {
            return Err(SocketError::new(Kind::Missing, format!("there is no socket directory {shown}")));
        }
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let remedy = if is_named_for_us(path, user_id) { "remove it, or set" } else { "change" };
            return refused(format!("socket directory {shown} is a link or not a directory: {remedy} VOLT_SOCKET_DIR"));
        }
        Err(error) => return Err(SocketError::new(Kind::Io, format!("socket directory {shown}: {error}"))),
    };
    let stat = rustix::fs::fstat(&dir)
        .map_err(|error| SocketError::new(Kind::Io, format!("socket directory {shown}: {error}")))?;
    if stat.st_uid != user_id {
        return refused(format!(
            "socket directory {shown} belongs to user {}, not to user {user_id}: set VOLT_SOCKET_DIR to a directory of your own",
            stat.st_uid
        ));
    }
    let mode = stat.st_mode & 0o7777;
    if mode & 0o777 == 0o700 {
        return Ok(dir);
    }
    // The `chmod` remedy would lock out other users of a shared directory: `chmod 700 /tmp` breaks
    // a machine.
    let is_shared = mode & (STICKY | WRITABLE_BY_OTHERS) != 0 || !is_named_for_us(path, user_id) && mode & 0o077 != 0;
    refused(if is_shared {
        format!(
            "socket directory {shown} (mode {mode:04o}) is shared with other users: \
             set VOLT_SOCKET_DIR to a directory of your own with mode 0700"
        )
    } else {
        format!("socket directory {shown} has mode {mode:04o} but must have 0700: chmod 700 {shown}")
    })
}

/// Returns `true` if the directory has a name that Volt itself gives, so that changing its mode is
/// safe.
///
/// The name `volt` counts only inside a private parent, such as `XDG_RUNTIME_DIR`. Elsewhere it may
/// be the directory of an installed program.
fn is_named_for_us(path: &Path, user_id: u32) -> bool {
    let is_private =
        |dir: &Path| std::fs::metadata(dir).is_ok_and(|meta| meta.uid() == user_id && meta.mode() & 0o077 == 0);
    match path.file_name().and_then(|name| name.to_str()) {
        Some("volt") => path.parent().is_some_and(is_private),
        name => name.is_some_and(|name| name == format!("volt-{user_id}")),
    }
}

/// Returns the address of a socket at `path`.
///
/// # Errors
/// Returns an error for which [`SocketError::is_path_too_long`] is true above [`MAX_PATH_BYTES`].
pub fn address(path: &Path) -> Result<SocketAddrUnix, SocketError> {
    let length = path.as_os_str().as_bytes().len();
    if length > MAX_PATH_BYTES {
        let message = format!("socket path has {length} bytes, but the limit is {MAX_PATH_BYTES}: set VOLT_SOCKET_DIR");
        return Err(SocketError::new(Kind::TooLong, message));
    }
    SocketAddrUnix::new(path)
        .map_err(|error| SocketError::new(Kind::Io, format!("{} is not a socket path: {error}", path.display())))
}

/// Returns the file name of a program's socket.
pub fn file_name(pid: u32, start_time: u64) -> String {
    format!("{pid}-{start_time}.sock")
}

/// Parses pid and start time from a name made by [`file_name`]. Returns `None` for any other name.
///
/// ```
/// use volt_telemetry::socket::{file_name, parse_file_name};
/// assert_eq!(parse_file_name(&file_name(17, 4_096)), Some((17, 4_096)));
/// assert_eq!(parse_file_name("017-4096.sock"), None);
/// ```
pub fn parse_file_name(name: &str) -> Option<(u32, u64)> {
    let (pid, start_time) = name.strip_suffix(".sock")?.split_once('-')?;
    let (pid, start_time) = (pid.parse().ok()?, start_time.parse().ok()?);
    (file_name(pid, start_time) == name).then_some((pid, start_time))
}

/// Returns when process `pid` started, in clock ticks since boot. Returns `None` if there is no
/// such process, or no `/proc`.
pub fn start_time_of(pid: u32) -> Option<u64> {
    parse_start_time(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns when this program started, like [`start_time_of`]. Without `/proc`, returns the time of
/// the first call instead, in µs since 1970.
pub fn own_start_time() -> u64 {
    static FIRST_VALUE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    start_time_of(std::process::id()).unwrap_or_else(|| {
        *FIRST_VALUE.get_or_init(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
    })
}

/// Parses field 22 of `/proc/PID/stat`. Field 2 is the program's name in parentheses, which may
/// itself contain parentheses and spaces.
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat[after_name..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    std::str::from_utf8(fields.nth(19)?).ok()?.trim_end().parse().ok()
}

/// Returns `true` if the program that created a socket of this name may still be running.
pub fn is_program_alive(pid: u32, start_time: u64) -> bool {
    if let Some(found) = start_time_of(pid) {
        return found == start_time;
    }
    let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    raw.is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH)))
}

/// Creates a stream socket that is closed on `exec` and raises no SIGPIPE in [`send`].
///
/// # Errors
/// Returns the error of the kernel, such as too many open files or out of memory.
pub fn stream_socket() -> io::Result<OwnedFd> {
    #[cfg(not(target_vendor = "apple"))]
    let fd =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, rustix::net::SocketFlags::CLOEXEC, None)?;
    #[cfg(target_vendor = "apple")]
    let fd = {
        let fd = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        rustix::net::sockopt::set_socket_nosigpipe(&fd, true)?;
        fd
    };
    Ok(fd)
}

/// Sends as many of `bytes` as the kernel accepts, and returns how many.
///
/// # Errors
/// Returns the error of the kernel. On a closed connection this is `BrokenPipe`, without a SIGPIPE.
pub fn send(to: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::empty();
    Ok(rustix::io::retry_on_intr(|| rustix::net::send(&to, bytes, flags))?)
}

/// Receives into `buffer`. Returns 0 if the peer has closed the connection.
///
/// # Errors
/// Returns the error of the kernel.
pub fn receive(from: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (received, _) = rustix::io::retry_on_intr(|| rustix::net::recv(&from, &mut *buffer, RecvFlags::empty()))?;
    Ok(received)
}

/// Returns the user of the peer, as reported by the kernel; for a listener, the user that called
/// `listen`. Returns `None` on systems other than Linux and Android.
///
/// # Errors
/// Returns the error of the kernel. Also fails if the peer's process is not visible in this pid
/// namespace.
pub fn peer_user(socket: impl AsFd) -> io::Result<Option<u32>> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return match rustix::net::sockopt::socket_peercred(socket) {
        Ok(peer) => Ok(Some(peer.uid.as_raw())),
        // The kernel then reports process id 0, which is no process.
        Err(error) if error.raw_os_error() == 0 => Err(io::Error::other(
            "its program is in another pid namespace: share the namespace (in Kubernetes: shareProcessNamespace: true)",
        )),
        Err(error) => Err(error.into()),
    };
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = socket;
        Ok(None)
    }
}

/// Returns the process id of the peer, which the kernel stored when the connection was made.
/// Returns `None` where it is not available.
pub fn peer_pid(socket: impl AsFd) -> Option<u32> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return rustix::net::sockopt::socket_peercred(socket)
        .ok()
        .map(|peer| peer.pid.as_raw_nonzero().get().unsigned_abs());
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = socket;
        None
    }
}

/// Returns `true` if a program listens at `path`. Does not wait.
///
/// # Errors
/// Returns the error of [`address`] or of the kernel, except "connection refused", which means that
/// no program listens.
pub fn is_listening(path: &Path) -> io::Result<bool> {
    let address = address(path).map_err(io::Error::other)?;
    let socket = stream_socket()?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        // AGAIN means that the listener's queue of connections is full.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Removes the sockets of `user_id`'s programs that have exited, and returns how many were removed.
/// `dir` is the open directory at `path`.
///
/// Sockets that cannot be checked or removed stay; they do no harm.
pub fn remove_stale(path: &Path, dir: impl AsFd, user_id: u32) -> usize {
    let Ok(found) = sockets_in(path, &dir, &mut Vec::new()) else { return 0 };
    let is_dead = |pid, start_time| {
        !is_program_alive(pid, start_time)
            && is_listening(&path.join(file_name(pid, start_time))).is_ok_and(|is_alive| !is_alive)
    };
    let mut removed = 0;
    for (pid, start_time) in found {
        let name = file_name(pid, start_time);
        let is_ours = || {
            let stat = rustix::fs::statat(&dir, &name, AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| stat.st_uid == user_id)
        };
        if is_dead(pid, start_time) && is_ours() && rustix::fs::unlinkat(&dir, &name, AtFlags::empty()).is_ok() {
            removed += 1;
        }
    }
    removed
}

/// Returns pid and start time of every socket in the directory that has a valid name.
fn sockets_in(path: &Path, dir: impl AsFd, refused: &mut Vec<SocketError>) -> Result<Vec<(u32, u64)>, SocketError> {
    let unreadable = |error| SocketError::new(Kind::Io, format!("socket directory {}: {error}", path.display()));
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Some(name) = entry.file_name().to_str().ok().and_then(parse_file_name) else { continue };
        // Skip other kinds of files. Connecting to them is refused as well, so they would look
        // stale.
        match rustix::fs::statat(&dir, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Socket => {}
            _ => continue,
        }
        if found.len() == MAX_SOCKETS {
            let shown = path.display();
            let message =
                format!("socket directory {shown} has more than {MAX_SOCKETS} sockets: the others were skipped");
            refused.push(SocketError::new(Kind::Io, message));
            break;
        }
        found.push(name);
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
