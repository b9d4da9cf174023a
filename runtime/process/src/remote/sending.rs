//! The outgoing half of the connection to other nodes: sends frames for operations on remote pids.
//! A remote process is sent to, called, monitored and linked like a local one.
//!
//! Any thread that uses a remote pid runs this code. Incoming frames are handled in `receiving`.
//! Both halves share one [`Line`] per node, which contains the *bonds*: pending calls, monitors and
//! links.
//!
//! Guarantees across nodes, and no others:
//!
//! * *AT MOST ONCE*: a message arrives once or not at all. The sender gets only errors that are
//!   known on its own node. To know that a message arrived, use a call.
//! * *PER-SENDER ORDER*: messages from one process or thread to one process arrive in order,
//!   possibly with gaps. A frame is numbered and passed to the relay on the sender's thread, and
//!   there is one ordered stream from node to node.
//! * *NO WAITING FOR ONE*: a full mailbox refuses messages from other nodes, whatever its policy,
//!   so that one process cannot delay the frames for all others. The mailbox and
//!   `RelayCounts::undelivered` count them. For a call, the caller gets an error.
//! * *A PID IS ONE PROCESS*: calls, monitors and links belong to one incarnation of a node. A pid
//!   has twelve bytes, and does not contain the incarnation. Instead, a system with a relay begins
//!   its generations at a random number (`cluster::first_generation`), so that a pid of an earlier
//!   incarnation finds no process. The chance that it finds another process is 1 in 4,294,967,296
//!   for each use.
//!
//! # Invariants
//!
//! * *NOTIFIED ONCE*: the thread that removes a bond from the line notifies the process or caller
//!   that the bond belongs to.
//! * *LOCKS*: a line's `conversation` is locked before a process's `life`, never the other way
//!   round. `lines` is not held while either is locked.
//!
//! # Rejected
//!
//! * Pids with an incarnation: 16 bytes, and a third number in every text.
//! * Acknowledgements and resending: the process at the other end does that better, by replying to
//!   a call.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::entry::relations::Watcher;
use crate::messages::event::MonitorId;
use crate::messages::failure::ExitReason;
use crate::messages::payload::Payload;
use crate::messages::pid::{Node, Pid};
use crate::nodes::cluster::{Remote, pid, place};
use crate::nodes::frame::{self, Frame, Misfit, Outcome, PAYLOAD_BYTES_MAX};
use crate::nodes::line::{Bonds, Line, NotSent, Sent};
use crate::nodes::relay::Peer;
use crate::nodes::traffic::RelayCounts;
use crate::system::call;
use crate::system::core::{Entry, System};
use crate::system::send::{self, SendError};
use volt::sync::oneshot;
use volt::task;
use volt::time::{sleep, timeout};

/// How long a name lookup waits for the answer. The lookup ends earlier if the relay detects that
/// the node is lost.
const LOOKUP_LIMIT: Duration = Duration::from_secs(5);
/// How long frames that must not be refused wait before they are offered to the relay again.
const RETRY: Duration = Duration::from_millis(5);

impl System {
    /// Returns the nodes that can be reached at this moment.
    pub fn nodes(&self) -> Vec<Node> {
        let lines = self.remote().map(Remote::lines).unwrap_or_default();
        lines.iter().filter(|line| line.is_open()).map(|line| line.peer.node).collect()
    }

    /// Waits until `node` can be reached. Waits forever if it never can, or if the system has no
    /// [relay](crate::Relay).
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn wait_for_node(&self, node: Node) {
        let Some(remote) = self.remote() else { return std::future::pending().await };
        loop {
            let mut opened = std::pin::pin!(remote.opened.notified());
            opened.as_mut().enable();
            if remote.line(node).is_some_and(|line| line.is_open()) {
                return;
            }
            opened.await;
        }
    }

