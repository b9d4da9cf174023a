//! One worker: its loop, where it finds tasks, and how it sleeps.
//!
//! One turn: look after timers and I/O if nobody did for a while; then up to `budget_per_tick` times find a task and poll it once;
//! then feed the tuner. Nothing found: park. Between two polls timers and I/O are also looked after once a millisecond has passed, so
//! that 128 slow polls stop no clock (the source, and a plain tick budget, would let 128 polls of 1 ms do so).
//!
//! `next_task`, in this order:
//! 1. batch buffer: fetched from the global queue, so it waited longest; what others placed in the inbox is moved to the ring, and if the ring
//!    is full, half of that to the global queue first: tasks that yield may keep it full for ever;
//! 2. global queue, if due; not before one local poll, if the last look brought something: else local work would starve behind slow polls
//!    and a global queue that is never empty;
//! 3. LIFO slot, up to its cap; at the cap the slot is flushed to the ring's tail, where its turn comes and thieves see it. A new tick renews
//!    the count if the ring had its turn in the last one;
//! 4. ring, first in, first out;
//! 5. steal: from a random start, every victim once, half its ring, else half its batch, else half its inbox; LIFO slots only on a last pass, and
//!    only from an owner whose present poll is long: always taking them costs throughput, never taking them strands a task behind a long poll;
//! 6. global queue;
//! 7. park.
//!
//! Who writes: the worker's own thread. The protocol by which no wake-up is lost stands in `idle`; its steps are named here where they are taken.
//!
//! A turn and a park are cut into steps, each a method. The thread takes them in the order in which `turn` and `park` call them; the
//! simulation (`sim`) takes the same steps of many workers one by one, in any order in which threads could.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use volt_telemetry::Phase;

use super::core::{Core, Road};
use super::shared::Shared;
use crate::clock;
use crate::context;
use crate::coop;
use crate::driver::parker::{Parker, Slept};
use crate::driver::{Polled, Turn, Wait};
use crate::handle::Handle;
use crate::queue::ring::Steal;
use crate::stats::cells::{WakeReason, WorkerCells};
use crate::task::contain::contain;
use crate::task::header::{Notified, Ran};

#[cfg(test)]
#[path = "sim.rs"]
pub(crate) mod sim;

/// How long a worker whose look at the I/O driver failed waits before it goes on.
const DRIVER_ERROR_PAUSE: Duration = Duration::from_millis(10);

