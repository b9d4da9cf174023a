//! The state that all workers of a runtime share.
//!
//! It consists of the global queue, the idle set, the registry, and one [`Remote`] per worker: the
//! ends of its queues that other threads may steal from, its park word, and its cells. Workers,
//! handles and the observer use it. The operations are in separate files: `spawn` (a new task is
//! counted and submitted), `wake` (a task is submitted, and a worker is woken for it), `end` (the
//! shutdown), `snapshot`. All threads write here; each part documents how.
//!
//! Workers find and place tasks with the fields of [`Shared`] itself. What only some threads or
//! operations use is grouped: `intake` for submits from outside, `lifecycle` for the beginning and
//! the end, `readers` for snapshots, lists and dumps, and `sentinel`.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle as JoinThread;

use volt_stacks::Sampler;
use volt_stacks::fork::Home;

use self::intake::Intake;
use self::lifecycle::Lifecycle;
use self::readers::Readers;
use super::core::Core;
use super::idle::Idle;
use super::remote::{Remote, slot};
use super::seat::Seat;
use super::sentinel::counts::Sentinel;
use super::sentinel::doze::Alarm;
use super::spares::Spares;
use super::staff::Staff;
use crate::blocking::pool::Pool;
use crate::config::Config;
use crate::config::identity::Id;
use crate::context::compat::Compat;
use crate::driver::test_clock::TestClock;
use crate::driver::turn::Driver;
use crate::failures::{Failures, Watcher};
use crate::queue::injector::Injector;
use crate::recorder::black_box::space::BlackBox;
use crate::recorder::lanes::{Flag, Recorder};
use crate::stats::cells::WorkerCells;
use crate::stats::placed::Placed;
use crate::stats::routes::RouteTable;
use crate::task::header::Notified;
use crate::task::registry::Registry;

mod end;
mod intake;
mod lifecycle;
mod readers;
mod snapshot;
mod spawn;
pub(crate) mod submits;
#[cfg(test)]
mod tests;
mod wake;

/// Starts a thread with the runtime's settings that runs [`Shared::run_spare`] for this slot.
pub(crate) type StartSpare = fn(&Arc<Shared>, usize) -> io::Result<JoinThread<()>>;

/// The threads of a runtime, in addition to its workers.
pub(crate) struct Threads {
    pub(crate) blocking: Pool,
    pub(crate) start_spare: StartSpare,
    /// Wakes the thread of the program's sentinel.
    pub(crate) sentinel: Arc<Alarm>,
}

/// The shared state of a runtime: see the module documentation.
pub struct Shared {
    pub(crate) id: Id,
    pub(crate) name: String,
    /// The program that the workers run in, as opposed to a forked child of it.
    pub home: Home,
    pub config: Config,
    pub(crate) injector: Injector<Notified>,
    pub(super) intake: Intake,
    pub(crate) idle: Idle,
    pub(crate) remotes: Box<[Arc<Remote>]>,
    pub(crate) registry: Registry,
    pub(crate) routes: RouteTable,
    pub(crate) driver: Arc<Driver>,
    pub(crate) blocking: Pool,
    pub(crate) sentinel: Sentinel,
    pub(crate) staff: Staff,
    pub(crate) spares: Spares,
    pub(super) start_spare: StartSpare,
    /// The Tokio runtime that runs beside this one. Set before the first worker starts.
    compat: OnceLock<Compat>,
    /// The seat of the worker, in a current-thread runtime.
    pub(crate) seat: Option<Seat<Core>>,
    pub(crate) failures: Arc<Failures>,
    pub(crate) recorder: Arc<Recorder>,
    /// The file with the cells and the recorder's rings, if one is wanted.
    pub(crate) black_box: Option<Arc<BlackBox>>,
    /// The recorder's flag, for a quick check at each wake-up.
    is_recorded: Flag,
    pub(super) lifecycle: Lifecycle,
    pub(crate) readers: Readers,
}

