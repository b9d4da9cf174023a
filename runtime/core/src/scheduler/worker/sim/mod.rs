//! A simulation of many workers on one thread: a scheduler of schedulers.
//!
//! # Shape
//!
//! The workers, queues, idle set, driver and tasks are the real ones; what is missing is their
//! threads. A seed decides who takes the next step: a worker (one of those that `Worker::turn` and
//! `Worker::park` are made of), a thread outside (spawns, wakes, aborts), the clock (virtual, this
//! thread's own), a time-out, a sleep that ends for no reason. A poll takes its virtual time in
//! slices, and between them others take steps, inside the poll: so polls overlap, long ones are
//! found by thieves, and a sleeper is claimed while somebody else parks.
//!
//! Two things that a thread may be interrupted between are held apart by hooks in `Shared`: a
//! submission and its wake-up (of threads outside), and a claim and its token.
//!
//! # Checks
//!
//! The model knows of each task whether it waits, is queued, is in hand, is being polled or has
//! ended; it follows wakes and polls only, and knows nothing of queues.
//! * *Once*: a task is taken out of a queue only if it is queued; polled only by the worker that
//!   took it.
//! * *Conserved*: the queues hold exactly the queued tasks, each once; spawned = completed +
//!   cancelled + panicked + alive.
//! * *Nobody waits*: when every worker sleeps and none is claimed, nothing is queued. And while
//!   somebody sleeps and there is work that nobody is about to run (anything in the global queue;
//!   with stealing on, more in one worker's queues than it runs next, or anything while it is in a
//!   poll), somebody searches, or is in the middle of parking.
//! * *Polled*: when every worker sleeps, one does in the driver; with an eager hand-off, also while
//!   any of them sleeps, and nobody searches or is in the middle of parking.
//! * *Counted*: `searching` is the workers that believe so and those that are claimed; a bit is set
//!   if and only if its worker is parked and not claimed.
//! * *Bounded*: see `check`.
//! * *No net*: a park time-out counts no `lost_wakeup_rescues`, unless somebody was held up for as
//!   long between two steps that follow each other at once as a rule: between a submission and its
//!   wake-up, say. Then the net has caught what was late, not lost.
//!
//! What it does not cover: memory orderings (loom does), races inside one step, the driver's sleep
//! in the kernel, the cooperative budget.
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
use crate::config::{Config, ParkSpin};
use crate::driver::turn::Driver;
use crate::handle::Handle;
use crate::scheduler::shared::Shared;
use crate::task::id;
use crate::troubles::Troubles;

/// Steps printed after a failure.
const TRACED: usize = 50;
/// Steps from one rest, at which everything is checked, to the next.
const STEPS_TO_REST: u64 = 2_500;
/// Steps within which everything comes to rest when nothing new comes.
const STEPS_AT_REST: u64 = 200_000;

thread_local! {
    /// The simulation that this thread is in.
    static WORLD: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with this thread's simulation, if it is in one.
fn with_world<R>(f: impl for<'a> FnOnce(&World<'a>) -> R) -> Option<R> {
    let world = WORLD.try_with(Cell::get).unwrap_or(ptr::null()).cast::<World<'_>>();
    // SAFETY: `World::run` sets it for as long as it borrows the world, further up this thread's
    // stack.
    unsafe { world.as_ref() }.map(f)
}

/// Hook between Submit (1) and (2): whether the simulation will go on from there later.
pub(crate) fn delays_wake_up(chosen: Option<usize>) -> bool {
    with_world(|world| world.delays_wake_up(chosen)).unwrap_or(false)
}

/// Hook between a claim and its token: whether the simulation will give it later.
pub(crate) fn delays_token(worker: usize) -> bool {
    with_world(|world| world.claimed(worker)).is_some()
}

