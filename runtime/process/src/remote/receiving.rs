//! The incoming half of the connection to other nodes: nodes that connect and disconnect, and their
//! frames.
//!
//! The relay calls this code from its own tasks, through [`Incoming`](crate::Incoming). Nothing
//! here waits: a full mailbox refuses a message.
//!
//! The frames of a peer are handled in the order in which they arrive. Together with the one stream
//! per peer, this preserves the order of each sender.
//!
//! When a conversation is broken off (`line`) or its node is lost, each of its bonds ends exactly
//! once (`sever`):
//!
//! * Pending calls and lookups fail with [`NoConnection`](crate::CallError::is_no_connection).
//! * Watchers on this node receive `Down` with `NoConnection`.
//! * Linked processes on this node receive an exit with `NoConnection`, which is abnormal.
//! * Monitors of the peer on processes of this node are removed.

use std::sync::Arc;

use bytes::Bytes;

use crate::entry::mailbox::{Refused, Taken};
use crate::entry::relations::Watcher;
use crate::messages::event::{Caller, Message, MonitorId, Reply};
use crate::messages::failure::ExitReason;
use crate::messages::payload::Payload;
use crate::messages::pid::{Node, Pid};
use crate::nodes::cluster::{Remote, pid, place};
use crate::nodes::frame::{Fault, Frame, Outcome, Place, Unread};
use crate::nodes::line::{BONDS_MAX, Bonds, Line, Received};
use crate::nodes::relay::{Peer, Receives};
use crate::system::core::{Inner, System};

impl System {
    pub(crate) fn peer_up(&self, peer: Peer) {
        let Some(remote) = self.remote() else { return };
        if peer.node == self.node() {
            return;
        }
        let line = match remote.line(peer.node) {
            Some(line) if line.peer == peer => line,
            other => {
                if let Some(earlier) = other {
                    self.peer_down(earlier.peer);
                }
                tracing::info!(target: "volt::process", %peer, "a node is connected");
                remote.add(peer)
            }
        };
        self.handle(&line, line.greet(&*remote.relay, &remote.traffic, false));
    }

    pub(crate) fn peer_down(&self, peer: Peer) {
        let Some(remote) = self.remote() else { return };
        if let Some(line) = remote.remove(peer) {
            remote.traffic.nodes_lost.add(1);
            tracing::warn!(target: "volt::process", %peer, "a node is lost");
            self.sever(peer.node, *line.lose());
        }
    }

    /// Removes all peers when this node has left the cluster.
    pub(crate) fn forget_peers(&self) {
        let Some(remote) = self.remote() else { return };
        for line in remote.lines().into_iter().filter_map(|line| remote.remove(line.peer)) {
            self.sever(line.peer.node, *line.lose());
        }
    }

    /// Requests a sign of life from all peers, so that gaps are detected.
    pub(crate) fn probe_peers(&self) {
        let lines = self.remote().map(Remote::lines).unwrap_or_default();
        for line in lines {
            self.must_send_to(line.peer.node, &Frame::Probe, |_| true);
        }
    }

    pub(crate) fn frame_received(&self, from: Peer, bytes: Bytes) {
        let Some(remote) = self.remote() else { return };
        let traffic = &remote.traffic;
        traffic.received.add(1);
        let Some(line) = remote.line(from.node).filter(|line| line.peer == from) else {
            return traffic.strangers.add(1);
        };
        let (head, frame) = match Frame::decode(bytes) {
            Ok(read) => read,
            Err(Unread::Malformed) => return traffic.malformed.add(1),
            Err(Unread::Version) => return traffic.unknown.add(1),
        };
        let is_hello = matches!(frame, Ok(Frame::Hello));
        let is_welcome = matches!(frame, Ok(Frame::Welcome));
        match line.receive(traffic, head, is_hello, is_welcome) {
            Received::Nothing => {}
            Received::Act { is_opened } => {
                if is_opened {
                    remote.opened.notify_waiters();
                }
                match frame {
                    Ok(frame) => self.act(&line, frame),
                    Err(Fault::Malformed) => traffic.malformed.add(1),
                    Err(Fault::UnknownKind) => traffic.unknown.add(1),
                }
            }
            Received::Greeted { is_opened, answers } => {
                if answers {
                    self.handle(&line, line.greet(&*remote.relay, traffic, true));
                }
                if is_opened {
                    remote.opened.notify_waiters();
                }
            }
            Received::Broken { bonds, answers } => self.begin(&line, *bonds, answers),
        }
    }

