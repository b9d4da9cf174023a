//! A worker and its loop.
//!
//! A worker is a thread that polls tasks. One *turn* of its loop begins with a *tick*: it polls
//! timers and I/O if no worker has done so for a while, then finds a task and polls it once, up to
//! `budget_per_tick` times, and then feeds the tuner. If it has found no task, it parks. `search`
//! finds the next task, `park` is the sleep, `driver` polls timers and I/O, and `slot` is the part
//! that concerns stuck workers and spares. `woken` queues the tasks that the polls wake. `spare` is
//! the thread of a spare, and `current` the worker that runs on the calling thread.
//!
//! Between two polls of a tick the worker polls the driver once 20 times `driver_interval` have
//! passed, by default 1 ms. So a tick of slow polls delays no timer for longer than one poll and
//! that time.
//!
//! A turn and a park are divided into steps, each a method. The thread takes them in the order in
//! which `turn` and `park` call them. The simulation (`sim`) takes the same steps for many workers,
//! one at a time, in any order that is possible with threads.
//!
//! Only the worker's own thread writes the state here.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use volt_telemetry::Phase;
use volt_telemetry::recording::event::Event;

use super::core::Core;
use super::remote::Remote;
use super::shared::Shared;
use super::slots::OwnSlot;
use crate::clock;
use crate::config::DRIVER_INTERVALS_IN_TICK;
use crate::config::hooks::{self, TaskMeta};
use crate::coop;
use crate::driver::leases::stock::Stock;
use crate::driver::turn::Driver;
use crate::recorder::lanes::RecorderHandle;
use crate::stats::blame::LONG_NS;
use crate::stats::cells::{Polled, WorkerCells};
use crate::stats::counting;
use crate::stats::placed::Placed;
use crate::task::header::{Notified, PackedRan, Ran};

pub(crate) mod events;
pub(crate) mod main_future;

mod block_on;
pub mod current;
mod driver;
mod park;
mod record;
mod run;
mod search;
mod seeded;
mod slot;
mod spare;
mod woken;

use events::track_of;
use main_future::Main;

#[cfg(test)]
mod lines;
#[cfg(test)]
pub(crate) mod sim;
mod traced;

/// Ticks between two comparisons of the worker's clock with the system's, by a worker that is
/// always busy. If the clock stood still, all work that depends on passed time would wait for ever.
const CLOCK_CHECK_TICKS: u32 = 16;
/// The value of `Worker::driver_at_ns` that makes the driver due after the present poll.
const REQUESTED: u64 = 0;

