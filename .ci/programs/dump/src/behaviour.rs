//! Checks that a dump changes nothing for the tasks, except that each waiting task is polled once
//! more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use volt::Runtime;
use volt::telemetry::dump::{Dump, Query};

use crate::case::LONG;

pub fn all(cases: &Runtime) {
    orders(cases);
    let runtime = volt::Builder::new_multi_thread().worker_threads(2).name("behaviour").build();
    let runtime = runtime.expect("a runtime");
    let entered = runtime.enter();
    no_wake_is_lost(&runtime);
    axum_handlers_are_shown(&runtime);
    a_hundred_thousand(&runtime);
    drop(entered);
}

fn dump(runtime: &Runtime, query: Query) -> Dump {
    let handle = runtime.handle().clone();
    runtime.block_on(async move { handle.dump_with(query).await })
}

/// Repeats the dump until it is as expected.
fn dump_until(runtime: &Runtime, query: &Query, is_as_expected: impl Fn(&Dump) -> bool) -> Dump {
    let began = Instant::now();
    loop {
        let dump = dump(runtime, query.clone());
        if is_as_expected(&dump) {
            return dump;
        }
        assert!(began.elapsed() < LONG, "{}", dump.text());
    }
}

/// Three tasks wait one after the other, are dumped, and must continue in this order.
fn order(runtime: &Runtime, name: &'static str, wait: impl Fn() -> BoxFuture<'static, ()>, mut release: impl FnMut()) {
    for dumps in [0, 1, 5] {
        let (passes, mut passed): (UnboundedSender<u32>, _) = unbounded_channel();
        for number in 0..3 {
            let (wait, passes) = (wait(), passes.clone());
            let waits = async move {
                wait.await;
                passes.send(number).expect("received below");
            };
            volt::task::Builder::new().name(name).spawn_on(waits, runtime.handle());
            // They join the queue one after the other.
            let listed = Query { task: Some(name.into()), polls: false, ..Query::default() };
            dump_until(runtime, &listed, |dump| dump.waiting == u64::from(number) + 1);
        }
        for _ in 0..dumps {
            let dump = dump(runtime, Query { task: Some(name.into()), ..Query::default() });
            assert_eq!(dump.read, 3, "{name}: {}", dump.text());
        }
        for expected in 0..3 {
            release();
            let next = runtime.block_on(async { volt::time::timeout(LONG, passed.recv()).await });
            assert_eq!(next, Ok(Some(expected)), "{name} after {dumps} dumps");
        }
    }
    println!("{name}: the order of the queue is kept");
}

/// Not `async-channel` and `async-lock`: a task that they wake passes its notification on, so their
/// order depends on the timing, without dumps too.
fn orders(runtime: &Runtime) {
    let permits = Arc::new(tokio::sync::Semaphore::new(0));
    let wait = || -> BoxFuture<'static, ()> {
        let permits = permits.clone();
        Box::pin(async move { permits.acquire().await.unwrap().forget() })
    };
    order(runtime, "tokio semaphore", wait, || permits.add_permits(1));
    let wait = || -> BoxFuture<'static, ()> {
        let permits = permits.clone();
        Box::pin(async move { permits.acquire_many(2).await.unwrap().forget() })
    };
    order(runtime, "tokio semaphore, two permits", wait, || permits.add_permits(2));
    let notify = Arc::new(tokio::sync::Notify::new());
    order(runtime, "tokio notify", || Box::pin(notify.clone().notified_owned()), || notify.notify_one());
    let (sender, receiver) = flume::unbounded();
    let wait = || -> BoxFuture<'static, ()> {
        let receiver = receiver.clone();
        Box::pin(async move { receiver.recv_async().await.unwrap() })
    };
    order(runtime, "flume", wait, || sender.send(()).unwrap());
    let event = Arc::new(event_listener::Event::new());
    order(runtime, "event-listener", || Box::pin(event.listen()), || assert_eq!(event.notify(1), 1));
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    sender.try_send(()).unwrap();
    let wait = || -> BoxFuture<'static, ()> {
        let sender = sender.clone();
        Box::pin(async move { sender.send(()).await.unwrap() })
    };
    order(runtime, "tokio mpsc send", wait, || receiver.try_recv().unwrap());
}

