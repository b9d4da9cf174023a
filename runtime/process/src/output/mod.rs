//! The output of a step: what the process waits for, and which operations it yields.
//!
//! A *yield* is an operation that runs while the process waits: a `command`, or a message to send.
//! `work` has the yields of a process that have not completed.

pub(crate) mod command;
pub(crate) mod work;

use std::collections::VecDeque;

use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::output::command::CommandId;

/// The condition under which a process takes its next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// None: the process steps again after other ready tasks have run.
    Continue,
    /// Any event arrives.
    #[default]
    Idle,
    /// One of its yields completes, or an event other than a message arrives. That step also
    /// receives the messages that have arrived in the meantime. A process without an outstanding
    /// yield exits with [`Failed`](crate::ExitReason::Failed), since nothing would complete.
    Yield,
    /// The process has completed, and exits.
    Done,
}

/// The output of a step: a status, which is [`Idle`](Status::Idle) by default, and yields.
///
/// A yield is a command with a tag. When the command has completed, the process receives
/// [`Event::Completed`](crate::Event::Completed) with that tag. The system does not interpret tags;
/// several yields may have the same one.
///
/// Yields are started in order after the step has returned. At most
/// [`YIELDS_MAX`](Output::YIELDS_MAX) may be outstanding; any further yield completes with an
/// error. Yields that are outstanding when the process exits are cancelled.
#[derive(Debug, Default)]
pub struct Output {
    pub(crate) status: Status,
    pub(crate) yields: VecDeque<Yield>,
    pub(crate) result: Payload,
    /// The process awaits something that is not a yield, and that wakes it by its waker.
    pub(crate) has_waker: bool,
}

/// An operation that has not been dispatched yet.
#[derive(Debug)]
pub(crate) struct Yield {
    pub tag: u64,
    pub operation: Operation,
}

#[derive(Debug)]
pub(crate) enum Operation {
    /// A message. It is no command, since it is the most frequent operation: it is not boxed, and
    /// needs no handler.
    Send(Pid, Payload),
    /// A command, whose handler interprets the payload.
    Command(CommandId, Payload),
}

impl Output {
    /// The maximum number of outstanding yields of one process.
    pub const YIELDS_MAX: usize = 1024;

    /// Sets what the process waits for.
    pub fn set_status(&mut self, status: Status) {
        self.status = status;
    }

    /// Makes the process wait for its yields.
    pub fn wait(&mut self) {
        self.status = Status::Yield;
    }

    /// Completes the process.
    pub fn done(&mut self) {
        self.status = Status::Done;
    }

    /// Completes the process with a result, which [`exec`](crate::System::exec) returns.
    pub fn done_with(&mut self, result: Payload) {
        self.status = Status::Done;
        self.result = result;
    }

    /// Yields `command`. Its [handler](crate::Handler) interprets the payload.
    pub fn request(&mut self, tag: u64, command: CommandId, payload: Payload) {
        self.yields.push_back(Yield { tag, operation: Operation::Command(command, payload) });
    }
}
