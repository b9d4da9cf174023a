//! Tests of the driver: the turn, its sleep, timers, events of real sockets, and the shutdown.

use super::*;
use crate::driver::readiness::{Direction, Flags};
use mio::Interest;
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

fn failures() -> Arc<Failures> {
    Arc::new(Failures::new("none", true))
}

fn driver() -> Driver {
    Driver::new(None, 64, failures()).unwrap()
}

fn pair() -> (net::TcpStream, mio::net::TcpStream) {
    let listener = net::TcpListener::bind("127.0.0.1:0").unwrap();
    let there = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (here, _) = listener.accept().unwrap();
    here.set_nonblocking(true).unwrap();
    (there, mio::net::TcpStream::from_std(here))
}

#[test]
fn an_unavailable_backend_is_an_error_that_names_it() {
    let foreign = if NATIVE.0 == Backend::Epoll { Backend::Kqueue } else { Backend::Epoll };
    let error = Driver::new(Some(foreign), 64, failures()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    assert!(error.to_string().contains(&format!("{foreign:?}")) && error.to_string().contains("choose"), "{error}");
    assert!(Driver::new(Some(NATIVE.0), 64, failures()).is_ok());
}

#[test]
fn only_a_sleep_that_a_timer_ends_has_to_end_on_time() {
    let driver = driver();
    let now_ns = driver.now_ns();
    let is_punctual = |at_most: Option<Duration>| {
        let timeout = driver.timers.begin_sleep(now_ns, at_most);
        driver.timers.end_sleep();
        is_limited_by_timer(timeout, at_most)
    };
    let limits = [1, 100].map(|ms| Some(Duration::from_millis(ms)));
    assert!(!is_punctual(None) && !limits.into_iter().any(is_punctual), "there is no timer");
    let _key = driver.arm_timer(now_ns + 10_000_000, Waker::noop().clone()).unwrap();
    assert!(is_punctual(None) && is_punctual(limits[1]));
    assert!(!is_punctual(limits[0]), "the sleep ends before the timer");
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
fn an_unpark_before_the_sleep_ends_it_immediately() {
    let driver = driver();
    driver.unpark();
    let polled = driver.try_turn(0).unwrap().poll(FOREVER, &mut Vec::new()).unwrap();
    assert_eq!(polled, Polled { was_unparked: true, ..Polled::default() });
}

#[test]
fn a_new_earlier_timer_ends_the_drivers_sleep() {
    let driver = driver();
    let _hour = driver.arm_timer(clock::now_ns() + 3_600_000_000_000, Waker::noop().clone()).unwrap();
    let long = Wait::UntilTimer { at_most: Some(Duration::from_secs(60)) };
    let barrier = Barrier::new(2);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let mut turn = driver.try_turn(0).unwrap();
            barrier.wait();
            let mut wakers = Vec::new();
            while wakers.is_empty() {
                let polled = turn.poll(long, &mut wakers).unwrap();
                assert!(!polled.timed_out, "the sleeper was not woken");
            }
        });
        barrier.wait();
        let began = Instant::now();
        let soon_ns = clock::now_ns() + 5_000_000;
        let _soon = driver.arm_timer(soon_ns, Waker::noop().clone()).unwrap();
        loop {
            // In this order: the sleeper ends after the timer has fired.
            let has_ended = sleeper.is_finished();
            if driver.timers.has_fired(soon_ns) {
                break;
            }
            assert!(!has_ended, "the sleeper slept until its limit");
            std::thread::yield_now();
        }
        assert!(began.elapsed() >= Duration::from_millis(5), "early");
    });
}

#[test]
fn a_bounded_driver_wait_times_out_unless_a_timer_fires() {
    let driver = driver();
    let limit = Wait::UntilTimer { at_most: Some(Duration::from_millis(2)) };
    let mut turn = driver.try_turn(0).unwrap();
    let polled = turn.poll(limit, &mut Vec::new()).unwrap();
    assert_eq!(polled, Polled { timed_out: true, ..Polled::default() });
    let _due = driver.arm_timer(0, Waker::noop().clone()).unwrap();
    let polled = turn.poll(limit, &mut Vec::new()).unwrap();
    assert_eq!(polled, Polled { timers_fired: 1, ..Polled::default() });
    assert_eq!(driver.telemetry(clock::now_ns()).0.polls, 2);
}

#[cfg(target_os = "linux")]
#[test]
fn timers_fire_while_waiting_for_the_kernels_list_fails() {
    let driver = driver();
    let _due = driver.arm_timer(0, Waker::noop().clone()).unwrap();
    let mut turn = driver.try_turn(0).unwrap();
    turn.break_poller();
    for (wait, timers_fired) in [(Wait::No, 1), (FOREVER, 0)] {
        let mut wakers = Vec::new();
        assert_eq!(turn.poll(wait, &mut wakers).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(wakers.len(), timers_fired);
    }
}

#[test]
fn data_wakes_the_reader_and_a_hang_up_ends_its_waits() {
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
    assert!(readiness.check(Direction::Read).unwrap().is_some());

    readiness.clear(readiness.check(Direction::Read).unwrap().unwrap());
    assert!(readiness.poll_ready(&mut cx, Direction::Read).is_pending());
    drop(there);
    while wakers.is_empty() {
        driver.try_turn(0).unwrap().poll(FOREVER, &mut wakers).unwrap();
    }
    readiness.clear(readiness.check(Direction::Read).unwrap().unwrap());
    assert!(readiness.check(Direction::Read).unwrap().is_some(), "closed stays closed");
    driver.deregister(&mut here, token).unwrap();
    assert_eq!(driver.telemetry(0).0.registrations, 0);
}

#[test]
fn a_stale_event_does_not_reach_a_socket_reusing_its_slot() {
    let driver = driver();
    let (mut there, mut here) = pair();
    let (token, _) = driver.register(&mut here, BOTH, Flags::NONE).unwrap();
    there.write_all(b"x").unwrap();
    let mut turn = driver.try_turn(0).unwrap();
    // The event is in the buffer. Before it is collected, the socket is deregistered and another
    // one gets its index.
    turn.poller.wait(None).unwrap();
    driver.deregister(&mut here, token).unwrap();
    let (_there, mut other) = pair();
    let (new_token, readiness) = driver.register(&mut other, BOTH, Flags::NONE).unwrap();
    assert_eq!(index_of(token), index_of(new_token), "the index was not used again, the test tests nothing");
    let mut polled = Polled::default();
    turn.collect(&mut polled, &mut Vec::new());
    assert_eq!(polled.events, 0);
    assert!(readiness.check(Direction::Read).unwrap().is_none());
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

/// Each timer reads fields of the driver that do not change. `test_clock` stands for them here.
#[test]
fn locks_and_counters_share_no_line_with_constants() {
    fn lines_of<T>(value: &T) -> std::ops::RangeInclusive<usize> {
        let begin = std::ptr::from_ref(value).addr();
        begin / 64..=(begin + size_of::<T>() - 1) / 64
    }
    let driver = driver();
    let constant = lines_of(&driver.test_clock);
    let (sockets, counters) = (&*driver.sockets, &*driver.counters);
    for written in [lines_of(sockets), lines_of(counters), lines_of(&driver.timers), lines_of(&*driver.leases)] {
        let is_apart = written.end() < constant.start() || constant.end() < written.start();
        assert!(is_apart, "{written:?} {constant:?}");
    }
}
