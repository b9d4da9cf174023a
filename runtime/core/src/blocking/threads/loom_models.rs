//! loom models of the threads of the blocking pool, and of the same with one incorrect step. Jobs
//! that wait for each other get one thread each, even if threads spin, wait or time out at the same
//! time. After a shutdown every thread exits, and every job was started.
//!
//! loom's condition variable has no time-out. A wait that returns immediately models a time-out at
//! any moment that other threads can observe.

use std::marker::PhantomData;
use std::sync::Arc as StdArc;
use std::task::Wake;

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::Arc;

use super::*;

/// The steps that a fault can replace.
trait Steps: 'static {
    fn submit(threads: &Threads<usize>, job: usize) -> Submitted<usize> {
        threads.submit(job)
    }

    fn was_called(waits: &Waiting, state: &State<usize>, own: u64, has_seen: bool) -> bool {
        waits.was_called(state, own, has_seen)
    }

    fn take_promise(waits: &Waiting, state: &mut State<usize>) -> bool {
        waits.take_promise(state)
    }

    fn shut_down(threads: &Threads<usize>, waker: Waker) {
        threads.shut_down(&mut threads.lock(), waker);
    }

    fn thread_ended(threads: &Threads<usize>, state: MutexGuard<'_, State<usize>>) {
        threads.thread_ended(state);
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

#[derive(Clone, Copy)]
struct Shape {
    /// The threads that exist before the first job.
    threads: usize,
    max_threads: usize,
    jobs: usize,
    /// Whether the two jobs wait for each other.
    meets: bool,
    spins: bool,
    /// The number of waits after which a thread has been idle for long enough; `None`: it waits
    /// until it is notified.
    time_outs: Option<usize>,
}

/// The number of jobs that have started, if they wait for each other, and of those that have ended.
#[derive(Default)]
struct Done {
    begun: usize,
    over: usize,
}

struct World {
    shape: Shape,
    threads: Threads<usize>,
    done: Mutex<Done>,
    changes: Condvar,
}

impl World {
    fn run(&self) {
        let mut done = self.done.lock();
        if self.shape.meets {
            done.begun += 1;
            self.changes.notify_all();
            while done.begun < 2 {
                done = self.changes.wait(done).unwrap();
            }
        }
        done.over += 1;
        self.changes.notify_all();
    }

    fn wait_until_over(&self) {
        let mut done = self.done.lock();
        while done.over < self.shape.jobs {
            done = self.changes.wait(done).unwrap();
        }
    }
}

/// How a thread of the model waits.
struct Waiting {
    world: Arc<World>,
    time_outs: Option<usize>,
}

/// The same, with the steps of `S`.
struct WaitsAs<S>(Waiting, PhantomData<S>);

impl Waits<usize> for Waiting {
    fn is_spin_worth(&self) -> bool {
        self.world.shape.spins
    }

    /// Checks once. A second, later check is equivalent to a spin that started later.
    fn spin(&mut self, is_called: impl Fn() -> bool) -> bool {
        is_called()
    }

    fn begin_idle(&mut self) {
        self.time_outs = self.world.shape.time_outs;
    }

    fn is_over(&mut self) -> bool {
        self.time_outs == Some(0)
    }

    fn wait<'a>(
        &mut self,
        threads: &'a Threads<usize>,
        state: MutexGuard<'a, State<usize>>,
    ) -> MutexGuard<'a, State<usize>> {
        let Some(left) = &mut self.time_outs else { return threads.work.wait(state).unwrap() };
        *left -= 1;
        // Other threads may take the lock here.
        drop(state);
        threads.lock()
    }

    fn end_idle(&mut self, _is_promised: bool) {}
}

impl<S: Steps> Waits<usize> for WaitsAs<S> {
    fn is_spin_worth(&self) -> bool {
        self.0.is_spin_worth()
    }

    fn spin(&mut self, is_called: impl Fn() -> bool) -> bool {
        self.0.spin(is_called)
    }

    fn begin_idle(&mut self) {
        self.0.begin_idle();
    }

    fn is_over(&mut self) -> bool {
        self.0.is_over()
    }

    fn wait<'a>(
        &mut self,
        threads: &'a Threads<usize>,
        state: MutexGuard<'a, State<usize>>,
    ) -> MutexGuard<'a, State<usize>> {
        self.0.wait(threads, state)
    }

    fn end_idle(&mut self, is_promised: bool) {
        self.0.end_idle(is_promised);
    }

    fn was_called(&self, state: &State<usize>, own: u64, has_seen: bool) -> bool {
        S::was_called(&self.0, state, own, has_seen)
    }

    fn take_promise(&self, state: &mut State<usize>) -> bool {
        S::take_promise(&self.0, state)
    }
}

/// Wakes the thread that shuts the pool down and waits until its threads have exited.
#[derive(Default)]
struct Bell {
    lock: Mutex<()>,
    rings: Condvar,
}

