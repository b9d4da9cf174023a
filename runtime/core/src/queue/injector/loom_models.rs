//! loom models of the global queue: no item is lost, and a worker that checks the queue under the
//! lock needs no fence. Another model is that of the end of a runtime (`scheduler::ends`), which
//! closes this queue to new tasks: no worker ends before the last task.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, AtomicBool};

use super::*;
use crate::scheduler::ends::{Ends, is_done};
use crate::stats::tally::{Arrivals, Tally};

/// The time of each push.
const NOW_NS: u64 = 7;

/// The steps that a fault can replace.
trait Steps: 'static {
    fn push(injector: &Injector<u32>, item: u32) -> Result<(), u32> {
        injector.push(item, NOW_NS)
    }

    fn pop_batch(injector: &Injector<u32>, max: usize, to: impl FnMut(u32)) -> usize {
        injector.pop_batch(max, to)
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// Two threads push, one of them a batch; a third thread takes items and then closes the queue.
fn pushers_and_taker<S: Steps>() {
    let injector = Arc::new(Injector::new());
    let pusher = injector.clone();
    let pusher = thread::spawn(move || S::push(&pusher, 0).err().into_iter().collect::<Vec<_>>());
    let batch = injector.clone();
    let batch = thread::spawn(move || batch.push_batch(1..3, NOW_NS).err().into_iter().flatten().collect());
    let taker = injector.clone();
    let taker = thread::spawn(move || {
        let mut taken = Vec::new();
        let count = S::pop_batch(&taker, 2, |item| taken.push(item));
        assert_eq!(count, taken.len());
        taker.close();
        // Counted under the lock.
        let mut at_close = 0;
        taker.for_each(|_| at_close += 1);
        (taken, at_close)
    });
    let mut out: Vec<_> = [pusher, batch].into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    let (taken, at_close) = taker.join().unwrap();
    out.extend(taken);
    let copies = (injector.len(), injector.oldest_at_ns());
    let left = injector.pop_batch(9, |item| out.push(item));
    assert_eq!(left, at_close, "CLOSED-IS-LAST");
    assert_eq!(copies, (left, (left > 0).then_some(NOW_NS)), "SAME-LOCK");
    assert!(injector.push(9, NOW_NS).is_err(), "CLOSED-IS-LAST");
    assert_eq!((injector.len(), injector.oldest_at_ns()), (0, None), "SAME-LOCK");
    out.sort_unstable();
    assert_eq!(out, [0, 1, 2], "an item was lost or came out twice");
}

#[test]
fn every_item_comes_out_once_or_goes_back() {
    holds(None, pushers_and_taker::<AsBuilt>);
}

/// Fault: checks whether the queue is closed, and then takes the lock again to push.
struct ChecksBeforeThePush;

impl Steps for ChecksBeforeThePush {
    fn push(injector: &Injector<u32>, item: u32) -> Result<(), u32> {
        let admits = injector.queue.lock().admits;
        if admits == Admits::Nothing {
            return Err(item);
        }
        let mut queue = injector.queue.lock();
        injector.push_back(&mut queue, item, NOW_NS);
        Ok(())
    }
}

#[test]
fn a_push_that_checks_for_the_close_too_early_is_found() {
    breaks("CLOSED-IS-LAST", None, pushers_and_taker::<ChecksBeforeThePush>);
}

/// Fault: stores the copies after the lock is released.
struct PublishesUnlocked;

impl Steps for PublishesUnlocked {
    fn push(injector: &Injector<u32>, item: u32) -> Result<(), u32> {
        let mut queue = injector.queue.lock();
        if queue.admits == Admits::Nothing {
            return Err(item);
        }
        queue.items.push_back(Item { item, pushed_at_ns: NOW_NS });
        let len = queue.items.len();
        drop(queue);
        injector.len.store(len, Ordering::Relaxed);
        injector.oldest_at_ns.store(NOW_NS, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn copies_that_are_stored_without_the_lock_are_found() {
    breaks("SAME-LOCK", None, pushers_and_taker::<PublishesUnlocked>);
}

/// Fault: copies the items under the lock, and removes as many as there are under the next one.
struct PopsInTwoSteps;

impl Steps for PopsInTwoSteps {
    fn pop_batch(injector: &Injector<u32>, max: usize, to: impl FnMut(u32)) -> usize {
        let copied: Vec<_> = injector.queue.lock().items.iter().take(max).map(|item| item.item).collect();
        let mut queue = injector.queue.lock();
        let count = max.min(queue.items.len());
        queue.items.drain(..count);
        injector.publish(&queue);
        drop(queue);
        copied.iter().copied().for_each(to);
        copied.len()
    }
}

#[test]
fn items_that_are_removed_after_they_are_copied_are_found() {
    breaks("an item was lost", None, pushers_and_taker::<PopsInTwoSteps>);
}

/// The steps Submit and Park of `scheduler/idle/mod.rs` without their fences. At least one of the
/// two sides must see what the other one did.
fn submit_against_park(check: fn(&Injector<u32>) -> bool) {
    let shared = Arc::new((Injector::new(), AtomicBool::new(false)));
    let submitter = shared.clone();
    let submitter = thread::spawn(move || {
        submitter.0.push(0, 7).unwrap();
        submitter.1.load(Ordering::Relaxed)
    });
    let parker = thread::spawn(move || {
        shared.1.swap(true, Ordering::AcqRel);
        check(&shared.0)
    });
    let (sees_parked, sees_empty) = (submitter.join().unwrap(), parker.join().unwrap());
    assert!(sees_parked || !sees_empty, "both missed the other");
}

#[test]
fn a_check_under_the_lock_needs_no_fence() {
    holds(None, || submit_against_park(Injector::is_empty_locked));
}

#[test]
fn a_check_of_the_length_without_a_fence_is_found() {
    breaks("both missed the other", None, || submit_against_park(|injector| injector.len() == 0));
}

/// The incorrect step of `how_it_ends`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// A thread outside the workers counts its task after the push.
    CountedLate,
    /// The runtime is marked as closed before its queue is.
    ClosedEarly,
    /// Spawns are read before ends.
    SpawnsFirst,
    /// The end of a task is counted before the task that it spawned.
    EndFirst,
    /// An end is counted without a Release.
    EndRelaxed,
}

struct Runtime {
    queue: Injector<u32>,
    /// Counted by threads outside the workers, under the queue's lock.
    arrived: Arrivals,
    /// Counted by the worker.
    spawned: Tally,
    ended: Tally,
    is_closed: AtomicBool,
    fault: Fault,
}

impl Ends for Runtime {
    fn ended(&self) -> [u64; 3] {
        [self.ended.get(), 0, 0]
    }

    fn spawned(&self) -> [u64; 2] {
        [self.spawned.get(), self.arrived.count()]
    }

    fn closed(&self) -> &AtomicBool {
        &self.is_closed
    }

    fn close_queues_to_new(&self) {
        self.queue.close_to_new();
    }

    fn count_tasks(&self) -> ([u64; 3], [u64; 2]) {
        if self.fault == Fault::SpawnsFirst {
            let spawned = self.spawned();
            return (self.ended(), spawned);
        }
        AsInRuntime(self).count_tasks()
    }

    fn close_to_new(&self) {
        if self.fault == Fault::ClosedEarly {
            self.is_closed.store(true, Ordering::Release);
            self.queue.close_to_new();
        } else {
            AsInRuntime(self).close_to_new();
        }
    }
}

/// The steps that a fault can replace, as the runtime executes them.
struct AsInRuntime<'r>(&'r Runtime);

impl Ends for AsInRuntime<'_> {
    fn ended(&self) -> [u64; 3] {
        self.0.ended()
    }

    fn spawned(&self) -> [u64; 2] {
        self.0.spawned()
    }

    fn closed(&self) -> &AtomicBool {
        self.0.closed()
    }

    fn close_queues_to_new(&self) {
        self.0.close_queues_to_new();
    }
}

/// "How it ends" of `scheduler/shared/end.rs`: a thread outside the workers spawns a task. A
/// worker runs that task, which spawns another one. A third thread closes the runtime. A second
/// worker checks whether all tasks have completed. If the check succeeds, no task may follow.
fn how_it_ends(fault: Fault) {
    let runtime = Arc::new(Runtime {
        queue: Injector::new(),
        arrived: Arrivals::default(),
        spawned: Tally::default(),
        ended: Tally::default(),
        is_closed: AtomicBool::new(false),
        fault,
    });
    let outsider = runtime.clone();
    let outsider = thread::spawn(move || {
        // End (1)
        let count = || outsider.arrived.add_one();
        if fault == Fault::CountedLate {
            if outsider.queue.push_new(7, 0, || ()).is_ok() {
                count();
            }
        } else {
            let _refused = outsider.queue.push_new(7, 0, count);
        }
    });
    let worker = runtime.clone();
    let worker = thread::spawn(move || {
        if worker.queue.pop_batch(1, |_| ()) == 0 {
            return;
        }
        let end = || match fault {
            Fault::EndRelaxed => worker.ended.add_one_relaxed(),
            _ => worker.ended.add_one(),
        };
        if fault == Fault::EndFirst {
            end();
            worker.spawned.add_one();
        } else {
            // End (1)
            worker.spawned.add_one();
            end();
        }
        end();
    });
    let checker = runtime.clone();
    let checker = thread::spawn(move || is_done(&*checker).then(|| checker.ended.get()));
    // End (2), End (3)
    runtime.close_to_new();
    outsider.join().unwrap();
    worker.join().unwrap();
    if let Some(tasks) = checker.join().unwrap() {
        assert_eq!(tasks, runtime.spawned().iter().sum::<u64>(), "a worker has exited before the last task");
    }
}

const ENDED_EARLY: &str = "a worker has exited before the last task";

#[test]
fn a_worker_that_ends_has_seen_the_last_task() {
    holds(None, || how_it_ends(Fault::None));
}

#[test]
fn a_task_counted_after_its_push_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::CountedLate));
}

#[test]
fn a_runtime_that_is_closed_before_its_queue_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::ClosedEarly));
}

#[test]
fn spawns_read_before_ends_are_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::SpawnsFirst));
}

#[test]
fn an_end_counted_before_the_spawns_of_its_task_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::EndFirst));
}

#[test]
fn an_end_that_publishes_nothing_is_found() {
    breaks(ENDED_EARLY, None, || how_it_ends(Fault::EndRelaxed));
}
