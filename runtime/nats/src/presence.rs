//! The presence of other nodes: which incarnations have been seen, and when each was last seen.
//!
//! # Invariants
//!
//! * *ONE INCARNATION PER NAME*: of two incarnations of one name, the one with the higher number
//!   counts while messages of it arrive.
//! * *GONE IS GONE*: an incarnation that has sent a goodbye does not come back, even if other
//!   messages of it arrive later. So a heartbeat that overtakes the goodbye has no effect. Other
//!   incarnations are not affected: the next one may have a lower number, because it begins in the
//!   same second or because a clock was set back.
//! * *BOUNDED*: there is one entry per name, and a program has at most 4,096 node names.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use volt_process::{Node, Peer};

/// The default interval between two heartbeats of a node.
pub const HEARTBEAT: Duration = Duration::from_secs(1);
/// The default time without a message from a node after which the node counts as lost. Three
/// heartbeats may be late or missing.
pub const LOSS: Duration = Duration::from_millis(3500);

/// The presence of other nodes. See the module's documentation.
#[derive(Debug)]
pub(crate) struct Presence {
    me: Peer,
    there: HashMap<Node, (u64, Instant)>,
    gone: HashMap<Node, u64>,
}

/// The meaning of a message from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// The peer is present. `is_new`: it was not present before.
    There { is_new: bool },
    /// The message is from an incarnation that has left.
    Stale,
    /// The message is our own.
    Own,
    /// Another node has our name. `is_earlier`: its incarnation is earlier than ours.
    Double { is_earlier: bool },
}

impl Presence {
    pub(crate) fn new(me: Peer) -> Self {
        Self { me, there: HashMap::new(), gone: HashMap::new() }
    }

    /// Handles a message from `peer`.
    pub(crate) fn received(&mut self, peer: Peer, now: Instant) -> Sign {
        if peer == self.me {
            return Sign::Own;
        }
        if peer.node == self.me.node {
            return Sign::Double { is_earlier: peer.incarnation < self.me.incarnation };
        }
        if self.gone.get(&peer.node) == Some(&peer.incarnation) {
            return Sign::Stale;
        }
        match self.there.get_mut(&peer.node) {
            Some((incarnation, _)) if peer.incarnation < *incarnation => Sign::Stale,
            Some((incarnation, at)) => {
                let is_new = *incarnation != peer.incarnation;
                (*incarnation, *at) = (peer.incarnation, now);
                Sign::There { is_new }
            }
            None => {
                self.there.insert(peer.node, (peer.incarnation, now));
                Sign::There { is_new: true }
            }
        }
    }

    /// Handles a goodbye of `peer`. Returns true if the peer was present.
    pub(crate) fn bye(&mut self, peer: Peer) -> bool {
        if peer.node == self.me.node {
            return false;
        }
        self.gone.insert(peer.node, peer.incarnation);
        let is_there = self.there.get(&peer.node).is_some_and(|(incarnation, _)| *incarnation == peer.incarnation);
        if is_there {
            self.there.remove(&peer.node);
        }
        is_there
    }

    /// Removes and returns the peers that have been silent for `limit`.
    pub(crate) fn lost(&mut self, now: Instant, limit: Duration) -> Vec<Peer> {
        let late = self.there.extract_if(|_, (_, at)| now.saturating_duration_since(*at) >= limit);
        late.map(|(node, (incarnation, _))| Peer { node, incarnation }).collect()
    }

    /// Removes and returns all peers.
    pub(crate) fn all(&mut self) -> Vec<Peer> {
        self.there.drain().map(|(node, (incarnation, _))| Peer { node, incarnation }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, incarnation: u64) -> Peer {
        Peer { node: name.parse().unwrap(), incarnation }
    }

    #[test]
    fn a_silent_node_is_lost_after_the_limit_and_may_return() {
        let (start, mut presence) = (Instant::now(), Presence::new(peer("me", 1)));
        assert_eq!(presence.received(peer("a", 1), start), Sign::There { is_new: true });
        assert_eq!(presence.received(peer("a", 1), start + HEARTBEAT), Sign::There { is_new: false });
        assert_eq!(presence.lost(start + LOSS, LOSS), []);
        assert_eq!(presence.lost(start + HEARTBEAT + LOSS, LOSS), [peer("a", 1)]);
        assert_eq!(presence.received(peer("a", 1), start + 2 * LOSS), Sign::There { is_new: true });
    }

    #[test]
    fn the_later_of_two_incarnations_counts() {
        let (now, mut presence) = (Instant::now(), Presence::new(peer("me", 1)));
        presence.received(peer("a", 5), now);
        assert_eq!(presence.received(peer("a", 6), now), Sign::There { is_new: true });
        assert_eq!(presence.received(peer("a", 5), now), Sign::Stale);
        assert!(!presence.bye(peer("a", 5)));
        assert!(presence.bye(peer("a", 6)));
        assert_eq!(presence.received(peer("a", 6), now), Sign::Stale, "a goodbye is the last of a life");
        assert_eq!(presence.received(peer("a", 7), now), Sign::There { is_new: true });
    }

    #[test]
    fn a_node_may_rejoin_with_a_lower_number_after_a_goodbye() {
        let (now, mut presence) = (Instant::now(), Presence::new(peer("me", 1)));
        presence.received(peer("a", 6), now);
        assert!(presence.bye(peer("a", 6)));
        assert_eq!(presence.received(peer("a", 5), now), Sign::There { is_new: true });
        assert_eq!(presence.received(peer("a", 6), now), Sign::Stale, "a goodbye is the last of a life");
    }

    #[test]
    fn another_node_of_our_own_name_is_no_peer() {
        let (now, mut presence) = (Instant::now(), Presence::new(peer("me", 5)));
        assert_eq!(presence.received(peer("me", 5), now), Sign::Own);
        assert_eq!(presence.received(peer("me", 4), now), Sign::Double { is_earlier: true });
        assert_eq!(presence.received(peer("me", 6), now), Sign::Double { is_earlier: false });
        assert!(!presence.bye(peer("me", 5)));
        assert_eq!(presence.all(), []);
    }
}
