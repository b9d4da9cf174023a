//! The client of a control socket: what console, exporter and tests attach with.
//!
//! Shape: blocking, one connection, one thread; every wait has an end. Bytes are gathered in a buffer of the client's own, so that
//! a time-out in the middle of a frame loses nothing and the next call goes on from there.
//!
//! Protocol. (1) Connect, within [`CONNECT_TIMEOUT`]. (2) Ask the kernel who listens there, before a byte is read: this user, or
//! root, or anybody if this is root. (3) Read the server's hello, within [`HELLO_TIMEOUT`]. (4) Ask; a server drops a client that
//! has asked nothing after 5 s.
//!
//! Invariants: *every wait has an end*, whatever the server says in between, or reads of what it is asked; *nothing is allocated by a
//! declared length*, the buffer grows by what has come; *a server is not trusted*, what is
//! not our protocol ends the connection with an error and never a panic.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};

use crate::processes::{self, ProcessList};
use crate::recording::flush::{Flush, Head};
use crate::snapshot::Process;
use crate::socket::{self, Candidate, Environment, SocketError};
use crate::tasks::{Query, TaskList};
use crate::why::Why;
use crate::wire::{self, Hello, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Recorder, Reply, Request, VERSION};

/// How long connecting may take; it takes long only while the server's queue of connections is full.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the server's hello may take.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the answer to a request may take.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
struct Waits {
    connect: Duration,
    hello: Duration,
    reply: Duration,
}

const WAITS: Waits = Waits { connect: CONNECT_TIMEOUT, hello: HELLO_TIMEOUT, reply: REPLY_TIMEOUT };

/// A connection to a running program.
///
/// ```no_run
/// use volt_telemetry::client::{Client, resolve};
/// use volt_telemetry::socket::Environment;
///
/// let path = resolve("4711", &Environment::of_process())?;
/// let mut client = Client::connect(&path)?;
/// let process = client.snapshot()?;
/// println!("{}: {} runtimes", client.hello().program, process.runtimes.len());
/// # Ok::<(), volt_telemetry::client::ConnectError>(())
/// ```
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    socket: OwnedFd,
    /// Bytes that have come; the first `taken` of them are of frames that were taken.
    inbox: Vec<u8>,
    taken: usize,
    hello: Hello,
    reply_wait: Duration,
}

/// One snapshot of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The numbers.
    pub process: Process,
    /// Snapshots of this connection that were skipped so far because it read too slowly.
    pub lost: u64,
}

