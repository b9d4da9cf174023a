//! The thread that requests what a subscription does not include: the tasks of a runtime, why one
//! of them was polled, its processes, and dumps.
//!
//! It has a separate connection. On the connection of the subscription, the thread would have to
//! distinguish replies from snapshots, and a long reply would delay the snapshots.
//!
//! An ordinary case: a user opens the tasks screen. The thread connects, requests the list, passes
//! it to the screen, and repeats this at each interval. When a screen without such needs is opened,
//! it closes the connection.
//!
//! The race: the needs change while a reply is under way. That reply is passed to the screen
//! nevertheless; the next request is for the latest needs.
//!
//! # Protocol
//!
//! 1. The thread sleeps until the current screen needs data.
//! 2. It connects, if it is not connected, sends the requests, and passes the replies to the
//!    screen.
//! 3. It repeats this after the interval, or immediately if the needs change. A dump is requested
//!    only once, because the program polls each waiting task for it. After that, it is no longer a
//!    need.
//! 4. Without needs it closes its connection, because a program accepts only a limited number of
//!    connections, and because the next request may be for a program that was started anew.
//! 5. It exits when its [`Requester`] is dropped, at the latest after the reply that it waits for.
//!
//! # Invariants
//!
//! *Bounded*: one request at a time, and at most `INBOX_MAX` replies wait for a screen that does
//! not draw. *A failure is not repeated immediately*: after it, the thread waits for `PAUSE`.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use volt_telemetry::client::{Client, ConnectError};

use crate::model::{Message, Needs};
use crate::programs::again::Locate;
use crate::programs::sources::Sources;

/// The shortest time from the right reply to the next request, unless the needs change: users
/// cannot read the figures of single tasks faster.
pub const PACE_MIN: Duration = Duration::from_millis(200);
/// The time to the next request after a reply to another query.
const AGAIN: Duration = Duration::from_millis(50);
/// The time to the next request after one that failed.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum number of replies that wait to be received.
const INBOX_MAX: usize = 4;

/// Sets what the thread requests, and receives the replies. Dropping it ends the thread.
#[derive(Debug)]
pub struct Requester {
    /// The replies.
    pub messages: Receiver<Message>,
    requests: Sender<Needs>,
    last: Needs,
}

impl Requester {
    /// Starts the thread, which sends requests to the program that `locate` finds.
    ///
    /// # Errors
    ///
    /// Returns an error if the system cannot start a thread.
    pub fn start(locate: Locate) -> std::io::Result<Requester> {
        let (to_screen, messages) = sync_channel(INBOX_MAX);
        let (requests, requested) = channel();
        let thread = Thread { to_screen, requested, needs: Needs::default(), locate, client: None, dumped: None };
        std::thread::Builder::new().name("volt-console-requester".into()).spawn(move || thread.run())?;
        Ok(Requester { messages, requests, last: Needs::default() })
    }

    /// Sets the requests to send from now on.
    pub fn set_needs(&mut self, needs: Needs) {
        if needs != self.last {
            self.last = needs.clone();
            // The send fails only if the thread has exited.
            let _ = self.requests.send(needs);
        }
    }
}

struct Thread {
    to_screen: SyncSender<Message>,
    requested: Receiver<Needs>,
    needs: Needs,
    locate: Locate,
    client: Option<Client>,
    /// The dump that was requested last: its runtime and number.
    dumped: Option<(String, u64)>,
}

impl Thread {
    fn run(mut self) {
        let mut pace = PACE_MIN;
        while self.wait(pace) {
            pace = match self.request() {
                Ok(Some(is_current)) => {
                    if is_current {
                        self.needs.interval.max(PACE_MIN)
                    } else {
                        AGAIN
                    }
                }
                // The receiver was dropped.
                Ok(None) => return,
                Err(error) => {
                    if !error.is_answer() {
                        self.client = None;
                    }
                    if self.to_screen.send(Message::Refused(error.to_string())).is_err() {
                        return;
                    }
                    PAUSE
                }
            };
        }
    }

    /// Waits until the next request is due. Returns `false` if the [`Requester`] was dropped.
    fn wait(&mut self, pace: Duration) -> bool {
        loop {
            let needs = if self.needs.is_empty() {
                self.client = None;
                self.requested.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.requested.recv_timeout(pace)
            };
            match needs {
                // Takes the last of the needs that have arrived.
                Ok(needs) => {
                    self.needs = self.requested.try_iter().last().unwrap_or(needs);
                    if !self.needs.is_empty() {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Sends every request once. Returns whether the replies match them; `None` if the screen was
    /// closed.
    fn request(&mut self) -> Result<Option<bool>, ConnectError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(&(self.locate)()?)?),
        };
        let mut is_current = true;
        if let Some((runtime, query)) = &self.needs.tasks {
            let list = client.tasks(Some(runtime), query)?;
            is_current = list.query == *query;
            if self.to_screen.send(Message::Tasks(Box::new(list))).is_err() {
                return Ok(None);
            }
        }
        if let Some((runtime, query)) = &self.needs.processes {
            let list = client.processes(Some(runtime), query)?;
            is_current = list.query == *query;
            if self.to_screen.send(Message::Processes(Box::new(list))).is_err() {
                return Ok(None);
            }
        }
        if let Some((runtime, query, number)) = self.needs.dump.take() {
            let wanted = (runtime, number);
            if self.dumped.as_ref() != Some(&wanted) {
                let (runtime, _) = self.dumped.insert(wanted);
                let mut dump = client.dump(Some(runtime.as_str()), &query)?;
                Sources::of_program(client.hello().pid).fill_in(&mut dump);
                if self.to_screen.send(Message::Dump(Box::new(dump))).is_err() {
                    return Ok(None);
                }
            }
        }
        if let Some((runtime, task)) = &self.needs.why {
            let why = match client.why(Some(runtime), &task.to_string()) {
                Ok(why) => Ok(why),
                // The task has completed.
                Err(error) if error.is_answer() => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            if self.to_screen.send(Message::Why { task: *task, why: why.map(Box::new) }).is_err() {
                return Ok(None);
            }
        }
        Ok(Some(is_current))
    }
}
