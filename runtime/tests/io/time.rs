//! Timers, through the public API.

use crate::watchdog;
use std::future::{Future, pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::watchdog::{watched, with_workers};
use volt::time::{Instant, MissedTickBehavior, Sleep, interval, interval_at, sleep, sleep_until, timeout};

const MS: Duration = Duration::from_millis(1);
/// Far more than a timer's lateness on a busy machine, and far less than the hour for which a lost
/// timer would wait.
const LATE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn threads_of_a_task_do_not_inherit_the_drivers_timer_slack() {
    let slack_ns = || rustix::thread::current_timer_slack().unwrap();
    let usual_ns = slack_ns();
    with_workers(|runtime| {
        let seen = runtime.spawn(async move {
            sleep(MS).await;
            let of_thread = std::thread::spawn(slack_ns).join().unwrap();
            // On /proc/self/timerslack_ns, which is the child's own.
            let child = std::process::Command::new("cat").arg("/proc/self/timerslack_ns").output().unwrap();
            let of_child = String::from_utf8(child.stdout).unwrap();
            [slack_ns(), of_thread, of_child.trim().parse().unwrap()]
        });
        assert_eq!(runtime.block_on(seen).unwrap(), [usual_ns; 3]);
    });
}

fn armed(runtime: &volt::Runtime) -> u64 {
    runtime.handle().snapshot().timers.armed
}

#[test]
fn a_thousand_timers_all_fire_and_none_early() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let began = Instant::now();
            let tasks = (0..1_000_u32).map(|n| {
                // Deadlines within 300 ms, many of them equal, in a shuffled order.
                let after = MS * 3 * (n * 7 % 101);
                volt::spawn(async move {
                    sleep_until(began + after).await;
                    began.elapsed() >= after
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                assert!(task.await.unwrap(), "early");
            }
        });
        let timers = runtime.handle().snapshot().timers;
        assert!(timers.fired > 0 && timers.armed == 0, "{timers:?}");
    });
}

#[test]
fn one_worker_runs_timers_of_different_ticks_in_order() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        let (send, receive) = mpsc::channel();
        let began = Instant::now() + 20 * MS;
        for n in [5_u32, 1, 9, 3, 7, 2, 8, 4, 6, 0] {
            let send = send.clone();
            runtime.handle().spawn(async move {
                sleep_until(began + 3 * MS * n).await;
                send.send(n).unwrap();
            });
        }
        drop(send);
        assert_eq!(receive.iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    });
}

#[test]
fn a_short_timer_is_not_delayed_by_an_earlier_long_one() {
    with_workers(|runtime| {
        // From a task, while the worker in the driver sleeps for the hour.
        let hour = runtime.handle().spawn(sleep(&runtime, HOUR));
        wait_until(|| armed(&runtime) == 1);
        let began = Instant::now();
        runtime.block_on(runtime.handle().spawn(async { volt::time::sleep(5 * MS).await })).unwrap();
        assert!((5 * MS..LATE).contains(&began.elapsed()));

        // From outside: the timer is armed by this thread, which is not a worker.
        let began = Instant::now();
        runtime.block_on(async { volt::time::sleep(5 * MS).await });
        assert!((5 * MS..LATE).contains(&began.elapsed()));
        hour.abort();
    });

    fn sleep(runtime: &volt::Runtime, duration: Duration) -> Sleep {
        let _entered = runtime.handle().enter();
        volt::time::sleep(duration)
    }
}

fn wait_until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

#[test]
fn timers_are_punctual_on_an_idle_runtime() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        let mut rounds = Vec::new();
        loop {
            let (mut lateness, mut of_system) = runtime.block_on(async {
                let (mut all, mut of_system) = (Vec::new(), Vec::new());
                for n in 0..50 {
                    let deadline = Instant::now() + MS + Duration::from_micros(n * 37);
                    sleep_until(deadline).await;
                    all.push(deadline.elapsed());
                    let deadline = Instant::now() + MS;
                    std::thread::sleep(MS);
                    of_system.push(deadline.elapsed());
                }
                (all, of_system)
            });
            lateness.sort();
            of_system.sort();
            // A tick is 160 µs. The rest is what the system adds, which also makes the sleep of a
            // thread late. The medians exclude a busy machine's worst cases.
            let medians = [lateness, of_system].map(|all| all[all.len() / 2]);
            if medians[0] < 3 * MS + 2 * medians[1] {
                return;
            }
            // A busy machine does not delay only the timers, in one round after the other.
            rounds.push(medians);
            assert!(rounds.len() < 20, "{rounds:?}");
        }
    });
}

#[test]
fn a_dropped_sleep_is_disarmed_and_wakes_no_task() {
    with_workers(|runtime| {
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let _entered = runtime.handle().enter();
        {
            let mut sleep = pin!(sleep(HOUR));
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert_eq!(armed(&runtime), 1);
        }
        assert_eq!(armed(&runtime), 0);
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1, "no waker is left behind");
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
    });
}

#[test]
fn aborting_a_task_disarms_its_timer() {
    with_workers(|runtime| {
        let task = runtime.handle().spawn(async { sleep(HOUR).await });
        wait_until(|| armed(&runtime) == 1);
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        wait_until(|| armed(&runtime) == 0);
    });
}

