//! One worker: its loop, and how it takes tasks in. Where it finds them stands in `search`, how it
//! sleeps in `park`.
//!
//! One turn: poll timers and I/O if nobody did for a while; then up to `budget_per_tick` times find
//! a task and poll it once; then feed the tuner. Nothing found: park. Between two polls of a tick
//! the worker polls the driver once 20 times `driver_interval` have passed, 1 ms by default, so
//! that 128 slow polls stop no clock.
//!
//! Who writes: the worker's own thread.
//!
//! A turn and a park are cut into steps, each a method. The thread takes them in the order in which
//! `turn` and `park` call them; the simulation (`sim`) takes the same steps of many workers one by
//! one, in any order in which threads could.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::Arc;

use volt_telemetry::Phase;
use volt_telemetry::recording::event::Event;

use super::core::{Core, Road};
use super::leases::stock::Stock;
use super::remote::Remote;
use super::shared::Shared;
use crate::clock;
use crate::config::DRIVER_INTERVALS_IN_TICK;
use crate::coop;
use crate::recorder::lanes::RecorderHandle;
use crate::stats::blame::LONG_NS;
use crate::stats::cells::{Polled, WorkerCells};
use crate::stats::counting;
use crate::task::header::{Notified, Ran};

mod driver;
mod duty;
mod park;
pub(crate) mod record;
mod run;
mod search;

use record::wake_of;

#[cfg(test)]
pub(crate) mod sim;

/// Ticks between two comparisons of the clock with the system's, by a worker that is always busy:
/// what it does else when time has passed would wait for ever for a clock that stands still.
const CLOCK_CHECK_TICKS: u32 = 16;