    /// Restarts a conversation that was broken off, after its bonds have ended.
    pub(crate) fn begin(&self, line: &Arc<Line>, severed: Bonds, answers: bool) {
        self.sever(line.peer.node, severed);
        if let Some(remote) = self.remote() {
            self.handle(line, line.begin(&*remote.relay, &remote.traffic, answers));
        }
    }

    /// Ends all bonds of a conversation.
    fn sever(&self, node: Node, bonds: Bonds) {
        // Dropping a sender fails the call or the lookup.
        drop(bonds.pending);
        for (monitor, (at, watcher)) in bonds.watching {
            self.notify_down(watcher, monitor, pid(node, at), ExitReason::NoConnection);
        }
        for (_, (watched, monitor)) in bonds.watched {
            if let Some(watched) = self.entry(watched) {
                let removed = watched.life().remove_watcher(monitor);
                drop(removed);
            }
        }
        for (ours, theirs) in bonds.links {
            if let Some(ours) = self.entry(ours) {
                ours.linked_ended(theirs, ExitReason::NoConnection);
            }
        }
    }

    fn act(&self, line: &Arc<Line>, frame: Frame) {
        let node = line.peer.node;
        let ours = |at: Place| pid(self.node(), at);
        let theirs = |at: Place| pid(node, at);
        match frame {
            Frame::Hello | Frame::Welcome | Frame::Echo => {}
            Frame::Probe => _ = self.must_send_to(node, &Frame::Echo, |_| true),
            Frame::Message { to, from, payload } => {
                let message = Message { from: from.map(theirs), payload, reply: None };
                let is_in = matches!(self.take_in(ours(to), message), Ok(Taken::In));
                if let Some(remote) = self.remote().filter(|_| !is_in) {
                    remote.traffic.undelivered.add(1);
                }
            }
            Frame::Call { id, to, from, payload } => {
                let to = ours(to);
                let reply = RemoteReply { system: self.clone(), peer: line.peer, id, to, is_answered: false };
                let message = Message { from: from.map(theirs), payload, reply: Some(Reply::remote(Box::new(reply))) };
                let (message, is_full) = match self.take_in(to, message) {
                    // If the policy dropped the message, dropping its reply has ended the call.
                    Ok(_taken) => return,
                    Err(Refused::Full(message)) => (message, true),
                    Err(Refused::Closed(message)) => (message, false),
                };
                if let Some(reply) = message.reply {
                    reply.refuse(is_full);
                }
            }
            Frame::Answer { id, outcome } => {
                if let Some(asker) = line.bonds(|bonds| bonds.pending.remove(&id)).flatten() {
                    drop(asker.send(outcome));
                }
            }
            Frame::WhereIs { id, name } => {
                let found = self.whereis(&name).map(place);
                self.answer(line.peer, id, Outcome::Found(found));
            }
            Frame::Monitor { id, to } => self.watched_from(line, id, ours(to)),
            Frame::Demonitor { id } => {
                let watched = line.bonds(|bonds| bonds.watched.remove(&id)).flatten();
                if let Some((watched, monitor)) = watched
                    && let Some(watched) = self.entry(watched)
                {
                    let removed = watched.life().remove_watcher(monitor);
                    drop(removed);
                }
            }
            Frame::Down { id, reason } => {
                let monitor = MonitorId(id);
                let watching = line.bonds(|bonds| bonds.watching.remove(&monitor)).flatten();
                if let Some((at, watcher)) = watching {
                    self.notify_down(watcher, monitor, theirs(at), reason);
                }
            }
            Frame::Link { to, from } => self.linked_from(line, ours(to), theirs(from)),
            Frame::Unlink { to, from } => {
                let (ours, theirs) = (ours(to), theirs(from));
                line.bonds(|bonds| bonds.links.remove(&(ours, theirs)));
                if let Some(entry) = self.entry(ours) {
                    entry.life().unlink(theirs);
                }
            }
            Frame::Exit { to, from, reason } => {
                let (ours, theirs) = (ours(to), theirs(from));
                let was_linked = line.bonds(|bonds| bonds.links.remove(&(ours, theirs))) == Some(true);
                if let Some(entry) = self.entry(ours).filter(|_| was_linked) {
                    entry.linked_ended(theirs, reason);
                }
            }
            Frame::Cancel { to } => _ = self.cancel(ours(to)),
            Frame::Kill { to } => _ = self.kill(ours(to)),
        }
    }