impl Wake for Bell {
    fn wake(self: StdArc<Self>) {
        let _lock = self.lock.lock();
        self.rings.notify_all();
    }
}

fn world(shape: Shape) -> Arc<World> {
    Arc::new(World {
        shape,
        threads: Threads::new(shape.max_threads),
        done: Mutex::new(Done::default()),
        changes: Condvar::new(),
    })
}

fn start_thread<S: Steps>(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = world.clone();
    thread::spawn(move || {
        let waiting = Waiting { world: world.clone(), time_outs: None };
        let state = world.threads.work(&mut WaitsAs::<S>(waiting, PhantomData), |_job| world.run());
        S::thread_ended(&world.threads, state);
    })
}

/// Submits all jobs. Returns the threads that run them.
fn submit_all<S: Steps>(world: &Arc<World>) -> Vec<thread::JoinHandle<()>> {
    let mut state = world.threads.lock();
    (state.threads, state.starting) = (world.shape.threads, world.shape.threads);
    drop(state);
    let mut threads: Vec<_> = (0..world.shape.threads).map(|_| start_thread::<S>(world)).collect();
    for job in 0..world.shape.jobs {
        match S::submit(&world.threads, job) {
            Submitted::Comes => {}
            Submitted::Start(_) => threads.push(start_thread::<S>(world)),
            Submitted::Refused(_) => unreachable!("it is not shut down yet"),
        }
    }
    threads
}

/// Shuts the pool down, and waits until every thread has exited.
fn shut_down<S: Steps>(world: &World) {
    let bell = StdArc::new(Bell::default());
    S::shut_down(&world.threads, bell.clone().into());
    let mut lock = bell.lock.lock();
    while Threads::present(&world.threads.lock()) > 0 {
        lock = bell.rings.wait(lock).unwrap();
    }
}

/// Submits jobs. When all have ended, shuts the pool down.
fn jobs_that_meet<S: Steps>(shape: Shape) {
    let world = world(shape);
    let threads = submit_all::<S>(&world);
    world.wait_until_over();
    shut_down::<S>(&world);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let state = world.threads.lock();
    assert_eq!((state.idle, state.promised, state.spin), (0, 0, None), "a worker was left behind");
}

