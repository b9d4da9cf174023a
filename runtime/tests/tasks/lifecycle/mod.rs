//! The guarantees of a task to the code that spawned it.

use std::cell::Cell;
use std::future::{Future, pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::watchdog::{self, runtime, watched, with_one_worker, with_workers};
use volt::task::{self, Shield, block_in_place, yield_now};

mod thread_end;

/// Counts when it is dropped.
struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Returns a counter, and a token that increments it when dropped.
fn on_drop() -> (Arc<AtomicUsize>, OnDrop) {
    let count = Arc::new(AtomicUsize::new(0));
    (count.clone(), OnDrop(count))
}

#[test]
fn output_is_returned_from_outside_and_inside() {
    with_workers(|runtime| {
        let outside = runtime.spawn(async { 1 });
        let inside = runtime.spawn(async { volt::spawn(async { 2 }).await.unwrap() });
        assert_eq!(runtime.block_on(async { (outside.await.unwrap(), inside.await.unwrap()) }), (1, 2));
    });
}

#[test]
fn only_the_joiner_gets_the_error_of_a_panic() {
    with_workers(|runtime| {
        for round in 0..50 {
            let bad = runtime.spawn(async move { panic!("round {round}") });
            let good = runtime.spawn(async move { round });
            let error = runtime.block_on(bad).unwrap_err();
            assert!(error.is_panic() && !error.is_cancelled());
            assert!(error.to_string().ends_with(&format!("panicked with message \"round {round}\"")), "{error}");
            assert_eq!(*error.into_panic().downcast::<String>().unwrap(), format!("round {round}"));
            assert_eq!(runtime.block_on(good).unwrap(), round);
        }
        let tasks = at_rest(&runtime);
        assert_eq!((tasks.panicked, tasks.completed, tasks.alive), (50, 50, 0));
    });
}

#[test]
fn a_panic_in_a_destructor_is_contained() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in drop");
        }
    }
    with_workers(|runtime| {
        // In the drop of the future that is cancelled.
        let bomb = Bomb;
        let cancelled = runtime.spawn(async move {
            let _bomb = bomb;
            pending::<()>().await;
        });
        cancelled.abort();
        assert!(runtime.block_on(cancelled).unwrap_err().is_panic());
        // In the drop of an output that is never taken.
        let (done, is_done) = mpsc::channel();
        drop(runtime.spawn(async move {
            done.send(()).unwrap();
            Bomb
        }));
        is_done.recv().unwrap();
        assert_eq!(runtime.block_on(runtime.spawn(async { 5 })).unwrap(), 5, "the worker survived");
    });
}

#[test]
fn abort_reaches_idle_scheduled_and_running_tasks() {
    with_workers(|runtime| {
        // Idle.
        let (drops, token) = on_drop();
        let idle = runtime.spawn(async move {
            let _token = token;
            pending::<()>().await;
        });
        while runtime.handle().snapshot().workers.iter().map(|worker| worker.polls).sum::<u64>() == 0 {
            std::hint::spin_loop();
        }
        idle.abort();
        assert!(runtime.block_on(idle).unwrap_err().is_cancelled());
        assert_eq!(drops.load(Ordering::SeqCst), 1);

        // Running: the poll ends, and the task is not polled again.
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let running = runtime.spawn(async move {
            entered.send(()).unwrap();
            may_leave.recv().unwrap();
            yield_now().await;
            unreachable!("aborted during the poll before");
        });
        has_entered.recv().unwrap();
        running.abort();
        leave.send(()).unwrap();
        assert!(runtime.block_on(running).unwrap_err().is_cancelled());

        // Scheduled, or in any other state: spawned and aborted immediately.
        for _ in 0..200 {
            let task = runtime.spawn(async {
                yield_now().await;
                1
            });
            task.abort();
            match runtime.block_on(task) {
                Ok(output) => assert_eq!(output, 1),
                Err(error) => assert!(error.is_cancelled()),
            }
        }

        // Too late.
        let finished = runtime.spawn(async { 3 });
        let abort = finished.abort_handle();
        while !finished.is_finished() {
            std::hint::spin_loop();
        }
        abort.abort();
        assert_eq!(runtime.block_on(finished).unwrap(), 3);
    });
}

