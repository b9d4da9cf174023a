//! The runtime's timers: one wheel behind one lock, with the next deadline readable by a load.
//!
//! Shape. A deadline is ns on the process's clock; its tick is the first boundary of 160 µs at or
//! after it, so that a timer never fires early and fires less than that late, beside what the
//! system adds. On a test clock a tick is a nanosecond: a test that moves the clock to a deadline
//! expects the timer to fire.
//!
//! Who writes: whoever arms, moves or disarms a timer; whoever fires what is due (every worker at
//! its ticks, the one that waits in the driver when it wakes up). Who reads without the lock:
//! parkers (`next_deadline_ns`), sleeps (`fired_through_ns`), telemetry.
//!
//! Invariants. *Unlocked wakers*: no waker is called, cloned or dropped under the lock, since each
//! of the three may run code of a user that arms or drops a timer. *Published*: at each unlock
//! `next_deadline_ns` is not later than the earliest deadline. *Short holds*: nothing is done under
//! the lock for more than `FIRE_BATCH` timers, and whoever has more to do lets those go first
//! that wait for it.
//!
//! Protocol between an armer and the one sleeper (the thread in the driver), both under the lock.
//! Sleeper: (1) read the earliest deadline; (2) write down until when it will sleep, the *limit*;
//! (3) unlock and sleep. Armer: (1) enter the deadline; (2) if it lies before the limit, clear the
//! limit; (3) unlock and, if it was cleared, unpark the driver. Whoever gets the lock second sees
//! what the first did, so a deadline is either seen by the sleeper or told to it, and of many that
//! are earlier than the limit one is told.
//!
//! Rejected: a wheel a worker (a timer that is armed here and dropped there then needs both locks;
//! measure first); the waker inside the timer's future under a lock of its own (a second lock for
//! each timer that fires).

use std::task::Waker;
use std::thread;
use std::time::Duration;

use volt_shim::{AtomicBool, AtomicU32, AtomicU64, CachePadded, Mutex, MutexGuard, Ordering};

use crate::driver::wheel::{Key, Wheel};

/// Length of a tick, ns: the resolution that timers have. Finer costs more cascades and more
/// wake-ups, coarser is late: of 10,000 random sleeps half were 590 µs late or more with ticks of 1
/// ms, 133 µs with 197 µs, 97 µs with 131 µs; what each costs of processor time goes up by 1.3 µs
/// from the first to the second, on a busy machine, and by 0.5 µs from there to the third.
const TICK_NS: u64 = 160_000;
/// Timers handed out, or moved to another slot of the wheel, at one hold of the lock, so that
/// arming does not wait for a crowd of them.
const FIRE_BATCH: usize = 256;
/// Times that a thread between two batches leaves its processor to those that wait for the lock.
/// One of them needs some 50 µs to wake up, in which it would find the lock taken again; a bound,
/// since one may have no processor.
const MAX_YIELDS: u32 = 64;
/// "No timer is armed" in `next_deadline_ns`, and no limit to a sleep.
const NEVER: u64 = u64::MAX;
/// "Nobody sleeps" in `Shared::limit_ns`: no deadline lies before it.
const NOBODY: u64 = 0;

/// Every timer of a runtime.
#[derive(Debug)]
pub(crate) struct Timers {
    shared: Mutex<Shared>,
    /// Threads that found the lock taken and wait for it.
    waiting: AtomicU32,
    /// Length of a tick, ns.
    tick_ns: u64,
    published: CachePadded<Published>,
}

/// What is readable by loads; written under the lock only.
#[derive(Debug)]
struct Published {
    /// The tick boundary at which the next timer fires, ns; `NEVER` if none is armed.
    next_deadline_ns: AtomicU64,
    /// Every timer whose tick lies here or before was fired and is out of the wheel.
    fired_through_ns: AtomicU64,
    armed: AtomicU64,
    fired: AtomicU64,
    last_lag_ns: AtomicU64,
    is_shut_down: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    wheel: Wheel<Timer>,
    /// Until when the driver's sleeper sleeps; `NOBODY` while none does, or while one was told to
    /// check again.
    limit_ns: u64,
    /// Whether the limit was cleared by an armer since the sleep began.
    was_rearmed: bool,
}

#[derive(Debug)]
struct Timer {
    deadline_ns: u64,
    waker: Waker,
}

