//! One connection to a running program: requests, and the replies to them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};

use super::disconnector::Disconnector;
use super::error::{ConnectError, Kind};
use super::open::{check_peer, open};
use crate::dump::{self, Dump};
use crate::processes::{self, ProcessList};
use crate::recording::flush::{Flush, Head};
use crate::snapshot::Program;
use crate::socket;
use crate::tasks::{Query, TaskList};
use crate::why::Why;
use crate::wire::{self, Hello, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Recorder, Reply, Request, VERSION};

/// Maximum time to connect. Connecting takes long only while the server's queue of connections is
/// full.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time to wait for the server's hello.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum time to wait for the reply to a request.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time to wait for a task dump. A program makes a dump for up to 20 s, and then needs a
/// few seconds to resolve it.
pub const DUMP_TIMEOUT: Duration = Duration::from_secs(40);
/// Size of the read buffer in bytes.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// The timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) connect: Duration,
    pub(super) hello: Duration,
    pub(super) reply: Duration,
    pub(super) dump: Duration,
}

const WAITS: Waits = Waits { connect: CONNECT_TIMEOUT, hello: HELLO_TIMEOUT, reply: REPLY_TIMEOUT, dump: DUMP_TIMEOUT };

/// A connection to a running program.
///
/// ```no_run
/// use volt_telemetry::client::{Client, resolve};
/// use volt_telemetry::socket::Environment;
///
/// let path = resolve("4711", &Environment::of_program())?;
/// let mut client = Client::connect(&path)?;
/// let program = client.snapshot()?;
/// println!("{}: {} runtimes", client.hello().program, program.runtimes.len());
/// # Ok::<(), volt_telemetry::client::ConnectError>(())
/// ```
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    socket: OwnedFd,
    /// Received bytes. The first `taken` of them belong to frames that were already returned.
    pub(super) inbox: Vec<u8>,
    pub(super) taken: usize,
    hello: Hello,
    pub(super) reply_wait: Duration,
    pub(super) dump_wait: Duration,
    /// The time until which the server delays this client's requests, if it announced that.
    throttled_until: Option<Instant>,
}

/// One snapshot of a subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// The snapshot.
    pub program: Program,
    /// Number of snapshots of this connection that were skipped so far because the client read too
    /// slowly.
    pub lost: u64,
}

