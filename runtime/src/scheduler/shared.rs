//! What all workers of a runtime share, and what anybody may do to it: submit tasks, wake workers, look.
//!
//! Who writes: everybody; each part says for itself how. Who reads: workers, handles, the observer.
//!
//! Shape: the global queue, the idle set, the registry, and one [`Remote`] a worker: the ends of its queues that others may take
//! from, its park word, and its cells.
//!
//! # How it ends
//!
//! Nobody has a list of all tasks; that no task is left is told from counts: of spawns, one a worker and one a queue that threads outside
//! push into, and of ends, one a worker.
//!
//! 1. Spawn. A worker looks whether the runtime is closed, counts, and pushes to its own queues. Others count and push under the lock of the
//!    queue, unless that is closed to what is new. A task that is refused is cancelled and not counted.
//! 2. Close: every queue that others push into is closed to what is new. Inboxes are closed altogether: tasks that are woken go to the
//!    global queue.
//! 3. `is_closed` is set, Release, and then the registry is closed, which cancels the tasks that wait. Whoever runs a task from
//!    now on cancels it first, and after a poll; a task that is about to wait is cancelled by the registry if not.
//! 4. A worker ends when it sees `is_closed`, Acquire, and then reads all ends, Acquire, and then all spawns, and the sums are equal.
//! 5. Whoever has seen that wakes all others, so that they see it too.
//!
//! NOBODY-LEFT: when a worker ends, its own queues are empty, and tasks that are left can only be some that another worker has spawned, who will
//! not end before they do. Proof: whoever sees the end of a task sees its spawn, by the queues in between; so equal sums are equal sets, and what
//! the worker has seen spawned has ended. A task that it has not seen was not spawned outside, since (2) comes after that in the order of a
//! lock. So a worker has spawned it: in the poll of a task, which then has not ended in the eyes of who looks, or has not been seen spawned
//! itself, and so on, back to a task that a worker has spawned between two polls, in a waker of the user's, say. That worker sees its own
//! count; and whoever polls a task has seen its spawn, and its end comes later.
//!
//! NOBODY-SLEEPS: a worker looks at (4) between the fence of its park and its sleep. If it does not see the last end, then whoever counted that
//! comes to its own fence later, and so sees its parked bit in (5); two who count the last two ends at once have a fence each before they
//! look, and one of them sees both.
//!
//! Rejected: a registry of all tasks, whose emptiness tells: two locks a task.

use std::future::Future;
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use volt_telemetry::InFlight;
use volt_telemetry::recording::event::Event;

use super::census::Census;
use super::core::Core;
use super::current;
use super::idle::Idle;
use super::incidents;
use super::leases::{Lease, Leases};
use super::listing::Listing;
use super::placement::Placer;
use super::processes::Sources;
use super::sentinel::{Sentinel, is_at_rest};
use super::spares::{Spares, StartThread};
use super::staff::Staff;
use super::worker::Worker;
use super::worker::record::wake_of;
#[cfg(test)]
use super::worker::sim;
use crate::blocking::pool::Pool;
use crate::clock;
use crate::compat::Compat;
use crate::config::{Config, LocalOrder, Placement};
use crate::driver::Driver;
use crate::driver::parker::{Parker, Unparked};
use crate::driver::test_clock::TestClock;
use crate::fork::Home;
use crate::queue::injector::Injector;
use crate::queue::lifo::LifoSlot;
use crate::queue::ring::{Producer, Steal, Stealer, ring};
use crate::queue::stack::{self, stack};
use crate::recorder::lanes::{Flag, Recorder};
use crate::shim::CachePadded;
use crate::stacks::{self, Sampler};
use crate::stats::cells::{PHASES, WorkerCells};
use crate::stats::locations::number_of;
use crate::task::cell::{Schedule, into_future, new_task};
use crate::task::header::{Header, Notified, Task};
use crate::task::id::Id;
use crate::task::join::JoinHandle;
use crate::task::registry::Registry;
use crate::task::spawn::TrySpawnError;
use crate::task::state::Wake;
use crate::task::trace::{Kind, extra};
use crate::troubles::{Trouble, Troubles};

mod snapshot;

