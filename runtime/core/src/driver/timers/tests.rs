//! Tests of timers: when they fire, which wakers they call, and when they wake the sleeper.

use super::*;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

const TICK: u64 = TICK_NS;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Disarms a timer when it is dropped, like a task whose last waker was in the wheel.
struct DisarmsOnDrop(Arc<Timers>, Key);

impl Wake for DisarmsOnDrop {
    fn wake(self: Arc<Self>) {}
}

impl Drop for DisarmsOnDrop {
    fn drop(&mut self) {
        self.0.disarm(self.1);
    }
}

fn waker() -> Waker {
    Waker::noop().clone()
}

#[test]
fn a_timer_fires_at_its_deadline_tick_and_never_earlier() {
    let timers = Timers::new(0);
    let (_, armed) = timers.arm(3 * TICK + 1, waker()).unwrap();
    assert_eq!(armed, Armed::Quietly, "no worker sleeps");
    assert_eq!(timers.next_deadline_ns(), 4 * TICK);
    let mut fired = Vec::new();
    assert_eq!(timers.fire(4 * TICK - 1, &mut fired), 0);
    assert!(!timers.has_fired(3 * TICK + 1));
    assert_eq!(timers.fire(4 * TICK, &mut fired), 1);
    assert!(timers.has_fired(3 * TICK + 1));
    assert_eq!(timers.next_deadline_ns(), NEVER);
    let telemetry = timers.telemetry(5 * TICK);
    assert_eq!((telemetry.armed, telemetry.fired, telemetry.last_lag_ns), (0, 1, TICK - 1));
    assert_eq!(telemetry.next_in_ns, None);
}

#[test]
fn only_a_deadline_before_the_sleepers_limit_wakes_it_once() {
    let timers = Timers::new(0);
    let _ = timers.arm(3_600_000 * TICK, waker()).unwrap();
    assert_eq!(timers.begin_sleep(0, None), Some(Duration::from_nanos(3_600_000 * TICK)));
    assert_eq!(timers.arm(4_000_000 * TICK, waker()).unwrap().1, Armed::Quietly);
    assert_eq!(timers.arm(5 * TICK, waker()).unwrap().1, Armed::BeforeLimit);
    assert_eq!(timers.arm(4 * TICK, waker()).unwrap().1, Armed::Quietly, "the sleeper was woken already");
    assert!(timers.end_sleep());
    assert_eq!(timers.begin_sleep(0, None), Some(Duration::from_nanos(4 * TICK)));
    assert!(!timers.end_sleep());
}

#[test]
fn without_timers_the_sleep_has_no_limit_and_any_timer_ends_it() {
    let timers = Timers::new(0);
    assert_eq!(timers.begin_sleep(0, None), None);
    let (key, armed) = timers.arm(5 * TICK, waker()).unwrap();
    assert_eq!(armed, Armed::BeforeLimit);
    timers.end_sleep();
    assert_eq!(timers.begin_sleep(0, Some(Duration::from_nanos(TICK))), Some(Duration::from_nanos(TICK)));
    assert_eq!(timers.reset(key, TICK / 2), Some(Armed::Quietly), "that is when it wakes up anyway");
    timers.disarm(key);
    assert_eq!(timers.reset(key, TICK), None);
    timers.end_sleep();
    assert_eq!(timers.begin_sleep(0, None), None);
}

#[test]
fn a_timer_wakes_the_last_waker_it_was_given_and_no_other() {
    let timers = Timers::new(0);
    let (first, last) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let (key, _) = timers.arm(TICK, first.clone().into()).unwrap();
    assert!(timers.set_waker(key, last.clone().into()));
    let mut wakers = Vec::new();
    timers.fire(TICK, &mut wakers);
    wakers.into_iter().for_each(Waker::wake);
    assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
    assert_eq!(Arc::strong_count(&first), 1, "the former waker is dropped");
    assert!(!timers.set_waker(key, waker()), "it has fired");
}

#[test]
fn a_crowd_of_timers_fires_in_one_call() {
    let timers = Timers::new(0);
    for at in 0..FIRE_BATCH as u64 * 3 {
        let _ = timers.arm(at * TICK / 10, waker()).unwrap();
    }
    let mut wakers = Vec::new();
    assert_eq!(timers.fire(1_000 * TICK, &mut wakers), FIRE_BATCH * 3);
    assert_eq!(timers.telemetry(0).armed, 0);
}

