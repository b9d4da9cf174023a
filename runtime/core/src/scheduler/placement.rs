//! Placement: which worker gets a task that is submitted from outside the workers.
//!
//! `Global` chooses no worker: the task waits in the global queue for the worker that checks it
//! first. The other two push it to the inbox of a worker and wake that worker. If that worker turns
//! out to be busy, thieves steal from its inbox as from its ring.
//!
//! A worker's load is the length of its queues, plus one while it is in a poll. It is read from the
//! queues themselves. A separate counter would cost each push, pop, steal and overflow a
//! read-modify-write, and would drift for ever wherever one of them is forgotten. A derived load
//! cannot drift: the sum of all loads is the number of tasks that are queued or running.
//!
//! Workers that cannot run a task soon are skipped: those that have announced that they block
//! (`block_in_place`), those that the sentinel has declared stuck, and those whose current poll has
//! lasted for `STUCK_AFTER`. The last condition covers the time before the sentinel notices, and
//! runtimes without a sentinel. If no candidate is left, the task goes to the global queue. A
//! worker may begin to block right after it was chosen; then a thief takes the task, as from a
//! ring. Without stealing, the sentinel moves it. If there is no sentinel either, the task waits
//! until the block ends.
//!
//! Spares are never chosen, since a spare leaves soon after the last stall. It steals from inboxes
//! like any thief.
//!
//! The least-loaded scan starts at a rotating index (otherwise all ties would go to worker 0) and
//! ends at the first idle worker. Two choices: Mitzenmacher, "The Power of Two Choices in
//! Randomized Load Balancing", 2001.

use std::cell::LazyCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::remote::Remote;
use super::slots::WorkerSlots;
use crate::clock;
use crate::config::{Placement, STUCK_AFTER};

/// Chooses workers for the tasks of one runtime.
pub(crate) struct Placer {
    placement: Placement,
    /// The index at which the next scan starts; also the source of the two choices.
    turn: AtomicUsize,
}

impl Placer {
    pub(crate) fn new(placement: Placement) -> Self {
        Self { placement, turn: AtomicUsize::new(0) }
    }

    /// Returns the worker whose inbox takes the next task; `None` = the global queue. `remotes` are
    /// those of the workers, without spares.
    #[inline]
    pub(crate) fn choose(&self, remotes: &[Arc<Remote>], slots: &WorkerSlots) -> Option<usize> {
        match self.placement {
            Placement::Global => None,
            Placement::TwoChoices => self.two_choices(remotes, slots),
            Placement::LeastLoaded => self.least_loaded(remotes, slots),
        }
    }

    fn next_turn(&self) -> usize {
        // ORDERING: Relaxed; only the value matters.
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    fn two_choices(&self, remotes: &[Arc<Remote>], slots: &WorkerSlots) -> Option<usize> {
        let count = remotes.len();
        let mixed = mix(self.next_turn() as u64);
        let one = reduce(mixed as u32, count);
        // A different one, with the same probability for each.
        let other = (one + 1 + reduce((mixed >> 32) as u32, count.saturating_sub(1))) % count;
        let now_ns = LazyCell::new(clock::now_ns);
        let open = [one, other].into_iter().filter(|worker| is_open(*worker, &remotes[*worker], slots, || *now_ns));
        open.min_by_key(|worker| load(&remotes[*worker]))
    }

    fn least_loaded(&self, remotes: &[Arc<Remote>], slots: &WorkerSlots) -> Option<usize> {
        let count = remotes.len();
        let start = self.next_turn() % count;
        let now_ns = LazyCell::new(clock::now_ns);
        let mut best = None;
        for worker in (start..count).chain(0..start) {
            let remote = &remotes[worker];
            let load = load(remote);
            if best.is_some_and(|(least, _)| load >= least) || !is_open(worker, remote, slots, || *now_ns) {
                continue;
            }
            if load == 0 {
                return Some(worker);
            }
            best = Some((load, worker));
        }
        best.map(|(_, worker)| worker)
    }
}

/// Returns whether a worker can run a task soon: it is active, neither blocks nor is declared
/// stuck, and is not in a long poll. The clock is read only for workers that are in a poll.
fn is_open(worker: usize, remote: &Remote, slots: &WorkerSlots, now_ns: impl Fn() -> u64) -> bool {
    let is_stuck = || remote.cells.poll_for_ns(now_ns()) >= Some(clock::saturating_ns(STUCK_AFTER));
    slots.is_present(worker) && !(remote.cells.is_in_poll() && is_stuck())
}

/// Returns how many tasks a worker holds or runs.
pub(crate) fn load(remote: &Remote) -> usize {
    remote.queued() + usize::from(remote.cells.is_in_poll())
}

/// Reduces 32 random bits to a number in `0..n` (0 for `n = 0`); Lemire's multiply-shift.
fn reduce(random: u32, n: usize) -> usize {
    ((u64::from(random) * n as u64) >> 32) as usize
}

/// Spreads a counter over 64 bits: the finalizer of splitmix64 (Steele, Lea, Flood, 2014).
fn mix(counter: u64) -> u64 {
    let mut mixed = counter.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, Condvar, Mutex};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::builder::Builder;
    use crate::context::block_in_place::block_in_place;
    use crate::runtime::Runtime;
    use crate::scheduler::core::Core;
    use crate::scheduler::remote::slot;
    use crate::stats::placed::Placed;
    use crate::task::cell::{Nowhere, new_task};
    use crate::task::control::yield_now::yield_now;
    use crate::task::header::Notified;
    use crate::task::id::Id;