/// See the header of this file.
pub(crate) struct Shared {
    pub(crate) name: String,
    /// The process that the workers are in.
    pub(crate) home: Home,
    pub(crate) config: Config,
    pub(crate) injector: Injector<Notified>,
    pub(crate) idle: Idle,
    placer: Placer,
    pub(crate) remotes: Box<[Arc<Remote>]>,
    pub(crate) registry: Registry,
    pub(crate) driver: Arc<Driver>,
    pub(crate) blocking: Pool,
    pub(crate) sentinel: Sentinel,
    pub(crate) staff: Staff,
    pub(crate) spares: Spares,
    /// The Tokio runtime beside this one. Set before the first worker starts.
    compat: OnceLock<Compat>,
    pub(crate) incidents: incidents::Log,
    pub(crate) troubles: Arc<Troubles>,
    /// Takes the stacks of stuck polls, if that is wanted and can be done.
    pub(crate) sampler: Option<Sampler>,
    /// What tasks keep it alive by.
    pub(super) leases: CachePadded<Leases>,
    pub(crate) recorder: Arc<Recorder>,
    /// The recorder's, at hand for each wake-up.
    is_recorded: Flag,
    started_at_ns: u64,
    /// From now on no task is taken in, and workers end when none is left.
    is_closed: AtomicBool,
    /// What came into the global queue, and into each worker's inbox.
    arrivals: Box<[Arrivals]>,
    /// Tasks that were woken outside the workers.
    injected: CachePadded<AtomicU64>,
    /// Calls of `try_spawn` that have found room and not used it yet.
    arriving: CachePadded<AtomicUsize>,
    census: Census,
    pub(super) listing: Listing,
    pub(crate) processes: Sources,
    /// What snapshots have told about time so far, one a worker: see `WorkerCells::read`.
    time_floors: Mutex<Vec<[u64; PHASES.len()]>>,
    /// Workers whose threads run, and where `shutdown` waits for them.
    running: Mutex<usize>,
    stopped: Condvar,
}

/// Tasks that threads which are no workers have spawned into one queue.
#[derive(Default)]
struct Arrivals(CachePadded<AtomicU64>);

impl Arrivals {
    /// One more; called under the queue's lock.
    fn add_one(&self) {
        // ORDERING: Relaxed, both; one writer at a time, by the lock, which also publishes it.
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        // ORDERING: Relaxed; ordered by the Acquire of the ends, or of `is_closed`, before.
        self.0.load(Ordering::Relaxed)
    }
}

/// The part of a worker that others may touch.
pub(crate) struct Remote {
    pub(crate) ring: Stealer<Notified>,
    pub(crate) stack: Option<stack::Stealer<Notified>>,
    pub(crate) batch: Stealer<Notified>,
    /// Tasks that were placed here from outside; the worker moves them to its ring, thieves take from it.
    pub(crate) inbox: Injector<Notified>,
    /// Only its worker puts; others take on the last pass.
    pub(crate) lifo: LifoSlot<Notified>,
    pub(crate) parker: Parker,
    pub(crate) cells: WorkerCells,
    /// Tasks that thieves took from here; counted by the thieves.
    pub(crate) tasks_given: AtomicU64,
    /// Its thread, while it can be asked for its stack.
    thread: Mutex<Option<Arc<stacks::Thread>>>,
}

/// The two halves of a worker: what others may touch, and what it owns.
pub(super) fn slot(config: &Config, index: usize, seed: u64) -> (Arc<Remote>, Core) {
    let (ring_end, ring_stealer) = ring(config.local_queue_capacity);
    let (batch_end, batch_stealer) = ring(config.global_queue_batch_size);
    let stack = (config.local_order == LocalOrder::Lifo).then(|| stack(config.local_queue_capacity));
    let (stack_end, stack_stealer) = stack.unzip();
    let remote = Remote {
        ring: ring_stealer,
        stack: stack_stealer,
        batch: batch_stealer,
        inbox: Injector::new(),
        lifo: LifoSlot::new(),
        parker: Parker::new(),
        cells: WorkerCells::new(),
        tasks_given: AtomicU64::new(0),
        thread: Mutex::new(None),
    };
    (Arc::new(remote), Core::new(config, index, seed, ring_end, stack_end, batch_end))
}

/// Takes half of one of a worker's queues, as the thief that owns the ring.
type StealFrom = fn(&Remote, &mut Producer<Notified>) -> Steal<Notified>;

impl Remote {
    /// From which queues thieves take, in this order.
    pub(crate) const STEALS: [StealFrom; 3] = [
        |remote, into| remote.ring.steal_into(into),
        |remote, into| remote.stack.as_ref().map_or(Steal::Empty, |stack| stack.steal_into(into)),
        |remote, into| remote.batch.steal_into(into),
    ];

