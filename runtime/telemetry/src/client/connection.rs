//! One connection to a running program: requests, and the replies to them.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{self, Timeout};

use super::error::{ConnectError, Kind};
use super::open::{check_peer, open};
use crate::processes::{self, ProcessList};
use crate::recording::flush::{Flush, Head};
use crate::snapshot::Process;
use crate::socket;
use crate::tasks::{Query, TaskList};
use crate::why::Why;
use crate::wire::{self, Hello, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Recorder, Reply, Request, VERSION};

/// How long connecting may take; it takes long only while the server's queue of connections is
/// full.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the server's hello may take.
pub const HELLO_TIMEOUT: Duration = Duration::from_secs(3);
/// How long the answer to a request may take.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes read at once.
pub(super) const READ_BYTES: usize = 64 * 1024;

/// How long to wait for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waits {
    pub(super) connect: Duration,
    pub(super) hello: Duration,
    pub(super) reply: Duration,
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
    pub(super) inbox: Vec<u8>,
    pub(super) taken: usize,
    hello: Hello,
    pub(super) reply_wait: Duration,
    /// Until when the server reads no request of this client's, as far as it has said.
    throttled_until: Option<Instant>,
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
    /// Says whether the socket is missing, stale, foreign, no control socket, of another version,
    /// busy or silent; see [`ConnectError`].
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        Self::connect_within(path, WAITS)
    }

    pub(super) fn connect_within(path: &Path, waits: Waits) -> Result<Self, ConnectError> {
        let socket = open(path, waits.connect)?;
        check_peer(path, &socket)?;
        let (path, hello) = (path.to_path_buf(), Hello::default());
        let mut client =
            Self { path, socket, inbox: Vec::new(), taken: 0, hello, reply_wait: waits.reply, throttled_until: None };
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
                    "{path} speaks version {} of the control protocol, but this program speaks {VERSION}: use the console of Volt {}",
                    hello.version, hello.volt
                ),
            )),
            Ok(Some(Reply::Error { message })) => Err(ConnectError::new(Kind::Busy, format!("{path}: {message}"))),
            Ok(Some(_)) => Err(not_volt(&path, "its first message is not a hello")),
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

    /// All runtimes of the program at one moment, taken after this call began. On a connection that
    /// has subscribed, the next snapshot that comes.
    ///
    /// # Errors
    /// [`ConnectError::is_timeout`] after [`REPLY_TIMEOUT`]: connect anew, since the answer may
    /// still come. [`ConnectError::is_closed`]; [`ConnectError::is_answer`], after which the
    /// connection stays.
    pub fn snapshot(&mut self) -> Result<Process, ConnectError> {
        self.ask(&Request::Snapshot, |reply| match reply {
            Reply::Snapshot { process, .. } => Some(*process),
            _ => None,
        })
    }

    /// Asks for a snapshot now and then every `interval`; [`Client::next`] gives them. A later call
    /// changes the interval.
    ///
    /// # Errors
    /// [`ConnectError::is_closed`], [`ConnectError::is_timeout`].
    pub fn subscribe(&mut self, interval: Duration) -> Result<(), ConnectError> {
        let interval_ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX).max(wire::MIN_INTERVAL_MS);
        self.send(&Request::Subscribe { interval_ms })
    }

    /// The next snapshot of the subscription; `None` when none came within `timeout`. Nothing is
    /// lost by a time-out.
    ///
    /// # Errors
    /// [`ConnectError::is_closed`] when the program ended. [`ConnectError::is_answer`] when the
    /// server could not take this one; the connection stays.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Update>, ConnectError> {
        // A newer server may send what this client does not know.
        self.next_that(Instant::now().checked_add(timeout), |reply| match reply {
            Reply::Snapshot { process, lost } => Some(Update { process: *process, lost }),
            _ => None,
        })
    }

    /// Begins to record what happens on the workers of `runtime`, the only one if it is not named:
    /// [`Client::next_flush`] gives it. The flight recorder is on until this client is dropped.
    /// With `look_back`, what it still has of that time comes first.
    ///
    /// # Errors
    /// [`ConnectError::is_wrong_version`] if the program is too old for that;
    /// [`ConnectError::is_answer`] if there is no such runtime, or several;
    /// [`ConnectError::is_closed`], [`ConnectError::is_timeout`].
    pub fn record(&mut self, runtime: Option<&str>, look_back: Duration) -> Result<Head, ConnectError> {
        self.check_minor(1, "record")?;
        let look_back_ms = u64::try_from(look_back.as_millis()).unwrap_or(u64::MAX);
        self.ask(&Request::Record { runtime: runtime.map(str::to_owned), look_back_ms }, |reply| match reply {
            Reply::Recording { head } => Some(*head),
            _ => None,
        })
    }

    /// The next flush of the recording, or piece of one; `None` when none came within `timeout`.
    /// Nothing is lost by a time-out.
    ///
    /// # Errors
    /// [`ConnectError::is_closed`] when the program ended; [`ConnectError::is_answer`] when its
    /// runtime did.
    pub fn next_flush(&mut self, timeout: Duration) -> Result<Option<Flush>, ConnectError> {
        self.next_that(Instant::now().checked_add(timeout), |reply| match reply {
            Reply::Flush { flush } => Some(*flush),
            _ => None,
        })
    }

    /// Whether the flight recorder of `runtime`, the only one if it is not named, is on; with
    /// `is_on`, switches it first.
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

    /// Why the task of this id or name was polled last, in `runtime`, the only one if it is not
    /// named.
    ///
    /// # Errors
    /// As [`Client::record`]; [`ConnectError::is_answer`] also if there is no such task.
    pub fn why(&mut self, runtime: Option<&str>, task: &str) -> Result<Why, ConnectError> {
        self.check_minor(1, "report why a task was polled")?;
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

    /// The processes of `runtime`, the only one if it is not named, that `query` asks for: state
    /// machines with mailboxes.
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
            "{path} speaks version {version} of the control protocol and cannot {what}, which needs version {}.{minor}: \
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
            let left = self.throttled_until.map(|until| until.saturating_duration_since(Instant::now()));
            let message = match left.filter(|left| !left.is_zero()) {
                Some(left) => format!(
                    "{path} throttles this client for {:.0} s: its requests took more than 2 % of a processor; request less often",
                    left.as_secs_f64().ceil()
                ),
                None => format!("{path} did not respond within {wait:?}: its program is stopped or overloaded"),
            };
            ConnectError::new(Kind::TimedOut, message)
        })
    }

    /// The next reply of which `take` makes something; others are passed over, as long as there is
    /// time.
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
                    if let Reply::Throttled { wait_ms } = reply {
                        self.throttled_until = Instant::now().checked_add(Duration::from_millis(wait_ms));
                    }
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

    pub(super) fn send(&mut self, request: &Request) -> Result<(), ConnectError> {
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
        let mut has_read = false;
        loop {
            if let Some(reply) = self.take_frame()? {
                return Ok(Some(reply));
            }
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // Not before one read of the socket, so that a time-out of 0 means "what is there
            // already".
            if has_read && left.is_some_and(|left| left.is_zero()) {
                return Ok(None);
            }
            has_read = true;
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
            format!("{path} closed the connection without a hello: its program is exiting, or is not a Volt program")
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

fn not_volt(path: &str, why: &str) -> ConnectError {
    ConnectError::new(Kind::NotVolt, format!("{path} is not a Volt control socket: {why}"))
}
