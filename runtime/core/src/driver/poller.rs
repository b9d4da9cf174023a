//! The kernel's ready list: mio's registrations, and the wait for what became ready.
//!
//! Shape. One `mio::Poll`, edge-triggered, one registration a socket for both directions, and the
//! buffer that one wait fills.
//!
//! Who uses it: the thread in the driver turn. Others reach the same kernel object through
//! `mio::Registry` and `mio::Waker`.
//!
//! On Linux the wait itself is `epoll_pwait2` on mio's descriptor: mio's own wait rounds a time-out
//! up to whole milliseconds, which made timers late by 1 ms more. Where the kernel lacks that call
//! (before 5.11) or a sandbox refuses it, mio waits.
//!
//! The kernel is asked to end such a sleep on time ([`Punctual`]), for the sleep only: else it ends
//! up to 50 µs late, so that several may end at once. Threads and child processes inherit that
//! *slack* of the thread that starts them, and a task may start some.
//!
//! Invariants. *Numbers*: what the kernel hands back with an event is the token that mio
//! registered, never a pointer.
//!
//! Rejected: a timerfd (a system call each time that the next deadline changes).

use std::io;
use std::time::Duration;

use mio::{Registry, Token};

use crate::driver::readiness::Flags;

/// The token of the driver's waker; no socket gets it.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// The kernel's ready list and what the last wait found in it.
#[derive(Debug)]
pub(crate) struct Poller {
    poll: mio::Poll,
    events: imp::Events,
}

impl Poller {
    /// One that takes at most `max_events` a wait.
    ///
    /// # Errors
    /// The system gives no descriptor for it.
    pub(crate) fn new(max_events: usize) -> io::Result<Self> {
        Ok(Self { poll: mio::Poll::new()?, events: imp::Events::with_capacity(max_events.max(1)) })
    }

    /// Where sockets are registered.
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits until something is ready, `timeout` has passed (`None` = for ever) or a signal came.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let _punctual = timeout.and_then(Punctual::begin);
        match self.events.fill(&mut self.poll, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            result => result,
        }
    }

    /// What the last wait found.
    pub(crate) fn events(&self) -> impl Iterator<Item = (Token, Flags)> + '_ {
        self.events.iter()
    }
}

/// Of a sleep as long as this or longer the kernel makes the slack a thousandth anyway, which is no
/// less than the usual slack.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LONG: Duration = Duration::from_millis(50);

/// While it lives, the sleeps of this thread end when they should. Where the system refuses, or
/// knows nothing of the kind, they end as before.
#[derive(Debug)]
struct Punctual;

impl Punctual {
    /// For a sleep that lasts so long.
    fn begin(timeout: Duration) -> Option<Self> {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if !timeout.is_zero() && timeout < LONG {
            let set = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            return set.is_ok().then_some(Self);
        }
        let _unused = timeout;
        None
    }
}

impl Drop for Punctual {
    /// Back to what the thread was started with.
    fn drop(&mut self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let _refused = rustix::thread::set_current_timer_slack(None);
    }
}

/// The flags that the kernel's report stands for. An error makes both directions worth a try, which
/// then returns it; it is no flag of its own, since whoever saw it first would take it from the
/// other.
fn flags(
    is_readable: bool,
    is_writable: bool,
    is_error: bool,
    is_read_closed: bool,
    is_write_closed: bool,
    is_priority: bool,
) -> Flags {
    let mut flags = Flags::NONE;
    if is_readable || is_error {
        flags = flags.and(Flags::READABLE);
    }
    if is_writable || is_error {
        flags = flags.and(Flags::WRITABLE);
    }
    if is_read_closed {
        flags = flags.and(Flags::READ_CLOSED);
    }
    if is_write_closed {
        flags = flags.and(Flags::WRITE_CLOSED);
    }
    if is_priority {
        flags = flags.and(Flags::PRIORITY);
    }
    flags
}

/// An event as mio reports it.
fn from_mio(event: &mio::event::Event) -> (Token, Flags) {
    let flags = flags(
        event.is_readable(),
        event.is_writable(),
        event.is_error(),
        event.is_read_closed(),
        event.is_write_closed(),
        event.is_priority(),
    );
    (event.token(), flags)
}

#[cfg(target_os = "linux")]
mod imp {
    use std::{fmt, io};

    use rustix::buffer::spare_capacity;
    use rustix::event::Timespec;
    use rustix::event::epoll::{self, Event, EventFlags};
    use rustix::io::Errno;

    use super::{Duration, Flags, Token, flags, from_mio};

    pub(super) struct Events {
        fine: Vec<Event>,
        /// mio's buffer, once `epoll_pwait2` was refused.
        coarse: Option<mio::Events>,
    }

    // SAFETY: Numbers: `Event` is not `Send` only because its data could be a pointer; every entry
    // of `fine` was written by the kernel from a token of mio's, and no other code makes one.
    unsafe impl Send for Events {}

    impl Events {
        pub(super) fn with_capacity(capacity: usize) -> Self {
            Self { fine: Vec::with_capacity(capacity), coarse: None }
        }