/// A fault to put in; each must be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Park without Park (3).
    NoCheck,
    /// Park (3) before Park (1).
    CheckFirst,
    /// A submission that comes from outside sometimes ends before Submit (2).
    NoWakeUp,
    /// The last searcher that finds work wakes nobody.
    NoChain,
    /// What retract says is not listened to.
    RetractIgnored,
    /// What is left in the batch buffer at the end of a tick is forgotten.
    BatchDropped,
    /// The LIFO slot's polls are not counted.
    NoLifoCap,
    /// The LIFO slot's polls are counted anew each tick, whether or not the ring had its turn.
    LifoRenewed,
    /// The global queue is checked only when there is nothing else.
    GlobalNeverDue,
    /// The global queue is checked whenever the batch buffer is empty.
    GlobalAlwaysDue,
    /// The inbox is not checked while the ring is full.
    InboxBehindRing,
    /// A worker that a check has kept awake is a searcher only if it steals.
    UpWithoutSearch,
}

/// Who takes a step.
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
    /// A task's or worker's index, a time, whatever `what` says.
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
    /// By task id.
    indices: RefCell<HashMap<u64, usize>>,
    /// Models that are `Queued`.
    queued: Cell<usize>,
    alive: Cell<usize>,
    /// Submissions that are between Submit (1) and (2).
    half_submitted: RefCell<Vec<Option<usize>>>,
    /// Claimed workers whose token is on its way.
    tokens: RefCell<Vec<usize>>,
    /// Nothing new is to come.
    is_resting: Cell<bool>,
    /// Of all workers.
    polls: Cell<u64>,
    lifo_slots_stolen: Cell<u64>,
    /// Checks of Park (3) that found something.
    parks_given_up: Cell<u64>,
    trace: RefCell<VecDeque<Event>>,
    violation: RefCell<Option<String>>,
}

/// xorshift64*.
struct Random(Cell<u64>);

impl Random {
    fn new(seed: u64) -> Self {
        // Neighbouring seeds apart, and never 0.
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

/// A runtime without threads.
fn build(config: Config, seed: u64) -> (Arc<Shared>, Vec<Worker>) {
    let troubles = Arc::new(Troubles::new("sim", false));
    let driver = Driver::new(None, 16, troubles.clone()).expect("the system has an I/O driver");
    let settings = Settings {
        max_threads: 1,
        keep_alive: Duration::from_secs(1),
        thread_name: "sim".to_owned(),
        stack_size: None,
        spin: ParkSpin::Off,
        troubles,
    };
    let (shared, cores) = Shared::new("sim".to_owned(), config, driver, Pool::new(settings), None, seed, |_, _| {
        Err(io::ErrorKind::Unsupported.into())
    });
    let shared = Arc::new(shared);
    let workers = cores.into_iter().enumerate().map(|(index, core)| Worker::new(shared.clone(), index, core)).collect();
    (shared, workers)
}

/// What came of one simulated runtime.
struct Outcome {
    steps: u64,
    /// What has happened, and how often.
    reached: Vec<(&'static str, u64)>,
    /// What was wrong, and the last steps before.
    result: Result<(), String>,
}

/// Runs one runtime for about `steps` steps.
fn simulate(random: &Random, steps: u64, fault: Option<Fault>) -> Outcome {
    // Nothing is left of earlier simulations in this one's times: its clock starts at an instant of
    // its own.
    let start_ns = random.between(0, 1 << 31);
    clock::simulated::set(Some(start_ns));
    // In a range that no real task reaches, and the same in each run of a seed, so that what a
    // failure tells can be compared.
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

    /// Steps, a rest now and then, and a shutdown.
    fn run(&self, steps: u64) -> Result<(), String> {
        struct Reset;
        impl Drop for Reset {
            fn drop(&mut self) {
                // What is left of a failed run is dropped without the model.
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

    /// Lets everything come to rest, and checks all of it.
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

    /// All sleep, and nobody is on the way.
    fn is_at_rest(&self) -> bool {
        self.half_submitted.borrow().is_empty()
            && self.seats.iter().all(|seat| !seat.is_claimed.get() && matches!(*seat.step.borrow(), Step::Sleep { .. }))
    }

    /// Everything is cancelled, and every worker ends.
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

    // ---- telling --------------------------------------------------------------------------------

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