    /// Its thread, if it can be asked for its stack.
    pub(crate) fn stack_of(&self) -> Option<Arc<stacks::Thread>> {
        self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(crate) fn set_thread(&self, thread: Option<Arc<stacks::Thread>>) {
        *self.thread.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = thread;
    }

    /// Tasks that wait here.
    pub(crate) fn queued(&self) -> usize {
        self.stealable() + usize::from(self.lifo.is_filled())
    }

    /// Of those, the ones that any thief takes.
    pub(crate) fn stealable(&self) -> usize {
        self.local_len() + self.batch.len() + self.inbox.len()
    }

    /// Tasks in the ring, and in the stack where there is one: the worker's local queue.
    pub(crate) fn local_len(&self) -> usize {
        self.ring.len() + self.stack.as_ref().map_or(0, stack::Stealer::len)
    }
}

impl Shared {
    /// Also what each worker is to own.
    pub(crate) fn new(
        name: String,
        config: Config,
        driver: Driver,
        blocking: Pool,
        sampler: Option<Sampler>,
        seed: u64,
        start_thread: StartThread,
    ) -> (Self, Vec<Core>) {
        let slots = config.workers + config.max_spare_workers;
        let (remotes, mut cores): (Vec<_>, Vec<_>) = (0..slots).map(|index| slot(&config, index, seed)).unzip();
        let spare_cores = cores.split_off(config.workers);
        let recorder =
            Recorder::new(config.workers, config.max_spare_workers, config.flight_records, config.flight_recorder);
        let shared = Self {
            name,
            is_recorded: recorder.flag(),
            recorder,
            home: Home::here(),
            injector: Injector::new(),
            idle: Idle::new(config.workers, config.max_spare_workers),
            staff: Staff::new(config.workers, config.max_spare_workers),
            spares: Spares::new(start_thread, spare_cores),
            incidents: incidents::Log::default(),
            troubles: driver.troubles().clone(),
            sampler,
            placer: Placer::new(config.placement),
            registry: Registry::new(remotes.len()),
            driver: Arc::new(driver),
            blocking,
            compat: OnceLock::new(),
            sentinel: Sentinel::new(),
            leases: CachePadded(Leases::new()),
            started_at_ns: clock::now_ns(),
            is_closed: AtomicBool::new(false),
            arrivals: (0..=remotes.len()).map(|_| Arrivals::default()).collect(),
            injected: CachePadded(AtomicU64::new(0)),
            arriving: CachePadded(AtomicUsize::new(0)),
            census: Census::default(),
            listing: Listing::default(),
            processes: Sources::default(),
            time_floors: Mutex::new(vec![[0; PHASES.len()]; remotes.len()]),
            running: Mutex::new(0),
            stopped: Condvar::new(),
            remotes: remotes.into(),
            config,
        };
        (shared, cores)
    }

    /// Puts a Tokio runtime beside this one, once, before anything runs here.
    pub(crate) fn add_compat(&self, compat: Compat) {
        self.compat.set(compat).expect("one is enough");
    }

    /// The Tokio runtime beside this one.
    pub(crate) fn compat(&self) -> Option<&Compat> {
        self.compat.get()
    }

    /// Starts a task.
    pub(crate) fn spawn<F>(
        self: &Arc<Self>,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let id = Id::next();
        let extra = extra(id, name, location, Kind::Task);
        let (task, join) = new_task(future, Lease::of(self), id, location, extra);
        if let Err(task) = self.start(task) {
            // The runtime shuts down.
            task.cancel_now();
        }
        join
    }

    /// Starts a task unless too many wait already, or the runtime shuts down.
    pub(crate) fn try_spawn<F>(
        self: &Arc<Self>,
        future: F,
        name: Option<&str>,
        location: &'static Location<'static>,
    ) -> Result<JoinHandle<F::Output>, TrySpawnError<F>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // First, since a queue that nobody empties any more may stay full for ever.
        if self.is_closed() {
            return Err(TrySpawnError::shut_down(future));
        }
        let Some(_room) = self.find_room() else {
            return Err(TrySpawnError::full(future, self.config.global_queue_capacity));
        };
        let id = Id::next();
        let extra = extra(id, name, location, Kind::Task);
        let (task, join) = new_task(future, Lease::of(self), id, location, extra);
        match self.start(task) {
            Ok(()) => Ok(join),
            Err(task) => {
                // SAFETY: it was made above, of F, and nobody has taken it in.
                let future = unsafe { into_future::<F, Lease>(task, join) };
                Err(TrySpawnError::shut_down(future))
            }
        }
    }

