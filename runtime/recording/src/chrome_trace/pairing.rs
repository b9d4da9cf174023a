//! Determines which wake-up led to which poll.
//!
//! A wake-up is stored by its task until the next begin of a poll of that task. That event contains
//! the task's delay, from which follows when the task was submitted. If the wake-up is earlier than
//! that, it led to a poll that was lost, and the pair is discarded.

use std::collections::HashMap;

use volt_telemetry::recording::event::Event;

/// Maximum number of tasks that were woken and not polled yet. Beyond it all of them are dropped,
/// and get no arrow.
const MAX_PENDING: usize = 1_000_000;

/// The role of an event in the pairing. Wake-ups and spawns are numbered in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// A wake-up or a spawn, with its number.
    Wake(u64),
    /// A poll, with the number of the wake-up that led to it.
    Poll(u64),
}

/// See the module documentation. The same events in the same order result in the same links.
#[derive(Debug, Default)]
pub(super) struct Pairing {
    /// By task: the number and the time of the last wake-up.
    pending: HashMap<u64, (u64, u64)>,
    made: u64,
}

impl Pairing {
    pub(super) fn link(&mut self, at_ns: u64, event: Event) -> Option<Link> {
        match event {
            Event::Wake { task, .. } | Event::Spawn { task, .. } => {
                if self.pending.len() >= MAX_PENDING {
                    self.pending.clear();
                }
                let wake = self.made;
                self.made += 1;
                self.pending.insert(task, (wake, at_ns));
                Some(Link::Wake(wake))
            }
            Event::PollBegin { task, delay_ns, .. } => {
                let (wake, woken_at_ns) = self.pending.remove(&task)?;
                let submitted_at_ns = at_ns.saturating_sub(delay_ns.into());
                (delay_ns == u32::MAX || woken_at_ns >= submitted_at_ns).then_some(Link::Poll(wake))
            }
            _ => None,
        }
    }
}

/// One bit per wake-up: whether it led to a poll.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<u64>);

impl Links {
    pub(super) fn set(&mut self, wake: u64) {
        let index = (wake / 64) as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        self.0[index] |= 1 << (wake % 64);
    }

    pub(super) fn has(&self, wake: u64) -> bool {
        self.0.get((wake / 64) as usize).is_some_and(|word| word >> (wake % 64) & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::recording::event::Waker;

    use super::*;

    const WAKE: Event = Event::Wake { task: 1, location: 0, by: Waker::Task };

    fn poll(delay_ns: u32) -> Event {
        Event::PollBegin { task: 1, location: 0, delay_ns }
    }

    #[test]
    fn a_wake_up_is_paired_once_with_the_poll_after_it() {
        let mut pairing = Pairing::default();
        assert_eq!(pairing.link(5, WAKE), Some(Link::Wake(0)));
        assert_eq!(pairing.link(8, Event::Spawn { task: 2, location: 0 }), Some(Link::Wake(1)));
        assert_eq!(pairing.link(9, poll(4)), Some(Link::Poll(0)));
        assert_eq!(pairing.link(10, poll(0)), None);
    }

    #[test]
    fn a_wake_up_whose_poll_was_lost_leads_to_no_other() {
        let mut pairing = Pairing::default();
        assert_eq!(pairing.link(5, WAKE), Some(Link::Wake(0)));
        assert_eq!(pairing.link(90, poll(10)), None, "it was submitted at 80");
        assert_eq!(pairing.link(95, WAKE), Some(Link::Wake(1)));
        assert_eq!(pairing.link(u64::MAX, poll(u32::MAX)), Some(Link::Poll(1)), "or longer");
    }

    #[test]
    fn bits_are_kept_one_by_one() {
        let mut links = Links::default();
        [0, 64, 200].into_iter().for_each(|wake| links.set(wake));
        let set: Vec<u64> = (0..300).filter(|wake| links.has(*wake)).collect();
        assert_eq!(set, [0, 64, 200]);
    }
}
