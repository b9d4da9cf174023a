//! Tests of which waits are reported as far longer than usual, with simulated ages.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::builder::Builder;
use crate::clock;
use crate::runtime::Runtime;
use crate::task::join::JoinHandle;

const SECOND: u64 = 1_000_000_000;

/// An event that tasks wait for.
#[derive(Clone, Default)]
struct Event(Arc<Mutex<(bool, Vec<Waker>)>>);

impl Event {
    /// Waits at the line `at`, with this number of wakers.
    fn wait(&self, awaits: Awaits, at: &'static Location<'static>, wakers: usize) -> impl Future<Output = ()> + use<> {
        let event = self.clone();
        poll_fn(move |cx: &mut Context<'_>| {
            let mut event = event.0.lock().unwrap();
            if event.0 {
                return Poll::Ready(());
            }
            event.1.extend((0..wakers).map(|_| cx.waker().clone()));
            awaits.note(at);
            Poll::Pending
        })
    }

    fn happen(&self) {
        let mut event = self.0.lock().unwrap();
        event.0 = true;
        let wakers = std::mem::take(&mut event.1);
        drop(event);
        wakers.into_iter().for_each(Waker::wake);
    }
}

struct Program {
    runtime: Runtime,
    waits: LongWaits,
}

impl Program {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).build().unwrap();
        Self { runtime, waits: LongWaits::default() }
    }

    /// Makes a check at which everything is older by `age_ns`.
    fn check(&self, age_ns: u64) -> Vec<LongWait> {
        self.waits.0.lock().unwrap().good_until_ns = 0;
        self.waits.check(&self.runtime.handle().shared().workers.registry, clock::now_ns() + age_ns)
    }

    /// Spawns a task, and returns when it waits.
    fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let task = self.runtime.spawn(future);
        let (registry, id) = (&self.runtime.handle().shared().workers.registry, task.id().as_u64());
        while registry.find(|header| (header.id.as_u64() == id && header.state.is_idle()).then_some(())).is_none() {
            std::thread::yield_now();
        }
        task
    }

    /// Lets `count` waits end at the line, which were seen when they had lasted for a second.
    fn end(&self, count: usize, awaits: Awaits, at: &'static Location<'static>, wakers: usize) {
        for _ in 0..count {
            let event = Event::default();
            let task = self.spawn(event.wait(awaits, at, wakers));
            self.check(SECOND);
            event.happen();
            self.runtime.block_on(task).unwrap();
        }
        self.check(SECOND);
    }
}

#[test]
fn a_wait_far_longer_than_usual_is_reported_until_it_ends() {
    let (program, at, event) = (Program::new(), Location::caller(), Event::default());
    program.end(3, Awaits::Value, at, 1);
    let task = program.spawn(event.wait(Awaits::Value, at, 1));
    let others = [(); 2].map(|()| program.spawn(event.wait(Awaits::Value, at, 1)));
    assert_eq!(program.check(9 * SECOND), [], "it is not long yet");
    let long = program.check(60 * SECOND);
    let [wait] = &long[..] else { panic!("one line: {long:?}") };
    assert_eq!((wait.awaits.as_str(), &wait.awaits_at), ("value", &at.to_string()));
    assert_eq!((wait.waiting, wait.task, wait.ended), (3, task.id().as_u64(), 3));
    assert!(wait.spawned_at.contains("long_waits/tests.rs"), "{wait:?}");
    assert!(wait.waiting_ns >= 60 * SECOND && wait.longest_ended_ns >= SECOND, "{wait:?}");
    event.happen();
    for task in [task].into_iter().chain(others) {
        program.runtime.block_on(task).unwrap();
    }
    assert_eq!(program.check(60 * SECOND), []);
    // The waits of a minute are usual from now on.
    let next = Event::default();
    drop(program.spawn(next.wait(Awaits::Value, at, 1)));
    assert_eq!(program.check(300 * SECOND), []);
    assert_eq!(program.check(3_000 * SECOND).len(), 1);
}

#[test]
fn a_wait_that_was_never_seen_to_end_is_not_reported() {
    let (program, event) = (Program::new(), Event::default());
    drop(program.spawn(event.wait(Awaits::Value, Location::caller(), 1)));
    for age in [1, 10, 1_000, 100_000] {
        assert_eq!(program.check(age * SECOND), [], "a task may wait for the end of the program");
    }
}

#[test]
fn waits_that_something_else_may_end_are_not_reported() {
    // The second waker is that of a time-out, of a socket, or of another branch.
    for (awaits, wakers) in [(Awaits::Value, 2), (Awaits::Message, 1), (Awaits::Notice, 1), (Awaits::Others, 1)] {
        let (program, at, event) = (Program::new(), Location::caller(), Event::default());
        program.end(3, awaits, at, wakers);
        program.end(3, awaits, at, 1);
        drop(program.spawn(event.wait(awaits, at, wakers)));
        assert_eq!(program.check(1_000 * SECOND), [], "{awaits:?} with {wakers}");
    }
}

#[test]
fn a_wait_in_a_gap_between_walks_counts_with_all_of_it() {
    let (program, at) = (Program::new(), Location::caller());
    let event = Event::default();
    let task = program.spawn(event.wait(Awaits::Permits, at, 1));
    program.check(0);
    event.happen();
    program.runtime.block_on(task).unwrap();
    program.check(600 * SECOND);
    let lines = program.waits.0.lock().unwrap();
    let line = lines.lines.values().next().expect("its wait has ended");
    assert_eq!(line.ended, 1);
    assert!(line.longest_ended_ns >= 600 * SECOND);
}

/// The program hangs soon after the last walk, and is idle from then on.
#[test]
fn a_wait_that_ended_before_a_gap_counts_with_its_age() {
    let (program, at, next_at) = (Program::new(), Location::caller(), Location::caller());
    let (event, never) = (Event::default(), Event::default());
    let (first, second) = (event.wait(Awaits::Value, at, 1), never.wait(Awaits::Permits, next_at, 1));
    let task = program.spawn(async move {
        first.await;
        second.await;
    });
    program.check(SECOND);
    event.happen();
    let registry = &program.runtime.handle().shared().workers.registry;
    let waits_again = |header: &Header| header.awaits().is_some_and(|(awaits, _)| awaits == Awaits::Permits);
    while registry.find(|header| (waits_again(header) && header.state.is_idle()).then_some(())).is_none() {
        std::thread::yield_now();
    }
    program.check(600 * SECOND);
    let seen = program.waits.0.lock().unwrap();
    let ended: Vec<_> = seen.lines.values().filter(|line| line.ended > 0).collect();
    let [line] = ended[..] else { panic!("one wait has ended") };
    assert!((SECOND..10 * SECOND).contains(&line.longest_ended_ns), "{}", line.longest_ended_ns);
    drop(task);
}

#[test]
fn the_sample_of_a_line_is_bounded_and_counts_every_task() {
    let (program, at, event) = (Program::new(), Location::caller(), Event::default());
    let tasks: Vec<_> = (0..100).map(|_| program.spawn(event.wait(Awaits::Permits, at, 1))).collect();
    program.check(SECOND);
    let sampled = || {
        let seen = program.waits.0.lock().unwrap();
        let line = seen.lines.values().next().unwrap();
        (line.waiting, line.sample.len(), line.ended)
    };
    assert_eq!(sampled(), (100, SAMPLE, 0));
    event.happen();
    for task in tasks {
        program.runtime.block_on(task).unwrap();
    }
    program.check(SECOND);
    assert_eq!(sampled(), (0, 0, SAMPLE as u64));
}