    /// Room for one task more, kept from others who look for some at the same moment until it is dropped.
    fn find_room(&self) -> Option<Room<'_>> {
        // ORDERING: Acquire; pairs with the Release where a `Room` is dropped: whoever is not counted here any more has its task in the
        // queue's length.
        let others = self.arriving.fetch_add(1, Ordering::Acquire);
        let room = Room(&self.arriving);
        (self.waiting() + others < self.config.global_queue_capacity).then_some(room)
    }

    /// Tasks that wait for a worker to take them in.
    fn waiting(&self) -> usize {
        let placed = match self.config.placement {
            Placement::Global => 0,
            _ => self.remotes.iter().map(|remote| remote.inbox.len()).sum(),
        };
        self.injector.len() + placed
    }

    /// End (1): counts a new task and submits it, or hands it back if the runtime shuts down.
    fn start(self: &Arc<Self>, task: Notified) -> Result<(), Notified> {
        if task.header().extra().is_some() {
            self.keep_in_registry(task.task());
        }
        if self.is_recorded.is_on() {
            let location = number_of(task.header().location());
            self.note(task.header(), Event::Spawn { task: task.header().id.as_u64(), location });
        }
        let refused = current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(_) if self.is_closed() => Err(task),
            Some(worker) => {
                worker.cells().spawned.add_one();
                Ok(worker.push_woken(task))
            }
            None => self.inject_new(task).map(|()| None),
        });
        if let Some(task) = refused? {
            self.inject(task);
        }
        Ok(())
    }

    /// Notes down that a task is submitted, at the time that stands in its header.
    #[cold]
    fn note(&self, task: &Header, event: Event) {
        self.note_at(task.submitted_at_ns(), event);
    }

    /// Notes down what happens now, if anything is noted down: for floors above. Costs one load if not.
    #[inline]
    pub(crate) fn note_now(&self, event: impl FnOnce() -> Event) {
        if self.is_recorded.is_on() {
            self.note_at(clock::now_ns(), event());
        }
    }

    #[cold]
    fn note_at(&self, at_ns: u64, event: Event) {
        current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(worker) => worker.note(at_ns, event),
            None => self.recorder.note_outside(at_ns, event),
        });
    }

    /// Takes a task into the registry: one that is about to wait for the first time, or a new one
    /// with a name or a span, which the observer looks up there. A worker uses the shard of its
    /// number, others spread.
    fn keep_in_registry(&self, task: &Task) {
        let worker = current::with_worker(|worker| worker.filter(|worker| worker.is_of(self)).map(Worker::index));
        if self.registry.keep(task, worker.unwrap_or(task.header().id.as_u64() as usize)) {
            let wake = task.header().state.cancel();
            debug_assert_eq!(wake, Wake::Nothing, "it is about to be submitted, or runs");
        }
    }

    /// The worker whose inbox takes the next task from outside; `None` = the global queue.
    pub(crate) fn place(&self) -> Option<usize> {
        self.placer.choose(&self.remotes[..self.config.workers], &self.staff)
    }

    /// Hands a new task in from outside the workers, or back if the runtime shuts down.
    fn inject_new(&self, task: Notified) -> Result<(), Notified> {
        let submitted_at_ns = task.header().submitted_at_ns();
        let chosen = self.place();
        let arrivals = &self.arrivals[chosen.map_or(0, |worker| worker + 1)];
        let queue = chosen.map_or(&self.injector, |worker| &self.remotes[worker].inbox);
        // Submit (1)
        queue.push_new(task, submitted_at_ns, || arrivals.add_one())?;
        #[cfg(test)]
        if sim::delays_wake_up(chosen) {
            return Ok(());
        }
        self.wake_for_placed(chosen);
        Ok(())
    }

    /// Hands a task in from outside the workers, or from a worker that cannot take it itself.
    pub(crate) fn inject(&self, task: Notified) {
        if !self.home.is_here() {
            // A forked child woke a task of its parent's. Nobody runs it here, and a thread that is not here may have held a lock.
            std::mem::forget(task);
            return;
        }
        let chosen = self.place();
        let queue = chosen.map_or(&self.injector, |worker| &self.remotes[worker].inbox);
        // Stamped a moment ago, by whoever woke it.
        let now_ns = task.header().submitted_at_ns();
        // Submit (1)
        // A shutdown closes the inboxes first, since their workers may end before the others.
        let pushed = queue.push(task, now_ns).or_else(|task| self.injector.push(task, now_ns));
        if let Err(task) = pushed {
            // The workers have ended; somebody woke a task that they left behind.
            task.cancel_now();
            return;
        }
        // ORDERING: Relaxed; only counted.
        self.injected.fetch_add(1, Ordering::Relaxed);
        #[cfg(test)]
        if sim::delays_wake_up(chosen) {
            return;
        }
        self.wake_for_placed(chosen);
    }

    /// Wakes for what was placed at `chosen`, or in the global queue.
    pub(super) fn wake_for_placed(&self, chosen: Option<usize>) {
        // The chosen one if it sleeps; if it does not, somebody who may steal from it.
        let is_woken = chosen.is_some_and(|worker| self.wake_worker(worker));
        if !is_woken {
            self.wake_for_submit();
        }
    }

    /// Submit (2) and (3), after work was published. Returns whether a worker was woken.
    pub(crate) fn wake_for_submit(&self) -> bool {
        let claimed = self.idle.claim_for_submit(self.driver.owner());
        self.unpark(claimed)
    }

    /// Submit (2) and (3), after `tasks` were published at once: as many searchers as there are tasks, those that search already included.
    /// Returns how many workers were woken.
    ///
    /// The first as for one task, which is what no wake-up being lost rests on; the others so that a batch does not spread one by one.
    pub(crate) fn wake_for_batch(&self, tasks: usize) -> usize {
        let first = usize::from(self.wake_for_submit());
        let more = tasks.saturating_sub(self.idle.searching().max(first));
        first + (0..more).take_while(|_| self.wake_one()).count()
    }

    /// Hand-off (3), see `driver::turn`: wakes somebody who will lie down in the driver, unless somebody is there or on the way. Returns whether
    /// a worker was woken.
    pub(crate) fn wake_for_driver(&self) -> bool {
        // Submit (2) is in the first of these: the look at who has the turn has to come after it.
        self.idle.is_anybody_parked() && self.driver.owner().is_none() && self.wake_for_submit()
    }

    /// Wakes one worker more, whether or not somebody searches. Returns whether there was one.
    pub(crate) fn wake_one(&self) -> bool {
        let claimed = self.idle.claim_any(self.driver.owner());
        self.unpark(claimed)
    }

    /// Submit (2) and (3) for one worker. Returns whether it was parked.
    pub(super) fn wake_worker(&self, worker: usize) -> bool {
        let is_mine = self.idle.claim_worker(worker);
        self.unpark(is_mine.then_some(worker))
    }

    /// Wakes everybody who sleeps, each once: who lies down from now on sees for itself what this is about. To go on until nobody sleeps would
    /// be to go on for as long as the first lie down again before the last are woken.
    fn wake_all(&self) {
        (0..self.remotes.len()).for_each(|worker| _ = self.wake_worker(worker));
        self.wake_spares();
    }

    fn unpark(&self, claimed: Option<usize>) -> bool {
        let Some(worker) = claimed else { return false };
        #[cfg(test)]
        if sim::delays_token(worker) {
            return true;
        }
        self.give_token(worker);
        true
    }

    pub(super) fn give_token(&self, worker: usize) {
        if self.remotes[worker].parker.unpark() == Unparked::InDriver {
            self.driver.unpark();
        }
    }

    /// Something failed that is to be told, but not by this thread.
    pub(super) fn note_trouble(&self, trouble: Trouble, error: &io::Error) {
        self.troubles.note(trouble, error);
        self.sentinel.rouse(self);
    }

    /// Whether any queue that `worker` may take from holds work; what is published before a fence is seen after it.
    pub(crate) fn has_work_for(&self, worker: usize) -> bool {
        let queued = |remote: &Arc<Remote>| remote.local_len() > 0 || remote.batch.len() > 0 || remote.inbox.len() > 0;
        self.injector.len() > 0
            || self.remotes[worker].inbox.len() > 0
            || (self.config.enable_stealing && self.remotes_in_use().iter().any(queued))
    }

    /// When the next timer is due, if nothing is left to be done but to wait for it or for the kernel, as `worker`, which is in the driver, finds:
    /// see `driver/test_clock`. The timer is read first: whoever comes from outside after that finds the clock moved on to no timer of its own.
    pub(crate) fn next_at_rest(&self, worker: usize) -> Option<u64> {
        let next_ns = self.driver.timers.next_deadline_ns();
        let is_quiet = || {
            let are_others = self.driver.test_clock.as_ref().is_some_and(TestClock::are_outsiders_at_rest);
            are_others && self.blocking.is_idle() && is_at_rest(self)
        };
        // Twice: what the first look found at rest can only be woken by what the second finds.
        let is_at_rest = is_quiet() && {
            self.idle.fence();
            !self.has_work_for(worker) && self.injector.is_empty_locked() && is_quiet()
        };
        (is_at_rest && next_ns != u64::MAX).then_some(next_ns)
    }

    /// Of the workers, and of the spares that were ever on duty.
    pub(crate) fn remotes_in_use(&self) -> &[Arc<Remote>] {
        &self.remotes[..self.staff.in_use()]
    }

    /// Puts tasks that a worker does not get to into the global queue, and wakes whom it takes.
    pub(super) fn hand_over(&self, tasks: Vec<Notified>, now_ns: u64) {
        if tasks.is_empty() {
            return;
        }
        let count = tasks.len();
        if let Err(tasks) = self.injector.push_batch(tasks.into_iter(), now_ns) {
            // The workers have ended.
            tasks.into_iter().for_each(Notified::cancel_now);
            return;
        }
        self.wake_for_batch(count);
    }

    /// End (4): whether workers may end.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closed() && {
            let (ended, spawned) = self.count_tasks();
            ended.iter().sum::<u64>() == spawned.iter().sum::<u64>()
        }
    }

    /// End (5): for whoever has found that workers may end.
    pub(crate) fn wake_if_done(&self) {
        if self.is_done() {
            self.wake_all();
        }
    }

    /// How many tasks are left, and `#id name (spawned at)` of up to `limit` of them, those that are being polled first.
    pub(crate) fn left_overs(&self, limit: usize) -> (u64, Vec<String>) {
        let snapshot = self.snapshot();
        let polled: Vec<_> =
            snapshot.workers.iter().filter_map(|worker| worker.in_flight.as_ref()).take(limit).collect();
        let describe = |poll: &&InFlight| {
            let name = poll.task_name.as_ref().map_or(String::new(), |name| format!(" {name}"));
            format!("#{}{name} ({})", poll.task_id, poll.spawned_at)
        };
        let mut lines: Vec<_> = polled.iter().map(describe).collect();
        let told: Vec<_> = polled.iter().map(|poll| poll.task_id).collect();
        lines.extend(self.registry.describe(limit - lines.len(), &told));
        (snapshot.tasks.alive, lines)
    }

    /// Tasks that were completed, cancelled, panicked; that were spawned on workers, outside.
    pub(super) fn count_tasks(&self) -> ([u64; 3], [u64; 2]) {
        // Ends before spawns: whoever sees the end of a task sees its spawn.
        let ended = self
            .remotes
            .iter()
            .map(|remote| remote.cells.ended())
            .fold([0; 3], |sum: [u64; 3], ended| std::array::from_fn(|end| sum[end] + ended[end]));
        let inside = self.remotes.iter().map(|remote| remote.cells.spawned.get()).sum();
        let outside = self.arrivals.iter().map(|arrivals| arrivals.count()).sum();
        (ended, [inside, outside])
    }

    #[inline]
    fn is_closed(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `close`. Between a worker's last look and its sleep stands the fence of the park.
        self.is_closed.load(Ordering::Acquire)
    }

    /// Takes nothing in any more and cancels all tasks.
    pub(crate) fn close(&self) {
        // End (2)
        self.injector.close_to_new();
        self.remotes.iter().for_each(|remote| remote.inbox.close());
        // End (3)
        // ORDERING: Release; pairs with the Acquire in `is_closed`: who sees the runtime closed sees what was taken in from outside.
        self.is_closed.store(true, Ordering::Release);
        self.registry.close();
        // For those that sleep with nothing left to be cancelled.
        self.wake_all();
    }

    /// The workers have ended: whoever brings a task from now on gets it back.
    pub(crate) fn close_queues(&self) {
        self.injector.close();
        self.remotes.iter().for_each(|remote| remote.inbox.close());
    }

    fn lock_running(&self) -> MutexGuard<'_, usize> {
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A worker's thread is about to start.
    pub(crate) fn worker_starts(&self) {
        *self.lock_running() += 1;
    }

    /// A worker's thread has ended, or could not be started.
    pub(crate) fn worker_ended(&self) {
        self.wake_if_done();
        let mut running = self.lock_running();
        *running -= 1;
        if *running == 0 {
            self.sentinel.end();
        }
        drop(running);
        self.stopped.notify_all();
    }

    /// Waits until all workers have ended, or until `deadline`. Returns how many still run.
    pub(crate) fn wait_for_workers(&self, deadline: Option<Instant>) -> usize {
        let mut running = self.lock_running();
        while *running > 0 {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            running = match left {
                Some(Duration::ZERO) => break,
                Some(left) => {
                    self.stopped.wait_timeout(running, left).unwrap_or_else(|poisoned| poisoned.into_inner()).0
                }
                None => self.stopped.wait(running).unwrap_or_else(|poisoned| poisoned.into_inner()),
            };
        }
        *running
    }
}