    const HOUR: Duration = Duration::from_secs(3600);
    /// An event that has not happened after this time will never happen.
    const HANGS: Duration = Duration::from_secs(60);

    fn remotes(count: usize) -> (Vec<Arc<Remote>>, Vec<Core>) {
        let builder = Builder::new_multi_thread();
        (0..count).map(|index| slot(builder.config(), Placed::on_heap(Box::default()), index, 1)).unzip()
    }

    fn chosen(placement: Placement, workers: usize) -> Vec<usize> {
        let ((remotes, _cores), slots) = (remotes(workers), WorkerSlots::new(workers, 0));
        let placer = Placer::new(placement);
        let mut counts = vec![0; workers];
        (0..7_000).for_each(|_| counts[placer.choose(&remotes, &slots).expect("nobody is stuck")] += 1);
        counts
    }

    #[test]
    fn idle_workers_get_equal_shares() {
        for placement in [Placement::TwoChoices, Placement::LeastLoaded] {
            let counts = chosen(placement, 7);
            assert!(counts.iter().all(|count| count.abs_diff(1_000) < 150), "{placement:?}: {counts:?}");
        }
    }

    #[test]
    fn one_worker_is_enough() {
        assert_eq!(chosen(Placement::TwoChoices, 1), [7_000]);
        assert_eq!(chosen(Placement::LeastLoaded, 1), [7_000]);
    }

    #[test]
    fn global_chooses_no_worker() {
        let (remotes, _cores) = remotes(2);
        assert_eq!(Placer::new(Placement::Global).choose(&remotes, &WorkerSlots::new(2, 0)), None);
    }

    fn task() -> Notified {
        new_task(async {}, Nowhere, Id::next(), Location::caller(), None).0
    }

    /// Returns the different results of a hundred choices.
    fn choices(placer: &Placer, remotes: &[Arc<Remote>], slots: &WorkerSlots) -> Vec<Option<usize>> {
        let mut choices: Vec<_> = (0..100).map(|_| placer.choose(remotes, slots)).collect();
        choices.sort_unstable();
        choices.dedup();
        choices
    }

    #[test]
    fn the_less_loaded_is_chosen() {
        let slots = WorkerSlots::new(2, 0);
        for placement in [Placement::TwoChoices, Placement::LeastLoaded] {
            let placer = Placer::new(placement);
            // For each place in which a worker can hold a task.
            for place in 0..5 {
                let (remotes, mut cores) = remotes(2);
                match place {
                    0 => cores[0].ring.push(task()).unwrap(),
                    1 => cores[0].batch.push(task()).unwrap(),
                    2 => remotes[0].inbox.push(task(), 0).unwrap(),
                    3 => assert!(remotes[0].lifo.put(task()).is_none()),
                    // A poll that counts as just begun for an hour.
                    _ => _ = remotes[0].cells.begin_poll(task().header(), clock::now_ns() + clock::saturating_ns(HOUR)),
                }
                assert_eq!(choices(&placer, &remotes, &slots), [Some(1)], "{placement:?}, {place}");
                // If both hold tasks, the one that holds fewer.
                (0..2).for_each(|_| cores[1].ring.push(task()).unwrap());
                assert_eq!(choices(&placer, &remotes, &slots), [Some(0)], "{placement:?}, {place}");
            }
        }
    }