impl Client {
    /// Attaches to the control socket at `path`.
    ///
    /// # Errors
    /// Says whether the socket is missing, stale, foreign, no control socket, of another version, busy or silent; see
    /// [`ConnectError`].
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        Self::connect_within(path, WAITS)
    }

    fn connect_within(path: &Path, waits: Waits) -> Result<Self, ConnectError> {
        let socket = open(path, waits.connect)?;
        check_peer(path, &socket)?;
        let (path, hello) = (path.to_path_buf(), Hello::default());
        let mut client = Self { path, socket, inbox: Vec::new(), taken: 0, hello, reply_wait: waits.reply };
        client.hello = client.read_hello(waits.hello)?;
        Ok(client)
    }

    fn read_hello(&mut self, wait: Duration) -> Result<Hello, ConnectError> {
        let path = self.path.display().to_string();
        let is_volt = |hello: &Hello| hello.magic == wire::MAGIC;
        match self.receive(Instant::now().checked_add(wait)) {
            Ok(Some(Reply::Hello(hello))) if is_volt(&hello) && hello.version.major == VERSION.major => Ok(hello),
            Ok(Some(Reply::Hello(hello))) if is_volt(&hello) => Err(ConnectError::new(
                Kind::WrongVersion,
                format!(
                    "{path} speaks version {} of the control protocol, this program speaks {VERSION}: use the console of Volt {}",
                    hello.version, hello.volt
                ),
            )),
            Ok(Some(Reply::Error { message })) => Err(ConnectError::new(Kind::Busy, format!("{path}: {message}"))),
            Ok(Some(_)) => Err(not_volt(&path, "it said something else than hello")),
            Ok(None) => Err(ConnectError::new(
                Kind::TimedOut,
                format!(
                    "{path} accepted the connection and did not say hello within {wait:?}: \
                     its process is stopped or is no Volt program"
                ),
            )),
            Err(error) => Err(error),
        }
    }

    /// What the server said of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The path that it is attached to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All runtimes of the program at one moment, taken after this call began. On a connection that has subscribed, the next
    /// snapshot that comes.
    ///
    /// # Errors
    /// [`ConnectError::is_timeout`] after [`REPLY_TIMEOUT`]: connect anew, since the answer may still come.
    /// [`ConnectError::is_closed`]; [`ConnectError::is_answer`], after which the connection stays.
    pub fn snapshot(&mut self) -> Result<Process, ConnectError> {
        self.ask(&Request::Snapshot, |reply| match reply {
            Reply::Snapshot { process, .. } => Some(*process),
            _ => None,
        })
    }

    /// Asks for a snapshot now and then every `interval`; [`Client::next`] gives them. A later call changes the interval.
    ///
    /// # Errors
    /// [`ConnectError::is_closed`], [`ConnectError::is_timeout`].
    pub fn subscribe(&mut self, interval: Duration) -> Result<(), ConnectError> {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(wire::MIN_INTERVAL_MS);
        self.send(&Request::Subscribe { interval_ms })
    }

    /// The next snapshot of the subscription; `None` when none came within `timeout`. Nothing is lost by a time-out.
    ///
    /// # Errors
    /// [`ConnectError::is_closed`] when the program ended. [`ConnectError::is_answer`] when the server could not take this one;
    /// the connection stays.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Update>, ConnectError> {
        // A newer server may send what this client does not know.
        self.next_that(Instant::now().checked_add(timeout), |reply| match reply {
            Reply::Snapshot { process, lost } => Some(Update { process: *process, lost }),
            _ => None,
        })
    }

    /// Begins to record what happens on the workers of `runtime`, the only one if it is not named: [`Client::next_flush`] gives it. The flight
    /// recorder is on until this client is dropped. With `look_back`, what it still has of that time comes first.
    ///
    /// # Errors
    /// [`ConnectError::is_wrong_version`] if the program is too old for that; [`ConnectError::is_answer`] if there is no such runtime, or several;
    /// [`ConnectError::is_closed`], [`ConnectError::is_timeout`].
    pub fn record(&mut self, runtime: Option<&str>, look_back: Duration) -> Result<Head, ConnectError> {
        self.check_minor(1, "record")?;
        let look_back_ms = u64::try_from(look_back.as_millis()).unwrap_or(u64::MAX);
        self.ask(&Request::Record { runtime: runtime.map(str::to_owned), look_back_ms }, |reply| match reply {
            Reply::Recording { head } => Some(*head),
            _ => None,
        })
    }

    /// The next flush of the recording, or piece of one; `None` when none came within `timeout`. Nothing is lost by a time-out.
    ///
    /// # Errors
    /// [`ConnectError::is_closed`] when the program ended; [`ConnectError::is_answer`] when its runtime did.
    pub fn next_flush(&mut self, timeout: Duration) -> Result<Option<Flush>, ConnectError> {
        self.next_that(Instant::now().checked_add(timeout), |reply| match reply {
            Reply::Flush { flush } => Some(*flush),
            _ => None,
        })
    }

    /// Whether the flight recorder of `runtime`, the only one if it is not named, is on; with `is_on`, switches it first.
    ///
    /// # Errors
    /// As [`Client::record`].
    pub fn recorder(&mut self, runtime: Option<&str>, is_on: Option<bool>) -> Result<Recorder, ConnectError> {
        self.check_minor(1, "switch the flight recorder")?;
        self.ask(&Request::Recorder { runtime: runtime.map(str::to_owned), is_on }, |reply| match reply {
            Reply::Recorder(recorder) => Some(recorder),
            _ => None,
        })
    }

    /// Why the task of this id or name was polled last, in `runtime`, the only one if it is not named.
    ///
    /// # Errors
    /// As [`Client::record`]; [`ConnectError::is_answer`] also if there is no such task.
    pub fn why(&mut self, runtime: Option<&str>, task: &str) -> Result<Why, ConnectError> {
        self.check_minor(1, "say why a task was polled")?;
        let (runtime, task) = (runtime.map(str::to_owned), task.to_owned());
        self.ask(&Request::Why { runtime, task }, |reply| match reply {
            Reply::Why(why) => Some(why),
            _ => None,
        })
    }

    /// The tasks of `runtime`, the only one if it is not named, that `query` asks for.
    ///
    /// # Errors
    /// As [`Client::record`].
    pub fn tasks(&mut self, runtime: Option<&str>, query: &Query) -> Result<TaskList, ConnectError> {
        self.check_minor(2, "list its tasks")?;
        let (runtime, query) = (runtime.map(str::to_owned), query.clone());
        self.ask(&Request::Tasks { runtime, query }, |reply| match reply {
            Reply::Tasks(list) => Some(*list),
            _ => None,
        })
    }

    /// The processes of `runtime`, the only one if it is not named, that `query` asks for: state machines with mailboxes.
    ///
    /// # Errors
    /// As [`Client::record`].
    pub fn processes(&mut self, runtime: Option<&str>, query: &processes::Query) -> Result<ProcessList, ConnectError> {
        self.check_minor(3, "list its processes")?;
        let (runtime, query) = (runtime.map(str::to_owned), query.clone());
        self.ask(&Request::Processes { runtime, query }, |reply| match reply {
            Reply::Processes(list) => Some(*list),
            _ => None,
        })
    }

    /// A server that is older does not know the request.
    fn check_minor(&self, minor: u32, what: &str) -> Result<(), ConnectError> {
        let version = self.hello.version;
        if version.minor >= minor {
            return Ok(());
        }
        let (path, volt) = (self.path.display(), &self.hello.volt);
        let message = format!(
            "{path} speaks version {version} of the control protocol and cannot {what}, which takes {}.{minor}: \
             build the program with a newer Volt than {volt}",
            VERSION.major
        );
        Err(ConnectError::new(Kind::WrongVersion, message))
    }

    /// Asks, and waits for the reply of which `take` makes something.
    fn ask<T>(&mut self, request: &Request, take: impl Fn(Reply) -> Option<T>) -> Result<T, ConnectError> {
        self.send(request)?;
        let wait = self.reply_wait;
        self.next_that(Instant::now().checked_add(wait), take)?.ok_or_else(|| {
            let path = self.path.display();
            let message = format!("{path} did not answer within {wait:?}: its process is stopped or overloaded");
            ConnectError::new(Kind::TimedOut, message)
        })
    }

    /// The next reply of which `take` makes something; others are passed over, as long as there is time.
    fn next_that<T>(
        &mut self,
        deadline: Option<Instant>,
        take: impl Fn(Reply) -> Option<T>,
    ) -> Result<Option<T>, ConnectError> {
        loop {
            match self.receive(deadline)? {
                Some(Reply::Error { message }) => {
                    return Err(ConnectError::new(Kind::Answer, format!("{}: {message}", self.path.display())));
                }
                Some(reply) => {
                    if let Some(taken) = take(reply) {
                        return Ok(Some(taken));
                    }
                    // A server that never stops talking of something else has not answered either.
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return Ok(None);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    fn send(&mut self, request: &Request) -> Result<(), ConnectError> {
        let frame = wire::encode(request, MAX_REQUEST_BYTES).map_err(|error| self.broken(error))?;
        let begun = Instant::now();
        let mut rest = &frame[..];
        while !rest.is_empty() {
            // The kernel takes 0 for "without end".
            let wait = self.reply_wait.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
            let set = sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(wait));
            set.map_err(|error| self.broken(error.into()))?;
            let count = socket::send(&self.socket, rest).map_err(|error| self.broken(error))?;
            rest = &rest[count..];
            // One that reads a byte now and then does not read.
            if !rest.is_empty() && begun.elapsed() >= self.reply_wait {
                return Err(self.broken(io::ErrorKind::WouldBlock.into()));
            }
        }
        Ok(())
    }

    /// The next whole frame; `None` at the deadline. Without a deadline it waits for ever.
    fn receive(&mut self, deadline: Option<Instant>) -> Result<Option<Reply>, ConnectError> {
        let mut buffer = vec![0; READ_BYTES];
        let mut has_looked = false;
        loop {
            if let Some(reply) = self.take_frame()? {
                return Ok(Some(reply));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Not before one look at the socket, so that a time-out of 0 means "what is there already".
            if has_looked && left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            has_looked = true;
            // The kernel takes 0 for "without end".
            let wait = left.map(|left| left.max(Duration::from_millis(1)));
            sockopt::set_socket_timeout(&self.socket, Timeout::Recv, wait)
                .map_err(|error| self.broken(error.into()))?;
            self.inbox.drain(..std::mem::take(&mut self.taken));
            match socket::receive(&self.socket, &mut buffer) {
                Ok(0) => return Err(self.closed()),
                Ok(count) => self.inbox.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(self.broken(error)),
            }
        }
    }

    fn take_frame(&mut self) -> Result<Option<Reply>, ConnectError> {
        let come = &self.inbox[self.taken..];
        let Some(prefix) = come.first_chunk::<4>() else { return Ok(None) };
        let length = wire::body_len(*prefix, MAX_REPLY_BYTES).map_err(|error| self.garbage(&error))?;
        let Some(body) = come[4..].get(..length) else { return Ok(None) };
        let reply = wire::decode(body).map_err(|error| self.garbage(&error))?;
        self.taken += 4 + length;
        Ok(Some(reply))
    }

    fn garbage(&self, error: &io::Error) -> ConnectError {
        not_volt(&self.path.display().to_string(), &error.to_string())
    }

    fn closed(&self) -> ConnectError {
        let path = self.path.display();
        let message = if self.hello.magic.is_empty() {
            format!("{path} closed the connection without a hello: its program is ending, or is no Volt program")
        } else {
            format!("{path} closed the connection: the program or its last runtime has ended")
        };
        ConnectError::new(Kind::Closed, message)
    }

    fn broken(&self, error: io::Error) -> ConnectError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.closed(),
            io::ErrorKind::WouldBlock => {
                ConnectError::new(Kind::TimedOut, format!("{} does not read its requests", self.path.display()))
            }
            _ => ConnectError::new(Kind::Io, format!("{}: {error}", self.path.display())),
        }
    }
}

fn open(path: &Path, wait: Duration) -> Result<OwnedFd, ConnectError> {
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
    // On Linux this bounds connecting too, which waits while the listener's queue is full.
    sockopt::set_socket_timeout(&fd, Timeout::Send, Some(wait)).map_err(|error| io_error(&error))?;
    let connected = rustix::io::retry_on_intr(|| rustix::net::connect(&fd, &address));
    connected.map_err(|error| match io::Error::from(error).kind() {
        io::ErrorKind::NotFound => missing(path),
        io::ErrorKind::PermissionDenied => denied(),
        io::ErrorKind::ConnectionRefused => ConnectError::new(
            Kind::Stale,
            format!("{shown} is stale: nobody listens there any more, its program has ended"),
        ),
        io::ErrorKind::WouldBlock => ConnectError::new(
            Kind::TimedOut,
            format!("{shown} took no connection within {wait:?}: its process is stopped or overloaded"),
        ),
        _ if error == rustix::io::Errno::PROTOTYPE => {
            ConnectError::new(Kind::NotVolt, format!("{shown} is not a control socket of Volt's: no stream socket"))
        }
        _ => io_error(&error),
    })?;
    Ok(fd)
}

fn check_peer(path: &Path, socket: &OwnedFd) -> Result<(), ConnectError> {
    let own = rustix::process::geteuid().as_raw();
    match socket::peer_user(socket) {
        Ok(None) => Ok(()),
        Ok(Some(peer)) if peer == own || peer == 0 || own == 0 => Ok(()),
        Ok(Some(peer)) => Err(foreign(path, peer, own)),
        Err(error) => {
            let message = format!("{}: cannot tell whose it is: {error}", path.display());
            Err(ConnectError::new(Kind::ForeignOwner, message))
        }
    }
}

fn foreign(path: &Path, peer: u32, own: u32) -> ConnectError {
    let shown = path.display();
    let message = format!("{shown} belongs to user {peer}, this is user {own}: attach as that user, or as root");
    ConnectError::new(Kind::ForeignOwner, message)
}

fn missing(path: &Path) -> ConnectError {
    ConnectError::new(Kind::Missing, format!("there is no socket {}", path.display()))
}

fn not_volt(path: &str, why: &str) -> ConnectError {
    ConnectError::new(Kind::NotVolt, format!("{path} is not a control socket of Volt's: {why}"))
}

/// The socket that `target` means: a path (with a `/`), a pid, or the name of a program or of one of its runtimes.
///
/// Root finds another user's process by pid.
///
/// # Errors
/// [`ConnectError::is_missing`], [`ConnectError::is_stale`] for the pid of a process that has ended,
/// [`ConnectError::is_ambiguous`] for a name that several processes bear.
pub fn resolve(target: &str, environment: &Environment) -> Result<PathBuf, ConnectError> {
    if target.contains('/') {
        return Ok(target.into());
    }
    match target.parse() {
        Ok(pid) => resolve_pid(pid, environment),
        Err(_) => resolve_name(target, environment),
    }
}

fn resolve_pid(pid: u32, environment: &Environment) -> Result<PathBuf, ConnectError> {
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid());
    let mut listing = socket::list(environment);
    if let Some(user_id) = owner.filter(|user| environment.user_id == 0 && *user != 0) {
        let theirs = socket::list(&Environment { socket_dir: None, runtime_dir: None, user_id });
        listing.sockets.extend(theirs.sockets);
        listing.refused.extend(theirs.refused);
    }
    let mut found: Vec<Candidate> = listing.sockets.into_iter().filter(|socket| socket.pid == pid).collect();
    found.sort_by_key(|socket| (socket.is_alive, socket.start_time));
    if let Some(socket) = found.pop() {
        if socket.is_alive {
            return Ok(socket.path);
        }
        let message = format!("{} is stale: process {pid} has ended", socket.path.display());
        return Err(ConnectError::new(Kind::Stale, message));
    }
    let why = if owner.is_some() || !Path::new("/proc/self").exists() {
        "it runs no Volt runtime with a control socket, or belongs to another user"
    } else {
        "there is no such process"
    };
    Err(not_found(&format!("process {pid} has no control socket: {why}"), environment, &listing.refused))
}

