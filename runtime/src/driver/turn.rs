//! The driver: timers and I/O of one runtime, and the turn in which a single thread looks after them.
//!
//! Shape. The poller behind a lock that is only ever tried (holding it is *the driver turn*), the timers behind another, the
//! registered sockets behind a third, and the waker that ends a sleep in the poller from anywhere.
//!
//! Who writes: any worker that gets the turn. Who reads: telemetry and parkers, by loads.
//!
//! Invariants. *One turn*: at most one thread is in the poller. *Collected*: nothing here wakes anybody; wakers go into the
//! caller's list and are called when every lock is free. *Fresh token*: a token is an index and a generation, so an event for a
//! socket that is gone never reaches the one that got its index.
//!
//! Locks, in order: turn < registrations < a socket's waiters; turn < timers. Neither of the last three is held in a system call.
//!
//! Protocol of the hand-off, by a worker that is about to sleep: (1) it may be claimed, its bit is set; (2) try to get the turn: sleep in here, or, if
//! somebody else has it, on the futex. Whoever gives the turn back, after a sleep or after a look between two polls, runs on, and comes to (1) and
//! (2) again before it sleeps. So *Attended*: while all workers sleep, one sleeps in here: the last of them to try either got the turn, or saw somebody
//! have it who was asleep, or had yet to try.
//!
//! If it is eager: (3) whoever goes on to poll, after a sleep, a search or a look, fences, and if nobody has the turn and nobody searches, claims one
//! that is parked. That one finds other work and comes to (3), or none and comes to (2). So *Attended, eagerly*: while somebody sleeps, one is in here
//! or on the way, however many are stuck in polls. For the turn given back is work that was submitted, and (2) is the look for it: let P be the fence of
//! a park, and S that of the next (3) of the one who had the turn when (2) was refused. P before S: (3) sees the bit. S before P: (2) does not
//! see that turn any more. If (3) sees a searcher instead, that one comes to (2) or (3) after it has left the searchers, with a fence of its own; and if
//! it sees somebody in the turn who is gone already, that one's (3) is yet to come. Not only who brings events out of here has to do it: who was
//! called away to other work, or has only looked, leaves nobody here as well, and who was woken to lie down here may find work first.
//!
//! Protocol of a sleep: (1) the limit is agreed with the armers of timers, see `timers`; (2) sleep in the kernel; (3) take the
//! limit back; (4) collect what became ready, then what is due. `unpark` is sticky: one before (2) ends (2) at once.

use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::thread;
use std::time::Duration;

use mio::event::Source;
use mio::{Interest, Registry, Token};
use slab::Slab;

use crate::clock::{self, Both};
use crate::config::Backend;
use crate::driver::poller::{Poller, WAKER};
use crate::driver::readiness::{Flags, Readiness};
use crate::driver::test_clock::TestClock;
use crate::driver::timers::{Armed, IsShutDown, Timers};
use crate::driver::wheel::Key;
use crate::fork::Home;
use crate::shim::{AtomicU32, AtomicU64, CachePadded, Mutex, MutexGuard, Ordering};
use crate::task::contain::contain;
use crate::troubles::{Trouble, Troubles};

/// "Nobody" in `Counters::owner`.
const NOBODY: u32 = u32::MAX;
/// Bits of a token that name the index; the rest is the generation.
const INDEX_BITS: u32 = usize::BITS / 2;
/// Sockets that can be registered at once, so that no index looks like the waker's token.
const MAX_REGISTRATIONS: usize = (1 << INDEX_BITS) - 1;

/// What waits for I/O on this system.
#[cfg(any(target_os = "linux", target_os = "android"))]
const NATIVE: (Backend, &str) = (Backend::Epoll, "epoll");
/// What waits for I/O on this system.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const NATIVE: (Backend, &str) = (Backend::Kqueue, "kqueue");

/// Timers and I/O of one runtime.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) timers: Timers,
    /// Instead of the process's clock, in a runtime that was built for tests.
    pub(crate) test_clock: Option<TestClock>,
    poller: Mutex<Poller>,
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
    /// Who is in the turn. Turn.
    owner: AtomicU32,
    /// When the last look at the kernel's list ended. Turn.
    last_turn_ns: AtomicU64,
    /// Turn.
    turns: AtomicU64,
    /// Turn.
    events: AtomicU64,
    /// Registrations.
    registrations: AtomicU64,
    /// Written by any task in accept: an RMW.
    accept_backoffs: AtomicU64,
    /// Faults of the process's clock that this runtime's log was told of. Turn.
    clock_faults: AtomicU64,
}

