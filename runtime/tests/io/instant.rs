//! `volt::time::Instant`, `Sleep`, `Timeout` and their errors, as programs see them.

use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use volt::Runtime;
use volt::time::error::{Elapsed, Error};
use volt::time::{self, Instant, MissedTickBehavior, interval, interval_at, sleep, sleep_until, timeout, timeout_at};

use crate::watchdog::{self, watched};

const HOUR: Duration = Duration::from_secs(3600);
const YEAR: Duration = Duration::from_secs(365 * 86_400);

fn paused(workers: usize) -> Runtime {
    watchdog::builder(workers).start_paused(true).build().unwrap()
}

fn is_pending<F: Future>(future: Pin<&mut F>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[test]
fn instants_of_a_runtime_follow_its_paused_clock() {
    watched(|| {
        let runtime = paused(2);
        let began = runtime.block_on(async { Instant::now() });
        runtime.block_on(async { time::advance(HOUR).await });
        let later = began + HOUR;
        assert_eq!(runtime.block_on(async { Instant::now() }), later);
        assert_eq!(runtime.block_on(runtime.spawn(async { Instant::now() })).unwrap(), later);
        assert_eq!(runtime.block_on(runtime.spawn_blocking(Instant::now)).unwrap(), later);
        let _entered = runtime.enter();
        assert_eq!(Instant::now(), later);
        assert_eq!(began.elapsed(), HOUR);
    });
}

#[test]
fn instants_elsewhere_follow_the_system_clock() {
    watched(|| {
        let paused = paused(1);
        paused.block_on(time::advance(HOUR));
        let is_real = || {
            let before = std::time::Instant::now();
            let now = Instant::now().into_std();
            before <= now && now <= std::time::Instant::now()
        };
        assert!(is_real(), "outside a runtime");
        let other = watchdog::runtime(1);
        assert!(other.block_on(async { is_real() }), "in a runtime without a test clock");
        let _paused = paused.enter();
        assert!(!is_real());
        let _other = other.enter();
        assert!(is_real(), "the runtime that was entered last");
        assert!(thread::scope(|scope| scope.spawn(is_real).join().unwrap()), "on another thread");
    });
}

#[test]
fn instants_convert_compare_and_add_as_std_ones_do() {
    let std = std::time::Instant::now();
    let (now, later) = (Instant::from_std(std), Instant::from(std + HOUR));
    assert_eq!((now.into_std(), std::time::Instant::from(later)), (std, std + HOUR));
    assert_eq!(format!("{now:?}"), format!("{std:?}"));
    assert!(now < later && now.max(later) == later);
    assert_eq!((now + HOUR, later - HOUR), (later, now));
    let mut moved = now;
    moved += 2 * HOUR;
    moved -= HOUR;
    assert_eq!(moved, later);
    assert_eq!((later - now, now - later), (HOUR, Duration::ZERO));
    assert_eq!((later.duration_since(now), now.duration_since(later)), (HOUR, Duration::ZERO));
    assert_eq!((later.saturating_duration_since(now), now.saturating_duration_since(later)), (HOUR, Duration::ZERO));
    assert_eq!((later.checked_duration_since(now), now.checked_duration_since(later)), (Some(HOUR), None));
    assert_eq!((now.checked_add(HOUR), now.checked_add(Duration::MAX)), (Some(later), None));
    assert_eq!((later.checked_sub(HOUR), now.checked_sub(Duration::MAX)), (Some(now), None));
    assert_eq!((later + HOUR).elapsed(), Duration::ZERO, "in the future");
}

#[test]
fn a_sleep_is_elapsed_only_after_it_was_polled_or_reset() {
    watched(|| {
        let runtime = paused(1);
        runtime.block_on(async {
            let mut sleep = pin!(sleep_until(Instant::now()));
            time::advance(HOUR).await;
            assert!(!sleep.is_elapsed(), "neither polled nor reset");
            sleep.as_mut().await;
            assert!(sleep.is_elapsed(), "completed by a poll");
            let deadline = Instant::now() + HOUR;
            sleep.as_mut().reset(deadline);
            assert!(!sleep.is_elapsed() && sleep.deadline() == deadline);
            time::advance(HOUR).await;
            assert!(sleep.is_elapsed(), "reset, and then due");
            sleep.as_mut().reset(Instant::now() + HOUR);
            assert!(is_pending(sleep.as_mut()) && !sleep.is_elapsed());
            time::advance(HOUR).await;
            assert!(sleep.is_elapsed(), "its timer has fired");
        });
    });
}

#[test]
fn a_sleep_stays_on_the_clock_of_its_runtime() {
    watched(|| {
        let (own, other) = (paused(1), paused(1));
        other.block_on(time::advance(HOUR));
        let _entered = own.enter();
        let began = Instant::now();
        let mut sleep = pin!(sleep(HOUR));
        assert!(is_pending(sleep.as_mut()));
        other.block_on(async { sleep.as_mut().reset(began + 2 * HOUR) });
        own.block_on(sleep);
        assert_eq!(began.elapsed(), 2 * HOUR);
    });
}

#[test]
fn the_longest_sleep_is_thirty_years() {
    watched(|| {
        paused(1).block_on(async {
            time::advance(40 * YEAR).await;
            let began = Instant::now();
            sleep(Duration::MAX).await;
            assert_eq!(began.elapsed(), 30 * YEAR);
        });
    });
}

#[test]
fn a_timeout_of_the_longest_duration_never_elapses() {
    watched(|| {
        paused(1).block_on(async {
            let mut forever = pin!(timeout(Duration::MAX, pending::<()>()));
            assert!(is_pending(forever.as_mut()));
            for _ in 0..3 {
                sleep(20 * YEAR).await;
            }
            assert!(is_pending(forever));
        });
        let mut ready = pin!(timeout(Duration::MAX, async { 1 }));
        assert_eq!(ready.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(1)), "no runtime");
    });
}