    /// Puts a message into a mailbox without waiting.
    fn take_in(&self, to: Pid, message: Message) -> Result<Taken, Refused> {
        match self.entry(to) {
            Some(entry) => entry.try_send(message),
            None => Err(Refused::Closed(message)),
        }
    }

    /// `line` is locked before the life of the process, so that an exit finds the monitor in both
    /// or in neither.
    fn watched_from(&self, line: &Arc<Line>, id: u64, to: Pid) {
        let node = line.peer.node;
        let (local, entry) = (self.next_monitor(), self.entry(to));
        let watches = line.bonds(|bonds| {
            if bonds.watched.len() + bonds.links.len() >= BONDS_MAX || bonds.watched.contains_key(&id) {
                return false;
            }
            let Some(entry) = &entry else { return false };
            let mut life = entry.life();
            let Some(relations) = life.relations() else { return false };
            relations.watchers.insert(local, Watcher::Remote(node, id));
            bonds.watched.insert(id, (to, local));
            true
        });
        if watches == Some(false) {
            self.must_send_to(node, &Frame::Down { id, reason: ExitReason::NoProcess }, |_| true);
        }
    }

    fn linked_from(&self, line: &Arc<Line>, ours: Pid, theirs: Pid) {
        let entry = self.entry(ours);
        let links = line.bonds(|bonds| {
            if bonds.watched.len() + bonds.links.len() >= BONDS_MAX {
                return false;
            }
            let Some(entry) = &entry else { return false };
            let mut life = entry.life();
            let Some(relations) = life.relations() else { return false };
            relations.links.insert(theirs);
            bonds.links.insert((ours, theirs));
            true
        });
        if links == Some(false) {
            let (to, from) = (place(theirs), place(ours));
            let exit = Frame::Exit { to, from, reason: ExitReason::NoProcess };
            self.must_send_to(line.peer.node, &exit, |_| true);
        }
    }

    fn notify_down(&self, watcher: Watcher, monitor: MonitorId, pid: Pid, reason: ExitReason) {
        match watcher {
            Watcher::Waiter(waiter) | Watcher::Executor(waiter) => _ = waiter.send((reason, None)),
            Watcher::Process(watcher) => {
                if let Some(watcher) = self.entry(watcher) {
                    watcher.watched_ended(monitor, pid, reason);
                }
            }
            // A monitor of another node watches a process of this node, and is in `watched`.
            Watcher::Remote(..) => {}
        }
    }
}

/// Sends the answer to a call of another node.
pub(crate) struct RemoteReply {
    system: System,
    peer: Peer,
    id: u64,
    /// The process that was called.
    to: Pid,
    is_answered: bool,
}

impl RemoteReply {
    fn send(mut self, outcome: Outcome) {
        self.is_answered = true;
        self.system.answer(self.peer, self.id, outcome);
    }
}

impl Caller for RemoteReply {
    fn answer(self: Box<Self>, answer: Payload) {
        self.send(Outcome::Answer(answer));
    }

    fn refuse(self: Box<Self>, is_full: bool) {
        self.send(if is_full { Outcome::Full } else { Outcome::NoProcess });
    }
}

impl Receives for Inner {
    fn up(self: Arc<Self>, peer: Peer) {
        System::from_inner(self).peer_up(peer);
    }

    fn down(self: Arc<Self>, peer: Peer) {
        System::from_inner(self).peer_down(peer);
    }

    fn received(self: Arc<Self>, from: Peer, frame: Bytes) {
        System::from_inner(self).frame_received(from, frame);
    }

    fn interrupted(self: Arc<Self>) {
        System::from_inner(self).probe_peers();
    }
}

impl Drop for RemoteReply {
    fn drop(&mut self) {
        if !self.is_answered {
            let outcome = if self.system.entry(self.to).is_some() { Outcome::NoReply } else { Outcome::Ended };
            self.system.answer(self.peer, self.id, outcome);
        }
    }
}
