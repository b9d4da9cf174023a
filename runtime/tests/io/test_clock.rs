//! The test clock, through the public API.

use crate::watchdog;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::watchdog::watched;
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};
use volt::time::{self, Instant, MissedTickBehavior, Sleep, interval, sleep, sleep_until, timeout};
use volt::{Builder, Runtime};

const HOUR: Duration = Duration::from_secs(3600);

fn with_paused(test: impl Fn(Runtime)) {
    for workers in [1, 2, 4] {
        watched(|| test(watchdog::builder(workers).start_paused(true).build().unwrap()));
    }
}

#[test]
fn hours_pass_immediately_and_in_the_right_order() {
    with_paused(|runtime| {
        let real = std::time::Instant::now();
        runtime.block_on(async {
            let began = Instant::now();
            let order = Arc::new(AtomicU32::new(0));
            let sleepers = [3, 1, 2].map(|hours| {
                let order = order.clone();
                volt::spawn(async move {
                    sleep(hours * HOUR).await;
                    assert_eq!(began.elapsed(), hours * HOUR, "{hours}");
                    assert_eq!(order.fetch_add(1, Ordering::Relaxed) + 1, hours);
                })
            });
            for sleeper in sleepers {
                sleeper.await.unwrap();
            }
            assert_eq!(began.elapsed(), 3 * HOUR);
        });
        assert!(real.elapsed() < HOUR / 2);
    });
}

#[test]
fn the_clock_is_paused_while_work_remains() {
    with_paused(|runtime| {
        runtime.block_on(async {
            let began = Instant::now();
            let limit = volt::spawn(timeout(HOUR, std::future::pending::<()>()));
            // A blocking job, tasks that wake each other, a socket: all of it takes time, but none
            // of the clock's.
            let job = volt::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(30)));
            job.await.unwrap();
            assert_eq!(Instant::now(), began, "a blocking job was under way");
            for _ in 0..1_000 {
                volt::task::yield_now().await;
            }
            assert_eq!(Instant::now(), began, "a thread in block_on was awake");
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (mut server, _) = listener.accept().await.unwrap();
            let echo = volt::spawn(async move {
                let mut buffer = [0; 4];
                for _ in 0..100 {
                    server.read_exact(&mut buffer).await.unwrap();
                    server.write_all(&buffer).await.unwrap();
                }
            });
            for _ in 0..100 {
                client.write_all(b"ping").await.unwrap();
                client.read_exact(&mut [0; 4]).await.unwrap();
            }
            echo.await.unwrap();
            assert_eq!(Instant::now(), began, "something was on its way between two sockets");
            std::thread::sleep(Duration::from_millis(30));
            assert_eq!(Instant::now(), began, "a thread in block_on was awake");
            assert!(limit.await.unwrap().is_err());
            assert_eq!(began.elapsed(), HOUR);
        });
    });
}

#[test]
fn a_paused_clock_advances_though_an_old_waker_is_kept() {
    with_paused(|runtime| {
        let mut task = runtime.spawn(std::future::pending::<()>());
        // The task keeps the waker of this `block_on`.
        assert!(runtime.block_on(async { timeout(HOUR, &mut task).await }).is_err());
        runtime.block_on(async {
            let began = Instant::now();
            sleep(HOUR).await;
            assert_eq!(began.elapsed(), HOUR);
        });
    });
}

#[test]
fn advancing_fires_what_is_due_and_nothing_else() {
    with_paused(|runtime| {
        runtime.block_on(async {
            let (soon, late) = (volt::spawn(sleep(HOUR)), volt::spawn(sleep(3 * HOUR)));
            while volt::Handle::current().snapshot().timers.armed < 2 {
                // Not awaited: the clock would then advance by itself.
                std::thread::yield_now();
            }
            let began = Instant::now();
            time::advance(2 * HOUR).await;
            assert_eq!(began.elapsed(), 2 * HOUR);
            while !soon.is_finished() {
                std::thread::yield_now();
            }
            assert!(!late.is_finished());
            late.await.unwrap();
        });
    });
}

async fn poll_once(mut sleep: Pin<&mut Sleep>) -> Poll<()> {
    poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx))).await
}

#[test]
fn advancing_by_a_timers_time_to_the_nanosecond_fires_it() {
    with_paused(|runtime| {
        runtime.block_on(async {
            for round in 0..200_u64 {
                // Not a multiple of any possible tick of a clock.
                let due = Duration::from_nanos(1 + round * 1_234_567);
                let began = Instant::now();
                let mut timer = std::pin::pin!(sleep(due));
                let is_pending = poll_once(timer.as_mut()).await.is_pending();
                assert!(is_pending, "round {round}");
                time::advance(due - Duration::from_nanos(1)).await;
                assert!(poll_once(timer.as_mut()).await.is_pending(), "early in round {round}");
                let armed = volt::Handle::current().snapshot().timers.armed;
                time::advance(Duration::from_nanos(1)).await;
                assert_eq!(volt::Handle::current().snapshot().timers.armed, armed - 1, "not fired in round {round}");
                assert!(poll_once(timer.as_mut()).await.is_ready(), "round {round}");
                assert_eq!(began.elapsed(), due);
            }
        });
    });
}

