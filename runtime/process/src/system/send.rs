//! Messages from anywhere to a process.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::entry::mailbox::{Overflow, Refused};
use crate::messages::event::Message;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::system::core::System;
use volt::task::{self, AbortHandle};
use volt::time::sleep;

impl System {
    /// Sends a message; waits while the mailbox is full and its policy is
    /// [`Block`](Overflow::Block). The messages of one sender that awaits each arrive in the
    /// order in which it sent them.
    ///
    /// # Errors
    /// The process has ended, or its mailbox is full and its policy is [`Error`](Overflow::Error).
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the message is not sent.
    pub async fn send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        self.send_as(None, to, message).await
    }

    /// Sends a message at once, from inside or outside of the runtime.
    ///
    /// # Errors
    /// The process has ended, or its mailbox is full and its policy is not
    /// [`DropNewest`](Overflow::DropNewest).
    pub fn try_send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        self.try_send_as(None, to, message)
    }

    /// Sends a message after `delay`, unless that is [cancelled](SendAfter::cancel). Then it waits
    /// for room as [`send`](Self::send) does; what that refuses is dropped.
    pub fn send_after(&self, delay: Duration, to: Pid, message: Payload) -> SendAfter {
        let system = self.clone();
        let is_settled = Arc::new(AtomicBool::new(false));
        let settled = is_settled.clone();
        let sends = async move {
            sleep(delay).await;
            // ORDERING: Relaxed; only who is first matters.
            if !settled.swap(true, Ordering::Relaxed) {
                drop(system.send(to, message).await);
            }
        };
        SendAfter { task: task::Builder::new().spawn_on(sends, self.runtime()).abort_handle(), is_settled }
    }

    pub(crate) async fn send_as(&self, from: Option<Pid>, to: Pid, payload: Payload) -> Result<(), SendError> {
        match self.entry(to) {
            Some(entry) => refused(to, entry.send(Message { from, payload, reply: None }).await),
            None => self.send_elsewhere(from, to, payload),
        }
    }

    pub(crate) fn try_send_as(&self, from: Option<Pid>, to: Pid, payload: Payload) -> Result<(), SendError> {
        let sent = self.offer_as(from, to, payload);
        if sent.as_ref().is_err_and(|error| error.is_full() && error.waits)
            && let Some(entry) = self.entry(to)
        {
            entry.count_refused();
        }
        sent
    }

    /// Sends at once; a refusal by a mailbox that has room later is not counted as one.
    pub(crate) fn offer_as(&self, from: Option<Pid>, to: Pid, payload: Payload) -> Result<(), SendError> {
        match self.entry(to) {
            Some(entry) => {
                let sent = refused(to, entry.try_send(Message { from, payload, reply: None }).map(|_taken| ()));
                sent.map_err(|error| SendError { waits: entry.mailbox.overflow() == Overflow::Block, ..error })
            }
            None => self.send_elsewhere(from, to, payload),
        }
    }

    /// To a process that is not here.
    fn send_elsewhere(&self, from: Option<Pid>, to: Pid, message: Payload) -> Result<(), SendError> {
        match to.node() == self.node() {
            true => Err(SendError::new(to, message, Why::NoProcess)),
            false => self.send_remote(from, to, message),
        }
    }
}

fn refused(to: Pid, sent: Result<(), Refused>) -> Result<(), SendError> {
    sent.map_err(|refused| match refused {
        Refused::Full(message) => SendError::full(to, message.payload),
        Refused::Closed(message) => SendError { to, message: message.payload, why: Why::NoProcess, waits: false },
    })
}

/// A message that is to be sent later. Dropping this changes nothing.
#[derive(Debug)]
pub struct SendAfter {
    task: AbortHandle,
    /// It is sent, or it is not; whoever sets this decides.
    is_settled: Arc<AtomicBool>,
}

impl SendAfter {
    /// The message is not sent any more; false if its time has come already, or it was cancelled
    /// before.
    pub fn cancel(&self) -> bool {
        // ORDERING: Relaxed; only who is first matters.
        let is_pending = !self.is_settled.swap(true, Ordering::Relaxed);
        if is_pending {
            self.task.abort();
        }
        is_pending
    }
}

/// A message was not sent.
pub struct SendError {
    to: Pid,
    message: Payload,
    why: Why,
    /// Whether the mailbox would take it later.
    waits: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    NoProcess,
    NoConnection,
    Full,
    RelayFull,
    NotBytes,
    TooLarge,
}

/// What is wrong with a value for another node.
pub(crate) const NOT_BYTES: &str =
    "only Payload::bytes and Payload::empty go to another node: turn the value into bytes";
/// What is wrong with too many bytes for another node.
pub(crate) const TOO_LARGE: &str =
    "the message has more bytes than a frame to another node can carry: send it in parts";

impl SendError {
    pub(crate) fn new(to: Pid, message: Payload, why: Why) -> Self {
        Self { to, message, why, waits: false }
    }

    pub(crate) fn full(to: Pid, message: Payload) -> Self {
        Self::new(to, message, Why::Full)
    }

    /// The message, if it would be taken by whoever waits.
    pub(crate) fn into_waiting(self) -> Result<Payload, SendError> {
        if self.why == Why::Full && self.waits { Ok(self.message) } else { Err(self) }
    }

    /// The mailbox is full, or the queue of the relay to its node.
    pub fn is_full(&self) -> bool {
        matches!(self.why, Why::Full | Why::RelayFull)
    }

    /// The message cannot go to another node: it is neither [bytes](Payload::bytes) nor
    /// [nothing](Payload::empty), or too large.
    pub fn is_unfit(&self) -> bool {
        matches!(self.why, Why::NotBytes | Why::TooLarge)
    }

    /// The process has ended, or never was.
    pub fn is_no_process(&self) -> bool {
        self.why == Why::NoProcess
    }

    /// The process is on another node, which cannot be reached.
    pub fn is_no_connection(&self) -> bool {
        self.why == Why::NoConnection
    }

    /// The message, as it was.
    pub fn into_message(self) -> Payload {
        self.message
    }
}

impl fmt::Debug for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("to", &self.to).field("why", &self.why).finish_non_exhaustive()
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.to;
        match self.why {
            Why::NoProcess => write!(f, "{to} has ended"),
            Why::NoConnection => write!(f, "{to} is on a node that cannot be reached"),
            Why::RelayFull => write!(f, "the relay's queue to the node of {to} is full: send later"),
            Why::NotBytes => f.write_str(NOT_BYTES),
            Why::TooLarge => f.write_str(TOO_LARGE),
            Why::Full => write!(f, "the mailbox of {to} is full: send later, or give it more room or another policy"),
        }
    }
}

impl std::error::Error for SendError {}
