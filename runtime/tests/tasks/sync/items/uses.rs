//! Every public item of `super::sync`, which is Volt's or Tokio's: nothing here runs, but all of it
//! has to compile with either.

use std::cell::Cell;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::future::Future;
use std::hint::black_box;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::sync::futures::{Notified, OwnedNotified};
use super::sync::{
    AcquireError, Barrier, BarrierWaitResult, MappedMutexGuard, Mutex, MutexGuard, Notify, OnceCell,
    OwnedMappedMutexGuard, OwnedMutexGuard, OwnedRwLockMappedWriteGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard,
    OwnedSemaphorePermit, RwLock, RwLockMappedWriteGuard, RwLockReadGuard, RwLockWriteGuard, Semaphore,
    SemaphorePermit, SetError, SetOnce, SetOnceError, TryAcquireError, TryLockError, broadcast, mpsc, oneshot, watch,
};

/// A value that is `Send`, and neither `Sync`, `Clone`, `Debug`, `Default` nor comparable.
struct Plain(#[expect(dead_code, reason = "it makes the type what it is")] Cell<u8>);

fn is<T: ?Sized>() {}
fn is_send<T: Send + ?Sized>() {}
fn is_shared<T: Send + Sync + ?Sized>() {}
fn is_debug<T: Debug + ?Sized>() {}
fn is_clone<T: Clone>() {}
fn is_default<T: Default>() {}
fn is_eq<T: Eq>() {}
fn is_error<T: Error>() {}
fn is_unpin<T: Unpin>() {}
fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
fn is_guard<G: DerefMut<Target = T> + Debug + Display, T: Display>() {}
fn is_read_guard<G: Deref<Target = T> + Debug + Display, T: Display>() {}
fn is_future<F: Future<Output = T>, T>() {}

/// Refers to all that follows.
pub fn all() {
    black_box((barrier, mutex, mapped_mutex, notify, once_cell, set_once, rw_lock, owned_rw_lock, mapped_rw_lock));
    black_box((semaphore, permits, bounded, bounded_sender, permits_of_channel, receivers, unbounded));
    black_box((one_value, broadcasts, latest, constants, traits_of_locks, traits_of_channels, errors));
}

async fn barrier(barrier: Barrier) {
    let _: Barrier = Barrier::new(2);
    let result: BarrierWaitResult = barrier.wait().await;
    let _: bool = result.clone().is_leader();
}

async fn mutex(mutex: Mutex<u8>, shared: Arc<Mutex<u8>>) {
    let _: (Mutex<u8>, Mutex<u8>, Mutex<u8>) = (Mutex::new(1), Mutex::from(1), Mutex::default());
    let guard: MutexGuard<'_, u8> = mutex.lock().await;
    let _: &Mutex<u8> = MutexGuard::mutex(&guard);
    let _: Result<MutexGuard<'_, u8>, TryLockError> = mutex.try_lock();
    let _: MutexGuard<'_, u8> = mutex.blocking_lock();
    let guard: OwnedMutexGuard<u8> = shared.clone().lock_owned().await;
    let _: &Arc<Mutex<u8>> = OwnedMutexGuard::mutex(&guard);
    let _: Result<OwnedMutexGuard<u8>, TryLockError> = shared.clone().try_lock_owned();
    let _: OwnedMutexGuard<u8> = shared.clone().blocking_lock_owned();
    let mut mutex = Mutex::new(1);
    let _: &mut u8 = mutex.get_mut();
    let _: u8 = mutex.into_inner();
}

async fn mapped_mutex(mutex: Mutex<(u8, [u8; 2])>, shared: Arc<Mutex<(u8, [u8; 2])>>) {
    let guard: MappedMutexGuard<'_, [u8; 2]> = MutexGuard::map(mutex.lock().await, |value| &mut value.1);
    let guard: MappedMutexGuard<'_, u8> = MappedMutexGuard::map(guard, |value| &mut value[0]);
    let _: Result<MappedMutexGuard<'_, u8>, MappedMutexGuard<'_, u8>> = MappedMutexGuard::try_map(guard, |_| None);
    let _: Result<MappedMutexGuard<'_, u8>, MutexGuard<'_, (u8, [u8; 2])>> =
        MutexGuard::try_map(mutex.lock().await, |value| Some(&mut value.0));
    type Owned<T> = OwnedMappedMutexGuard<(u8, [u8; 2]), T>;
    let guard: Owned<[u8; 2]> = OwnedMutexGuard::map(shared.clone().lock_owned().await, |value| &mut value.1);
    let guard: Owned<u8> = OwnedMappedMutexGuard::map(guard, |value| &mut value[0]);
    let _: Result<Owned<u8>, Owned<u8>> = OwnedMappedMutexGuard::try_map(guard, |_| None);
    let _: Result<Owned<u8>, OwnedMutexGuard<(u8, [u8; 2])>> =
        OwnedMutexGuard::try_map(shared.lock_owned().await, |value| Some(&mut value.0));
}

async fn notify(notify: Arc<Notify>) {
    let _: (Notify, Notify) = (Notify::new(), Notify::default());
    notify.notify_one();
    notify.notify_last();
    notify.notify_waiters();
    let mut notified: Pin<Box<Notified<'_>>> = Box::pin(notify.notified());
    let _: bool = notified.as_mut().enable();
    let (): () = notified.await;
    let mut notified: Pin<Box<OwnedNotified>> = Box::pin(notify.clone().notified_owned());
    let _: bool = notified.as_mut().enable();
    let (): () = notified.await;
}

async fn once_cell(mut cell: OnceCell<u8>) {
    let _: (OnceCell<u8>, OnceCell<u8>) = (OnceCell::new(), OnceCell::default());
    let _: (OnceCell<u8>, OnceCell<u8>) = (OnceCell::new_with(Some(1)), OnceCell::from(1));
    let _: bool = cell.initialized();
    let (_, _): (Option<&u8>, Option<u8>) = (cell.get(), cell.clone().into_inner());
    let _: Option<&mut u8> = cell.get_mut();
    let _: Result<(), SetError<u8>> = cell.set(1);
    let _: &u8 = cell.get_or_init(async || 1).await;
    let _: Result<&u8, ()> = cell.get_or_try_init(async || Err(())).await;
    let _: Option<u8> = cell.take();
}

async fn set_once(cell: SetOnce<u8>) {
    let _: (SetOnce<u8>, SetOnce<u8>) = (SetOnce::new(), SetOnce::default());
    let _: (SetOnce<u8>, SetOnce<u8>) = (SetOnce::new_with(Some(1)), SetOnce::from(1));
    let _: bool = cell.initialized();
    let (_, _): (Option<&u8>, Option<u8>) = (cell.get(), cell.clone().into_inner());
    let _: Result<(), SetOnceError<u8>> = cell.set(1);
    let _: &u8 = cell.wait().await;
}

async fn rw_lock(lock: RwLock<u8>) {
    let _: (RwLock<u8>, RwLock<u8>, RwLock<u8>) = (RwLock::new(1), RwLock::from(1), RwLock::default());
    let _: RwLock<u8> = RwLock::with_max_readers(1, 2);
    let _: RwLockReadGuard<'_, u8> = lock.read().await;
    let _: RwLockWriteGuard<'_, u8> = lock.write().await;
    let _: Result<RwLockReadGuard<'_, u8>, TryLockError> = lock.try_read();
    let _: Result<RwLockWriteGuard<'_, u8>, TryLockError> = lock.try_write();
    let _: RwLockReadGuard<'_, u8> = lock.blocking_read();
    let _: RwLockWriteGuard<'_, u8> = lock.blocking_write();
    let mut lock = RwLock::new(1);
    let _: &mut u8 = lock.get_mut();
    let _: u8 = lock.into_inner();
}

async fn owned_rw_lock(lock: Arc<RwLock<[u8; 2]>>) {
    type Lock = [u8; 2];
    let guard: OwnedRwLockReadGuard<Lock> = lock.clone().read_owned().await;
    let _: Result<OwnedRwLockReadGuard<Lock>, TryLockError> = lock.clone().try_read_owned();
    let _: Result<OwnedRwLockWriteGuard<Lock>, TryLockError> = lock.clone().try_write_owned();
    let _: &Arc<RwLock<Lock>> = OwnedRwLockReadGuard::rwlock(&guard);
    let guard: OwnedRwLockReadGuard<Lock, u8> = OwnedRwLockReadGuard::map(guard, |value| &value[0]);
    let _: Result<OwnedRwLockReadGuard<Lock, u8>, OwnedRwLockReadGuard<Lock, u8>> =
        OwnedRwLockReadGuard::try_map(guard, |_| None);
    let write = || async { lock.clone().write_owned().await };
    let guard: OwnedRwLockWriteGuard<Lock> = write().await;
    let _: &Arc<RwLock<Lock>> = OwnedRwLockWriteGuard::rwlock(&guard);
    let guard: OwnedRwLockMappedWriteGuard<Lock, u8> = OwnedRwLockWriteGuard::map(guard, |value| &mut value[0]);
    let _: &Arc<RwLock<Lock>> = OwnedRwLockMappedWriteGuard::rwlock(&guard);
    let guard: OwnedRwLockMappedWriteGuard<Lock, u8> = OwnedRwLockMappedWriteGuard::map(guard, |value| value);
    let _: Result<OwnedRwLockMappedWriteGuard<Lock, u8>, OwnedRwLockMappedWriteGuard<Lock, u8>> =
        OwnedRwLockMappedWriteGuard::try_map(guard, |_| None);
    let _: Result<OwnedRwLockMappedWriteGuard<Lock, u8>, OwnedRwLockWriteGuard<Lock>> =
        OwnedRwLockWriteGuard::try_map(write().await, |value| value.first_mut());
    let _: OwnedRwLockReadGuard<Lock, u8> = OwnedRwLockWriteGuard::downgrade_map(write().await, |value| &value[0]);
    let _: Result<OwnedRwLockReadGuard<Lock, u8>, OwnedRwLockWriteGuard<Lock>> =
        OwnedRwLockWriteGuard::try_downgrade_map(write().await, |value| value.first());
    let _: OwnedRwLockMappedWriteGuard<Lock> = OwnedRwLockWriteGuard::into_mapped(write().await);
    let _: OwnedRwLockReadGuard<Lock> = write().await.downgrade();
}

async fn mapped_rw_lock(lock: RwLock<[u8; 2]>) {
    type Lock = [u8; 2];
    let guard: RwLockReadGuard<'_, u8> = RwLockReadGuard::map(lock.read().await, |value| &value[0]);
    let _: Result<RwLockReadGuard<'_, u8>, RwLockReadGuard<'_, u8>> = RwLockReadGuard::try_map(guard, |_| None);
    let guard: RwLockMappedWriteGuard<'_, u8> = RwLockWriteGuard::map(lock.write().await, |value| &mut value[0]);
    let guard: RwLockMappedWriteGuard<'_, u8> = RwLockMappedWriteGuard::map(guard, |value| value);
    let _: Result<RwLockMappedWriteGuard<'_, u8>, RwLockMappedWriteGuard<'_, u8>> =
        RwLockMappedWriteGuard::try_map(guard, |_| None);
    let _: Result<RwLockMappedWriteGuard<'_, u8>, RwLockWriteGuard<'_, Lock>> =
        RwLockWriteGuard::try_map(lock.write().await, |value| value.first_mut());
    let _: RwLockReadGuard<'_, u8> = RwLockWriteGuard::downgrade_map(lock.write().await, |value| &value[0]);
    let _: Result<RwLockReadGuard<'_, u8>, RwLockWriteGuard<'_, Lock>> =
        RwLockWriteGuard::try_downgrade_map(lock.write().await, |value| value.first());
    let _: RwLockMappedWriteGuard<'_, Lock> = RwLockWriteGuard::into_mapped(lock.write().await);
    let _: RwLockReadGuard<'_, Lock> = lock.write().await.downgrade();
}

async fn semaphore(semaphore: Arc<Semaphore>) {
    let _: Semaphore = Semaphore::new(Semaphore::MAX_PERMITS);
    let _: (usize, usize) = (semaphore.available_permits(), semaphore.forget_permits(1));
    semaphore.add_permits(1);
    let _: Result<SemaphorePermit<'_>, AcquireError> = semaphore.acquire().await;
    let _: Result<SemaphorePermit<'_>, AcquireError> = semaphore.acquire_many(2_u32).await;
    let _: Result<SemaphorePermit<'_>, TryAcquireError> = semaphore.try_acquire();
    let _: Result<SemaphorePermit<'_>, TryAcquireError> = semaphore.try_acquire_many(2_u32);
    let _: Result<SemaphorePermit<'_>, AcquireError> = semaphore.blocking_acquire();
    let _: Result<SemaphorePermit<'_>, AcquireError> = semaphore.blocking_acquire_many(2_u32);
    let shared = || semaphore.clone();
    let _: Result<OwnedSemaphorePermit, AcquireError> = shared().acquire_owned().await;
    let _: Result<OwnedSemaphorePermit, AcquireError> = shared().acquire_many_owned(2_u32).await;
    let _: Result<OwnedSemaphorePermit, TryAcquireError> = shared().try_acquire_owned();
    let _: Result<OwnedSemaphorePermit, TryAcquireError> = shared().try_acquire_many_owned(2_u32);
    let _: Result<OwnedSemaphorePermit, AcquireError> = shared().blocking_acquire_owned();
    let _: Result<OwnedSemaphorePermit, AcquireError> = shared().blocking_acquire_many_owned(2_u32);
    semaphore.close();
    let _: bool = semaphore.is_closed();
}

fn permits(mut permit: SemaphorePermit<'_>, mut owned: OwnedSemaphorePermit) {
    let (_, _): (&Semaphore, usize) = (permit.semaphore(), permit.num_permits());
    let other: Option<SemaphorePermit<'_>> = permit.split(1_usize);
    permit.merge(other.unwrap());
    permit.forget();
    let (_, _): (&Arc<Semaphore>, usize) = (owned.semaphore(), owned.num_permits());
    let other: Option<OwnedSemaphorePermit> = owned.split(1_usize);
    owned.merge(other.unwrap());
    owned.forget();
}

async fn bounded(sender: mpsc::Sender<u8>) {
    use mpsc::error::{SendError, SendTimeoutError, TrySendError};
    let _: (mpsc::Sender<u8>, mpsc::Receiver<u8>) = mpsc::channel::<u8>(1);
    let _: Result<(), SendError<u8>> = sender.send(1).await;
    let _: Result<(), SendTimeoutError<u8>> = sender.send_timeout(1, Duration::ZERO).await;
    let _: Result<(), TrySendError<u8>> = sender.try_send(1);
    let _: Result<(), SendError<u8>> = sender.blocking_send(1);
    let _: Result<mpsc::Permit<'_, u8>, SendError<()>> = sender.reserve().await;
    let _: Result<mpsc::PermitIterator<'_, u8>, SendError<()>> = sender.reserve_many(2_usize).await;
    let _: Result<mpsc::Permit<'_, u8>, TrySendError<()>> = sender.try_reserve();
    let _: Result<mpsc::PermitIterator<'_, u8>, TrySendError<()>> = sender.try_reserve_many(2_usize);
    let _: Result<mpsc::OwnedPermit<u8>, SendError<()>> = sender.clone().reserve_owned().await;
    let _: Result<mpsc::OwnedPermit<u8>, TrySendError<mpsc::Sender<u8>>> = sender.try_reserve_owned();
}

async fn bounded_sender(sender: mpsc::Sender<u8>) {
    let (): () = sender.closed().await;
    let _: (bool, bool) = (sender.is_closed(), sender.same_channel(&sender.clone()));
    let _: (usize, usize) = (sender.capacity(), sender.max_capacity());
    let _: (usize, usize) = (sender.strong_count(), sender.weak_count());
    let weak: mpsc::WeakSender<u8> = sender.downgrade();
    let _: (usize, usize) = (weak.strong_count(), weak.clone().weak_count());
    let _: Option<mpsc::Sender<u8>> = weak.upgrade();
}

fn permits_of_channel(
    permit: mpsc::Permit<'_, u8>,
    mut permits: mpsc::PermitIterator<'_, u8>,
    owned: fn() -> mpsc::OwnedPermit<u8>,
) {
    permit.send(1);
    let _: usize = permits.len();
    let _: Option<mpsc::Permit<'_, u8>> = permits.next();
    let sender: mpsc::Sender<u8> = owned().send(1);
    let _: (bool, bool) = (owned().same_channel(&owned()), owned().same_channel_as_sender(&sender));
    let _: mpsc::Sender<u8> = owned().release();
}

async fn receivers(
    mut bounded: mpsc::Receiver<u8>,
    mut unbounded: mpsc::UnboundedReceiver<u8>,
    cx: &mut Context<'_>,
    buffer: &mut Vec<u8>,
) {
    use mpsc::error::TryRecvError;
    let _: (Option<u8>, Option<u8>) = (bounded.recv().await, unbounded.recv().await);
    let _: (usize, usize) = (bounded.recv_many(buffer, 2).await, unbounded.recv_many(buffer, 2).await);
    let _: (Result<u8, TryRecvError>, Result<u8, TryRecvError>) = (bounded.try_recv(), unbounded.try_recv());
    let _: (Option<u8>, Option<u8>) = (bounded.blocking_recv(), unbounded.blocking_recv());
    let _: usize = bounded.blocking_recv_many(buffer, 2) + unbounded.blocking_recv_many(buffer, 2);
    let _: (Poll<Option<u8>>, Poll<Option<u8>>) = (bounded.poll_recv(cx), unbounded.poll_recv(cx));
    let _: Poll<usize> = bounded.poll_recv_many(cx, buffer, 2);
    let _: Poll<usize> = unbounded.poll_recv_many(cx, buffer, 2);
    let _: (usize, usize) = (bounded.sender_strong_count(), unbounded.sender_strong_count());
    let _: (usize, usize) = (bounded.sender_weak_count(), unbounded.sender_weak_count());
    let _: (usize, usize) = (bounded.len(), unbounded.len());
    let _: (bool, bool) = (bounded.is_empty(), unbounded.is_empty());
    let _: (bool, bool) = (bounded.is_closed(), unbounded.is_closed());
    let _: (usize, usize) = (bounded.capacity(), bounded.max_capacity());
    bounded.close();
    unbounded.close();
}

async fn unbounded(sender: mpsc::UnboundedSender<u8>) {
    let _: (mpsc::UnboundedSender<u8>, mpsc::UnboundedReceiver<u8>) = mpsc::unbounded_channel::<u8>();
    let _: Result<(), mpsc::error::SendError<u8>> = sender.send(1);
    let (): () = sender.closed().await;
    let _: (bool, bool) = (sender.is_closed(), sender.same_channel(&sender.clone()));
    let _: (usize, usize) = (sender.strong_count(), sender.weak_count());
    let weak: mpsc::WeakUnboundedSender<u8> = sender.downgrade();
    let _: (usize, usize) = (weak.strong_count(), weak.clone().weak_count());
    let _: Option<mpsc::UnboundedSender<u8>> = weak.upgrade();
}

async fn one_value(
    mut sender: oneshot::Sender<u8>,
    mut receiver: oneshot::Receiver<u8>,
    cx: &mut Context<'_>,
) -> Result<u8, oneshot::error::RecvError> {
    let _: (oneshot::Sender<u8>, oneshot::Receiver<u8>) = oneshot::channel::<u8>();
    let (): () = sender.closed().await;
    let (_, _): (bool, Poll<()>) = (sender.is_closed(), sender.poll_closed(cx));
    let _: Result<(), u8> = sender.send(1);
    let _: (bool, bool) = (receiver.is_empty(), receiver.is_terminated());
    let _: Result<u8, oneshot::error::TryRecvError> = receiver.try_recv();
    receiver.close();
    let _: Result<u8, oneshot::error::RecvError> = (&mut receiver).await;
    receiver.blocking_recv()
}

async fn broadcasts(sender: broadcast::Sender<u8>, mut receiver: broadcast::Receiver<u8>) {
    use broadcast::error::{RecvError, SendError, TryRecvError};
    let _: (broadcast::Sender<u8>, broadcast::Receiver<u8>) = broadcast::channel::<u8>(1);
    let _: broadcast::Sender<u8> = broadcast::Sender::new(1);
    let _: Result<usize, SendError<u8>> = sender.send(1);
    let _: broadcast::Receiver<u8> = sender.subscribe();
    let _: (usize, bool) = (sender.len(), sender.is_empty());
    let _: (usize, bool) = (sender.receiver_count(), sender.same_channel(&sender.clone()));
    let _: (usize, usize) = (sender.strong_count(), sender.weak_count());
    let (): () = sender.closed().await;
    let weak: broadcast::WeakSender<u8> = sender.downgrade();
    let _: (usize, usize) = (weak.strong_count(), weak.clone().weak_count());
    let _: Option<broadcast::Sender<u8>> = weak.upgrade();
    let _: Result<u8, RecvError> = receiver.recv().await;
    let _: Result<u8, TryRecvError> = receiver.try_recv();
    let _: Result<u8, RecvError> = receiver.blocking_recv();
    let other: broadcast::Receiver<u8> = receiver.resubscribe();
    let _: (usize, bool, bool) = (receiver.len(), receiver.is_empty(), receiver.is_closed());
    let _: (usize, usize) = (receiver.sender_strong_count(), receiver.sender_weak_count());
    let _: bool = receiver.same_channel(&other);
}

async fn latest(sender: watch::Sender<u8>, mut receiver: watch::Receiver<u8>) {
    use watch::error::{RecvError, SendError};
    let _: (watch::Sender<u8>, watch::Receiver<u8>) = watch::channel::<u8>(1);
    let _: (watch::Sender<u8>, watch::Sender<u8>) = (watch::Sender::new(1), watch::Sender::default());
    let _: Result<(), SendError<u8>> = sender.send(1);
    let _: u8 = sender.send_replace(1);
    sender.send_modify::<fn(&mut u8)>(|_| ());
    let _: bool = sender.send_if_modified::<fn(&mut u8) -> bool>(|_| true);
    let _: bool = watch::Ref::has_changed(&sender.borrow());
    let _: watch::Receiver<u8> = sender.subscribe();
    let _: (usize, usize) = (sender.receiver_count(), sender.sender_count());
    let _: (bool, bool) = (sender.is_closed(), sender.same_channel(&sender.clone()));
    let (): () = sender.closed().await;
    let _: u8 = *receiver.borrow();
    let _: watch::Ref<'_, u8> = receiver.borrow_and_update();
    let _: Result<bool, RecvError> = receiver.has_changed();
    receiver.mark_changed();
    receiver.mark_unchanged();
    let _: (bool, bool) = (receiver.is_closed(), receiver.same_channel(&receiver.clone()));
    let _: Result<(), RecvError> = receiver.changed().await;
    let _: Result<watch::Ref<'_, u8>, RecvError> = receiver.wait_for(|_| true).await;
}

fn constants() {
    static MUTEX: Mutex<u8> = Mutex::const_new(1);
    static LOCK: RwLock<u8> = RwLock::const_new(1);
    static FEW: RwLock<u8> = RwLock::const_with_max_readers(1, 2);
    static NOTIFY: Notify = Notify::const_new();
    static SEMAPHORE: Semaphore = Semaphore::const_new(1);
    static CELLS: [OnceCell<u8>; 2] = [OnceCell::const_new(), OnceCell::const_new_with(1)];
    static ONCE: [SetOnce<u8>; 2] = [SetOnce::const_new(), SetOnce::const_new_with(1)];
    black_box((&MUTEX, &LOCK, &FEW, &NOTIFY, &SEMAPHORE, &CELLS, &ONCE));
}

fn traits_of_locks() {
    black_box((is::<dyn Debug>, is_unpin::<Mutex<Plain>>, is_shared::<Mutex<Plain>>, is_shared::<Barrier>));
    black_box((
        is_debug::<Mutex<[u8]>>,
        is_debug::<RwLock<dyn Debug>>,
        is_debug::<OnceCell<u8>>,
        is_debug::<SetOnce<u8>>,
    ));
    black_box((is_debug::<Barrier>, is_debug::<BarrierWaitResult>, is_debug::<Notify>, is_debug::<Notified<'_>>));
    black_box((is_debug::<OwnedNotified>, is_debug::<Semaphore>, is_debug::<SemaphorePermit<'_>>));
    black_box((is_debug::<OwnedSemaphorePermit>, is_default::<OnceCell<Plain>>, is_default::<SetOnce<Plain>>));
    black_box((is_clone::<OnceCell<u8>>, is_clone::<SetOnce<u8>>, is_eq::<OnceCell<u8>>, is_eq::<SetOnce<u8>>));
    black_box((is_shared::<Notified<'_>>, is_shared::<OwnedNotified>, is_unwind_safe::<Notify>));
    black_box((is_future::<Notified<'_>, ()>, is_future::<OwnedNotified, ()>));
    black_box((is_guard::<MutexGuard<'_, u8>, u8>, is_guard::<OwnedMutexGuard<u8>, u8>));
    black_box((is_guard::<MappedMutexGuard<'_, u8>, u8>, is_guard::<OwnedMappedMutexGuard<(), u8>, u8>));
    black_box((is_read_guard::<RwLockReadGuard<'_, u8>, u8>, is_read_guard::<OwnedRwLockReadGuard<(), u8>, u8>));
    black_box((is_guard::<RwLockWriteGuard<'_, u8>, u8>, is_guard::<OwnedRwLockWriteGuard<u8>, u8>));
    black_box((is_guard::<RwLockMappedWriteGuard<'_, u8>, u8>, is_guard::<OwnedRwLockMappedWriteGuard<(), u8>, u8>));
    black_box((is_send::<OnceCell<Plain>>, is_send::<SetOnce<Plain>>, is_send::<RwLock<Plain>>));
    black_box((is_send::<MutexGuard<'_, Plain>>, is_send::<OwnedMutexGuard<Plain>>, is_shared::<MutexGuard<'_, u8>>));
    black_box((is_shared::<OwnedMutexGuard<[u8]>>, is_shared::<OwnedRwLockReadGuard<[u8]>>));
    black_box((is_shared::<OwnedRwLockWriteGuard<[u8]>>, is_shared::<OwnedRwLockMappedWriteGuard<[u8], u8>>));
}

fn traits_of_channels() {
    black_box((
        is_debug::<mpsc::Sender<Plain>>,
        is_debug::<mpsc::WeakSender<Plain>>,
        is_debug::<mpsc::Receiver<Plain>>,
    ));
    black_box((is_debug::<mpsc::UnboundedSender<Plain>>, is_debug::<mpsc::WeakUnboundedSender<Plain>>));
    black_box((is_debug::<mpsc::UnboundedReceiver<Plain>>, is_debug::<mpsc::OwnedPermit<Plain>>));
    black_box((is_debug::<mpsc::Permit<'_, Plain>>, is_debug::<mpsc::PermitIterator<'_, Plain>>));
    black_box((is_debug::<broadcast::Sender<Plain>>, is_debug::<broadcast::WeakSender<Plain>>));
    black_box((
        is_debug::<broadcast::Receiver<Plain>>,
        is_debug::<oneshot::Sender<u8>>,
        is_debug::<oneshot::Receiver<u8>>,
    ));
    black_box((is_debug::<watch::Sender<u8>>, is_debug::<watch::Receiver<u8>>, is_debug::<watch::Ref<'_, u8>>));
    black_box((is_clone::<mpsc::Sender<Plain>>, is_clone::<mpsc::WeakSender<Plain>>));
    black_box((is_clone::<mpsc::UnboundedSender<Plain>>, is_clone::<mpsc::WeakUnboundedSender<Plain>>));
    black_box((is_clone::<broadcast::Sender<Plain>>, is_clone::<broadcast::WeakSender<Plain>>));
    black_box((is_clone::<watch::Sender<Plain>>, is_clone::<watch::Receiver<Plain>>, is_default::<watch::Sender<u8>>));
    black_box((
        is_shared::<mpsc::Sender<Plain>>,
        is_shared::<mpsc::Receiver<Plain>>,
        is_unpin::<mpsc::Receiver<Plain>>,
    ));
    black_box((is_shared::<oneshot::Sender<Plain>>, is_shared::<oneshot::Receiver<Plain>>));
    black_box((is_shared::<broadcast::Sender<Plain>>, is_shared::<broadcast::Receiver<Plain>>));
    black_box((is_shared::<watch::Sender<u8>>, is_shared::<watch::Receiver<u8>>));
    black_box(is_future::<oneshot::Receiver<Plain>, Result<Plain, oneshot::error::RecvError>>);
}

fn errors() {
    use mpsc::error::{SendError, SendTimeoutError, TryRecvError, TrySendError};
    #[expect(deprecated, reason = "code may still name it")]
    type Unused = mpsc::error::RecvError;
    black_box((is_error::<AcquireError>, is_error::<TryAcquireError>, is_error::<TryLockError>, is_error::<Unused>));
    black_box((is_error::<SetError<u8>>, is_error::<SetOnceError<u8>>));
    black_box((SetError::<u8>::is_already_init_err, SetError::<u8>::is_initializing_err));
    black_box((is_error::<SendError<Plain>>, is_error::<TrySendError<Plain>>, is_error::<SendTimeoutError<Plain>>));
    black_box((
        TrySendError::<u8>::into_inner,
        SendTimeoutError::<u8>::into_inner,
        TrySendError::<u8>::from(SendError(1)),
    ));
    black_box((TrySendError::Full(1), TrySendError::Closed(1), TryRecvError::Empty, TryRecvError::Disconnected));
    black_box((SendTimeoutError::Timeout(1), SendTimeoutError::Closed(1), is_eq::<SendTimeoutError<u8>>));
    black_box((
        is_error::<TryRecvError>,
        is_error::<oneshot::error::RecvError>,
        is_error::<oneshot::error::TryRecvError>,
    ));
    black_box((oneshot::error::TryRecvError::Empty, oneshot::error::TryRecvError::Closed));
    black_box((is_error::<broadcast::error::SendError<u8>>, broadcast::error::SendError(1)));
    black_box((broadcast::error::RecvError::Closed, broadcast::error::RecvError::Lagged(1)));
    black_box((broadcast::error::TryRecvError::Empty, broadcast::error::TryRecvError::Closed));
    black_box(broadcast::error::TryRecvError::Lagged(1));
    black_box((
        is_error::<watch::error::SendError<Plain>>,
        watch::error::SendError(1),
        is_error::<watch::error::RecvError>,
    ));
    black_box((TryAcquireError::Closed, TryAcquireError::NoPermits, SetError::AlreadyInitializedError(1)));
    black_box((SetError::InitializingError(1), SetOnceError(1)));
}
