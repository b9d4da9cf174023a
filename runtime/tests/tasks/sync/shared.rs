//! Guards and permits, the order in queues, and what Volt's types have in common with Tokio's.

use std::fmt::Debug;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt;

use crate::watchdog::{alone, builder, watched};
use volt::sync::{
    Mutex, MutexGuard, Notify, OnceCell, OwnedMutexGuard, OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard,
    OwnedRwLockWriteGuard, RwLock, Semaphore, SetOnce, broadcast, mpsc, oneshot, watch,
};
use volt::task::{consume_budget, yield_now};

/// Spends what is left of the budget in this poll.
async fn spend_all() {
    poll_fn(|cx| {
        while pin!(consume_budget()).poll(cx).is_ready() {}
        Poll::Ready(())
    })
    .await;
}

/// Polls once.
async fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_fn(|cx: &mut Context<'_>| Poll::Ready(future.poll_unpin(cx))).await
}

#[test]
fn a_task_without_budget_keeps_its_place_in_the_queue() {
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let (mutex, lock, permits) = (Mutex::new(()), RwLock::new(()), Semaphore::new(1));
            let (sender, mut receiver) = mpsc::channel(1);
            let held = (mutex.lock().await, lock.read().await, permits.acquire().await.unwrap());
            sender.send(0).await.unwrap();
            let mut first = (pin!(mutex.lock()), pin!(lock.write()), pin!(permits.acquire()), pin!(sender.send(1)));
            spend_all().await;
            assert!(poll_once(&mut first.0).await.is_pending() && poll_once(&mut first.1).await.is_pending());
            assert!(poll_once(&mut first.2).await.is_pending() && poll_once(&mut first.3).await.is_pending());
            yield_now().await;
            let mut second = (pin!(mutex.lock()), pin!(lock.write()), pin!(permits.acquire()), pin!(sender.send(2)));
            assert!(poll_once(&mut second.0).await.is_pending() && poll_once(&mut second.1).await.is_pending());
            assert!(poll_once(&mut second.2).await.is_pending() && poll_once(&mut second.3).await.is_pending());
            drop(held);
            assert_eq!(receiver.recv().await, Some(0));
            assert!(poll_once(&mut second.0).await.is_pending() && poll_once(&mut second.1).await.is_pending());
            assert!(poll_once(&mut second.2).await.is_pending() && poll_once(&mut second.3).await.is_pending());
            drop((first.0.await, first.1.await, first.2.await.unwrap()));
            first.3.await.unwrap();
            assert_eq!(receiver.recv().await, Some(1));
            drop((second.0.await, second.1.await, second.2.await.unwrap()));
            second.3.await.unwrap();
            assert_eq!(receiver.recv().await, Some(2));
        });
    });
}

#[test]
fn a_cancelled_task_returns_what_it_was_refused() {
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let mutex = Mutex::new(());
            let (sender, mut receiver) = mpsc::channel(1);
            spend_all().await;
            {
                let (mut lock, mut send) = (pin!(mutex.lock()), pin!(sender.send(1)));
                assert!(poll_once(&mut lock).await.is_pending() && poll_once(&mut send).await.is_pending());
                assert!(mutex.try_lock().is_err() && sender.capacity() == 0);
            }
            assert!(mutex.try_lock().is_ok() && sender.capacity() == 1);
            assert_eq!(receiver.try_recv(), Err(mpsc::error::TryRecvError::Empty), "it was not sent");
        });
    });
}

#[test]
fn a_notify_finds_waiters_that_had_no_budget() {
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let notify = Arc::new(Notify::new());
            let (mut first, mut second) = (Box::pin(notify.notified()), Box::pin(notify.clone().notified_owned()));
            spend_all().await;
            assert!(poll_once(&mut first).await.is_pending() && poll_once(&mut second).await.is_pending());
            notify.notify_one();
            notify.notify_one();
            yield_now().await;
            assert!(poll_once(&mut first).await.is_ready(), "the first notification");
            assert!(poll_once(&mut second).await.is_ready(), "the second one is not lost");
        });
    });
}

#[test]
fn a_dropped_waiter_passes_on_what_it_was_refused() {
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let notify = Arc::new(Notify::new());
            notify.notify_one();
            spend_all().await;
            let mut refused = Box::pin(notify.notified());
            assert!(poll_once(&mut refused).await.is_pending(), "no budget is left");
            yield_now().await;
            let mut next = Box::pin(notify.notified());
            assert!(poll_once(&mut next).await.is_pending(), "the other one has the notification");
            drop(refused);
            assert!(poll_once(&mut next).await.is_ready());
            // One that completes has nothing to pass on.
            drop(next);
            assert!(poll_once(&mut Box::pin(notify.notified())).await.is_pending());
            // `enable` has reported the notification of this one, so it passes none on.
            notify.notify_one();
            spend_all().await;
            let mut refused = Box::pin(notify.notified());
            assert!(poll_once(&mut refused).await.is_pending(), "no budget is left");
            assert!(refused.as_mut().enable(), "it has the notification");
            drop(refused);
            yield_now().await;
            assert!(poll_once(&mut Box::pin(notify.notified())).await.is_pending(), "it was passed on");
        });
    });
}

