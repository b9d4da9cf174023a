//! Every public item of `super::time`: nothing here runs, but all of it has to compile with Volt's
//! types and with Tokio's.

#![allow(clippy::let_underscore_future, reason = "only the types matter")]

use std::error::Error as _;
use std::fmt::{Debug, Display};
use std::future::{Future, Ready, ready};
use std::hash::Hash;
use std::hint::black_box;
use std::io;
use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant as StdInstant;

use super::time::error::{Elapsed, Error};
use super::time::{self, Duration, Instant, Interval, MissedTickBehavior, Sleep, Timeout};

fn is_shared<T: Debug + Send + Sync>() {}
fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
fn is_instant<T: Copy + Debug + Hash + Ord + From<StdInstant> + Into<StdInstant>>() {}
fn adds<T: Add<Duration, Output = T> + AddAssign<Duration>>() {}
fn subtracts<T: Sub<Duration, Output = T> + Sub<T, Output = Duration> + SubAssign<Duration>>() {}
fn is_value<T: Copy + Debug + Default + Eq>() {}
fn is_error<T: std::error::Error + Display>() {}
fn is_eq<T: Eq>() {}
fn is_future<F: Future<Output = T>, T>() {}
fn is_into<T: Into<U>, U>() {}

/// Ambiguous for types that are `Unpin`, so that only the others compile.
trait NotUnpin<A> {
    fn check() {}
}
struct Is;
impl<T> NotUnpin<()> for T {}
impl<T: Unpin> NotUnpin<Is> for T {}

/// Refers to all that follows.
pub fn all() {
    black_box((traits, instants, sleeps, timeouts, intervals, ticks, errors));
}

fn traits() {
    is_instant::<Instant>();
    adds::<Instant>();
    subtracts::<Instant>();
    is_shared::<Sleep>();
    is_future::<Sleep, ()>();
    <Sleep as NotUnpin<_>>::check();
    is_shared::<Interval>();
    is_unwind_safe::<Instant>();
    is_value::<MissedTickBehavior>();
    is_shared::<Timeout<Ready<u8>>>();
    is_future::<Timeout<Ready<u8>>, Result<u8, Elapsed>>();
    <Timeout<Ready<u8>> as NotUnpin<_>>::check();
    is_error::<Elapsed>();
    is_eq::<Elapsed>();
    is_into::<Elapsed, io::Error>();
    is_error::<Error>();
}

fn instants(at: Instant, std: StdInstant) {
    let _: Instant = Instant::now();
    let _: Instant = Instant::from_std(std);
    let _: StdInstant = at.into_std();
    let _: Duration = at.duration_since(at);
    let _: Option<Duration> = at.checked_duration_since(at);
    let _: Duration = at.saturating_duration_since(at);
    let _: Duration = at.elapsed();
    let _: (Option<Instant>, Option<Instant>) = (at.checked_add(Duration::ZERO), at.checked_sub(Duration::ZERO));
}

fn sleeps(at: Instant, sleep: Pin<&mut Sleep>) {
    let _: (Sleep, Sleep) = (time::sleep(Duration::ZERO), time::sleep_until(at));
    let _: (Instant, bool) = (sleep.deadline(), sleep.is_elapsed());
    sleep.reset(at);
}

fn timeouts(at: Instant) {
    // Any value that becomes a future.
    let mut timeout: Timeout<Ready<u8>> = time::timeout::<Ready<u8>>(Duration::ZERO, ready(0));
    let _: Timeout<Ready<u8>> = time::timeout_at::<Ready<u8>>(at, ready(0));
    let _: &Ready<u8> = timeout.get_ref();
    let _: &mut Ready<u8> = timeout.get_mut();
    let _: Ready<u8> = timeout.into_inner();
}

fn intervals(at: Instant, interval: &mut Interval) {
    let _: (Interval, Interval) = (time::interval(Duration::ZERO), time::interval_at(at, Duration::ZERO));
    interval.reset();
    interval.reset_immediately();
    interval.reset_after(Duration::ZERO);
    interval.reset_at(at);
    let _: (MissedTickBehavior, Duration) = (interval.missed_tick_behavior(), interval.period());
    for behavior in [MissedTickBehavior::Burst, MissedTickBehavior::Delay, MissedTickBehavior::Skip] {
        interval.set_missed_tick_behavior(behavior);
    }
}

async fn ticks(interval: &mut Interval, cx: &mut Context<'_>) {
    let _: Instant = interval.tick().await;
    let _: Poll<Instant> = interval.poll_tick(cx);
}

fn errors() {
    let error: Error = Error::shutdown();
    let _: (Error, Error) = (Error::at_capacity(), Error::invalid());
    let _: (bool, bool, bool) = (error.is_shutdown(), error.is_at_capacity(), error.is_invalid());
    let _ = error.source();
}
