//! `sleep`, the timer on which all other timers of Volt are built.
//!
//! A [`Sleep`] consists of a deadline and, once it was polled, the key of its entry in the
//! runtime's timer wheel, with the identity of the waker in that entry. Volt's own code uses
//! [`RawSleep`], which is the same without a pin.
//!
//! Invariants:
//! * *Last waker*: the wheel contains the waker of the last poll.
//! * *The clock decides*: a sleep is over when both the program's clock and the system clock have
//!   passed the deadline, not when it was woken. A superfluous wake-up costs a poll, and the sleep
//!   never ends early. A timer that fires before the system clock has reached the deadline, because
//!   the program's clock was corrected meanwhile, is armed again.
//! * *Same waker*: two wakers with the same identity wake the same task as long as one of them
//!   lives. The one in the wheel lives until its timer has fired and it was called; that is checked
//!   first.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::{self, Duration};

use pin_project_lite::pin_project;

use crate::driver::readiness::ShutDownError;
use crate::driver::timers::IsShutDown;
use crate::driver::wheel::Key;
use crate::instant::Instant;
use crate::scheduler::lease::DriverLease;
use crate::{clock, context, coop};

/// The longest distance of a deadline that is given as a duration: 30 years, since `Instant` has no
/// maximum.
const FAR: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Waits until `duration` has elapsed.
///
/// Never completes early. Timers have a resolution of 160 µs (see the module `volt::time`). On an
/// idle machine, a sleep usually completes less than half a millisecond late. A duration of more
/// than 30 years is cut to 30 years.
///
/// # Panics
/// Panics if called outside a runtime or in one with
/// [`disable_time`](crate::builder::Builder::disable_time), and if awaited after the runtime was
/// shut down.
///
/// # Cancel safety
/// Cancel safe: dropping the future disarms the timer.
///
/// ```
/// # use volt_core as volt;
/// use volt::time::{Duration, Instant, sleep};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let began = Instant::now();
/// sleep(Duration::from_millis(10)).await;
/// assert!(began.elapsed() >= Duration::from_millis(10));
/// # });
/// ```
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    Sleep { raw: RawSleep::after(context::timers(), duration) }
}

/// Waits until `deadline`. If it has passed, the first poll completes.
///
/// # Panics
/// Panics in the same cases as [`sleep`].
///
/// # Cancel safety
/// The same as for [`sleep`].
///
/// ```
/// # use volt_core as volt;
/// use volt::time::{Duration, Instant, sleep_until};
///
/// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
/// # runtime.block_on(async {
/// let deadline = Instant::now() + Duration::from_millis(5);
/// sleep_until(deadline).await;
/// assert!(Instant::now() >= deadline);
/// # });
/// ```
#[track_caller]
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { raw: RawSleep::until(context::timers(), deadline) }
}

/// Returns whether `duration` leads from now to an instant that can be represented.
pub fn is_reachable(duration: Duration) -> bool {
    duration <= FAR || Instant::now().checked_add(duration).is_some()
}

/// Returns `start + duration`. Cuts the duration to 30 years, and returns `start` if the sum cannot
/// be represented.
pub fn after(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration.min(FAR)).unwrap_or(start)
}

pin_project! {
    /// The future returned by [`sleep`] and [`sleep_until`].
    ///
    /// It must be pinned to be polled or [reset](Self::reset): by `.await`, with `volt::pin!` or
    /// [`std::pin::pin!`], or in a `Box::pin`.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant, sleep};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut pause = std::pin::pin!(sleep(Duration::from_millis(5)));
    /// pause.as_mut().await;
    /// assert!(pause.is_elapsed());
    /// pause.as_mut().reset(Instant::now() + Duration::from_millis(5));
    /// pause.await;
    /// # });
    /// ```
    #[project(!Unpin)]
    #[must_use = "futures do nothing unless you `.await` or poll them"]
    pub struct Sleep {
        raw: RawSleep,
    }
}

impl Sleep {
    /// Returns the instant at which the sleep ends.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant, sleep_until};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let deadline = Instant::now() + Duration::from_secs(3600);
    /// assert_eq!(sleep_until(deadline).deadline(), deadline);
    /// # });
    /// ```
    pub fn deadline(&self) -> Instant {
        self.raw.deadline()
    }