#[test]
fn a_timeout_elapses_at_its_deadline_with_an_error() {
    watched(|| {
        paused(1).block_on(async {
            let began = Instant::now();
            let elapsed: Elapsed = timeout_at(began + HOUR, pending::<()>()).await.unwrap_err();
            assert_eq!(began.elapsed(), HOUR);
            assert_eq!(elapsed.to_string(), "deadline has elapsed");
            assert_eq!(std::io::Error::from(elapsed).kind(), std::io::ErrorKind::TimedOut);
            let mut done = timeout(HOUR, std::future::ready(1));
            *done.get_mut() = std::future::ready(2);
            assert_eq!(done.get_ref().clone().await + done.into_inner().await, 4);
        });
    });
}

#[test]
fn an_error_of_a_timer_is_of_one_kind() {
    let kinds = |error: Error| [error.is_shutdown(), error.is_at_capacity(), error.is_invalid()];
    assert_eq!(kinds(Error::shutdown()), [true, false, false]);
    assert_eq!(kinds(Error::at_capacity()), [false, true, false]);
    assert_eq!(kinds(Error::invalid()), [false, false, true]);
    assert_ne!(Error::shutdown().to_string(), Error::invalid().to_string());
}

#[test]
fn an_interval_can_be_reset_to_any_instant() {
    watched(|| {
        paused(1).block_on(async {
            let began = Instant::now();
            let mut ticks = interval_at(began + HOUR, 2 * HOUR);
            assert_eq!(ticks.tick().await, began + HOUR);
            assert_eq!((ticks.period(), ticks.missed_tick_behavior()), (2 * HOUR, MissedTickBehavior::Burst));
            ticks.reset_after(3 * HOUR);
            assert_eq!(ticks.tick().await, began + 4 * HOUR);
            ticks.reset_immediately();
            assert_eq!(ticks.tick().await, began + 4 * HOUR);
            ticks.reset_at(began + 5 * HOUR);
            assert_eq!(poll_fn(|cx| ticks.poll_tick(cx)).await, began + 5 * HOUR);
            ticks.reset();
            assert_eq!(ticks.tick().await, began + 7 * HOUR);
            assert_eq!(began.elapsed(), 7 * HOUR);
        });
    });
}