/// See `Shared::find_room`.
struct Room<'a>(&'a AtomicUsize);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        // ORDERING: Release; pairs with the Acquire in `find_room`.
        self.0.fetch_sub(1, Ordering::Release);
    }
}

impl Schedule for Lease {
    const IS_COUNTED: bool = true;

    fn schedule(&self, task: Notified) {
        current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(worker) => worker.take_woken(task),
            None => {
                if self.is_recorded.is_on() {
                    self.note(task.header(), wake_of(task.header()));
                }
                self.inject(task);
            }
        });
    }

    #[inline]
    fn is_here(&self) -> bool {
        current::with_worker(|worker| worker.is_some_and(|worker| worker.is_of(self)))
    }

    #[inline]
    fn schedule_here(task: Notified) {
        current::with_worker(|worker| worker.expect("`is_here` said so").take_woken(task));
    }

    #[inline]
    fn is_closing(&self) -> bool {
        self.is_closed()
    }

    #[inline]
    fn keep(&self, task: &Task) {
        if !task.header().is_kept() {
            self.keep_in_registry(task);
        }
    }

    #[inline]
    fn release(&self, task: &Header) -> Option<Task> {
        self.registry.remove(task)
    }
}

/// Many workers, whose threads are a test's.
#[cfg(test)]
pub(super) fn without_threads(workers: usize) -> (Shared, Vec<Core>) {
    use crate::blocking::pool::Settings;
    use crate::config::ParkSpin;

    let config = crate::Builder::new_multi_thread().worker_threads(workers).config().clone();
    let troubles = Arc::new(Troubles::new("without threads", false));
    let driver = Driver::new(None, 16, troubles.clone()).unwrap();
    let blocking = Pool::new(Settings {
        max_threads: 1,
        keep_alive: Duration::from_secs(1),
        thread_name: "none".to_owned(),
        stack_size: None,
        spin: ParkSpin::Off,
        troubles,
    });
    let start_thread = |_: &Arc<Shared>, _| Err(io::ErrorKind::Unsupported.into());
    Shared::new("without threads".to_owned(), config, driver, blocking, None, 1, start_thread)
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use volt_telemetry::Snapshot;
    use volt_telemetry::doctor::finding::{Finding, Severity};
    use volt_telemetry::doctor::rule::{Rule, examine};

    use super::{Shared, without_threads};
    use crate::builder::Builder;
    use crate::config::Placement;
    use crate::runtime::Runtime;
    use crate::scheduler::leases::Lease;
    use crate::task::cell::new_task;
    use crate::task::id::Id;
    use crate::task::join::JoinHandle;

    #[test]
    fn a_batch_wakes_a_worker_for_each_task_and_no_more() {
        let runtime = crate::Builder::new_multi_thread().worker_threads(8).sentinel_interval(None).build().unwrap();
        let shared = runtime.handle().shared();
        for tasks in [1, 2, 5, 8] {
            while !(shared.idle.parked_count() == 8 && shared.idle.searching() == 0) {
                std::thread::sleep(Duration::from_micros(100));
            }
            assert_eq!(shared.wake_for_batch(tasks), tasks);
        }
    }

    #[test]
    fn a_shutdown_wakes_each_worker_once_though_they_lie_down_again_at_once() {
        const WORKERS: usize = 256;
        let (shared, _cores) = without_threads(WORKERS);
        (0..WORKERS).for_each(|worker| shared.idle.begin_park(worker, false));
        let (wakes, is_ready, is_over) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
        let count_wakes = |worker: usize| {
            let is_woken = shared.remotes[worker].parker.take_token();
            // ORDERING: SeqCst, here and below; a test's own switches and counts, which prove nothing about order.
            wakes.fetch_add(usize::from(is_woken), Ordering::SeqCst);
            is_woken
        };
        thread::scope(|scope| {
            scope.spawn(|| {
                is_ready.store(true, Ordering::SeqCst);
                // Up to a limit, so that the shutdown that is not content with once ends too.
                while !is_over.load(Ordering::SeqCst) && wakes.load(Ordering::SeqCst) < 20 * WORKERS {
                    for worker in 0..WORKERS {
                        if count_wakes(worker) {
                            shared.idle.begin_park(worker, true);
                        }
                    }
                }
            });
            while !is_ready.load(Ordering::SeqCst) {
                thread::yield_now();
            }
            shared.wake_all();
            is_over.store(true, Ordering::SeqCst);
        });
        (0..WORKERS).for_each(|worker| _ = count_wakes(worker));
        assert_eq!(wakes.load(Ordering::SeqCst), WORKERS);
    }

    /// Between two looks of the doctor's.
    const LOOKS_APART: Duration = Duration::from_millis(200);

    /// A runtime of one worker, which is parked.
    fn parked(placement: Placement, park_timeout: Option<Duration>) -> Runtime {
        let builder = Builder::new_multi_thread().worker_threads(1).placement(placement).sentinel_interval(None);
        let builder = match park_timeout {
            Some(timeout) => builder.park_timeout(Some(timeout)).max_park_timeout(timeout),
            None => builder.park_timeout(None),
        };
        let runtime = builder.control_socket(false).build().unwrap();
        while runtime.handle().shared().idle.parked_count() == 0 {
            thread::yield_now();
        }
        runtime
    }

    /// Submits a task as a fault in the protocol would: Submit (1), and no more; long ago.
    fn submit_and_wake_nobody(shared: &Arc<Shared>) -> JoinHandle<()> {
        let (task, join) = new_task(async {}, Lease::of(shared), Id::next(), Location::caller(), None);
        let chosen = shared.place();
        assert_eq!(chosen.is_some(), shared.config.placement != Placement::Global);
        let arrivals = &shared.arrivals[chosen.map_or(0, |worker| worker + 1)];
        let queue = chosen.map_or(&shared.injector, |worker| &shared.remotes[worker].inbox);
        assert!(queue.push_new(task, 0, || arrivals.add_one()).is_ok());
        join
    }

    /// What the doctor says of it, `before` being the look before.
    fn lost_wakeup(shared: &Shared, before: &Snapshot) -> Option<Finding> {
        examine(before, &shared.snapshot()).into_iter().find(|finding| finding.rule == Rule::LostWakeup)
    }

    #[test]
    fn a_task_nobody_was_woken_for_is_caught_by_the_net_and_counted_and_named() {
        for placement in [Placement::Global, Placement::LeastLoaded] {
            let runtime = parked(placement, Some(Duration::from_millis(200)));
            let shared = runtime.handle().shared();
            let before = shared.snapshot();
            assert!(lost_wakeup(shared, &before).is_none());
            let join = submit_and_wake_nobody(shared);
            runtime.block_on(join).unwrap();
            assert_eq!(shared.remotes[0].cells.lost_wakeup_rescues.get(), 1, "{placement:?}");
            // Not a synchronisation: looks that are closer together say nothing of what came in between.
            thread::sleep(LOOKS_APART);
            let finding = lost_wakeup(shared, &before).expect("the doctor names it");
            assert_eq!(finding.severity, Severity::Critical, "{finding:?}");
        }
    }

    #[test]
    fn without_the_net_the_doctor_names_the_task_that_nobody_was_woken_for() {
        let runtime = parked(Placement::Global, None);
        let shared = runtime.handle().shared();
        let join = submit_and_wake_nobody(shared);
        let (mut before, began) = (shared.snapshot(), Instant::now());
        let finding = loop {
            thread::sleep(LOOKS_APART);
            if let Some(finding) = lost_wakeup(shared, &before) {
                break finding;
            }
            before = shared.snapshot();
            assert!(began.elapsed() < Duration::from_secs(60), "nobody names it");
        };
        assert!(finding.severity == Severity::Critical && finding.title.contains("all workers sleep"), "{finding:?}");
        assert!(shared.wake_one());
        runtime.block_on(join).unwrap();
    }

    #[test]
    fn room_that_somebody_has_found_is_not_found_again() {
        let runtime = crate::Builder::new_multi_thread().worker_threads(1).global_queue_capacity(2).build().unwrap();
        let shared = runtime.handle().shared();
        let (first, second) = (shared.find_room(), shared.find_room());
        assert!(first.is_some() && second.is_some());
        assert!(shared.find_room().is_none());
        drop(first);
        assert!(shared.find_room().is_some(), "who found none kept none");
    }
}
