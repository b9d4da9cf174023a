//! Where control sockets are, what they are called, and which of them answer.
//!
//! Shape: one folder a user, mode 0700: `$VOLT_SOCKET_DIR`, else `$XDG_RUNTIME_DIR/volt`, else
//! `/tmp/volt-UID`. In it one socket a process, mode 0600, called `PID-STARTTIME.sock`. The start
//! time tells a process from a later one that got the same pid.
//!
//! Who writes: a process that runs Volt makes the folder and its own socket, and unlinks that one
//! and those of the dead. Who reads: consoles and exporters.
//!
//! Invariants. *A folder that others could write to is refused, not repaired*: it must be ours, a
//! folder and no link, 0700. A remedy that changes it is named only if the folder is plainly for
//! this and nobody shares it. *A socket is dead only when nobody listens and its process is gone*:
//! one that is bound and about to listen refuses connections too. *No name is followed blindly*:
//! what does not parse is not ours and is left alone.
//!
//! The environment is passed in as [`Environment`], so that tests need not change that of their
//! process.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawMode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketType};

/// Longest path that a socket address holds, bytes; the kernel's `sun_path` less its closing zero.
pub const MAX_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };
/// Sockets read in one folder; more are left out and reported in [`Listing::refused`].
pub const MAX_SOCKETS: usize = 1024;
/// The bit of a folder's mode by which only owners remove what is in it: that of `/tmp`.
const STICKY: RawMode = 0o1000;
/// The bits of a folder's mode by which its group and everybody write to it.
const WRITABLE_BY_OTHERS: RawMode = 0o022;