/// See the header of this file.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    /// What others see of this worker.
    remote: Arc<Remote>,
    core: RefCell<Core>,
    leases: Stock,
    /// What it notes down of what it does.
    recorder: RecorderHandle,
    /// Polls from the LIFO slot, when the last poll was noted down.
    lifo_hits: Cell<u64>,
    /// Ticks since the clock was compared with the system's.
    ticks_since_clock_check: Cell<u32>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, core: Core) -> Self {
        let recorder = shared.recorder.handle(record::track_of(index, shared.config.workers));
        let (remote, leases) = (shared.remotes[index].clone(), Stock::new(shared.clone()));
        Self {
            shared,
            index,
            remote,
            core: RefCell::new(core),
            leases,
            recorder,
            lifo_hits: Cell::new(0),
            ticks_since_clock_check: Cell::new(0),
        }
    }

    /// Whether this is a worker of that runtime.
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

    #[inline]
    pub(crate) fn cells(&self) -> &WorkerCells {
        &self.remote.cells
    }

    /// What a spare is on duty with.
    pub(crate) fn into_core(self) -> Core {
        self.core.into_inner()
    }

    fn start_cells(&self) {
        let (cells, mut core) = (self.cells(), self.core.borrow_mut());
        // The core was made before its thread was started: the time in between is not the worker's.
        core.now_ns = clock::now_ns();
        cells.thread_id.set(thread_id());
        cells.avg_poll_ns.set(core.tuner.avg_ns());
        cells.global_queue_interval.set(u64::from(core.tuner.interval()));
        cells.renew_budget(self.shared.config.budget_per_tick);
        cells.enter_phase(Phase::Maintenance, core.now_ns);
    }

    /// One turn of the loop.
    fn turn(&self) {
        let mut tick = self.begin_tick();
        let is_idle = loop {
            if !tick.has_budget(self.cells()) {
                self.recorder.note(|| self.core.borrow().now_ns, || Event::BudgetExhausted);
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
            self.core.borrow_mut().now_ns = now_ns;
        }
        self.poll_driver_if_due(config.driver_interval_ns);
        let driver_interval_ns = config.driver_interval_ns.saturating_mul(DRIVER_INTERVALS_IN_TICK);
        Tick { budget_left: config.budget_per_tick, driver_interval_ns, busy_ns: 0, last: None }
    }

    /// One poll out of the tick's budget, and a poll of the driver if it is time.
    fn poll_in(&self, tick: &mut Tick, task: Notified) {
        let cells = self.cells();
        tick.budget_left -= 1;
        tick.count_last(cells);
        self.poll(cells, task, tick);
        self.poll_driver_if_due(tick.driver_interval_ns);
    }

    /// Feeds the tuner, and begins to count anew.
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

    /// Polls `task` once, the only place that does.
    ///
    /// Not inlined, so that the stack of a stuck poll can be cut here.
    #[inline(never)]
    pub(super) fn poll(&self, cells: &WorkerCells, task: Notified, tick: &mut Tick) {
        let began_at_ns = self.core.borrow().now_ns;
        let location = cells.begin_poll(task.header(), began_at_ns);
        let is_recorded = self.recorder.is_on();
        if is_recorded {
            self.note_poll_begin(task.header(), began_at_ns);
        }
        coop::begin_poll(self.shared.config.coop_budget);
        let ran = task.run(began_at_ns);
        let has_yielded = coop::end_poll();
        if has_yielded {
            cells.coop_yields.add(1);
        }
        let mut now_ns = ran.at_ns().unwrap_or_else(|| counting::now_ns_after(began_at_ns));
        let took_ns = now_ns.saturating_sub(began_at_ns);
        if is_recorded {
            self.note_poll_end(location, &ran, has_yielded, now_ns, took_ns);
        }
        cells.end_poll();
        tick.busy_ns += took_ns;
        tick.last =
            Some(Polled { location, took_ns, has_woken_itself: matches!(ran, Ran::Woken { by_itself: true, .. }) });
        if took_ns >= LONG_NS {
            tick.count_last(cells);
            cells.note_long(location, took_ns);
            now_ns = self.end_long_poll(now_ns);
        }
        let mut core = self.core.borrow_mut();
        core.now_ns = now_ns;
        match ran {
            Ran::Pending { .. } => {}
            // The yield road: behind what is there already.
            Ran::Woken { task, by_itself, .. } => {
                if by_itself {
                    task.header().stamp_own_wake(now_ns);
                } else {
                    task.header().stamp_wake_in_poll(now_ns);
                }
                self.push_back(&mut core, task);
                self.wake_for_surplus(&core, 1);
            }
            Ran::Ended(ended) => cells.count_end(ended),
        }
    }

    /// The sentinel may have declared this worker away. It declares nobody away for less; where it
    /// was late, `begin_tick` finds out. Returns when the worker goes on.
    #[cold]
    fn end_long_poll(&self, now_ns: u64) -> u64 {
        self.core.borrow_mut().now_ns = now_ns;
        self.ensure_present();
        self.core.borrow().now_ns
    }

    // ---- taking work in -------------------------------------------------------------------------

    /// Takes a task that was woken on this thread, or lets others have it.
    #[inline]
    pub(crate) fn take_woken(&self, task: Notified) {
        if self.recorder.is_on() {
            self.note(task.header().submitted_at_ns(), wake_of(task.header()));
        }
        if let Some(task) = self.push_woken(task) {
            self.shared.inject(task);
        }
    }

    /// Takes a task that was woken on this thread, or hands it back if the worker is in the middle
    /// of its own queues.
    ///
    /// One that is declared away hands it back too: others are to run what a stuck poll wakes.
    pub(crate) fn push_woken(&self, task: Notified) -> Option<Notified> {
        if !self.shared.staff.is_present(self.index) {
            return Some(task);
        }
        let Ok(mut core) = self.core.try_borrow_mut() else { return Some(task) };
        let core = &mut *core;
        let evicted = match core.road {
            Road::Lifo if self.has_come_to_cap(core) => {
                self.cells().lifo_cap_flushes.add(1);
                Some(task)
            }
            // At the cap too, with nothing in the ring: there it would have to be told to a helper,
            // since this poll may go on for long.
            Road::Lifo if self.shared.config.max_lifo_polls_per_tick > 0 => {
                let evicted = self.remote.lifo.put(task);
                if evicted.is_some() {
                    self.cells().lifo_evictions.add(1);
                }
                evicted
            }
            _ => Some(task),
        };
        // A push into an empty LIFO slot wakes nobody: this worker runs it next.
        if let Some(task) = evicted {
            match &mut core.road {
                Road::Lifo => {
                    self.push_back(core, task);
                    self.wake_for_surplus(core, 1);
                }
                Road::Ring { pushed } => {
                    *pushed += 1;
                    self.push_back(core, task);
                }
            }
        }
        None
    }

    /// Whether what is put into the LIFO slot now would be flushed to the ring's tail, behind
    /// others: it goes there at once.
    #[inline]
    fn has_come_to_cap(&self, core: &Core) -> bool {
        let cap = self.shared.config.max_lifo_polls_per_tick;
        (1..=core.lifo_polls).contains(&cap) && !self.remote.lifo.is_filled() && core.ring.len() > 0
    }

    /// To the ring's tail.
    #[inline]
    fn push_back(&self, core: &mut Core, task: Notified) {
        if let Err(task) = core.ring.push(task) {
            self.overflow(core, task);
        }
    }

    /// A full ring gives half of itself to the global queue, under one lock and with one wake-up.
    #[cold]
    fn overflow(&self, core: &mut Core, task: Notified) {
        self.cells().overflows.add(1);
        let now_ns = clock::now_ns();
        // The poll that follows, if this is between two, begins after this.
        core.now_ns = now_ns;
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
        // One for the batch: whoever comes takes a share of it, and wakes the next.
        self.count_wakes(usize::from(self.shared.wake_for_submit()));
    }

    /// Wakes parked workers if there is work here that this worker will not run next, surplus: one
    /// for each of the tasks that were `pushed` to the ring, at most.
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
        // Asked last: where workers steal, as by default, nobody is parked while there is much to
        // push.
        if !self.shared.config.enable_stealing {
            return;
        }
        self.count_wakes(self.shared.wake_for_batch(tasks));
    }

    fn count_wakes(&self, woken: usize) {
        self.cells().wakes_sent.add(woken as u64);
    }
}

/// One tick of a worker: what it may still do, and what it has done.
pub(super) struct Tick {
    /// Polls.
    budget_left: u32,
    /// How long after the last poll of the driver the next is due between two polls.
    driver_interval_ns: u64,
    /// Time spent in polls.
    busy_ns: u64,
    /// The last poll, if it is not counted yet. It is counted before the next one begins: by then
    /// the clock's reading, which all of that hangs on, has come, and the locked instruction
    /// that takes the next task out of its queue has not waited for it.
    last: Option<Polled>,
}

impl Tick {
    #[inline]
    fn count_last(&mut self, cells: &WorkerCells) {
        if let Some(polled) = self.last.take() {
            cells.count_poll(polled);
        }
    }

    /// Whether one poll more may be done; if not, it is counted.
    #[inline]
    fn has_budget(&self, cells: &WorkerCells) -> bool {
        let is_spent = self.budget_left == 0;
        if is_spent {
            cells.budget_exhausted.add(1);
        }
        !is_spent
    }
}

/// The kernel's id of this thread, where it has one to tell.
fn thread_id() -> u64 {
    #[cfg(target_os = "linux")]
    return u64::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0);
    #[cfg(not(target_os = "linux"))]
    return 0;
}

#[cfg(test)]
mod tests;
