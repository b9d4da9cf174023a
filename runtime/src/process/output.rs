//! What a step says when it returns: what the process waits for, and what it wants done meanwhile.

use std::collections::VecDeque;
use std::time::Duration;

use super::commands;
use super::dispatch::CommandId;
use super::event::MonitorId;
use super::payload::Payload;
use super::pid::Pid;
use super::spawn::Spawn;

/// What a process waits for after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// Nothing: it steps again, behind others that are ready.
    Continue,
    /// Events of any kind.
    #[default]
    Idle,
    /// Its yields: it steps again when one is completed, and gets the messages that came meanwhile then.
    Yield,
    /// It is done, and ends.
    Done,
}

/// A step's output: its status, [`Idle`](Status::Idle) unless it says otherwise, and its yields.
///
/// A yield is a command with a tag; when the command is completed, the process is told by
/// [`Event::Completed`](super::Event::Completed) with that tag. Tags mean nothing to the system; several yields may bear the same one.
///
/// They are carried out in their order once the step has returned. At most [`YIELDS_MAX`](Output::YIELDS_MAX) may be outstanding; those
/// beyond are completed with an error. What is outstanding when the process ends is given up.
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

    /// The process is done, and this is what it gives to whoever [executed](super::System::exec) it.
    pub fn done_with(&mut self, result: Payload) {
        self.status = Status::Done;
        self.result = result;
    }

    /// Yields `command`, whatever its [handler](super::Handler) makes of the payload.
    pub fn request(&mut self, tag: u64, command: CommandId, payload: Payload) {
        self.yields.push_back(Yield { tag, command, payload });
    }

    /// Yields a sleep: completed, with nothing, after `duration`.
    pub fn sleep(&mut self, tag: u64, duration: Duration) {
        self.request(tag, commands::SLEEP, Payload::new(duration));
    }

    /// Yields an interval: completed again and again, for the first time after one `period`, with the [`Instant`](std::time::Instant) at which that
    /// was due, until it is [cancelled](Self::cancel). Periods that passed while the process was late are left out.
    pub fn interval(&mut self, tag: u64, period: Duration) {
        self.request(tag, commands::INTERVAL, Payload::new(period));
    }

    /// Yields a message to `to`: completed, with nothing, once it is in the mailbox; with an error if the process has ended or its mailbox
    /// refuses. What one process sends, and what it [calls](Self::call) with, arrives in the order in which it was yielded. One that still waits for
    /// room when the process ends is not sent: a process whose last words must arrive is done when they are completed.
    pub fn send(&mut self, tag: u64, to: Pid, message: Payload) {
        self.request(tag, commands::SEND, Payload::new(commands::Send { to, message }));
    }

    /// Yields a call: completed with the answer, or with an error if there is none within `limit`, which runs while its message waits behind
    /// others, too.
    pub fn call(&mut self, tag: u64, to: Pid, message: Payload, limit: Duration) {
        self.request(tag, commands::CALL, Payload::new(commands::Call { to, message, limit }));
    }

    /// Yields the start of a process: completed with its [`Pid`].
    pub fn spawn(&mut self, tag: u64, spawn: Spawn) {
        self.request(tag, commands::SPAWN, Payload::new(spawn));
    }

    /// Yields a whole process: completed with its [result](Self::done_with) when it has ended, or with an error that says why it failed.
    pub fn exec(&mut self, tag: u64, spawn: Spawn) {
        self.request(tag, commands::EXEC, Payload::new(spawn));
    }

    /// Yields the end of another process: it is asked to end, and after `limit` made to. Completed with its
    /// [`ExitReason`](super::ExitReason) when it has ended.
    pub fn terminate(&mut self, tag: u64, pid: Pid, limit: Duration) {
        self.request(tag, commands::TERMINATE, Payload::new(commands::Terminate { pid, limit }));
    }

    /// Yields a watch over `pid`: completed with a [`MonitorId`]; its end is told by [`Event::Down`](super::Event::Down).
    pub fn monitor(&mut self, tag: u64, pid: Pid) {
        self.request(tag, commands::MONITOR, Payload::new(pid));
    }

    /// Yields the end of that watch: completed with nothing. No [`Event::Down`](super::Event::Down) comes afterwards, but for one that is in the
    /// mailbox already.
    pub fn demonitor(&mut self, tag: u64, monitor: MonitorId) {
        self.request(tag, commands::DEMONITOR, Payload::new(monitor));
    }

    /// Yields a link with `pid`: completed with nothing. If one of the two ends abnormally, the other does, unless it
    /// [traps exits](super::Spawn::trap_exits).
    pub fn link(&mut self, tag: u64, pid: Pid) {
        self.request(tag, commands::LINK, Payload::new(pid));
    }

    /// Yields the end of a link: completed with nothing.
    pub fn unlink(&mut self, tag: u64, pid: Pid) {
        self.request(tag, commands::UNLINK, Payload::new(pid));
    }

    /// Gives up the outstanding yields that bear `tag`: they are completed no more. What their commands have done stays done.
    pub fn cancel(&mut self, tag: u64) {
        self.request(tag, commands::CANCEL, Payload::empty());
    }
}