    /// Returns whether the sleep has ended: a poll has completed it, or its timer has fired.
    ///
    /// Returns false for a sleep that was neither polled nor [reset](Self::reset), even after its
    /// deadline. A reset arms no timer if the sleep had ended or was never polled. Until its next
    /// poll, such a sleep counts as ended once its new deadline has passed.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Instant, sleep_until};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut sleep = std::pin::pin!(sleep_until(Instant::now()));
    /// assert!(!sleep.is_elapsed());
    /// sleep.as_mut().await;
    /// assert!(sleep.is_elapsed());
    /// # });
    /// ```
    pub fn is_elapsed(&self) -> bool {
        self.raw.is_elapsed()
    }

    /// Changes the deadline to an earlier or a later one, also after the sleep has ended.
    ///
    /// If the timer is pending, the task that polled the sleep last is woken at the new deadline.
    /// If it has fired, or the sleep was never polled, only the next poll arms it again. The sleep
    /// stays on the runtime in which it was created.
    ///
    /// ```
    /// # use volt_core as volt;
    /// use volt::time::{Duration, Instant, sleep};
    ///
    /// # let runtime = volt::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    /// # runtime.block_on(async {
    /// let mut sleep = std::pin::pin!(sleep(Duration::from_secs(3600)));
    /// sleep.as_mut().reset(Instant::now() + Duration::from_millis(5));
    /// sleep.await;
    /// # });
    /// ```
    pub fn reset(self: Pin<&mut Self>, deadline: Instant) {
        self.project().raw.reset(deadline);
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(self.project().raw).poll(cx)
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.raw.fmt(f)
    }
}

/// A [`Sleep`] that needs no pin: for intervals, timeouts and sockets, which own one each.
#[must_use = "futures do nothing unless you `.await` or poll them"]
pub struct RawSleep {
    driver: DriverLease,
    deadline: Instant,
    /// The deadline on the program's clock.
    deadline_ns: u64,
    /// The entry in the wheel. It may have fired since.
    armed: Option<Armed>,
    /// Whether it was polled or reset since it was created.
    is_started: bool,
}

struct Armed {
    key: Key,
    waker: Identity,
}

/// The identity of the waker in the wheel. A clone of it instead would cost two read-modify-writes
/// per sleep. It is not the identity of the waker that was cloned: a poll for a dump passes a waker
/// whose clones differ from it.
#[derive(PartialEq, Eq)]
struct Identity {
    data: usize,
    vtable: usize,
}

impl Identity {
    #[inline]
    fn of(waker: &Waker) -> Self {
        Self { data: waker.data().addr(), vtable: std::ptr::from_ref(waker.vtable()).addr() }
    }
}

impl RawSleep {
    /// Creates a sleep on `driver`, which may belong to another runtime than the current one.
    pub fn until(driver: DriverLease, deadline: Instant) -> RawSleep {
        let deadline_ns = driver.now().ns_of(deadline.into_std());
        RawSleep::new(driver, deadline, deadline_ns)
    }

    /// Creates a sleep of `duration` on `driver`. Durations of more than 30 years are cut.
    #[inline]
    pub fn after(driver: DriverLease, duration: Duration) -> RawSleep {
        let end = driver.now().later(duration.min(FAR));
        RawSleep::new(driver, end.now.into(), end.now_ns())
    }

    #[inline]
    fn new(driver: DriverLease, deadline: Instant, deadline_ns: u64) -> RawSleep {
        RawSleep { driver, deadline, deadline_ns, armed: None, is_started: false }
    }

    /// Returns the current time on the clock that the sleep uses.
    pub fn now(&self) -> Instant {
        self.driver.now().now.into()
    }

    /// See [`Sleep::deadline`].
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// See [`Sleep::is_elapsed`].
    fn is_elapsed(&self) -> bool {
        let is_armed = || self.armed.is_some() && !self.driver.timers.has_fired(self.deadline_ns);
        self.is_started && self.is_due() && !is_armed()
    }

    /// Returns whether the deadline has passed, on both clocks.
    fn is_due(&self) -> bool {
        // The program's clock stays within microseconds of the system's. The sleep must not end
        // early on either of them.
        match &self.driver.test_clock {
            None => clock::now_ns() >= self.deadline_ns && time::Instant::now() >= self.deadline.into_std(),
            Some(clock) => clock.now_ns() >= self.deadline_ns,
        }
    }

