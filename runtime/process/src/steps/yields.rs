//! The commands of the system that a step can yield, each a method of [`Output`].

use std::time::Duration;

use crate::messages::event::MonitorId;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::steps::command;
use crate::steps::output::Output;
use crate::steps::spawn::Spawn;

impl Output {
    /// Yields a sleep: completed, with nothing, after `duration`.
    pub fn sleep(&mut self, tag: u64, duration: Duration) {
        self.request(tag, command::SLEEP, Payload::new(duration));
    }

    /// Yields an interval: completed again and again, for the first time after one `period`, with
    /// the [`Instant`](std::time::Instant) at which that was due, until it is
    /// [cancelled](Self::cancel). Periods that passed while the process was late are left out.
    pub fn interval(&mut self, tag: u64, period: Duration) {
        self.request(tag, command::INTERVAL, Payload::new(period));
    }

    /// Yields a message to `to`: completed, with nothing, once it is in the mailbox; with an error
    /// if the process has ended or its mailbox refuses. What one process sends, and what it
    /// [calls](Self::call) with, arrives in the order in which it was yielded. One that still waits
    /// for room when the process ends is not sent: a process whose last words must arrive is
    /// done when they are completed.
    pub fn send(&mut self, tag: u64, to: Pid, message: Payload) {
        self.request(tag, command::SEND, Payload::new(command::Send { to, message }));
    }

    /// Yields a call: completed with the answer, or with an error if there is none within `limit`,
    /// which runs while its message waits behind others, too.
    pub fn call(&mut self, tag: u64, to: Pid, message: Payload, limit: Duration) {
        self.request(tag, command::CALL, Payload::new(command::Call { to, message, limit }));
    }

    /// Yields the start of a process: completed with its [`Pid`].
    pub fn spawn(&mut self, tag: u64, spawn: Spawn) {
        self.request(tag, command::SPAWN, Payload::new(spawn));
    }

    /// Yields a whole process: completed with its [result](Self::done_with) when it has ended, or
    /// with an error that says why it failed.
    pub fn exec(&mut self, tag: u64, spawn: Spawn) {
        self.request(tag, command::EXEC, Payload::new(spawn));
    }

    /// Yields the end of another process: it is asked to end, and after `limit` made to. Completed
    /// with its [`ExitReason`](crate::ExitReason) when it has ended.
    pub fn terminate(&mut self, tag: u64, pid: Pid, limit: Duration) {
        self.request(tag, command::TERMINATE, Payload::new(command::Terminate { pid, limit }));
    }

    /// Yields a watch over `pid`: completed with a [`MonitorId`]; its end is told by
    /// [`Event::Down`](crate::Event::Down).
    pub fn monitor(&mut self, tag: u64, pid: Pid) {
        self.request(tag, command::MONITOR, Payload::new(pid));
    }

    /// Yields the end of that watch: completed with nothing. No [`Event::Down`](crate::Event::Down)
    /// comes afterwards, but for one that is in the mailbox already.
    pub fn demonitor(&mut self, tag: u64, monitor: MonitorId) {
        self.request(tag, command::DEMONITOR, Payload::new(monitor));
    }

    /// Yields a link with `pid`: completed with nothing. If one of the two ends abnormally, the
    /// other does, unless it [traps exits](crate::Spawn::trap_exits).
    pub fn link(&mut self, tag: u64, pid: Pid) {
        self.request(tag, command::LINK, Payload::new(pid));
    }

    /// Yields the end of a link: completed with nothing.
    pub fn unlink(&mut self, tag: u64, pid: Pid) {
        self.request(tag, command::UNLINK, Payload::new(pid));
    }

    /// Gives up the outstanding yields that bear `tag`: they are completed no more. What their
    /// commands have done stays done.
    pub fn cancel(&mut self, tag: u64) {
        self.request(tag, command::CANCEL, Payload::empty());
    }
}