#[test]
fn guards_and_permits_return_the_lock_they_belong_to() {
    watched(|| {
        builder(1).build().unwrap().block_on(async {
            let mutex = Arc::new(Mutex::new(1));
            assert!(std::ptr::eq(MutexGuard::mutex(&mutex.lock().await), &*mutex));
            let guard = mutex.clone().lock_owned().await;
            assert!(Arc::ptr_eq(OwnedMutexGuard::mutex(&guard), &mutex));
            assert_eq!(Arc::strong_count(&mutex), 2, "one of them is the guard's");
            let kept = OwnedMutexGuard::mutex(&guard).clone();
            drop((guard, mutex));
            assert_eq!((Arc::strong_count(&kept), *kept.lock().await), (1, 1));

            let unsized_value: Arc<RwLock<[u8]>> = Arc::new(RwLock::new([1, 2]));
            let guard = unsized_value.clone().read_owned().await;
            let guard = OwnedRwLockReadGuard::map(guard, |value| &value[1]);
            assert!(*guard == 2 && Arc::ptr_eq(OwnedRwLockReadGuard::rwlock(&guard), &unsized_value));
            drop(guard);
            let guard = unsized_value.clone().write_owned().await;
            assert!(Arc::ptr_eq(OwnedRwLockWriteGuard::rwlock(&guard), &unsized_value));
            let Err(guard) = OwnedRwLockWriteGuard::try_map(guard, |_| None::<&mut u8>) else { panic!("it was None") };
            let mut guard = OwnedRwLockWriteGuard::map(guard, |value| &mut value[1]);
            *guard = 3;
            assert!(Arc::ptr_eq(OwnedRwLockMappedWriteGuard::rwlock(&guard), &unsized_value));
            drop(guard);
            assert_eq!((Arc::strong_count(&unsized_value), unsized_value.read().await[1]), (1, 3));

            let semaphore = Arc::new(Semaphore::new(3));
            let mut permit = semaphore.clone().acquire_many_owned(3).await.unwrap();
            let other = permit.split(1).unwrap();
            assert_eq!(Arc::strong_count(&semaphore), 3);
            permit.merge(other);
            assert!(Arc::ptr_eq(permit.semaphore(), &semaphore) && permit.num_permits() == 3);
            drop(permit);
            assert!(std::ptr::eq(semaphore.acquire().await.unwrap().semaphore(), &*semaphore));
            assert_eq!((Arc::strong_count(&semaphore), semaphore.available_permits()), (1, 3));
        });
    });
}

#[test]
fn debug_output_is_that_of_tokios_types() {
    fn same(volt: impl Debug, tokio: impl Debug) {
        assert_eq!(format!("{volt:?}"), format!("{tokio:?}"));
    }
    same(Mutex::new(1), tokio::sync::Mutex::new(1));
    same(Mutex::new(1).try_lock().unwrap(), 1);
    same(RwLock::new(1), tokio::sync::RwLock::new(1));
    same(OnceCell::from(1), tokio::sync::OnceCell::from(1));
    same(SetOnce::from(1), tokio::sync::SetOnce::from(1));
    same(Semaphore::new(1), tokio::sync::Semaphore::new(1));
    same(broadcast::channel::<u8>(1), tokio::sync::broadcast::channel::<u8>(1));
    same(mpsc::channel::<u8>(1).0.downgrade(), tokio::sync::mpsc::channel::<u8>(1).0.downgrade());
    same(oneshot::channel::<u8>(), tokio::sync::oneshot::channel::<u8>());
    same(watch::channel(1), tokio::sync::watch::channel(1));
}

#[test]
fn a_wrong_argument_panics_in_its_callers_file() {
    alone(|| {
        let (reported, sends) = std::sync::mpsc::channel();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = reported.send(panic.location().unwrap().file().to_owned());
        }));
        let merge = || {
            let (one, other) = (Semaphore::new(1), Semaphore::new(1));
            one.try_acquire().unwrap().merge(other.try_acquire().unwrap());
        };
        let merge_owned = || {
            let [mut one, other] = [1, 1].map(|n| Arc::new(Semaphore::new(n)).try_acquire_owned().unwrap());
            one.merge(other);
        };
        let wrong: [fn(); 4] = [
            || drop(mpsc::channel::<u8>(0)),
            || drop(broadcast::channel::<u8>(0)),
            || drop(broadcast::Sender::<u8>::new(0)),
            || drop(RwLock::with_max_readers(String::new(), u32::MAX)),
        ];
        for call in wrong.into_iter().chain([merge as fn(), merge_owned]) {
            std::panic::catch_unwind(call).unwrap_err();
            assert_eq!(sends.try_iter().collect::<Vec<_>>(), [file!()]);
        }
    });
}