        pub(super) fn fill(&mut self, poll: &mut mio::Poll, timeout: Option<Duration>) -> io::Result<()> {
            if let Some(coarse) = &mut self.coarse {
                return poll.poll(coarse, timeout);
            }
            self.fine.clear();
            // A time-out beyond what the kernel's clock can say is none.
            let limit = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
            match epoll::wait(poll.registry(), spare_capacity(&mut self.fine), limit.as_ref()) {
                Err(Errno::NOSYS | Errno::PERM) => {
                    self.be_coarse();
                    self.fill(poll, timeout)
                }
                result => Ok(result.map(drop)?),
            }
        }

        pub(super) fn be_coarse(&mut self) {
            self.coarse = Some(mio::Events::with_capacity(self.fine.capacity()));
        }

        pub(super) fn clear(&mut self) {
            self.fine.clear();
            self.coarse.iter_mut().for_each(mio::Events::clear);
        }

        pub(super) fn iter(&self) -> impl Iterator<Item = (Token, Flags)> + '_ {
            self.fine.iter().map(from_kernel).chain(self.coarse.iter().flatten().map(from_mio))
        }
    }

    /// An event as the kernel reports it.
    fn from_kernel(event: &Event) -> (Token, Flags) {
        // Copies: the kernel's struct is packed.
        let (said, data) = (event.flags, event.data);
        let has = |flag| said.contains(flag);
        let is_hung_up = has(EventFlags::HUP);
        // The other end of a pipe is told of so, which mio knows too.
        let has_no_reader = has(EventFlags::ERR) && (has(EventFlags::OUT) || said == EventFlags::ERR);
        let flags = flags(
            has(EventFlags::IN),
            has(EventFlags::OUT),
            has(EventFlags::ERR),
            is_hung_up || has(EventFlags::RDHUP),
            is_hung_up || has_no_reader,
            has(EventFlags::PRI),
        );
        (Token(data.u64() as usize), flags)
    }

    impl fmt::Debug for Events {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.debug_struct("Events").field("fine", &self.fine.len()).field("coarse", &self.coarse).finish()
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod imp {
    use std::io;

    use super::{Duration, Flags, Token, from_mio};

    #[derive(Debug)]
    pub(super) struct Events(mio::Events);

    impl Events {
        pub(super) fn with_capacity(capacity: usize) -> Self {
            Self(mio::Events::with_capacity(capacity))
        }

        pub(super) fn fill(&mut self, poll: &mut mio::Poll, timeout: Option<Duration>) -> io::Result<()> {
            poll.poll(&mut self.0, timeout)
        }

        pub(super) fn clear(&mut self) {
            self.0.clear();
        }

        pub(super) fn iter(&self) -> impl Iterator<Item = (Token, Flags)> + '_ {
            self.0.iter().map(from_mio)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn an_error_makes_both_directions_worth_a_try_and_closes_neither() {
        assert_eq!(flags(false, false, true, false, false, false), Flags::READABLE.and(Flags::WRITABLE));
        assert_eq!(flags(true, false, false, true, false, false), Flags::READABLE.and(Flags::READ_CLOSED));
    }

    fn waits_and_is_woken(poller: &mut Poller) {
        let waker = mio::Waker::new(poller.registry(), WAKER).unwrap();
        for timeout in [Duration::from_micros(300), Duration::from_millis(2)] {
            let began = Instant::now();
            poller.wait(Some(timeout)).unwrap();
            assert!(began.elapsed() >= timeout);
            assert_eq!(poller.events().count(), 0);
        }
        waker.wake().unwrap();
        poller.wait(None).unwrap();
        assert_eq!(poller.events().map(|(token, _)| token).collect::<Vec<_>>(), [WAKER]);
        poller.wait(Some(Duration::ZERO)).unwrap();
        assert_eq!(poller.events().count(), 0, "one wake, one event");
    }

    #[test]
    fn a_wait_is_not_shorter_than_its_time_out_and_its_waker_is_sticky() {
        waits_and_is_woken(&mut Poller::new(4).unwrap());
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_punctual_sleep_has_no_slack_and_the_thread_has_it_back_then() {
        let slack_ns = || rustix::thread::current_timer_slack().unwrap();
        let usual_ns = slack_ns();
        let punctual = Punctual::begin(Duration::from_millis(1)).unwrap();
        assert_eq!(slack_ns(), 1);
        drop(punctual);
        assert_eq!(slack_ns(), usual_ns);
        assert!(Punctual::begin(Duration::ZERO).is_none() && Punctual::begin(LONG).is_none(), "of no use");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_kernel_without_fine_time_outs_is_served_all_the_same() {
        let mut poller = Poller::new(4).unwrap();
        poller.events.be_coarse();
        waits_and_is_woken(&mut poller);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_wait_of_a_fraction_of_a_millisecond_is_no_millisecond() {
        let mut poller = Poller::new(4).unwrap();
        // The shortest of many: a busy machine makes some of them longer, and no machine makes all
        // of them shorter.
        let shortest = (0..1_000).map(|_| {
            let began = Instant::now();
            poller.wait(Some(Duration::from_micros(100))).unwrap();
            began.elapsed()
        });
        assert!(shortest.min() < Some(Duration::from_micros(900)));
    }
}