/// What decides where this user's control sockets are.
///
/// ```
/// use volt_telemetry::socket::Environment;
/// let environment = Environment { socket_dir: None, runtime_dir: Some("/run/user/7".into()), user_id: 7 };
/// assert_eq!(environment.directory().to_str(), Some("/run/user/7/volt"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// `VOLT_SOCKET_DIR`: the folder itself.
    pub socket_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`: the parent of the folder.
    pub runtime_dir: Option<PathBuf>,
    /// The user who must own the folder.
    pub user_id: u32,
}

impl Environment {
    /// That of this process and its effective user.
    ///
    /// `XDG_RUNTIME_DIR` counts only when it is absolute and that user's own: under `sudo` it is
    /// often still somebody else's.
    pub fn of_process() -> Self {
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

    /// Where a process with this environment puts its socket.
    pub fn directory(&self) -> PathBuf {
        match (&self.socket_dir, &self.runtime_dir) {
            (Some(dir), _) => dir.clone(),
            (None, Some(dir)) => dir.join("volt"),
            (None, None) => self.fallback(),
        }
    }

    /// Where the sockets of this user's processes may be: a service seldom has the environment of a
    /// shell.
    ///
    /// Only `VOLT_SOCKET_DIR`, when it is set.
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

/// Why a control socket's folder or path cannot be used; the text says what to do.
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

    /// The folder does not exist.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// The path is longer than [`MAX_PATH_BYTES`].
    pub fn is_path_too_long(&self) -> bool {
        self.kind == Kind::TooLong
    }

    /// The folder is a link, somebody else's, or open to others.
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

/// Opens the folder of control sockets, and makes it first if it is not there.
///
/// # Errors
/// [`open_directory`]'s, and those of the kernel when the folder cannot be made.
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

/// Opens the folder of control sockets, if it is one that nobody but `user_id` can write to.
///
/// # Errors
/// [`SocketError::is_missing`], and [`SocketError::is_refused`] for a folder that is not safe to
/// use.
pub fn open_directory(path: &Path, user_id: u32) -> Result<OwnedFd, SocketError> {
    // Without a closing slash, behind which even O_NOFOLLOW would follow a link.
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
            let remedy = if is_named_for_us(path, user_id) { "remove it, or set" } else { "name a directory in" };
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
    // Others that use the folder would be shut out of it: `chmod 700 /tmp` stops a machine.
    let is_shared = mode & (STICKY | WRITABLE_BY_OTHERS) != 0 || !is_named_for_us(path, user_id) && mode & 0o077 != 0;
    refused(if is_shared {
        format!(
            "socket directory {shown} (mode {mode:04o}) is shared with other users: \
             name a folder of your own in VOLT_SOCKET_DIR, of mode 0700 or one that is to be made"
        )
    } else {
        format!(
            "socket directory {shown} has mode {mode:04o} but must have 0700: chmod 700 {shown}, or set VOLT_SOCKET_DIR"
        )
    })
}

/// Whether the folder bears a name that we give: what it is there for is known, and may be changed.
///
/// `volt` alone is one only where nobody else comes, as in `XDG_RUNTIME_DIR`; elsewhere it may be
/// what a program was installed to.
fn is_named_for_us(path: &Path, user_id: u32) -> bool {
    let is_private =
        |dir: &Path| std::fs::metadata(dir).is_ok_and(|meta| meta.uid() == user_id && meta.mode() & 0o077 == 0);
    match path.file_name().and_then(|name| name.to_str()) {
        Some("volt") => path.parent().is_some_and(is_private),
        name => name.is_some_and(|name| name == format!("volt-{user_id}")),
    }
}

/// The address of a socket at `path`.
///
/// # Errors
/// [`SocketError::is_path_too_long`] above [`MAX_PATH_BYTES`].
pub fn address(path: &Path) -> Result<SocketAddrUnix, SocketError> {
    let length = path.as_os_str().as_bytes().len();
    if length > MAX_PATH_BYTES {
        let message = format!("socket path has {length} bytes, but the limit is {MAX_PATH_BYTES}: set VOLT_SOCKET_DIR");
        return Err(SocketError::new(Kind::TooLong, message));
    }
    SocketAddrUnix::new(path)
        .map_err(|error| SocketError::new(Kind::Io, format!("{} is not a socket path: {error}", path.display())))
}

/// The name of a process's socket.
pub fn file_name(pid: u32, start_time: u64) -> String {
    format!("{pid}-{start_time}.sock")
}

/// Pid and start time from a name that [`file_name`] made; `None` for any other.
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

/// When process `pid` started, in clock ticks since boot; `None` when there is no such process, or
/// no `/proc`.
pub fn start_time_of(pid: u32) -> Option<u64> {
    parse_start_time(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// When this process started: [`start_time_of`] itself, or where there is no `/proc`, the µs since
/// 1970 when it first asked.
pub fn own_start_time() -> u64 {
    static FIRST_ASKED: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
    start_time_of(std::process::id()).unwrap_or_else(|| {
        *FIRST_ASKED.get_or_init(|| {
            let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
        })
    })
}

/// Field 22 of `/proc/PID/stat`. Field 2 is the program's name in brackets and may hold anything,
/// brackets too.
fn parse_start_time(stat: &[u8]) -> Option<u64> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = stat[after_name..].split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    std::str::from_utf8(fields.nth(19)?).ok()?.trim_end().parse().ok()
}

/// Whether the process that made a socket of this name may still be there.
pub fn is_process_alive(pid: u32, start_time: u64) -> bool {
    if let Some(found) = start_time_of(pid) {
        return found == start_time;
    }
    let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    raw.is_some_and(|pid| !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH)))
}

/// A stream socket that is closed on `exec` and raises no SIGPIPE through [`send`].
///
/// # Errors
/// The kernel's: too many open files, out of memory.
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

/// Sends what the kernel takes of `bytes`; to a connection that is closed it fails with
/// `BrokenPipe`, without a SIGPIPE.
///
/// # Errors
/// The kernel's.
pub fn send(to: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    #[cfg(not(target_vendor = "apple"))]
    let flags = SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    let flags = SendFlags::empty();
    Ok(rustix::io::retry_on_intr(|| rustix::net::send(&to, bytes, flags))?)
}

/// Receives into `buffer`; 0 when the other side has closed the connection.
///
/// # Errors
/// The kernel's.
pub fn receive(from: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (received, _) = rustix::io::retry_on_intr(|| rustix::net::recv(&from, &mut *buffer, RecvFlags::empty()))?;
    Ok(received)
}

/// The user at the other end, as the kernel knows it; of a listener, who made it listen. `None`
/// where the system cannot tell.
///
/// # Errors
/// The kernel's. A peer whose process this pid namespace cannot see is an error too.
pub fn peer_user(socket: impl AsFd) -> io::Result<Option<u32>> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    return match rustix::net::sockopt::socket_peercred(socket) {
        Ok(peer) => Ok(Some(peer.uid.as_raw())),
        // It answers with process 0, which is nobody's.
        Err(error) if error.raw_os_error() == 0 => Err(io::Error::other(
            "its process is in a pid namespace that this one does not see: share it (in Kubernetes shareProcessNamespace: true)",
        )),
        Err(error) => Err(error.into()),
    };
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = socket;
        Ok(None)
    }
}

/// The process at the other end, as the kernel knows it from when the connection was made; `None`
/// where nobody can tell.
pub fn peer_process(socket: impl AsFd) -> Option<u32> {
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

/// Whether somebody listens at `path`. Does not wait.
///
/// # Errors
/// Those of the kernel but "connection refused", which means that nobody does.
pub fn is_listening(path: &Path) -> io::Result<bool> {
    let address = address(path).map_err(io::Error::other)?;
    let socket = stream_socket()?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    match rustix::net::connect(&socket, &address) {
        // A full queue of connections is somebody's.
        Ok(()) | Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A control socket that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Where it is.
    pub path: PathBuf,
    /// The process that made it.
    pub pid: u32,
    /// That process's start time.
    pub start_time: u64,
    /// Whether somebody listens; else it is stale: its process ended without unlinking it.
    pub is_alive: bool,
}

/// The control sockets of a user.
#[derive(Debug, Default)]
pub struct Listing {
    /// By pid, then start time.
    pub sockets: Vec<Candidate>,
    /// Folders and sockets that exist and could not be read.
    pub refused: Vec<SocketError>,
}

/// Every control socket that a user with this environment may attach to.
///
/// Connects to each for a moment, to tell the living from the stale.
pub fn list(environment: &Environment) -> Listing {
    let mut listing = Listing::default();
    for dir in environment.directories() {
        match list_directory(&dir, environment.user_id, &mut listing) {
            Ok(()) => {}
            Err(error) if error.is_missing() => {}
            Err(error) => listing.refused.push(error),
        }
    }
    listing.sockets.sort_by_key(|found| (found.pid, found.start_time));
    listing
}

fn list_directory(path: &Path, user_id: u32, listing: &mut Listing) -> Result<(), SocketError> {
    let dir = open_directory(path, user_id)?;
    for (pid, start_time) in sockets_in(path, &dir, &mut listing.refused)? {
        let file = path.join(file_name(pid, start_time));
        match is_listening(&file) {
            Ok(is_alive) => listing.sockets.push(Candidate { path: file, pid, start_time, is_alive }),
            // It was unlinked since the folder was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                listing.refused.push(SocketError::new(Kind::Io, format!("{}: {error}", file.display())));
            }
        }
    }
    Ok(())
}

/// Unlinks the sockets of `user_id`'s processes that have ended, and returns how many. `dir` is the
/// folder at `path`, open.
///
/// What cannot be read or unlinked stays: it does no harm.
pub fn remove_stale(path: &Path, dir: impl AsFd, user_id: u32) -> usize {
    let Ok(found) = sockets_in(path, &dir, &mut Vec::new()) else { return 0 };
    let is_dead = |pid, start_time| {
        !is_process_alive(pid, start_time)
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

/// Pid and start time of every socket in the folder that bears a name of ours.
fn sockets_in(path: &Path, dir: impl AsFd, refused: &mut Vec<SocketError>) -> Result<Vec<(u32, u64)>, SocketError> {
    let unreadable = |error| SocketError::new(Kind::Io, format!("socket directory {}: {error}", path.display()));
    let mut found = Vec::new();
    for entry in rustix::fs::Dir::read_from(&dir).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let Some(name) = entry.file_name().to_str().ok().and_then(parse_file_name) else { continue };
        // What is no socket would look stale: connecting to it is refused too.
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
