//! Synchronization: a type that is always ready is not drained in one poll, and no value, permit or
//! wake-up is lost.

mod blocking;
mod items;
mod shared;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::watchdog::{builder, watched};
use volt::sync::{Barrier, Mutex, Notify, OnceCell, RwLock, Semaphore, broadcast, mpsc, oneshot, watch};

/// Returns the longest run of operations that a task did while another was ready all the time. One
/// worker, a budget of 128.
fn longest_run<F: Future<Output = ()> + Send + 'static>(operations: impl FnOnce(Arc<AtomicU32>) -> F) -> u32 {
    let runtime = builder(1).build().unwrap();
    let done = Arc::new(AtomicU32::new(0));
    let worker = operations(done.clone());
    runtime
        .block_on(runtime.spawn(async move {
            let greedy = volt::spawn(worker);
            let (mut longest, mut before) = (0, 0);
            while !greedy.is_finished() {
                volt::task::yield_now().await;
                let now = done.load(Ordering::Relaxed);
                longest = longest.max(now - before);
                before = now;
            }
            greedy.await.unwrap();
            longest
        }))
        .unwrap()
}

const MANY: u32 = 100_000;

fn count(done: &AtomicU32) {
    done.fetch_add(1, Ordering::Relaxed);
}

#[test]
fn a_receiver_does_not_drain_a_long_channel_in_one_poll() {
    watched(|| {
        let bounded = longest_run(|done| async move {
            let (sender, mut receiver) = mpsc::channel(MANY as usize);
            (0..MANY).for_each(|n| sender.try_send(n).unwrap());
            drop(sender);
            while receiver.recv().await.is_some() {
                count(&done);
            }
        });
        let unbounded = longest_run(|done| async move {
            let (sender, mut receiver) = mpsc::unbounded_channel();
            (0..MANY).for_each(|n| sender.send(n).unwrap());
            drop(sender);
            while receiver.recv().await.is_some() {
                count(&done);
            }
        });
        assert!((1..=128).contains(&bounded) && (1..=128).contains(&unbounded), "{bounded} {unbounded}");
    });
}

#[test]
fn always_ready_primitives_are_limited_by_the_coop_budget() {
    watched(|| {
        let lock = longest_run(|done| async move {
            let mutex = Mutex::new(0);
            for _ in 0..MANY {
                *mutex.lock().await += 1;
                count(&done);
            }
        });
        let shared = longest_run(|done| async move {
            let lock = RwLock::new(0);
            for _ in 0..MANY / 2 {
                *lock.write().await += 1;
                count(&done);
                let _value = *lock.read().await;
                count(&done);
            }
        });
        let permit = longest_run(|done| async move {
            let semaphore = Semaphore::new(1);
            for _ in 0..MANY {
                drop(semaphore.acquire().await.unwrap());
                count(&done);
            }
        });
        let notice = longest_run(|done| async move {
            let notify = Notify::new();
            for _ in 0..MANY {
                notify.notify_one();
                notify.notified().await;
                count(&done);
            }
        });
        let latest = longest_run(|done| async move {
            let (sender, mut receiver) = watch::channel(0);
            for n in 0..MANY {
                sender.send(n).unwrap();
                receiver.changed().await.unwrap();
                count(&done);
            }
        });
        let all = longest_run(|done| async move {
            let (sender, mut receiver) = broadcast::channel(4);
            for n in 0..MANY {
                sender.send(n).unwrap();
                assert_eq!(receiver.recv().await, Ok(n));
                count(&done);
            }
        });
        let once = longest_run(|done| async move {
            for n in 0..MANY {
                let (sender, receiver) = oneshot::channel();
                sender.send(n).unwrap();
                assert_eq!(receiver.await, Ok(n));
                count(&done);
            }
        });
        let runs = [lock, shared, permit, notice, latest, all, once];
        assert!(runs.iter().all(|run| (1..=128).contains(run)), "{runs:?}");
    });
}

#[test]
fn no_message_is_lost_between_tasks_on_several_workers() {
    watched(|| {
        let runtime = builder(4).build().unwrap();
        let total = runtime.block_on(async {
            let (sender, mut receiver) = mpsc::channel(8);
            let (permits, meeting, sum) =
                (Arc::new(Semaphore::new(3)), Arc::new(Barrier::new(16)), Arc::new(Mutex::new(0)));
            for n in 0..16_u64 {
                let (sender, permits, meeting, sum) = (sender.clone(), permits.clone(), meeting.clone(), sum.clone());
                volt::spawn(async move {
                    meeting.wait().await;
                    let _permit = permits.acquire_owned().await.unwrap();
                    for _ in 0..100 {
                        let mut sum = sum.clone().lock_owned().await;
                        volt::task::yield_now().await;
                        *sum += n;
                        drop(sum);
                        sender.send(n).await.unwrap();
                    }
                });
            }
            drop(sender);
            let mut received = 0;
            while let Some(n) = receiver.recv().await {
                received += n;
            }
            assert_eq!(received, *sum.lock().await);
            received
        });
        assert_eq!(total, 100 * (0..16).sum::<u64>());
    });
}