fn resolve_name(name: &str, environment: &Environment) -> Result<PathBuf, ConnectError> {
    let listing = socket::list(environment);
    let mut matching = Vec::new();
    for socket in listing.sockets.into_iter().filter(|socket| socket.is_alive) {
        // One that does not answer has no name to match.
        let Ok(client) = Client::connect(&socket.path) else { continue };
        if client.hello.program == name || client.hello.runtimes.iter().any(|runtime| runtime == name) {
            matching.push(socket);
        }
    }
    match &matching[..] {
        [only] => Ok(only.path.clone()),
        [] => Err(not_found(&format!("no program or runtime is called {name:?}"), environment, &listing.refused)),
        several => {
            let pids: Vec<_> = several.iter().map(|socket| socket.pid.to_string()).collect();
            let message = format!("{name:?} is the name of several processes, give one's pid: {}", pids.join(", "));
            Err(ConnectError::new(Kind::Ambiguous, message))
        }
    }
}

fn not_found(what: &str, environment: &Environment, refused: &[SocketError]) -> ConnectError {
    let dirs: Vec<_> = environment.directories().iter().map(|dir| dir.display().to_string()).collect();
    let mut message = format!("{what} (looked in {})", dirs.join(", "));
    for error in refused {
        message.push_str(&format!("; {error}"));
    }
    ConnectError::new(Kind::Missing, message)
}

