//! The guarantees of `LocalSet`: its tasks stay on its thread, and otherwise behave like all tasks.

use std::cell::{Cell, RefCell};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use crate::watchdog::{runtime, watched, with_workers};
use volt::io::{AsyncReadExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};
use volt::task::{self, LocalSet, Shield, consume_budget, spawn_local, yield_now};

mod entered;

/// Polls `future` and checks each time that it is on the same thread.
async fn on_this_thread<F: Future>(future: F) -> F::Output {
    let here = thread::current().id();
    let mut future = Box::pin(future);
    poll_fn(move |cx| {
        assert_eq!(thread::current().id(), here);
        future.as_mut().poll(cx)
    })
    .await
}

#[test]
fn timers_sockets_and_worker_tasks_wake_local_tasks() {
    with_workers(|runtime| {
        let set = LocalSet::new();
        let log = Rc::new(RefCell::new(Vec::new()));
        set.block_on(&runtime, async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let tasks = [
                spawn_local(on_this_thread({
                    let log = log.clone();
                    async move {
                        let (mut stream, _peer) = listener.accept().await.unwrap();
                        let mut byte = [0];
                        stream.read_exact(&mut byte).await.unwrap();
                        log.borrow_mut().push("server");
                    }
                })),
                spawn_local(on_this_thread({
                    let log = log.clone();
                    async move {
                        let mut stream = TcpStream::connect(address).await.unwrap();
                        volt::time::sleep(Duration::from_millis(2)).await;
                        stream.write_all(&[1]).await.unwrap();
                        log.borrow_mut().push("client");
                    }
                })),
                spawn_local(on_this_thread({
                    let log = log.clone();
                    async move {
                        for _ in 0..100 {
                            volt::spawn(yield_now()).await.unwrap();
                        }
                        log.borrow_mut().push("joiner");
                    }
                })),
            ];
            for task in tasks {
                task.await.unwrap();
            }
        });
        log.borrow_mut().sort_unstable();
        assert_eq!(*log.borrow(), ["client", "joiner", "server"]);
    });
}

#[test]
fn block_on_ends_with_its_future_and_keeps_other_local_tasks() {
    with_workers(|runtime| {
        let set = LocalSet::new();
        let rounds = Rc::new(Cell::new(0));
        let left = set.spawn_local({
            let rounds = rounds.clone();
            async move {
                for _ in 0..1_000 {
                    rounds.set(rounds.get() + 1);
                    yield_now().await;
                }
                "left"
            }
        });
        set.block_on(&runtime, yield_now());
        let before = rounds.get();
        assert!((1..1_000).contains(&before), "{before}");
        // Nothing polls it meanwhile.
        runtime.block_on(runtime.spawn(yield_now())).unwrap();
        assert_eq!(rounds.get(), before);
        assert_eq!(set.block_on(&runtime, left).unwrap(), "left");
        assert_eq!(rounds.get(), 1_000);
        // If awaited, the set completes when its tasks have completed.
        set.spawn_local({
            let rounds = rounds.clone();
            async move {
                volt::time::sleep(Duration::from_millis(2)).await;
                spawn_local(async move { rounds.set(0) });
            }
        });
        runtime.block_on(set);
        assert_eq!(rounds.get(), 0);
    });
}

#[test]
fn a_local_task_can_be_aborted_from_any_thread_unless_shielded() {
    with_workers(|runtime| {
        let set = LocalSet::new();
        set.block_on(&runtime, async {
            let held = Rc::new(());
            let with_held = |is_shielded: bool| {
                let held = held.clone();
                spawn_local(async move {
                    let _held = held;
                    let shield = is_shielded.then(|| Shield::new().unwrap());
                    yield_now().await;
                    yield_now().await;
                    drop(shield);
                    pending::<()>().await;
                })
            };
            let queued = with_held(false);
            queued.abort();
            assert!(queued.await.unwrap_err().is_cancelled());

            let idle = with_held(false);
            for _ in 0..5 {
                yield_now().await;
            }
            let abort = idle.abort_handle();
            thread::spawn(move || abort.abort()).join().unwrap();
            assert!(idle.await.unwrap_err().is_cancelled());

            let shielded = with_held(true);
            yield_now().await;
            shielded.abort();
            assert!(!shielded.is_finished());
            assert!(shielded.await.unwrap_err().is_cancelled());
            assert_eq!(Rc::strong_count(&held), 1, "dropped here");
        });
    });
}