/// A worker: see the module documentation.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    /// The part of this worker that other threads use.
    remote: Arc<Remote>,
    /// The cells of `remote`, for one load less.
    cells: Placed<WorkerCells>,
    /// The state of this worker's slot.
    own_slot: OwnSlot,
    core: RefCell<Core>,
    /// The last reading of the clock.
    now_ns: Cell<u64>,
    leases: Stock<Shared>,
    driver_leases: Stock<Driver>,
    /// Records what the worker does.
    recorder: RecorderHandle,
    /// Polls from the LIFO slot, at the time when the last poll was recorded.
    lifo_hits: Cell<u64>,
    /// When the driver is due between two polls of the present tick, unless another worker polls it
    /// until then.
    driver_at_ns: Cell<u64>,
    /// Ticks since the clock was last compared with the system's.
    ticks_since_clock_check: Cell<u32>,
    /// The main future of the thread that is the worker of a current-thread runtime.
    main: Option<Arc<Main>>,
    /// Whether polls have callbacks of the program, or a budget chosen from a seed.
    has_poll_hooks: bool,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, core: Core) -> Self {
        let recorder = shared.recorder.handle(track_of(index, shared.config.workers));
        let remote = shared.workers.remotes[index].clone();
        let (leases, driver_leases) = (Stock::new(shared.clone()), Stock::new(shared.workers.driver.clone()));
        let has_poll_hooks = shared.config.hooks.are_for_polls() || shared.seeded.is_some();
        let own_slot = shared.workers.slots.own_slot(index);
        Self {
            shared,
            index,
            cells: remote.cells.clone(),
            remote,
            own_slot,
            core: RefCell::new(core),
            now_ns: Cell::new(clock::now_ns()),
            leases,
            driver_leases,
            recorder,
            lifo_hits: Cell::new(0),
            driver_at_ns: Cell::new(u64::MAX),
            ticks_since_clock_check: Cell::new(0),
            main: None,
            has_poll_hooks,
        }
    }

    /// Returns whether this is a worker of the runtime that `shared` belongs to.
    #[inline]
    pub(crate) fn is_of(&self, shared: &Shared) -> bool {
        ptr::eq(&*self.shared, shared)
    }

    #[inline]
    pub(super) fn leases(&self) -> &Stock<Shared> {
        &self.leases
    }

    /// Returns whether `driver` is the one of this worker's runtime.
    #[inline]
    pub(super) fn has_driver(&self, driver: &Driver) -> bool {
        ptr::eq(&*self.shared.workers.driver, driver)
    }

    #[inline]
    pub(super) fn driver_leases(&self) -> &Stock<Driver> {
        &self.driver_leases
    }

    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Returns whether this worker replaces stuck ones.
    pub(crate) fn is_spare(&self) -> bool {
        self.index >= self.shared.config.workers
    }

    #[inline]
    pub(crate) fn cells(&self) -> &WorkerCells {
        &self.cells
    }

    /// Returns the core, which is stored while a spare is inactive.
    pub(crate) fn into_core(self) -> Core {
        self.core.into_inner()
    }

    fn start_cells(&self) {
        let (cells, core) = (self.cells(), self.core.borrow());
        // The core was created before its thread was started; the time in between is not the
        // worker's.
        cells.enter_phase(Phase::Maintenance, clock::now_ns());
        cells.thread_id.set(thread_id());
        self.remote.begin_on_this_thread();
        cells.avg_poll_ns.set(core.tuner.avg_ns());
        cells.global_queue_interval.set(u64::from(core.tuner.interval()));
        cells.renew_budget(self.shared.config.budget_per_tick);
        // The work that follows begins now: the start counts as maintenance, not as a search.
        self.now_ns.set(clock::now_ns());
    }

    /// Executes one turn of the loop.
    fn turn(&self) {
        let mut tick = self.begin_tick();
        let is_idle = loop {
            if !tick.has_budget(self.cells()) {
                self.recorder.note(|| self.now_ns.get(), || Event::BudgetExhausted);
                break false;
            }
            let Some(task) = self.next_task() else { break true };
            self.poll_in(&mut tick, task);
        };
        self.end_tick(&mut tick);
        if is_idle {
            self.park();
        }
    }

    fn begin_tick(&self) -> Tick {
        let config = &self.shared.config;
        self.ensure_present();
        self.cells().ticks.add(1);
        self.ticks_since_clock_check.set(self.ticks_since_clock_check.get() + 1);
        if self.ticks_since_clock_check.get() >= CLOCK_CHECK_TICKS {
            self.ticks_since_clock_check.set(0);
            clock::check();
        }
        if let Some(now_ns) = counting::now_ns_of_tick() {
            self.now_ns.set(now_ns);
        }
        self.poll_driver_if_due(config.driver_interval_ns);
        let driver_interval_ns = config.driver_interval_ns.saturating_mul(DRIVER_INTERVALS_IN_TICK);
        self.driver_at_ns.set(self.shared.workers.driver.last_turn_ns().saturating_add(driver_interval_ns));
        Tick { budget_left: config.budget_per_tick, driver_interval_ns, busy_ns: 0, last: None }
    }

    /// Polls one task within the tick's budget, and polls the driver if it is due.
    fn poll_in(&self, tick: &mut Tick, task: Notified) {
        let cells = self.cells();
        tick.budget_left -= 1;
        tick.count_last(cells);
        self.poll(cells, task, tick);
        if self.now_ns.get() >= self.driver_at_ns.get() {
            self.poll_driver_in(tick);
        }
    }

    /// Polls the driver after the present poll, unless that was done within `driver_interval`. For
    /// a task of the runtime itself that polls many tasks in one poll.
    pub(in crate::scheduler) fn request_driver(&self) {
        self.driver_at_ns.set(REQUESTED);
    }

    #[cfg(test)]
    pub(in crate::scheduler) fn has_requested_driver(&self) -> bool {
        self.driver_at_ns.get() == REQUESTED
    }

    /// Polls the driver between two polls of a tick, unless another worker has done so meanwhile or
    /// has its turn.
    ///
    /// A worker that sleeps in the driver may have the turn for long. It fires the timers that come
    /// due, so the next check is an interval from now, and not after each poll until it wakes up.
    /// If it leaves the turn without a poll of the driver, timers may wait for one interval more.
    #[cold]
    fn poll_driver_in(&self, tick: &mut Tick) {
        let is_requested = self.driver_at_ns.get() == REQUESTED;
        self.poll_driver_if_due(if is_requested {
            self.shared.config.driver_interval_ns
        } else {
            tick.driver_interval_ns
        });
        let driver = &self.shared.workers.driver;
        let from_ns = if driver.owner().is_some() { self.now_ns.get() } else { driver.last_turn_ns() };
        self.driver_at_ns.set(from_ns.saturating_add(tick.driver_interval_ns));
    }

    /// Feeds the tuner and resets the counts of the tick.
    fn end_tick(&self, tick: &mut Tick) {
        let (config, cells) = (&self.shared.config, self.cells());
        tick.count_last(cells);
        let mut core = self.core.borrow_mut();
        core.tuner.record(config.budget_per_tick - tick.budget_left, tick.busy_ns);
        if core.renew_lifo_polls() {
            cells.renew_lifo_polls();
        }
        cells.avg_poll_ns.set(core.tuner.avg_ns());
        cells.global_queue_interval.set(u64::from(core.tuner.interval()));
        cells.renew_budget(config.budget_per_tick);
    }

    /// Polls `task` once. A worker polls tasks nowhere else, except in `poll_traced`, for a dump.
    ///
    /// Not inlined, so that the stack of a stuck poll can be cut off here.
    #[inline(never)]
    pub(super) fn poll(&self, cells: &WorkerCells, task: Notified, tick: &mut Tick) {
        let began_at_ns = self.now_ns.get();
        let location = cells.begin_poll(task.header(), began_at_ns);
        let is_recorded = self.recorder.is_on();
        if is_recorded {
            self.note_poll_begin(task.header(), began_at_ns);
        }
        coop::begin_poll(self.shared.config.coop_budget);
        let ran = if self.has_poll_hooks {
            let ran = self.run_between_hooks(task, |task| task.run(began_at_ns));
            PackedRan::pack(ran, || counting::now_ns_after(began_at_ns))
        } else {
            task.run_packed(began_at_ns)
        };
        let has_yielded = coop::end_poll();
        if has_yielded {
            cells.coop_yields.add(1);
        }
        let now_ns = ran.at_ns();
        let took_ns = now_ns.saturating_sub(began_at_ns);
        if is_recorded {
            self.note_poll_end(location, &ran, has_yielded, now_ns, took_ns);
        }
        cells.end_poll();
        self.now_ns.set(now_ns);
        tick.busy_ns += took_ns;
        tick.last = Some(Polled { location, took_ns, has_woken_itself: ran.has_woken_itself() });
        if took_ns >= LONG_NS {
            self.end_long_poll(cells, tick);
        }
        if ran.is_pending() {
            return;
        }
        match ran.unpack() {
            Ran::Pending { .. } => {}
            Ran::Woken { task, by_itself, .. } => self.take_back(cells, task, by_itself),
            Ran::Ended(ended) => cells.count_end(ended),
        }
    }

    /// Queues the task that has just been polled and was woken in its poll, behind the tasks that
    /// are already queued.
    #[inline]
    fn take_back(&self, cells: &WorkerCells, task: Notified, by_itself: bool) {
        let now_ns = self.now_ns.get();
        if by_itself {
            task.header().stamp_own_wake(now_ns);
        } else {
            task.header().stamp_wake_in_poll(now_ns);
        }
        cells.local_schedules.add(1);
        let mut core = self.core.borrow_mut();
        self.push_back(&mut core, task);
        self.wake_for_surplus(&core, 1);
    }

    /// Runs `task` by `run` between the program's callbacks, whose time counts as part of the poll.
    #[cold]
    fn run_between_hooks(&self, task: Notified, run: impl FnOnce(Notified) -> Ran) -> Ran {
        let (hooks, meta) = (&self.shared.config.hooks, TaskMeta::of(task.header()));
        if let Some(seeded) = &self.shared.seeded {
            coop::begin_poll(seeded.draw_budget(self.shared.config.coop_budget));
        }
        hooks::call_for(hooks.before_poll.as_ref(), &meta);
        let mut ran = run(task);
        if matches!(ran, Ran::Ended(_)) {
            hooks::call_for(hooks.task_end.as_ref(), &meta);
        }
        hooks::call_for(hooks.after_poll.as_ref(), &meta);
        if let Ran::Pending { at_ns } | Ran::Woken { at_ns, .. } = &mut ran {
            *at_ns = counting::now_ns_after(*at_ns);
        }
        ran
    }

    /// Counts a long poll that has ended. The sentinel may have declared this worker stuck, which
    /// it does only for a poll of at least this length. If it was late, `begin_tick` notices.
    #[cold]
    fn end_long_poll(&self, cells: &WorkerCells, tick: &mut Tick) {
        if let Some(Polled { location, took_ns, .. }) = tick.last {
            tick.count_last(cells);
            cells.note_long(location, took_ns);
        }
        self.ensure_present();
    }
}

