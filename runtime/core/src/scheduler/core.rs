//! What one worker owns: the ends of its queues that only it may push to and pop from, and the
//! numbers that it decides by.
//!
//! Who writes, who reads: the worker's own thread, nobody else. Everything here is reached through
//! one `RefCell` in `worker::Worker`; while it is borrowed, the worker is in the middle of its own
//! queues, and a task that is woken on its thread at that moment (by drop glue, say) takes the
//! global road instead. That is what the source's flag `transitioning_to_park` is for.

use std::task::Waker;
use std::time::Duration;

use super::tuner::Tuner;
use crate::clock;
use crate::config::Config;
use crate::driver::spin::Habit;
use crate::queue::ring::Producer;
use crate::scheduler::rng::FastRand;
use crate::stats::reasons::Trigger;
use crate::task::header::Notified;

/// See the header of this file.
pub(crate) struct Core {
    pub(crate) ring: Producer<Notified>,
    /// Tasks fetched from the global queue and not yet run.
    pub(crate) batch: Producer<Notified>,
    pub(crate) rng: FastRand,
    pub(crate) tuner: Tuner,
    /// Where a task that is woken on this thread goes.
    pub(crate) road: Road,
    /// The last reading of the clock.
    pub(crate) now_ns: u64,
    /// Polls from the LIFO slot since the count was last begun anew.
    pub(crate) lifo_polls: u32,
    /// Whether the ring had its turn since then.
    pub(crate) has_come_to_ring: bool,
    /// Local polls since the last check of the global queue, including the one that a task is
    /// sought for. Polls from the batch do not count: local tasks get their interval in
    /// between.
    pub(crate) polls_since_check: u32,
    /// When the time since the last check makes the next one due.
    pub(crate) check_at_ns: u64,
    pub(crate) is_searching: bool,
    /// It was parked and has not run a task since: the sentinel may doze.
    pub(crate) has_slept: bool,
    /// How long the next park may last at most; `None` = until woken.
    pub(crate) park_timeout: Option<Duration>,
    /// Whether it spins before it sleeps.
    pub(crate) spin: Habit,
    /// Collected by the driver, woken after it; kept for its capacity.
    pub(crate) wakers: Vec<Waker>,
    /// So many of them, the first, are of sockets, the rest of timers.
    pub(crate) io_wakers: usize,
}

/// Where a task that is woken goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Road {
    /// To the LIFO slot: a running task woke it, and what they share is warm.
    Lifo,
    /// To the ring's tail: I/O or a timer woke it, in a crowd, and the first must not become the
    /// last. So many went there.
    Ring { pushed: usize },
}

impl Core {
    pub(crate) fn new(
        config: &Config,
        index: usize,
        seed: u64,
        ring: Producer<Notified>,
        batch: Producer<Notified>,
    ) -> Self {
        let now_ns = clock::now_ns();
        Self {
            ring,
            batch,
            rng: FastRand::new(seed, index as u64),
            tuner: Tuner::new(config),
            road: Road::Lifo,
            now_ns,
            lifo_polls: 0,
            has_come_to_ring: false,
            polls_since_check: 0,
            check_at_ns: now_ns.saturating_add(config.target_global_queue_latency_ns),
            is_searching: false,
            has_slept: false,
            park_timeout: config.park_timeout,
            spin: Habit::new(),
            wakers: Vec::new(),
            io_wakers: 0,
        }
    }

    /// What makes a check of the global queue due before local work, if it is due: the tuner's
    /// interval, or as the guard against polls that have become longer than the interval was
    /// made for, the time since the last check.
    ///
    /// Both follow from one target, so with steady polls the interval is first: `interval * average
    /// <= target`. The time was read for the statistics and costs one comparison. One local
    /// poll comes first, whatever the time: otherwise slow polls and a global queue that is
    /// never empty would keep local tasks waiting for ever.
    #[inline]
    pub(crate) fn due_check(&self) -> Option<Trigger> {
        if self.polls_since_check > self.tuner.interval() {
            Some(Trigger::Interval)
        } else if self.now_ns >= self.check_at_ns && self.polls_since_check > 1 {
            Some(Trigger::Elapsed)
        } else {
            None
        }
    }

    /// The global queue was checked. If it was empty, a local task is polled instead.
    pub(crate) fn note_check(&mut self, has_brought: bool, config: &Config) {
        self.polls_since_check = u32::from(!has_brought);
        self.check_at_ns = self.now_ns.saturating_add(config.target_global_queue_latency_ns);
    }

    /// A tick ends: the LIFO slot has its polls again, unless the ring is still waiting for its
    /// turn. In short ticks that are filled by batches, the slot's share would be all that is
    /// left for local tasks. Returns whether it was renewed.
    pub(crate) fn renew_lifo_polls(&mut self) -> bool {
        let is_renewed = std::mem::take(&mut self.has_come_to_ring);
        if is_renewed {
            self.lifo_polls = 0;
        }
        is_renewed
    }
}