/// Messages go round in channels of three libraries, with a dump every 10 ms.
fn no_wake_is_lost(runtime: &Runtime) {
    const RINGS: u64 = 12;
    const ROUNDS: u64 = 4000;
    let received = Arc::new(AtomicU64::new(0));
    let rings: Vec<_> = (0..RINGS)
        .map(|_| {
            let (to, from) = async_channel::bounded(1);
            let (back, done) = flume::bounded(1);
            let (credit, mut credits) = tokio::sync::mpsc::channel(1);
            let received = received.clone();
            volt::spawn(async move {
                while let Ok(number) = from.recv().await {
                    received.fetch_add(number, Ordering::Relaxed);
                    back.send_async(()).await.unwrap();
                    volt::time::sleep(Duration::from_micros(number % 200)).await;
                    credit.send(()).await.unwrap();
                }
            });
            volt::spawn(async move {
                for number in 0..ROUNDS {
                    to.send(number).await.unwrap();
                    done.recv_async().await.unwrap();
                    credits.recv().await.unwrap();
                }
            })
        })
        .collect();
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, handle) = (is_over.clone(), runtime.handle().clone());
    let dumps = volt::spawn(async move {
        let mut interval = volt::time::interval(Duration::from_millis(10));
        let mut dumps = 0;
        while !over.load(Ordering::Acquire) {
            interval.tick().await;
            handle.dump().await;
            dumps += 1;
        }
        dumps
    });
    let end = futures::future::join_all(rings);
    runtime.block_on(async { volt::time::timeout(6 * LONG, end).await }).expect("no wake is lost");
    is_over.store(true, Ordering::Release);
    let dumps = runtime.block_on(dumps).unwrap();
    assert!(dumps > 0);
    assert_eq!(received.load(Ordering::Relaxed), RINGS * (0..ROUNDS).sum::<u64>(), "each message arrived once");
    println!("{} messages beside {dumps} dumps: each arrived once", RINGS * ROUNDS);
}

/// Requests wait in a handler of axum, and are then answered.
fn axum_handlers_are_shown(runtime: &Runtime) {
    const REQUESTS: u64 = 50;
    let permits = Arc::new(volt::sync::Semaphore::new(0));
    let waits = permits.clone();
    let handler = move || async move {
        waits.acquire().await.unwrap().forget(); // the handler waits
        "served"
    };
    let line = include_str!("behaviour.rs").lines().position(|line| line.ends_with("// the handler waits"));
    let line = line.expect("the line above") as u32 + 1;
    let router = axum::Router::new().route("/", axum::routing::get(handler));
    let address = runtime.block_on(async move {
        let listener = volt::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        volt::spawn(async move { volt::axum::serve(listener, router).await });
        address
    });
    let clients: Vec<_> = (0..REQUESTS)
        .map(|_| {
            volt::spawn(async move {
                let mut stream = volt::net::TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET / HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\r\n").await.unwrap();
                let mut answer = String::new();
                tokio::io::AsyncReadExt::read_to_string(&mut stream, &mut answer).await.unwrap();
                assert!(answer.ends_with("served"), "{answer}");
            })
        })
        .collect();
    let in_handler = |dump: &Dump| -> u64 {
        let has_line = |group: &&volt::telemetry::dump::Group| {
            group.chain.iter().any(|link| link.is_user_code && link.line == Some(line))
        };
        dump.groups.iter().filter(has_line).map(|group| group.tasks).sum()
    };
    let shown = dump_until(runtime, &Query::default(), |dump| in_handler(dump) == REQUESTS);
    println!("{}", shown.text());
    permits.add_permits(REQUESTS as usize);
    for client in clients {
        runtime.block_on(client).expect("an answer");
    }
    println!("axum: {REQUESTS} connections were shown at the await of their handler, then answered");
}

/// How long a dump of many tasks takes.
fn a_hundred_thousand(runtime: &Runtime) {
    const TASKS: usize = 100_000;
    let begin = Arc::new(volt::sync::Notify::new());
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let begin = begin.clone();
            volt::spawn(async move { begin.notified().await })
        })
        .collect();
    let listed = Query { polls: false, ..Query::default() };
    dump_until(runtime, &listed, |dump| dump.waiting >= TASKS as u64);
    let began = Instant::now();
    let shown = dump(runtime, Query::default());
    let took = began.elapsed();
    assert!(shown.read >= TASKS as u64, "{}", shown.text());
    println!("{TASKS} tasks dumped in {took:?} (2 s wanted)");
    assert!(took < LONG / 2, "a dump of {TASKS} tasks took {took:?}");
    begin.notify_waiters();
    for task in tasks {
        runtime.block_on(task).expect("the task ends");
    }
}
