//! A task whose operations are always ready keeps its worker for its cooperative budget of
//! operations, and no longer. Counted for each kind of operation.

use crate::folder;
use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::watchdog::{builder, watched};
use volt::Runtime;
use volt::fs::File;
use volt::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};
use volt::net::{TcpListener, TcpStream};
use volt::sync::OnceCell;
use volt::task::{JoinHandle, JoinSet, LocalSet, consume_budget, spawn_local};
use volt::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout_at};

/// Operations of each task.
const OPERATIONS: usize = 1_000;
const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn select_yields_once_the_budget_is_spent() {
    watched(|| {
        let polls = Arc::new(AtomicU64::new(0));
        let mut selects = Box::pin(async {
            for _ in 0..OPERATIONS {
                volt::select! {
                    biased;
                    () = consume_budget() => {}
                    () = std::future::ready(()) => {}
                }
            }
        });
        let runtime = builder(1).coop_budget(10).build().unwrap();
        runtime.block_on(poll_fn(|cx| {
            polls.fetch_add(1, Ordering::Relaxed);
            selects.as_mut().poll(cx)
        }));
        assert_eq!(polls.load(Ordering::Relaxed), (OPERATIONS / 10) as u64);
    });
}

/// Runs a task that does `OPERATIONS` operations. Returns the maximum number that it did in one
/// poll.
fn most_in_a_poll<S: Send + 'static>(
    runtime: &Runtime,
    state: S,
    operation: impl for<'a> Fn(&'a mut S, usize) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>> + Send + 'static,
) -> usize {
    let polls = Arc::new(AtomicU64::new(0));
    let poll_now = polls.clone();
    let mut body = Box::pin(async move {
        let mut state = state;
        let (mut most, mut last_poll, mut in_this_poll) = (0, 0, 0);
        for n in 0..OPERATIONS {
            operation(&mut state, n).await;
            let poll = poll_now.load(Ordering::SeqCst);
            in_this_poll = if poll == last_poll { in_this_poll + 1 } else { 1 };
            last_poll = poll;
            most = most.max(in_this_poll);
        }
        most
    });
    let task = runtime.spawn(poll_fn(move |cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        body.as_mut().poll(cx)
    }));
    runtime.block_on(task).unwrap()
}

/// Returns tasks that have completed and were not joined.
fn ended(runtime: &Runtime) -> Vec<JoinHandle<()>> {
    let tasks: Vec<_> = (0..OPERATIONS).map(|_| runtime.spawn(async {})).collect();
    while !tasks.iter().all(JoinHandle::is_finished) {
        std::thread::yield_now();
    }
    tasks
}

/// Returns a stream with as many bytes to read as there are operations, and its other end.
fn filled_stream(runtime: &Runtime) -> (TcpStream, TcpStream) {
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _peer) = listener.accept().await.unwrap();
        client.write_all(&[1; OPERATIONS]).await.unwrap();
        let mut bytes = [0; OPERATIONS];
        while server.peek(&mut bytes).await.unwrap() < OPERATIONS {}
        (server, client)
    })
}

#[test]
fn every_leaf_operation_ends_the_poll_exactly_at_the_budget() {
    for (workers, budget) in [(1, 128), (1, 7), (2, 128)] {
        watched(|| {
            let runtime = builder(workers).coop_budget(budget).build().unwrap();
            let budget = budget as usize;
            let most = most_in_a_poll(&runtime, (), |(), _| Box::pin(consume_budget()));
            assert_eq!(most, budget, "consume_budget");

            let most = most_in_a_poll(&runtime, ended(&runtime), |tasks, n| {
                Box::pin(async move { (&mut tasks[n]).await.unwrap() })
            });
            assert_eq!(most, budget, "join handles");

            let mut set = JoinSet::new();
            (0..OPERATIONS).for_each(|_| drop(set.spawn_on(async {}, runtime.handle())));
            while runtime.handle().snapshot().tasks.alive > 0 {
                std::thread::yield_now();
            }
            let most = most_in_a_poll(&runtime, set, |set, _| {
                Box::pin(async move { set.join_next().await.unwrap().unwrap() })
            });
            // A set also yields by itself when it has polled many tasks that were not ready.
            assert!((1..=budget).contains(&most), "a set: {most}");

            let most = most_in_a_poll(&runtime, (), |(), _| Box::pin(sleep_until(Instant::now())));
            assert_eq!(most, budget, "sleeps that are over");

            let most = most_in_a_poll(&runtime, (), |(), _| {
                Box::pin(async { assert!(timeout_at(Instant::now(), pending::<()>()).await.is_err()) })
            });
            assert_eq!(most, budget, "timeouts that have elapsed");

            let ticks = {
                let _entered = runtime.enter();
                let mut ticks = interval_at(Instant::now() - HOUR, Duration::from_millis(1));
                ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
                ticks
            };
            let most = most_in_a_poll(&runtime, ticks, |ticks, _| Box::pin(async { _ = ticks.tick().await }));
            assert_eq!(most, budget, "ticks that were missed");

            let (server, _client) = filled_stream(&runtime);
            let most = most_in_a_poll(&runtime, server, |server, _| {
                Box::pin(async move { assert_eq!(server.read(&mut [0]).await.unwrap(), 1) })
            });
            assert_eq!(most, budget, "reads");

            let (_server, client) = filled_stream(&runtime);
            let most = most_in_a_poll(&runtime, client, |client, _| {
                Box::pin(async move { client.write_all(&[1]).await.unwrap() })
            });
            assert_eq!(most, budget, "writes");

            // A wait for readiness spends a unit, but only the read is refused. So a poll may begin
            // with a read whose wait was in the poll before.
            let (server, _client) = filled_stream(&runtime);
            let most = most_in_a_poll(&runtime, server, |server, _| {
                Box::pin(async move {
                    server.readable().await.unwrap();
                    assert_eq!(server.read(&mut [0]).await.unwrap(), 1);
                })
            });
            assert_eq!(most, budget.div_ceil(2), "waits for readiness, each with a read");
        });
    }
}

