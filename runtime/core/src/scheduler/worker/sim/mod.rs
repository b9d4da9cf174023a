//! A simulation of many workers on one thread, which checks the scheduler under random
//! interleavings.
//!
//! # Shape
//!
//! The workers, queues, idle set, driver and tasks are the real ones; only their threads are
//! missing. A seed decides what takes the next step: a worker (one of the steps of which
//! `Worker::turn` and `Worker::park` consist), a thread outside (spawns, wakes, aborts), the clock
//! (which is virtual and belongs to this thread), a time-out, or a spurious wake-up. A poll takes
//! its virtual time in slices. Between the slices, and so inside the poll, other actors take steps.
//! So polls overlap, thieves find long ones, and a sleeping worker is claimed while another one
//! parks.
//!
//! A thread may be interrupted between a submission and its wake-up (outside the workers), and
//! between a claim and its token. Hooks in `Shared` separate these two pairs of steps.
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
mod spacing;
mod step;
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::num::NonZeroU64;
use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use self::check::Watch;
use self::load::{Load, Model};
use self::step::{Seat, Step};
use super::Worker;
use crate::blocking::pool::{Pool, Settings};
use crate::clock;
use crate::config::hooks::Hooks;
use crate::config::{Config, ParkSpin};
use crate::driver::turn::Driver;
use crate::failures::Failures;
use crate::handle::Handle;
use crate::scheduler::sentinel::doze::Alarm;
use crate::scheduler::shared::{Shared, Threads};
use crate::task::id;

/// How many steps are printed after a failure.
const TRACED: usize = 50;
/// Steps from one rest, at which everything is checked, to the next.
const STEPS_TO_REST: u64 = 2_500;
/// Steps within which everything must come to rest if nothing new comes.
const STEPS_AT_REST: u64 = 200_000;

thread_local! {
    /// The simulation that runs on this thread.
    static WORLD: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with this thread's simulation, if there is one.
fn with_world<R>(f: impl for<'a> FnOnce(&World<'a>) -> R) -> Option<R> {
    let world = WORLD.try_with(Cell::get).unwrap_or(ptr::null()).cast::<World<'_>>();
    // SAFETY: `World::run` sets it for as long as it borrows the world, further up the stack of
    // this thread.
    unsafe { world.as_ref() }.map(f)
}

/// Hook between Submit (1) and (2): returns whether the simulation continues from there later.
pub(crate) fn delays_wake_up(chosen: Option<usize>) -> bool {
    with_world(|world| world.delays_wake_up(chosen)).unwrap_or(false)
}

/// Hook between a claim and its token: returns whether the simulation gives the token later.
pub(crate) fn delays_token(worker: usize) -> bool {
    with_world(|world| world.claimed(worker)).is_some()
}

/// A fault to inject; the checks must find each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Park without Park (3).
    NoCheck,
    /// Park (3) before Park (1).
    CheckFirst,
    /// A submission from outside sometimes ends before Submit (2).
    NoWakeUp,
    /// The last searcher that finds work wakes no other worker.
    NoChain,
    /// The result of the retract is ignored.
    RetractIgnored,
    /// Tasks that are left in the batch buffer at the end of a tick are lost.
    BatchDropped,
    /// The polls from the LIFO slot are not counted.
    NoLifoCap,
    /// The count of polls from the LIFO slot is reset each tick, even if the ring had no turn.
    LifoRenewed,
    /// The global queue is checked only when there is no other task.
    GlobalNeverDue,
    /// The global queue is checked whenever the batch buffer is empty.
    GlobalAlwaysDue,
    /// The inbox is not checked while the ring is full.
    InboxBehindRing,
    /// A worker whose check was a hit becomes a searcher only if stealing is on.
    UpWithoutSearch,
}

/// What takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    Outside,
    Worker(usize),
}

/// One line of the trace.
#[derive(Clone, Copy)]
struct Event {
    step: u64,
    depth: u32,
    actor: Actor,
    what: &'static str,
    /// The index of a task or worker, or a time, depending on `what`.
    which: u64,
}