    /// Returns the process with this name on `node`; `None` if there is none. The process may exit
    /// before it is used.
    ///
    /// # Errors
    /// Returns an error if the node cannot be reached or does not respond within 5 s.
    ///
    /// # Panics
    /// Panics if `node` is another node and the future is polled outside the context of a runtime.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub async fn whereis_on(&self, node: Node, name: &str) -> Result<Option<Pid>, LookupError> {
        if node == self.node() {
            return Ok(self.whereis(name));
        }
        if name.len() > PAYLOAD_BYTES_MAX {
            return Ok(None);
        }
        let request = |id| Frame::WhereIs { id, name: name.to_owned() };
        match timeout(LOOKUP_LIMIT, self.request_from_node(node, request, ())).await {
            Ok(Ok(Outcome::Found(found))) => Ok(found.map(|place| pid(node, place))),
            Ok(Ok(_)) => Ok(None),
            Ok(Err(not_sent)) => Err(LookupError { node, why: Some(not_sent) }),
            Err(_elapsed) => Err(LookupError { node, why: None }),
        }
    }

    /// Returns counts of the frames between this system and other nodes; `None` if it has no relay.
    pub fn relay_counts(&self) -> Option<RelayCounts> {
        self.remote().map(|remote| remote.traffic.counts())
    }

    /// Whether a process is reached through the relay.
    pub(crate) fn is_remote(&self, pid: Pid) -> bool {
        pid.node() != self.node() && self.remote().is_some()
    }

    pub(crate) fn send_remote(&self, from: Option<Pid>, to: Pid, payload: Payload) -> Result<(), SendError> {
        let Some((remote, line)) = self.line_to(to.node()) else {
            return Err(SendError::new(to, payload, send::Why::NoConnection));
        };
        if let Err(misfit) = frame::fits(&payload) {
            return Err(SendError::new(to, payload, misfit.into()));
        }
        let frame = Frame::Message { to: place(to), from: from.map(place), payload };
        match (remote.send(&line, &frame, |_| {}), frame) {
            (Err(not_sent), Frame::Message { payload, .. }) => Err(SendError::new(to, payload, not_sent.into())),
            _ => Ok(()),
        }
    }

    /// Sends a call and waits for the answer. Drops `turn` once the call is on its way.
    pub(crate) async fn request_remote<T>(
        &self,
        from: Option<Pid>,
        to: Pid,
        payload: Payload,
        turn: T,
    ) -> Result<Payload, call::Why> {
        self.line_to(to.node()).ok_or(NotSent::NoConnection)?;
        frame::fits(&payload)?;
        let call = |id| Frame::Call { id, to: place(to), from: from.map(place), payload };
        match self.request_from_node(to.node(), call, turn).await? {
            Outcome::Answer(payload) => Ok(payload),
            Outcome::NoProcess => Err(call::Why::NoProcess),
            Outcome::Ended => Err(call::Why::Ended),
            Outcome::Full => Err(call::Why::Full),
            Outcome::NoReply | Outcome::Found(_) => Err(call::Why::NoReply),
            Outcome::NotBytes => Err(call::Why::AnswerNotBytes),
            Outcome::TooLarge => Err(call::Why::AnswerTooLarge),
        }
    }

    /// Replies to a call of another node. If the relay refuses the reply, it is lost, and the
    /// caller waits until its time-out.
    pub(crate) fn answer(&self, peer: Peer, id: u64, outcome: Outcome) {
        let outcome = match outcome {
            Outcome::Answer(payload) => match frame::fits(&payload) {
                Ok(()) => Outcome::Answer(payload),
                Err(Misfit::NotBytes) => Outcome::NotBytes,
                Err(Misfit::TooLarge) => Outcome::TooLarge,
            },
            other => other,
        };
        if let Some((remote, line)) = self.line_to(peer.node).filter(|(_, line)| line.peer == peer) {
            // A refused answer is counted. If the peer is lost, the caller no longer waits.
            let _counted = remote.send(&line, &Frame::Answer { id, outcome }, |_| {});
        }
    }

    /// Cancels or kills a process. Returns whether its node can be reached.
    pub(crate) fn end_remote(&self, pid: Pid, is_kill: bool) -> bool {
        let to = place(pid);
        let frame = if is_kill { Frame::Kill { to } } else { Frame::Cancel { to } };
        self.must_send_to(pid.node(), &frame, |_| true)
    }

    /// Watches a process from outside of any process. Dropping the future removes the monitor.
    pub(crate) fn watch_remote(&self, pid: Pid) -> impl Future<Output = ExitReason> + Send + use<> {
        let monitor = self.next_monitor();
        let (waiter, ended) = oneshot::channel();
        let is_watched = self.watch_on(monitor, pid, Watcher::Waiter(waiter));
        let watch = Watch { system: self.clone(), pid, monitor };
        async move {
            if !is_watched {
                return ExitReason::NoConnection;
            }
            let ended = ended.await;
            drop(watch);
            ended.map_or(ExitReason::NoConnection, |(reason, _)| reason)
        }
    }

    pub(crate) fn monitor_remote(&self, watcher: &Arc<Entry>, monitor: MonitorId, pid: Pid) {
        let is_alive = watcher.life().relations().map(|ours| ours.watched.insert(monitor, pid)).is_some();
        if is_alive && !self.watch_on(monitor, pid, Watcher::Process(watcher.pid())) {
            watcher.watched_ended(monitor, pid, ExitReason::NoConnection);
        }
        // The watcher may have exited before its exit could find the monitor in the line.
        if watcher.life().is_dead {
            self.demonitor_remote(monitor, pid);
        }
    }

    pub(crate) fn demonitor_remote(&self, monitor: MonitorId, pid: Pid) {
        let frame = Frame::Demonitor { id: monitor.0 };
        // Dropped without the lock, since it may contain a waker.
        let mut removed = None;
        self.must_send_to(pid.node(), &frame, |bonds| {
            removed = bonds.watching.remove(&monitor);
            removed.is_some()
        });
        drop(removed);
    }

    pub(crate) fn link_remote(&self, entry: &Arc<Entry>, pid: Pid) {
        let is_alive = entry.life().relations().map(|ours| ours.links.insert(pid)).is_some();
        if !is_alive {
            return;
        }
        let frame = Frame::Link { to: place(pid), from: place(entry.pid()) };
        let is_wanted = self.must_send_to(pid.node(), &frame, |bonds| {
            bonds.links.insert((entry.pid(), pid));
            true
        });
        if !is_wanted {
            entry.linked_ended(pid, ExitReason::NoConnection);
        } else if entry.life().is_dead {
            self.exit_remote(entry.pid(), pid, &ExitReason::NoProcess);
        }
    }

    pub(crate) fn unlink_remote(&self, entry: &Entry, pid: Pid) {
        entry.life().unlink(pid);
        let frame = Frame::Unlink { to: place(pid), from: place(entry.pid()) };
        self.must_send_to(pid.node(), &frame, |bonds| bonds.links.remove(&(entry.pid(), pid)));
    }

    /// Notifies `theirs`, which was linked with `ours`, that `ours` has exited.
    pub(crate) fn exit_remote(&self, ours: Pid, theirs: Pid, reason: &ExitReason) {
        let frame = Frame::Exit { to: place(theirs), from: place(ours), reason: reason.clone() };
        self.must_send_to(theirs.node(), &frame, |bonds| bonds.links.remove(&(ours, theirs)));
    }

    /// Notifies `node`, which watches a process by its monitor `id`, that the process has exited.
    pub(crate) fn down_remote(&self, node: Node, id: u64, local: MonitorId, reason: &ExitReason) {
        let frame = Frame::Down { id, reason: reason.clone() };
        self.must_send_to(node, &frame, |bonds| match bonds.watched.get(&id) {
            Some((_, monitor)) if *monitor == local => bonds.watched.remove(&id).is_some(),
            _ => false,
        });
    }

    /// Sends a frame that must not be refused, if `note` returns true. Returns false if there is no
    /// open conversation.
    pub(crate) fn must_send_to(&self, node: Node, frame: &Frame, note: impl FnOnce(&mut Bonds) -> bool) -> bool {
        let Some((remote, line)) = self.line_to(node) else { return false };
        let sent = line.must_send(&*remote.relay, &remote.traffic, frame, note);
        sent.map(|sent| self.handle(&line, sent)).is_some()
    }

    /// Does the work that remains after sending: retries the backlog, or restarts a conversation
    /// that was broken off.
    pub(crate) fn handle(&self, line: &Arc<Line>, sent: Sent) {
        match sent {
            Sent::Done => {}
            Sent::Waits => {
                let (system, line) = (self.downgrade(), line.clone());
                let flushes = async move {
                    loop {
                        sleep(RETRY).await;
                        let Some(system) = system.upgrade().map(System::from_inner) else { return };
                        let Some(remote) = system.remote() else { return };
                        if line.flush(&*remote.relay, &remote.traffic) {
                            return;
                        }
                    }
                };
                drop(task::Builder::new().spawn_on(flushes, self.runtime()));
            }
            Sent::Broken(bonds) => self.begin(line, *bonds, false),
        }
    }

    fn line_to(&self, node: Node) -> Option<(&Remote, Arc<Line>)> {
        let remote = self.remote()?;
        Some((remote, remote.line(node)?))
    }

    /// Sends a frame that has an answer, and waits for the answer.
    async fn request_from_node<T>(
        &self,
        node: Node,
        frame: impl FnOnce(u64) -> Frame,
        turn: T,
    ) -> Result<Outcome, NotSent> {
        let (remote, line) = self.line_to(node).ok_or(NotSent::NoConnection)?;
        let id = remote.next_id();
        let (asker, answer) = oneshot::channel();
        let frame = frame(id);
        remote.send(&line, &frame, |bonds| _ = bonds.pending.insert(id, asker))?;
        drop((frame, turn));
        let _pending = Pending { line: &line, id };
        answer.await.map_err(|_severed| NotSent::NoConnection)
    }

    fn watch_on(&self, monitor: MonitorId, pid: Pid, watcher: Watcher) -> bool {
        let frame = Frame::Monitor { id: monitor.0, to: place(pid) };
        self.must_send_to(pid.node(), &frame, |bonds| {
            bonds.watching.insert(monitor, (place(pid), watcher));
            true
        })
    }
}

