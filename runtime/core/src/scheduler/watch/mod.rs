//! The part of the sentinel that a runtime has: its counters, the incidents, the doctor's history,
//! and the calls that resume and end the checks of the runtime.
//!
//! The sentinel's thread writes its counters; workers resume its checks and count announced blocks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use volt_stacks::Sampler;
use volt_telemetry::incident::Cause;

use self::doctor::Doctor;
use self::suspension::{Alarm, Suspension};
use crate::scheduler::idle::Idle;
use crate::scheduler::spares::Counts;
use crate::stats::blame::BlameTable;
use crate::stats::numbers::Counter;

pub(crate) mod doctor;
pub(crate) mod incidents;
pub(crate) mod suspension;

/// See the module documentation.
pub(crate) struct Sentinel {
    pub(in crate::scheduler) suspension: Suspension,
    is_over: AtomicBool,
    pub(in crate::scheduler) checks: Counter,
    pub(in crate::scheduler) rescues: Counter,
    pub(in crate::scheduler) tasks_rescued: Counter,
    pub(in crate::scheduler) preempts: Counter,
    pub(in crate::scheduler) replacements: Counter,
    pub(in crate::scheduler) capped: Counter,
    pub(in crate::scheduler) pauses: Counter,
    /// The cause of the last pause.
    pub(in crate::scheduler) last_pause: Mutex<Option<Cause>>,
    blocks: AtomicU64,
    pub(crate) incidents: incidents::Log,
    /// Copies the stacks of stuck polls, if that is enabled and supported.
    pub(in crate::scheduler) sampler: Option<Sampler>,
    pub(in crate::scheduler) doctor: Doctor,
    /// The delays and stalls that the sentinel has seen, by spawn location. Created by the sentinel
    /// when it sees the first one: most runtimes have none.
    blame: OnceLock<BlameTable>,
}

impl Sentinel {
    /// `alarm` wakes the thread of the program's sentinel. `is_watched`: the sentinel is to check
    /// this runtime. The checks are suspended until a worker finds its first task.
    pub(crate) fn new(alarm: Arc<Alarm>, is_watched: bool, sampler: Option<Sampler>) -> Self {
        Self {
            suspension: Suspension::new(alarm, is_watched),
            is_over: AtomicBool::new(false),
            checks: Counter::default(),
            rescues: Counter::default(),
            tasks_rescued: Counter::default(),
            preempts: Counter::default(),
            replacements: Counter::default(),
            capped: Counter::default(),
            pauses: Counter::default(),
            last_pause: Mutex::default(),
            blocks: AtomicU64::new(0),
            incidents: incidents::Log::default(),
            sampler,
            doctor: Doctor::default(),
            blame: OnceLock::new(),
        }
    }

    /// Returns the table for delays and stalls. Called by the sentinel only.
    pub(in crate::scheduler) fn blame(&self) -> &BlameTable {
        self.blame.get_or_init(BlameTable::default)
    }

    /// Returns that table for reading, if the sentinel has seen any delay or stall.
    pub(in crate::scheduler) fn blame_so_far(&self) -> Option<&BlameTable> {
        self.blame.get()
    }

    /// Resumes the checks: a worker that woke up has found a task.
    #[inline]
    pub(crate) fn resume_checks(&self, idle: &Idle) {
        self.suspension.resume(idle);
    }

    /// Counts a block that a worker has announced.
    pub(crate) fn count_block(&self) {
        // ORDERING: Relaxed; only a statistic.
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }

    /// Makes the sentinel's thread end the checks. Called if the shutdown ended before the workers
    /// did, once they have all ended. Otherwise `sentinel::program::Watched::leave` ends the
    /// checks.
    pub(crate) fn end(&self) {
        // ORDERING: Release; pairs with the Acquire in `is_over`. If the runtime is not checked
        // now, the sentinel is woken after this.
        self.is_over.store(true, Ordering::Release);
        self.suspension.end();
    }

    /// Returns whether the checks are to end.
    pub(in crate::scheduler) fn is_over(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `end`.
        self.is_over.load(Ordering::Acquire)
    }

    /// Returns the sentinel's part of a snapshot, with the counts of the spares, of which there are
    /// at most `max_spares`.
    pub(crate) fn telemetry(&self, spares: &Counts, max_spares: usize) -> volt_telemetry::Sentinel {
        volt_telemetry::Sentinel {
            checks: self.checks.get(),
            rescues: self.rescues.get(),
            tasks_rescued: self.tasks_rescued.get(),
            preempts: self.preempts.get(),
            replacements: self.replacements.get(),
            capped: self.capped.get(),
            pauses: self.pauses.get(),
            last_pause: *self.last_pause.lock().unwrap_or_else(PoisonError::into_inner),
            // ORDERING: Relaxed; only a statistic.
            blocks: self.blocks.load(Ordering::Relaxed),
            spare_calls: spares.calls,
            spare_failures: spares.failures,
            spares_in_use: spares.active,
            max_spares: max_spares as u64,
        }
    }
}