/// What arming or moving a timer asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the worker that sleeps in the driver must be woken"]
pub(crate) enum Armed {
    /// Nothing.
    Quietly,
    /// To unpark the driver: its sleeper would sleep past the deadline.
    BeforeLimit,
}

/// The runtime is shut down: its timers fire no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IsShutDown;

impl Timers {
    /// No timers; the wheel begins at `now_ns`.
    pub(crate) fn new(now_ns: u64) -> Self {
        Self::with_ticks(TICK_NS, now_ns)
    }

    /// As [`new`](Self::new), with timers that fire at their deadlines and not at the next tick:
    /// for a test clock.
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
        let shared = Shared { wheel, limit_ns: NOBODY, was_rearmed: false };
        let waiting = AtomicU32::new(0);
        Self { shared: Mutex::new(shared), waiting, tick_ns, published: CachePadded(published) }
    }

    /// The lock, for a short hold. See *Short holds*.
    #[inline]
    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.try_lock().unwrap_or_else(|| self.wait_for_lock())
    }

    #[cold]
    fn wait_for_lock(&self) -> MutexGuard<'_, Shared> {
        // ORDERING: Relaxed, both; a hint to whoever has the lock and wants it again.
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let shared = self.shared.lock();
        // ORDERING: Relaxed; as above.
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        shared
    }

    /// Between two batches: those that wait for the lock go first.
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
        let key = shared.wheel.insert(self.tick_of(deadline_ns), Timer { deadline_ns, waker });
        let armed = self.tell_sleeper(&mut shared, deadline_ns);
        self.publish(&shared);
        Ok((key, armed))
    }

    /// Moves a timer to another deadline; `None` if it has fired.
    pub(crate) fn reset(&self, key: Key, deadline_ns: u64) -> Option<Armed> {
        let mut shared = self.lock();
        shared.wheel.payload_mut(key)?.deadline_ns = deadline_ns;
        shared.wheel.reschedule(key, self.tick_of(deadline_ns));
        let armed = self.tell_sleeper(&mut shared, deadline_ns);
        self.publish(&shared);
        Some(armed)
    }

    /// From now on the timer wakes `waker` and no other; false if it has fired.
    pub(crate) fn set_waker(&self, key: Key, waker: Waker) -> bool {
        let mut shared = self.lock();
        let former = match shared.wheel.payload_mut(key) {
            Some(timer) => Ok(std::mem::replace(&mut timer.waker, waker)),
            None => Err(waker),
        };
        // *Unlocked wakers*: the former one is dropped after this.
        drop(shared);
        former.is_ok()
    }

    /// Takes a timer out; nothing happens if it has fired.
    pub(crate) fn disarm(&self, key: Key) {
        let mut shared = self.lock();
        let timer = shared.wheel.remove(key);
        if timer.is_some() {
            self.publish(&shared);
        }
        // *Unlocked wakers*: the timer with its waker is dropped after this.
        drop(shared);
    }

    /// Whether a timer with this deadline has fired, without reading the wheel.
    ///
    /// One that was armed for, or moved to, a tick already fired through counts as fired although
    /// the next `fire` takes it out: whoever then leaves it there pays with a wake-up too many.
    #[inline]
    pub(crate) fn has_fired(&self, deadline_ns: u64) -> bool {
        // ORDERING: Acquire; pairs with the Release in `publish`. Whoever reads a boundary at or
        // after its tick knows that the entry is gone and has nothing to take out; a smaller, older
        // value only costs it the lock.
        self.boundary_of(deadline_ns) <= self.published.fired_through_ns.load(Ordering::Acquire)
    }

    /// When the next timer fires: ns on the process's clock, a whole tick, `u64::MAX` if none is
    /// armed.
    #[inline]
    pub(crate) fn next_deadline_ns(&self) -> u64 {
        // ORDERING: Acquire; pairs with the Release in `publish`. A parker that must not miss a
        // timer relies on the sleeper's protocol (see the header), not on this load.
        self.published.next_deadline_ns.load(Ordering::Acquire)
    }

    /// Whether `shut_down` was called.
    #[inline]
    pub(crate) fn is_shut_down(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `shut_down`. Under the lock, where it is
        // written, it is exact.
        self.published.is_shut_down.load(Ordering::Acquire)
    }

    /// Collects the wakers of all timers that are due at `now_ns`; how many. One load when none is.
    pub(crate) fn fire(&self, now_ns: u64, into: &mut Vec<Waker>) -> usize {
        if self.next_deadline_ns() > now_ns {
            return 0;
        }
        let mut fired = 0;
        let mut worst_lag_ns = 0;
        let now = self.tick_before(now_ns);
        loop {
            // Not under the lock: of a crowd of wakers the list is moved to more memory now and
            // then.
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
                // ORDERING: Relaxed; a single-writer cell (the lock is held), read by telemetry
                // only. So are the two below.
                self.published.last_lag_ns.store(worst_lag_ns, Ordering::Relaxed);
            }
            if is_done {
                // ORDERING: Release; pairs with the Acquire in `has_fired`. Not earlier than
                // `is_done`: a tick of which only a part was handed out has not been fired through.
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

    /// The driver's sleeper goes to sleep, at most until the next deadline and no longer than
    /// `at_most`.
    ///
    /// Returns how long; `None` = until it is unparked.
    pub(crate) fn begin_sleep(&self, now_ns: u64, at_most: Option<Duration>) -> Option<Duration> {
        let mut shared = self.lock();
        let next_ns = shared.wheel.next_tick().map_or(NEVER, |tick| tick.saturating_mul(self.tick_ns));
        let until_ns = at_most.map_or(NEVER, |at_most| now_ns.saturating_add(crate::clock::saturating_ns(at_most)));
        let limit_ns = next_ns.min(until_ns);
        shared.limit_ns = limit_ns;
        shared.was_rearmed = false;
        drop(shared);
        (limit_ns != NEVER).then(|| Duration::from_nanos(limit_ns.saturating_sub(now_ns)))
    }

    /// The driver's sleeper is awake again; whether somebody armed a deadline before its limit
    /// meanwhile.
    pub(crate) fn end_sleep(&self) -> bool {
        let mut shared = self.lock();
        shared.limit_ns = NOBODY;
        std::mem::take(&mut shared.was_rearmed)
    }

    /// Fires no more; collects the wakers of all timers, so that whoever waits for one sees that it
    /// never will fire.
    pub(crate) fn shut_down(&self, into: &mut Vec<Waker>) {
        let mut shared = self.lock();
        // Keys of its timers name nothing in the new one, which stays empty.
        let wheel = std::mem::replace(&mut shared.wheel, Wheel::new(0));
        // ORDERING: Release; pairs with the Acquire in `is_shut_down`.
        self.published.is_shut_down.store(true, Ordering::Release);
        self.publish(&shared);
        drop(shared);
        into.extend(wheel.into_payloads().map(|timer| timer.waker));
    }

    /// The numbers that people see.
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

    /// The last tick that begins at or before an instant. A division by a constant, but on a test
    /// clock.
    #[inline]
    fn tick_before(&self, now_ns: u64) -> u64 {
        if self.tick_ns == TICK_NS { now_ns / TICK_NS } else { now_ns / self.tick_ns }
    }

    /// The tick at which a deadline fires: the first at or after it.
    #[inline]
    fn tick_of(&self, deadline_ns: u64) -> u64 {
        if self.tick_ns == TICK_NS { deadline_ns.div_ceil(TICK_NS) } else { deadline_ns.div_ceil(self.tick_ns) }
    }

    /// The same as ns.
    #[inline]
    fn boundary_of(&self, deadline_ns: u64) -> u64 {
        self.tick_of(deadline_ns).saturating_mul(self.tick_ns)
    }

    fn tell_sleeper(&self, shared: &mut MutexGuard<'_, Shared>, deadline_ns: u64) -> Armed {
        if self.boundary_of(deadline_ns) >= shared.limit_ns {
            return Armed::Quietly;
        }
        shared.limit_ns = NOBODY;
        shared.was_rearmed = true;
        Armed::BeforeLimit
    }

    /// See *Published*.
    fn publish(&self, shared: &MutexGuard<'_, Shared>) {
        let next_ns = shared.wheel.next_tick().map_or(NEVER, |tick| tick.saturating_mul(self.tick_ns));
        // ORDERING: Release; pairs with the Acquire in `next_deadline_ns`.
        self.published.next_deadline_ns.store(next_ns, Ordering::Release);
        // ORDERING: Relaxed; a single-writer cell (the lock is held), read by telemetry only.
        self.published.armed.store(shared.wheel.len() as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
