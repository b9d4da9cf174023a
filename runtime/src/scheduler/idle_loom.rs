//! loom models of the idle set with the park words: workers, submitters, tasks; and of the same with one step done wrong.
//!
//! Built like those of the ring: [`Steps`] holds what a fault can replace, with the words of the protocol in `idle.rs`. A task is a flag: published
//! with a Release store, as the tail of a ring is, seen by a load, taken by a swap. Whoever runs the last one raises `over`, itself
//! something that is published and submitted to everybody. No sleep has a time-out but those that a model asks for, so what is
//! lost ends with threads that wait for ever, which loom finds. At the end nobody may be left among the searchers or the parked.

use std::time::Duration;

use loom::thread;

use super::*;
use crate::driver::parker::{Parker, Unparked};
use crate::shim::explore::{breaks, holds};
use crate::shim::{Arc, AtomicBool, Condvar, Mutex};

/// The steps that a fault can replace.
trait Steps: 'static {
    /// Submit (2) and (3).
    fn claim_for_submit(idle: &Idle, keep_last: Option<usize>) -> Option<usize> {
        idle.claim_for_submit(keep_last)
    }

    /// Claim, after Submit.
    fn claim_any(idle: &Idle, keep_last: Option<usize>) -> Option<usize> {
        idle.claim_any(keep_last)
    }

    /// Park (1), (2) and the look of (3): whether there was a hit.
    fn park(world: &World, worker: usize, was_searching: bool) -> bool {
        world.idle.begin_park(worker, was_searching);
        world.look()
    }

    /// Retract, and what follows from it: whether the worker is a searcher.
    fn retract(world: &World, worker: usize, is_hit: bool) -> bool {
        if world.idle.retract(worker) {
            let _ = world.parkers[worker].take_token();
            if is_hit {
                world.idle.start_searching();
            }
            is_hit
        } else {
            world.parkers[worker].wait_token();
            true
        }
    }

    /// Search: what a searcher that found `task` does.
    fn run_found(world: &World, task: usize) {
        if world.idle.stop_searching() && world.look() {
            world.wake(Self::claim_any(&world.idle, world.shape.keep_last));
        }
        world.run::<Self>(task);
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// What a model consists of.
#[derive(Clone, Copy)]
struct Shape {
    workers: usize,
    /// Tasks that each submitter hands in; 0 = no such submitter.
    submits: [usize; 2],
    /// Whether a worker becomes a searcher when it has nothing to do; if not, as with stealing off, only a claim makes it one.
    searches: bool,
    /// Sleeps of each worker that end with a time-out.
    time_outs: usize,
    /// Whether a task waits, in its poll, until all others have begun: nobody may sleep while another is in there.
    meets: bool,
    /// A worker that sleeps in the driver, and is woken last.
    keep_last: Option<usize>,
}

const SHAPE: Shape = Shape { workers: 1, submits: [1, 0], searches: true, time_outs: 0, meets: false, keep_last: None };

struct World {
    shape: Shape,
    idle: Idle,
    parkers: Vec<Parker>,
    tasks: Vec<AtomicBool>,
    /// Tasks begun.
    begun: AtomicUsize,
    all_begun: Mutex<bool>,
    begins: Condvar,
    over: AtomicBool,
    /// The driver's waker, sticky.
    driver: Mutex<bool>,
    driver_wakes: Condvar,
}

impl World {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            idle: Idle::new(shape.workers),
            parkers: (0..shape.workers).map(|_| Parker::new()).collect(),
            tasks: (0..shape.submits.iter().sum()).map(|_| AtomicBool::new(false)).collect(),
            begun: AtomicUsize::new(0),
            all_begun: Mutex::new(false),
            begins: Condvar::new(),
            over: AtomicBool::new(false),
            driver: Mutex::new(false),
            driver_wakes: Condvar::new(),
        }
    }

    /// The look into everything.
    fn look(&self) -> bool {
        self.tasks.iter().any(|task| task.load(Ordering::Acquire)) || self.over.load(Ordering::Acquire)
    }

    fn take(&self) -> Option<usize> {
        self.tasks.iter().position(|task| task.load(Ordering::Acquire) && task.swap(false, Ordering::Acquire))
    }

    /// Claim: the token for the one that was claimed.
    fn wake(&self, claimed: Option<usize>) {
        if claimed.is_some_and(|worker| self.parkers[worker].unpark() == Unparked::InDriver) {
            *self.driver.lock() = true;
            self.driver_wakes.notify_one();
        }
    }

    /// Runs a task; after the last one nothing is left to do.
    fn run<S: Steps + ?Sized>(&self, _task: usize) {
        let is_last = self.begun.fetch_add(1, Ordering::AcqRel) + 1 == self.tasks.len();
        if self.shape.meets {
            let mut all_begun = self.all_begun.lock();
            *all_begun |= is_last;
            self.begins.notify_all();
            while !*all_begun {
                all_begun = self.begins.wait(all_begun).unwrap();
            }
        }
        if is_last {
            self.over.store(true, Ordering::Release);
            loop {
                let claimed = self.idle.claim_any(None);
                if claimed.is_none() {
                    return;
                }
                self.wake(claimed);
            }
        }
    }

    fn sleep(&self, worker: usize, timeout: Option<Duration>) {
        if self.shape.keep_last == Some(worker) && timeout.is_none() {
            if self.parkers[worker].begin_driver() {
                let mut is_woken = self.driver.lock();
                while !*is_woken {
                    is_woken = self.driver_wakes.wait(is_woken).unwrap();
                }
                *is_woken = false;
            }
        } else {
            self.parkers[worker].sleep(timeout);
        }
    }

    fn worker<S: Steps>(&self, worker: usize) {
        let mut time_outs = self.shape.time_outs;
        let mut is_searching = false;
        loop {
            if self.shape.searches && !is_searching {
                is_searching = self.idle.try_start_searching();
            }
            if let Some(task) = self.take() {
                if std::mem::take(&mut is_searching) {
                    S::run_found(self, task);
                } else {
                    self.run::<S>(task);
                }
                continue;
            }
            if self.over.load(Ordering::Acquire) {
                break;
            }
            let is_hit = S::park(self, worker, is_searching);
            if !is_hit {
                let timeout = (time_outs > 0).then_some(Duration::ZERO);
                time_outs = time_outs.saturating_sub(1);
                self.sleep(worker, timeout);
            }
            is_searching = S::retract(self, worker, is_hit);
            assert!(self.idle.searching() <= self.shape.workers, "COUNTED-ONCE");
        }
        if is_searching {
            let _ = self.idle.stop_searching();
        }
    }

    fn submitter<S: Steps>(&self, tasks: std::ops::Range<usize>) {
        for task in tasks {
            // Submit (1)
            self.tasks[task].store(true, Ordering::Release);
            self.wake(S::claim_for_submit(&self.idle, self.shape.keep_last));
        }
    }
}

