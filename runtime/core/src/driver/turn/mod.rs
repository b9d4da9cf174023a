//! The driver: timers and I/O of one runtime, and the turn in which a single thread polls them.
//!
//! Shape. The poller behind a lock that is only ever tried (holding it is *the driver turn*), the
//! timers behind another, the registered sockets behind a third, and the waker that ends a sleep in
//! the poller from anywhere.
//!
//! Who writes: any worker that gets the turn. Who reads: telemetry and parkers, by loads.
//!
//! Invariants. *One turn*: at most one thread is in the poller. *Collected*: nothing here wakes
//! anybody; wakers go into the caller's list and are called when every lock is free. *Fresh token*:
//! a token is an index and a generation, so an event for a socket that is gone never reaches the
//! one that got its index.
//!
//! Locks, in order: turn < registrations < a socket's waiters; turn < timers. Neither of the last
//! three is held in a system call.
//!
//! Protocol of the hand-off, by a worker that is about to sleep: (1) it may be claimed, its bit is
//! set; (2) try to get the turn: sleep in here, or, if somebody else has it, on the futex. Whoever
//! gives the turn back, after a sleep or after a poll of the driver between two polls of tasks,
//! runs on, and comes to
//! (1) and (2) again before it sleeps. So *Polled*: while all workers sleep, one sleeps in here:
//! the last of them to try either got the turn, or saw somebody have it who was asleep, or had yet
//! to try.
//!
//! If it is eager: (3) whoever goes on to poll, after a sleep, a search or a poll of the driver,
//! fences, and if nobody has the turn and nobody searches, claims one that is parked. That one
//! finds other work and comes to (3), or none and comes to (2). So *Polled, eagerly*: while
//! somebody sleeps, one is in here or on the way, however many are stuck in polls. For the turn
//! given back is work that was submitted, and (2) is the check for it: let P be the fence of a
//! park, and S that of the next
//! (3) of the one who had the turn when (2) was refused. P before S: (3) sees the bit. S before P:
//! (2) does not see that turn any more. If (3) sees a searcher instead, that one comes to (2) or
//! (3) after it has left the searchers, with a fence of its own; and if it sees somebody in the
//! turn who is gone already, that one's (3) is yet to come. Not only who brings events out of here
//! has to do it: who was called away to other work, or has only polled it, leaves nobody here as
//! well, and who was woken to park here may find work first.
//!
//! Protocol of a sleep: (1) the limit is agreed with the armers of timers, see `timers`; (2) sleep
//! in the kernel; (3) take the limit back; (4) collect what became ready, then what is due.
//! `unpark` is sticky: one before (2) ends (2) at once.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use mio::Registry;
use volt_shim::{AtomicU64, CachePadded, Mutex, Ordering};
use volt_stacks::fork::Home;

use crate::clock::{self, Both};
use crate::config::Backend;
use crate::driver::poller::{Poller, WAKER};
use crate::driver::test_clock::TestClock;
use crate::driver::timers::{Armed, IsShutDown, Timers};
use crate::driver::turn_lock::{Held, TurnLock};
use crate::driver::wheel::Key;
use crate::task::contain::contain;
use crate::troubles::{Trouble, Troubles};

mod registrations;

use registrations::{INDEX_BITS, Registrations, index_of};

/// What waits for I/O on this system.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NATIVE: (Backend, &str) = (Backend::Epoll, "epoll");
/// What waits for I/O on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NATIVE: (Backend, &str) = (Backend::Kqueue, "kqueue");

/// Timers and I/O of one runtime.
#[derive(Debug)]
pub struct Driver {
    pub(crate) timers: Timers,
    /// Instead of the process's clock, in a runtime that was built for tests.
    pub test_clock: Option<TestClock>,
    poller: TurnLock<Poller>,
    registry: Registry,
    waker: mio::Waker,
    troubles: Arc<Troubles>,
    registrations: Mutex<Registrations>,
    counters: CachePadded<Counters>,
    /// The process whose kernel list this is.
    home: Home,
}

/// Single-writer cells (each under the lock named), read by loads.
#[derive(Debug)]
struct Counters {
    /// When the kernel's list was last read. Turn.
    last_turn_ns: AtomicU64,
    /// Turn.
    turns: AtomicU64,
    /// Turn.
    events: AtomicU64,
    /// Registrations.
    registrations: AtomicU64,
    /// Written by any task in accept: an RMW.
    accept_backoffs: AtomicU64,
    /// Faults of the process's clock that were reported to this runtime's log. Written by any
    /// thread that has left the turn: an RMW.
    clock_faults: AtomicU64,
}