    /// See [`Sleep::reset`].
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        self.is_started = true;
        self.move_timer();
    }

    /// Moves the timer to where the deadline is on the program's clock.
    fn move_timer(&mut self) {
        self.deadline_ns = self.driver.now().ns_of(self.deadline.into_std());
        let armed = self.armed.as_ref();
        if !armed.is_some_and(|armed| self.driver.reset_timer(armed.key, self.deadline_ns)) {
            self.armed = None;
        }
    }

    /// Changes the deadline and disarms the timer; only the next poll arms it again.
    pub fn reset_disarmed(&mut self, deadline: Instant) {
        self.disarm();
        self.deadline = deadline;
        self.deadline_ns = self.driver.now().ns_of(deadline.into_std());
    }

    /// Polls the sleep without the cooperative budget.
    #[inline]
    pub fn poll_elapsed(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_or_shut_down(cx).map(|slept| assert!(slept.is_ok(), "{SHUT_DOWN}"))
    }

    /// Polls the sleep as [`poll_elapsed`](Self::poll_elapsed) does, as part of an I/O operation.
    ///
    /// # Errors
    /// Fails if the runtime is shut down, so that the timer would never fire.
    pub fn poll_in_operation(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_or_shut_down(cx).map_err(|IsShutDown| ShutDownError::io())
    }

    /// Waits as part of an I/O operation.
    ///
    /// # Errors
    /// See [`poll_in_operation`](Self::poll_in_operation).
    pub async fn in_operation(mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_in_operation(cx)).await
    }

    /// Always inlined: each poll of a timeout or a sleep comes through here, and must not inspect
    /// the result a second time.
    #[inline(always)]
    fn poll_or_shut_down(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), IsShutDown>> {
        self.is_started = true;
        while !self.is_due() {
            // Checked in each iteration, since a shutdown, too, removes the entry from the wheel.
            if self.driver.timers.is_shut_down() {
                return Poll::Ready(Err(IsShutDown));
            }
            match &mut self.armed {
                // See *The clock decides*.
                Some(_) if self.driver.timers.has_fired(self.deadline_ns) => self.move_timer(),
                // See *Same waker*.
                Some(armed) if armed.waker == Identity::of(cx.waker()) => return Poll::Pending,
                Some(armed) => {
                    let stored = cx.waker().clone();
                    let waker = Identity::of(&stored);
                    if self.driver.timers.set_waker(armed.key, stored) {
                        armed.waker = waker;
                        return Poll::Pending;
                    }
                    // It fired in between: the clock has moved.
                    self.armed = None;
                }
                None => {
                    let stored = cx.waker().clone();
                    let waker = Identity::of(&stored);
                    let key = self.driver.arm_timer(self.deadline_ns, stored)?;
                    self.armed = Some(Armed { key, waker });
                    return Poll::Pending;
                }
            }
        }
        self.disarm();
        Poll::Ready(Ok(()))
    }

    fn disarm(&mut self) {
        if let Some(armed) = self.armed.take()
            && !self.driver.timers.has_fired(self.deadline_ns)
        {
            self.driver.timers.disarm(armed.key);
        }
    }
}

/// The message of the panic if a sleep can never end. Its beginning is Tokio's message, for which
/// programs search.
const SHUT_DOWN: &str = "A Tokio 1.x context was found, but it is being shutdown. The Volt runtime of this timer is shut down, so \
                         the timer would never fire";

impl Future for RawSleep {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let unit = ready!(coop::poll_proceed(cx));
        ready!(self.poll_elapsed(cx));
        unit.made_progress();
        Poll::Ready(())
    }
}

impl Drop for RawSleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

impl fmt::Debug for RawSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .field("is_armed", &self.armed.is_some())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::builder::Builder;

    #[test]
    fn a_sleep_rearms_if_its_timer_fires_before_the_deadline() {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (ended, end) = mpsc::channel();
        let task = runtime.spawn(async move {
            let began = Instant::now();
            let mut sleep = sleep(Duration::from_millis(30));
            // As if the program's clock had been behind when the sleep was created, and was
            // corrected since.
            sleep.raw.deadline_ns = clock::now_ns() + 1_000_000;
            sleep.await;
            ended.send(began.elapsed()).unwrap();
        });
        let took = end.recv_timeout(Duration::from_secs(10)).expect("the sleep ends");
        assert!(took >= Duration::from_millis(30), "{took:?}");
        runtime.block_on(task).unwrap();
    }
}