#[test]
fn a_timer_on_a_test_clock_fires_at_its_deadline_exactly() {
    let timers = Timers::exact(7);
    for deadline_ns in [8, 1_000_003, 3_600_000_000_001, NEVER - 1] {
        let _ = timers.arm(deadline_ns, waker()).unwrap();
        assert_eq!(timers.next_deadline_ns(), deadline_ns);
        assert_eq!(timers.fire(deadline_ns - 1, &mut Vec::new()), 0);
        assert_eq!(timers.fire(deadline_ns, &mut Vec::new()), 1);
        assert!(timers.has_fired(deadline_ns) && !timers.has_fired(deadline_ns + 1));
    }
}

/// *Published*: arming never searches the wheel, and disarming only for the next timer.
#[test]
fn the_published_deadline_is_never_later_than_a_timers() {
    for seed in 1..=if cfg!(miri) { 2 } else { 100_u64 } {
        println!("seed {seed}");
        publishes_the_earliest(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    }
}

fn publishes_the_earliest(mut state: u64) {
    let mut below = |bound: u64| {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let timers = Timers::new(0);
    let boundary_of = |deadline_ns| timers.boundary(timers.tick_of(deadline_ns));
    let mut armed: Vec<(u64, Key)> = Vec::new();
    let mut now_ns = 0;
    for _ in 0..300 {
        let range_ns = TICK << (6 * below(4));
        let deadline_ns = now_ns + below(range_ns);
        let index = below(armed.len().max(1) as u64) as usize;
        match below(8) {
            0..=3 => {
                let before_ns = timers.next_deadline_ns();
                let (key, _) = timers.arm(deadline_ns, waker()).unwrap();
                armed.push((deadline_ns, key));
                assert_eq!(timers.next_deadline_ns(), before_ns.min(boundary_of(deadline_ns)));
            }
            4 | 5 if !armed.is_empty() => timers.disarm(armed.swap_remove(index).1),
            6 if !armed.is_empty() => {
                armed[index].0 = deadline_ns;
                assert!(timers.reset(armed[index].1, deadline_ns).is_some());
            }
            _ => {
                now_ns += below(100 * TICK);
                let due = armed.iter().filter(|(deadline_ns, _)| boundary_of(*deadline_ns) <= now_ns).count();
                assert_eq!(timers.fire(now_ns, &mut Vec::new()), due);
                armed.retain(|(deadline_ns, _)| boundary_of(*deadline_ns) > now_ns);
                assert!(timers.next_deadline_ns() > now_ns, "what is due has fired");
            }
        }
        let earliest_ns = armed.iter().map(|(deadline_ns, _)| boundary_of(*deadline_ns)).min();
        assert!(timers.next_deadline_ns() <= earliest_ns.unwrap_or(NEVER));
        let through_ns = timers.published.fired_through_ns.load(Ordering::Relaxed);
        assert_eq!(timers.has_fired(deadline_ns), boundary_of(deadline_ns) <= through_ns);
        assert_eq!(timers.next_deadline_ns() == NEVER, armed.is_empty());
        assert_eq!(timers.telemetry(now_ns).armed, armed.len() as u64);
    }
}

#[test]
fn a_waker_that_drops_a_timer_when_dropped_does_not_deadlock() {
    let timers = Arc::new(Timers::new(0));
    let (inner, _) = timers.arm(TICK, waker()).unwrap();
    let nested: Waker = Arc::new(DisarmsOnDrop(timers.clone(), inner)).into();
    let (outer, _) = timers.arm(TICK, nested).unwrap();
    timers.disarm(outer);
    assert_eq!(timers.telemetry(0).armed, 0);

    let (inner, _) = timers.arm(TICK, waker()).unwrap();
    let nested: Waker = Arc::new(DisarmsOnDrop(timers.clone(), inner)).into();
    let (outer, _) = timers.arm(TICK, nested).unwrap();
    assert!(timers.set_waker(outer, waker()));
    assert_eq!(timers.telemetry(0).armed, 1);
}

#[test]
fn shut_down_wakes_every_sleeper_and_takes_no_more() {
    let timers = Timers::new(0);
    for _ in 0..3 {
        let _ = timers.arm(NEVER, waker()).unwrap();
    }
    let mut wakers = Vec::new();
    timers.shut_down(&mut wakers);
    assert_eq!(wakers.len(), 3);
    assert!(timers.is_shut_down());
    assert_eq!(timers.arm(TICK, waker()), Err(IsShutDown));
    assert_eq!(timers.next_deadline_ns(), NEVER);
}
