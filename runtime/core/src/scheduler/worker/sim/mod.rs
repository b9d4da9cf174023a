//! A simulation of many workers on one thread, which checks the scheduler under random
//! interleavings.
//!
//! # Shape
//!
//! The workers, queues, idle set, driver and tasks are the real ones; only their threads are
//! missing. The actor that takes the next step is chosen from a seed: a worker (one of the steps of
//! which `Worker::turn` and `Worker::park` consist), a thread outside (spawns, wakes, aborts), the
//! clock (which is virtual and belongs to this thread), a time-out, or a spurious wake-up. A poll
//! takes its virtual time in slices. Between the slices, and so inside the poll, other actors take
//! steps. So polls overlap, thieves find long ones, and a sleeping worker is claimed while another
//! one parks.
//!
//! A thread may be interrupted between a submission and its wake-up (outside the workers), and
//! between a claim and its token. Hooks in `scheduler/spawn`, `shared/inject` and `workers/wake`
//! separate these two pairs of steps.
//!
//! # Checks
//!
//! The model stores for each task whether it waits, is queued, is in hand, is being polled or has
//! ended. It follows only wakes and polls, and is independent of the queues.
//! * *Once*: a task is taken out of a queue only if it is queued; it is polled only by the worker
//!   that took it.
//! * *Conserved*: the queues contain exactly the queued tasks, each once; spawned = completed +
//!   cancelled + panicked + alive.
//! * *No task waits*: when every worker sleeps and none is claimed, no task is queued. Also, while
//!   some worker sleeps and there is work that no worker is about to run, there is a searcher, or a
//!   worker in the middle of parking. Such work is any task in the global queue; and with stealing
//!   on, more tasks in one worker's queues than it runs next, or any task there while the worker is
//!   in a poll.
//! * *Polled*: when every worker sleeps, one sleeps in the driver. With an eager hand-off this also
//!   holds while any worker sleeps, if there is no searcher and no worker in the middle of parking.
//! * *Counted*: `searching` is the number of workers that are searchers by their own state, plus
//!   the claimed ones. A bit is set if and only if its worker is parked and not claimed.
//! * *Bounded*: see `check`.
//! * *No rescue*: a park time-out counts no `lost_wakeup_rescues`, unless an actor was delayed for
//!   that long between two steps that normally follow each other immediately, for example between a
//!   submission and its wake-up. Then the time-out has caught a late wake-up, not a lost one.
//!
//! Not covered: memory orderings (the loom models cover them), races inside one step, the driver's
//! sleep in the kernel, and the cooperative budget.
//!
//! A failure prints the seed and the last steps; `VOLT_SIM_SEED` repeats it.

mod check;
mod load;
mod model;
mod random;
mod spacing;
mod step;
mod tests;
mod worker_state;
mod world;

use std::io;
use std::num::NonZeroU64;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use self::random::Random;
use self::worker_state::Step;
use self::world::{Fault, WORLD, World, with_world};
use super::Worker;
use crate::blocking::pool::{Pool, Settings};
use crate::clock;
use crate::config::hooks::Hooks;
use crate::config::{Config, ParkSpin};
use crate::driver::turn::Driver;
use crate::failures::Failures;
use crate::scheduler::shared::{Shared, Threads};
use crate::scheduler::watch::suspension::Alarm;
use crate::task::id;

/// Steps from one rest, at which everything is checked, to the next.
const STEPS_TO_REST: u64 = 2_500;
/// Steps within which everything must come to rest if nothing new comes.
const STEPS_AT_REST: u64 = 200_000;

/// Hook between Submit (1) and (2): returns whether the simulation continues from there later.
pub(crate) fn delays_wake_up(chosen: Option<usize>) -> bool {
    with_world(|world| world.delays_wake_up(chosen)).unwrap_or(false)
}

/// Hook between a claim and its token: returns whether the simulation gives the token later.
pub(crate) fn delays_token(worker: usize) -> bool {
    with_world(|world| world.claimed(worker)).is_some()
}