/// See the header of this file.
pub(crate) struct Worker {
    shared: Arc<Shared>,
    index: usize,
    core: RefCell<Core>,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, index: usize, core: Core) -> Self {
        Self { shared, index, core: RefCell::new(core) }
    }

    /// Whether this is a worker of that runtime.
    #[inline]
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    fn parker(&self) -> &Parker {
        &self.shared.remotes[self.index].parker
    }

    #[inline]
    pub(crate) fn cells(&self) -> &WorkerCells {
        &self.shared.remotes[self.index].cells
    }

    /// The thread of this worker, until the runtime is shut down and nothing is left.
    pub(crate) fn run(self) {
        /// Says that the worker has ended, whatever ended it.
        struct Ended<'a>(&'a Worker);
        impl Drop for Ended<'_> {
            fn drop(&mut self) {
                self.0.cells().stop(clock::now_ns());
                self.0.shared.worker_ended();
            }
        }
        let handle = Handle::new(self.shared.clone());
        self.start_cells();
        let _ended = Ended(&self);
        context::run_as_worker(&handle, &self, || {
            while !self.shared.is_done() {
                self.turn();
            }
        });
    }

    fn start_cells(&self) {
        let (cells, core) = (self.cells(), self.core.borrow());
        cells.thread_id.set(thread_id());
        cells.avg_poll_ns.set(core.tuner.avg_ns());
        cells.global_queue_interval.set(u64::from(core.tuner.interval()));
        cells.budget_left.set(u64::from(self.shared.config.budget_per_tick));
        cells.enter_phase(Phase::Maintenance, clock::now_ns());
    }

    /// One turn of the loop.
    fn turn(&self) {
        let mut tick = self.begin_tick();
        let is_idle = loop {
            if !tick.has_budget(self.cells()) {
                break false;
            }
            let Some(task) = self.next_task() else { break true };
            self.poll_in(&mut tick, task);
        };
        self.end_tick(&tick);
        if is_idle {
            self.park();
        }
    }

    fn begin_tick(&self) -> Tick {
        let config = &self.shared.config;
        self.cells().ticks.add(1);
        self.tend_driver(config.driver_interval_ns);
        Tick { budget_left: config.budget_per_tick, busy_ns: 0 }
    }

    /// One poll out of the tick's budget, and a look at the driver if it is time.
    fn poll_in(&self, tick: &mut Tick, task: Notified) {
        tick.budget_left -= 1;
        self.cells().budget_left.set(u64::from(tick.budget_left));
        tick.busy_ns += self.poll(task);
        self.tend_driver(self.shared.config.target_global_queue_latency_ns);
    }

    /// Feeds the tuner, and begins to count anew.
    fn end_tick(&self, tick: &Tick) {
        let (config, cells) = (&self.shared.config, self.cells());
        let mut core = self.core.borrow_mut();
        core.tuner.record(config.budget_per_tick - tick.budget_left, tick.busy_ns);
        core.renew_lifo_polls();
        cells.avg_poll_ns.set(core.tuner.avg_ns());
        cells.global_queue_interval.set(u64::from(core.tuner.interval()));
        cells.lifo_polls_this_tick.set(u64::from(core.lifo_polls));
        cells.budget_left.set(u64::from(config.budget_per_tick));
    }

    /// Polls `task` once, the only place that does. Returns how long it took, ns.
    fn poll(&self, task: Notified) -> u64 {
        let cells = self.cells();
        let began_at_ns = self.core.borrow().now_ns;
        cells.begin_poll(task.header(), began_at_ns);
        coop::begin_poll(self.shared.config.coop_budget);
        let ran = task.run();
        if coop::end_poll() {
            cells.coop_yields.add(1);
        }
        let now_ns = clock::now_ns();
        let took_ns = now_ns.saturating_sub(began_at_ns);
        cells.end_poll(took_ns);
        self.core.borrow_mut().now_ns = now_ns;
        match ran {
            Ran::Pending => {}
            // The yield road: behind what is there already.
            Ran::Woken(task) => {
                task.header().stamp_submission(now_ns);
                self.push_to_ring(task);
            }
            Ran::Ended(ended) => cells.count_end(ended),
        }
        took_ns
    }

    // ---- finding work -------------------------------------------------------------------------------------------------

    /// See the header of this file.
    fn next_task(&self) -> Option<Notified> {
        let mut core = self.core.borrow_mut();
        let core = &mut *core;
        let task = match self.local_task(core) {
            Some(task) => Some(task),
            None => {
                let task = self.search(core);
                core.now_ns = clock::now_ns();
                task
            }
        };
        if task.is_some() {
            self.leave_search(core);
            if std::mem::take(&mut core.has_slept) {
                // Rouse (1) was the retract.
                self.shared.sentinel.rouse(&self.shared);
            }
            self.cells().ensure_phase(Phase::Busy, core.now_ns);
        }
        task
    }

    /// 1 to 4.
    fn local_task(&self, core: &mut Core) -> Option<Notified> {
        let (config, cells) = (&self.shared.config, self.cells());
        // 1. batch buffer
        if let Some(task) = core.batch.pop() {
            return Some(task);
        }
        self.empty_inbox(core);
        core.polls_since_look += 1;
        // 2. global queue, if due
        if core.is_global_due(config) {
            let task = self.fetch(core);
            core.note_look(task.is_some());
            if task.is_some() {
                return task;
            }
        }
        // 3. LIFO slot
        let lifo = &self.shared.remotes[self.index].lifo;
        if core.lifo_polls < config.max_lifo_polls_per_tick {
            if let Some(task) = lifo.take() {
                core.lifo_polls += 1;
                cells.lifo_hits.add(1);
                cells.lifo_polls_this_tick.set(u64::from(core.lifo_polls));
                return Some(task);
            }
        } else if let Some(task) = lifo.take() {
            cells.lifo_cap_flushes.add(1);
            self.push_back(core, task);
        }
        // 4. ring
        core.has_come_to_ring = true;
        core.ring.pop()
    }

    /// Moves what was placed here to the ring's tail. One load when there is nothing.
    fn empty_inbox(&self, core: &mut Core) {
        let inbox = &self.shared.remotes[self.index].inbox;
        if inbox.len() == 0 {
            return;
        }
        if core.ring.free() == 0 {
            // Tasks that yield may keep the ring full for ever.
            let mut oldest = None;
            inbox.pop_batch(1, |task| oldest = Some(task));
            if let Some(task) = oldest {
                self.push_back(core, task);
            }
        }
        let ring = &mut core.ring;
        let moved = inbox.pop_batch(ring.free(), |task| {
            let pushed = ring.push(task);
            debug_assert!(pushed.is_ok(), "never more than fits");
        });
        if moved > 1 && !core.is_searching {
            self.wake_for_surplus(core);
        }
    }

    /// 5 and 6.
    fn search(&self, core: &mut Core) -> Option<Notified> {
        let (config, cells) = (&self.shared.config, self.cells());
        cells.ensure_phase(Phase::Searching, core.now_ns);
        // 5. steal
        if config.enable_stealing && self.shared.remotes.len() > 1 {
            core.is_searching = core.is_searching || self.shared.idle.try_start_searching();
            if core.is_searching
                && let Some(task) = self.steal(core)
            {
                return Some(task);
            }
        }
        // 6. global queue
        let task = self.fetch(core);
        core.note_look(task.is_some());
        task
    }

    /// A batch from the global queue: its first task, the others into the batch buffer.
    fn fetch(&self, core: &mut Core) -> Option<Notified> {
        let (shared, cells) = (&self.shared, self.cells());
        let waiting = shared.injector.len();
        if waiting == 0 {
            return None;
        }
        let share = waiting / shared.remotes.len();
        let fair = share.clamp(shared.config.min_global_queue_batch, shared.config.max_global_queue_batch);
        // The first goes to the caller; the buffer must hold the rest.
        let max = fair.min(core.batch.free() + 1);
        let mut first = None;
        let batch = &mut core.batch;
        let taken = shared.injector.pop_batch(max, |task| match &first {
            None => first = Some(task),
            Some(_) => {
                let pushed = batch.push(task);
                debug_assert!(pushed.is_ok(), "never more than fits");
            }
        });
        cells.global_looks.add(1);
        cells.global_batches.add(u64::from(taken > 0));
        cells.global_tasks.add(taken as u64);
        if taken > 1 && !core.is_searching {
            // More than this worker runs next. A searcher wakes the next one when it leaves the searchers.
            self.count_wake(shared.wake_for_submit());
        }
        first
    }

    /// Half of somebody's ring, or batch; on a last pass the LIFO slot of somebody who is stuck in a long poll.
    fn steal(&self, core: &mut Core) -> Option<Notified> {
        let (shared, cells) = (&self.shared, self.cells());
        let count = shared.remotes.len();
        let start = core.rng.below(count);
        let victims = || (start..count).chain(0..start).filter(|victim| *victim != self.index);
        for victim in victims() {
            let remote = &shared.remotes[victim];
            cells.steal_attempts.add(1);
            for queue in [&remote.ring, &remote.batch] {
                match queue.steal_into(&mut core.ring) {
                    Steal::Empty => {}
                    Steal::Lost => cells.steal_races_lost.add(1),
                    Steal::Taken { next, count } => {
                        self.count_steal(victim, count);
                        return Some(next);
                    }
                }
            }
            if let Some(task) = self.steal_from_inbox(core, victim) {
                return Some(task);
            }
        }
        let now_ns = clock::now_ns();
        for victim in victims() {
            let remote = &shared.remotes[victim];
            let is_stuck = || remote.cells.poll_for_ns(now_ns) >= Some(shared.config.lifo_steal_after_ns);
            if remote.lifo.is_filled()
                && is_stuck()
                && let Some(task) = remote.lifo.take()
            {
                self.count_steal(victim, 1);
                return Some(task);
            }
        }
        None
    }

    /// Half of what was placed at a worker that has not come to it.
    fn steal_from_inbox(&self, core: &mut Core, victim: usize) -> Option<Notified> {
        let inbox = &self.shared.remotes[victim].inbox;
        let half = inbox.len().div_ceil(2).min(core.ring.free());
        if half == 0 {
            return None;
        }
        let (mut first, ring) = (None, &mut core.ring);
        let taken = inbox.pop_batch(half, |task| match &first {
            None => first = Some(task),
            Some(_) => {
                let pushed = ring.push(task);
                debug_assert!(pushed.is_ok(), "never more than fits");
            }
        });
        if taken > 0 {
            self.count_steal(victim, taken);
        }
        first
    }

    fn count_steal(&self, victim: usize, tasks: usize) {
        self.cells().steals.add(1);
        self.cells().tasks_stolen.add(tasks as u64);
        // ORDERING: Relaxed; only counted.
        self.shared.remotes[victim].tasks_given.fetch_add(tasks as u64, Ordering::Relaxed);
    }

    /// Search: leaves the searchers, before the task that was found is run.
    fn leave_search(&self, core: &mut Core) {
        if std::mem::take(&mut core.is_searching)
            && self.shared.idle.stop_searching()
            && self.shared.has_work_for(self.index)
        {
            self.count_wake(self.shared.wake_one());
        }
    }

    fn count_wake(&self, has_woken: bool) {
        self.cells().wakes_sent.add(u64::from(has_woken));
    }

    // ---- taking work in -----------------------------------------------------------------------------------------------

    /// Takes a task that was woken on this thread, or hands it back if the worker is in the middle of its own queues.
    pub(crate) fn push_woken(&self, task: Notified) -> Option<Notified> {
        let Ok(mut core) = self.core.try_borrow_mut() else { return Some(task) };
        let core = &mut *core;
        let evicted = match core.road {
            Road::Lifo if self.shared.config.max_lifo_polls_per_tick > 0 => {
                let evicted = self.shared.remotes[self.index].lifo.put(task);
                self.cells().lifo_evictions.add(u64::from(evicted.is_some()));
                evicted
            }
            _ => Some(task),
        };
        // A push into an empty LIFO slot wakes nobody: this worker runs it next.
        if let Some(task) = evicted {
            self.push_back(core, task);
            if core.road == Road::Lifo {
                self.wake_for_surplus(core);
            }
        }
        None
    }

    fn push_to_ring(&self, task: Notified) {
        let mut core = self.core.borrow_mut();
        self.push_back(&mut core, task);
        self.wake_for_surplus(&core);
    }

    /// To the ring's tail. A full ring gives half of itself to the global queue, under one lock and with one wake-up.
    fn push_back(&self, core: &mut Core, task: Notified) {
        let Err(task) = core.ring.push(task) else { return };
        self.cells().overflows.add(1);
        let now_ns = clock::now_ns();
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
        self.count_wake(self.shared.wake_for_submit());
    }

    /// Wakes somebody if there is work here that this worker will not run next.
    fn wake_for_surplus(&self, core: &Core) {
        let queued = core.ring.len() + usize::from(self.shared.remotes[self.index].lifo.is_filled());
        if queued > 1 && self.shared.config.enable_stealing {
            self.count_wake(self.shared.wake_for_submit());
        }
    }

    // ---- timers and I/O -----------------------------------------------------------------------------------------------

    /// Fires due timers and takes I/O events, if nobody did for `interval_ns`. Whoever comes by does it, so that no one worker owns the clock;
    /// if all that are awake are stuck, the sentinel wakes one that is not.
    fn tend_driver(&self, interval_ns: u64) {
        let mut core = self.core.borrow_mut();
        let is_recent = core.now_ns.saturating_sub(self.shared.driver.last_turn_ns()) < interval_ns;
        if is_recent || self.shared.driver.owner().is_some() {
            return;
        }
        let Some(mut turn) = self.shared.driver.try_turn(self.index) else { return };
        self.cells().enter_phase(Phase::Maintenance, core.now_ns);
        let polled = turn.poll(Wait::No, &mut core.wakers);
        drop(turn);
        core.now_ns = clock::now_ns();
        self.cells().enter_phase(Phase::Busy, core.now_ns);
        drop(core);
        self.report(&polled);
        self.wake_collected();
    }

    /// An I/O backend that fails is told and paced, so that it is not spun on.
    fn report(&self, polled: &std::io::Result<Polled>) {
        if let Err(error) = polled {
            tracing::error!(runtime = %self.shared.name, %error, "the I/O driver failed to wait for events");
            std::thread::sleep(DRIVER_ERROR_PAUSE);
        }
    }

    /// Wakes what the driver has collected: to the ring, and then one worker for all of it; that one wakes the next.
    fn wake_collected(&self) {
        let mut wakers = {
            let mut core = self.core.borrow_mut();
            if core.wakers.is_empty() {
                return;
            }
            core.road = Road::Ring;
            std::mem::take(&mut core.wakers)
        };
        for waker in wakers.drain(..) {
            // A foreign waker that panics must not take the worker along.
            contain(|| waker.wake());
        }
        let mut core = self.core.borrow_mut();
        // What waking a crowd took is nobody's poll, and nobody's wait.
        core.now_ns = clock::now_ns();
        core.road = Road::Lifo;
        core.wakers = wakers;
        self.wake_for_surplus(&core);
    }

    // ---- sleeping -----------------------------------------------------------------------------------------------------

    /// 7. Sleeps until woken, unless something came up meanwhile.
    fn park(&self) {
        self.begin_park();
        if self.is_needed() {
            let is_claimed = self.retract();
            self.stay_up(is_claimed);
            return;
        }
        let bed = self.lie_down();
        let slept = self.sleep(bed);
        let is_claimed = self.retract();
        self.get_up(&slept, is_claimed);
    }

    /// Park (1), Park (2).
    fn begin_park(&self) {
        let was_searching = std::mem::take(&mut self.core.borrow_mut().is_searching);
        self.shared.idle.begin_park(self.index, was_searching);
    }

    /// Retract. Returns whether somebody has claimed this worker: then a token comes.
    fn retract(&self) -> bool {
        !self.shared.idle.retract(self.index)
    }

    /// After a hit in Park (3): on as a searcher, with stealing off too. There may be more than this worker takes, from submitters that relied
    /// on it before it left the searchers: the chain is for them.
    fn stay_up(&self, is_claimed: bool) {
        if is_claimed {
            self.parker().wait_token();
        } else {
            self.shared.idle.start_searching();
        }
        let mut core = self.core.borrow_mut();
        core.is_searching = true;
        core.has_slept = true;
    }

    /// After a sleep: takes the token if one was promised, and wakes what the driver has collected.
    fn get_up(&self, slept: &SleptBy, is_claimed: bool) {
        let cells = self.cells();
        let mut core = self.core.borrow_mut();
        core.now_ns = clock::now_ns();
        core.has_slept = true;
        let reason = if is_claimed {
            self.parker().wait_token();
            core.is_searching = true;
            WakeReason::Notified
        } else {
            // Nobody has claimed me. A token may be there all the same only if a claimer of an earlier sleep was late, which ONE-TOKEN excludes.
            let had_token = self.parker().take_token();
            debug_assert!(!had_token, "ONE-TOKEN: a token without a claim");
            slept.reason()
        };
        cells.count_unpark(reason);
        cells.enter_phase(Phase::Searching, core.now_ns);
        self.back_off(&mut core, reason);
        drop(core);
        self.wake_collected();
    }

    /// The look of Park (3) into everything that may have been published before the bit was seen.
    ///
    /// Timers are not in it: whoever gets the driver turn sleeps until the next one, at most, and if somebody else has the turn it is that
    /// one's. A look at the clock here would make every worker that wants to park spin from the moment a timer is due until the kernel has
    /// woken the one that sleeps for it.
    fn is_needed(&self) -> bool {
        let shared = &self.shared;
        shared.has_work_for(self.index) || !shared.injector.is_empty_locked() || shared.is_done()
    }

    /// In the I/O driver if nobody else is there, else on the futex.
    fn lie_down(&self) -> Bed<'_> {
        let (shared, cells) = (&self.shared, self.cells());
        cells.parks.add(1);
        let timeout = self.core.borrow().park_timeout;
        if let Some(turn) = shared.driver.try_turn(self.index) {
            cells.enter_phase(Phase::Driver, clock::now_ns());
            return if self.parker().begin_driver() { Bed::Driver { turn, timeout } } else { Bed::Token };
        }
        cells.enter_phase(Phase::Parked, clock::now_ns());
        // Only the worker in the driver keeps a time-out for good: one net is enough, and the others sleep undisturbed.
        Bed::Futex { timeout: timeout.filter(|timeout| *timeout < shared.config.max_park_timeout) }
    }

    /// Wakes of sockets and timers are collected, not yet made.
    fn sleep(&self, bed: Bed<'_>) -> SleptBy {
        match bed {
            Bed::Driver { turn, timeout } => self.turn_driver(turn, Wait::UntilTimer { at_most: timeout }),
            Bed::Futex { timeout } => SleptBy::Futex(self.parker().sleep(timeout)),
            Bed::Token => SleptBy::Futex(Slept::Woken),
        }
    }

    fn turn_driver(&self, mut turn: Turn<'_>, wait: Wait) -> SleptBy {
        let polled = turn.poll(wait, &mut self.core.borrow_mut().wakers);
        drop(turn);
        self.report(&polled);
        SleptBy::Driver(polled.unwrap_or_default())
    }

    /// A time-out that found nothing doubles the next one; one that found work has caught a fault of the protocol, and counts it.
    fn back_off(&self, core: &mut Core, reason: WakeReason) {
        let config = &self.shared.config;
        if reason != WakeReason::Timeout {
            core.park_timeout = config.park_timeout;
            return;
        }
        let slept = core.park_timeout.unwrap_or_default();
        core.park_timeout = core.park_timeout.map(|timeout| (timeout * 2).min(config.max_park_timeout));
        // Waiting for as long as I slept, and nobody on the way to it: a wake-up was lost.
        let waited_ns = self.shared.injector.oldest_at_ns().map_or(0, |at_ns| core.now_ns.saturating_sub(at_ns));
        if waited_ns >= clock::saturating_ns(slept) && self.shared.idle.searching() == 0 {
            self.cells().lost_wakeup_rescues.add(1);
        }
    }
}