#[test]
fn a_busy_local_task_does_not_starve_the_others() {
    watched(|| {
        let (runtime, set) = (runtime(1), LocalSet::new());
        set.block_on(&runtime, async {
            let turns = Rc::new(Cell::new(0));
            let busy = spawn_local(async {
                loop {
                    consume_budget().await;
                }
            });
            let other = spawn_local({
                let turns = turns.clone();
                async move {
                    for _ in 0..100 {
                        turns.set(turns.get() + 1);
                        yield_now().await;
                    }
                }
            });
            other.await.unwrap();
            assert_eq!(turns.get(), 100);
            busy.abort();
            assert!(busy.await.unwrap_err().is_cancelled());
        });
    });
}

#[test]
fn spawn_local_outside_a_local_set_panics_with_a_clear_message() {
    watched(|| {
        let runtime = runtime(1);
        let message = "`spawn_local` called from outside of a `task::LocalSet` or `runtime::LocalRuntime`";
        let error = runtime.block_on(runtime.spawn(async { drop(spawn_local(async {})) })).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
        // A task of the workers is not on the set either, even if a task of the set spawned it.
        let set = LocalSet::new();
        let error = set.block_on(&runtime, async {
            spawn_local(async { volt::spawn(async { drop(spawn_local(async {})) }).await }).await.unwrap().unwrap_err()
        });
        assert!(error.to_string().contains(message), "{error}");
    });
}

#[test]
fn sets_nest_and_each_task_belongs_to_the_innermost() {
    with_workers(|runtime| {
        let outer = LocalSet::new();
        let order = Rc::new(RefCell::new(Vec::new()));
        outer.block_on(&runtime, async {
            let inner = LocalSet::new();
            let note = |what: &'static str| {
                let order = order.clone();
                async move { order.borrow_mut().push(what) }
            };
            inner.run_until(async { spawn_local(note("inner")).await.unwrap() }).await;
            assert_eq!(*order.borrow(), ["inner"]);
            spawn_local(note("outer")).await.unwrap();
            drop(inner);
            assert_eq!(*order.borrow(), ["inner", "outer"]);
        });
    });
}

volt::task_local! {
    static NAME: &'static str;
}

#[test]
fn a_local_task_has_its_own_id_and_task_locals() {
    with_workers(|runtime| {
        let set = LocalSet::new();
        set.block_on(&runtime, async {
            let tasks: Vec<_> = ["a", "b"]
                .into_iter()
                .map(|name| {
                    spawn_local(NAME.scope(name, async move {
                        yield_now().await;
                        (task::id(), NAME.get())
                    }))
                })
                .collect();
            let ids: Vec<_> = tasks.iter().map(|task| task.id()).collect();
            for ((task, id), name) in tasks.into_iter().zip(ids).zip(["a", "b"]) {
                assert_eq!(task.await.unwrap(), (id, name));
            }
        });
    });
}

/// A waker that owns another waker. Dropping the last reference may wake a task.
struct WakesWhenDropped(Waker);

impl Wake for WakesWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for WakesWhenDropped {
    fn drop(&mut self) {
        self.0.wake_by_ref();
    }
}

#[test]
fn dropping_a_local_sets_waker_may_wake_its_own_task() {
    watched(|| {
        for is_replaced in [true, false] {
            let mut set = LocalSet::new();
            let (give, given) = mpsc::channel();
            let polls = Rc::new(Cell::new(0));
            let polls_of_task = polls.clone();
            set.spawn_local(poll_fn(move |cx| {
                polls_of_task.set(polls_of_task.get() + 1);
                give.send(cx.waker().clone()).unwrap();
                Poll::<()>::Pending
            }));
            let mut poll = |waker: &Waker| Pin::new(&mut set).poll(&mut Context::from_waker(waker));
            assert!(poll(Waker::noop()).is_pending());
            let waker = Waker::from(Arc::new(WakesWhenDropped(given.recv().unwrap())));
            assert!(poll(&waker).is_pending());
            drop(waker);
            if is_replaced {
                assert!(poll(Waker::noop()).is_pending());
                assert_eq!(polls.get(), 2, "it was woken");
            }
            drop(set);
        }
    });
}