#[test]
fn intervals_and_deadlines_use_the_same_clock() {
    with_paused(|runtime| {
        runtime.block_on(async {
            let began = Instant::now();
            let mut ticks = interval(HOUR);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for hours in 0..4 {
                assert_eq!(ticks.tick().await - began, hours * HOUR);
            }
            ticks.reset();
            assert_eq!(ticks.tick().await - began, 4 * HOUR);
            sleep_until(began + 10 * HOUR).await;
            assert_eq!(began.elapsed(), 10 * HOUR);
            let mut sleep = std::pin::pin!(sleep(HOUR));
            sleep.as_mut().reset(began + 12 * HOUR);
            sleep.await;
            assert_eq!(began.elapsed(), 12 * HOUR);
        });
    });
}

#[test]
fn a_resumed_clock_continues_from_its_last_time() {
    watched(|| {
        let runtime = watchdog::builder(2).test_clock(true).build().unwrap();
        runtime.block_on(async {
            let before = Instant::now();
            time::pause();
            time::advance(HOUR).await;
            time::resume();
            let began = Instant::now();
            assert!(began - before >= HOUR);
            sleep(Duration::from_millis(5)).await;
            assert!(began.elapsed() >= Duration::from_millis(5) && began.elapsed() < HOUR);
        });
    });
}

#[test]
fn a_pause_is_noticed_by_a_worker_that_sleeps_for_long() {
    watched(|| {
        let runtime = watchdog::builder(1).test_clock(true).build().unwrap();
        runtime.block_on(async {
            let sleeper = volt::spawn(sleep(HOUR));
            let snapshot = || volt::Handle::current().snapshot();
            while snapshot().timers.armed < 1 || snapshot().driver.owner.is_none() {
                std::thread::yield_now();
            }
            time::pause();
            // Later than the end of the worker's sleep, so the worker is not unparked because of
            // this timer.
            sleep(2 * HOUR).await;
            sleeper.await.unwrap();
        });
    });
}

#[test]
#[should_panic(expected = "this runtime has no test clock: build it with Builder::test_clock(true)")]
fn pausing_without_a_test_clock_panics_with_the_remedy() {
    watchdog::runtime(1).block_on(async { time::pause() });
}

#[test]
fn a_test_clock_that_does_not_start_paused_can_be_paused() {
    let runtime = watchdog::builder(1).test_clock(true).start_paused(false).build().unwrap();
    runtime.block_on(async {
        time::pause();
        let began = Instant::now();
        time::advance(HOUR).await;
        assert_eq!(began.elapsed(), HOUR);
    });
}

#[volt::test(start_paused = true)]
async fn a_test_that_starts_paused_sleeps_without_waiting() {
    let (began, really) = (Instant::now(), std::time::Instant::now());
    sleep(HOUR).await;
    assert_eq!(began.elapsed(), HOUR);
    assert!(really.elapsed() < HOUR, "the system's clock went as ever");
}

#[test]
fn a_paused_clock_passes_in_the_same_way_in_each_run() {
    // A fixed sequence of durations below a second, to the nanosecond.
    let durations = (1..3_000_u64).map(|n| Duration::from_nanos(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 1_000_000_000));
    let run = || {
        let runtime = Builder::new_current_thread().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (began, mut elapsed) = (Instant::now(), Vec::new());
            for duration in durations.clone() {
                sleep(duration).await;
                elapsed.push(began.elapsed());
            }
            elapsed
        })
    };
    watched(|| {
        let sum = durations.clone().scan(Duration::ZERO, |sum, duration| {
            *sum += duration;
            Some(*sum)
        });
        assert_eq!(run(), run());
        assert_eq!(run(), sum.collect::<Vec<_>>());
    });
}

#[test]
fn a_sleep_ends_when_small_advances_add_up_to_it() {
    with_paused(|runtime| {
        runtime.block_on(async {
            let mut sleep = Box::pin(sleep(Duration::from_millis(1)));
            let mut poll = || {
                let waker = std::task::Waker::noop();
                sleep.as_mut().poll(&mut std::task::Context::from_waker(waker))
            };
            for _ in 0..4 {
                assert!(poll().is_pending());
                time::advance(Duration::from_micros(250)).await;
            }
            assert!(poll().is_ready());
        });
    });
}

#[test]
fn a_sleep_until_now_has_elapsed_once_it_was_polled() {
    with_paused(|runtime| {
        runtime.block_on(async {
            let now = Instant::now();
            let mut sleep = Box::pin(sleep_until(now));
            assert!(!sleep.is_elapsed());
            sleep.as_mut().await;
            assert!(sleep.is_elapsed() && now.elapsed() == Duration::ZERO);
        });
    });
}

#[test]
fn a_sleep_keeps_its_clock_if_another_runtime_resets_it() {
    watched(|| {
        let build = || Builder::new_current_thread().start_paused(true).build().unwrap();
        let earlier = build();
        std::thread::sleep(Duration::from_millis(1));
        let later = build();
        let _entered = earlier.enter();
        let mut sleep = std::pin::pin!(sleep(Duration::from_millis(1)));
        assert!(sleep.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_pending());
        let deadline = sleep.deadline() + Duration::from_millis(1);
        later.block_on(async { sleep.as_mut().reset(deadline) });
        let now = Instant::now();
        earlier.block_on(sleep);
        assert_eq!(now.elapsed(), Duration::from_millis(2));
    });
}
