//! What all workers of a runtime share, and what anybody may do to it: submit tasks, wake workers, look.
//!
//! Who writes: everybody; each part says for itself how. Who reads: workers, handles, the observer.
//!
//! Shape: the global queue, the idle set, the registry, and one [`Remote`] a worker: the ends of its queues that others may take
//! from, its park word, and its cells.

use std::future::Future;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use volt_telemetry::Snapshot;

use super::current;
use super::idle::Idle;
use super::placement::Placer;
use super::sentinel::Sentinel;
#[cfg(test)]
use super::worker::sim;
use crate::blocking::pool::Pool;
use crate::clock;
use crate::config::{Config, MAX_NAME_BYTES, Placement};
use crate::driver::Driver;
use crate::driver::parker::{Parker, Unparked};
use crate::fork::Home;
use crate::queue::injector::Injector;
use crate::queue::lifo::LifoSlot;
use crate::queue::ring::Stealer;
use crate::stats::cells::{PHASES, WorkerCells};
use crate::task::cell::{Schedule, new_task};
use crate::task::header::{Extra, Header, Notified, Task};
use crate::task::id::Id;
use crate::task::join::JoinHandle;
use crate::task::registry::Registry;
use crate::task::spawn::TrySpawnError;

/// See the header of this file.
pub(crate) struct Shared {
    pub(crate) name: String,
    /// The process that the workers are in.
    pub(crate) home: Home,
    pub(crate) config: Config,
    pub(crate) injector: Injector<Notified>,
    pub(crate) idle: Idle,
    placer: Placer,
    pub(crate) remotes: Box<[Remote]>,
    pub(crate) registry: Registry,
    pub(crate) driver: Arc<Driver>,
    pub(crate) blocking: Pool,
    pub(crate) sentinel: Sentinel,
    started_at_ns: u64,
    /// From now on no task is taken in, and workers end when none is left.
    is_closed: AtomicBool,
    outside: Outside,
    /// Calls of `try_spawn` that have found room and not used it yet.
    arriving: AtomicUsize,
    /// What snapshots have told about time so far, one a worker: see `WorkerCells::read`.
    time_floors: Mutex<Vec<[u64; PHASES.len()]>>,
    /// Workers whose threads run, and where `shutdown` waits for them.
    running: Mutex<usize>,
    stopped: Condvar,
}

/// What is counted by threads that are no workers.
#[derive(Default)]
struct Outside {
    spawned: AtomicU64,
    injected: AtomicU64,
}

/// The part of a worker that others may touch.
pub(crate) struct Remote {
    pub(crate) ring: Stealer<Notified>,
    pub(crate) batch: Stealer<Notified>,
    /// Tasks that were placed here from outside; the worker moves them to its ring, thieves take from it.
    pub(crate) inbox: Injector<Notified>,
    /// Only its worker puts; others take on the last pass.
    pub(crate) lifo: LifoSlot<Notified>,
    pub(crate) parker: Parker,
    pub(crate) cells: WorkerCells,
    /// Tasks that thieves took from here; counted by the thieves.
    pub(crate) tasks_given: AtomicU64,
}

impl Remote {
    /// Tasks that wait here.
    pub(crate) fn queued(&self) -> usize {
        self.ring.len() + self.batch.len() + self.inbox.len() + usize::from(self.lifo.is_filled())
    }
}