/// How long a turn waits for something to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// Until the next timer is due, I/O is ready or somebody unparks, but no longer than `at_most`.
    UntilTimer {
        /// `None` = no limit but the timers'.
        at_most: Option<Duration>,
    },
    /// A moment, since the clock is paused: it says nothing of when a timer will be due.
    Paused {
        /// When nothing is left to be done but to wait for a timer, that one's time: unless the
        /// kernel knows better, the clock moves on to it.
        next_ns: Option<u64>,
    },
}

/// How long a turn waits under a paused clock before it checks again: whoever comes to rest tells
/// nobody.
const PAUSED_TURN: Duration = Duration::from_millis(1);

/// How long whoever is told that the kernel's list cannot be waited for waits, so that it does not
/// spin.
pub(crate) const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// What a turn found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    /// Sockets that something was told about.
    pub(crate) events: usize,
    /// Wakers that the list holds because of them; behind these come the timers'.
    pub(crate) io_wakers: usize,
    /// Timers that were due.
    pub(crate) timers_fired: usize,
    /// Somebody called [`Driver::unpark`].
    pub(crate) was_unparked: bool,
    /// Of those, the one who armed a timer earlier than this turn would have slept.
    pub(crate) was_rearmed: bool,
    /// Nothing at all happened for `at_most`.
    pub(crate) timed_out: bool,
}

impl Driver {
    /// A driver on `backend`, or on what this system has if none is asked for.
    ///
    /// # Errors
    /// `ErrorKind::Unsupported` if the backend is not in this build; else what the system says.
    pub(crate) fn new(
        backend: Option<Backend>,
        max_io_completions: usize,
        troubles: Arc<Troubles>,
    ) -> io::Result<Self> {
        if let Some(backend) = backend.filter(|&backend| backend != NATIVE.0) {
            let text = format!(
                "backend_type {backend:?} is not in this build for {}: ask for {:?}, or for none",
                std::env::consts::OS,
                NATIVE.0,
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let poller = Poller::new(max_io_completions)?;
        let registry = poller.registry().try_clone()?;
        let waker = mio::Waker::new(&registry, WAKER)?;
        let now_ns = clock::now_ns();
        let counters = Counters {
            last_turn_ns: AtomicU64::new(now_ns),
            turns: AtomicU64::new(0),
            events: AtomicU64::new(0),
            registrations: AtomicU64::new(0),
            accept_backoffs: AtomicU64::new(0),
            clock_faults: AtomicU64::new(clock::faults()),
        };
        Ok(Self {
            timers: Timers::new(now_ns),
            test_clock: None,
            poller: TurnLock::new(poller),
            registry,
            waker,
            troubles,
            registrations: Mutex::new(Registrations::default()),
            counters: CachePadded(counters),
            home: Home::here(),
        })
    }

    /// Now, for timers: ns on the process's clock, or on the test clock.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.test_clock.as_ref().map_or_else(clock::now_ns, TestClock::now_ns)
    }

    /// The same, and as an instant.
    #[inline]
    pub fn now(&self) -> Both {
        self.test_clock.as_ref().map_or_else(Both::read, TestClock::now)
    }

    /// Whether there is a test clock, and it stands still.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.test_clock.as_ref().is_some_and(TestClock::is_paused)
    }

    /// From now on timers go by a clock that tests stop and move on.
    pub(crate) fn use_test_clock(&mut self, is_paused: bool) {
        let clock = TestClock::new(is_paused);
        self.timers = Timers::exact(clock.now_ns());
        self.test_clock = Some(clock);
    }

    /// Wakes whom a timer that is due by now belongs to.
    pub fn fire_due(&self) {
        let mut wakers = Vec::new();
        self.timers.fire(self.now_ns(), &mut wakers);
        wake_all(wakers);
    }

    /// Does for `at_most` so long what workers do in the driver, of whom none is left, and returns
    /// early after anything that happened.
    pub(crate) fn turn_without_workers(&self, at_most: Option<Duration>) {
        // Never so: whoever is no worker has no turn.
        let Some(mut turn) = self.take_turn(None) else { return thread::yield_now() };
        let mut wakers = Vec::new();
        let polled = turn.poll(Wait::UntilTimer { at_most }, &mut wakers);
        drop(turn);
        let has_wakers = !wakers.is_empty();
        wake_all(wakers);
        if let Some(clock) = self.test_clock.as_ref().filter(|_| has_wakers) {
            clock.end_wakes();
        }
        if self.has_clock_news() {
            self.report_clock();
        }
        if let Err(error) = polled {
            self.troubles.note(Trouble::DriverFailed, &error);
            thread::sleep(ERROR_PAUSE);
        }
    }

