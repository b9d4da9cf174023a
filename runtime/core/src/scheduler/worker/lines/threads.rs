//! The workers of the traced program, on a thread each, and the tasks and sockets that they use.
//!
//! One thread at a time does an operation. It announces the begin and the end by stores to marks,
//! which `trace` recognizes. The channels by which the threads take turns are outside of these.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;

use super::trace::{LINE, MARKS, Mark};
use crate::clock;
use crate::config::ParkSpin;
use crate::context;
use crate::driver::readiness::{Flags, Readiness};
use crate::handle::Handle;
use crate::scheduler::core::Core;
use crate::scheduler::shared::{Shared, without_threads};
use crate::scheduler::worker::Worker;

/// The time, ns. A multiple of a timer's tick.
pub(super) const NOW_NS: u64 = 1_600_000_000;
/// The waiting tasks of each worker.
pub(super) const TASKS: usize = 3;

#[repr(align(64))]
pub(super) struct Line(AtomicU8);

const _: () = assert!(size_of::<Line>() == LINE);

/// A store to one of these is in the trace.
pub(super) static ANNOUNCED: [Line; MARKS] = [const { Line(AtomicU8::new(0)) }; MARKS];

#[inline(never)]
pub(super) fn announce(mark: Mark) {
    // ORDERING: Relaxed; no thread reads it. Operations are called through pointers, so the
    // compiler does not move them across this.
    ANNOUNCED[mark.index()].0.store(1, Ordering::Relaxed);
}

/// The state that the operations use.
pub(super) struct World {
    pub(super) shared: Arc<Shared>,
    pub(super) tasks: &'static Tasks,
}

pub(super) type Operation = fn(&World, &Worker);

/// The threads of the traced program: one for each worker. The thread that owns this one is outside
/// the workers.
pub(super) struct Threads {
    pub(super) world: &'static World,
    operations: Vec<Sender<(Operation, bool)>>,
    done: Receiver<()>,
}

impl Threads {
    pub(super) fn new(workers: usize) -> Self {
        let (mut shared, cores) = without_threads(workers);
        // A spin would last for ever, since the clock stands still.
        shared.config.park_spin = ParkSpin::Off;
        let tasks = Box::leak(Box::new(Tasks::new(workers)));
        let world: &World = Box::leak(Box::new(World { shared: Arc::new(shared), tasks }));
        let (is_done, done) = mpsc::channel();
        // One after the other: the order in which threads allocate decides which of their data
        // share a line.
        let start = |(index, core)| {
            let ((operations, to_do), is_done) = (mpsc::channel(), is_done.clone());
            thread::spawn(move || work(world, index, core, &to_do, &is_done));
            done.recv().expect("the thread of a worker starts");
            operations
        };
        let operations = cores.into_iter().enumerate().map(start).collect();
        Self { world, operations, done }
    }

    pub(super) fn workers(&self) -> usize {
        self.operations.len()
    }

    pub(super) fn next(&self, worker: usize) -> usize {
        (worker + 1) % self.workers()
    }

    /// Does an operation on a worker, which is counted.
    pub(super) fn on(&self, worker: usize, operation: Operation) {
        self.run(worker, operation, true);
    }

    /// Does an operation on a thread outside the workers, which is counted.
    pub(super) fn outside(&self, operation: impl FnOnce(&World)) {
        announce(Mark::Begin(self.workers()));
        operation(self.world);
        announce(Mark::End);
    }

    pub(super) fn run(&self, worker: usize, operation: Operation, is_counted: bool) {
        self.operations[worker].send((operation, is_counted)).expect("the thread of a worker runs");
        self.done.recv().expect("the operation did not panic");
    }
}

/// Does the operations of a worker, on its thread.
fn work(
    world: &'static World,
    index: usize,
    core: Core,
    operations: &Receiver<(Operation, bool)>,
    is_done: &Sender<()>,
) {
    clock::simulated::set(Some(NOW_NS));
    let handle = Handle::new(world.shared.clone());
    let _entered = context::enter(&handle);
    let worker = Worker::new(world.shared.clone(), index, core);
    worker.run_as_current(|| {
        is_done.send(()).expect("the main thread waits");
        for (operation, is_counted) in operations {
            if is_counted {
                announce(Mark::Begin(index));
            }
            operation(world, &worker);
            announce(Mark::End);
            is_done.send(()).expect("the main thread waits");
        }
    });
}

/// The tasks that the operations use.
pub(super) struct Tasks {
    pub(super) wakers: Box<[[OnceLock<Waker>; TASKS]]>,
    /// The wakers of tasks that worker 0 has spawned, one for each worker.
    pub(super) spawned_by_one: Box<[OnceLock<Waker>]>,
    /// One for each worker.
    pub(super) sockets: Box<[Arc<Readiness>]>,
    /// A waker that one worker passes to the next one.
    passed: Mutex<Option<Waker>>,
}

impl Tasks {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            wakers: (0..workers).map(|_| [const { OnceLock::new() }; TASKS]).collect(),
            spawned_by_one: (0..workers).map(|_| OnceLock::new()).collect(),
            sockets: (0..workers).map(|_| Arc::new(Readiness::new(Flags::NONE))).collect(),
            passed: Mutex::new(None),
        }
    }

    /// The lock that passes a waker, which is not part of the runtime.
    pub(super) fn passed(&self) -> &Mutex<Option<Waker>> {
        &self.passed
    }

    pub(super) fn all_wakers(&self) -> impl Iterator<Item = &Waker> {
        self.wakers.iter().flatten().chain(&self.spawned_by_one).filter_map(OnceLock::get)
    }

    pub(super) fn pass(&self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut *self.passed.lock().unwrap_or_else(PoisonError::into_inner), waker)
    }
}

impl World {
    pub(super) fn waker(&self, worker: usize, task: usize) -> &Waker {
        self.tasks.wakers[worker][task].get().expect("each worker has spawned its tasks")
    }
}
