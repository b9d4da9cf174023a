//! The state that the workers of a runtime share to find tasks and to place them.
//!
//! It consists of the global queue, the idle set, the registry of the tasks that wait, the I/O
//! driver, and one [`Remote`] per worker: the ends of its queues that other threads may steal from,
//! its park word, and its cells. An ordinary case: a thread outside the workers pushes a task into
//! the global queue, and wakes a worker that is parked (`wake`). That worker takes the task from
//! the queue, or another worker does.
//!
//! Nothing here depends on the services of the runtime, such as the sentinel, the recorder, the
//! hooks of the program and the shutdown. These are in `shared`, which has the workers as a part.
//! All threads write here; each part documents how.

use std::sync::Arc;

use self::intake::Intake;
use super::core::Core;
use super::idle::Idle;
use super::remote::Remote;
use super::shared_core::SharedCore;
use super::slots::WorkerSlots;
use crate::config::Config;
use crate::driver::turn::Driver;
use crate::queue::injector::Injector;
use crate::task::header::Notified;
use crate::task::registry::Registry;

pub(crate) mod submits;
mod wake;

mod intake;

/// See the header of this file.
pub(crate) struct Workers {
    /// The number of workers. `remotes` has them first, and then the spares.
    count: usize,
    is_stealing_enabled: bool,
    pub(crate) injector: Injector<Notified>,
    pub(super) intake: Intake,
    pub(crate) idle: Idle,
    pub(crate) remotes: Box<[Arc<Remote>]>,
    pub(crate) registry: Registry,
    pub(crate) driver: Arc<Driver>,
    pub(crate) slots: WorkerSlots,
    /// The core of the worker, in a current-thread runtime.
    pub(crate) shared_core: Option<SharedCore<Core>>,
}

impl Workers {
    /// `remotes` are those of the workers, and then of the spares.
    pub(super) fn new(
        config: &Config,
        remotes: Vec<Arc<Remote>>,
        driver: Driver,
        shared_core: Option<SharedCore<Core>>,
    ) -> Self {
        let workers = Self {
            count: config.workers,
            is_stealing_enabled: config.enable_stealing,
            injector: Injector::new(),
            intake: Intake::new(config.placement, remotes.len()),
            idle: Idle::new(config.workers, config.max_spare_workers),
            registry: Registry::new(remotes.len()),
            remotes: remotes.into(),
            driver: Arc::new(driver),
            slots: WorkerSlots::new(config.workers, config.max_spare_workers),
            shared_core,
        };
        if workers.shared_core.is_some() {
            // The worker counts as parked until a thread takes the core.
            workers.idle.begin_park(0, false);
        }
        workers
    }

    /// Returns the worker whose inbox takes the next task from outside; `None` = the global queue.
    pub(super) fn place(&self) -> Option<usize> {
        self.intake.placer.choose(&self.remotes[..self.count], &self.slots)
    }

    /// Returns whether any queue from which `worker` may take tasks holds one. A task that is
    /// published before a fence is seen by a call after that fence.
    pub(crate) fn has_work_for(&self, worker: usize) -> bool {
        let queued = |remote: &Arc<Remote>| remote.local_len() > 0 || remote.batch.len() > 0 || remote.inbox.len() > 0;
        self.injector.len() > 0
            || self.remotes[worker].inbox.len() > 0
            || (self.is_stealing_enabled && self.remotes_in_use().iter().any(queued))
    }

    /// Returns whether all workers are parked, one of them in the driver, no spare is active, and
    /// there is no failure to report; or whether no thread has the core of a current-thread
    /// runtime.
    pub(super) fn are_at_rest(&self) -> bool {
        let active = self.slots.active_count();
        let are_parked = active == self.count && self.idle.parked_count() == active && self.driver.owner().is_some();
        (are_parked || self.is_undriven()) && !self.driver.failures().has_news()
    }

    /// Returns whether this is a current-thread runtime, and no thread is its worker now.
    pub(super) fn is_undriven(&self) -> bool {
        self.shared_core.as_ref().is_some_and(SharedCore::is_free)
    }

    /// Returns the remotes of the workers, and of the spares that were ever active.
    pub(crate) fn remotes_in_use(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.slots.in_use()]
    }
}