#[test]
fn a_sleep_wakes_the_task_that_polled_it_last_and_no_other() {
    with_workers(|runtime| {
        let _entered = runtime.handle().enter();
        let (first, last) = (Arc::new(Count::default()), Arc::new(Count::default()));
        // Long at first, since the thread may lose its processor before the polls.
        let mut sleep = pin!(sleep(HOUR));
        for count in [&first, &last] {
            let waker = Waker::from(count.clone());
            assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        sleep.as_mut().reset(Instant::now() + 20 * MS);
        wait_until(|| last.0.load(Ordering::SeqCst) == 1);
        assert_eq!(first.0.load(Ordering::SeqCst), 0);
        assert!(sleep.is_elapsed());
    });
}

#[test]
fn a_reset_moves_a_sleep_that_a_task_awaits_both_ways() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let began = Instant::now();
            let mut sleep = pin!(sleep(HOUR));
            let mut is_reset = false;
            poll_fn(|cx| {
                let polled = sleep.as_mut().poll(cx);
                if !std::mem::replace(&mut is_reset, true) {
                    assert!(polled.is_pending());
                    // The task is not polled again until the timer, now moved, wakes it.
                    sleep.as_mut().reset(began + 10 * MS);
                }
                polled
            })
            .await;
            assert!((10 * MS..LATE).contains(&began.elapsed()));
            sleep.as_mut().reset(Instant::now() + HOUR);
            assert!(!sleep.is_elapsed());
            assert!(timeout(5 * MS, &mut sleep).await.is_err());
            sleep.as_mut().reset(Instant::now());
            sleep.await;
        });
    });
}

#[test]
fn the_longest_duration_there_is_waits_and_can_be_dropped() {
    with_workers(|runtime| {
        runtime.block_on(async {
            assert!(timeout(5 * MS, sleep(Duration::MAX)).await.is_err());
            assert_eq!(timeout(Duration::MAX, async { 1 }).await, Ok(1));
            assert!(timeout(5 * MS, timeout(Duration::MAX, pending::<()>())).await.is_err());
        });
        assert_eq!(armed(&runtime), 0);
    });
}

#[test]
fn a_timeout_interrupts_an_always_ready_future() {
    with_workers(|runtime| {
        let task = runtime.handle().spawn(async {
            // Uses its whole cooperative budget in each poll, and leaves nothing to the time-out.
            let busy = async {
                loop {
                    sleep_until(Instant::now()).await;
                }
            };
            timeout(10 * MS, busy).await.is_err()
        });
        assert!(runtime.block_on(task).unwrap());
    });
}

#[test]
fn a_loop_over_elapsed_sleeps_lets_other_tasks_run() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        let busy = runtime.handle().spawn(async {
            loop {
                sleep_until(Instant::now()).await;
            }
        });
        assert_eq!(runtime.block_on(runtime.handle().spawn(async { 7 })).unwrap(), 7);
        busy.abort();
        assert!(runtime.block_on(busy).unwrap_err().is_cancelled());
    });
}

#[test]
fn an_interval_keeps_its_phase() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let start = Instant::now() + 5 * MS;
            let mut interval = interval_at(start, 10 * MS);
            for n in 0..5 {
                let due = interval.tick().await;
                assert_eq!(due, start + 10 * MS * n);
                assert!(Instant::now() >= due);
            }
        });
    });
}

/// Returns the first ticks due, in ms from the start, of an interval of 20 ms whose second tick is
/// taken 55 ms late.
async fn ticks_after_a_stall(behavior: MissedTickBehavior) -> Vec<Duration> {
    let mut interval = interval(20 * MS);
    interval.set_missed_tick_behavior(behavior);
    let start = interval.tick().await;
    std::thread::sleep(75 * MS);
    let mut due = Vec::new();
    for _ in 0..4 {
        due.push(interval.tick().await - start);
    }
    due
}

#[test]
fn each_behaviour_handles_missed_ticks_as_documented() {
    with_workers(|runtime| {
        runtime.block_on(async {
            let burst = ticks_after_a_stall(MissedTickBehavior::Burst).await;
            assert_eq!(burst, [20 * MS, 40 * MS, 60 * MS, 80 * MS]);

            let delay = ticks_after_a_stall(MissedTickBehavior::Delay).await;
            assert_eq!(delay[0], 20 * MS);
            assert!(delay[1] >= 95 * MS, "a whole period after the late tick: {delay:?}");

            let skip = ticks_after_a_stall(MissedTickBehavior::Skip).await;
            assert_eq!(skip[0], 20 * MS);
            assert!(skip[1] >= 80 * MS, "what was missed is left out: {skip:?}");
            for tick in skip {
                assert!(tick.as_micros() % 20_000 == 0, "the phase is kept: {tick:?}");
            }
        });
    });
}

#[test]
fn a_sleep_that_outlives_its_runtime_is_woken_and_panics() {
    watched(|| {
        let runtime = watchdog::runtime(1);
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let mut cx = Context::from_waker(&waker);
        let mut sleep = {
            let _entered = runtime.handle().enter();
            Box::pin(sleep(HOUR))
        };
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        drop(runtime);
        assert_eq!(count.0.load(Ordering::SeqCst), 1, "the waiting task is woken");
        let poll = std::panic::AssertUnwindSafe(|| -> Poll<()> { sleep.as_mut().poll(&mut cx) });
        assert!(std::panic::catch_unwind(poll).is_err());
    });
}
