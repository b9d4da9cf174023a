//! The NATS subjects of a cluster.

use volt_process::{Node, Peer};

/// Builds and parses the subjects of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Subjects {
    prefix: String,
}

impl Subjects {
    /// Returns `None` if the name cannot be part of a subject.
    pub(crate) fn new(cluster: &str) -> Option<Self> {
        // The rules of a node's name apply: no dots, wildcards or white space, which have a meaning
        // in NATS.
        let is_name = cluster.parse::<Node>().is_ok();
        is_name.then(|| Self { prefix: format!("volt.{cluster}") })
    }

    pub(crate) fn presence(&self) -> String {
        format!("{}.presence", self.prefix)
    }

    pub(crate) fn name(&self, node: Node) -> String {
        format!("{}.name.{node}", self.prefix)
    }

    pub(crate) fn frame(&self, peer: Peer) -> String {
        format!("{}.frame.{}.{:016x}", self.prefix, peer.node, peer.incarnation)
    }

    /// Returns the peer with this frame subject.
    pub(crate) fn peer(&self, subject: &str) -> Option<Peer> {
        let rest = subject.strip_prefix(&self.prefix)?.strip_prefix(".frame.")?;
        let (node, incarnation) = rest.split_once('.')?;
        let is_hex = incarnation.len() == 16 && incarnation.bytes().all(|byte| byte.is_ascii_hexdigit());
        let incarnation = is_hex.then(|| u64::from_str_radix(incarnation, 16).ok()).flatten()?;
        Some(Peer { node: node.parse().ok()?, incarnation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_frame_subject_of_a_peer_is_parsed_as_one() {
        let subjects = Subjects::new("shop").unwrap();
        for incarnation in [0, 7, u64::MAX] {
            let peer = Peer { node: "a-b_1".parse().unwrap(), incarnation };
            assert_eq!(subjects.peer(&subjects.frame(peer)), Some(peer));
        }
        let others = [
            "",
            "volt.shop.frame.",
            "volt.shop.frame.a",
            "volt.shop.frame.a.1",
            "volt.shop.frame.a.b.0000000000000001",
        ];
        let more = ["volt.other.frame.a.0000000000000001", "volt.shop.frame.a.+000000000000001", "volt.shop.presence"];
        for subject in others.into_iter().chain(more) {
            assert_eq!(subjects.peer(subject), None, "{subject:?}");
        }
        for cluster in ["", "a.b", "a b", "*", ">"] {
            assert!(Subjects::new(cluster).is_none(), "{cluster:?}");
        }
    }
}