fn model<S: Steps>(shape: Shape) {
    let world = Arc::new(World::new(shape));
    let mut threads = Vec::new();
    for worker in 0..shape.workers {
        let world = world.clone();
        threads.push(thread::spawn(move || world.worker::<S>(worker)));
    }
    let [first, second] = shape.submits;
    for tasks in [0..first, first..first + second].into_iter().filter(|tasks| !tasks.is_empty()) {
        let world = world.clone();
        threads.push(thread::spawn(move || world.submitter::<S>(tasks)));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(world.begun.load(Ordering::Relaxed), world.tasks.len());
    assert_eq!((world.idle.searching(), world.idle.parked_words()), (0, vec![0]), "somebody was left behind");
}

const TWO_SUBMITS: Shape = Shape { submits: [2, 0], ..SHAPE };
const TWO_SUBMITTERS: Shape = Shape { submits: [1, 1], ..SHAPE };
const STEALING_OFF: Shape = Shape { searches: false, ..TWO_SUBMITS };
const TIME_OUTS: Shape = Shape { time_outs: 1, ..TWO_SUBMITS };
const TWO_WORKERS: Shape = Shape { workers: 2, ..TWO_SUBMITS };
const TWO_THAT_MEET: Shape = Shape { meets: true, ..TWO_WORKERS };

#[test]
fn one_worker_loses_nothing() {
    holds(None, || model::<AsBuilt>(TWO_SUBMITS));
}

#[test]
fn one_worker_with_stealing_off_loses_nothing() {
    holds(None, || model::<AsBuilt>(STEALING_OFF));
}

#[test]
fn one_worker_and_two_submitters_lose_nothing() {
    holds(None, || model::<AsBuilt>(TWO_SUBMITTERS));
}

#[test]
fn a_time_out_against_a_claim_leaves_nobody_behind() {
    holds(None, || model::<AsBuilt>(TIME_OUTS));
}
#[test]
fn two_workers_lose_nothing() {
    holds(Some(2), || model::<AsBuilt>(TWO_WORKERS));
}

#[test]
fn two_tasks_that_meet_get_two_workers() {
    holds(Some(2), || model::<AsBuilt>(TWO_THAT_MEET));
}