/// One simulated runtime.
struct World<'a> {
    shared: Arc<Shared>,
    handle: Handle,
    workers: &'a [Worker],
    seats: Vec<Seat<'a>>,
    random: &'a Random,
    load: Load,
    fault: Option<Fault>,
    now_ns: Cell<u64>,
    steps: Cell<u64>,
    depth: Cell<u32>,
    actor: Cell<Actor>,
    models: RefCell<Vec<Model>>,
    /// Indices of the models, by task id.
    indices: RefCell<HashMap<u64, usize>>,
    /// How many models are `Queued`.
    queued: Cell<usize>,
    alive: Cell<usize>,
    /// Submissions between Submit (1) and (2).
    half_submitted: RefCell<Vec<Option<usize>>>,
    /// Claimed workers that have not received their token yet.
    tokens: RefCell<Vec<usize>>,
    /// Whether the simulation adds nothing new at present.
    is_resting: Cell<bool>,
    /// Polls of all workers.
    polls: Cell<u64>,
    lifo_slots_stolen: Cell<u64>,
    /// Checks of Park (3) that were a hit.
    parks_given_up: Cell<u64>,
    trace: RefCell<VecDeque<Event>>,
    violation: RefCell<Option<String>>,
}

/// xorshift64*.
struct Random(Cell<u64>);

impl Random {
    fn new(seed: u64) -> Self {
        // Separates neighbouring seeds, and is never 0.
        Self(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03 | 1))
    }

    fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&self, n: usize) -> usize {
        (((self.next() >> 32) * n as u64) >> 32) as usize
    }

    fn one_in(&self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn between(&self, min: u64, max: u64) -> u64 {
        min + self.below((max - min + 1) as usize) as u64
    }

    fn pick<T: Copy>(&self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
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
    /// What has happened, and how often.
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

impl<'a> World<'a> {
    fn new(
        shared: Arc<Shared>,
        workers: &'a [Worker],
        random: &'a Random,
        load: Load,
        fault: Option<Fault>,
        now_ns: u64,
    ) -> Self {
        let seat = || Seat {
            step: RefCell::new(Step::Begin),
            is_claimed: Cell::new(false),
            has_token: Cell::new(false),
            is_fresh: Cell::new(true),
            is_excused: Cell::new(false),
            watch: RefCell::new(Watch::default()),
        };
        Self {
            handle: Handle::new(shared.clone()),
            shared,
            workers,
            seats: workers.iter().map(|_| seat()).collect(),
            random,
            load,
            fault,
            now_ns: Cell::new(now_ns),
            steps: Cell::new(0),
            depth: Cell::new(0),
            actor: Cell::new(Actor::Outside),
            models: RefCell::new(Vec::new()),
            indices: RefCell::new(HashMap::new()),
            queued: Cell::new(0),
            alive: Cell::new(0),
            half_submitted: RefCell::new(Vec::new()),
            tokens: RefCell::new(Vec::new()),
            is_resting: Cell::new(false),
            polls: Cell::new(0),
            lifo_slots_stolen: Cell::new(0),
            parks_given_up: Cell::new(0),
            trace: RefCell::new(VecDeque::with_capacity(TRACED)),
            violation: RefCell::new(None),
        }
    }

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

    fn print_trace(&self) -> String {
        let lines = self.trace.borrow();
        let line = |event: &Event| {
            let Event { step, depth, actor, what, which } = event;
            format!("{step:>8} {:indent$}{actor:?}: {what} {which}", "", indent = 2 * *depth as usize)
        };
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
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
            && self.seats.iter().all(|seat| !seat.is_claimed.get() && matches!(*seat.step.borrow(), Step::Sleep { .. }))
    }

    /// Cancels all tasks, and waits until every worker has ended.
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
        self.come_to_rest(|| self.seats.iter().all(|seat| matches!(*seat.step.borrow(), Step::Ended)));
        self.check_end();
    }

    // ---- tracing --------------------------------------------------------------------------------

    fn note(&self, what: &'static str, which: u64) {
        self.steps.set(self.steps.get() + 1);
        self.trace_event(what, which);
    }

    fn trace_event(&self, what: &'static str, which: u64) {
        let mut trace = self.trace.borrow_mut();
        if trace.len() == TRACED {
            trace.pop_front();
        }
        let (step, depth, actor) = (self.steps.get(), self.depth.get(), self.actor.get());
        trace.push_back(Event { step, depth, actor, what, which });
    }

    fn fail(&self, violation: String) {
        self.violation.borrow_mut().get_or_insert(violation);
    }

    fn has_failed(&self) -> bool {
        self.violation.borrow().is_some()
    }
}