/// Why there is no connection, or no longer one; the text says what to do.
#[derive(Debug)]
pub struct ConnectError {
    kind: Kind,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Missing,
    NotASocket,
    Stale,
    ForeignOwner,
    NotVolt,
    WrongVersion,
    Closed,
    Permission,
    TimedOut,
    Busy,
    Answer,
    Ambiguous,
    Io,
}

impl ConnectError {
    fn new(kind: Kind, message: String) -> Self {
        Self { kind, message }
    }

    /// There is no such socket.
    pub fn is_missing(&self) -> bool {
        self.kind == Kind::Missing
    }

    /// The path is something else than a socket.
    pub fn is_not_a_socket(&self) -> bool {
        self.kind == Kind::NotASocket
    }

    /// The socket's program has ended.
    pub fn is_stale(&self) -> bool {
        self.kind == Kind::Stale
    }

    /// Another user listens there.
    pub fn is_foreign_owner(&self) -> bool {
        self.kind == Kind::ForeignOwner
    }

    /// What came is not Volt's protocol.
    pub fn is_not_volt(&self) -> bool {
        self.kind == Kind::NotVolt
    }

    /// The server speaks another major version.
    pub fn is_wrong_version(&self) -> bool {
        self.kind == Kind::WrongVersion
    }

    /// The server closed the connection.
    pub fn is_closed(&self) -> bool {
        self.kind == Kind::Closed
    }

    /// This user may not connect.
    pub fn is_permission_denied(&self) -> bool {
        self.kind == Kind::Permission
    }

    /// The server did not react in time.
    pub fn is_timeout(&self) -> bool {
        self.kind == Kind::TimedOut
    }

    /// The server refused this client; as a rule it has as many as it serves.
    pub fn is_busy(&self) -> bool {
        self.kind == Kind::Busy
    }

    /// The server could not serve this request; the connection stays.
    pub fn is_answer(&self) -> bool {
        self.kind == Kind::Answer
    }

    /// The name fits several processes.
    pub fn is_ambiguous(&self) -> bool {
        self.kind == Kind::Ambiguous
    }
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ConnectError {}

impl From<SocketError> for ConnectError {
    fn from(error: SocketError) -> Self {
        Self::new(Kind::Io, error.to_string())
    }
}

#[cfg(test)]
mod tests;