/// Submits jobs while the pool is shut down concurrently. Accepted jobs must still be started.
fn jobs_and_a_shutdown<S: Steps>(shape: Shape) {
    let world = world(shape);
    let threads = submit_all::<S>(&world);
    shut_down::<S>(&world);
    assert_eq!(world.done.lock().over, shape.jobs, "a job was left");
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

const MEET: Shape = Shape { threads: 1, max_threads: 2, jobs: 2, meets: true, spins: false, time_outs: None };
const MEET_AND_SPIN: Shape = Shape { spins: true, ..MEET };
const MEET_AND_TIME_OUT: Shape = Shape { time_outs: Some(1), ..MEET };
const ENDS: Shape = Shape { threads: 0, max_threads: 1, jobs: 2, meets: false, spins: false, time_outs: None };

#[test]
fn loom_jobs_that_wait_for_each_other_get_a_thread_each() {
    for shape in [MEET, MEET_AND_SPIN, MEET_AND_TIME_OUT, Shape { time_outs: Some(1), ..MEET_AND_SPIN }] {
        // Two locks and two condition variables: with 3 preemptions there are 700,000 orders.
        holds(Some(2), move || jobs_that_meet::<AsBuilt>(shape));
    }
}

#[test]
fn loom_after_a_shutdown_threads_end_and_jobs_are_begun() {
    for shape in [ENDS, Shape { spins: true, ..ENDS }, Shape { time_outs: Some(1), ..ENDS }] {
        holds(None, move || jobs_and_a_shutdown::<AsBuilt>(shape));
    }
}

/// Calls the program back before a thread exits.
struct CallsBack;

impl Steps for CallsBack {
    fn thread_ended(threads: &Threads<usize>, state: MutexGuard<'_, State<usize>>) {
        threads.leave(state);
        // Leave (2) is here.
        threads.has_left();
    }
}

#[test]
fn loom_no_job_relies_on_a_thread_that_calls_back_at_its_end() {
    for shape in [ENDS, Shape { time_outs: Some(1), ..ENDS }] {
        holds(None, move || jobs_and_a_shutdown::<CallsBack>(shape));
    }
}

/// Counts as a thread that runs jobs until it has called the program back.
struct CallsBackBeforeItLeaves;

impl Steps for CallsBackBeforeItLeaves {
    fn thread_ended(threads: &Threads<usize>, state: MutexGuard<'_, State<usize>>) {
        drop(state);
        // Leave (2) is here.
        threads.thread_ended(threads.lock());
    }
}

#[test]
fn loom_twin_a_job_that_relies_on_a_busy_thread_is_found() {
    let shape = Shape { time_outs: Some(1), ..ENDS };
    breaks("a job was left", None, move || jobs_and_a_shutdown::<CallsBackBeforeItLeaves>(shape));
}

/// Promises an idle thread that still counts as idle until it is awake.
struct PromisesAThreadTwice;

impl Steps for PromisesAThreadTwice {
    fn submit(threads: &Threads<usize>, job: usize) -> Submitted<usize> {
        let mut state = threads.lock();
        state.queue.push_back(job);
        if state.idle > 0 {
            state.promised += 1;
            threads.work.notify_one();
        } else if state.threads < threads.max_threads {
            (state.threads, state.starting) = (state.threads + 1, state.starting + 1);
            return Submitted::Start(0);
        }
        Submitted::Comes
    }

    fn take_promise(waits: &Waiting, state: &mut State<usize>) -> bool {
        let is_promised = waits.take_promise(state);
        state.idle -= usize::from(is_promised);
        is_promised
    }
}

#[test]
fn loom_twin_a_thread_promised_to_two_jobs_is_found() {
    breaks("deadlock", Some(2), || jobs_that_meet::<PromisesAThreadTwice>(MEET));
}

/// Calls the spinning thread and leaves its number in place for the next job.
struct CallsTwice;

impl Steps for CallsTwice {
    fn submit(threads: &Threads<usize>, job: usize) -> Submitted<usize> {
        let mut state = threads.lock();
        let Some(spin) = state.spin else {
            drop(state);
            return threads.submit(job);
        };
        state.queue.push_back(job);
        threads.called.store(spin, Ordering::Relaxed);
        Submitted::Comes
    }

    fn was_called(_waits: &Waiting, state: &State<usize>, _own: u64, _has_seen: bool) -> bool {
        !state.queue.is_empty()
    }
}

#[test]
fn loom_twin_two_jobs_that_call_the_same_spin_are_found() {
    breaks("deadlock", Some(2), || jobs_that_meet::<CallsTwice>(MEET_AND_SPIN));
}

/// Relies on what the thread saw in its spin.
struct GoesByWhatTheSpinSaw;

impl Steps for GoesByWhatTheSpinSaw {
    fn was_called(_waits: &Waiting, _state: &State<usize>, _own: u64, has_seen: bool) -> bool {
        has_seen
    }
}

#[test]
fn loom_twin_a_call_between_last_check_and_lock_is_found() {
    breaks("deadlock", Some(2), || jobs_that_meet::<GoesByWhatTheSpinSaw>(MEET_AND_SPIN));
}

/// Exits when the idle time is over, promised or not.
struct GivesUpThoughPromised;

impl Steps for GivesUpThoughPromised {
    fn take_promise(waits: &Waiting, state: &mut State<usize>) -> bool {
        waits.time_outs != Some(0) && waits.take_promise(state)
    }
}

#[test]
fn loom_twin_a_promised_thread_that_exits_is_found() {
    breaks("PROMISED", Some(2), || jobs_that_meet::<GivesUpThoughPromised>(MEET_AND_TIME_OUT));
}

/// Marks the pool as shut down without notifying any thread.
struct ShutsDownSilently;

impl Steps for ShutsDownSilently {
    fn shut_down(threads: &Threads<usize>, waker: Waker) {
        let mut state = threads.lock();
        state.is_shut_down = true;
        state.waits_for_end = Some(waker);
    }
}

#[test]
fn loom_twin_a_shutdown_without_notification_is_found() {
    breaks("deadlock", None, || jobs_and_a_shutdown::<ShutsDownSilently>(ENDS));
}

/// Wakes the thread that shuts the pool down before this thread is counted as exited.
struct WakesBeforeItIsCounted;

impl Steps for WakesBeforeItIsCounted {
    fn thread_ended(threads: &Threads<usize>, state: MutexGuard<'_, State<usize>>) {
        let waker = state.waits_for_end.clone();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        threads.lock().threads -= 1;
    }
}

#[test]
fn loom_twin_an_end_reported_before_it_is_counted_is_found() {
    breaks("deadlock", None, || jobs_and_a_shutdown::<WakesBeforeItIsCounted>(ENDS));
}

/// Starts no thread for a job, although the only thread may be about to exit.
struct TakesTheLastThreadForAwake;

impl Steps for TakesTheLastThreadForAwake {
    fn submit(threads: &Threads<usize>, job: usize) -> Submitted<usize> {
        let mut state = threads.lock();
        if state.submitted == 0 {
            drop(state);
            return threads.submit(job);
        }
        // A thread was started for an earlier job. The fault treats it as permanent.
        state.queue.push_back(job);
        Submitted::Comes
    }
}

#[test]
fn loom_twin_a_job_that_relies_on_a_thread_that_ends_is_found() {
    let shape = Shape { time_outs: Some(1), ..ENDS };
    breaks("a job was left", None, move || jobs_and_a_shutdown::<TakesTheLastThreadForAwake>(shape));
}
