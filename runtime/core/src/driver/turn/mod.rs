//! The driver: the timers and the I/O of one runtime, and the turn in which one thread polls them.
//!
//! The driver owns the timer wheel, the registered sockets and the *poller*, which wraps the
//! kernel's ready list (epoll or kqueue). Workers poll it between polls of tasks without waiting,
//! and an idle worker sleeps in it. The *driver turn* is the right to use the poller: one thread
//! has it at a time. Idle workers that do not have the turn sleep on a futex each.
//!
//! An ordinary case. Worker 1 runs out of work, takes the turn and sleeps in the poller until the
//! next timer is due. Worker 2 runs out of work, finds the turn taken and sleeps on its futex. A
//! packet arrives. Worker 1 wakes up, collects the waker of the task that waits for the socket,
//! gives the turn back, calls the waker and polls the task. It tries to take the turn again before
//! it sleeps.
//!
//! The race. Worker 2 may find the turn taken just before worker 1 gives it back to poll a task.
//! Worker 2 then sleeps on its futex, and no thread is in the poller. The hand-off ensures that
//! worker 1 tries to take the turn again before it sleeps. If the hand-off is eager, it also
//! ensures that another worker enters the poller while worker 1 is busy.
//!
//! Shape. The poller is behind a lock that is only ever tried; to hold that lock is to have the
//! turn. The timers are behind a second lock, the registered sockets behind a third. A waker ends a
//! sleep in the poller from any thread. Any worker that gets the turn writes; telemetry and parking
//! workers read by loads.
//!
//! Invariants:
//! * *One turn*: at most one thread is in the poller.
//! * *Collected*: no waker is called under a lock. A turn appends wakers to the caller's list, and
//!   the caller calls them after the turn. `fire_due`, `turn_without_workers` and `shut_down` call
//!   them themselves, after they have released every lock.
//! * *Fresh token*: a token is an index and a generation. So an event for a socket that was
//!   deregistered does not reach the socket that has its index now, unless the generations have
//!   wrapped around meanwhile (`registrations`).
//!
//! Locks, in order: turn < registrations < a socket's waiters; turn < timers. Of these, only the
//! turn may be held during a system call.
//!
//! Protocol of the hand-off, (1) to (3): see the header of `turn_lock`, which also shows why
//! *Polled* and *Polled, eagerly* hold.
//!
//! Protocol of a sleep:
//! 1. agree on the limit of the sleep with threads that arm timers, see `timers`;
//! 2. sleep in the kernel; `unpark` is sticky: a call before this step ends it immediately;
//! 3. withdraw the limit;
//! 4. collect the sockets that became ready, then the timers that are due.

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
use crate::driver::leases::Leases;
use crate::driver::poller::{Poller, WAKER};
use crate::driver::test_clock::TestClock;
use crate::driver::timers::{Armed, IsShutDown, Timers};
use crate::driver::turn_lock::{Held, TurnLock};
use crate::driver::wheel::Key;
use crate::failures::{Failure, Failures};
use crate::task::contain::contain;

mod figures;
mod registrations;

mod register;

use registrations::{INDEX_BITS, Registrations, index_of};

/// The name of the kernel interface that reports ready I/O on this system.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NATIVE: (Backend, &str) = (Backend::Epoll, "epoll");
/// The name of the kernel interface that reports ready I/O on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NATIVE: (Backend, &str) = (Backend::Kqueue, "kqueue");

/// The timers and the I/O of one runtime.
#[derive(Debug)]
pub struct Driver {
    pub(crate) timers: Timers,
    /// The leases by which sleeps keep this driver alive.
    pub(crate) leases: CachePadded<Leases>,
    /// Replaces the clock of the program, in a runtime that was built for tests.
    pub test_clock: Option<TestClock>,
    poller: TurnLock<Poller>,
    registry: Registry,
    waker: mio::Waker,
    failures: Arc<Failures>,
    sockets: CachePadded<Sockets>,
    counters: CachePadded<Counters>,
    /// The program that created the kernel's ready list; a forked child is another one.
    home: Home,
}