    #[test]
    fn a_worker_that_cannot_run_a_task_soon_is_skipped() {
        let task = task();
        let begin_long_poll = |remote: &Remote| {
            let began_at_ns = clock::now_ns().saturating_sub(clock::saturating_ns(STUCK_AFTER));
            remote.cells.begin_poll(task.header(), began_at_ns);
        };
        type Stop<'a> = &'a dyn Fn(&WorkerSlots, &Remote, usize);
        let stops: [(&str, Stop<'_>); 3] = [
            ("in a long poll", &|_, remote, _| begin_long_poll(remote)),
            ("stuck", &|slots, _, worker| assert!(slots.declare_stuck(worker))),
            ("blocking", &|slots, _, worker| slots.begin_blocking(worker)),
        ];
        for placement in [Placement::TwoChoices, Placement::LeastLoaded] {
            for (what, stop) in stops {
                let placer = Placer::new(placement);
                let ((remotes, mut cores), slots) = (remotes(2), WorkerSlots::new(2, 2));
                (0..5).for_each(|_| cores[1].ring.push(self::task()).unwrap());
                assert_eq!(choices(&placer, &remotes, &slots), [Some(0)]);
                stop(&slots, &remotes[0], 0);
                assert_eq!(choices(&placer, &remotes, &slots), [Some(1)], "{placement:?}, {what}, with an empty queue");
                stop(&slots, &remotes[1], 1);
                assert_eq!(choices(&placer, &remotes, &slots), [None], "{placement:?}, all {what}");
                // A stand-in is not a candidate.
                assert!(slots.call().is_some());
                assert_eq!(choices(&placer, &remotes, &slots), [None], "{placement:?}, all {what}, beside a spare");
            }
        }
    }

    /// Stops the threads that pass it while it is closed.
    #[derive(Default)]
    struct Gate {
        is_closed: AtomicBool,
        held: Mutex<usize>,
        changed: Condvar,
    }

    impl Gate {
        fn pass(&self) {
            // ORDERING: SeqCst, here and below; the test's own switches and counts, on which no
            // claim about order depends.
            if self.is_closed.load(Ordering::SeqCst) {
                let mut held = self.held.lock().unwrap();
                *held += 1;
                self.changed.notify_all();
                while self.is_closed.load(Ordering::SeqCst) {
                    held = self.changed.wait(held).unwrap();
                }
                *held -= 1;
            }
        }

        /// Closes the gate, and waits until `count` threads are stopped.
        fn close(&self, count: usize) {
            self.is_closed.store(true, Ordering::SeqCst);
            let held = self.held.lock().unwrap();
            let (held, _) = self.changed.wait_timeout_while(held, HANGS, |held| *held < count).unwrap();
            assert_eq!(*held, count, "this many are stuck after {HANGS:?}");
        }

        fn open(&self) {
            let _held = self.held.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            self.is_closed.store(false, Ordering::SeqCst);
            self.changed.notify_all();
        }
    }

    /// Lets all threads continue, also when the test has failed.
    struct Ends<'a>(&'a Gate, &'a AtomicBool);

    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
            self.0.open();
        }
    }

    fn sum_of_loads(runtime: &Runtime) -> u64 {
        let shared = runtime.handle().shared();
        (shared.workers.remotes_in_use().iter().map(|remote| load(remote)).sum::<usize>()
            + shared.workers.injector.len()) as u64
    }

    /// The tasks here never wait for anything: each one that is alive is queued or running. While
    /// all threads are stopped in a poll, nothing moves.
    #[test]
    fn worker_loads_equal_queued_plus_running_tasks_when_paused() {
        const WORKERS: usize = 3;
        const ROUNDS: u64 = if cfg!(miri) { 2 } else { 40 };
        for placement in [Placement::Global, Placement::TwoChoices, Placement::LeastLoaded] {
            let runtime = Builder::new_multi_thread()
                .worker_threads(WORKERS)
                .placement(placement)
                .local_queue_capacity(4)
                .global_queue_batch_size(2)
                .lifo_steal_after(HOUR)
                .sentinel_interval(None)
                .max_spare_workers(0)
                .park_timeout(None)
                .control_socket(false)
                .build()
                .unwrap();
            let (gate, stop) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
            for n in 0..24 {
                let (gate, stop) = (gate.clone(), stop.clone());
                runtime.spawn(async move {
                    while !stop.load(Ordering::SeqCst) {
                        let passed = gate.clone();
                        if n % 3 == 0 {
                            block_in_place(|| passed.pass());
                        } else {
                            passed.pass();
                        }
                        crate::handle::Handle::current().spawn(async move {
                            yield_now().await;
                            passed.pass();
                        });
                        yield_now().await;
                    }
                });
            }
            let polls = || runtime.handle().snapshot().workers.iter().map(|worker| worker.polls).sum::<u64>();
            thread::scope(|scope| {
                scope.spawn(|| {
                    while !stop.load(Ordering::SeqCst) {
                        let passed = gate.clone();
                        runtime.spawn(async move { passed.pass() });
                        gate.pass();
                        thread::yield_now();
                    }
                });
                let _ends = Ends(&gate, &stop);
                for round in 0..ROUNDS {
                    let (until, began) = (polls() + 200, Instant::now());
                    while polls() < until {
                        assert!(began.elapsed() < HANGS, "{placement:?}, round {round}");
                        thread::yield_now();
                    }
                    // Every worker, and the thread outside.
                    gate.close(WORKERS + 1);
                    (0..round % 7).for_each(|_| drop(runtime.spawn(async {})));
                    let alive = runtime.handle().snapshot().tasks.alive;
                    assert_eq!(sum_of_loads(&runtime), alive, "{placement:?}, round {round}");
                    gate.open();
                }
            });
            let began = Instant::now();
            while runtime.handle().snapshot().tasks.alive > 0 {
                assert!(began.elapsed() < HANGS, "{placement:?}");
                thread::yield_now();
            }
            let workers = runtime.handle().snapshot().workers;
            assert_eq!(sum_of_loads(&runtime), 0, "{placement:?}");
            let sum = |count: fn(&volt_telemetry::Worker) -> u64| workers.iter().map(count).sum::<u64>();
            assert!(sum(|worker| worker.tasks_stolen) > 0 && sum(|worker| worker.overflows) > 0, "{placement:?}");
        }
    }
}
