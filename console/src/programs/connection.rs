//! The thread that keeps a connection: reads snapshots, and connects again when the program goes
//! away.
//!
//! Protocol. (1) The first connection is made by the caller, so that an error is told before the
//! screen is taken. (2) The thread subscribes and sends what it reads. (3) When the connection
//! ends, it says so, waits, finds the program anew and connects; the wait doubles from
//! [`FIRST_RETRY`] to [`LAST_RETRY`] and starts over with the first snapshot. (4) It ends when its
//! [`Connection`] is dropped, at the latest after the wait it is in. (5) With the first snapshot of
//! a new connection it says how many were missed.
//!
//! Invariants: *bounded*, at most `INBOX_MAX` snapshots wait for a screen that does not draw; then
//! the thread stops reading, and the server skips and counts. *Only a running subscription is
//! live*: a server that accepts and says nothing is lost again.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, Instant};

use volt_telemetry::client::{Client, ConnectError};

use crate::model::Message;

/// The wait before the first try to connect again.
pub const FIRST_RETRY: Duration = Duration::from_millis(100);
/// Where the doubling ends.
pub const LAST_RETRY: Duration = Duration::from_secs(5);
/// Messages that wait to be taken.
const INBOX_MAX: usize = 4;
/// How long the thread listens to the server before it checks for requests.
const SLICE: Duration = Duration::from_millis(50);

/// Finds the program's socket, each time that a connection is to be made.
pub type Locate = Box<dyn FnMut() -> Result<PathBuf, ConnectError> + Send>;

/// A connection that is kept.
#[derive(Debug)]
pub struct Connection {
    /// What comes in.
    pub messages: Receiver<Message>,
    intervals: Sender<Duration>,
}

impl Connection {
    /// Goes on with `client`, and keeps up the connection to what `locate` finds.
    ///
    /// # Errors
    /// The system's, when no thread can be made.
    pub fn keep(client: Client, interval: Duration, locate: Locate) -> std::io::Result<Connection> {
        let (to_screen, messages) = sync_channel(INBOX_MAX);
        let (intervals, wishes) = channel();
        let keeper = Keeper { to_screen, wishes, interval, locate, heard: None };
        std::thread::Builder::new().name("volt-console-connection".into()).spawn(move || keeper.run(client))?;
        Ok(Connection { messages, intervals })
    }

    /// Asks for another interval between two snapshots.
    pub fn subscribe(&self, interval: Duration) {
        // A thread that has ended is noticed where its messages are received.
        let _ = self.intervals.send(interval);
    }
}

/// How many updates should have come in between, when two are so far apart.
///
/// ```
/// use std::time::Duration;
/// use volt_console::programs::connection::missed;
/// let [half, two] = [500, 2000].map(Duration::from_millis);
/// assert_eq!([missed(half, half), missed(half * 3 / 2, half), missed(two, half)], [0, 0, 3]);
/// ```
pub fn missed(apart: Duration, interval: Duration) -> u64 {
    let steps = apart.as_nanos() / interval.as_nanos().max(1);
    u64::try_from(steps).unwrap_or(u64::MAX).saturating_sub(1)
}

/// The screen has gone: the thread may end.
struct Unwanted;

struct Keeper {
    to_screen: SyncSender<Message>,
    wishes: Receiver<Duration>,
    interval: Duration,
    locate: Locate,
    /// When the last snapshot came.
    heard: Option<Instant>,
}

impl Keeper {
    fn run(mut self, client: Client) {
        // An error only means that nobody listens any more.
        let Err(Unwanted) = self.keep(client);
    }

    fn keep(&mut self, mut client: Client) -> Result<std::convert::Infallible, Unwanted> {
        let mut retry_in = FIRST_RETRY;
        loop {
            self.send(Message::Connected(client.hello().clone()))?;
            let mut reason = self.read(&mut client, &mut retry_in)?;
            drop(client);
            client = loop {
                self.send(Message::Disconnected { reason: reason.to_string(), retry_in })?;
                self.wait(retry_in)?;
                retry_in = (retry_in * 2).min(LAST_RETRY);
                match (self.locate)().and_then(|path| Client::connect(&path)) {
                    Ok(client) => break client,
                    Err(error) => reason = error,
                }
            };
        }
    }

    /// Sends what `client` reads, until that ends.
    fn read(&mut self, client: &mut Client, retry_in: &mut Duration) -> Result<ConnectError, Unwanted> {
        if let Err(error) = client.subscribe(self.interval) {
            return Ok(error);
        }
        let mut is_first = true;
        loop {
            match client.next(SLICE) {
                Ok(Some(update)) => {
                    *retry_in = FIRST_RETRY;
                    let away = self.heard.replace(Instant::now()).map_or(Duration::ZERO, |heard| heard.elapsed());
                    if std::mem::take(&mut is_first) && missed(away, self.interval) > 0 {
                        self.send(Message::Missed(missed(away, self.interval)))?;
                    }
                    self.send(Message::Snapshot { process: Box::new(update.process), lost: update.lost })?;
                }
                Ok(None) => {}
                // It could not take this one snapshot; the next may be better.
                Err(error) if error.is_answer() => {}
                Err(error) => return Ok(error),
            }
            if self.take_wishes()?
                && let Err(error) = client.subscribe(self.interval)
            {
                return Ok(error);
            }
        }
    }

    fn send(&self, message: Message) -> Result<(), Unwanted> {
        self.to_screen.send(message).map_err(|_| Unwanted)
    }

    /// Whether the interval has changed.
    fn take_wishes(&mut self) -> Result<bool, Unwanted> {
        let former = self.interval;
        loop {
            match self.wishes.try_recv() {
                Ok(interval) => self.interval = interval,
                Err(TryRecvError::Empty) => return Ok(self.interval != former),
                Err(TryRecvError::Disconnected) => return Err(Unwanted),
            }
        }
    }

    fn wait(&mut self, how_long: Duration) -> Result<(), Unwanted> {
        let until = Instant::now() + how_long;
        loop {
            match self.wishes.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(interval) => self.interval = interval,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Unwanted),
            }
        }
    }
}
