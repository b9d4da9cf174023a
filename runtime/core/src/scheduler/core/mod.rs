//! The core of a worker: the ends of its queues that only the worker may push to and pop from, and
//! the numbers on which it bases its decisions.
//!
//! Only the worker's own thread reads and writes it, through one `RefCell` in `worker::Worker`.
//! While the cell is borrowed, the worker is in the middle of an operation on its own queues. A
//! task that is woken on its thread at that moment (for example by drop glue) goes to the global
//! queue instead.

use std::task::Waker;
use std::time::Duration;

use self::rng::FastRand;
use self::tuner::Tuner;
use crate::clock;
use crate::config::Config;
use crate::driver::spin::Habit;
use crate::queue::ring::Producer;
use crate::stats::reasons::Trigger;
use crate::task::header::Notified;

pub(crate) mod rng;
pub(crate) mod seeded;
pub(crate) mod tuner;

/// The state that only the worker itself uses: see the module documentation.
pub(crate) struct Core {
    pub(crate) ring: Producer<Notified>,
    /// Tasks that were fetched from the global queue and have not run yet.
    pub(crate) batch: Producer<Notified>,
    /// Whether `batch` was filled and has not been found empty since. Costs less to check.
    pub(crate) has_batch: bool,
    pub(crate) rng: FastRand,
    pub(crate) tuner: Tuner,
    /// Where a task goes that is woken on this thread.
    pub(crate) destination: Destination,
    /// Polls from the LIFO slot since this count was last reset.
    pub(crate) lifo_polls: u32,
    /// Whether the ring had its turn since then.
    pub(crate) has_come_to_ring: bool,
    /// Local polls since the last check of the global queue, including the one for which a task is
    /// being searched. Polls from the batch do not count, so that local tasks get their whole
    /// interval in between.
    pub(crate) polls_since_check: u32,
    /// The time at which the next check is due, whatever the number of polls.
    pub(crate) check_at_ns: u64,
    pub(crate) is_searching: bool,
    /// Whether the worker was parked and has not run a task since: the sentinel's checks may be
    /// suspended.
    pub(crate) has_slept: bool,
    /// How long the next park may last; `None` = until woken.
    pub(crate) park_timeout: Option<Duration>,
    /// Decides whether the worker spins before it sleeps.
    pub(crate) spin: Habit,
    /// Wakers collected by the driver, to be woken after its turn; the vector is kept for its
    /// capacity.
    pub(crate) wakers: Vec<Waker>,
    /// How many of `wakers`, from the start, are of sockets; the others are of timers.
    pub(crate) io_wakers: usize,
}

/// Where a task goes that is woken on this thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// To the LIFO slot: a running task woke it, and the data that the two share is in the cache.
    Lifo,
    /// To the ring's tail: I/O or a timer woke it together with others, and they must run in the
    /// order in which they were woken. `pushed` counts the tasks that went there.
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
            has_batch: false,
            rng: FastRand::new(seed, index as u64),
            tuner: Tuner::new(config),
            destination: Destination::Lifo,
            lifo_polls: 0,
            has_come_to_ring: false,
            polls_since_check: 0,
            check_at_ns: now_ns.saturating_add(config.target_global_queue_latency_ns),
            is_searching: false,
            // The sentinel's checks of a new runtime are suspended.
            has_slept: true,
            park_timeout: config.park_timeout,
            spin: Habit::new(),
            wakers: Vec::new(),
            io_wakers: 0,
        }
    }

    /// Returns why a check of the global queue is due before local work, if it is due. It is due
    /// after the tuner's interval, or when the target time has passed since the last check. The
    /// latter guards against polls that have become longer than those the interval was computed
    /// for.
    ///
    /// Both follow from one target, so with steady polls the interval comes first: `interval *
    /// average <= target`. The time was read for the statistics anyway, so this costs one
    /// comparison. One local poll comes first, whatever the time: otherwise slow polls and a global
    /// queue that is never empty would keep local tasks waiting for ever.
    #[inline]
    pub(crate) fn due_check(&self, now_ns: u64) -> Option<Trigger> {
        if self.polls_since_check > self.tuner.interval() {
            Some(Trigger::Interval)
        } else if now_ns >= self.check_at_ns && self.polls_since_check > 1 {
            Some(Trigger::Elapsed)
        } else {
            None
        }
    }

    /// Records that the global queue was checked. If it was empty, a local task is polled instead.
    #[inline]
    pub(crate) fn note_check(&mut self, has_brought: bool, now_ns: u64, config: &Config) {
        self.polls_since_check = u32::from(!has_brought);
        self.check_at_ns = now_ns.saturating_add(config.target_global_queue_latency_ns);
    }

    /// Ends a tick: resets the count of LIFO polls, unless the ring has not had its turn yet.
    /// Otherwise, in short ticks that are filled by batches, the slot's share would be all that is
    /// left for local tasks. Returns whether the count was reset.
    pub(crate) fn renew_lifo_polls(&mut self) -> bool {
        let is_renewed = std::mem::take(&mut self.has_come_to_ring);
        if is_renewed {
            self.lifo_polls = 0;
        }
        is_renewed
    }
}
