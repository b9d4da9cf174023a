//! What all workers of a runtime share.
//!
//! What is done with it stands in files of its own: `spawn` (a new task comes in), `wake` (a task
//! is handed in from elsewhere, and a worker is woken for it), `end` (the shutdown), `snapshot`.
//!
//! Who writes: everybody; each part says for itself how. Who reads: workers, handles, the observer.
//!
//! Shape: the global queue, the idle set, the registry, and one [`Remote`] a worker: the ends of
//! its queues that others may take from, its park word, and its cells.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::thread::JoinHandle as JoinThread;

use volt_shim::CachePadded;
use volt_stacks::Sampler;
use volt_stacks::fork::Home;

use super::core::Core;
use super::idle::Idle;
use super::leases::Leases;
use super::listing::census::Census;
use super::listing::chosen::Listing;
use super::listing::processes::Sources;
use super::placement::Placer;
use super::remote::{Remote, slot};
use super::sentinel::counts::Sentinel;
use super::sentinel::incidents;
use super::spares::Spares;
use super::staff::Staff;
use crate::blocking::pool::Pool;
use crate::clock;
use crate::compat::Compat;
use crate::config::Config;
use crate::driver::test_clock::TestClock;
use crate::driver::turn::Driver;
use crate::queue::injector::Injector;
use crate::recorder::lanes::{Flag, Recorder};
use crate::stats::cells::PHASES;
use crate::stats::tally::Arrivals;
use crate::task::header::Notified;
use crate::task::registry::Registry;
use crate::troubles::{Troubles, Watcher};

mod end;
mod snapshot;
mod spawn;
#[cfg(test)]
mod tests;
mod wake;

/// Starts a thread with the runtime's settings that runs [`Shared::run_spare`] for this slot.
pub(crate) type StartSpare = fn(&Arc<Shared>, usize) -> io::Result<JoinThread<()>>;

/// See the header of this file.
pub struct Shared {
    pub(crate) name: String,
    /// The process that the workers are in.
    pub home: Home,
    pub config: Config,
    pub(crate) injector: Injector<Notified>,
    pub(crate) idle: Idle,
    placer: Placer,
    pub(crate) remotes: Box<[Arc<Remote>]>,
    pub(crate) registry: Registry,
    pub(crate) driver: Arc<Driver>,
    pub(crate) blocking: Pool,
    pub(crate) sentinel: Sentinel,
    pub(crate) staff: Staff,
    pub(crate) spares: Spares,
    pub(super) start_spare: StartSpare,
    /// The Tokio runtime beside this one. Set before the first worker starts.
    compat: OnceLock<Compat>,
    pub(crate) incidents: incidents::Log,
    pub(crate) troubles: Arc<Troubles>,
    /// Takes the stacks of stuck polls, if that is wanted and can be done.
    pub(crate) sampler: Option<Sampler>,
    /// What tasks keep it alive by.
    pub(super) leases: CachePadded<Leases>,
    pub(crate) recorder: Arc<Recorder>,
    /// The recorder's, at hand for each wake-up.
    is_recorded: Flag,
    started_at_ns: u64,
    /// From now on no task is taken in, and workers end when none is left.
    is_closed: AtomicBool,
    /// What came into the global queue, and into each worker's inbox.
    arrivals: Box<[Arrivals]>,
    /// Tasks that were woken outside the workers.
    injected: CachePadded<AtomicU64>,
    /// Calls of `try_spawn` that have found room and not used it yet.
    arriving: CachePadded<AtomicUsize>,
    census: Census,
    pub(super) listing: Listing,
    pub(crate) processes: Sources,
    /// What snapshots have told about time so far, one a worker: see `WorkerCells::read`.
    time_floors: Mutex<Vec<[u64; PHASES.len()]>>,
    /// Workers whose threads run, and where `shutdown` waits for them.
    running: Mutex<usize>,
    stopped: Condvar,
}