#[test]
fn a_task_that_is_aborted_in_a_queue_is_dropped_without_a_poll() {
    with_one_worker(|runtime| {
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let blocker = runtime.spawn(async move {
            // One in the LIFO slot, two in the ring, and from outside one in the global queue.
            let queued: Vec<_> = (0..3).map(|_| volt::spawn(async { unreachable!("aborted in the queue") })).collect();
            queued.iter().for_each(|task: &task::JoinHandle<()>| task.abort());
            entered.send(queued).unwrap();
            may_leave.recv().unwrap();
        });
        let mut queued = has_entered.recv().unwrap();
        let (drops, token) = on_drop();
        queued.push(runtime.spawn(async move {
            let _token = token;
            unreachable!("aborted in the queue")
        }));
        queued[3].abort();
        assert_eq!(drops.load(Ordering::SeqCst), 0, "it goes when its turn comes, on the worker");
        leave.send(()).unwrap();
        for task in queued {
            assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        }
        runtime.block_on(blocker).unwrap();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        assert_eq!(at_rest(&runtime).cancelled, 4);
    });
}

#[test]
fn a_dropped_handle_detaches_the_task() {
    with_workers(|runtime| {
        let (done, is_done) = mpsc::channel();
        drop(runtime.spawn(async move {
            yield_now().await;
            done.send(()).unwrap();
        }));
        is_done.recv().unwrap();
    });
}

#[test]
fn a_joiner_that_changes_its_waker_is_woken_through_the_last() {
    with_workers(|runtime| {
        let (open, is_open) = mpsc::channel::<()>();
        let mut slow = runtime.spawn_blocking(move || is_open.recv().unwrap());
        // Polled first by one waiter, then by another, which must be the one that is woken.
        runtime.block_on(poll_fn(|cx| {
            assert!(std::pin::Pin::new(&mut slow).poll(cx).is_pending());
            Poll::Ready(())
        }));
        let joiner = runtime.spawn(async move { (&mut slow).await.is_ok() });
        open.send(()).unwrap();
        assert!(runtime.block_on(joiner).unwrap());
    });
}

#[test]
fn task_ids_differ_ascend_and_are_available_inside() {
    with_workers(|runtime| {
        let tasks: Vec<_> = (0..100).map(|_| runtime.spawn(async { task::id() })).collect();
        let outside: Vec<_> = tasks.iter().map(|task| task.id()).collect();
        let inside: Vec<_> = tasks.into_iter().map(|task| runtime.block_on(task).unwrap()).collect();
        assert_eq!(outside, inside);
        assert!(outside.is_sorted_by(|a, b| a < b));
        assert_eq!(task::try_id(), None);
    });
}

#[test]
fn blocking_jobs_run_outside_the_workers_in_their_runtime() {
    with_one_worker(|runtime| {
        let (open, is_open) = mpsc::channel::<()>();
        let blocked = runtime.spawn_blocking(move || is_open.recv().unwrap());
        let spawned = runtime.spawn_blocking(|| volt::spawn(async { 7 }));
        let spawned = runtime.block_on(spawned).unwrap();
        assert_eq!(runtime.block_on(spawned).unwrap(), 7, "the only worker is free");
        open.send(()).unwrap();
        runtime.block_on(blocked).unwrap();
        assert!(runtime.block_on(runtime.spawn_blocking(|| panic!("no"))).unwrap_err().is_panic());
        let blocking = runtime.handle().snapshot().blocking;
        assert!(blocking.threads >= 1 && blocking.submitted == 3, "{blocking:?}");
    });
}

#[test]
fn the_blocking_pool_runs_all_jobs_within_its_thread_limit() {
    watched(|| {
        let runtime = watchdog::builder(1).max_blocking_threads(3).build().unwrap();
        let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let jobs: Vec<_> = (0..100)
            .map(|n| {
                let (now, most) = (now.clone(), most.clone());
                runtime.spawn_blocking(move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    n
                })
            })
            .collect();
        let sum: usize = jobs.into_iter().map(|job| runtime.block_on(job).unwrap()).sum();
        assert_eq!(sum, 4950);
        assert!(most.load(Ordering::SeqCst) <= 3);
    });
}

