//! One simulated runtime: its state, and the trace of the last steps. `step`, `load` and `check`
//! add its steps, its load and its checks.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::ptr;
use std::sync::Arc;

use super::model::Model;
use super::random::Random;
use super::worker_state::{Step, Watch, WorkerState};
use crate::handle::Handle;
use crate::scheduler::shared::Shared;
use crate::scheduler::worker::Worker;

/// How many steps are printed after a failure.
const TRACED: usize = 50;

thread_local! {
    /// The simulation that runs on this thread.
    pub(super) static WORLD: Cell<*const ()> = const { Cell::new(ptr::null()) };
}

/// Calls `f` with this thread's simulation, if there is one.
pub(super) fn with_world<R>(f: impl for<'a> FnOnce(&World<'a>) -> R) -> Option<R> {
    let world = WORLD.try_with(Cell::get).unwrap_or(ptr::null()).cast::<World<'_>>();
    // SAFETY: `World::run` sets it for as long as it borrows the world, further up the stack of
    // this thread.
    unsafe { world.as_ref() }.map(f)
}

/// A fault to inject; the checks must find each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
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

/// The actor that takes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Actor {
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
pub(super) struct World<'a> {
    pub(super) shared: Arc<Shared>,
    pub(super) handle: Handle,
    pub(super) workers: &'a [Worker],
    pub(super) states: Vec<WorkerState<'a>>,
    pub(super) random: &'a Random,
    pub(super) load: Load,
    pub(super) fault: Option<Fault>,
    pub(super) now_ns: Cell<u64>,
    pub(super) steps: Cell<u64>,
    pub(super) depth: Cell<u32>,
    pub(super) actor: Cell<Actor>,
    pub(super) models: RefCell<Vec<Model>>,
    /// Indices of the models, by task id.
    pub(super) indices: RefCell<HashMap<u64, usize>>,
    /// How many models are `Queued`.
    pub(super) queued: Cell<usize>,
    pub(super) alive: Cell<usize>,
    /// Submissions between Submit (1) and (2).
    pub(super) half_submitted: RefCell<Vec<Option<usize>>>,
    /// Claimed workers that have not received their token yet.
    pub(super) tokens: RefCell<Vec<usize>>,
    /// Whether the simulation adds nothing new at present.
    pub(super) is_resting: Cell<bool>,
    /// Polls of all workers.
    pub(super) polls: Cell<u64>,
    pub(super) lifo_slots_stolen: Cell<u64>,
    /// Checks of Park (3) that were a hit.
    pub(super) parks_given_up: Cell<u64>,
    trace: RefCell<VecDeque<Event>>,
    pub(super) violation: RefCell<Option<String>>,
}

/// How often each thing happens in one simulated runtime: per 1000 polls, unless stated otherwise.
#[derive(Debug)]
pub(super) struct Load {
    /// How many tasks may be alive at the same time.
    pub(super) max_alive: usize,
    pub(super) yields: usize,
    pub(super) ends: usize,
    pub(super) wakes: usize,
    pub(super) spawns: usize,
    pub(super) sleeps: usize,
    /// Per 1000 spawned tasks: those that wake each other for ever, in pairs.
    pub(super) pairs: usize,
    /// Per 1000 spawned tasks: those that yield for ever.
    pub(super) spinners: usize,
    /// Polls of 20 µs to 5 ms.
    pub(super) long_polls: usize,
    /// Polls during which other actors take steps.
    pub(super) interrupted: usize,
}

impl<'a> World<'a> {
    pub(super) fn new(
        shared: Arc<Shared>,
        workers: &'a [Worker],
        random: &'a Random,
        load: Load,
        fault: Option<Fault>,
        now_ns: u64,
    ) -> Self {
        let state = || WorkerState {
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
            states: workers.iter().map(|_| state()).collect(),
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

    pub(super) fn note(&self, what: &'static str, which: u64) {
        self.steps.set(self.steps.get() + 1);
        self.trace_event(what, which);
    }

    pub(super) fn trace_event(&self, what: &'static str, which: u64) {
        let mut trace = self.trace.borrow_mut();
        if trace.len() == TRACED {
            trace.pop_front();
        }
        let (step, depth, actor) = (self.steps.get(), self.depth.get(), self.actor.get());
        trace.push_back(Event { step, depth, actor, what, which });
    }

    pub(super) fn fail(&self, violation: String) {
        self.violation.borrow_mut().get_or_insert(violation);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.violation.borrow().is_some()
    }

    pub(super) fn print_trace(&self) -> String {
        let lines = self.trace.borrow();
        let line = |event: &Event| {
            let Event { step, depth, actor, what, which } = event;
            format!("{step:>8} {:indent$}{actor:?}: {what} {which}", "", indent = 2 * *depth as usize)
        };
        lines.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}