#[test]
fn readers_and_writers_in_memory_spend_the_budget() {
    watched(|| {
        let runtime = builder(1).coop_budget(7).build().unwrap();
        let most = most_in_a_poll(&runtime, volt::io::repeat(1), |repeat, _| {
            Box::pin(async move { assert_eq!(repeat.read(&mut [0]).await.unwrap(), 1) })
        });
        assert_eq!(most, 7, "repeat");
        let most = most_in_a_poll(&runtime, volt::io::sink(), |sink, _| {
            Box::pin(async move { sink.write_all(&[1]).await.unwrap() })
        });
        assert_eq!(most, 7, "sink");
        let most = most_in_a_poll(&runtime, volt::io::empty(), |empty, _| {
            Box::pin(async move { assert_eq!(empty.read(&mut [0]).await.unwrap(), 0) })
        });
        assert_eq!(most, 7, "empty");
        let streams = (volt::io::duplex(OPERATIONS), volt::io::simplex(OPERATIONS));
        let most = most_in_a_poll(&runtime, streams, |((one, other), (reader, writer)), _| {
            Box::pin(async move {
                one.write_all(&[1]).await.unwrap();
                assert_eq!(other.read_u8().await.unwrap(), 1);
                writer.write_all(&[2]).await.unwrap();
                assert_eq!(reader.read_u8().await.unwrap(), 2);
            })
        });
        assert_eq!(most, 2, "four operations each: two fit into a budget of 7, the second in part");
    });
}

#[test]
fn only_polls_that_exhaust_their_budget_count_as_coop_yields() {
    watched(|| {
        let yields = |runtime: &Runtime| runtime.handle().snapshot().workers[0].coop_yields;
        let runtime = builder(1).coop_budget(10).build().unwrap();
        let task = runtime.spawn(async {
            for _ in 0..100 {
                consume_budget().await;
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(yields(&runtime), 9, "ten polls, of which the last came to an end");
        let task = runtime.spawn(async {
            for _ in 0..5 {
                volt::time::sleep(Duration::from_millis(1)).await;
            }
        });
        runtime.block_on(task).unwrap();
        assert_eq!(yields(&runtime), 9);
    });
}

#[test]
fn a_local_task_gets_the_full_coop_budget_despite_inner_sets() {
    watched(|| {
        let runtime = builder(1).coop_budget(7).build().unwrap();
        let done = LocalSet::new().block_on(&runtime, async {
            let task = spawn_local(async {
                let mut inner = LocalSet::new();
                inner.spawn_local(async {
                    for _ in 0..5 {
                        consume_budget().await;
                    }
                });
                poll_fn(|cx| {
                    assert!(Pin::new(&mut inner).poll(cx).is_ready());
                    let proceeds = |_: &usize| pin!(consume_budget()).poll(cx).is_ready();
                    Poll::Ready((0..OPERATIONS).take_while(proceeds).count())
                })
                .await
            });
            task.await.unwrap()
        });
        assert_eq!(done, 7);
    });
}

#[test]
fn compound_operations_complete_with_a_coop_budget_of_one() {
    watched(|| {
        let runtime = builder(1).coop_budget(1).build().unwrap();
        let folder = folder::Folder::new();
        let path = folder.path("file");
        let task = runtime.spawn(async move {
            let mut file = File::options().read(true).write(true).create_new(true).open(path).await.unwrap();
            file.write_all(b"hello").await.unwrap();
            file.flush().await.unwrap();
            file.rewind().await.unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).await.unwrap();
            OnceCell::new().get_or_init(consume_budget).await;
            text
        });
        assert_eq!(runtime.block_on(task).unwrap(), "hello");
    });
}

#[test]
fn a_nested_executor_finishes_despite_budget_refusals() {
    watched(|| {
        let runtime = builder(1).coop_budget(7).build().unwrap();
        let task = runtime.spawn(async {
            futures_lite::future::block_on(async {
                for _ in 0..3 * OPERATIONS {
                    consume_budget().await;
                }
            });
        });
        runtime.block_on(task).unwrap();
    });
}

#[test]
fn the_future_of_block_on_has_a_budget_too() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        let never_ends = async {
            loop {
                sleep_until(Instant::now()).await;
            }
        };
        let timed_out = runtime.block_on(async { volt::time::timeout(Duration::from_millis(10), never_ends).await });
        assert!(timed_out.is_err());
    });
}
