//! Calls: messages to a process that wait for an answer.

use std::fmt;
use std::future::{Future, ready};
use std::time::Duration;

use crate::entry::delivery::Delivery;
use crate::entry::mailbox::Refused;
use crate::messages::event::{Message, Reply};
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::system::core::System;
use crate::system::send;
use volt::sync::oneshot;
use volt::time::timeout;

impl System {
    /// Sends a message and waits for the answer, for at most `limit`. The limit includes the time
    /// in which the message waits for room in a full mailbox.
    ///
    /// # Errors
    /// Returns an error in these cases:
    ///
    /// - The process has exited, before or after it received the message.
    /// - Its mailbox refuses the message.
    /// - The process dropped the [`Reply`].
    /// - There was no answer within `limit`.
    /// - The process is on another node, and that node cannot be reached, or the message or the
    ///   answer cannot be sent between nodes.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the message may or may not have been sent. An
    /// answer is dropped.
    pub async fn call(&self, to: Pid, message: Payload, limit: Duration) -> Result<Payload, CallError> {
        self.call_as(None, to, message, limit, ready(())).await
    }

    /// Sends the message after `turn` has completed. Drops the output of `turn` when the message is
    /// in the mailbox.
    pub(crate) async fn call_as<T>(
        &self,
        from: Option<Pid>,
        to: Pid,
        payload: Payload,
        limit: Duration,
        turn: impl Future<Output = T>,
    ) -> Result<Payload, CallError> {
        let answered = timeout(limit, self.request(from, to, payload, turn)).await;
        answered.unwrap_or(Err(Why::TimedOut)).map_err(|why| CallError { to, limit, why })
    }

    async fn request<T>(
        &self,
        from: Option<Pid>,
        to: Pid,
        payload: Payload,
        turn: impl Future<Output = T>,
    ) -> Result<Payload, Why> {
        let turn = turn.await;
        let Some(entry) = self.entry(to) else {
            return match to.node() == self.node() {
                true => Err(Why::NoProcess),
                false => self.request_remote(from, to, payload, turn).await,
            };
        };
        let (caller, answer) = oneshot::channel();
        match Delivery::new(&*entry, Message { from, payload, reply: Some(Reply::local(caller)) }).await {
            Ok(()) => {}
            Err(Refused::Full(_)) => return Err(Why::Full),
            Err(Refused::Closed(_)) => return Err(Why::NoProcess),
        }
        drop(turn);
        // A process that exits drops the contents of its mailbox, and with it the other half of the
        // channel.
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(_dropped) if entry.life().is_dead => Err(Why::Ended),
            Err(_dropped) => Err(Why::NoReply),
        }
    }
}

/// The error of a call without a reply.
#[derive(Clone, Debug)]
pub struct CallError {
    to: Pid,
    limit: Duration,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    NoProcess,
    NoConnection,
    Ended,
    Full,
    NoReply,
    TimedOut,
    RelayFull,
    NotBytes,
    TooLarge,
    AnswerNotBytes,
    AnswerTooLarge,
}

impl CallError {
    /// Returns whether the process had exited, or exited while the message was in its mailbox.
    pub fn is_no_process(&self) -> bool {
        matches!(self.why, Why::NoProcess | Why::Ended)
    }

    /// Returns whether the process is on a node that cannot be reached.
    pub fn is_no_connection(&self) -> bool {
        self.why == Why::NoConnection
    }

    /// Returns whether there was no answer within the limit. The process may still handle the
    /// message.
    pub fn is_timed_out(&self) -> bool {
        self.why == Why::TimedOut
    }

    /// Returns whether the mailbox, or the relay's queue to the other node, is full.
    pub fn is_full(&self) -> bool {
        matches!(self.why, Why::Full | Why::RelayFull)
    }

    /// Returns whether the message or the answer cannot be sent to another node, because it is
    /// neither [bytes](Payload::bytes) nor [empty](Payload::empty), or is too large.
    pub fn is_unfit(&self) -> bool {
        matches!(self.why, Why::NotBytes | Why::TooLarge | Why::AnswerNotBytes | Why::AnswerTooLarge)
    }

    /// Returns whether the process received the message and dropped the [`Reply`]. A process that
    /// exits while it handles the message does so, too.
    pub fn is_no_reply(&self) -> bool {
        self.why == Why::NoReply
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (to, limit) = (self.to, self.limit);
        match self.why {
            Why::NoProcess => write!(f, "{to} has exited"),
            Why::NoConnection => write!(f, "{to} is on a node that cannot be reached"),
            Why::Ended => write!(f, "{to} exited before it replied"),
            Why::Full => write!(f, "the mailbox of {to} is full: call later, or give it more room or another policy"),
            Why::RelayFull => write!(f, "the relay's queue to the node of {to} is full: call later"),
            Why::NotBytes => f.write_str(send::NOT_BYTES),
            Why::TooLarge => f.write_str(send::TOO_LARGE),
            Why::AnswerNotBytes => write!(f, "{to} replied with a value: to another node, reply with Payload::bytes"),
            Why::AnswerTooLarge => write!(f, "{to} replied with more than a frame can carry: reply in parts"),
            Why::NoReply => write!(f, "{to} dropped the message without a reply"),
            Why::TimedOut => write!(f, "{to} did not reply within {limit:?}"),
        }
    }
}

impl std::error::Error for CallError {}