/// A pending call or lookup. Dropping it removes the bond.
struct Pending<'a> {
    line: &'a Line,
    id: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        drop(self.line.bonds(|bonds| bonds.pending.remove(&self.id)));
    }
}

/// A monitor from outside of any process. Dropping it removes the monitor.
struct Watch {
    system: System,
    pid: Pid,
    monitor: MonitorId,
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.system.demonitor_remote(self.monitor, self.pid);
    }
}

impl From<Misfit> for send::Why {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::NotBytes => Self::NotBytes,
            Misfit::TooLarge => Self::TooLarge,
        }
    }
}

impl From<NotSent> for send::Why {
    fn from(not_sent: NotSent) -> Self {
        match not_sent {
            NotSent::NoConnection => Self::NoConnection,
            NotSent::Full => Self::RelayFull,
            NotSent::TooLarge => Self::TooLarge,
        }
    }
}

impl From<Misfit> for call::Why {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::NotBytes => Self::NotBytes,
            Misfit::TooLarge => Self::TooLarge,
        }
    }
}

impl From<NotSent> for call::Why {
    fn from(not_sent: NotSent) -> Self {
        match not_sent {
            NotSent::NoConnection => Self::NoConnection,
            NotSent::Full => Self::RelayFull,
            NotSent::TooLarge => Self::TooLarge,
        }
    }
}

/// The error returned when a name could not be looked up on another node.
#[derive(Clone, Debug)]
pub struct LookupError {
    node: Node,
    why: Option<NotSent>,
}

impl LookupError {
    /// Returns whether the node cannot be reached, or was lost before it responded.
    pub fn is_no_connection(&self) -> bool {
        self.why == Some(NotSent::NoConnection)
    }

    /// Returns whether the node did not respond in time.
    pub fn is_timed_out(&self) -> bool {
        self.why.is_none()
    }
}

impl fmt::Display for LookupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.node;
        match self.why {
            None => write!(f, "node {node} did not respond within {LOOKUP_LIMIT:?}"),
            Some(NotSent::NoConnection) => {
                write!(f, "node {node} cannot be reached: wait for it (System::wait_for_node)")
            }
            Some(NotSent::Full) => write!(f, "the relay's queue is full: repeat the request to node {node} later"),
            Some(NotSent::TooLarge) => write!(f, "the name is too long for the relay to node {node}"),
        }
    }
}

impl std::error::Error for LookupError {}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("me", &self.me).finish_non_exhaustive()
    }
}