impl Shared {
    /// Also what each worker is to own.
    pub(crate) fn new(
        name: String,
        config: Config,
        driver: Driver,
        blocking: Pool,
        sampler: Option<Sampler>,
        seed: u64,
        start_spare: StartSpare,
    ) -> (Self, Vec<Core>) {
        let slots = config.workers + config.max_spare_workers;
        let (remotes, mut cores): (Vec<_>, Vec<_>) = (0..slots).map(|index| slot(&config, index, seed)).unzip();
        let spare_cores = cores.split_off(config.workers);
        let recorder =
            Recorder::new(config.workers, config.max_spare_workers, config.flight_records, config.flight_recorder);
        let shared = Self {
            name,
            is_recorded: recorder.flag(),
            recorder,
            home: Home::here(),
            injector: Injector::new(),
            idle: Idle::new(config.workers, config.max_spare_workers),
            staff: Staff::new(config.workers, config.max_spare_workers),
            spares: Spares::new(spare_cores),
            start_spare,
            incidents: incidents::Log::default(),
            troubles: driver.troubles().clone(),
            sampler,
            placer: Placer::new(config.placement),
            registry: Registry::new(remotes.len()),
            driver: Arc::new(driver),
            blocking,
            compat: OnceLock::new(),
            sentinel: Sentinel::new(),
            leases: CachePadded(Leases::new()),
            started_at_ns: clock::now_ns(),
            is_closed: AtomicBool::new(false),
            arrivals: (0..=remotes.len()).map(|_| Arrivals::default()).collect(),
            injected: CachePadded(AtomicU64::new(0)),
            arriving: CachePadded(AtomicUsize::new(0)),
            census: Census::default(),
            listing: Listing::default(),
            processes: Sources::default(),
            time_floors: Mutex::new(vec![[0; PHASES.len()]; remotes.len()]),
            running: Mutex::new(0),
            stopped: Condvar::new(),
            remotes: remotes.into(),
            config,
        };
        (shared, cores)
    }

    /// Puts a Tokio runtime beside this one, once, before anything runs here.
    pub(crate) fn add_compat(&self, compat: Compat) {
        self.compat.set(compat).expect("one is enough");
    }

    /// The Tokio runtime beside this one.
    pub(crate) fn compat(&self) -> Option<&Compat> {
        self.compat.get()
    }

    /// Whether any queue that `worker` may take from holds work; what is published before a fence
    /// is seen after it.
    pub(crate) fn has_work_for(&self, worker: usize) -> bool {
        let queued = |remote: &Arc<Remote>| remote.local_len() > 0 || remote.batch.len() > 0 || remote.inbox.len() > 0;
        self.injector.len() > 0
            || self.remotes[worker].inbox.len() > 0
            || (self.config.enable_stealing && self.remotes_in_use().iter().any(queued))
    }

    /// When the next timer is due, if nothing is left to be done but to wait for it or for the
    /// kernel, as `worker`, which is in the driver, finds: see `driver/test_clock`. The timer
    /// is read first: whoever comes from outside after that finds the clock moved on to no timer of
    /// its own.
    pub(crate) fn next_at_rest(&self, worker: usize) -> Option<u64> {
        let next_ns = self.driver.timers.next_deadline_ns();
        let is_quiet = || {
            let are_others = self.driver.test_clock.as_ref().is_some_and(TestClock::are_outsiders_at_rest);
            are_others && self.blocking.is_idle() && self.is_at_rest()
        };
        // Twice: what the first check found at rest can only be woken by what the second finds.
        let is_at_rest = is_quiet() && {
            self.idle.fence();
            !self.has_work_for(worker) && self.injector.is_empty_locked() && is_quiet()
        };
        (is_at_rest && next_ns != u64::MAX).then_some(next_ns)
    }

    /// Whether all who are on duty are parked, one of them in the driver, no spare is left over,
    /// and nothing is to be told.
    pub(super) fn is_at_rest(&self) -> bool {
        let on_duty = self.staff.on_duty();
        on_duty == self.config.workers
            && self.idle.parked_count() == on_duty
            && self.driver.owner().is_some()
            && !self.troubles.has_news()
    }

    /// Of the workers, and of the spares that were ever on duty.
    pub(crate) fn remotes_in_use(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.staff.in_use()]
    }
}

impl Watcher for Shared {
    fn rouse(&self) {
        self.sentinel.rouse(&self.idle);
    }
}

/// Many workers, whose threads are a test's.
#[cfg(test)]
pub(super) fn without_threads(workers: usize) -> (Shared, Vec<Core>) {
    use crate::blocking::pool::Settings;
    use std::time::Duration;

    use crate::config::ParkSpin;

    let config = crate::builder::Builder::new_multi_thread().worker_threads(workers).config().clone();
    let troubles = Arc::new(Troubles::new("without threads", false));
    let driver = Driver::new(None, 16, troubles.clone()).unwrap();
    let blocking = Pool::new(Settings {
        max_threads: 1,
        keep_alive: Duration::from_secs(1),
        thread_name: "none".to_owned(),
        stack_size: None,
        spin: ParkSpin::Off,
        troubles,
    });
    let start_thread = |_: &Arc<Shared>, _| Err(std::io::ErrorKind::Unsupported.into());
    Shared::new("without threads".to_owned(), config, driver, blocking, None, 1, start_thread)
}
