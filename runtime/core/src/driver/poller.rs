//! The poller: mio's wrapper of the kernel's ready list, and the wait for sockets that became
//! ready.
//!
//! The thread in the driver turn uses it. Other threads reach the same kernel object through
//! `mio::Registry` and `mio::Waker`. The poller consists of one `mio::Poll`, edge-triggered, with
//! one registration per socket for both directions, and the buffer that a wait fills.
//!
//! On Linux the wait itself is `epoll_pwait2` on mio's descriptor. mio's own wait rounds a time-out
//! up to whole milliseconds, which made timers up to 1 ms later. mio waits where the kernel lacks
//! that call (before 5.11) or a sandbox refuses it.
//!
//! For the duration of a sleep that a timer will end, the thread requests that the kernel end it on
//! time ([`Punctual`]). By default the kernel ends a sleep up to 50 µs late, so that several can
//! end together. This *slack* is set back after the sleep, since threads and child processes
//! inherit it from the thread that starts them, and a task may start some. That takes two system
//! calls, so other sleeps do without: a busy server sleeps for some µs before each request.
//!
//! Invariants. *Numbers*: the value that the kernel returns with an event is the token that mio
//! registered, never a pointer.
//!
//! Rejected: a timerfd (a system call each time the next deadline changes).

use std::io;
use std::time::Duration;

use mio::{Registry, Token};

use crate::driver::readiness::Flags;

/// The token of the driver's waker. No socket gets it.
pub(crate) const WAKER: Token = Token(usize::MAX);

/// The kernel's ready list and the result of the last wait.
#[derive(Debug)]
pub(crate) struct Poller {
    poll: mio::Poll,
    events: imp::Events,
}

impl Poller {
    /// Creates a poller that accepts at most `max_events` per wait.
    ///
    /// # Errors
    /// Returns an error if the system provides no descriptor for it.
    pub(crate) fn new(max_events: usize) -> io::Result<Self> {
        Ok(Self { poll: mio::Poll::new()?, events: imp::Events::with_capacity(max_events.max(1)) })
    }

    /// Returns the registry in which sockets are registered.
    pub(crate) fn registry(&self) -> &Registry {
        self.poll.registry()
    }

    /// Waits as [`wait`](Self::wait) does, but ends on time when `timeout` has passed.
    pub(crate) fn wait_punctually(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let _punctual = timeout.and_then(Punctual::begin);
        self.wait(timeout)
    }

    /// Waits until a socket is ready, `timeout` has passed (`None`: no time-out) or a signal came.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.events.fill(&mut self.poll, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.events.clear();
                Ok(())
            }
            result => result,
        }
    }

    /// Returns the events of the last wait.
    pub(crate) fn events(&self) -> impl Iterator<Item = (Token, Flags)> + '_ {
        self.events.iter()
    }
}

/// For a sleep of this length or more, the kernel sets the slack to a thousandth of it anyway,
/// which is no less than the usual slack.
#[cfg(any(target_os = "linux", target_os = "android"))]
const LONG: Duration = Duration::from_millis(50);

/// While it lives, the sleeps of this thread end on time. If the system refuses or does not support
/// that, the kernel may end them late, as it does by default.
#[derive(Debug)]
struct Punctual;

impl Punctual {
    /// Begins a sleep that lasts for `timeout`.
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
    /// Sets the slack back to the value with which the thread was started.
    fn drop(&mut self) {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let _refused = rustix::thread::set_current_timer_slack(None);
    }
}

/// Returns the flags for an event of the kernel. An error sets both directions, so that an attempt
/// in either returns it, even after a task has cleared `ERROR`.
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
    if is_error {
        flags = flags.and(Flags::ERROR);
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

/// Converts an event of mio, which calls a socket with priority data readable. So where mio waits,
/// urgent data wakes the reader of a TCP stream (see *Marks* in `readiness`).
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

    // SAFETY: Numbers: `Event` is not `Send` only because its data could be a pointer. Every entry
    // of `fine` was written by the kernel from a token of mio's, and no other code creates one.
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
            // A time-out beyond the range of the kernel's clock means none.
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

    /// Converts an event of the kernel.
    fn from_kernel(event: &Event) -> (Token, Flags) {
        // Copies: the kernel's struct is packed.
        let (said, data) = (event.flags, event.data);
        let has = |flag| said.contains(flag);
        let is_hung_up = has(EventFlags::HUP);
        // This is how the kernel reports to a pipe's writer that there is no reader; mio does the
        // same.
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
    fn an_error_event_sets_readable_and_writable_but_not_closed() {
        let set = Flags::READABLE.and(Flags::WRITABLE).and(Flags::ERROR);
        assert_eq!(flags(false, false, true, false, false, false), set);
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
    fn a_driver_wait_lasts_its_timeout_and_its_waker_is_sticky() {
        waits_and_is_woken(&mut Poller::new(4).unwrap());
    }

    #[cfg(all(target_os = "linux", not(miri)))]
    #[test]
    fn a_punctual_sleep_removes_timer_slack_and_restores_it() {
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
    fn a_kernel_without_fine_time_outs_is_supported() {
        let mut poller = Poller::new(4).unwrap();
        poller.events.be_coarse();
        waits_and_is_woken(&mut poller);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_wait_of_a_fraction_of_a_millisecond_is_no_millisecond() {
        let mut poller = Poller::new(4).unwrap();
        // The shortest of many: a busy machine makes some of them longer, but no wait of a whole
        // millisecond is shorter than that.
        let shortest = (0..1_000).map(|_| {
            let began = Instant::now();
            poller.wait_punctually(Some(Duration::from_micros(100))).unwrap();
            began.elapsed()
        });
        assert!(shortest.min() < Some(Duration::from_micros(900)));
    }
}