/// One tick of a worker: its remaining budget, and what it has done so far.
pub(super) struct Tick {
    /// Polls left in this tick.
    budget_left: u32,
    /// How long after the last poll of the driver the next one is due, between two polls of tasks.
    driver_interval_ns: u64,
    /// Time spent in polls.
    busy_ns: u64,
    /// The last poll, if it is not counted yet. It is counted before the next one begins. By then
    /// the reading of the clock, on which the count depends, is complete. So the locked instruction
    /// that takes the next task out of its queue does not wait for that reading.
    last: Option<Polled>,
}

impl Tick {
    #[inline]
    fn count_last(&mut self, cells: &WorkerCells) {
        if let Some(polled) = self.last.take() {
            cells.count_poll(polled);
        }
    }

    /// Returns whether there is budget for one more poll; counts the tick as exhausted if not.
    #[inline]
    fn has_budget(&self, cells: &WorkerCells) -> bool {
        let is_spent = self.budget_left == 0;
        if is_spent {
            cells.budget_exhausted.add(1);
        }
        !is_spent
    }
}

/// Returns the kernel's id of this thread, or 0 on platforms that provide none.
fn thread_id() -> u64 {
    #[cfg(target_os = "linux")]
    return u64::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0);
    #[cfg(not(target_os = "linux"))]
    return 0;
}

#[cfg(test)]
mod tests;
