//! What a process, or an async function that is one, holds of itself and of the system.

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

/// A process as it sees itself; [`init`](crate::Process::init) gets it. Cheap to clone, and to be
/// kept.
#[derive(Clone, Debug)]
pub struct Context(Arc<Entry>);

impl Context {
    pub(crate) fn new(entry: Arc<Entry>) -> Self {
        Self(entry)
    }

    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.0
    }

    /// Who it is.
    pub fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Which process started it; `None` if none did.
    pub fn parent(&self) -> Option<Pid> {
        self.0.parent()
    }

    /// The system in which it runs.
    pub fn system(&self) -> &System {
        self.0.system()
    }

    /// Sends a message; waits while the mailbox is full and its policy is
    /// [`Block`](crate::Overflow::Block). Its own it cannot wait for: if that is full, this is
    /// an error.
    ///
    /// # Errors
    /// As [`System::send`].
    ///
    /// # Cancel safety
    /// Dropped before it is ready, the message is not sent.
    pub async fn send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        if to == self.pid() {
            return self.try_send_in_turn(to, message);
        }
        self.system().send_as(Some(self.pid()), to, message).await
    }

    /// Sends a message at once, and so before those that the same step
    /// [yields](crate::Output::send).
    ///
    /// # Errors
    /// As [`System::try_send`]. Also while a [yielded](crate::Output::send) message of this process
    /// waits for room: none overtakes another.
    pub fn try_send(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        if self.0.is_sending() {
            return Err(SendError::full(to, message));
        }
        self.try_send_in_turn(to, message)
    }

    /// Sends a message and waits for the answer, for at most `limit`.
    ///
    /// # Errors
    /// As [`System::call`].
    pub async fn call(&self, to: Pid, message: Payload, limit: Duration) -> Result<Payload, CallError> {
        self.call_in_turn(to, message, limit, ready(())).await
    }

    /// Watches a process: its end is told by [`Event::Down`](crate::Event::Down), at once if it is
    /// dead already.
    pub fn monitor(&self, pid: Pid) -> MonitorId {
        self.system().monitor_as(&self.0, pid)
    }

    /// Watches no longer. An [`Event::Down`](crate::Event::Down) that is in the mailbox already
    /// still comes.
    pub fn demonitor(&self, monitor: MonitorId) {
        self.system().demonitor_as(&self.0, monitor);
    }

    /// Links this process with another: if one ends abnormally, the other does, or is told if it
    /// [traps exits](crate::Spawn::trap_exits). If the other is dead already, that is an abnormal
    /// end, [`ExitReason::NoProcess`](crate::ExitReason::NoProcess).
    pub fn link(&self, pid: Pid) {
        self.system().link_as(&self.0, pid);
    }

    /// Takes a link away.
    pub fn unlink(&self, pid: Pid) {
        self.system().unlink_as(&self.0, pid);
    }

    /// Makes the process step, whatever it waits for: for what completes by itself and not as a
    /// yield. A process that holds it may wait with [`Status::Idle`](crate::Status::Idle).
    pub fn waker(&self) -> Waker {
        Waker::from(self.0.clone())
    }

    /// A supervisor restarts a child.
    pub(crate) fn count_restart(&self) {
        self.0.count_restart();
    }

    fn try_send_in_turn(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        self.system().try_send_as(Some(self.pid()), to, message)
    }

    /// A yielded send, at its turn: if there is no room it can still wait.
    pub(crate) fn offer_in_turn(&self, to: Pid, message: Payload) -> Result<(), SendError> {
        self.system().offer_as(Some(self.pid()), to, message)
    }

    /// A call whose message is sent when it is its `turn`.
    pub(crate) async fn call_in_turn<T>(
        &self,
        to: Pid,
        message: Payload,
        limit: Duration,
        turn: impl Future<Output = T>,
    ) -> Result<Payload, CallError> {
        self.system().call_as(Some(self.pid()), to, message, limit, turn).await
    }

    /// A yielded send, at its turn.
    pub(crate) async fn send_in_turn(&self, to: Pid, message: Payload) -> Result<Payload, Failure> {
        self.send(to, message).await?;
        Ok(Payload::empty())
    }
}