/// The registered sockets. On their own cache line: the lock is written when a socket comes or
/// goes, and at each turn with events. Each timer reads the fields of the driver that do not
/// change.
#[derive(Debug)]
struct Sockets {
    table: Mutex<Registrations>,
    /// How many are registered. Written under the lock, read by loads.
    count: AtomicU64,
}

/// Cells that are read by loads. A cell with a named lock is written only under that lock. Workers
/// read this cache line at each tick.
#[derive(Debug)]
struct Counters {
    /// When the kernel's ready list was last read. Lock: the turn.
    last_turn_ns: AtomicU64,
    /// Lock: the turn.
    turns: AtomicU64,
    /// Lock: the turn.
    events: AtomicU64,
    /// Any task in `accept` writes it, with an RMW.
    accept_backoffs: AtomicU64,
    /// Faults of the program's clock that were reported to this runtime's log. Any thread that has
    /// left the turn writes it, with an RMW.
    clock_faults: AtomicU64,
}

/// How long a turn waits for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Does not wait.
    No,
    /// Until the next timer is due, I/O is ready or `unpark` is called, but at most for `at_most`.
    UntilTimer {
        /// `None`: limited by the timers only.
        at_most: Option<Duration>,
    },
    /// For a moment only: the clock is paused, so the real time until a deadline is unknown.
    Paused {
        /// The next deadline, if nothing is left to do but to wait for a timer. The clock advances
        /// to it unless the kernel reports an event.
        next_ns: Option<u64>,
    },
}

/// How long a turn waits under a paused clock before it checks again, since a task that comes to
/// rest sends no notification.
const PAUSED_TURN: Duration = Duration::from_millis(1);

/// How long a thread waits after the kernel has failed to wait for events, so that it does not
/// spin.
pub(crate) const ERROR_PAUSE: Duration = Duration::from_millis(10);

/// The result of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    /// Sockets for which the kernel reported an event.
    pub(crate) events: usize,
    /// Wakers in the caller's list because of those sockets. The wakers of timers follow them.
    pub(crate) io_wakers: usize,
    /// Timers that were due.
    pub(crate) timers_fired: usize,
    /// Whether [`Driver::unpark`] was called.
    pub(crate) was_unparked: bool,
    /// Whether the call came from a thread that armed a timer due before the end of this turn's
    /// sleep.
    pub(crate) was_rearmed: bool,
    /// Whether nothing at all happened for `at_most`.
    pub(crate) timed_out: bool,
}

impl Driver {
    /// Creates a driver on `backend`, or on this system's native backend for `None`.
    ///
    /// # Errors
    /// Returns `ErrorKind::Unsupported` if the backend is not in this build. Also returns errors of
    /// the system.
    pub(crate) fn new(
        backend: Option<Backend>,
        max_io_completions: usize,
        failures: Arc<Failures>,
    ) -> io::Result<Self> {
        if let Some(backend) = backend.filter(|&backend| backend != NATIVE.0) {
            let text = format!(
                "backend_type {backend:?} is not in this build for {}: choose {:?}, or leave it out",
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
            accept_backoffs: AtomicU64::new(0),
            clock_faults: AtomicU64::new(clock::faults()),
        };
        Ok(Self {
            timers: Timers::new(now_ns),
            leases: CachePadded(Leases::new()),
            test_clock: None,
            poller: TurnLock::new(poller),
            registry,
            waker,
            failures,
            sockets: CachePadded(Sockets { table: Mutex::default(), count: AtomicU64::new(0) }),
            counters: CachePadded(counters),
            home: Home::here(),
        })
    }

    /// Returns the present time for timers, in ns of the program's clock or of the test clock.
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.test_clock.as_ref().map_or_else(clock::now_ns, TestClock::now_ns)
    }

    /// Returns the same time also as an `Instant`.
    #[inline]
    pub fn now(&self) -> Both {
        self.test_clock.as_ref().map_or_else(Both::read, TestClock::now)
    }

