//! The yields of the system's own commands. Each is a method of [`Output`].

use std::time::Duration;

use crate::messages::event::MonitorId;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::output::command;
use crate::output::{Operation, Output, Yield};
use crate::steps::spawn::Spawn;

impl Output {
    /// Yields a sleep. Completes with an empty payload after `duration`.
    pub fn sleep(&mut self, tag: u64, duration: Duration) {
        self.request(tag, command::SLEEP, Payload::new(duration));
    }

    /// Yields an interval. Completes again and again, the first time after one `period`, until it
    /// is [cancelled](Self::cancel). Each result is the [`Instant`](volt::time::Instant) at which
    /// the tick was due. Ticks that were missed because the process was late are skipped.
    pub fn interval(&mut self, tag: u64, period: Duration) {
        self.request(tag, command::INTERVAL, Payload::new(period));
    }

    /// Yields a message to `to`. Completes with an empty payload once the message is in the
    /// mailbox. Completes with an error if the process has exited or its mailbox refuses the
    /// message.
    ///
    /// Messages that a process yields, including those of its [calls](Self::call), arrive in the
    /// order in which they were yielded. A message that still waits for room when the process exits
    /// is not sent. If its last message must arrive, the process should complete only after that
    /// yield has completed.
    pub fn send(&mut self, tag: u64, to: Pid, message: Payload) {
        self.yields.push_back(Yield { tag, operation: Operation::Send(to, message) });
    }

    /// Yields a call. Completes with the answer, or with an error if there is none within `limit`.
    /// The limit includes the time in which the message waits behind other messages of this
    /// process.
    pub fn call(&mut self, tag: u64, to: Pid, message: Payload, limit: Duration) {
        self.request(tag, command::CALL, Payload::new(command::Call { to, message, limit }));
    }

    /// Yields the start of a process. Completes with its [`Pid`].
    pub fn spawn(&mut self, tag: u64, spawn: Spawn) {
        self.request(tag, command::SPAWN, Payload::new(spawn));
    }

    /// Yields the execution of a process. Completes with its [result](Self::done_with) when it has
    /// exited, or with an error that describes why it failed.
    pub fn exec(&mut self, tag: u64, spawn: Spawn) {
        self.request(tag, command::EXEC, Payload::new(spawn));
    }

    /// Yields the end of another process: cancels it, and kills it after `limit`. Completes with
    /// its [`ExitReason`](crate::ExitReason) when it has exited.
    pub fn terminate(&mut self, tag: u64, pid: Pid, limit: Duration) {
        self.request(tag, command::TERMINATE, Payload::new(command::Terminate { pid, limit }));
    }

    /// Yields a monitor of `pid`. Completes with a [`MonitorId`]. When the process exits, this
    /// process receives [`Event::Down`](crate::Event::Down).
    pub fn monitor(&mut self, tag: u64, pid: Pid) {
        self.request(tag, command::MONITOR, Payload::new(pid));
    }

    /// Yields the removal of a monitor. Completes with an empty payload. After that, no
    /// [`Event::Down`](crate::Event::Down) is added to the mailbox; one that is there already is
    /// still delivered.
    pub fn demonitor(&mut self, tag: u64, monitor: MonitorId) {
        self.request(tag, command::DEMONITOR, Payload::new(monitor));
    }

    /// Yields a link with `pid`. Completes with an empty payload. If one of the two processes exits
    /// abnormally, the other does, too, unless it [traps exits](crate::Spawn::trap_exits).
    pub fn link(&mut self, tag: u64, pid: Pid) {
        self.request(tag, command::LINK, Payload::new(pid));
    }

    /// Yields the removal of a link. Completes with an empty payload.
    pub fn unlink(&mut self, tag: u64, pid: Pid) {
        self.request(tag, command::UNLINK, Payload::new(pid));
    }

    /// Cancels the outstanding yields with `tag`: they do not complete. Effects that their commands
    /// already had are not undone.
    pub fn cancel(&mut self, tag: u64) {
        self.request(tag, command::CANCEL, Payload::empty());
    }
}
