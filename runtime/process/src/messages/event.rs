//! The events that a process receives in its steps.

use std::collections::VecDeque;
use std::fmt;

use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use volt::sync::oneshot;

/// Something that happened to a process. [`step`](crate::Process::step) receives the events in the
/// order in which they arrived.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message from another process, or from outside of any process.
    Message(Message),
    /// A yield has completed.
    Completed {
        /// The tag of the yield.
        tag: u64,
        /// The result of its command.
        result: Result<Payload, Failure>,
    },
    /// A monitored process has exited, or did not exist.
    Down {
        /// The result of [`monitor`](crate::Context::monitor).
        monitor: MonitorId,
        /// The monitored process.
        pid: Pid,
        /// Its exit reason.
        reason: ExitReason,
    },
    /// A linked process has exited. Only a process that [traps exits](crate::Spawn::trap_exits)
    /// receives this event. Any other process exits, too, if the exit is abnormal.
    Exit {
        /// The linked process.
        pid: Pid,
        /// Its exit reason.
        reason: ExitReason,
    },
    /// The process is requested to end. [`System::terminate`](crate::System::terminate) and
    /// [`System::shutdown`](crate::System::shutdown) kill it if it does not exit in time.
    Cancel,
}

/// The events of a step, oldest first. Events that the step does not take are dropped.
#[derive(Debug)]
pub struct Events<'a>(&'a mut VecDeque<Event>);

impl<'a> Events<'a> {
    /// Events that are not taken stay in `events`, and the runner drops them one by one: two
    /// destructors that panic in a row would otherwise abort the program.
    pub(crate) fn new(events: &'a mut VecDeque<Event>) -> Self {
        Self(events)
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.0.pop_front()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.0.len(), Some(self.0.len()))
    }
}

impl ExactSizeIterator for Events<'_> {}

/// A message to a process.
#[derive(Debug)]
#[non_exhaustive]
pub struct Message {
    /// The process that sent it; `None` if it was sent from outside of any process.
    pub from: Option<Pid>,
    /// The content.
    pub payload: Payload,
    /// Sends the answer, if the sender [waits for one](crate::System::call).
    pub reply: Option<Reply>,
}

/// Sends the answer to a [call](crate::System::call). If it is dropped, the call fails.
pub struct Reply(Way);

enum Way {
    Local(oneshot::Sender<Payload>),
    Remote(Box<dyn Caller>),
}

/// A caller on another node.
pub(crate) trait Caller: Send + Sync {
    /// Sends the answer.
    fn answer(self: Box<Self>, answer: Payload);

    /// Reports that the mailbox did not accept the message: it is full, or the process has exited.
    fn refuse(self: Box<Self>, is_full: bool);
}

impl Reply {
    pub(crate) fn local(caller: oneshot::Sender<Payload>) -> Self {
        Self(Way::Local(caller))
    }

    pub(crate) fn remote(caller: Box<dyn Caller>) -> Self {
        Self(Way::Remote(caller))
    }

    /// Reports that the mailbox did not accept the message. A local caller gets that as the result
    /// of its send.
    pub(crate) fn refuse(self, is_full: bool) {
        if let Way::Remote(caller) = self.0 {
            caller.refuse(is_full);
        }
    }

    /// Sends the answer. It is dropped if the caller no longer waits.
    pub fn send(self, answer: Payload) {
        match self.0 {
            Way::Local(caller) => drop(caller.send(answer)),
            Way::Remote(caller) => caller.answer(answer),
        }
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reply")
    }
}

/// The identifier of a monitor. It is unique within its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonitorId(pub(crate) u64);