#[test]
fn a_full_channel_times_out_and_gives_the_value_back() {
    watched(|| {
        let runtime = builder(1).build().unwrap();
        runtime.block_on(async {
            let (sender, mut receiver) = mpsc::channel(1);
            sender.send_timeout(1, Duration::from_millis(5)).await.unwrap();
            let error = sender.send_timeout(2, Duration::from_millis(5)).await.unwrap_err();
            assert_eq!(error, mpsc::error::SendTimeoutError::Timeout(2));
            assert_eq!(receiver.recv().await, Some(1));
            drop(receiver);
            let error = sender.send_timeout(3, Duration::from_millis(5)).await.unwrap_err();
            assert_eq!(error, mpsc::error::SendTimeoutError::Closed(3));
        });
    });
}

#[test]
fn a_cancelled_wait_loses_nothing() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        runtime.block_on(async {
            let (sender, mut receiver) = mpsc::channel::<u32>(4);
            let given_up = volt::time::timeout(Duration::from_millis(5), receiver.recv()).await;
            assert!(given_up.is_err());
            sender.send(7).await.unwrap();
            assert_eq!(receiver.recv().await, Some(7));
            let mutex = Arc::new(Mutex::new(()));
            let held = mutex.lock().await;
            assert!(volt::time::timeout(Duration::from_millis(5), mutex.lock()).await.is_err());
            drop(held);
            assert!(mutex.try_lock().is_ok(), "no waiter is left in the queue");
            let cell = OnceCell::new();
            let never = cell.get_or_init(std::future::pending::<u32>);
            assert!(volt::time::timeout(Duration::from_millis(5), never).await.is_err());
            assert_eq!(*cell.get_or_init(async || 3).await, 3);
        });
    });
}

#[test]
fn select_takes_the_first_and_join_takes_all() {
    watched(|| {
        let runtime = builder(2).build().unwrap();
        runtime.block_on(async {
            let (sender, receiver) = oneshot::channel();
            let first = volt::select! {
                value = receiver => value.unwrap(),
                () = async { sender.send("sent").unwrap(); std::future::pending().await } => "never",
            };
            assert_eq!(first, "sent");
            assert_eq!(
                volt::join!(async { 1 }, async {
                    volt::task::yield_now().await;
                    2
                }),
                (1, 2)
            );
            let failed: Result<(u32, u32), &str> = volt::try_join!(async { Ok(1) }, async { Err("no") });
            assert_eq!(failed, Err("no"));
        });
    });
}

#[test]
fn locks_semaphores_and_notifies_can_be_statics() {
    static LOCK: Mutex<Vec<u32>> = Mutex::const_new(Vec::new());
    static TABLE: RwLock<u32> = RwLock::const_new(7);
    static PERMITS: Semaphore = Semaphore::const_new(1);
    static NOTICE: Notify = Notify::const_new();
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let waiter = volt::spawn(async { NOTICE.notified().await });
            LOCK.lock().await.push(*TABLE.read().await);
            drop(PERMITS.acquire().await.unwrap());
            NOTICE.notify_one();
            waiter.await.unwrap();
            assert_eq!(*LOCK.lock().await, [7]);
        });
    });
}

#[test]
fn an_owned_permit_gives_its_sender_back() {
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let (sender, mut receiver) = mpsc::channel(1);
            let permit = sender.reserve_owned().await.unwrap();
            let sender = permit.send(1);
            let full = sender.try_reserve_owned().unwrap_err();
            let mpsc::error::TrySendError::Full(sender) = full else { panic!("{full:?}") };
            assert_eq!(receiver.recv().await, Some(1));
            let sender = sender.reserve_owned().await.unwrap().release();
            assert_eq!((sender.capacity(), sender.strong_count()), (1, 1));
        });
    });
}

#[test]
fn a_watch_that_is_marked_is_seen_as_changed() {
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let sender = watch::Sender::new(1);
            let mut receiver = sender.subscribe();
            receiver.mark_changed();
            receiver.changed().await.unwrap();
            sender.send(2).unwrap();
            receiver.mark_unchanged();
            assert!(!receiver.has_changed().unwrap());
        });
    });
}

#[test]
fn a_weak_sender_of_a_broadcast_does_not_keep_it_open() {
    let sender = broadcast::Sender::new(4);
    let mut receiver = sender.subscribe();
    let weak = sender.downgrade();
    weak.upgrade().unwrap().send(1).unwrap();
    drop(sender);
    assert!(weak.upgrade().is_none());
    assert_eq!(receiver.blocking_recv(), Ok(1));
    assert_eq!(receiver.blocking_recv(), Err(broadcast::error::RecvError::Closed));
}