#[test]
fn a_task_that_never_waits_yields_when_its_budget_is_spent() {
    with_one_worker(|runtime| {
        let (sender, receiver) = mpsc::channel();
        let others = sender.clone();
        let hog = runtime.spawn(async move {
            let other = volt::spawn(async move { others.send("other").unwrap() });
            for _ in 0..100_000 {
                task::consume_budget().await;
            }
            sender.send("hog").unwrap();
            other.await.unwrap();
        });
        runtime.block_on(hog).unwrap();
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["other", "hog"]);
        let yields: u64 = runtime.handle().snapshot().workers.iter().map(|worker| worker.coop_yields).sum();
        assert!(yields >= 700, "100,000 operations by 128: {yields}");
    });
}

#[test]
fn a_task_wakes_another_runtimes_task() {
    watched(|| {
        let (one, other) = (runtime(1), runtime(1));
        for _ in 0..1_000 {
            let task = other.spawn(async {
                yield_now().await;
                1
            });
            let joined = one.spawn(async move { task.await.unwrap() + 1 });
            assert_eq!(one.block_on(joined).unwrap(), 2);
        }
    });
}

#[test]
fn the_latest_live_enter_guard_determines_the_current_runtime() {
    watched(|| {
        let runtimes = [(); 3].map(|()| runtime(1));
        let name_of = |runtime: &volt::Runtime| runtime.handle().snapshot().runtime;
        let current = || volt::Handle::try_current().ok().map(|handle| handle.snapshot().runtime);
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut guards: Vec<_> = runtimes.iter().map(|runtime| Some(runtime.enter())).collect();
            for leaves in order {
                guards[leaves] = None;
                let latest = guards.iter().rposition(Option::is_some);
                assert_eq!(current(), latest.map(|latest| name_of(&runtimes[latest])), "{order:?}, {leaves}");
            }
        }
    });
}

#[test]
fn a_wake_goes_to_the_tasks_own_runtime_or_is_ignored() {
    watched(|| {
        for _ in 0..50 {
            let (one, other) = (runtime(1), runtime(2));
            // A task of one runtime, woken by tasks of both, by a blocking thread and by this
            // thread, all at the same time.
            let (wakers, waker) = mpsc::channel();
            let woken = Arc::new(AtomicUsize::new(0));
            let polls = woken.clone();
            let task = one.spawn(poll_fn(move |cx| {
                if polls.fetch_add(1, Ordering::SeqCst) == 0 {
                    (0..4).for_each(|_| wakers.send(cx.waker().clone()).unwrap());
                }
                Poll::<()>::Pending
            }));
            let wakers: [_; 4] = std::array::from_fn(|_| waker.recv().unwrap());
            let [from_own, from_other, from_thread, from_here] = wakers.clone();
            let wakes = [
                one.spawn(async move { from_own.wake() }),
                other.spawn(async move { from_other.wake() }),
                other.spawn_blocking(move || from_thread.wake()),
            ];
            from_here.wake();
            wakes.into_iter().for_each(|wake| other.block_on(wake).unwrap());
            while woken.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
            let snapshot = other.handle().snapshot();
            let polls: u64 = snapshot.workers.iter().map(|worker| worker.polls).sum();
            assert!(polls <= 1, "the other runtime polled its own task only: {polls}");

            // While the runtime ends, and afterwards.
            let [first, second, ..] = wakers;
            let late = other.spawn(async move {
                for _ in 0..100 {
                    first.wake_by_ref();
                    yield_now().await;
                }
            });
            drop(one);
            assert!(other.block_on(task).unwrap_err().is_cancelled());
            other.block_on(late).unwrap();
            second.wake();
        }
    });
}

