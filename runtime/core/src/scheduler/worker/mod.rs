//! A worker: its loop, and how it queues tasks that were woken on its thread.
//!
//! A worker is a thread that polls tasks. One *turn* of its loop begins with a *tick*: it polls
//! timers and I/O if no worker has done so for a while, then finds a task and polls it once, up to
//! `budget_per_tick` times, and then feeds the tuner. If it has found no task, it parks. `search`
//! finds the next task, `park` is the sleep, `driver` polls timers and I/O, and `duty` is the part
//! that concerns stuck workers and spares.
//!
//! Between two polls of a tick the worker polls the driver once 20 times `driver_interval` have
//! passed, by default 1 ms. So 128 slow polls delay no timer for longer than one poll and that
//! time.
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

use super::core::{Core, Road};
use super::leases::stock::Stock;
use super::remote::Remote;
use super::shared::Shared;
use super::staff::Post;
use crate::clock;
use crate::config::DRIVER_INTERVALS_IN_TICK;
use crate::config::hooks::{self, TaskMeta};
use crate::coop;
use crate::recorder::lanes::RecorderHandle;
use crate::stats::blame::LONG_NS;
use crate::stats::cells::{Polled, WorkerCells};
use crate::stats::counting;
use crate::stats::placed::Placed;
use crate::task::header::{Notified, PackedRan, Ran};

mod driver;
mod duty;
pub(crate) mod events;
pub(crate) mod main_future;
mod park;
mod record;
mod run;
mod search;
mod seated;

use events::{track_of, wake_of};
use main_future::Main;

#[cfg(test)]
pub(crate) mod sim;
mod traced;

/// Ticks between two comparisons of the worker's clock with the system's, by a worker that is
/// always busy. If the clock stood still, all work that depends on passed time would wait for ever.
const CLOCK_CHECK_TICKS: u32 = 16;

