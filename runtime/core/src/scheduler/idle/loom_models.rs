//! loom models of the idle set together with the park words: workers, submitters and tasks. For
//! each step of the protocol there is also a model in which that step is done wrong, which must
//! fail.
//!
//! The workers park through `parking`, as in the runtime. The steps that a fault can replace are in
//! [`Steps`], named as in the header of `idle`. A task is a flag: published with a Release store,
//! like the tail of a ring, seen by a load, and taken by a swap. The thread that runs the last task
//! sets `over`, which is itself published and submitted to all workers. A sleep has a time-out only
//! in models whose shape has one. A lost wake-up therefore leaves a thread that waits for
//! ever, which loom reports as a deadlock. At the end there must be no searcher and no parked
//! worker.

use std::cell::Cell;
use std::marker::PhantomData;
use std::time::Duration;

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, AtomicBool, Condvar, Mutex};

use super::*;
use crate::driver::parker::{Parker, Unparked};
use crate::queue::ring::{Steal, Stealer, ring};
use crate::scheduler::idle::parking::{ParkTarget, Parks, leave_searchers, park};

/// The steps that a fault can replace: those of [`Parks`], and those of submitters and searchers.
trait Steps: Sized + 'static {
    /// Submit (2) and (3), and the token.
    fn submitted(world: &World) {
        let claimed = match world.shape.inbox_of {
            Some(worker) => world.idle.claim_worker(worker).then_some(worker),
            None => world.idle.claim_for_submit(world.shape.keep_last),
        };
        world.wake(claimed);
    }

    fn begin_park(model: &ModelWorker<'_, Self>) {
        AsInRuntime(model).begin_park();
    }

    fn is_needed(model: &ModelWorker<'_, Self>) -> bool {
        model.world.check(model.worker)
    }

    fn watch(model: &ModelWorker<'_, Self>) -> bool {
        model.parker().has_token()
    }

    fn retract(model: &ModelWorker<'_, Self>) -> bool {
        AsInRuntime(model).retract()
    }

    fn settle_after_hit(model: &ModelWorker<'_, Self>, is_claimed: bool) {
        AsInRuntime(model).settle_after_hit(is_claimed);
    }

    fn settle_after_sleep(model: &ModelWorker<'_, Self>, is_claimed: bool) {
        AsInRuntime(model).settle_after_sleep(is_claimed);
    }

    /// Search: runs the work that a searcher found.
    fn run_found(world: &World, worker: usize) {
        let wake_one = || world.wake(world.idle.claim_any(world.shape.keep_last));
        leave_searchers(&world.idle, || world.check(worker), wake_one);
        world.run();
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// The parameters of a model.
#[derive(Clone, Copy)]
struct Shape {
    workers: usize,
    /// How many tasks each submitter submits; 0 = there is no such submitter.
    submits: [usize; 2],
    /// Whether a worker becomes a searcher when it has nothing to do. If not, as with stealing off,
    /// only a claim makes it a searcher.
    searches: bool,
    /// Whether a worker spins before it sleeps.
    spins: bool,
    /// How many sleeps of each worker end with a time-out.
    time_outs: usize,
    /// Whether each task waits, in its poll, until all other tasks have begun. Then no worker may
    /// stay asleep while another one is in such a poll.
    meets: bool,
    /// The worker that sleeps in the driver, and is woken last.
    keep_last: Option<usize>,
    /// The worker that all tasks are for, as in an inbox that no other worker reads.
    inbox_of: Option<usize>,
}

struct World {
    shape: Shape,
    idle: Idle,
    parkers: Vec<Parker>,
    tasks: Vec<AtomicBool>,
    /// How many tasks have begun.
    begun: AtomicUsize,
    all_begun: Mutex<bool>,
    begins: Condvar,
    over: AtomicBool,
    /// The driver's waker, which is sticky.
    driver: Mutex<bool>,
    driver_wakes: Condvar,
}

impl World {
    fn new(shape: Shape) -> Self {
        Self {
            shape,
            idle: Idle::new(shape.workers, 0),
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

    /// The check of every queue.
    fn check(&self, worker: usize) -> bool {
        self.tasks_of(worker).any(|task| task.load(Ordering::Acquire)) || self.over.load(Ordering::Acquire)
    }

    fn take(&self, worker: usize) -> bool {
        self.tasks_of(worker).any(|task| task.load(Ordering::Acquire) && task.swap(false, Ordering::Acquire))
    }

    fn tasks_of(&self, worker: usize) -> impl Iterator<Item = &AtomicBool> {
        let is_for_it = self.shape.inbox_of.is_none_or(|owner| owner == worker);
        self.tasks.iter().filter(move |_| is_for_it)
    }

    /// Claim: gives the token to the claimed worker.
    fn wake(&self, claimed: Option<usize>) {
        if claimed.is_some_and(|worker| self.parkers[worker].unpark() == Unparked::InDriver) {
            *self.driver.lock() = true;
            self.driver_wakes.notify_one();
        }
    }

    /// Runs a task; after the last one, sets `over` and wakes all workers.
    fn run(&self) {
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

    fn worker<S: Steps>(&self, worker: usize) {
        let model = ModelWorker::<S> {
            world: self,
            worker,
            is_searching: Cell::new(false),
            is_hit: Cell::new(false),
            time_outs: Cell::new(self.shape.time_outs),
            steps: PhantomData,
        };
        loop {
            if self.shape.searches && !model.is_searching.get() && !model.is_hit.get() {
                model.is_searching.set(self.idle.try_start_searching());
            }
            if self.take(worker) {
                if model.is_searching.take() {
                    S::run_found(self, worker);
                } else {
                    self.run();
                }
                continue;
            }
            if self.over.load(Ordering::Acquire) {
                break;
            }
            park(&model);
            // ORDERING: a read-modify-write, because it reads the newest value.
            let searching = self.idle.searching.fetch_add(0, Ordering::Relaxed);
            assert!(searching <= self.shape.workers, "COUNTED-ONCE");
        }
        if model.is_searching.get() {
            let _ = self.idle.stop_searching();
        }
    }

    fn submitter<S: Steps>(&self, tasks: std::ops::Range<usize>) {
        for task in tasks {
            // Submit (1)
            self.tasks[task].store(true, Ordering::Release);
            // Submit (2) and (3)
            S::submitted(self);
        }
    }
}

/// A worker, as seen by its own thread.
struct ModelWorker<'w, S> {
    world: &'w World,
    worker: usize,
    is_searching: Cell<bool>,
    /// Whether the last park ended with a hit.
    is_hit: Cell<bool>,
    time_outs: Cell<usize>,
    steps: PhantomData<S>,
}

impl<S> ModelWorker<'_, S> {
    /// Returns whether this sleep ends with a time-out.
    fn times_out(&self) -> bool {
        self.time_outs.get() > 0
    }
}

/// Takes the runtime's own steps, except for those that this forwards to the model.
struct AsInRuntime<'s, 'w, S>(&'s ModelWorker<'w, S>);

/// Forwards the methods that both implementations have in common.
macro_rules! forward {
    ($($method:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {
        $(fn $method(&self, $($argument: $type),*) $(-> $result)? { self.0.$method($($argument),*) })*
    };
}

impl<S: Steps> Parks for AsInRuntime<'_, '_, S> {
    type Turn<'a>
        = ()
    where
        Self: 'a;
    type Slept = ();

    fn idle(&self) -> &Idle {
        self.0.idle()
    }

    fn parker(&self) -> &Parker {
        self.0.parker()
    }

    forward! {
        index() -> usize;
        set_searching(is_searching: bool) -> bool;
        is_needed() -> bool;
        count_park();
        is_spin_worth() -> bool;
        watch() -> bool;
        linger();
        try_turn() -> Option<()>;
        begin_sleep(is_in_driver: bool) -> Option<Duration>;
        sleep(target: ParkTarget<()>);
        begin_search(slept: Option<&()>, is_claimed: bool);
    }
}

impl<S: Steps> Parks for ModelWorker<'_, S> {
    type Turn<'a>
        = ()
    where
        Self: 'a;
    type Slept = ();

    fn idle(&self) -> &Idle {
        &self.world.idle
    }

    fn index(&self) -> usize {
        self.worker
    }

    fn parker(&self) -> &Parker {
        &self.world.parkers[self.worker]
    }

    fn set_searching(&self, is_searching: bool) -> bool {
        self.is_searching.replace(is_searching)
    }

    fn is_needed(&self) -> bool {
        S::is_needed(self)
    }

    fn count_park(&self) {}

    fn is_spin_worth(&self) -> bool {
        self.world.shape.spins
    }

    /// Checks once only: a second check later is the same as a spin that began later.
    fn watch(&self) -> bool {
        S::watch(self)
    }

    fn linger(&self) {}

    fn try_turn(&self) -> Option<()> {
        (self.world.shape.keep_last == Some(self.worker) && !self.times_out()).then_some(())
    }

    fn begin_sleep(&self, _is_in_driver: bool) -> Option<Duration> {
        let times_out = self.times_out();
        self.time_outs.set(self.time_outs.get().saturating_sub(1));
        times_out.then_some(Duration::ZERO)
    }

    fn sleep(&self, target: ParkTarget<()>) {
        match target {
            ParkTarget::Driver { .. } => {
                let mut is_woken = self.world.driver.lock();
                while !*is_woken {
                    is_woken = self.world.driver_wakes.wait(is_woken).unwrap();
                }
                *is_woken = false;
            }
            ParkTarget::Futex { timeout } => _ = self.parker().sleep(timeout),
            ParkTarget::Token => {}
        }
    }

    fn begin_search(&self, slept: Option<&()>, _is_claimed: bool) {
        self.is_hit.set(slept.is_none());
    }

    fn begin_park(&self) {
        S::begin_park(self);
    }

    fn retract(&self) -> bool {
        S::retract(self)
    }

    fn settle_after_hit(&self, is_claimed: bool) {
        S::settle_after_hit(self, is_claimed);
    }

    fn settle_after_sleep(&self, is_claimed: bool) {
        S::settle_after_sleep(self, is_claimed);
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
    assert_eq!((world.idle.searching(), world.idle.parked_words(1)), (0, vec![0]), "a worker was left behind");
}

const ONE: Shape = Shape {
    workers: 1,
    submits: [2, 0],
    searches: true,
    spins: false,
    time_outs: 0,
    meets: false,
    keep_last: None,
    inbox_of: None,
};
const ONE_WITH_STEALING_OFF: Shape = Shape { searches: false, ..ONE };
const ONE_WITH_TIME_OUTS: Shape = Shape { time_outs: 1, ..ONE };
const ONE_WITH_TWO_SUBMITTERS: Shape = Shape { submits: [1, 1], ..ONE };
const ONE_IN_THE_DRIVER: Shape = Shape { keep_last: Some(0), ..ONE };
const ONE_THAT_SPINS: Shape = Shape { spins: true, ..ONE_WITH_STEALING_OFF };
const TWO_THAT_MEET: Shape = Shape { workers: 2, meets: true, ..ONE };
const TWO_ONLY_WOKEN: Shape = Shape { searches: false, ..TWO_THAT_MEET };
const TWO_THAT_SPIN: Shape = Shape { spins: true, ..TWO_ONLY_WOKEN };

#[test]
fn one_worker_loses_nothing() {
    holds(None, || model::<AsBuilt>(ONE));
}

#[test]
fn one_worker_with_stealing_off_loses_nothing() {
    holds(None, || model::<AsBuilt>(ONE_WITH_STEALING_OFF));
}

#[test]
fn one_worker_and_two_submitters_lose_nothing() {
    holds(Some(2), || model::<AsBuilt>(ONE_WITH_TWO_SUBMITTERS));
}

#[test]
fn one_worker_in_the_driver_loses_nothing() {
    holds(None, || model::<AsBuilt>(ONE_IN_THE_DRIVER));
}

#[test]
fn a_time_out_during_a_claim_leaves_no_worker_behind() {
    holds(None, || model::<AsBuilt>(ONE_WITH_TIME_OUTS));
}

#[test]
fn one_worker_that_spins_loses_nothing() {
    holds(Some(2), || model::<AsBuilt>(ONE_THAT_SPINS));
    holds(Some(2), || model::<AsBuilt>(Shape { time_outs: 1, ..ONE_THAT_SPINS }));
    holds(Some(2), || model::<AsBuilt>(Shape { spins: true, ..ONE_WITH_TWO_SUBMITTERS }));
}

#[test]
fn two_tasks_that_meet_get_two_workers_of_which_one_spins() {
    holds(Some(1), || model::<AsBuilt>(TWO_THAT_SPIN));
    holds(Some(1), || model::<AsBuilt>(Shape { keep_last: Some(0), ..TWO_THAT_SPIN }));
}

#[test]
fn two_tasks_that_meet_get_two_workers() {
    // With 2 preemptions this takes 94 s of processor time.
    holds(Some(1), || model::<AsBuilt>(TWO_THAT_MEET));
}

#[test]
fn two_tasks_that_meet_get_two_workers_searching_only_if_woken() {
    holds(Some(2), || model::<AsBuilt>(TWO_ONLY_WOKEN));
}

#[test]
fn two_submitters_get_two_workers() {
    holds(Some(1), || model::<AsBuilt>(Shape { submits: [1, 1], ..TWO_ONLY_WOKEN }));
}

#[test]
fn two_workers_that_time_out_are_both_found() {
    holds(Some(1), || model::<AsBuilt>(Shape { time_outs: 1, ..TWO_ONLY_WOKEN }));
}

#[test]
fn the_worker_in_the_driver_is_woken_when_it_is_needed() {
    holds(Some(1), || model::<AsBuilt>(Shape { keep_last: Some(0), ..TWO_ONLY_WOKEN }));
}

#[test]
fn a_task_for_one_worker_reaches_that_worker() {
    holds(Some(2), || model::<AsBuilt>(Shape { workers: 2, inbox_of: Some(1), ..ONE_WITH_STEALING_OFF }));
}

#[test]
fn three_workers_lose_nothing() {
    holds(Some(1), || model::<AsBuilt>(Shape { workers: 3, submits: [1, 0], ..TWO_ONLY_WOKEN }));
}

/// Submit without its fence.
struct SubmitsWithoutFence;

impl Steps for SubmitsWithoutFence {
    fn submitted(world: &World) {
        if world.idle.searching() == 0 {
            world.wake(world.idle.claim(None));
        }
    }
}

#[test]
fn a_submit_without_its_fence_is_found() {
    breaks("deadlock", None, || model::<SubmitsWithoutFence>(ONE_WITH_STEALING_OFF));
}

/// Submit with the fence after the check of the searchers and the bits.
struct ChecksBeforeItsFence;

impl Steps for ChecksBeforeItsFence {
    fn submitted(world: &World) {
        let may_wake = world.idle.searching() == 0 && world.idle.is_parked(0);
        fence(Ordering::SeqCst);
        if may_wake {
            world.wake(world.idle.claim(None));
        }
    }
}

/// The steps of most submitters of surplus: check once whether any worker is parked, and do nothing
/// more if there is none.
struct ChecksForTheParkedFirst;

impl Steps for ChecksForTheParkedFirst {
    fn submitted(world: &World) {
        if world.idle.is_any_parked() {
            AsBuilt::submitted(world);
        }
    }
}

#[test]
fn one_check_for_the_parked_before_a_claim_loses_nothing() {
    holds(None, || model::<ChecksForTheParkedFirst>(ONE_WITH_STEALING_OFF));
    holds(Some(1), || model::<ChecksForTheParkedFirst>(TWO_THAT_MEET));
}

/// The same without Submit (2) before the check; the fence inside the claim comes too late.
struct ChecksForTheParkedWithoutFence;

impl Steps for ChecksForTheParkedWithoutFence {
    fn submitted(world: &World) {
        if !world.idle.is_none_parked() {
            AsBuilt::submitted(world);
        }
    }
}

#[test]
fn a_check_for_the_parked_without_a_fence_is_found() {
    breaks("deadlock", None, || model::<ChecksForTheParkedWithoutFence>(ONE_WITH_STEALING_OFF));
}

#[test]
fn a_submit_with_its_fence_too_late_is_found() {
    breaks("deadlock", None, || model::<ChecksBeforeItsFence>(ONE_WITH_STEALING_OFF));
}

/// Park without its fence.
struct ParksWithoutFence;

impl Steps for ParksWithoutFence {
    fn begin_park(model: &ModelWorker<'_, Self>) {
        if model.set_searching(false) {
            model.idle().leave_searchers();
        }
        let (word, bit) = model.idle().place(model.worker);
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

#[test]
fn a_park_without_its_fence_is_found() {
    breaks("deadlock", None, || model::<ParksWithoutFence>(ONE_WITH_STEALING_OFF));
}

/// Checks everything before it publishes "parked".
struct ChecksBeforePublishing;

impl Steps for ChecksBeforePublishing {
    fn begin_park(model: &ModelWorker<'_, Self>) {
        model.is_hit.set(model.world.check(model.worker));
        AsInRuntime(model).begin_park();
    }

    fn is_needed(model: &ModelWorker<'_, Self>) -> bool {
        model.is_hit.get()
    }
}

#[test]
fn checking_before_publishing_is_found() {
    breaks("deadlock", None, || model::<ChecksBeforePublishing>(ONE));
}

/// Only the last searcher checks again.
struct OnlyTheLastSearcherChecks;

impl Steps for OnlyTheLastSearcherChecks {
    fn begin_park(model: &ModelWorker<'_, Self>) {
        model.is_hit.set(model.is_searching.get());
        AsInRuntime(model).begin_park();
    }

    fn is_needed(model: &ModelWorker<'_, Self>) -> bool {
        let was_searching = model.is_hit.get();
        was_searching && model.idle().searching() == 0 && model.world.check(model.worker)
    }
}

#[test]
fn a_parker_that_does_not_check_is_found() {
    breaks("deadlock", None, || model::<OnlyTheLastSearcherChecks>(ONE_WITH_STEALING_OFF));
}

/// Clears its bit and ignores what the bit was.
struct IgnoresTheClaim;

impl Steps for IgnoresTheClaim {
    fn retract(model: &ModelWorker<'_, Self>) -> bool {
        let _ = AsInRuntime(model).retract();
        false
    }
}

#[test]
fn a_retract_that_ignores_the_claim_is_found() {
    breaks("ONE-TOKEN", None, || model::<IgnoresTheClaim>(ONE_WITH_TIME_OUTS));
}

/// Sees that it was claimed, but does not wait for the token.
struct DoesNotWaitForTheToken;

impl Steps for DoesNotWaitForTheToken {
    fn settle_after_sleep(model: &ModelWorker<'_, Self>, is_claimed: bool) {
        let _ = model.parker().take_token();
        model.set_searching(is_claimed);
    }
}

#[test]
fn a_claimed_worker_that_does_not_wait_for_its_token_is_found() {
    breaks("COUNTED-ONCE", None, || model::<DoesNotWaitForTheToken>(ONE_WITH_TIME_OUTS));
}

/// The claimer counts the searcher after it has given the token.
struct CountsAfterTheToken;

impl Steps for CountsAfterTheToken {
    fn submitted(world: &World) {
        fence(Ordering::SeqCst);
        let (word, bit) = world.idle.place(0);
        if world.idle.searching() == 0 && word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
            world.wake(Some(0));
            world.idle.start_searching();
        }
    }
}

#[test]
fn counting_the_searcher_after_the_token_is_found() {
    breaks("COUNTED-ONCE", None, || model::<CountsAfterTheToken>(ONE_WITH_STEALING_OFF));
}

/// Claims by what a load saw, whatever the read-modify-write then finds: two submitters claim the
/// same worker.
struct ClaimsByLoad;

impl Steps for ClaimsByLoad {
    fn submitted(world: &World) {
        fence(Ordering::SeqCst);
        if world.idle.searching() == 0 && world.idle.is_parked(0) {
            let (is_mine, _) = world.idle.claim_bit(0);
            if !is_mine {
                world.idle.start_searching();
            }
            world.wake(Some(0));
        }
    }
}

#[test]
fn two_claims_of_the_same_worker_are_found() {
    breaks("a worker was left behind", None, || model::<ClaimsByLoad>(ONE_WITH_TWO_SUBMITTERS));
}

/// The last searcher runs what it found without waking another worker.
struct BreaksTheChain;

impl Steps for BreaksTheChain {
    fn run_found(world: &World, _worker: usize) {
        let _ = world.idle.stop_searching();
        world.run();
    }
}

#[test]
fn a_searcher_that_wakes_no_worker_is_found() {
    breaks("deadlock", Some(2), || model::<BreaksTheChain>(TWO_ONLY_WOKEN));
}

/// The last searcher leaves without a fence before its check.
struct LeavesWithoutFence;

impl Steps for LeavesWithoutFence {
    fn run_found(world: &World, worker: usize) {
        if world.idle.leave_searchers() && world.check(worker) {
            world.wake(world.idle.claim_any(world.shape.keep_last));
        }
        world.run();
    }
}

#[test]
fn a_last_searcher_without_its_fence_is_found() {
    breaks("deadlock", Some(2), || model::<LeavesWithoutFence>(TWO_ONLY_WOKEN));
}

/// A searcher runs what it found and leaves the searchers afterwards.
struct LeavesAfterRunning;

impl Steps for LeavesAfterRunning {
    fn run_found(world: &World, worker: usize) {
        world.run();
        if world.idle.stop_searching() && world.check(worker) {
            world.wake(world.idle.claim_any(world.shape.keep_last));
        }
    }
}

#[test]
fn a_searcher_that_runs_before_it_leaves_is_found() {
    breaks("deadlock", Some(2), || model::<LeavesAfterRunning>(TWO_ONLY_WOKEN));
}

/// A worker whose check was a hit runs the task without becoming a searcher, and so without the
/// chain.
struct HitsWithoutSearching;

impl Steps for HitsWithoutSearching {
    fn settle_after_hit(model: &ModelWorker<'_, Self>, is_claimed: bool) {
        AsInRuntime(model).settle_after_sleep(is_claimed);
    }
}

#[test]
fn a_hit_that_does_not_make_a_searcher_is_found() {
    breaks("deadlock", Some(1), || model::<HitsWithoutSearching>(TWO_THAT_MEET));
}

/// Gives the token, but does not write to the driver's waker.
struct ForgetsTheDriver;

impl Steps for ForgetsTheDriver {
    fn submitted(world: &World) {
        if let Some(worker) = world.idle.claim_for_submit(world.shape.keep_last) {
            let _ = world.parkers[worker].unpark();
        }
    }
}

#[test]
fn a_claim_that_forgets_the_driver_is_found() {
    breaks("deadlock", None, || model::<ForgetsTheDriver>(ONE_IN_THE_DRIVER));
}

/// Claims by the hint alone, and leaves the spinner's bit set.
struct ClaimsTheSpinnerByTheHint;

impl Steps for ClaimsTheSpinnerByTheHint {
    fn submitted(world: &World) {
        fence(Ordering::SeqCst);
        if world.idle.searching() > 0 {
            return;
        }
        let spinner = world.idle.spinner.load(Ordering::Relaxed).checked_sub(1);
        if spinner.is_some() {
            world.idle.start_searching();
        }
        world.wake(spinner.or_else(|| world.idle.claim(None)));
    }
}

#[test]
fn a_spinner_that_is_claimed_by_the_hint_alone_is_found() {
    breaks("ONE-TOKEN", Some(2), || model::<ClaimsTheSpinnerByTheHint>(ONE_THAT_SPINS));
}

/// The spin takes the token that it sees, and the retract then waits for it.
struct TakesTheTokenInTheSpin;

impl Steps for TakesTheTokenInTheSpin {
    fn watch(model: &ModelWorker<'_, Self>) -> bool {
        model.parker().has_token() && model.parker().take_token()
    }
}

#[test]
fn a_spin_that_takes_the_token_is_found() {
    breaks("deadlock", Some(2), || model::<TakesTheTokenInTheSpin>(ONE_THAT_SPINS));
}

/// The owner of a ring pushes, pops, and puts into its LIFO slot, which is not a Submit. From some
/// push on it holds surplus.
///
/// Meanwhile a worker parks: either it is claimed, or its check finds a task. There may also be a
/// `thief`, a searcher that steals once. At the end, if the owner holds surplus, some worker must
/// have been claimed or must have seen a task.
///
/// `claims` decides after each push whether to claim a worker. Its arguments are the number of
/// tasks in the ring and the slot, and the number of tasks of this push.
fn surplus_model(claims: fn(&Idle, usize, usize) -> bool, thief: Option<Thief>, steps: &[Step]) {
    let idle = Arc::new(Idle::new(3, 0));
    let (mut ring, in_ring) = ring::<u32>(4);
    let thief = thief.map(|thief| {
        idle.start_searching();
        let (idle, in_ring) = (idle.clone(), in_ring.clone());
        loom::thread::spawn(move || thief(&idle, &in_ring))
    });
    let parker = loom::thread::spawn({
        let idle = idle.clone();
        move || {
            idle.begin_park(1, false);
            in_ring.len() > 0
        }
    });
    let (mut is_claimed, mut in_slot) = (false, 0);
    for &step in steps {
        let pushed = match step {
            // The model's slot orders nothing, like a plain store.
            Step::Put => {
                in_slot = 1;
                continue;
            }
            // A thief may have taken the task.
            Step::Pop => {
                let _ = ring.pop();
                continue;
            }
            Step::Push(count) => {
                (0..count).for_each(|task| ring.push(task as u32).expect("there is room"));
                count
            }
        };
        let queued = ring.len() + in_slot;
        if queued > 1 && claims(&idle, queued, pushed) {
            is_claimed |= idle.claim_for_submit(None).is_some();
        }
    }
    let has_seen = parker.join().unwrap() | thief.is_some_and(|thief| thief.join().unwrap());
    let is_surplus = ring.len() + in_slot > 1;
    assert!(!is_surplus || is_claimed || has_seen, "a worker sleeps beside surplus");
}

/// Returns whether it has claimed a worker, or has seen a task after it parked.
type Thief = fn(&Idle, &Stealer<u32>) -> bool;

/// Steals once, leaves the searchers as in Search, and parks after the poll.
fn steals(idle: &Idle, ring_of_owner: &Stealer<u32>) -> bool {
    let has_found = has_stolen(ring_of_owner);
    let has_claimed = has_found && idle.stop_searching() && ring_of_owner.len() > 0 && idle.claim_any(None).is_some();
    idle.begin_park(2, !has_found);
    has_claimed || ring_of_owner.len() > 0
}

/// Steals once, and remains a searcher during the poll of the stolen task, which does not end.
fn runs_as_a_searcher(idle: &Idle, ring_of_owner: &Stealer<u32>) -> bool {
    !has_stolen(ring_of_owner) && {
        idle.begin_park(2, true);
        ring_of_owner.len() > 0
    }
}

fn has_stolen(ring_of_owner: &Stealer<u32>) -> bool {
    let (mut own, _) = ring::<u32>(4);
    matches!(ring_of_owner.steal_into(&mut own), Steal::Taken { .. })
}

#[derive(Clone, Copy)]
enum Step {
    /// Pushes this many tasks to the ring before it checks for parked workers.
    Push(usize),
    Pop,
    Put,
}

const ONE_BY_ONE: &[Step] = &[Step::Push(1), Step::Push(1), Step::Push(1), Step::Pop, Step::Push(1)];
const RING_AND_SLOT: &[Step] = &[Step::Push(1), Step::Put, Step::Push(1), Step::Push(1)];
const TOGETHER: &[Step] = &[Step::Push(4)];
/// The second push creates surplus anew: before it, at most one task is left.
const TOGETHER_TWICE: &[Step] = &[Step::Push(2), Step::Pop, Step::Push(2)];

fn as_built(idle: &Idle, queued: usize, pushed: usize) -> bool {
    idle.is_any_parked_for_surplus(queued, pushed)
}

#[test]
fn no_worker_sleeps_beside_surplus() {
    for steps in [ONE_BY_ONE, RING_AND_SLOT, TOGETHER, TOGETHER_TWICE] {
        holds(None, || surplus_model(as_built, None, steps));
    }
}

#[test]
fn no_worker_sleeps_beside_surplus_and_a_thief() {
    for steps in [ONE_BY_ONE, RING_AND_SLOT, TOGETHER, TOGETHER_TWICE] {
        // Four threads: with 3 preemptions, more than 500,000 interleavings, which take a minute.
        holds(Some(2), || surplus_model(as_built, Some(steals), steps));
    }
}

#[test]
fn a_thief_that_polls_before_it_leaves_the_searchers_is_found() {
    breaks("sleeps beside surplus", None, || surplus_model(as_built, Some(runs_as_a_searcher), ONE_BY_ONE));
}

#[test]
fn surplus_that_is_made_without_a_fence_is_found() {
    let without = |idle: &Idle, _queued, _pushed| !idle.is_none_parked();
    breaks("sleeps beside surplus", None, move || surplus_model(without, None, ONE_BY_ONE));
}

#[test]
fn surplus_of_many_that_is_reported_as_one_is_found() {
    let as_of_one = |idle: &Idle, queued, _pushed| idle.is_any_parked_for_surplus(queued, 1);
    breaks("sleeps beside surplus", None, move || surplus_model(as_of_one, None, TOGETHER));
}

#[test]
fn surplus_that_only_the_ring_reports_is_found() {
    let only_the_second = |idle: &Idle, queued, _pushed| {
        if queued == 2 { idle.is_any_parked() } else { !idle.is_none_parked() }
    };
    breaks("sleeps beside surplus", None, move || surplus_model(only_the_second, None, RING_AND_SLOT));
}