    /// The driver turn, if nobody has it; `worker` is shown as its owner until it is dropped.
    pub(crate) fn try_turn(&self, worker: usize) -> Option<Turn<'_>> {
        self.take_turn(Some(worker))
    }

    fn take_turn(&self, owner: Option<usize>) -> Option<Turn<'_>> {
        Some(Turn { driver: self, poller: self.poller.try_take(owner)? })
    }

    /// Where what cannot be done is noted down.
    pub(crate) fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
    }

    /// Ends the sleep of whoever is in the turn, or the next one.
    pub fn unpark(&self) {
        if let Err(error) = self.waker.wake() {
            self.troubles.note(Trouble::DriverNotWoken, &error);
        }
    }

    /// Whether the process's clock has lost its counter, and this runtime's log does not say so
    /// yet.
    #[inline]
    pub(crate) fn has_clock_news(&self) -> bool {
        // ORDERING: Relaxed; a hint, `report_clock` decides.
        self.counters.clock_faults.load(Ordering::Relaxed) != clock::faults()
    }

    /// Reports to this runtime's log that the process's clock has lost its counter.
    ///
    /// May run a subscriber's code, which may block: call it after the turn is left and the
    /// collected wakers are called, or timers and I/O of the whole runtime wait for the log.
    pub(crate) fn report_clock(&self) {
        let faults = clock::faults();
        // ORDERING: Relaxed; only the value counts. Of several threads that see a fault, one
        // reports it.
        if self.counters.clock_faults.fetch_max(faults, Ordering::Relaxed) >= faults {
            return;
        }
        if let Some((fault, is_last)) = clock::last_fault() {
            let then = if is_last { "it is not used again" } else { "it is measured anew" };
            self.troubles.note(Trouble::ClockFault, &io::Error::other(format!("{}; {then}", fault.text())));
        }
    }

    /// Arms a timer, and tells the sleeper if it would sleep past it.
    pub(crate) fn arm_timer(&self, deadline_ns: u64, waker: Waker) -> Result<Key, IsShutDown> {
        let (key, armed) = self.timers.arm(deadline_ns, waker)?;
        self.tell(armed);
        Ok(key)
    }

    /// Moves a timer, and tells the sleeper if it would sleep past it; false if the timer has
    /// fired.
    pub(crate) fn reset_timer(&self, key: Key, deadline_ns: u64) -> bool {
        let armed = self.timers.reset(key, deadline_ns);
        armed.map(|armed| self.tell(armed)).is_some()
    }

    fn tell(&self, armed: Armed) {
        if armed == Armed::BeforeLimit {
            self.unpark();
        }
    }

    /// Ends every wait: I/O with an error now and for ever, timers as `time::sleep` says. Sockets
    /// and timers that outlive the runtime may still be dropped.
    pub(crate) fn shut_down(&self) {
        let mut wakers = Vec::new();
        let mut registrations = self.registrations.lock();
        registrations.is_shut_down = true;
        for (_, registered) in &registrations.sockets {
            registered.readiness.shut_down(&mut wakers);
        }
        drop(registrations);
        self.timers.shut_down(&mut wakers);
        wake_all(wakers);
    }

    /// An accept waits because the process is out of descriptors or memory.
    pub fn count_accept_backoff(&self) {
        // ORDERING: Relaxed; an RMW, since any task may do it; read by telemetry only.
        self.counters.accept_backoffs.fetch_add(1, Ordering::Relaxed);
    }

    /// When the kernel's ready list was last read: ns on the process's clock.
    #[inline]
    pub(crate) fn last_turn_ns(&self) -> u64 {
        // ORDERING: Relaxed; a hint to a worker whether a check is due.
        self.counters.last_turn_ns.load(Ordering::Relaxed)
    }

    /// The worker in the turn.
    #[inline]
    pub(crate) fn owner(&self) -> Option<usize> {
        self.poller.owner()
    }

    /// Whether timers and I/O are polled until then, or nothing is to be expected: no socket, and
    /// no timer before `until_ns`.
    pub(crate) fn can_wait_until(&self, until_ns: u64) -> bool {
        // ORDERING: Relaxed; a hint, as all here: who registers a socket or arms a timer now waits
        // as long as if it came a moment earlier.
        let has_sockets = || self.counters.registrations.load(Ordering::Relaxed) > 0;
        self.owner().is_some() || (!has_sockets() && self.timers.next_deadline_ns() > until_ns)
    }

    /// The name of what waits for I/O.
    pub(crate) fn backend_name(&self) -> &'static str {
        NATIVE.1
    }

    /// The numbers that people see.
    pub(crate) fn telemetry(&self, now_ns: u64) -> (volt_telemetry::Driver, volt_telemetry::Timers) {
        let owner = self.owner();
        let counters = &self.counters;
        let driver = volt_telemetry::Driver {
            owner: owner.map(|worker| worker as u32),
            // ORDERING: Relaxed; single-writer cells, each exact by itself.
            turns: counters.turns.load(Ordering::Relaxed),
            // ORDERING: Relaxed; as above.
            events: counters.events.load(Ordering::Relaxed),
            // ORDERING: Relaxed; as above.
            registrations: counters.registrations.load(Ordering::Relaxed),
            // ORDERING: Relaxed; as above.
            accept_backoffs: counters.accept_backoffs.load(Ordering::Relaxed),
            idle_ns: if owner.is_some() { 0 } else { now_ns.saturating_sub(self.last_turn_ns()) },
        };
        (driver, self.timers.telemetry(self.now_ns()))
    }
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // A foreign waker that panics must not keep the others from being called.
        contain(|| waker.wake());
    }
}