impl Shared {
    pub(crate) fn new(name: String, config: Config, remotes: Box<[Remote]>, driver: Driver, blocking: Pool) -> Self {
        Self {
            name,
            home: Home::here(),
            injector: Injector::new(),
            idle: Idle::new(remotes.len()),
            placer: Placer::new(config.placement, config.lifo_steal_after_ns),
            registry: Registry::new(),
            driver: Arc::new(driver),
            blocking,
            sentinel: Sentinel::new(),
            started_at_ns: clock::now_ns(),
            is_closed: AtomicBool::new(false),
            outside: Outside::default(),
            arriving: AtomicUsize::new(0),
            time_floors: Mutex::new(vec![[0; PHASES.len()]; remotes.len()]),
            running: Mutex::new(0),
            stopped: Condvar::new(),
            remotes,
            config,
        }
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
        let extra = extra(id, name, location);
        let (task, notified, join) = new_task(future, self.clone(), id, location, extra);
        match self.registry.insert(task) {
            Ok(()) => self.start(notified),
            // The runtime shuts down.
            Err(_task) => notified.cancel_now(),
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
        let extra = extra(id, name, location);
        let make = |future| {
            let (task, notified, join) = new_task(future, self.clone(), id, location, extra);
            (task, (notified, join))
        };
        let (notified, join) = self.registry.insert_with(id, future, make).map_err(TrySpawnError::shut_down)?;
        self.start(notified);
        Ok(join)
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

    /// Counts a task that is registered, and submits it.
    fn start(self: &Arc<Self>, task: Notified) {
        current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(worker) => worker.cells().spawned.add(1),
            // ORDERING: Relaxed; only counted. The task's submission publishes it.
            None => _ = self.outside.spawned.fetch_add(1, Ordering::Relaxed),
        });
        self.schedule(task);
    }

