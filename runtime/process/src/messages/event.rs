//! What a process is told in its steps.

use std::collections::VecDeque;
use std::fmt;

use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use volt::sync::oneshot;

/// Something that happened to a process; [`step`](crate::Process::step) gets them in the order in
/// which they came.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message from another process, or from outside.
    Message(Message),
    /// A yield is completed.
    Completed {
        /// The tag that it was yielded with.
        tag: u64,
        /// What its command gave.
        result: Result<Payload, Failure>,
    },
    /// A monitored process has ended, or was not there.
    Down {
        /// What [`monitor`](crate::Context::monitor) gave.
        monitor: MonitorId,
        /// The process.
        pid: Pid,
        /// Why.
        reason: ExitReason,
    },
    /// A linked process has ended; only processes that [trap exits](crate::Spawn::trap_exits) are
    /// told, others end with it if the end is abnormal.
    Exit {
        /// The process.
        pid: Pid,
        /// Why.
        reason: ExitReason,
    },
    /// It is asked to end; after a while it is made to.
    Cancel,
}

/// The events of a step, oldest first. What a step does not take out is dropped.
#[derive(Debug)]
pub struct Events<'a>(&'a mut VecDeque<Event>);

impl<'a> Events<'a> {
    /// What is not taken out stays in `events`, to be dropped one by one: two destructors that
    /// panic in one go abort the program.
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

/// What one process says to another.
#[derive(Debug)]
#[non_exhaustive]
pub struct Message {
    /// Who says it; `None` from outside of any process.
    pub from: Option<Pid>,
    /// What.
    pub payload: Payload,
    /// Where the answer goes, if the sender [waits for one](crate::System::call).
    pub reply: Option<Reply>,
}

/// Where the answer to a [call](crate::System::call) goes. Dropped, it tells the caller that there
/// is none.
pub struct Reply(Way);

enum Way {
    Local(oneshot::Sender<Payload>),
    Remote(Box<dyn Caller>),
}

/// A caller on another node.
pub(crate) trait Caller: Send + Sync {
    /// Sends the answer.
    fn answer(self: Box<Self>, answer: Payload);

    /// Reports that the message was not taken in: the mailbox is full, or the process has ended.
    fn refuse(self: Box<Self>, is_full: bool);
}

impl Reply {
    pub(crate) fn local(caller: oneshot::Sender<Payload>) -> Self {
        Self(Way::Local(caller))
    }

    pub(crate) fn remote(caller: Box<dyn Caller>) -> Self {
        Self(Way::Remote(caller))
    }

    /// The message was not taken in.
    pub(crate) fn refuse(self, is_full: bool) {
        if let Way::Remote(caller) = self.0 {
            caller.refuse(is_full);
        }
    }

    /// Answers. A caller that waits no longer does not notice.
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

/// One watch over one process; unique in its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MonitorId(pub(crate) u64);
