//! What a step says when it returns: what the process waits for, and what it wants done meanwhile.

use std::collections::VecDeque;

use crate::messages::payload::Payload;
use crate::steps::command::CommandId;

/// What a process waits for after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing: it steps again, behind others that are ready.
    Continue,
    /// Events of any kind.
    #[default]
    Idle,
    /// Its yields: it steps again when one is completed, and gets the messages that came meanwhile
    /// then.
    Yield,
    /// It is done, and ends.
    Done,
}

/// A step's output: its status, [`Idle`](Status::Idle) unless it says otherwise, and its yields.
///
/// A yield is a command with a tag; when the command is completed, the process is told by
/// [`Event::Completed`](crate::Event::Completed) with that tag. Tags mean nothing to the system;
/// several yields may bear the same one.
///
/// They are carried out in their order once the step has returned. At most
/// [`YIELDS_MAX`](Output::YIELDS_MAX) may be outstanding; those beyond are completed with an error.
/// What is outstanding when the process ends is given up.
#[derive(Debug, Default)]
pub struct Output {
    pub(crate) status: Status,
    pub(crate) yields: VecDeque<Yield>,
    pub(crate) result: Payload,
    /// What it waits for is not among its yields, but will wake it.
    pub(crate) has_waker: bool,
}

/// A command that waits to be dispatched.
#[derive(Debug)]
pub(crate) struct Yield {
    pub tag: u64,
    pub command: CommandId,
    pub payload: Payload,
}

impl Output {
    /// Yields of one process that may be outstanding.
    pub const YIELDS_MAX: usize = 1024;

    /// Says what the process waits for.
    pub fn set_status(&mut self, status: Status) {
        self.status = status;
    }

    /// The process waits for its yields.
    pub fn wait(&mut self) {
        self.status = Status::Yield;
    }

    /// The process is done.
    pub fn done(&mut self) {
        self.status = Status::Done;
    }

    /// The process is done, and this is what it gives to whoever [executed](crate::System::exec)
    /// it.
    pub fn done_with(&mut self, result: Payload) {
        self.status = Status::Done;
        self.result = result;
    }

    /// Yields `command`, whatever its [handler](crate::Handler) makes of the payload.
    pub fn request(&mut self, tag: u64, command: CommandId, payload: Payload) {
        self.yields.push_back(Yield { tag, command, payload });
    }
}