#[test]
fn a_set_that_many_threads_wake_together_runs_every_wake() {
    with_workers(|runtime| {
        let set = LocalSet::new();
        let sum = set.block_on(&runtime, async {
            let (tasks, senders): (Vec<_>, Vec<_>) = (0..4)
                .map(|_| {
                    let (sender, receiver) = mpsc::channel::<(u32, Waker)>();
                    let task = spawn_local(async move {
                        let mut sum = 0;
                        for n in 0..500 {
                            let mut is_sent = false;
                            poll_fn(|cx| {
                                if std::mem::replace(&mut is_sent, true) {
                                    return Poll::Ready(());
                                }
                                sender.send((n, cx.waker().clone())).unwrap();
                                Poll::Pending
                            })
                            .await;
                            sum += n;
                        }
                        sum
                    });
                    (task, thread::spawn(move || receiver.iter().for_each(|(_, waker)| waker.wake())))
                })
                .unzip();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            sum
        });
        assert_eq!(sum, 4 * 499 * 500 / 2);
    });
}

thread_local! {
    /// A set that is dropped when its thread ends.
    static KEPT: RefCell<Option<LocalSet>> = const { RefCell::new(None) };
}

#[test]
fn a_set_in_a_thread_local_ends_with_its_thread() {
    /// On drop, sends whether a task could be spawned on the set.
    struct OnDrop(mpsc::Sender<bool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            let task = spawn_local(pending::<()>());
            self.0.send(!task.is_finished()).unwrap();
        }
    }
    watched(|| {
        let (dropped, is_dropped) = mpsc::channel();
        let ended = thread::spawn(move || {
            // Before the set is polled, so that its own thread-locals, if it had any, would be
            // destroyed before it.
            KEPT.set(Some(LocalSet::new()));
            KEPT.with_borrow_mut(|set| {
                let set = set.as_mut().unwrap();
                set.spawn_local(async move {
                    let _on_drop = OnDrop(dropped);
                    pending::<()>().await;
                });
                assert!(Pin::new(set).poll(&mut Context::from_waker(Waker::noop())).is_pending());
            });
        });
        ended.join().unwrap();
        assert_eq!(is_dropped.recv(), Ok(true));
    });
}

#[test]
fn a_local_set_ends_although_destructors_keep_spawning() {
    /// Spawns another task that contains it whenever it is dropped.
    struct Respawns(Rc<Log>);
    #[derive(Default)]
    struct Log {
        drops: Cell<u64>,
        last: RefCell<Option<task::JoinHandle<()>>>,
    }
    impl Drop for Respawns {
        fn drop(&mut self) {
            self.0.drops.set(self.0.drops.get() + 1);
            let next = Respawns(self.0.clone());
            let task = spawn_local(async move {
                let _next = next;
                pending::<()>().await;
            });
            self.0.last.replace(Some(task));
        }
    }
    watched(|| {
        let log = Rc::new(Log::default());
        let set = LocalSet::new();
        let first = Respawns(log.clone());
        set.spawn_local(async move { drop(first) });
        drop(set);
        assert!(log.drops.get() > 1, "a destructor may start a task while the set ends");
        let last = log.last.take().unwrap();
        assert!(last.is_finished(), "a task that awaits the last one is woken");
    });
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_wake_inside_a_poll_of_the_set_wakes_no_one_else() {
    watched(|| {
        let runtime = runtime(1);
        let _entered = runtime.enter();
        let (count, waker_of_task) = (Arc::new(Count::default()), Rc::new(RefCell::new(None)));
        let waker = Waker::from(count.clone());
        let mut set = LocalSet::new();
        let kept = waker_of_task.clone();
        set.spawn_local(async move {
            spawn_local(async { yield_now().await }).await.unwrap();
            let mut is_open = false;
            poll_fn(|cx| {
                *kept.borrow_mut() = Some(cx.waker().clone());
                if std::mem::replace(&mut is_open, true) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
        let poll = |set: &mut LocalSet| Pin::new(set).poll(&mut Context::from_waker(&waker));
        assert!(poll(&mut set).is_pending());
        assert_eq!(count.0.load(Ordering::SeqCst), 0, "the poll has run what was woken");
        waker_of_task.borrow().as_ref().unwrap().wake_by_ref();
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(poll(&mut set).is_ready());
    });
}
