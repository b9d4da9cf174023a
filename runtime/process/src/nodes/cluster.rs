//! A system's part in a cluster: its relay, and a conversation (`line`) with each connected node.
//!
//! This module also chooses the numbers that distinguish a system from earlier ones of the same
//! node: its incarnation, and the first generation of its pids.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use super::frame::{Frame, Place};
use super::line::{Bonds, Line, NotSent, Sessions};
use super::relay::{Peer, Relay};
use super::traffic::Traffic;
use crate::messages::pid::{Node, Pid};
use volt::sync::Notify;

/// A system's part in a cluster.
pub(crate) struct Remote {
    pub me: Peer,
    pub relay: Box<dyn Relay>,
    pub traffic: Traffic,
    lines: RwLock<HashMap<Node, Arc<Line>>>,
    sessions: Sessions,
    next_id: AtomicU64,
    /// Notified whenever a conversation is opened.
    pub opened: Notify,
}

impl Remote {
    pub(crate) fn new(relay: Box<dyn Relay>) -> Self {
        Self {
            me: Peer { node: relay.node(), incarnation: incarnation() },
            relay,
            traffic: Traffic::default(),
            lines: RwLock::default(),
            sessions: Sessions::default(),
            next_id: AtomicU64::new(0),
            opened: Notify::new(),
        }
    }

    /// Returns the conversation with a connected node.
    pub(crate) fn line(&self, node: Node) -> Option<Arc<Line>> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }

    pub(crate) fn lines(&self) -> Vec<Arc<Line>> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Starts a conversation. It replaces one with another incarnation of that node.
    pub(crate) fn add(&self, peer: Peer) -> Arc<Line> {
        let line = Arc::new(Line::new(peer, &self.sessions));
        self.lines.write().unwrap_or_else(PoisonError::into_inner).insert(peer.node, line.clone());
        line
    }

    pub(crate) fn remove(&self, peer: Peer) -> Option<Arc<Line>> {
        let mut lines = self.lines.write().unwrap_or_else(PoisonError::into_inner);
        if lines.get(&peer.node)?.peer == peer { lines.remove(&peer.node) } else { None }
    }

    pub(crate) fn next_id(&self) -> u64 {
        // ORDERING: Relaxed; it only has to be unique.
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn send(&self, line: &Line, frame: &Frame, note: impl FnOnce(&mut Bonds)) -> Result<(), NotSent> {
        line.send(&*self.relay, &self.traffic, frame, note)
    }
}

/// Returns the first generation of pids in a system with a relay.
pub(crate) fn first_generation() -> u32 {
    random() as u32
}

/// Returns the incarnation of a system that starts now. It begins with the current second, so that
/// a later incarnation has a higher number. The rest is random, for systems that start in the same
/// second.
fn incarnation() -> u64 {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    (seconds << 32) | u64::from(random() as u32)
}

/// Returns a random number: the standard library's hasher has random keys.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

pub(crate) fn place(pid: Pid) -> Place {
    Place { index: pid.index(), generation: pid.generation() }
}

pub(crate) fn pid(node: Node, place: Place) -> Pid {
    Pid::new(node, place.index, place.generation)
}