    /// Returns whether there is a test clock and it is paused.
    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.test_clock.as_ref().is_some_and(TestClock::is_paused)
    }

    /// Replaces the clock of the timers by a test clock, which tests pause and advance.
    pub(crate) fn use_test_clock(&mut self, is_paused: bool) {
        let clock = TestClock::new(is_paused);
        self.timers = Timers::exact(clock.now_ns());
        self.test_clock = Some(clock);
    }

    /// Wakes the owners of all timers that are due.
    pub fn fire_due(&self) {
        let mut wakers = Vec::new();
        self.timers.fire(self.now_ns(), &mut wakers);
        wake_all(wakers);
    }

    /// Polls the driver in place of the workers, of which none is left. Waits for at most `at_most`
    /// and returns early after any event.
    pub(crate) fn turn_without_workers(&self, at_most: Option<Duration>) {
        // Always succeeds: no worker is left, and no other thread takes the turn.
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
            self.failures.note(Failure::DriverFailed, &error);
            thread::sleep(ERROR_PAUSE);
        }
    }

    /// Takes the driver turn, if no thread has it. `worker` is published as its owner until the
    /// turn is dropped.
    pub(crate) fn try_turn(&self, worker: usize) -> Option<Turn<'_>> {
        self.take_turn(Some(worker))
    }

    fn take_turn(&self, owner: Option<usize>) -> Option<Turn<'_>> {
        Some(Turn { driver: self, poller: self.poller.try_take(owner)? })
    }

    /// Returns the log to which the runtime's failures are reported.
    pub(crate) fn failures(&self) -> &Arc<Failures> {
        &self.failures
    }

    /// Ends the sleep of the thread in the turn, or else the next such sleep.
    pub fn unpark(&self) {
        if let Err(error) = self.waker.wake() {
            self.failures.note(Failure::DriverNotWoken, &error);
        }
    }

    /// Returns whether this runtime's log lacks a fault of the counter of the program's clock.
    #[inline]
    pub(crate) fn has_clock_news(&self) -> bool {
        // ORDERING: Relaxed; a hint, `report_clock` decides.
        self.counters.clock_faults.load(Ordering::Relaxed) != clock::faults()
    }

    /// Reports to this runtime's log that the program's clock has lost its counter.
    ///
    /// This may run the code of a log subscriber, which may block. Call it only after the turn was
    /// given back and the collected wakers were called; otherwise the timers and the I/O of the
    /// whole runtime wait for the log.
    pub(crate) fn report_clock(&self) {
        let faults = clock::faults();
        // ORDERING: Relaxed; only the value counts. Of several threads that see a fault, one
        // reports it.
        if self.counters.clock_faults.fetch_max(faults, Ordering::Relaxed) >= faults {
            return;
        }
        if let Some((fault, is_last)) = clock::last_fault() {
            let then = if is_last { "it is not used again" } else { "it is measured anew" };
            self.failures.note(Failure::ClockFault, &io::Error::other(format!("{}; {then}", fault.text())));
        }
    }

    /// Arms a timer, and unparks a thread that would sleep in the driver past the deadline.
    #[inline]
    pub(crate) fn arm_timer(&self, deadline_ns: u64, waker: Waker) -> Result<Key, IsShutDown> {
        let (key, armed) = self.timers.arm(deadline_ns, waker)?;
        self.notify(armed);
        Ok(key)
    }

    /// Moves a timer, and unparks the thread that sleeps in the driver if it would sleep past the
    /// deadline. Returns false if the timer has fired.
    pub(crate) fn reset_timer(&self, key: Key, deadline_ns: u64) -> bool {
        let armed = self.timers.reset(key, deadline_ns);
        armed.map(|armed| self.notify(armed)).is_some()
    }

    #[inline]
    fn notify(&self, armed: Armed) {
        if armed == Armed::BeforeLimit {
            self.unpark();
        }
    }

    /// Ends every wait: a wait for a socket fails from now on, and timers behave as documented at
    /// `time::sleep`. Sockets and timers that outlive the runtime may still be dropped.
    pub(crate) fn shut_down(&self) {
        let mut wakers = Vec::new();
        let mut registrations = self.sockets.table.lock();
        registrations.is_shut_down = true;
        for (_, registered) in &registrations.sockets {
            registered.readiness.shut_down(&mut wakers);
        }
        drop(registrations);
        self.timers.shut_down(&mut wakers);
        wake_all(wakers);
    }

    /// Returns when the kernel's ready list was last read, in ns of the program's clock.
    #[inline]
    pub(crate) fn last_turn_ns(&self) -> u64 {
        // ORDERING: Relaxed; a hint, which a worker uses to decide whether a check is due.
        self.counters.last_turn_ns.load(Ordering::Relaxed)
    }

    /// Returns the worker that has the turn.
    #[inline]
    pub(crate) fn owner(&self) -> Option<usize> {
        self.poller.owner()
    }

    /// Returns whether a worker may leave the driver unpolled until `until_ns`: another one has the
    /// turn, or there is no socket and no timer due before then.
    pub(crate) fn can_wait_until(&self, until_ns: u64) -> bool {
        // ORDERING: Relaxed; a hint, like everything here. A socket that is registered, or a timer
        // that is armed, right after this load waits as long as one that came a moment earlier.
        let has_sockets = || self.sockets.count.load(Ordering::Relaxed) > 0;
        self.owner().is_some() || (!has_sockets() && self.timers.next_deadline_ns() > until_ns)
    }
}

