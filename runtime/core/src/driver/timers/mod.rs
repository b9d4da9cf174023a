//! The timers of a runtime: one timer wheel behind one lock, with the next deadline readable by a
//! load.
//!
//! `time::sleep` and everything built on it arms its timer here. Workers fire the timers that are
//! due: each worker between its polls, and the thread that sleeps in the driver when it wakes up. A
//! *deadline* is in ns of the program's clock. The wheel counts in *ticks* of 160 µs. A timer fires
//! at the first tick boundary at or after its deadline. So it never fires early, and less than one
//! tick late, apart from delays of the system. On a test clock a tick is one nanosecond, since a
//! test that advances the clock to a deadline expects the timer to fire.
//!
//! An ordinary case. A worker enters the driver when the next deadline is in 5 ms, and sleeps for
//! at most 5 ms. A task on another worker arms a timer for 1 ms from now. That is before the end of
//! the sleep, so the task's worker unparks the driver, and the sleeper computes a new end.
//!
//! The race. A timer may be armed after the sleeper has read the earliest deadline and before it
//! sleeps in the kernel. The protocol below makes sure that the sleeper does not sleep past it.
//!
//! Threads that arm, move, disarm or fire timers write, under the lock. Parking workers
//! (`next_deadline_ns`), sleep futures (`fired_through_ns`) and telemetry read without it.
//!
//! Invariants:
//! * *Unlocked wakers*: no waker is called, cloned or dropped under the lock, since each of the
//!   three may run user code that arms or drops a timer.
//! * *Published*: at each unlock, `next_deadline_ns` is not later than the earliest deadline. After
//!   timers were disarmed it may be earlier; the `fire` that finds it due corrects it.
//! * *Short holds*: at most `FIRE_BATCH` timers are processed per hold of the lock. A thread with
//!   more to do first lets the threads that wait for the lock have it.
//!
//! Protocol between a thread that arms a timer (the armer) and the one sleeper (the thread in the
//! driver), both under the lock:
//! * Sleeper: (1) read the earliest deadline; (2) store until when it will sleep, the *limit*; (3)
//!   unlock and sleep.
//! * Armer: (1) insert the deadline; (2) if it is before the limit, clear the limit; (3) unlock
//!   and, if the limit was cleared, unpark the driver.
//!
//! The thread that gets the lock second sees what the first one did. So the sleeper either sees a
//! deadline itself or is unparked because of it. Of many deadlines before the limit, only the first
//! unparks it.
//!
//! Rejected:
//! * One wheel per worker: a timer that is armed on one worker and dropped on another then needs
//!   both locks; measure first.
//! * The waker inside the timer's future, under its own lock: a second lock for each timer that
//!   fires.

use std::task::Waker;
use std::thread;
use std::time::Duration;

use volt_shim::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Mutex, MutexGuard, Ordering};
use volt_stacks::fork::Home;

use crate::driver::wheel::{Key, Wheel};

/// Length of a tick, ns: the resolution of timers. Shorter ticks cost more cascades and wake-ups,
/// longer ones make timers late. The median lateness of 10,000 random sleeps was 590 µs with ticks
/// of 1 ms, 133 µs with 197 µs and 97 µs with 131 µs. On a busy machine, the processor time per
/// sleep rises by 1.3 µs from the first to the second and by 0.5 µs from the second to the third.
const TICK_NS: u64 = 160_000;
/// Maximum number of timers that are fired, or moved to another slot of the wheel, per hold of the
/// lock. It bounds how long a thread that arms a timer waits while very many fire.
const FIRE_BATCH: usize = 256;
/// How many times a thread yields its processor, between two batches, to threads that wait for the
/// lock. A waiting thread needs some 50 µs to wake up, and would then find the lock taken again.
/// The number is bounded because a waiting thread may not get a processor.
const MAX_YIELDS: u32 = 64;
/// In `next_deadline_ns`: no timer is armed. As the limit of a sleep: none.
const NEVER: u64 = u64::MAX;
/// In `Shared::limit_ns`: no thread sleeps. No deadline is before it.
const NO_SLEEPER: u64 = 0;

/// All timers of a runtime.
#[derive(Debug)]
pub(crate) struct Timers {
    shared: Mutex<Shared>,
    /// Threads that found the lock taken and wait for it.
    waiting: AtomicU32,
    /// Length of a tick, ns.
    tick_ns: u64,
    /// The process whose threads take the lock. A forked child only drops its copies of timers.
    home: Home,
    published: CachePadded<Published>,
}