/// Implemented once for every type and twice for those that are `Unpin`: an item of it is ambiguous
/// exactly for these.
trait NotUnpin<Twice> {
    const IS_SO: bool = true;
}

impl<T: ?Sized> NotUnpin<()> for T {}
impl<T: ?Sized + Unpin> NotUnpin<u8> for T {}

#[test]
fn sleeps_and_timeouts_must_be_pinned_and_may_be_sent() {
    fn is_send_and_sync<T: Send + Sync>() {}
    fn is_unpin<T: Unpin>() {}
    const { assert!(<time::Sleep as NotUnpin<_>>::IS_SO && <time::Timeout<()> as NotUnpin<_>>::IS_SO) };
    is_send_and_sync::<(time::Sleep, time::Timeout<()>, time::Interval, Instant, Elapsed, Error)>();
    is_unpin::<(time::Interval, Instant, Elapsed, Error)>();
}

#[test]
fn every_behaviour_for_missed_ticks_can_be_matched() {
    let number = |behavior| match behavior {
        MissedTickBehavior::Burst => 0,
        MissedTickBehavior::Delay => 1,
        MissedTickBehavior::Skip => 2,
    };
    assert_eq!(number(MissedTickBehavior::default()), 0);
}

/// Returns the message and the file of the panic of `f`.
fn panic_of(f: impl FnOnce()) -> (String, String) {
    let seen = Arc::new(Mutex::new(None));
    let hook = seen.clone();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload_as_str().unwrap_or_default().to_string();
        *hook.lock().unwrap() = Some((message, info.location().unwrap().file().to_string()));
    }));
    assert!(catch_unwind(AssertUnwindSafe(f)).is_err());
    let _default = std::panic::take_hook();
    let seen = seen.lock().unwrap().take();
    seen.expect("it panics")
}

#[test]
fn misuse_of_time_panics_in_the_callers_file() {
    watchdog::alone(|| {
        let running = watchdog::builder(1).test_clock(true).build().unwrap();
        let still = paused(1);
        let in_running = |f: fn()| panic_of(|| running.block_on(async { f() }));
        let cases: [(&str, (String, String)); 11] = [
            ("", panic_of(|| drop(sleep(HOUR)))),
            ("", panic_of(|| drop(sleep_until(Instant::now())))),
            ("", panic_of(|| drop(timeout(HOUR, pending::<()>())))),
            ("", panic_of(|| drop(timeout_at(Instant::now(), pending::<()>())))),
            ("", panic_of(|| drop(interval(HOUR)))),
            ("`period` must be non-zero", panic_of(|| drop(interval(Duration::ZERO)))),
            ("`period` must be non-zero", panic_of(|| drop(interval_at(Instant::now(), Duration::ZERO)))),
            (
                "",
                panic_of(|| {
                    time::pause();
                }),
            ),
            (
                "",
                panic_of(|| {
                    time::resume();
                }),
            ),
            (
                "time is not frozen",
                in_running(|| {
                    time::resume();
                }),
            ),
            ("time is already frozen", panic_of(|| still.block_on(async { time::pause() }))),
        ];
        for (number, (message, (actual, file))) in cases.into_iter().enumerate() {
            assert!(actual.contains(message), "case {number}: {actual}");
            assert_eq!(file, file!(), "case {number}");
        }
        let (message, _) = panic_of(|| running.block_on(time::advance(HOUR)));
        assert!(message.contains("time is not frozen"), "{message}");
    });
}
