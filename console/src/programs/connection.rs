//! The thread that keeps a subscription: it receives snapshots, and connects again when the program
//! exits.
//!
//! An ordinary case: the interval is 500 ms, and the program is restarted. The thread finds the
//! connection closed. It waits 100 ms, then 200 ms and so on, until the new program has a socket.
//! Its first snapshot arrives 2 s after the last one of the former program, so three were missed.
//!
//! The race: the interval may be changed while the thread waits for a snapshot or to connect again.
//! It checks for changes every `SLICE`, and subscribes with the latest interval.
//!
//! # Protocol
//!
//! 1. The caller establishes the first connection, so that an error is printed before the screen is
//!    opened.
//! 2. The thread subscribes, and sends each snapshot to the screen.
//! 3. When the connection is closed, the thread reports it, waits, finds the program again, and
//!    connects. The wait doubles from [`FIRST_RETRY`] to [`LAST_RETRY`], and starts over with the
//!    first snapshot.
//! 4. With the first snapshot of a new connection, it reports how many snapshots were missed.
//! 5. If the program was selected by pid or path and its process no longer exists, the thread
//!    reports that, and stops connecting.
//! 6. The thread exits when its [`Connection`] is dropped, at the latest after its current wait.
//!
//! # Invariants
//!
//! *Bounded*: at most `INBOX_MAX` snapshots wait for a screen that does not draw. Then the thread
//! stops reading, and the server skips snapshots and counts them. *Only a program that replies is
//! connected*: if a server accepts the connection and sends no hello message, the attempt has
//! failed.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::time::{Duration, Instant};

use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::socket::Environment;

use crate::model::Message;
use crate::programs::again::Again;

/// The wait before the first attempt to connect again.
pub const FIRST_RETRY: Duration = Duration::from_millis(100);
/// The longest wait.
pub const LAST_RETRY: Duration = Duration::from_secs(5);
/// The maximum number of messages that wait to be received.
const INBOX_MAX: usize = 4;
/// How long the thread waits for the server before it checks for requests.
const SLICE: Duration = Duration::from_millis(50);

/// The handle of a kept connection.
#[derive(Debug)]
pub struct Connection {
    /// The messages for the screen.
    pub messages: Receiver<Message>,
    intervals: Sender<Duration>,
}

impl Connection {
    /// Starts the thread with the connection `client`. After that connection is closed, the thread
    /// connects to the program that `again` finds, unless that program cannot come back.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub fn keep(client: Client, interval: Duration, again: Again) -> std::io::Result<Connection> {
        let (to_screen, messages) = sync_channel(INBOX_MAX);
        let (intervals, new_intervals) = channel();
        let keeper = Keeper { to_screen, new_intervals, interval, again, last_heard_at: None };
        std::thread::Builder::new().name("volt-console-connection".into()).spawn(move || keeper.run(client))?;
        Ok(Connection { messages, intervals })
    }

    /// Changes the interval between two snapshots.
    pub fn subscribe(&self, interval: Duration) {
        // If the thread has exited, the receiver of its messages reports it.
        let _ = self.intervals.send(interval);
    }
}

/// Returns how many updates are missing between two that are `apart`.
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

/// The screen was closed, so the thread can exit.
struct Unwanted;

struct Keeper {
    to_screen: SyncSender<Message>,
    new_intervals: Receiver<Duration>,
    interval: Duration,
    again: Again,
    /// When the last snapshot arrived.
    last_heard_at: Option<Instant>,
}

impl Keeper {
    fn run(mut self, client: Client) {
        // The error only means that the receiver was dropped.
        let Err(Unwanted) = self.keep(client);
    }

    fn keep(&mut self, mut client: Client) -> Result<std::convert::Infallible, Unwanted> {
        let environment = Environment::of_program();
        let mut retry_in = FIRST_RETRY;
        loop {
            self.send(Message::Connected(client.hello().clone()))?;
            let mut reason = self.read(&mut client, &mut retry_in)?.to_string();
            drop(client);
            client = loop {
                if let Some(pid) = self.again.exited() {
                    self.send(Message::Exited { pid })?;
                    return self.idle();
                }
                self.send(Message::Disconnected { reason, retry_in })?;
                self.wait(retry_in)?;
                retry_in = (retry_in * 2).min(LAST_RETRY);
                match self.again.find(&environment).and_then(|path| Client::connect(&path)) {
                    Ok(client) => break client,
                    Err(error) => reason = self.describe(&error),
                }
            };
        }
    }

    /// Sends what `client` receives, until the connection is closed.
    fn read(&mut self, client: &mut Client, retry_in: &mut Duration) -> Result<ConnectError, Unwanted> {
        if let Err(error) = client.subscribe(self.interval) {
            return Ok(error);
        }
        let mut is_first = true;
        loop {
            match client.next(SLICE) {
                Ok(Some(update)) => {
                    *retry_in = FIRST_RETRY;
                    let away = self
                        .last_heard_at
                        .replace(Instant::now())
                        .map_or(Duration::ZERO, |last_heard_at| last_heard_at.elapsed());
                    if std::mem::take(&mut is_first) && missed(away, self.interval) > 0 {
                        self.send(Message::Missed(missed(away, self.interval)))?;
                    }
                    self.send(Message::Snapshot { program: Box::new(update.program), lost: update.lost })?;
                }
                Ok(None) => {}
                // The program could not take this snapshot; the next may succeed.
                Err(error) if error.is_answer() => {}
                Err(error) => return Ok(error),
            }
            if self.take_intervals()?
                && let Err(error) = client.subscribe(self.interval)
            {
                return Ok(error);
            }
        }
    }

    /// Returns why there is no connection. The screen may show only the beginning of it.
    fn describe(&self, error: &ConnectError) -> String {
        match self.again.awaited() {
            // If several programs have the name, starting another one does not help.
            Some(name) if error.is_missing() => format!("waiting for {name} to start: {error}"),
            _ => error.to_string(),
        }
    }

    /// Waits for the screen to be closed, because the channel of a thread that has exited would
    /// mean an error.
    fn idle(&self) -> Result<std::convert::Infallible, Unwanted> {
        while self.new_intervals.recv().is_ok() {}
        Err(Unwanted)
    }

    fn send(&self, message: Message) -> Result<(), Unwanted> {
        self.to_screen.send(message).map_err(|_| Unwanted)
    }

    /// Returns whether the interval has changed.
    fn take_intervals(&mut self) -> Result<bool, Unwanted> {
        let former = self.interval;
        loop {
            match self.new_intervals.try_recv() {
                Ok(interval) => self.interval = interval,
                Err(TryRecvError::Empty) => return Ok(self.interval != former),
                Err(TryRecvError::Disconnected) => return Err(Unwanted),
            }
        }
    }

    fn wait(&mut self, how_long: Duration) -> Result<(), Unwanted> {
        let until = Instant::now() + how_long;
        loop {
            match self.new_intervals.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(interval) => self.interval = interval,
                Err(RecvTimeoutError::Timeout) => return Ok(()),
                Err(RecvTimeoutError::Disconnected) => return Err(Unwanted),
            }
        }
    }
}
