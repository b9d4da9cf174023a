//! The thread that asks for what no subscription brings: the tasks of a runtime, why one of them
//! was polled, and its processes.
//!
//! Protocol. (1) It sleeps until something is wished for. (2) It connects, if it is not connected,
//! and asks; what is told goes to the screen. (3) It asks again after the interval, or at once for
//! another wish. (4) Without a wish it gives its connection up, so that a program has a place more
//! for others. (5) It ends with its [`Asker`], at the latest after the answer that it waits for.
//!
//! A connection of its own, since the answer to a request and the snapshots of a subscription would
//! have to be told apart, and a long answer would hold the snapshots up. Invariants: *bounded*, one
//! question at a time, and `INBOX_MAX` answers wait for a screen that does not draw; *a program
//! that cannot answer is asked less often*.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use volt_telemetry::client::{Client, ConnectError};

use crate::model::{Message, Wish};
use crate::programs::connection::Locate;

/// The shortest time from an answer to the next question: figures of single tasks cannot be read
/// faster.
pub const PACE_MIN: Duration = Duration::from_millis(200);
/// The time from an answer about something else than was asked to the next question.
const AGAIN: Duration = Duration::from_millis(50);
/// The time after a question that could not be asked.
const PAUSE: Duration = Duration::from_secs(1);
/// Answers that wait to be taken.
const INBOX_MAX: usize = 4;

/// See the header of this file.
#[derive(Debug)]
pub struct Asker {
    /// What is told.
    pub messages: Receiver<Message>,
    wishes: Sender<Wish>,
    last: Wish,
}

impl Asker {
    /// Asks the program that `locate` finds.
    ///
    /// # Errors
    /// The system's, when no thread can be made.
    pub fn start(locate: Locate) -> std::io::Result<Asker> {
        let (to_screen, messages) = sync_channel(INBOX_MAX);
        let (wishes, wished) = channel();
        let thread = Thread { to_screen, wished, wish: Wish::default(), locate, client: None };
        std::thread::Builder::new().name("volt-console-asker".into()).spawn(move || thread.run())?;
        Ok(Asker { messages, wishes, last: Wish::default() })
    }

    /// What is wished for from now on.
    pub fn wish(&mut self, wish: Wish) {
        if wish != self.last {
            self.last = wish.clone();
            // A thread that has ended has nobody left to tell.
            let _ = self.wishes.send(wish);
        }
    }
}

struct Thread {
    to_screen: SyncSender<Message>,
    wished: Receiver<Wish>,
    wish: Wish,
    locate: Locate,
    client: Option<Client>,
}

impl Thread {
    fn run(mut self) {
        let mut pace = PACE_MIN;
        while self.wait(pace) {
            pace = match self.ask() {
                Ok(Some(is_asked)) => {
                    if is_asked {
                        self.wish.interval.max(PACE_MIN)
                    } else {
                        AGAIN
                    }
                }
                // Nobody listens any more.
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

    /// Waits until it is time to ask; `false` when nobody will want to know.
    fn wait(&mut self, pace: Duration) -> bool {
        loop {
            let wish = if self.wish.is_empty() {
                self.client = None;
                self.wished.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.wished.recv_timeout(pace)
            };
            match wish {
                // The last of those that came together.
                Ok(wish) => {
                    self.wish = self.wished.try_iter().last().unwrap_or(wish);
                    if !self.wish.is_empty() {
                        return true;
                    }
                }
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
        }
    }

    /// Asks everything once. Whether it was answered; `None` when the screen has gone.
    fn ask(&mut self) -> Result<Option<bool>, ConnectError> {
        let client = match &mut self.client {
            Some(client) => client,
            none => none.insert(Client::connect(&(self.locate)()?)?),
        };
        let mut is_asked = true;
        if let Some((runtime, query)) = &self.wish.tasks {
            let list = client.tasks(Some(runtime), query)?;
            is_asked = list.query == *query;
            if self.to_screen.send(Message::Tasks(Box::new(list))).is_err() {
                return Ok(None);
            }
        }
        if let Some((runtime, query)) = &self.wish.processes {
            let list = client.processes(Some(runtime), query)?;
            is_asked = list.query == *query;
            if self.to_screen.send(Message::Processes(Box::new(list))).is_err() {
                return Ok(None);
            }
        }
        if let Some((runtime, task)) = &self.wish.why {
            let why = match client.why(Some(runtime), &task.to_string()) {
                Ok(why) => Ok(why),
                // The task has ended.
                Err(error) if error.is_answer() => Err(error.to_string()),
                Err(error) => return Err(error),
            };
            if self.to_screen.send(Message::Why { task: *task, why: why.map(Box::new) }).is_err() {
                return Ok(None);
            }
        }
        Ok(Some(is_asked))
    }
}