impl Client {
    /// Connects to the control socket at `path`.
    ///
    /// # Errors
    /// Returns a [`ConnectError`] if the socket is missing, stale, owned by another user or not a
    /// control socket, or if the server has another version, is busy or does not respond.
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        Self::connect_within(path, WAITS)
    }

    pub(super) fn connect_within(path: &Path, waits: Waits) -> Result<Self, ConnectError> {
        let socket = open(path, waits.connect)?;
        check_peer(path, &socket)?;
        let (path, hello) = (path.to_path_buf(), Hello::default());
        let Waits { reply: reply_wait, dump: dump_wait, .. } = waits;
        let (inbox, throttled_until) = (Vec::new(), None);
        let mut client = Self { path, socket, inbox, taken: 0, hello, reply_wait, dump_wait, throttled_until };
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
                    "{path} uses version {} of the control protocol, but this program uses {VERSION}: use the console of Volt {}",
                    hello.version, hello.volt
                ),
            )),
            Ok(Some(Reply::Error { message })) => Err(ConnectError::new(Kind::Busy, format!("{path}: {message}"))),
            Ok(Some(_)) => Err(not_volt(&path, "its first message is not a hello")),
            Ok(None) => Err(ConnectError::new(
                Kind::TimedOut,
                format!(
                    "{path} accepted the connection but sent no hello within {wait:?}: \
                     its program is stopped, or is not a Volt program"
                ),
            )),
            Err(error) => Err(error),
        }
    }

    /// Returns a [`Disconnector`], which ends this connection from another thread. The program
    /// stops making a dump whose client has disconnected.
    ///
    /// # Errors
    /// Returns an error if this process has too many open files.
    pub fn disconnector(&self) -> io::Result<Disconnector> {
        Ok(Disconnector::new(self.socket.try_clone()?))
    }

    /// Returns the server's hello.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a snapshot of all runtimes, taken after this call began. On a connection with a
    /// subscription, returns the next snapshot that arrives.
    ///
    /// # Errors
    /// Returns an error for which one of these is true:
    /// - [`ConnectError::is_timeout`] after [`REPLY_TIMEOUT`]. Connect again then, because the late
    ///   reply may still arrive.
    /// - [`ConnectError::is_closed`]
    /// - [`ConnectError::is_answer`] if the server could not serve the request. The connection
    ///   stays open.
    pub fn snapshot(&mut self) -> Result<Program, ConnectError> {
        self.request(&Request::Snapshot, |reply| match reply {
            Reply::Snapshot { program, .. } => Some(*program),
            _ => None,
        })
    }

    /// Subscribes to snapshots: one immediately, then one every `interval`, but at least
    /// [`MIN_INTERVAL_MS`](wire::MIN_INTERVAL_MS) apart. [`Client::next`] returns them. A later
    /// call changes the interval.
    ///
    /// # Errors
    /// Returns an error for which [`ConnectError::is_closed`] or [`ConnectError::is_timeout`] is
    /// true.
    pub fn subscribe(&mut self, interval: Duration) -> Result<(), ConnectError> {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(wire::MIN_INTERVAL_MS);
        self.send(&Request::Subscribe { interval_ms })
    }

    /// Returns the next snapshot of the subscription, or `None` if none arrives within `timeout`. A
    /// timeout loses nothing.
    ///
    /// # Errors
    /// Returns an error for which one of these is true:
    /// - [`ConnectError::is_closed`] if the program ended
    /// - [`ConnectError::is_answer`] if the server could not take this snapshot. The connection
    ///   stays open.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Update>, ConnectError> {
        // A newer server may send replies of unknown types.
        self.next_that(Instant::now().checked_add(timeout), |reply| match reply {
            Reply::Snapshot { program, lost } => Some(Update { program: *program, lost }),
            _ => None,
        })
    }

    /// Starts to record what the workers of `runtime` do; [`Client::next_flush`] returns the data.
    ///
    /// `runtime` may be `None` if there is only one. The flight recorder is on at least until this
    /// client is dropped. The recording begins with the last `before` of events, as far as the
    /// recorder still has them.
    ///
    /// # Errors
    /// Returns an error for which one of these is true:
    /// - [`ConnectError::is_wrong_version`] if the program is too old
    /// - [`ConnectError::is_answer`] if there is no such runtime, or there are several
    /// - [`ConnectError::is_closed`]
    /// - [`ConnectError::is_timeout`]
    pub fn record(&mut self, runtime: Option<&str>, before: Duration) -> Result<Head, ConnectError> {
        self.check_minor(1, "record")?;
        let before_ms = u64::try_from(before.as_millis()).unwrap_or(u64::MAX);
        self.request(&Request::Record { runtime: runtime.map(str::to_owned), before_ms }, |reply| match reply {
            Reply::Recording { head } => Some(*head),
            _ => None,
        })
    }

    /// Returns the next flush of the recording, or a piece of one, or `None` if none arrives within
    /// `timeout`. A timeout loses nothing.
    ///
    /// # Errors
    /// Returns an error for which one of these is true:
    /// - [`ConnectError::is_closed`] if the program ended
    /// - [`ConnectError::is_answer`] if its runtime ended
    pub fn next_flush(&mut self, timeout: Duration) -> Result<Option<Flush>, ConnectError> {
        self.next_that(Instant::now().checked_add(timeout), |reply| match reply {
            Reply::Flush { flush } => Some(*flush),
            _ => None,
        })
    }

    /// Returns the state of the flight recorder of `runtime`, after switching it on or off if
    /// `is_on` is `Some`.
    ///
    /// `runtime` may be `None` if there is only one.
    ///
    /// # Errors
    /// Same as [`Client::record`].
    pub fn recorder(&mut self, runtime: Option<&str>, is_on: Option<bool>) -> Result<Recorder, ConnectError> {
        self.check_minor(1, "switch the flight recorder")?;
        self.request(&Request::Recorder { runtime: runtime.map(str::to_owned), is_on }, |reply| match reply {
            Reply::Recorder(recorder) => Some(recorder),
            _ => None,
        })
    }

    /// Returns why the task with this id or name was polled last. Of several tasks with the name,
    /// it is the one that was woken the longest time ago.
    ///
    /// `runtime` may be `None` if there is only one.
    ///
    /// # Errors
    /// Same as [`Client::record`]. [`ConnectError::is_answer`] is also true if there is no such
    /// task.
    pub fn why(&mut self, runtime: Option<&str>, task: &str) -> Result<Why, ConnectError> {
        self.check_minor(1, "report why a task was polled")?;
        let (runtime, task) = (runtime.map(str::to_owned), task.to_owned());
        self.request(&Request::Why { runtime, task }, |reply| match reply {
            Reply::Why(why) => Some(why),
            _ => None,
        })
    }

    /// Returns the tasks of `runtime` that `query` selects.
    ///
    /// `runtime` may be `None` if there is only one.
    ///
    /// # Errors
    /// Same as [`Client::record`].
    pub fn tasks(&mut self, runtime: Option<&str>, query: &Query) -> Result<TaskList, ConnectError> {
        self.check_minor(2, "list its tasks")?;
        let (runtime, query) = (runtime.map(str::to_owned), query.clone());
        self.request(&Request::Tasks { runtime, query }, |reply| match reply {
            Reply::Tasks(list) => Some(*list),
            _ => None,
        })
    }

    /// Returns the processes (state machines with mailboxes) of `runtime` that `query` selects.
    ///
    /// `runtime` may be `None` if there is only one.
    ///
    /// # Errors
    /// Same as [`Client::record`].
    pub fn processes(&mut self, runtime: Option<&str>, query: &processes::Query) -> Result<ProcessList, ConnectError> {
        self.check_minor(3, "list its processes")?;
        let (runtime, query) = (runtime.map(str::to_owned), query.clone());
        self.request(&Request::Processes { runtime, query }, |reply| match reply {
            Reply::Processes(list) => Some(*list),
            _ => None,
        })
    }

    /// Returns what the tasks of `runtime` that `query` selects wait for. The runtime polls each
    /// waiting task once, unless the query disables polls.
    ///
    /// `runtime` may be `None` if there is only one.
    ///
    /// # Errors
    /// Same as [`Client::record`], with [`ConnectError::is_timeout`] after [`DUMP_TIMEOUT`]. Drop
    /// the client then: the program stops making a dump whose client has disconnected.
    pub fn dump(&mut self, runtime: Option<&str>, query: &dump::Query) -> Result<Dump, ConnectError> {
        self.check_minor(5, "dump its tasks")?;
        let (runtime, query) = (runtime.map(str::to_owned), query.clone());
        self.request_within(self.dump_wait, &Request::Dump { runtime, query }, |reply| match reply {
            Reply::Dump(dump) => Some(*dump),
            _ => None,
        })
    }

    /// Returns the program as messages name it: `shop (pid 4711)`. Before the hello, only the path
    /// is known.
    fn name(&self) -> String {
        match &self.hello {
            Hello { magic, .. } if magic.is_empty() => self.path.display().to_string(),
            Hello { pid, program, .. } if program.is_empty() => format!("the program with pid {pid}"),
            Hello { pid, program, .. } => format!("{program} (pid {pid})"),
        }
    }

    /// Returns an error if the server is too old for a request of this minor version.
    fn check_minor(&self, minor: u32, what: &str) -> Result<(), ConnectError> {
        let version = self.hello.version;
        if version.minor >= minor {
            return Ok(());
        }
        let (name, volt) = (self.name(), &self.hello.volt);
        let message = format!(
            "{name} uses version {version} of the control protocol and cannot {what}, which needs version {}.{minor}: \
             build the program with a newer Volt than {volt}",
            VERSION.major
        );
        Err(ConnectError::new(Kind::WrongVersion, message))
    }

    /// Sends a request and waits for the first reply for which `take` returns `Some`.
    fn request<T>(&mut self, request: &Request, take: impl Fn(Reply) -> Option<T>) -> Result<T, ConnectError> {
        self.request_within(self.reply_wait, request, take)
    }

    /// Same as `request`, and waits no longer than `wait` for the reply.
    fn request_within<T>(
        &mut self,
        wait: Duration,
        request: &Request,
        take: impl Fn(Reply) -> Option<T>,
    ) -> Result<T, ConnectError> {
        self.send(request)?;
        self.next_that(Instant::now().checked_add(wait), take)?.ok_or_else(|| {
            let name = self.name();
            let left = self.throttled_until.map(|until| until.saturating_duration_since(Instant::now()));
            let message = match left.filter(|left| !left.is_zero()) {
                Some(left) => format!(
                    "{name} throttles this client for {:.0} s: its requests took more than 2 % of a processor; request less often",
                    left.as_secs_f64().ceil()
                ),
                None => format!("{name} did not respond within {wait:?}: it is stopped or overloaded"),
            };
            ConnectError::new(Kind::TimedOut, message)
        })
    }

    /// Waits for the first reply for which `take` returns `Some`. Ignores other replies until the
    /// deadline.
    fn next_that<T>(
        &mut self,
        deadline: Option<Instant>,
        take: impl Fn(Reply) -> Option<T>,
    ) -> Result<Option<T>, ConnectError> {
        loop {
            match self.receive(deadline)? {
                Some(Reply::Error { message }) => {
                    return Err(ConnectError::new(Kind::Answer, format!("{}: {message}", self.name())));
                }
                Some(reply) => {
                    if let Reply::Throttled { wait_ms } = reply {
                        self.throttled_until = Instant::now().checked_add(Duration::from_millis(wait_ms));
                    }
                    if let Some(taken) = take(reply) {
                        return Ok(Some(taken));
                    }
                    // A server that keeps sending other replies has not responded in time either.
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return Ok(None);
                    }
                }
                None => return Ok(None),
            }
        }
    }

    pub(super) fn send(&mut self, request: &Request) -> Result<(), ConnectError> {
        let frame = wire::encode(request, MAX_REQUEST_BYTES).map_err(|error| self.broken(error))?;
        let begun = Instant::now();
        let mut rest = &frame[..];
        while !rest.is_empty() {
            // A timeout of 0 means "no timeout" to the kernel.
            let wait = self.reply_wait.saturating_sub(begun.elapsed()).max(Duration::from_millis(1));
            let set = sockopt::set_socket_timeout(&self.socket, Timeout::Send, Some(wait));
            set.map_err(|error| self.broken(error.into()))?;
            let count = socket::send(&self.socket, rest).map_err(|error| self.broken(error))?;
            rest = &rest[count..];
            // A server that reads only a few bytes now and then also times out.
            if !rest.is_empty() && begun.elapsed() >= self.reply_wait {
                return Err(self.broken(io::ErrorKind::WouldBlock.into()));
            }
        }
        Ok(())
    }

    /// Returns the next frame, or `None` at the deadline. Without a deadline, waits forever.
    fn receive(&mut self, deadline: Option<Instant>) -> Result<Option<Reply>, ConnectError> {
        let mut buffer = vec![0; READ_BYTES];
        let mut has_read = false;
        loop {
            if let Some(reply) = self.take_frame()? {
                return Ok(Some(reply));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Read the socket at least once, so that a timeout of 0 returns what has already
            // arrived.
            if has_read && left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            has_read = true;
            // A timeout of 0 means "no timeout" to the kernel.
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
        let name = self.name();
        if self.hello.magic.is_empty() {
            return not_volt(&name, &error.to_string());
        }
        ConnectError::new(Kind::NotVolt, format!("{name} sent an invalid message: {error}"))
    }

    fn closed(&self) -> ConnectError {
        let name = self.name();
        let message = if self.hello.magic.is_empty() {
            format!(
                "{name} closed the connection without a hello: its program is exiting, is not a Volt program, or runs \
                 in a container with another PID namespace; if it is in a container, run this command in there"
            )
        } else {
            format!("{name} closed the connection: the program has exited, or its last runtime was shut down")
        };
        ConnectError::new(Kind::Closed, message)
    }

    fn broken(&self, error: io::Error) -> ConnectError {
        match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => self.closed(),
            io::ErrorKind::WouldBlock => {
                ConnectError::new(Kind::TimedOut, format!("{} does not read its requests", self.name()))
            }
            _ => ConnectError::new(Kind::Io, format!("{}: {error}", self.name())),
        }
    }
}

fn not_volt(path: &str, why: &str) -> ConnectError {
    ConnectError::new(Kind::NotVolt, format!("{path} is not a Volt control socket: {why}"))
}