fn wake_all(wakers: Vec<Waker>) {
    for waker in wakers {
        // A waker from outside the runtime that panics must not prevent the others from being
        // called.
        contain(|| waker.wake());
    }
}

/// The right to poll timers and I/O. One thread has it at a time.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    driver: &'a Driver,
    poller: Held<'a, Poller>,
}

/// Returns whether a sleep of `timeout`, as `Timers::begin_sleep` returned it, lasts until a timer
/// is due, and not for all of `at_most`, whose end need not be on time.
fn is_limited_by_timer(timeout: Option<Duration>, at_most: Option<Duration>) -> bool {
    timeout.is_some_and(|timeout| at_most.is_none_or(|at_most| timeout < at_most))
}

impl Turn<'_> {
    /// Waits as `wait` specifies, then collects the wakers of the sockets that became ready and of
    /// the timers that are due.
    ///
    /// # Errors
    /// Returns the system's error if it fails to wait for I/O. Timers that are due are collected
    /// even then. A wait interrupted by a signal is not an error; it returns early.
    pub(crate) fn poll(&mut self, wait: Wait, into: &mut Vec<Waker>) -> io::Result<Polled> {
        let timers = &self.driver.timers;
        let mut polled = Polled::default();
        let waited = match wait {
            Wait::No => self.poller.wait(Some(Duration::ZERO)),
            Wait::Paused { next_ns } => {
                // ORDERING: Relaxed; a hint. If there are sockets, data in transit between two of
                // them gets a moment to arrive.
                let has_sockets = self.driver.sockets.count.load(Ordering::Relaxed) > 0;
                let is_waiting = has_sockets || next_ns.is_none();
                self.poller.wait(Some(if is_waiting { PAUSED_TURN } else { Duration::ZERO }))
            }
            Wait::UntilTimer { at_most } => {
                let began_ns = clock::now_ns();
                let timeout = timers.begin_sleep(self.driver.now_ns(), at_most);
                let waited = if is_limited_by_timer(timeout, at_most) {
                    self.poller.wait_punctually(timeout)
                } else {
                    self.poller.wait(timeout)
                };
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

    /// Makes the kernel fail every later wait for events.
    #[cfg(all(test, target_os = "linux"))]
    pub(crate) fn break_poller(&self) {
        use std::mem::ManuallyDrop;
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

        // SAFETY: the descriptor is open, and `ManuallyDrop` keeps this owner from closing it.
        let list = unsafe { OwnedFd::from_raw_fd(self.poller.registry().as_raw_fd()) };
        let null = std::fs::File::open("/dev/null").unwrap();
        rustix::io::dup2(&null, &mut ManuallyDrop::new(list)).unwrap();
    }

    fn collect(&self, polled: &mut Polled, into: &mut Vec<Waker>) {
        let mut events = self.poller.events().peekable();
        if events.peek().is_none() {
            return;
        }
        let registrations = self.driver.sockets.table.lock();
        for (token, flags) in events {
            if token == WAKER {
                polled.was_unparked = true;
                continue;
            }
            // *Fresh token*: skip a socket that was deregistered, even if another one has its index
            // now.
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
        // ORDERING: Relaxed; a single-writer cell, as above. Workers read it as a hint
        // (`last_turn_ns`).
        counters.last_turn_ns.store(now_ns, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