/// A worker: see the module documentation.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    /// The part of this worker that other threads use.
    remote: Arc<Remote>,
    /// The cells of `remote`, for one load less.
    cells: Placed<WorkerCells>,
    /// The duty of this worker's slot.
    post: Post,
    core: RefCell<Core>,
    /// The last reading of the clock.
    now_ns: Cell<u64>,
    leases: Stock,
    /// Records what the worker does.
    recorder: RecorderHandle,
    /// Polls from the LIFO slot, at the time when the last poll was recorded.
    lifo_hits: Cell<u64>,
    /// Ticks since the clock was last compared with the system's.
    ticks_since_clock_check: Cell<u32>,
    /// The main future of the thread that is the worker of a current-thread runtime.
    main: Option<Arc<Main>>,
    /// Whether polls have callbacks of the program.
    has_poll_hooks: bool,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, core: Core) -> Self {
        let recorder = shared.recorder.handle(track_of(index, shared.config.workers));
        let (remote, leases) = (shared.remotes[index].clone(), Stock::new(shared.clone()));
        let has_poll_hooks = shared.config.hooks.are_for_polls();
        let post = shared.staff.post(index);
        Self {
            shared,
            index,
            cells: remote.cells.clone(),
            remote,
            post,
            core: RefCell::new(core),
            now_ns: Cell::new(clock::now_ns()),
            leases,
            recorder,
            lifo_hits: Cell::new(0),
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
    pub(super) fn leases(&self) -> &Stock {
        &self.leases
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

    /// Returns the core, which a spare keeps while it is off duty.
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
        // What follows begins now: the start counts as maintenance, not as a search.
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
        let driver_at_ns = self.shared.driver.last_turn_ns().saturating_add(driver_interval_ns);
        Tick { budget_left: config.budget_per_tick, driver_interval_ns, driver_at_ns, busy_ns: 0, last: None }
    }

    /// Polls one task within the tick's budget, and polls the driver if it is due.
    fn poll_in(&self, tick: &mut Tick, task: Notified) {
        let cells = self.cells();
        tick.budget_left -= 1;
        tick.count_last(cells);
        self.poll(cells, task, tick);
        if self.now_ns.get() >= tick.driver_at_ns {
            self.poll_driver_in(tick);
        }
    }

    /// Polls the driver between two polls of a tick, unless another worker has done so meanwhile or
    /// has its turn.
    ///
    /// A worker that sleeps in the driver may have the turn for long. It fires the timers that come
    /// due, so the next check is an interval from now, and not after each poll until it wakes up.
    /// If it leaves the turn without a poll of the driver, timers may wait for one interval more.
    #[cold]
    fn poll_driver_in(&self, tick: &mut Tick) {
        self.poll_driver_if_due(tick.driver_interval_ns);
        let driver = &self.shared.driver;
        let from_ns = if driver.owner().is_some() { self.now_ns.get() } else { driver.last_turn_ns() };
        tick.driver_at_ns = from_ns.saturating_add(tick.driver_interval_ns);
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

    /// Polls `task` once. No other function polls tasks.
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
            PackedRan::pack(self.run_between_hooks(task, |task| task.run(began_at_ns)))
        } else {
            task.run_packed(began_at_ns)
        };
        let has_yielded = coop::end_poll();
        if has_yielded {
            cells.coop_yields.add(1);
        }
        let now_ns = ran.at_ns().unwrap_or_else(|| counting::now_ns_after(began_at_ns));
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

    // ---- queueing tasks -------------------------------------------------------------------------

    /// Queues a task that was woken on this thread, on this worker or else in the global queue.
    ///
    /// Not inlined into the functions of each type of task, which are in other crates.
    #[inline(never)]
    pub(crate) fn take_woken(&self, task: Notified) {
        if self.recorder.is_on() {
            self.note(task.header().submitted_at_ns(), wake_of(task.header()));
        }
        if let Some(task) = self.push_woken(task) {
            self.shared.inject(task);
        }
    }

    /// Queues a task that was woken on this thread. Returns the task if this worker cannot queue
    /// it, because it is in the middle of an operation on its own queues.
    ///
    /// A worker that is declared stuck returns it too: other workers must run what a stuck poll
    /// wakes.
    #[inline]
    pub(crate) fn push_woken(&self, task: Notified) -> Option<Notified> {
        if !self.post.is_present() {
            return Some(task);
        }
        let Ok(mut core) = self.core.try_borrow_mut() else { return Some(task) };
        let core = &mut *core;
        self.cells().local_schedules.add(1);
        if let Road::Ring { pushed } = &mut core.road {
            *pushed += 1;
            self.push_back(core, task);
            return None;
        }
        let config = &self.shared.config;
        let evicted = if self.has_come_to_cap(core) {
            self.cells().lifo_cap_flushes.add(1);
            Some(task)
        // Also at the cap, if the ring is empty. If the task went to the ring, a helper would have
        // to be woken for it, since this poll may go on for long.
        } else if config.max_lifo_polls_per_tick > 0 {
            let evicted = self.remote.lifo.put(task);
            if evicted.is_some() {
                self.cells().lifo_evictions.add(1);
            }
            evicted
        } else {
            Some(task)
        };
        // A push into an empty LIFO slot wakes no worker: this worker runs the task next.
        if let Some(task) = evicted {
            self.push_back(core, task);
            self.wake_for_surplus(core, 1);
        }
        None
    }

    /// Returns whether a task put into the LIFO slot now would be flushed to the ring's tail,
    /// behind others. In that case it goes there directly.
    #[inline]
    fn has_come_to_cap(&self, core: &Core) -> bool {
        let cap = self.shared.config.max_lifo_polls_per_tick;
        (1..=core.lifo_polls).contains(&cap) && !self.remote.lifo.is_filled() && core.ring.len() > 0
    }

    /// Pushes `task` to the ring's tail.
    #[inline]
    fn push_back(&self, core: &mut Core, task: Notified) {
        if let Err(task) = core.ring.push(task) {
            self.overflow(core, task);
        }
    }

    /// Moves half of a full ring to the global queue, under one lock and with one wake-up.
    #[cold]
    fn overflow(&self, core: &mut Core, task: Notified) {
        self.cells().overflows.add(1);
        let _submit = self.shared.intake.submits.begin();
        let now_ns = clock::now_ns();
        // If this is between two polls, the next poll begins after this time.
        self.now_ns.set(now_ns);
        let moved = match core.ring.take_half() {
            Some(half) => match self.shared.injector.push_batch(half, now_ns) {
                Ok(moved) => moved,
                // The queue closes after the workers have ended.
                Err(_half) => unreachable!("the global queue is open while a worker runs"),
            },
            // A thief is moving tasks out.
            None => 0,
        };
        let moved = match core.ring.push(task) {
            Ok(()) => moved,
            Err(task) => {
                let pushed = self.shared.injector.push(task, now_ns);
                debug_assert!(pushed.is_ok(), "the global queue is open while a worker runs");
                moved + 1
            }
        };
        self.cells().tasks_overflowed.add(moved as u64);
        self.recorder.note(|| now_ns, || Event::Overflow { count: moved as u32 });
        // One wake-up for the whole batch: the worker that is woken takes a share and wakes the
        // next one.
        self.count_wakes(usize::from(self.shared.wake_for_submit()));
    }

    /// Wakes parked workers if this worker has surplus, that is, work that it will not run next: at
    /// most one for each of the `pushed` tasks in the ring.
    ///
    /// Surplus that grows needs no fence: see "Surplus" in `idle`.
    #[inline]
    fn wake_for_surplus(&self, core: &Core, pushed: usize) {
        let queued = core.ring.len() + usize::from(self.remote.lifo.is_filled());
        if queued <= 1 {
            return;
        }
        if self.shared.idle.is_anybody_parked_for_surplus(queued, pushed) {
            self.wake_helpers(pushed.min(queued - 1));
        }
    }

    #[cold]
    fn wake_helpers(&self, tasks: usize) {
        // Checked last: where workers steal, as they do by default, no worker is parked while there
        // are many tasks to push.
        if !self.shared.config.enable_stealing {
            return;
        }
        self.count_wakes(self.shared.wake_for_batch(tasks));
    }

    fn count_wakes(&self, woken: usize) {
        self.cells().wakes_sent.add(woken as u64);
    }
}

/// One tick of a worker: its remaining budget, and what it has done so far.
pub(super) struct Tick {
    /// Polls left in this tick.
    budget_left: u32,
    /// How long after the last poll of the driver the next one is due, between two polls of tasks.
    driver_interval_ns: u64,
    /// When it is due, unless another worker polls the driver until then.
    driver_at_ns: u64,
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