impl Shared {
    /// Creates the shared state, and the cores of the workers.
    pub(crate) fn new(
        name: String,
        config: Config,
        driver: Driver,
        threads: Threads,
        sampler: Option<Sampler>,
        black_box: Option<Arc<BlackBox>>,
        seed: u64,
    ) -> (Self, Vec<Core>) {
        let Threads { blocking, start_spare, sentinel } = threads;
        let slots = config.workers + config.max_spare_workers;
        let on_heap = || Placed::on_heap(Box::new(WorkerCells::new()));
        let cells = |index| black_box.as_ref().map_or_else(on_heap, |black_box| black_box.cells(index));
        let new_slot = |index| slot(&config, cells(index), index, seed);
        let (remotes, mut cores): (Vec<_>, Vec<_>) = (0..slots).map(new_slot).unzip();
        let spare_cores = cores.split_off(config.workers);
        let seat = config.is_current_thread.then(|| Seat::new(cores.remove(0)));
        let recorder = Recorder::placed(config.black_box_layout(), config.flight_recorder, black_box.clone());
        let shared = Self {
            id: Id::next(),
            name,
            is_recorded: recorder.flag(),
            recorder,
            black_box,
            home: Home::here(),
            injector: Injector::new(),
            intake: Intake::new(config.placement, remotes.len()),
            idle: Idle::new(config.workers, config.max_spare_workers),
            staff: Staff::new(config.workers, config.max_spare_workers),
            spares: Spares::new(spare_cores),
            start_spare,
            failures: driver.failures().clone(),
            registry: Registry::new(remotes.len()),
            routes: RouteTable::default(),
            driver: Arc::new(driver),
            blocking,
            compat: OnceLock::new(),
            seat,
            sentinel: Sentinel::new(sentinel, config.sentinel_interval.is_some(), sampler),
            lifecycle: Lifecycle::new(),
            readers: Readers::new(remotes.len()),
            remotes: remotes.into(),
            config,
        };
        if shared.seat.is_some() {
            // The worker counts as parked until a thread takes the seat.
            shared.idle.begin_park(0, false);
        }
        (shared, cores)
    }

    /// Adds the Tokio runtime, once, before anything runs here.
    pub(crate) fn add_compat(&self, compat: Compat) {
        self.compat.set(compat).expect("one is enough");
    }

    /// Returns the Tokio runtime that runs beside this one.
    pub(crate) fn compat(&self) -> Option<&Compat> {
        self.compat.get()
    }

    /// Returns whether any queue from which `worker` may take tasks holds one. A task that is
    /// published before a fence is seen by a call after that fence.
    pub(crate) fn has_work_for(&self, worker: usize) -> bool {
        let queued = |remote: &Arc<Remote>| remote.local_len() > 0 || remote.batch.len() > 0 || remote.inbox.len() > 0;
        self.injector.len() > 0
            || self.remotes[worker].inbox.len() > 0
            || (self.config.enable_stealing && self.remotes_in_use().iter().any(queued))
    }

    /// Returns when the next timer is due, if all that is left is to wait for it or for the kernel;
    /// see `driver/test_clock`. Called by `worker`, which is in the driver. The timer is read
    /// first: if a thread arms another one afterwards, the clock is not moved past that one.
    pub(crate) fn next_at_rest(&self, worker: usize) -> Option<u64> {
        let next_ns = self.driver.timers.next_deadline_ns();
        let is_quiet = || {
            let are_others = self.driver.test_clock.as_ref().is_some_and(TestClock::are_outsiders_at_rest);
            are_others && self.blocking.is_idle() && self.is_at_rest()
        };
        // Twice: only what the second check covers can wake what the first check found at rest.
        let is_at_rest = is_quiet() && {
            self.idle.fence();
            !self.has_work_for(worker) && self.injector.is_empty_locked() && is_quiet()
        };
        (is_at_rest && next_ns != u64::MAX).then_some(next_ns)
    }

    /// Returns whether all workers on duty are parked, one of them in the driver, no spare is on
    /// duty, and there is no failure to report; or whether no thread has the seat of a
    /// current-thread runtime.
    pub(super) fn is_at_rest(&self) -> bool {
        let on_duty = self.staff.on_duty();
        let are_parked =
            on_duty == self.config.workers && self.idle.parked_count() == on_duty && self.driver.owner().is_some();
        (are_parked || self.is_seat_free()) && !self.failures.has_news()
    }

    /// Returns whether this is a current-thread runtime, and no thread is its worker now.
    pub(super) fn is_seat_free(&self) -> bool {
        self.seat.as_ref().is_some_and(Seat::is_free)
    }

    /// Returns the remotes of the workers, and of the spares that were ever on duty.
    pub(crate) fn remotes_in_use(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.staff.in_use()]
    }
}

impl Watcher for Shared {
    fn rouse(&self) {
        self.sentinel.rouse(&self.idle);
    }
}

/// Creates a runtime with this many workers, whose steps are taken by the threads of a test.
#[cfg(test)]
pub(super) fn without_threads(workers: usize) -> (Shared, Vec<Core>) {
    use crate::blocking::pool::Settings;
    use std::time::Duration;

    use crate::config::ParkSpin;

    let config = crate::builder::Builder::new_multi_thread().worker_threads(workers).config().clone();
    let failures = Arc::new(Failures::new("without threads", false));
    let driver = Driver::new(None, 16, failures.clone()).unwrap();
    let blocking = Pool::new(Settings {
        max_threads: 1,
        keep_alive: Duration::from_secs(1),
        thread_name: "none".to_owned(),
        hooks: crate::config::hooks::Hooks::default(),
        stack_size: None,
        spin: ParkSpin::Off,
        failures,
    });
    let start_spare = |_: &Arc<Shared>, _| Err(std::io::ErrorKind::Unsupported.into());
    let threads = Threads { blocking, start_spare, sentinel: Arc::new(Alarm::new()) };
    Shared::new("without threads".to_owned(), config, driver, threads, None, None, 1)
}
