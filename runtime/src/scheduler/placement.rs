//! Which worker gets a task that comes from outside the workers.
//!
//! Global: none, it waits in the global queue for whoever looks first. The other two hand it to a worker's inbox and wake that
//! worker; if it turns out to be busy, thieves take from inboxes as from rings.
//!
//! A worker's load is what its queues hold plus the poll that it is in. It is read from the queues themselves, not kept in a counter beside
//! them: a counter costs every push, pop, steal and overflow a read-modify-write, and drifts where one is forgotten (the source resets it
//! to 0 while others count, and is wrong for ever). Derived, it cannot drift: the sum of all loads is what is queued or running.
//!
//! Workers that are in a long poll are passed over: what they hold is about to be stolen anyway.
//!
//! Source: seed 003, the least-loaded scan, with a scan that starts at a rotating index (else all ties go to worker 0) and ends at
//! the first idle worker; Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", 2001.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::shared::Remote;
use crate::clock;
use crate::config::Placement;

/// Chooses workers for one runtime.
pub(crate) struct Placer {
    placement: Placement,
    /// Where the next scan starts; also the source of the two choices.
    turn: AtomicUsize,
    /// A poll that has lasted this long keeps its worker from getting more, ns.
    long_poll_ns: u64,
}

impl Placer {
    pub(crate) fn new(placement: Placement, long_poll_ns: u64) -> Self {
        Self { placement, turn: AtomicUsize::new(0), long_poll_ns }
    }

    /// The worker whose inbox is to take the next task; `None` = the global queue.
    pub(crate) fn choose(&self, remotes: &[Remote]) -> Option<usize> {
        match self.placement {
            Placement::Global => None,
            Placement::TwoChoices => self.two_choices(remotes),
            Placement::LeastLoaded => self.least_loaded(remotes),
        }
    }

    fn next_turn(&self) -> usize {
        // ORDERING: Relaxed; only the value counts.
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    fn two_choices(&self, remotes: &[Remote]) -> Option<usize> {
        let count = remotes.len();
        let mixed = mix(self.next_turn() as u64);
        let one = reduce(mixed as u32, count);
        // Another one, each with the same chance.
        let other = (one + 1 + reduce((mixed >> 32) as u32, count.saturating_sub(1))) % count;
        let now_ns = clock::now_ns();
        let open = [one, other].into_iter().filter(|worker| !self.is_stuck(&remotes[*worker], now_ns));
        open.min_by_key(|worker| load(&remotes[*worker]))
    }

    fn least_loaded(&self, remotes: &[Remote]) -> Option<usize> {
        let count = remotes.len();
        let start = self.next_turn() % count;
        let now_ns = clock::now_ns();
        let mut best = None;
        for worker in (start..count).chain(0..start) {
            let remote = &remotes[worker];
            let load = load(remote);
            if load == 0 {
                return Some(worker);
            }
            if best.is_none_or(|(least, _)| load < least) && !self.is_stuck(remote, now_ns) {
                best = Some((load, worker));
            }
        }
        best.map(|(_, worker)| worker)
    }

    fn is_stuck(&self, remote: &Remote, now_ns: u64) -> bool {
        remote.cells.poll_for_ns(now_ns) >= Some(self.long_poll_ns)
    }
}

/// Tasks that a worker holds or runs.
pub(crate) fn load(remote: &Remote) -> usize {
    remote.queued() + usize::from(remote.cells.is_in_poll())
}

/// A number in `0..n` (0 for `n = 0`) from 32 random bits; Lemire's multiply-shift.
fn reduce(random: u32, n: usize) -> usize {
    ((u64::from(random) * n as u64) >> 32) as usize
}

/// Spreads a counter over 64 bits: the finalizer of splitmix64 (Steele, Lea, Flood, 2014).
fn mix(counter: u64) -> u64 {
    let mut mixed = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;
    use crate::scheduler::core::Core;
    use crate::scheduler::shared::slot;

    fn remotes(count: usize) -> (Vec<Remote>, Vec<Core>) {
        let builder = Builder::new_multi_thread();
        (0..count).map(|index| slot(builder.config(), index, 1)).unzip()
    }

    fn chosen(placement: Placement, workers: usize) -> Vec<usize> {
        let (remotes, _cores) = remotes(workers);
        let placer = Placer::new(placement, 1_000_000);
        let mut counts = vec![0; workers];
        (0..7_000).for_each(|_| counts[placer.choose(&remotes).expect("nobody is stuck")] += 1);
        counts
    }

    #[test]
    fn idle_workers_get_equal_shares() {
        for placement in [Placement::TwoChoices, Placement::LeastLoaded] {
            let counts = chosen(placement, 7);
            assert!(counts.iter().all(|count| count.abs_diff(1_000) < 150), "{placement:?}: {counts:?}");
        }
    }

    #[test]
    fn one_worker_is_enough() {
        assert_eq!(chosen(Placement::TwoChoices, 1), [7_000]);
        assert_eq!(chosen(Placement::LeastLoaded, 1), [7_000]);
    }

    #[test]
    fn global_chooses_nobody() {
        let (remotes, _cores) = remotes(2);
        assert_eq!(Placer::new(Placement::Global, 1).choose(&remotes), None);
    }
}