    /// Hands a task in from outside the workers, or from a worker that cannot take it itself.
    pub(crate) fn inject(&self, task: Notified) {
        if !self.home.is_here() {
            // A forked child woke a task of its parent's. Nobody runs it here, and a thread that is not here may have held a lock.
            std::mem::forget(task);
            return;
        }
        let chosen = self.placer.choose(&self.remotes);
        let queue = chosen.map_or(&self.injector, |worker| &self.remotes[worker].inbox);
        // Submit (1)
        if let Err(task) = queue.push(task, clock::now_ns()) {
            // The workers have ended; somebody woke a task that they left behind.
            task.cancel_now();
            return;
        }
        // ORDERING: Relaxed; only counted.
        self.outside.injected.fetch_add(1, Ordering::Relaxed);
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

    /// Wakes one worker more, whether or not somebody searches. Returns whether there was one.
    pub(crate) fn wake_one(&self) -> bool {
        let claimed = self.idle.claim_any(self.driver.owner());
        self.unpark(claimed)
    }

    /// Submit (2) and (3) for one worker. Returns whether it was parked.
    fn wake_worker(&self, worker: usize) -> bool {
        let is_mine = self.idle.claim_worker(worker);
        self.unpark(is_mine.then_some(worker))
    }

    fn wake_all(&self) {
        while self.wake_one() {}
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

    /// Whether any queue that `worker` may take from holds work; what is published before a fence is seen after it.
    pub(crate) fn has_work_for(&self, worker: usize) -> bool {
        let queued = |remote: &Remote| remote.ring.len() > 0 || remote.batch.len() > 0 || remote.inbox.len() > 0;
        self.injector.len() > 0
            || self.remotes[worker].inbox.len() > 0
            || (self.config.enable_stealing && self.remotes.iter().any(queued))
    }

    /// Whether workers may end.
    pub(crate) fn is_done(&self) -> bool {
        self.is_closed() && self.registry.alive() == 0
    }

    fn is_closed(&self) -> bool {
        // ORDERING: Acquire; pairs with the Release in `close`. Between a worker's last look and its sleep stands the fence of the park.
        self.is_closed.load(Ordering::Acquire)
    }

    /// Takes nothing in any more and cancels all tasks.
    pub(crate) fn close(&self) {
        self.registry.close();
        // ORDERING: Release; pairs with the Acquire in `is_closed`: who sees the runtime closed sees the registry closed.
        self.is_closed.store(true, Ordering::Release);
        self.registry.cancel_all();
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

    /// Lifts everything that is counted into plain data.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let now_ns = clock::now_ns();
        // Ends before spawns, so that no task is counted as ended and not as spawned.
        let [completed, cancelled, panicked] = self
            .remotes
            .iter()
            .map(|remote| remote.cells.ended())
            .fold([0; 3], |sum: [u64; 3], ended| std::array::from_fn(|end| sum[end] + ended[end]));
        let inside: u64 = self.remotes.iter().map(|remote| remote.cells.spawned.get()).sum();
        // ORDERING: Relaxed; the Acquire of the ends comes before.
        let spawned = inside + self.outside.spawned.load(Ordering::Relaxed);
        let mut floors = self.time_floors.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let workers: Vec<_> = self
            .remotes
            .iter()
            .zip(&mut *floors)
            .enumerate()
            .map(|(index, (remote, floor_ns))| {
                let name_of = |id, key| self.registry.name_of(id, key);
                volt_telemetry::Worker {
                    ring_len: remote.ring.len() as u32,
                    batch_len: remote.batch.len() as u32,
                    inbox_len: remote.inbox.len() as u32,
                    is_lifo_filled: remote.lifo.is_filled(),
                    // ORDERING: Relaxed; only counted.
                    tasks_given: remote.tasks_given.load(Ordering::Relaxed),
                    ..remote.cells.read(index, now_ns, floor_ns, name_of)
                }
            })
            .collect();
        drop(floors);
        let (driver, timers) = self.driver.telemetry(now_ns);
        Snapshot {
            runtime: self.name.clone(),
            at_ns: now_ns,
            started_at_ns: self.started_at_ns,
            incomplete: Vec::new(),
            config: self.config.telemetry(self.driver.backend_name()),
            parked_bitmap: self.idle.parked_words(),
            searching: self.idle.searching() as u32,
            global_queue: volt_telemetry::GlobalQueue {
                len: self.injector.len() as u64,
                oldest_age_ns: self.injector.oldest_at_ns().map(|at_ns| now_ns.saturating_sub(at_ns)),
                // ORDERING: Relaxed; only counted.
                injected: self.outside.injected.load(Ordering::Relaxed),
                overflowed: workers.iter().map(|worker| worker.tasks_overflowed).sum(),
            },
            tasks: volt_telemetry::Tasks {
                spawned,
                completed,
                cancelled,
                panicked,
                alive: spawned.saturating_sub(completed + cancelled + panicked),
            },
            blocking: self.blocking.telemetry(),
            timers,
            driver,
            sentinel: self.sentinel.telemetry(),
            workers,
        }
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

impl Schedule for Arc<Shared> {
    fn schedule(&self, task: Notified) {
        let refused = current::with_worker(|worker| match worker.filter(|worker| worker.is_of(self)) {
            Some(worker) => worker.push_woken(task),
            None => Some(task),
        });
        if let Some(task) = refused {
            self.inject(task);
        }
    }

    fn release(&self, task: &Header) -> Option<Task> {
        let removed = self.registry.remove(task);
        if removed.was_last {
            // Closed and empty: those that sleep may end.
            self.wake_all();
        }
        removed.reference
    }
}

/// What is kept of a name and, if somebody listens, a span. One relaxed load and no allocation if there is neither.
fn extra(id: Id, name: Option<&str>, location: &'static Location<'static>) -> Option<Box<Extra>> {
    let name = name.map(|name| &name[..name.floor_char_boundary(MAX_NAME_BYTES)]);
    let span =
        tracing::info_span!(target: "volt", parent: None, "volt.task", id = id.as_u64(), name, spawn = %location);
    if name.is_none() && span.is_disabled() {
        return None;
    }
    Some(Box::new(Extra { name: name.map(Box::from), span }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn a_batch_wakes_a_worker_for_each_task_and_no_more() {
        let runtime = crate::Builder::new_multi_thread().worker_threads(8).sentinel_interval(None).build().unwrap();
        let shared = runtime.handle().shared();
        for tasks in [1, 2, 5, 8] {
            while !(shared.idle.is_all_parked() && shared.idle.searching() == 0) {
                std::thread::sleep(Duration::from_micros(100));
            }
            assert_eq!(shared.wake_for_batch(tasks), tasks);
        }
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