/// One tick of a worker: what it may still do, and what it has done.
struct Tick {
    /// Polls.
    budget_left: u32,
    /// Time spent in polls.
    busy_ns: u64,
}

impl Tick {
    /// Whether one poll more may be done; if not, it is counted.
    fn has_budget(&self, cells: &WorkerCells) -> bool {
        let is_spent = self.budget_left == 0;
        cells.budget_exhausted.add(u64::from(is_spent));
        !is_spent
    }
}

/// What a worker is about to sleep on.
enum Bed<'a> {
    /// The driver, until a timer is due, for `timeout` at most.
    Driver {
        turn: Turn<'a>,
        timeout: Option<Duration>,
    },
    Futex {
        timeout: Option<Duration>,
    },
    /// Nothing: a token is already there.
    Token,
}

/// What a sleep ended with, unless it was a claim.
enum SleptBy {
    Driver(Polled),
    Futex(Slept),
}

impl SleptBy {
    fn reason(&self) -> WakeReason {
        match self {
            SleptBy::Driver(polled) if polled.events > 0 => WakeReason::Io,
            SleptBy::Driver(polled) if polled.timers_fired > 0 || polled.was_rearmed => WakeReason::Timer,
            SleptBy::Driver(polled) if polled.timed_out => WakeReason::Timeout,
            SleptBy::Futex(Slept::TimedOut) => WakeReason::Timeout,
            _ => WakeReason::Spurious,
        }
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
mod tests {
    use super::*;

    #[test]
    fn reasons_are_told_apart() {
        let polled = |polled| SleptBy::Driver(polled).reason();
        let nothing = Polled::default();
        assert_eq!(polled(Polled { events: 1, timers_fired: 1, ..nothing }), WakeReason::Io);
        assert_eq!(polled(Polled { timers_fired: 1, ..nothing }), WakeReason::Timer);
        assert_eq!(polled(Polled { was_unparked: true, was_rearmed: true, ..nothing }), WakeReason::Timer);
        assert_eq!(polled(Polled { timed_out: true, ..nothing }), WakeReason::Timeout);
        assert_eq!(
            polled(Polled { was_unparked: true, ..nothing }),
            WakeReason::Spurious,
            "a token of an earlier sleep"
        );
        assert_eq!(SleptBy::Futex(Slept::TimedOut).reason(), WakeReason::Timeout);
        assert_eq!(SleptBy::Futex(Slept::Woken).reason(), WakeReason::Spurious);
    }
}