#[derive(Debug, Default)]
struct Registrations {
    sockets: Slab<Registered>,
    /// The next socket's; comes round after 2^32 sockets, so a mistaken token needs that many within one turn.
    next_generation: usize,
    is_shut_down: bool,
}

#[derive(Debug)]
struct Registered {
    generation: usize,
    readiness: Arc<Readiness>,
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
        /// When nothing is left to be done but to wait for a timer, that one's time: unless the kernel knows better, the clock moves on to it.
        next_ns: Option<u64>,
    },
}

/// How long a turn waits under a paused clock before it looks again: whoever comes to rest tells nobody.
const PAUSED_TURN: Duration = Duration::from_millis(1);

/// How long whoever is told that the kernel's list cannot be waited for waits, so that it does not spin.
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
            owner: AtomicU32::new(NOBODY),
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
            poller: Mutex::new(poller),
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
    pub(crate) fn now(&self) -> Both {
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
    pub(crate) fn fire_due(&self) {
        let mut wakers = Vec::new();
        self.timers.fire(self.now_ns(), &mut wakers);
        wake_all(wakers);
    }

    /// Does for `at_most` so long what workers do in the driver, of whom none is left, and returns early after anything that happened.
    pub(crate) fn turn_without_workers(&self, at_most: Option<Duration>) {
        // Never so: whoever is no worker has no turn.
        let Some(mut turn) = self.try_turn(NOBODY as usize) else { return thread::yield_now() };
        let mut wakers = Vec::new();
        let polled = turn.poll(Wait::UntilTimer { at_most }, &mut wakers);
        drop(turn);
        let has_wakers = !wakers.is_empty();
        wake_all(wakers);
        if let Some(clock) = self.test_clock.as_ref().filter(|_| has_wakers) {
            clock.end_wakes();
        }
        if let Err(error) = polled {
            self.troubles.note(Trouble::DriverFailed, &error);
            thread::sleep(ERROR_PAUSE);
        }
    }

    /// The driver turn, if nobody has it; `worker` is shown as its owner until it is dropped.
    pub(crate) fn try_turn(&self, worker: usize) -> Option<Turn<'_>> {
        let poller = self.poller.try_lock()?;
        // ORDERING: Relaxed; a single-writer cell (the turn is held), read by telemetry and the choice of whom to wake last.
        self.counters.owner.store(worker as u32, Ordering::Relaxed);
        Some(Turn { driver: self, poller })
    }

    /// Where what cannot be done is noted down.
    pub(crate) fn troubles(&self) -> &Arc<Troubles> {
        &self.troubles
    }

    /// Ends the sleep of whoever is in the turn, or the next one.
    pub(crate) fn unpark(&self) {
        if let Err(error) = self.waker.wake() {
            self.troubles.note(Trouble::DriverNotWoken, &error);
        }
    }

    /// Arms a timer, and tells the sleeper if it would sleep past it.
    pub(crate) fn arm_timer(&self, deadline_ns: u64, waker: Waker) -> Result<Key, IsShutDown> {
        let (key, armed) = self.timers.arm(deadline_ns, waker)?;
        self.tell(armed);
        Ok(key)
    }

    /// Moves a timer, and tells the sleeper if it would sleep past it; false if the timer has fired.
    pub(crate) fn reset_timer(&self, key: Key, deadline_ns: u64) -> bool {
        let armed = self.timers.reset(key, deadline_ns);
        armed.map(|armed| self.tell(armed)).is_some()
    }

    fn tell(&self, armed: Armed) {
        if armed == Armed::BeforeLimit {
            self.unpark();
        }
    }

    /// Registers a socket, for both directions as a rule.
    ///
    /// # Errors
    /// The runtime is shut down, there are too many sockets, or what the system says.
    pub(crate) fn register(
        &self,
        source: &mut impl Source,
        interest: Interest,
        begin: Flags,
    ) -> io::Result<(Token, Arc<Readiness>)> {
        let readiness = Arc::new(Readiness::new(begin));
        let token = self.enter(readiness.clone())?;
        if let Err(error) = self.registry.register(source, token, interest) {
            self.leave(token);
            return Err(error);
        }
        Ok((token, readiness))
    }

    /// Takes a socket out again. Its descriptor is still open, since the kernel's list goes by descriptors.
    pub(crate) fn deregister(&self, source: &mut impl Source, token: Token) -> io::Result<()> {
        if !self.home.is_here() {
            // A forked child's copy of a socket: the list is the parent's too, and its own copy stays in it.
            return Ok(());
        }
        let result = self.registry.deregister(source);
        self.leave(token);
        result
    }

    fn enter(&self, readiness: Arc<Readiness>) -> io::Result<Token> {
        let mut registrations = self.registrations.lock();
        if registrations.is_shut_down {
            return Err(io::Error::other("the runtime is shut down"));
        }
        if registrations.sockets.len() >= MAX_REGISTRATIONS {
            return Err(io::Error::other(format!("{MAX_REGISTRATIONS} sockets are registered, and no more can be")));
        }
        let generation = registrations.next_generation;
        registrations.next_generation = (generation + 1) % (1 << INDEX_BITS);
        let index = registrations.sockets.insert(Registered { generation, readiness });
        self.publish(&registrations);
        Ok(Token(generation << INDEX_BITS | index))
    }

    fn leave(&self, token: Token) {
        let mut registrations = self.registrations.lock();
        let registered = registrations.sockets.try_remove(index_of(token));
        self.publish(&registrations);
        // Whoever is still in the queue of its waiters goes after the lock.
        drop(registrations);
        drop(registered);
    }

    fn publish(&self, registrations: &MutexGuard<'_, Registrations>) {
        // ORDERING: Relaxed; a single-writer cell (the lock is held), read by telemetry only.
        self.counters.registrations.store(registrations.sockets.len() as u64, Ordering::Relaxed);
    }

    /// Ends every wait: I/O with an error now and for ever, timers as `time::sleep` says. Sockets and timers that outlive the
    /// runtime may still be dropped.
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
    pub(crate) fn count_accept_backoff(&self) {
        // ORDERING: Relaxed; an RMW, since any task may do it; read by telemetry only.
        self.counters.accept_backoffs.fetch_add(1, Ordering::Relaxed);
    }

    /// When the last look at the kernel's ready list ended: ns on the process's clock.
    #[inline]
    pub(crate) fn last_turn_ns(&self) -> u64 {
        // ORDERING: Relaxed; a hint to a worker whether a look is due.
        self.counters.last_turn_ns.load(Ordering::Relaxed)
    }

    /// The worker in the turn.
    #[inline]
    pub(crate) fn owner(&self) -> Option<usize> {
        // ORDERING: Relaxed; a hint, out of date as soon as it is read.
        let owner = self.counters.owner.load(Ordering::Relaxed);
        (owner != NOBODY).then_some(owner as usize)
    }

    /// Whether timers and I/O are looked after until then, or nothing is to be expected: no socket, and no timer before `until_ns`.
    pub(crate) fn can_wait_until(&self, until_ns: u64) -> bool {
        // ORDERING: Relaxed; a hint, as all here: who registers a socket or arms a timer now waits as long as if it came a moment earlier.
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

fn index_of(token: Token) -> usize {
    token.0 & MAX_REGISTRATIONS
}

/// The right to look after timers and I/O; one thread has it at a time.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    driver: &'a Driver,
    poller: MutexGuard<'a, Poller>,
}

