//! The handle by which a process, or an async function that is one, uses its own process and its
//! system.

use std::future::{Future, ready};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::messages::event::MonitorId;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::system::call::CallError;
use crate::system::core::{Entry, System};
use crate::system::send::SendError;

/// A process's handle to itself, which [`init`](crate::Process::init) receives. Cheap to clone, and
/// may be kept.
#[derive(Clone, Debug)]
pub struct Context(Arc<Entry>);

impl Context {
    pub(crate) fn new(entry: Arc<Entry>) -> Self {
        Self(entry)
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.0
    }

    /// Returns the pid of this process.
    pub fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Returns the process that started it; `None` if it was started from outside of any process.
    pub fn parent(&self) -> Option<Pid> {
        self.0.parent()
    }

    /// Returns the system in which it runs.
    pub fn system(&self) -> &System {
        self.0.system()
    }

    /// Sends a message. Waits while the mailbox is full and its policy is
    /// [`Block`](crate::Overflow::Block). A process cannot wait for room in its own mailbox; if
    /// that is full, this returns an error.
    ///
    /// # Errors
    /// Fails as [`System::send`] does.
    ///
    /// # Cancel safety
    /// If the future is dropped before it completes, the message is not sent.
    pub async fn send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        if to == self.pid() {
            return self.try_send_in_turn(to, message);
        }
        self.system().send_as(Some(self.pid()), to, message).await
    }

    /// Sends a message without waiting for room. It is sent before the messages that the same step
    /// [yields](crate::Output::send).
    ///
    /// # Errors
    /// Fails as [`System::try_send`] does. Also fails while a [yielded](crate::Output::send)
    /// message of this process waits for room, since no message may overtake another.
    pub fn try_send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        if self.0.is_sending() {
            return Err(SendError::full(to, message));
        }
        self.try_send_in_turn(to, message)
    }

    /// Sends a message and waits for the answer, for at most `limit`.
    ///
    /// # Errors
    /// Fails as [`System::call`] does.
    ///
    /// # Panics
    /// Same as [`System::call`].
    ///
    /// # Cancel safety
    /// Same as [`System::call`].
    pub async fn call(&self, to: Pid, message: Payload, limit: Duration) -> Result<Payload, CallError> {
        self.call_in_turn(to, message, limit, ready(())).await
    }

    /// Monitors a process. When it exits, this process receives
    /// [`Event::Down`](crate::Event::Down), immediately if it has exited already.
    pub fn monitor(&self, pid: Pid) -> MonitorId {
        self.system().monitor_as(&self.0, pid)
    }

    /// Removes a monitor. An [`Event::Down`](crate::Event::Down) that is already in the mailbox is
    /// still delivered.
    pub fn demonitor(&self, monitor: MonitorId) {
        self.system().demonitor_as(&self.0, monitor);
    }

    /// Links this process with another. If one exits abnormally, the other exits, too, or receives
    /// an event if it [traps exits](crate::Spawn::trap_exits). If the other process has exited
    /// already, this counts as an abnormal exit with
    /// [`ExitReason::NoProcess`](crate::ExitReason::NoProcess).
    pub fn link(&self, pid: Pid) {
        self.system().link_as(&self.0, pid);
    }

    /// Removes a link.
    pub fn unlink(&self, pid: Pid) {
        self.system().unlink_as(&self.0, pid);
    }

    /// Returns a waker that makes the process step, whatever it waits for. It is meant for
    /// operations that are not yields. A process that uses it may wait with
    /// [`Status::Idle`](crate::Status::Idle).
    pub fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }

    /// Counts a restart of a child. Called by supervisors.
    pub(crate) fn count_restart(&self) {
        self.0.count_restart();
    }

    fn try_send_in_turn(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        self.system().try_send_as(Some(self.pid()), to, message)
    }

    /// Makes a call whose message is sent when `turn` has completed.
    pub(crate) async fn call_in_turn<T>(
        &self,
        to: Pid,
        message: Payload,
        limit: Duration,
        turn: impl Future<Output = T>,
    ) -> Result<Payload, CallError> {
        self.system().call_as(Some(self.pid()), to, message, limit, turn).await
    }

    /// Sends a yielded message at its turn.
    pub(crate) async fn send_in_turn(&self, to: Pid, message: Payload) -> Result<Payload, Failure> {
        self.send(to, message).await?;
        Ok(Payload::empty())
    }
}