/// Values that are read by loads and written only under the lock.
#[derive(Debug)]
struct Published {
    /// The tick boundary at which the next timer fires, ns; `NEVER` if none is armed.
    next_deadline_ns: AtomicU64,
    /// Every timer whose tick is at or before this time was fired and removed from the wheel.
    fired_through_ns: AtomicU64,
    armed: AtomicU64,
    fired: AtomicU64,
    last_lag_ns: AtomicU64,
    is_shut_down: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    wheel: Wheel<Timer>,
    /// Until when the sleeper in the driver sleeps. `NO_SLEEPER` while no thread sleeps there, and
    /// after the sleeper was unparked to compute a new limit.
    limit_ns: u64,
    /// Whether an armer cleared the limit since the sleep began.
    was_rearmed: bool,
}

#[derive(Debug)]
struct Timer {
    deadline_ns: u64,
    waker: Waker,
}

/// The action that the caller has to take after arming or moving a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the worker that sleeps in the driver must be woken"]
pub(crate) enum Armed {
    /// Nothing.
    Quietly,
    /// Unpark the driver: its sleeper would sleep past the deadline.
    BeforeLimit,
}

/// The error of arming a timer after the runtime was shut down: its timers no longer fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsShutDown;

impl Timers {
    /// Creates an empty wheel that begins at `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self::with_ticks(TICK_NS, now_ns)
    }

    /// Same as [`new`](Self::new), but timers fire exactly at their deadlines instead of at the
    /// next tick. For a test clock.
    pub(crate) fn exact(now_ns: u64) -> Self {
        Self::with_ticks(1, now_ns)
    }

    fn with_ticks(tick_ns: u64, now_ns: u64) -> Self {
        let wheel = Wheel::new(now_ns / tick_ns);
        let published = Published {
            next_deadline_ns: AtomicU64::new(NEVER),
            fired_through_ns: AtomicU64::new(0),
            armed: AtomicU64::new(0),
            fired: AtomicU64::new(0),
            last_lag_ns: AtomicU64::new(0),
            is_shut_down: AtomicBool::new(false),
        };
        let shared = Shared { wheel, limit_ns: NO_SLEEPER, was_rearmed: false };
        let waiting = AtomicU32::new(0);
        let published = CachePadded(published);
        Self { shared: Mutex::new(shared), waiting, tick_ns, home: Home::here(), published }
    }

    /// Takes the lock, for a short hold. See *Short holds*.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.try_lock().unwrap_or_else(|| self.wait_for_lock())
    }

    /// Waits for the lock.
    ///
    /// # Panics
    /// Panics in a forked child, where the thread that has the lock may not exist.
    #[cold]
    fn wait_for_lock(&self) -> MutexGuard<'_, Shared> {
        self.home.expect_here();
        // ORDERING: Relaxed, both; a hint to the thread that holds the lock and is about to take it
        // again.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.lock();
        // ORDERING: Relaxed; as above.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        shared
    }

    /// Lets threads that wait for the lock go first, between two batches.
    fn let_others_go(&self) {
        for _ in 0..MAX_YIELDS {
            // ORDERING: Relaxed; as in `wait_for_lock`.
            if self.waiting.load(Ordering::Relaxed) == 0 {
                return;
            }
            thread::yield_now();
        }
    }

    /// Arms a timer that wakes `waker` at `deadline_ns`.
    pub(crate) fn arm(&self, deadline_ns: u64, waker: Waker) -> Result<(Key, Armed), IsShutDown> {
        let mut shared = self.lock();
        if self.is_shut_down() {
            drop(shared);
            return Err(IsShutDown);
        }
        let tick = self.tick_of(deadline_ns);
        let boundary_ns = self.boundary(tick);
        let key = shared.wheel.insert(tick, Timer { deadline_ns, waker });
        let armed = self.notify_sleeper(&mut shared, boundary_ns);
        self.publish_armed(&shared, boundary_ns);
        Ok((key, armed))
    }

    /// Moves a timer to another deadline; `None` if it has fired.
    pub(crate) fn reset(&self, key: Key, deadline_ns: u64) -> Option<Armed> {
        let mut shared = self.lock();
        shared.wheel.payload_mut(key)?.deadline_ns = deadline_ns;
        let tick = self.tick_of(deadline_ns);
        shared.wheel.reschedule(key, tick);
        let armed = self.notify_sleeper(&mut shared, self.boundary(tick));
        self.publish(&shared);
        Some(armed)
    }

    /// Replaces the waker of a timer. Returns false if the timer has fired.
    pub(crate) fn set_waker(&self, key: Key, waker: Waker) -> bool {
        let mut shared = self.lock();
        let former = match shared.wheel.payload_mut(key) {
            Some(timer) => Ok(std::mem::replace(&mut timer.waker, waker)),
            None => Err(waker),
        };
        // *Unlocked wakers*: the former waker is dropped after this.
        drop(shared);
        former.is_ok()
    }

    /// Removes a timer. Does nothing if it has fired.
    pub(crate) fn disarm(&self, key: Key) {
        let mut shared = match self.shared.try_lock() {
            Some(shared) => shared,
            None if self.home.is_here() => self.wait_for_lock(),
            // In a forked child, where no timer fires. Destructors call this, which must not panic.
            None => return,
        };
        let timer = shared.wheel.remove(key);
        if let Some(timer) = &timer {
            self.publish_disarmed(&shared, timer.deadline_ns);
        }
        // *Unlocked wakers*: the timer and its waker are dropped after this.
        drop(shared);
    }

    /// Returns whether a timer with this deadline has fired, without reading the wheel.
    ///
    /// A timer that was armed for, or moved to, a tick already fired through counts as fired,
    /// although only the next `fire` removes it. If its owner therefore leaves it in the wheel, the
    /// cost is one spurious wake-up.
    #[inline]
    pub(crate) fn has_fired(&self, deadline_ns: u64) -> bool {
        // ORDERING: Acquire; pairs with the Release in `fire`. A thread that reads a boundary at or
        // after the timer's tick can rely on the removal of the entry. A smaller, older value only
        // costs that thread the lock. The boundary of the timer's tick is not computed: the value
        // is a boundary, and no other one lies between a deadline and its own.
        deadline_ns <= self.published.fired_through_ns.load(Ordering::Acquire)
    }

    /// Returns when the next timer fires: ns of the program's clock, at a tick boundary; `u64::MAX`
    /// if no timer is armed.
    #[inline]
    pub(crate) fn next_deadline_ns(&self) -> u64 {
        // ORDERING: Acquire; pairs with the Release in `publish`. A parking worker that must not
        // miss a timer relies on the sleeper's protocol (see the header), not on this load.
        self.published.next_deadline_ns.load(Ordering::Acquire)
    }

    /// Returns whether `shut_down` was called.
    #[inline]
    pub(crate) fn is_shut_down(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `shut_down`. Under the lock, where it is
        // written, it is exact.
        self.published.is_shut_down.load(Ordering::Acquire)
    }

    /// Collects the wakers of all timers that are due at `now_ns`, and returns their number. Costs
    /// one load if none is due.
    pub(crate) fn fire(&self, now_ns: u64, into: &mut Vec<Waker>) -> usize {
        if self.next_deadline_ns() > now_ns {
            return 0;
        }
        let mut fired = 0;
        let mut worst_lag_ns = 0;
        let now = self.tick_before(now_ns);
        loop {
            // Not under the lock: with very many wakers, the list is sometimes moved to a larger
            // allocation.
            into.reserve(FIRE_BATCH);
            let mut shared = self.lock();
            let mut taken = 0;
            let mut work = FIRE_BATCH;
            while let Some(timer) = shared.wheel.pop_due(now, &mut work) {
                worst_lag_ns = worst_lag_ns.max(now_ns.saturating_sub(timer.deadline_ns));
                into.push(timer.waker);
                taken += 1;
            }
            fired += taken;
            let is_done = work > 0;
            if is_done && fired > 0 {
                // ORDERING: Relaxed; a single-writer cell (the lock is held) that only telemetry
                // reads. So are the two below.
                self.published.last_lag_ns.store(worst_lag_ns, Ordering::Relaxed);
            }
            if is_done {
                // ORDERING: Release; pairs with the Acquire in `has_fired`. Only if `is_done`: a
                // tick whose timers were fired only in part has not been fired through.
                let through_ns = now * self.tick_ns;
                self.published.fired_through_ns.fetch_max(through_ns, Ordering::Release);
            }
            // ORDERING: Relaxed; a single-writer cell, as above.
            let before = self.published.fired.load(Ordering::Relaxed);
            // ORDERING: Relaxed; a single-writer cell, as above.
            self.published.fired.store(before + taken as u64, Ordering::Relaxed);
            self.publish(&shared);
            drop(shared);
            if is_done {
                return fired;
            }
            self.let_others_go();
        }
    }

    /// Begins a sleep of the thread in the driver: until the next deadline, but at most for
    /// `at_most`.
    ///
    /// Returns the length of the sleep; `None`: until it is unparked.
    pub(crate) fn begin_sleep(&self, now_ns: u64, at_most: Option<Duration>) -> Option<Duration> {
        let mut shared = self.lock();
        let next_ns = shared.wheel.next_tick().map_or(NEVER, |tick| self.boundary(tick));
        let until_ns = at_most.map_or(NEVER, |at_most| now_ns.saturating_add(crate::clock::saturating_ns(at_most)));
        let limit_ns = next_ns.min(until_ns);
        shared.limit_ns = limit_ns;
        shared.was_rearmed = false;
        drop(shared);
        (limit_ns != NEVER).then(|| Duration::from_nanos(limit_ns.saturating_sub(now_ns)))
    }

    /// Ends the sleep. Returns whether a deadline before its limit was armed meanwhile.
    pub(crate) fn end_sleep(&self) -> bool {
        let mut shared = self.lock();
        shared.limit_ns = NO_SLEEPER;
        std::mem::take(&mut shared.was_rearmed)
    }

    /// Stops all timers and collects their wakers, so that each waiting task sees that its timer
    /// will never fire.
    pub(crate) fn shut_down(&self, into: &mut Vec<Waker>) {
        let mut shared = self.lock();
        // Keys of these timers name nothing in the wheel from now on, which stays empty.
        let timers = shared.wheel.take_payloads();
        // ORDERING: Release; pairs with the Acquire in `is_shut_down`.
        self.published.is_shut_down.store(true, Ordering::Release);
        self.publish(&shared);
        drop(shared);
        into.extend(timers.map(|timer| timer.waker));
    }

    /// Returns the figures for telemetry.
    pub(crate) fn telemetry(&self, now_ns: u64) -> volt_telemetry::Timers {
        let next_ns = self.next_deadline_ns();
        volt_telemetry::Timers {
            // ORDERING: Relaxed; single-writer cells, each exact by itself.
            armed: self.published.armed.load(Ordering::Relaxed),
            // ORDERING: Relaxed; as above.
            fired: self.published.fired.load(Ordering::Relaxed),
            // ORDERING: Relaxed; as above.
            last_lag_ns: self.published.last_lag_ns.load(Ordering::Relaxed),
            next_in_ns: (next_ns != NEVER).then(|| next_ns.saturating_sub(now_ns)),
        }
    }

    /// Returns the last tick that begins at or before `now_ns`. A division by a constant, except on
    /// a test clock.
    #[inline]
    fn tick_before(&self, now_ns: u64) -> u64 {
        if self.tick_ns == TICK_NS { now_ns / TICK_NS } else { now_ns / self.tick_ns }
    }

    /// Returns the tick at which a deadline fires: the first at or after it.
    #[inline]
    fn tick_of(&self, deadline_ns: u64) -> u64 {
        if self.tick_ns == TICK_NS { deadline_ns.div_ceil(TICK_NS) } else { deadline_ns.div_ceil(self.tick_ns) }
    }

    /// Returns the time at which a tick begins, ns.
    #[inline]
    fn boundary(&self, tick: u64) -> u64 {
        tick.saturating_mul(self.tick_ns)
    }

    #[inline]
    fn notify_sleeper(&self, shared: &mut MutexGuard<'_, Shared>, boundary_ns: u64) -> Armed {
        if boundary_ns >= shared.limit_ns {
            return Armed::Quietly;
        }
        shared.limit_ns = NO_SLEEPER;
        shared.was_rearmed = true;
        Armed::BeforeLimit
    }

    /// Updates the published values. See *Published*.
    fn publish(&self, shared: &MutexGuard<'_, Shared>) {
        let next_ns = shared.wheel.next_tick().map_or(NEVER, |tick| self.boundary(tick));
        self.publish_next(shared, next_ns);
    }

    /// Updates the published values after a timer that fires at `boundary_ns` was inserted. The
    /// next deadline can only become this one, so the wheel is not searched for it.
    #[inline]
    fn publish_armed(&self, shared: &MutexGuard<'_, Shared>, boundary_ns: u64) {
        self.publish_next(shared, self.published_next_ns().min(boundary_ns));
    }

    /// Updates the published values after a timer with this deadline was removed. If it was not the
    /// next one, the next deadline stays, and the wheel is not searched for another.
    #[inline]
    fn publish_disarmed(&self, shared: &MutexGuard<'_, Shared>, deadline_ns: u64) {
        if shared.wheel.len() == 0 {
            self.publish_next(shared, NEVER);
        // As in `has_fired`: the published deadline is a boundary.
        } else if deadline_ns > self.published_next_ns() {
            self.publish_next(shared, self.published_next_ns());
        } else {
            self.publish(shared);
        }
    }

    /// Returns the published deadline, under the lock.
    #[inline]
    fn published_next_ns(&self) -> u64 {
        // ORDERING: Relaxed; written under the lock only, which the caller holds.
        self.published.next_deadline_ns.load(Ordering::Relaxed)
    }

    #[inline]
    fn publish_next(&self, shared: &MutexGuard<'_, Shared>, next_ns: u64) {
        // ORDERING: Release; pairs with the Acquire in `next_deadline_ns`.
        self.published.next_deadline_ns.store(next_ns, Ordering::Release);
        // ORDERING: Relaxed; a single-writer cell (the lock is held), read by telemetry only.
        self.published.armed.store(shared.wheel.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