impl Turn<'_> {
    /// Waits as `wait` says, then collects the wakers of sockets that became ready and of timers that are due.
    ///
    /// # Errors
    /// What the system says of sockets; interrupted by a signal is none, just an early return. Timers that are due are collected also then.
    pub(crate) fn poll(&mut self, wait: Wait, into: &mut Vec<Waker>) -> io::Result<Polled> {
        let timers = &self.driver.timers;
        let mut polled = Polled::default();
        let waited = match wait {
            Wait::No => self.poller.wait(Some(Duration::ZERO)),
            Wait::Paused { next_ns } => {
                // ORDERING: Relaxed; a hint: what is on its way between two sockets is given a moment to arrive.
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
        let now_ns = clock::tend();
        self.report_clock();
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

    /// Tells this runtime's log that the process's clock has lost its counter.
    fn report_clock(&self) {
        let (cell, faults) = (&self.driver.counters.clock_faults, clock::faults());
        // ORDERING: Relaxed, both; a single-writer cell (the turn is held).
        if cell.load(Ordering::Relaxed) == faults {
            return;
        }
        cell.store(faults, Ordering::Relaxed);
        if let Some((fault, is_last)) = clock::last_fault() {
            let then = if is_last { "it is not used again" } else { "it is measured anew" };
            self.driver.troubles.note(Trouble::ClockFault, &io::Error::other(format!("{}; {then}", fault.text())));
        }
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

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; a single-writer cell: the lock goes after this.
        self.driver.counters.owner.store(NOBODY, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::readiness::Direction;
    use std::io::Write;
    use std::net;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Wake};
    use std::time::Instant;

    const BOTH: Interest = Interest::READABLE.add(Interest::WRITABLE);
    const FOREVER: Wait = Wait::UntilTimer { at_most: None };

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn troubles() -> Arc<Troubles> {
        Arc::new(Troubles::new("none", true))
    }

    fn driver() -> Driver {
        Driver::new(None, 64, troubles()).unwrap()
    }

    fn pair() -> (net::TcpStream, mio::net::TcpStream) {
        let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (here, _) = listener.accept().unwrap();
        here.set_nonblocking(true).unwrap();
        (there, mio::net::TcpStream::from_std(here))
    }

    #[test]
    fn a_backend_that_is_not_there_is_an_error_that_names_one_that_is() {
        let foreign = if NATIVE.0 == Backend::Epoll { Backend::Kqueue } else { Backend::Epoll };
        let error = Driver::new(Some(foreign), 64, troubles()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert!(
            error.to_string().contains(&format!("{foreign:?}")) && error.to_string().contains("ask for"),
            "{error}"
        );
        assert!(Driver::new(Some(NATIVE.0), 64, troubles()).is_ok());
    }

    #[test]
    fn at_most_one_thread_has_the_turn_and_it_is_shown_as_the_owner() {
        let driver = driver();
        let turn = driver.try_turn(3).unwrap();
        assert!(driver.try_turn(4).is_none());
        assert_eq!(driver.owner(), Some(3));
        drop(turn);
        assert_eq!(driver.owner(), None);
        assert!(driver.try_turn(4).is_some());
    }

    #[test]
    fn an_unpark_before_the_sleep_ends_it_at_once() {
        let driver = driver();
        driver.unpark();
        let polled = driver.try_turn(0).unwrap().poll(FOREVER, &mut Vec::new()).unwrap();
        assert_eq!(polled, Polled { was_unparked: true, ..Polled::default() });
    }

    #[test]
    fn a_timer_armed_while_the_driver_sleeps_for_an_hour_ends_the_sleep_on_time() {
        let driver = driver();
        let _hour = driver.arm_timer(clock::now_ns() + 3_600_000_000_000, Waker::noop().clone()).unwrap();
        let long = Wait::UntilTimer { at_most: Some(Duration::from_secs(10)) };
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut turn = driver.try_turn(0).unwrap();
                barrier.wait();
                let mut wakers = Vec::new();
                while wakers.is_empty() {
                    let polled = turn.poll(long, &mut wakers).unwrap();
                    assert!(!polled.timed_out, "the sleeper was not told");
                }
            });
            barrier.wait();
            let began = Instant::now();
            let soon_ns = clock::now_ns() + 5_000_000;
            let _soon = driver.arm_timer(soon_ns, Waker::noop().clone()).unwrap();
            while !driver.timers.has_fired(soon_ns) {
                assert!(began.elapsed() < Duration::from_secs(5), "late");
                std::thread::yield_now();
            }
            assert!(began.elapsed() >= Duration::from_millis(5), "early");
        });
    }

    #[test]
    fn a_sleep_with_a_limit_times_out_and_one_that_fires_a_timer_did_not() {
        let driver = driver();
        let limit = Wait::UntilTimer { at_most: Some(Duration::from_millis(2)) };
        let mut turn = driver.try_turn(0).unwrap();
        let polled = turn.poll(limit, &mut Vec::new()).unwrap();
        assert_eq!(polled, Polled { timed_out: true, ..Polled::default() });
        let _due = driver.arm_timer(0, Waker::noop().clone()).unwrap();
        let polled = turn.poll(limit, &mut Vec::new()).unwrap();
        assert_eq!(polled, Polled { timers_fired: 1, ..Polled::default() });
        assert_eq!(driver.telemetry(clock::now_ns()).0.turns, 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn timers_fire_while_the_kernels_list_cannot_be_waited_for() {
        use std::mem::ManuallyDrop;
        use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

        let driver = driver();
        let _due = driver.arm_timer(0, Waker::noop().clone()).unwrap();
        let mut turn = driver.try_turn(0).unwrap();
        // SAFETY: it is open, and this owner does not close it.
        let list = unsafe { OwnedFd::from_raw_fd(turn.poller.registry().as_raw_fd()) };
        let null = std::fs::File::open("/dev/null").unwrap();
        rustix::io::dup2(&null, &mut ManuallyDrop::new(list)).unwrap();
        for (wait, timers_fired) in [(Wait::No, 1), (FOREVER, 0)] {
            let mut wakers = Vec::new();
            assert_eq!(turn.poll(wait, &mut wakers).unwrap_err().kind(), io::ErrorKind::InvalidInput);
            assert_eq!(wakers.len(), timers_fired);
        }
    }

    #[test]
    fn data_wakes_the_reader_and_hang_up_ends_every_wait() {
        let driver = driver();
        let (mut there, mut here) = pair();
        let (token, readiness) = driver.register(&mut here, BOTH, Flags::NONE).unwrap();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        assert!(readiness.poll_ready(&mut cx, Direction::Read).is_pending());
        there.write_all(b"x").unwrap();
        let mut wakers = Vec::new();
        while wakers.is_empty() {
            driver.try_turn(0).unwrap().poll(FOREVER, &mut wakers).unwrap();
        }
        wakers.drain(..).for_each(Waker::wake);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(readiness.look(Direction::Read).unwrap().is_some());

        readiness.clear(readiness.look(Direction::Read).unwrap().unwrap());
        assert!(readiness.poll_ready(&mut cx, Direction::Read).is_pending());
        drop(there);
        while wakers.is_empty() {
            driver.try_turn(0).unwrap().poll(FOREVER, &mut wakers).unwrap();
        }
        readiness.clear(readiness.look(Direction::Read).unwrap().unwrap());
        assert!(readiness.look(Direction::Read).unwrap().is_some(), "closed stays closed");
        driver.deregister(&mut here, token).unwrap();
        assert_eq!(driver.telemetry(0).0.registrations, 0);
    }

    #[test]
    fn an_event_for_a_socket_that_is_gone_does_not_reach_the_next_one_at_its_index() {
        let driver = driver();
        let (mut there, mut here) = pair();
        let (token, _) = driver.register(&mut here, BOTH, Flags::NONE).unwrap();
        there.write_all(b"x").unwrap();
        let mut turn = driver.try_turn(0).unwrap();
        // The event is in the buffer; before it is handed out the socket goes and another comes.
        turn.poller.wait(None).unwrap();
        driver.deregister(&mut here, token).unwrap();
        let (_there, mut other) = pair();
        let (new_token, readiness) = driver.register(&mut other, BOTH, Flags::NONE).unwrap();
        assert_eq!(index_of(token), index_of(new_token), "the index was not used again, the test tests nothing");
        let mut polled = Polled::default();
        turn.collect(&mut polled, &mut Vec::new());
        assert_eq!(polled.events, 0);
        assert!(readiness.look(Direction::Read).unwrap().is_none());
    }

    #[test]
    fn after_shut_down_nothing_waits_and_nothing_new_is_taken() {
        let driver = driver();
        let (_there, mut here) = pair();
        let (token, readiness) = driver.register(&mut here, BOTH, Flags::NONE).unwrap();
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        assert!(readiness.poll_ready(&mut Context::from_waker(&waker), Direction::Read).is_pending());
        let _timer = driver.arm_timer(u64::MAX, waker.clone()).unwrap();
        driver.shut_down();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert!(driver.arm_timer(0, waker).is_err());
        let (_there, mut late) = pair();
        assert!(driver.register(&mut late, BOTH, Flags::NONE).is_err());
        driver.deregister(&mut here, token).unwrap();
    }
}