/// The right to poll timers and I/O; one thread has it at a time.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    driver: &'a Driver,
    poller: Held<'a, Poller>,
}

impl Turn<'_> {
    /// Waits as `wait` says, then collects the wakers of sockets that became ready and of timers
    /// that are due.
    ///
    /// # Errors
    /// What the system says of sockets; interrupted by a signal is none, just an early return.
    /// Timers that are due are collected also then.
    pub(crate) fn poll(&mut self, wait: Wait, into: &mut Vec<Waker>) -> io::Result<Polled> {
        let timers = &self.driver.timers;
        let mut polled = Polled::default();
        let waited = match wait {
            Wait::No => self.poller.wait(Some(Duration::ZERO)),
            Wait::Paused { next_ns } => {
                // ORDERING: Relaxed; a hint: what is on its way between two sockets is given a
                // moment to arrive.
                let has_sockets = self.driver.counters.registrations.load(Ordering::Relaxed) > 0;
                let is_waiting = has_sockets || next_ns.is_none();
                self.poller.wait(Some(if is_waiting { PAUSED_TURN } else { Duration::ZERO }))
            }
            Wait::UntilTimer { at_most } => {
                let began_ns = clock::now_ns();
                let timeout = timers.begin_sleep(self.driver.now_ns(), at_most);
                let waited = self.poller.wait(timeout);
                polled.was_rearmed = timers.end_sleep();
                let slept_ns = clock::now_ns().saturating_sub(began_ns);
                polled.timed_out = at_most.is_some_and(|at_most| slept_ns >= clock::saturating_ns(at_most));
                waited
            }
        };
        if waited.is_ok() {
            self.collect(&mut polled, into);
        }
        polled.io_wakers = into.len();
        if let (Wait::Paused { next_ns: Some(next_ns) }, Some(clock)) = (wait, &self.driver.test_clock)
            && polled.events == 0
            && !polled.was_unparked
        {
            clock.advance_to(next_ns);
        }
        let now_ns = clock::check();
        polled.timers_fired = timers.fire(self.driver.now_ns(), into);
        if let Some(clock) = &self.driver.test_clock
            && !into.is_empty()
        {
            clock.begin_wakes();
        }
        polled.timed_out &= polled.events == 0 && polled.timers_fired == 0 && !polled.was_unparked;
        self.count(polled.events as u64, now_ns);
        waited.map(|()| polled)
    }

    /// From now on the kernel refuses to wait for events.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn break_poller(&self) {
        use std::mem::ManuallyDrop;
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

        // SAFETY: it is open, and this owner does not close it.
        let list = unsafe { OwnedFd::from_raw_fd(self.poller.registry().as_raw_fd()) };
        let null = std::fs::File::open("/dev/null").unwrap();
        rustix::io::dup2(&null, &mut ManuallyDrop::new(list)).unwrap();
    }

    fn collect(&self, polled: &mut Polled, into: &mut Vec<Waker>) {
        let mut events = self.poller.events().peekable();
        if events.peek().is_none() {
            return;
        }
        let registrations = self.driver.registrations.lock();
        for (token, flags) in events {
            if token == WAKER {
                polled.was_unparked = true;
                continue;
            }
            // Gone, or its index is another's by now: *fresh token*.
            let registered = registrations.sockets.get(index_of(token));
            let Some(registered) = registered.filter(|socket| socket.generation == token.0 >> INDEX_BITS) else {
                continue;
            };
            registered.readiness.set(flags, into);
            polled.events += 1;
        }
    }

    fn count(&self, events: u64, now_ns: u64) {
        let counters = &self.driver.counters;
        for (cell, n) in [(&counters.turns, 1), (&counters.events, events)] {
            // ORDERING: Relaxed; a single-writer cell (the turn is held), read by telemetry only.
            let before = cell.load(Ordering::Relaxed);
            // ORDERING: Relaxed; as above.
            cell.store(before + n, Ordering::Relaxed);
        }
        // ORDERING: Relaxed; as above.
        counters.last_turn_ns.store(now_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