/// Creates a runtime without threads.
fn build(config: Config, seed: u64) -> (Arc<Shared>, Vec<Worker>) {
    let failures = Arc::new(Failures::new("sim", false));
    let driver = Driver::new(None, 16, failures.clone()).expect("the system has an I/O driver");
    let settings = Settings {
        max_threads: 1,
        keep_alive: Duration::from_secs(1),
        thread_name: "sim".to_owned(),
        hooks: Hooks::default(),
        stack_size: None,
        spin: ParkSpin::Off,
        failures,
    };
    let threads = Threads {
        blocking: Pool::new(settings),
        start_spare: |_, _| Err(io::ErrorKind::Unsupported.into()),
        sentinel: Arc::new(Alarm::new()),
    };
    let (shared, cores) = Shared::new("sim".to_owned(), config, driver, threads, None, None, seed);
    let shared = Arc::new(shared);
    let workers = cores.into_iter().enumerate().map(|(index, core)| Worker::new(shared.clone(), index, core)).collect();
    (shared, workers)
}

/// The outcome of one simulated runtime.
struct Outcome {
    steps: u64,
    /// The events that have occurred, and how often.
    reached: Vec<(&'static str, u64)>,
    /// The violation, and the last steps before it.
    result: Result<(), String>,
}

/// Simulates one runtime for about `steps` steps.
fn simulate(random: &Random, steps: u64, fault: Option<Fault>) -> Outcome {
    // The times of earlier simulations must not matter here, so the clock starts at a random
    // instant.
    let start_ns = random.between(0, 1 << 31);
    clock::simulated::set(Some(start_ns));
    // In a range that no real task reaches, and the same in each run of a seed, so that the output
    // of failures can be compared.
    id::simulated::begin(NonZeroU64::new(1 << 63));
    let (config, load) = load::draw(random, fault);
    let described = format!("{load:?}, {config:?}");
    let (shared, workers) = build(config, random.next());
    let world = World::new(shared, &workers, random, load, fault, start_ns);
    let result = world.run(steps).map_err(|violation| format!("{violation}\nwith {described}"));
    let outcome = Outcome { steps: world.steps.get(), reached: world.reached(), result };
    drop(world);
    id::simulated::begin(None);
    clock::simulated::set(None);
    outcome
}

impl World<'_> {
    /// Takes steps, with a rest now and then, and a shutdown at the end.
    fn run(&self, steps: u64) -> Result<(), String> {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                // The remains of a failed run are dropped without the model.
                WORLD.set(ptr::null());
            }
        }
        WORLD.set(ptr::from_ref(self).cast());
        let _reset = Reset;
        let mut rests_at = STEPS_TO_REST;
        while self.steps.get() < steps && !self.has_failed() {
            self.contained_step();
            if self.steps.get() >= rests_at {
                self.rest();
                rests_at = self.steps.get() + STEPS_TO_REST;
            }
        }
        self.shut_down();
        let violation = self.violation.borrow_mut().take();
        violation.map_or(Ok(()), |violation| Err(format!("{violation}\n{}", self.print_trace())))
    }

    // ---- rest -----------------------------------------------------------------------------------

    /// Lets everything come to rest, and checks the whole state.
    fn rest(&self) {
        self.is_resting.set(true);
        self.come_to_rest(|| self.is_at_rest());
        self.check_rest();
        self.is_resting.set(false);
    }

    fn come_to_rest(&self, is_over: impl Fn() -> bool) {
        for _ in 0..STEPS_AT_REST {
            if is_over() || self.has_failed() {
                return;
            }
            self.contained_step();
        }
        self.fail("nothing new comes, and it does not come to rest".to_owned());
    }

    /// Returns whether all workers sleep, and none has been claimed or is about to be.
    fn is_at_rest(&self) -> bool {
        self.half_submitted.borrow().is_empty()
            && self
                .states
                .iter()
                .all(|state| !state.is_claimed.get() && matches!(*state.step.borrow(), Step::Sleep { .. }))
    }

    /// Cancels all tasks, and waits until every worker has exited.
    fn shut_down(&self) {
        if self.has_failed() {
            return;
        }
        self.note("shuts down", 0);
        self.is_resting.set(true);
        self.outside(|| {
            self.expect_cancellation();
            self.shared.close();
        });
        self.come_to_rest(|| self.states.iter().all(|state| matches!(*state.step.borrow(), Step::Ended)));
        self.check_end();
    }
}
