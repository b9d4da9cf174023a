//! Sends messages to a process, from any thread or process.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_util::FutureExt;

use crate::entry::delivery::Delivery;
use crate::entry::mailbox::Refused;
use crate::messages::event::Message;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::system::core::System;
use volt::task::{self, AbortHandle};
use volt::time::sleep;

impl System {
    /// Sends a message. Waits while the mailbox is full and its policy is
    /// [`Block`](crate::Overflow::Block). If a sender awaits each send, its messages arrive in
    /// order.
    ///
    /// # Errors
    /// Returns an error if the process has exited, or if its mailbox is full and its policy is
    /// [`Error`](crate::Overflow::Error). To a process on another node, returns an error if the
    /// node cannot be reached, if the relay's queue is full, or if the message cannot be sent
    /// between nodes. Whether the process or its mailbox accepts the message is not reported.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the message is not sent.
    pub async fn send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        self.send_as(None, to, message).await
    }

    /// Sends a message without waiting for room, from inside or outside of the runtime.
    ///
    /// # Errors
    /// Returns an error if the process has exited, or if its mailbox is full and its policy is not
    /// [`DropNewest`](crate::Overflow::DropNewest). To a process on another node, fails as
    /// [`send`](Self::send) does.
    pub fn try_send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        self.try_send_as(None, to, message)
    }

    /// Sends a message after `delay`, unless it is [cancelled](SendAfter::cancel) before. After the
    /// delay, the message waits for room as with [`send`](Self::send). If it is refused, it is
    /// dropped.
    pub fn send_after(&self, delay: Duration, to: Pid, message: Payload) -> SendAfter {
        let system = self.clone();
        let is_settled = Arc::new(AtomicBool::new(false));
        let settled = is_settled.clone();
        let sends = async move {
            sleep(delay).await;
            // ORDERING: Relaxed; only the order of the two swaps matters.
            if !settled.swap(true, Ordering::Relaxed) {
                drop(system.send(to, message).await);
            }
        };
        SendAfter { task: task::Builder::new().spawn_on(sends, self.runtime()).abort_handle(), is_settled }
    }

    pub(crate) async fn send_as(&self, from: Option<Pid>, to: Pid, payload: Payload) -> Result<(), SendError> {
        match self.entry(to) {
            Some(entry) => refused(to, Delivery::new(entry, Message { from, payload, reply: None }).await),
            None => self.send_elsewhere(from, to, payload),
        }
    }

    pub(crate) fn try_send_as(&self, from: Option<Pid>, to: Pid, payload: Payload) -> Result<(), SendError> {
        match self.entry(to) {
            Some(entry) => refused(to, entry.try_send(Message { from, payload, reply: None }).map(|_taken| ())),
            None => self.send_elsewhere(from, to, payload),
        }
    }

    /// Sends a message now, or returns a future that sends it when there is room. `waker` is that
    /// of the task which polls the future.
    pub(crate) fn begin_send_as(
        &self,
        from: Option<Pid>,
        to: Pid,
        payload: Payload,
        waker: &Waker,
    ) -> Result<Option<impl Future<Output = Result<(), SendError>> + Send + use<>>, SendError> {
        let Some(entry) = self.entry(to) else { return self.send_elsewhere(from, to, payload).map(|()| None) };
        let mut delivery = Delivery::new(entry, Message { from, payload, reply: None });
        match delivery.try_now(waker) {
            Poll::Ready(sent) => refused(to, sent).map(|()| None),
            // Not an async block, which would hold the delivery twice.
            Poll::Pending => Ok(Some(delivery.map(move |sent| refused(to, sent)))),
        }
    }

    /// Sends to a process that is not in this system's registry.
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
        Refused::Closed(message) => SendError::new(to, message.payload, Why::NoProcess),
    })
}

/// A message that will be sent later. Dropping this value does not cancel it.
#[derive(Debug)]
pub struct SendAfter {
    task: AbortHandle,
    /// Set by the send or by the cancellation, whichever comes first.
    is_settled: Arc<AtomicBool>,
}

impl SendAfter {
    /// Cancels the message. Returns false if it has been sent or cancelled already.
    pub fn cancel(&self) -> bool {
        // ORDERING: Relaxed; only the order of the two swaps matters.
        let is_pending = !self.is_settled.swap(true, Ordering::Relaxed);
        if is_pending {
            self.task.abort();
        }
        is_pending
    }
}

/// The error returned when a message was not sent.
pub struct SendError {
    to: Pid,
    message: Payload,
    why: Why,
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

/// The error message for a value that is sent to another node.
pub(crate) const NOT_BYTES: &str =
    "only Payload::bytes and Payload::empty go to another node: turn the value into bytes";
/// The error message for too many bytes that are sent to another node.
pub(crate) const TOO_LARGE: &str =
    "the message has more bytes than a frame to another node can carry: send it in parts";

impl SendError {
    pub(crate) fn new(to: Pid, message: Payload, why: Why) -> Self {
        Self { to, message, why }
    }

    pub(crate) fn full(to: Pid, message: Payload) -> Self {
        Self::new(to, message, Why::Full)
    }

    /// Returns whether the mailbox, or the relay's queue to the other node, is full.
    pub fn is_full(&self) -> bool {
        matches!(self.why, Why::Full | Why::RelayFull)
    }

    /// Returns whether the message cannot be sent to another node, because it is neither
    /// [bytes](Payload::bytes) nor [empty](Payload::empty), or is too large.
    pub fn is_unfit(&self) -> bool {
        matches!(self.why, Why::NotBytes | Why::TooLarge)
    }

    /// Returns whether the process has exited, or never existed.
    pub fn is_no_process(&self) -> bool {
        self.why == Why::NoProcess
    }

    /// Returns whether the process is on a node that cannot be reached.
    pub fn is_no_connection(&self) -> bool {
        self.why == Why::NoConnection
    }

    /// Returns the message.
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
            Why::NoProcess => write!(f, "{to} has exited"),
            Why::NoConnection => write!(f, "{to} is on a node that cannot be reached"),
            Why::RelayFull => write!(f, "the relay's queue to the node of {to} is full: send later"),
            Why::NotBytes => f.write_str(NOT_BYTES),
            Why::TooLarge => f.write_str(TOO_LARGE),
            Why::Full => write!(f, "the mailbox of {to} is full: send later, or give it more room or another policy"),
        }
    }
}

impl std::error::Error for SendError {}
