//! The state of a runtime, which its workers, handles and observers share.
//!
//! It has two layers. Below is what the workers need to find tasks and to place them, in
//! [`Workers`]: the queues, the idle set, the registry. Above are the services: the spare workers,
//! the blocking pool, the sentinel, the recorder, the beginning and the end of the runtime
//! (`lifecycle`), and the state of snapshots, lists and dumps (`scheduler/readers`). A service uses
//! the workers; the workers use no service.
//!
//! The operations that need both layers are here, in separate files: `inject` (a task that was
//! woken is submitted from outside), `end` (the shutdown), `snapshot`. Those that also need the
//! worker of the calling thread are in modules above, such as `scheduler/spawn` and `worker/spare`.
//! All threads write here; each part documents how.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle as JoinThread;

use volt_stacks::Sampler;
use volt_stacks::fork::Home;

use self::lifecycle::Lifecycle;
use super::core::Core;
use super::core::seeded::Seeded;
use super::readers::Readers;
use super::remote::slot;
use super::shared_core::SharedCore;
use super::spares::Spares;
use super::watch::Sentinel;
use super::watch::suspension::Alarm;
use super::workers::Workers;
use crate::blocking::pool::Pool;
use crate::config::Config;
use crate::config::identity::Id;
use crate::driver::compat::Compat;
use crate::driver::test_clock::TestClock;
use crate::driver::turn::Driver;
use crate::failures::{Failures, Watcher};
use crate::recorder::black_box::space::BlackBox;
use crate::recorder::lanes::{Flag, Recorder};
use crate::stats::cells::WorkerCells;
use crate::stats::placed::Placed;
use crate::stats::routes::RouteTable;

mod inject;
mod lifecycle;
mod snapshot;

mod end;

#[cfg(test)]
mod tests;

/// Starts a thread with the runtime's settings that runs [`Shared::run_spare`] for this slot.
pub(crate) type StartSpare = fn(&Arc<Shared>, usize) -> io::Result<JoinThread<()>>;

/// The threads of a runtime, in addition to its workers.
pub(crate) struct Threads {
    pub(crate) blocking: Pool,
    pub(crate) start_spare: StartSpare,
    /// Wakes the thread of the program's sentinel.
    pub(crate) sentinel: Arc<Alarm>,
}

/// Which runtime this is.
pub struct Identity {
    pub(crate) id: Id,
    pub(crate) name: String,
    /// The program that the workers run in, as opposed to a forked child of it.
    pub home: Home,
}

/// The shared state of a runtime: see the module documentation.
pub struct Shared {
    pub identity: Identity,
    pub config: Config,
    pub(crate) workers: Workers,
    pub(crate) spares: Spares,
    pub(super) start_spare: StartSpare,
    /// The Tokio runtime that runs beside this one. Set before the first worker starts.
    compat: OnceLock<Compat>,
    pub(crate) blocking: Pool,
    pub(crate) sentinel: Sentinel,
    pub(crate) recorder: Arc<Recorder>,
    /// The recorder's flag, for a quick check at each wake-up.
    pub(super) is_recorded: Flag,
    pub(crate) routes: RouteTable,
    pub(super) lifecycle: Lifecycle,
    pub(crate) readers: Readers,
    /// Draws the order of polls, in a runtime with a seed. In a box, since most runtimes have none.
    pub(crate) seeded: Option<Box<Seeded>>,
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
        let shared_core = config.is_current_thread.then(|| SharedCore::new(cores.remove(0)));
        let recorder = Recorder::placed(config.black_box_layout(), config.flight_recorder, black_box);
        let shared = Self {
            identity: Identity { id: Id::next(), name, home: Home::here() },
            spares: Spares::new(spare_cores),
            start_spare,
            compat: OnceLock::new(),
            blocking,
            sentinel: Sentinel::new(sentinel, config.sentinel_interval.is_some(), sampler),
            is_recorded: recorder.flag(),
            recorder,
            routes: RouteTable::default(),
            lifecycle: Lifecycle::new(),
            seeded: config.seed.map(|seed| Box::new(Seeded::new(seed, config.poll_limit, driver.now_ns()))),
            readers: Readers::new(remotes.len()),
            workers: Workers::new(&config, remotes, driver, shared_core),
            config,
        };
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

    /// Returns the log of the runtime's failures.
    pub(crate) fn failures(&self) -> &Failures {
        self.workers.driver.failures()
    }

    /// Returns when the next timer is due, if all that is left is to wait for it or for the kernel;
    /// see `driver/test_clock`. Called by `worker`, which is in the driver. The timer is read
    /// first: if a thread arms another one afterwards, the clock is not moved past that one.
    pub(crate) fn next_at_rest(&self, worker: usize) -> Option<u64> {
        let next_ns = self.workers.driver.timers.next_deadline_ns();
        let is_quiet = || {
            let are_others = self.workers.driver.test_clock.as_ref().is_some_and(TestClock::are_outsiders_at_rest);
            are_others && self.blocking.is_idle() && self.workers.are_at_rest()
        };
        // Checked twice: the second check covers everything that can wake a thread that the first
        // check found at rest.
        let is_at_rest = is_quiet() && {
            self.workers.idle.fence();
            !self.workers.has_work_for(worker) && self.workers.injector.is_empty_locked() && is_quiet()
        };
        (is_at_rest && next_ns != u64::MAX).then_some(next_ns)
    }
}

impl Watcher for Shared {
    fn resume_checks(&self) {
        self.sentinel.resume_checks(&self.workers.idle);
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