#[test]
fn names_and_places_are_seen_while_a_task_runs() {
    with_one_worker(|runtime| {
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let line = line!() + 1;
        let stuck = task::Builder::new().name("price feed").spawn_on(
            async move {
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
            },
            runtime.handle(),
        );
        has_entered.recv().unwrap();
        let snapshot = runtime.handle().snapshot();
        let (worker, poll) = snapshot.longest_in_flight().expect("a poll is going on");
        assert_eq!((poll.task_id.to_string(), poll.task_name.as_deref()), (stuck.id().to_string(), Some("price feed")));
        assert!(
            poll.spawned_at.starts_with(&format!("runtime/tests/tasks/lifecycle/mod.rs:{line}:")),
            "{}",
            poll.spawned_at
        );
        assert_eq!(worker.phase, volt::telemetry::Phase::Busy);
        let later = runtime.handle().snapshot();
        assert!(later.workers[0].busy_ns > worker.busy_ns, "time goes on while the worker is stuck");
        leave.send(()).unwrap();
        runtime.block_on(stuck).unwrap();
    });
}

#[test]
fn a_long_name_is_cut_after_64_bytes_between_two_characters() {
    with_one_worker(|runtime| {
        // 63 bytes, and a character of two.
        let name = format!("{}é and more", "n".repeat(63));
        let (entered, has_entered) = mpsc::channel();
        let (leave, may_leave) = mpsc::channel::<()>();
        let named = task::Builder::new().name(&name).spawn_on(
            async move {
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
            },
            runtime.handle(),
        );
        has_entered.recv().unwrap();
        let snapshot = runtime.handle().snapshot();
        let (_, poll) = snapshot.longest_in_flight().expect("a poll is going on");
        assert_eq!(poll.task_name.as_deref(), Some(&name[..63]));
        leave.send(()).unwrap();
        runtime.block_on(named).unwrap();
    });
}

/// Returns the task counts, once no task is alive.
fn at_rest(runtime: &volt::Runtime) -> volt::telemetry::Tasks {
    loop {
        let tasks = runtime.handle().snapshot().tasks;
        if tasks.alive == 0 {
            assert_eq!(tasks.spawned, tasks.completed + tasks.cancelled + tasks.panicked);
            return tasks;
        }
        std::hint::spin_loop();
    }
}

#[test]
fn in_block_in_place_a_task_is_still_itself() {
    with_workers(|runtime| {
        let ids = runtime.block_on(runtime.spawn(async { (task::id(), block_in_place(task::id)) })).unwrap();
        assert_eq!(ids.0, ids.1);

        // A shield inside it has its effect.
        let (began, has_begun) = mpsc::channel();
        let (aborted, is_aborted) = mpsc::channel();
        let (finished, has_finished) = mpsc::channel();
        let shielded = runtime.spawn(async move {
            let shield = block_in_place(|| {
                let shield = Shield::new().unwrap();
                began.send(()).unwrap();
                is_aborted.recv().unwrap();
                shield
            });
            yield_now().await;
            finished.send(()).unwrap();
            drop(shield);
            pending::<()>().await;
        });
        has_begun.recv().unwrap();
        shielded.abort();
        aborted.send(()).unwrap();
        assert!(runtime.block_on(shielded).unwrap_err().is_cancelled());
        has_finished.try_recv().expect("the shielded stretch was finished");

        // And when it wakes itself there it is polled again.
        let mut polls = 0;
        let woken = runtime.spawn(poll_fn(move |cx| {
            polls += 1;
            if polls == 2 {
                return Poll::Ready(());
            }
            block_in_place(|| cx.waker().wake_by_ref());
            Poll::Pending
        }));
        runtime.block_on(woken).unwrap();
    });
}

#[test]
fn millions_of_clones_of_one_waker_are_legal() {
    /// More than 22 bits.
    const CLONES: usize = 4_200_000;
    with_one_worker(|runtime| {
        let task = runtime.spawn(poll_fn(|cx| Poll::Ready(vec![cx.waker().clone(); CLONES])));
        let wakers = runtime.block_on(task).unwrap();
        assert_eq!(wakers.len(), CLONES);
        wakers[CLONES - 1].wake_by_ref();
    });
}
