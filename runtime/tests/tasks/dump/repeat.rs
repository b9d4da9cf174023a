//! A dump repeated: each one finds what the first one found.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use volt::net::{TcpListener, UdpSocket};
use volt::sync::{Barrier, Mutex, Notify, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};
use volt::task::JoinSet;
use volt::telemetry::dump::{Dump, Query};
use volt::time::{interval, sleep, timeout};

use super::{LONG, dump, dump_with, runtime, waits};

/// The chains by the line on which their task was spawned.
fn chains(dump: &Dump) -> BTreeMap<String, Vec<String>> {
    let groups = dump.groups.iter().map(|group| {
        assert_eq!(group.error, None, "{}", dump.text());
        let links = group.chain.iter().map(|link| format!("{:?} {:?}", link.function, link.line));
        (group.spawned_at.clone(), links.collect())
    });
    groups.collect()
}

#[test]
fn every_dump_finds_what_the_first_one_found() {
    let runtime = runtime(2);
    let spawned = runtime.block_on(async {
        // Each is kept until the end, so that what waits for it waits for ever.
        let (_sender, receiver) = oneshot::channel::<()>();
        let (_queue, mut messages) = mpsc::channel::<()>(1);
        let (full, _unread) = mpsc::channel::<()>(1);
        full.try_send(()).unwrap();
        let (_news, mut subscriber) = broadcast::channel::<()>(1);
        let (_value, mut watched) = watch::channel(());
        let notify = Arc::new(Notify::new());
        let lock = Arc::new(Mutex::new(()));
        let held = lock.clone().lock_owned().await;
        let shared = Arc::new(RwLock::new(()));
        let written = shared.clone().write_owned().await;
        let permits = Arc::new(Semaphore::new(0));
        let barrier = Arc::new(Barrier::new(2));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let joined = volt::spawn(sleep(LONG * 100));

        let mut tasks = JoinSet::new();
        tasks.spawn(async { sleep(LONG * 100).await });
        tasks.spawn(async {
            let mut ticks = interval(LONG * 100);
            ticks.tick().await;
            ticks.tick().await;
        });
        tasks.spawn(async move {
            let _ = timeout(LONG * 100, receiver).await;
        });
        tasks.spawn(async move {
            let _ = messages.recv().await;
        });
        tasks.spawn(async move {
            let _ = full.send(()).await;
        });
        tasks.spawn(async move {
            let _ = subscriber.recv().await;
        });
        tasks.spawn(async move {
            let _ = watched.changed().await;
        });
        tasks.spawn(async move { notify.notified().await });
        tasks.spawn(async move {
            let _ = lock.lock().await;
        });
        tasks.spawn(async move {
            let _ = shared.read().await;
        });
        tasks.spawn(async move {
            let _ = permits.acquire().await;
        });
        tasks.spawn(async move {
            let _ = barrier.wait().await;
        });
        tasks.spawn(async move {
            let _ = listener.accept().await;
        });
        tasks.spawn(async move {
            let _ = socket.recv(&mut [0]).await;
        });
        tasks.spawn(async move {
            let _ = joined.await;
        });
        (tasks, _sender, _queue, _unread, _news, _value, held, written)
    });
    let ours = Query { filter: "repeat.rs".to_owned(), ..Query::default() };
    let first = dump(&runtime, &ours, waits(16));
    let expected = chains(&first);
    assert_eq!(expected.len(), 16, "{}", first.text());
    for _ in 0..3 {
        assert_eq!(chains(&dump_with(&runtime, ours.clone())), expected);
    }
    drop(spawned);
}

/// `FuturesUnordered` polls only children that were woken, so a dump does not poll them.
#[test]
fn a_dump_does_not_change_what_a_task_is_known_to_await() {
    let runtime = runtime(1);
    let (_sender, receiver) = oneshot::channel::<()>();
    runtime.spawn(async move {
        let (mut child, mut is_woken) = (pin!(receiver), true);
        poll_fn(|cx| {
            if std::mem::take(&mut is_woken) {
                return child.as_mut().poll(cx).map(drop);
            }
            Poll::Pending
        })
        .await;
    });
    for polls in [false, true, false, true, false] {
        let dump = dump(&runtime, &Query { polls, ..Query::default() }, waits(1));
        assert_eq!(dump.groups[0].awaits.as_deref(), Some("value"), "{}", dump.text());
    }
}

/// `select!` polls its branches in a random order.
#[test]
fn a_lock_is_named_in_every_dump_beside_other_waits() {
    let runtime = runtime(2);
    let lock = Arc::new(Mutex::new(()));
    let (_end, ended) = oneshot::channel::<()>();
    let holder = {
        let lock = lock.clone();
        runtime.spawn(async move {
            let _held = lock.lock().await;
            let _ = ended.await;
        })
    };
    while lock.try_lock().is_ok() {
        std::thread::yield_now();
    }
    let (shutdown, _is_running) = watch::channel(());
    let (shutdown, stop) = (Arc::new(shutdown), Arc::new(Notify::new()));
    for _ in 0..2 {
        let (lock, shutdown, stop) = (lock.clone(), shutdown.clone(), stop.clone());
        runtime.spawn(async move {
            volt::select! {
                _held = lock.lock() => {}
                () = shutdown.closed() => {}
                () = stop.notified() => {}
            }
        });
    }
    for round in 0..20 {
        let query = Query { polls: round % 2 == 0, ..Query::default() };
        let dump = dump(&runtime, &query, waits(3));
        let [group] = &dump.groups.iter().filter(|group| group.tasks == 2).collect::<Vec<_>>()[..] else {
            panic!("the two form a group: {}", dump.text());
        };
        assert_eq!(group.awaits.as_deref(), Some("lock"), "{}", dump.text());
        let [held] = &group.locks[..] else { panic!("one lock: {}", dump.text()) };
        assert_eq!((held.tasks, held.held_by.map(|id| id.to_string())), (2, Some(holder.id().to_string())));
    }
}
