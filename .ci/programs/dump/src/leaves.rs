//! Operations of libraries: locks, channels, timers, sockets.

use std::future::{Future, poll_fn};
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::{FutureExt, SinkExt, StreamExt};
use tokio::io::AsyncReadExt;

use crate::case::Case;

pub fn all() -> Vec<fn() -> Case> {
    vec![
        tokio_mutex,
        tokio_rwlock_write,
        tokio_rwlock_read,
        tokio_semaphore,
        tokio_notify,
        tokio_notify_waiters,
        tokio_oneshot,
        tokio_mpsc_recv,
        tokio_mpsc_unbounded,
        tokio_mpsc_send_full,
        tokio_broadcast,
        tokio_watch,
        tokio_barrier,
        tokio_join_handle,
        tokio_sleep,
        tokio_unix_stream,
        tokio_join_set,
        tokio_stream_recv,
        tokio_stream_broadcast_map,
        cancellation_token,
        futures_oneshot,
        futures_mpsc_next,
        futures_mpsc_send_full,
        futures_mutex,
        async_channel_recv,
        async_channel_send,
        event_listener,
        flume_recv,
        flume_send,
        async_lock_mutex,
        async_lock_semaphore,
        async_broadcast_recv,
        kanal_recv,
        hand_will_wake,
        hand_clone_from,
        hand_always,
        hand_compares_clones,
        hand_in_poll_fn,
    ]
}

fn tokio_mutex() -> Case {
    let lock = Arc::new(tokio::sync::Mutex::new(1));
    let held = lock.clone().try_lock_owned().unwrap();
    Case::new(async move {
        let mut taken = lock.lock().await; // AWAIT
        *taken += 1;
    })
    .ends_at(["tokio::sync::mutex"])
    .then(move || drop(held))
}

fn tokio_rwlock_write() -> Case {
    let lock = Arc::new(tokio::sync::RwLock::new(1));
    let held = lock.clone().try_read_owned().unwrap();
    Case::new(async move {
        *lock.write().await += 1; // AWAIT
    })
    .ends_at(["tokio::sync::rwlock"])
    .then(move || drop(held))
}

fn tokio_rwlock_read() -> Case {
    let lock = Arc::new(tokio::sync::RwLock::new(1));
    let held = lock.clone().try_write_owned().unwrap();
    Case::new(async move {
        assert_eq!(*lock.read().await, 1); // AWAIT
    })
    .ends_at(["tokio::sync::rwlock"])
    .then(move || drop(held))
}

fn tokio_semaphore() -> Case {
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    let more = permits.clone();
    Case::new(async move {
        let taken = permits.acquire_many(2).await.unwrap(); // AWAIT
        drop(taken);
    })
    .ends_at(["tokio::sync::semaphore"])
    .then(move || more.add_permits(1))
}

fn tokio_notify() -> Case {
    let notify = Arc::new(tokio::sync::Notify::new());
    let other = notify.clone();
    Case::new(async move {
        notify.notified().await; // AWAIT
    })
    .ends_at(["tokio::sync::notify"])
    .then(move || other.notify_one())
}

fn tokio_notify_waiters() -> Case {
    let notify = Arc::new(tokio::sync::Notify::new());
    let other = notify.clone();
    Case::new(async move {
        notify.notified().await; // AWAIT
    })
    .ends_at(["tokio::sync::notify"])
    .then(move || other.notify_waiters())
}

fn tokio_oneshot() -> Case {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    Case::new(async move {
        receiver.await.unwrap(); // AWAIT
    })
    .ends_at(["tokio::sync::oneshot"])
    .then(move || sender.send(()).unwrap())
}

fn tokio_mpsc_recv() -> Case {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(2);
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["tokio::sync::mpsc"])
    .then(move || sender.try_send(()).unwrap())
}

fn tokio_mpsc_unbounded() -> Case {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["tokio::sync::mpsc"])
    .then(move || sender.send(()).unwrap())
}

fn tokio_mpsc_send_full() -> Case {
    let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
    sender.try_send(1).unwrap();
    Case::new(async move {
        sender.send(2).await.unwrap(); // AWAIT
    })
    .ends_at(["tokio::sync::mpsc"])
    .then(move || {
        receiver.try_recv().unwrap();
        std::mem::forget(receiver);
    })
}

fn tokio_broadcast() -> Case {
    let (sender, mut receiver) = tokio::sync::broadcast::channel(2);
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["tokio::sync::broadcast"])
    .then(move || assert_eq!(sender.send(()).unwrap(), 1))
}

fn tokio_watch() -> Case {
    let (sender, mut receiver) = tokio::sync::watch::channel(2);
    Case::new(async move {
        receiver.changed().await.unwrap(); // AWAIT
    })
    .ends_at(["tokio::sync::watch"])
    .then(move || {
        sender.send(4).unwrap();
        std::mem::forget(sender);
    })
}

fn tokio_barrier() -> Case {
    let barrier = Arc::new(tokio::sync::Barrier::new(2));
    let other = barrier.clone();
    Case::new(async move {
        barrier.wait().await; // AWAIT
    })
    .ends_at(["tokio::sync::barrier"])
    .then(move || assert!(other.wait().now_or_never().is_some()))
}

fn tokio_join_handle() -> Case {
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    Case::new(async move {
        let task = tokio::runtime::Handle::current().spawn(receiver);
        task.await.unwrap().unwrap(); // AWAIT
    })
    .ends_at(["tokio::runtime::task::join"])
    .then(move || sender.send(()).unwrap())
}

fn tokio_sleep() -> Case {
    Case::new(async move {
        tokio::time::sleep(Duration::from_secs(3)).await; // AWAIT
    })
    .ends_at(["tokio::time::sleep"])
    .then(|| {})
}

fn tokio_unix_stream() -> Case {
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    Case::new(async move {
        let mut stream = tokio::net::UnixStream::from_std(ours).unwrap();
        let mut bytes = [0; 4];
        assert_eq!(stream.read(&mut bytes).await.unwrap(), 2); // AWAIT
    })
    .ends_at(["tokio::io::poll_evented"])
    .then(move || theirs.write_all(b"hi").unwrap())
}

fn tokio_join_set() -> Case {
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    Case::new(async move {
        let mut tasks = tokio::task::JoinSet::new();
        tasks.spawn(receiver);
        tasks.join_next().await.unwrap().unwrap().unwrap(); // AWAIT
    })
    .ends_at(["tokio::task::join_set"])
    .then(move || sender.send(()).unwrap())
}

fn tokio_stream_recv() -> Case {
    let (sender, receiver) = tokio::sync::mpsc::channel(2);
    let mut stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    Case::new(async move {
        tokio_stream::StreamExt::next(&mut stream).await.unwrap(); // AWAIT
    })
    .ends_at(["tokio_stream::wrappers::mpsc_bounded"])
    .then(move || sender.try_send(()).unwrap())
}

fn tokio_stream_broadcast_map() -> Case {
    let (sender, receiver) = tokio::sync::broadcast::channel(2);
    let stream = tokio_stream::wrappers::BroadcastStream::new(receiver);
    Case::new(async move {
        let stream = tokio_stream::StreamExt::map(stream, |number| number.unwrap() + 1);
        let mut stream = tokio_stream::StreamExt::filter(stream, |number| *number > 0);
        tokio_stream::StreamExt::next(&mut stream).await.unwrap(); // AWAIT
    })
    .ends_at(["tokio_stream::stream_ext::filter"])
    .then(move || assert_eq!(sender.send(4).unwrap(), 1))
}

fn cancellation_token() -> Case {
    let token = tokio_util::sync::CancellationToken::new();
    let other = token.clone();
    Case::new(async move {
        token.cancelled().await; // AWAIT
    })
    .ends_at(["tokio_util::sync::cancellation_token"])
    .then(move || other.cancel())
}

fn futures_oneshot() -> Case {
    let (sender, receiver) = futures::channel::oneshot::channel();
    Case::new(async move {
        receiver.await.unwrap(); // AWAIT
    })
    .ends_at(["futures_channel::oneshot"])
    .then(move || sender.send(()).unwrap())
}

fn futures_mpsc_next() -> Case {
    let (mut sender, mut receiver) = futures::channel::mpsc::channel(2);
    Case::new(async move {
        receiver.next().await.unwrap(); // AWAIT
    })
    .ends_at(["futures_channel::mpsc"])
    .then(move || sender.try_send(()).unwrap())
}

fn futures_mpsc_send_full() -> Case {
    let (mut sender, receiver) = futures::channel::mpsc::channel(0);
    sender.try_send(1).unwrap();
    Case::new(async move {
        sender.send(5).await.unwrap(); // AWAIT
    })
    .ends_at(["futures_util::sink::send"])
    .then(move || drop(volt::spawn(receiver.for_each(|_| std::future::ready(())))))
}

fn futures_mutex() -> Case {
    let lock = Arc::new(futures::lock::Mutex::new(1));
    let held = lock.clone().try_lock_owned().unwrap();
    Case::new(async move {
        *lock.lock().await += 1; // AWAIT
    })
    .ends_at(["futures_util::lock::mutex"])
    .then(move || drop(held))
}

fn async_channel_recv() -> Case {
    let (sender, receiver) = async_channel::bounded(2);
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["async_channel"])
    .then(move || sender.try_send(()).unwrap())
}

fn async_channel_send() -> Case {
    let (sender, receiver) = async_channel::bounded(1);
    sender.try_send(1).unwrap();
    Case::new(async move {
        sender.send(5).await.unwrap(); // AWAIT
    })
    .ends_at(["async_channel"])
    .then(move || {
        receiver.try_recv().unwrap();
        std::mem::forget(receiver);
    })
}

fn event_listener() -> Case {
    let event = event_listener::Event::new();
    let listener = event.listen();
    Case::new(async move {
        listener.await; // AWAIT
    })
    .ends_at(["event_listener"])
    .then(move || assert_eq!(event.notify(1), 1))
}

fn flume_recv() -> Case {
    let (sender, receiver) = flume::bounded(2);
    Case::new(async move {
        receiver.recv_async().await.unwrap(); // AWAIT
    })
    .ends_at(["flume::async"])
    .then(move || sender.try_send(()).unwrap())
}

fn flume_send() -> Case {
    let (sender, receiver) = flume::bounded(1);
    sender.try_send(1).unwrap();
    Case::new(async move {
        sender.send_async(5).await.unwrap(); // AWAIT
    })
    .ends_at(["flume::async"])
    .then(move || {
        receiver.try_recv().unwrap();
        std::mem::forget(receiver);
    })
}

fn async_lock_mutex() -> Case {
    let lock = Arc::new(async_lock::Mutex::new(1));
    let held = lock.try_lock_arc().unwrap();
    Case::new(async move {
        *lock.lock().await += 1; // AWAIT
    })
    .ends_at(["async_lock::mutex"])
    .then(move || drop(held))
}

fn async_lock_semaphore() -> Case {
    let permits = Arc::new(async_lock::Semaphore::new(0));
    let more = permits.clone();
    Case::new(async move {
        drop(permits.acquire().await); // AWAIT
    })
    .ends_at(["async_lock::semaphore"])
    .then(move || more.add_permits(1))
}

fn async_broadcast_recv() -> Case {
    let (sender, mut receiver) = async_broadcast::broadcast(2);
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["async_broadcast"])
    .then(move || {
        sender.try_broadcast(4).unwrap();
        std::mem::forget(sender);
    })
}

fn kanal_recv() -> Case {
    let (sender, receiver) = kanal::bounded_async(2);
    Case::new(async move {
        receiver.recv().await.unwrap(); // AWAIT
    })
    .ends_at(["kanal"])
    .then(move || sender.clone_sync().send(4).unwrap())
}

/// How a future keeps its waker.
#[derive(Clone, Copy)]
pub enum Keeps {
    First,
    WillWake,
    CloneFrom,
    Always,
    ComparesClones,
}

/// Whether a [`Hand`] is ready, and the waker that it keeps.
#[derive(Default)]
pub struct Bell(Mutex<(bool, Option<Waker>)>);

impl Bell {
    pub fn ring(&self) {
        let waker = {
            let mut state = self.0.lock().unwrap();
            state.0 = true;
            state.1.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }
}

/// A future written by hand.
pub struct Hand(pub Arc<Bell>, pub Keeps);

impl Future for Hand {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.0.lock().unwrap();
        if state.0 {
            return Poll::Ready(());
        }
        match (self.1, &mut state.1) {
            (Keeps::First, Some(_)) => {}
            (Keeps::WillWake, Some(kept)) if kept.will_wake(cx.waker()) => {}
            (Keeps::CloneFrom, Some(kept)) => kept.clone_from(cx.waker()), // POINT clone_from
            (Keeps::ComparesClones, kept) => {
                let waker = cx.waker().clone(); // POINT compares
                assert!(waker.will_wake(&waker.clone()), "clones wake the same task");
                *kept = Some(waker);
            }
            (_, kept) => *kept = Some(cx.waker().clone()), // POINT clone
        }
        Poll::Pending
    }
}

fn hand_will_wake() -> Case {
    let bell = Arc::new(Bell::default());
    let other = bell.clone();
    Case::new(async move {
        Hand(bell, Keeps::WillWake).await; // AWAIT clone
    })
    .ends_at(["leaves::Hand"])
    .then(move || other.ring())
}

fn hand_clone_from() -> Case {
    let bell = Arc::new(Bell::default());
    let other = bell.clone();
    Case::new(async move {
        Hand(bell, Keeps::CloneFrom).await; // AWAIT clone_from
    })
    .ends_at(["leaves::Hand"])
    .then(move || other.ring())
}

fn hand_always() -> Case {
    let bell = Arc::new(Bell::default());
    let other = bell.clone();
    Case::new(async move {
        Hand(bell, Keeps::Always).await; // AWAIT clone
    })
    .ends_at(["leaves::Hand"])
    .then(move || other.ring())
}

fn hand_compares_clones() -> Case {
    let bell = Arc::new(Bell::default());
    let other = bell.clone();
    Case::new(async move {
        Hand(bell, Keeps::ComparesClones).await; // AWAIT compares
    })
    .ends_at(["leaves::Hand"])
    .then(move || other.ring())
}

fn hand_in_poll_fn() -> Case {
    let bell = Arc::new(Bell::default());
    let other = bell.clone();
    Case::new(async move {
        let mut hand = Hand(bell, Keeps::WillWake);
        let ready = poll_fn(move |cx| {
            Pin::new(&mut hand).poll(cx) // AWAIT clone
        });
        ready.await; // AWAIT
    })
    .ends_at(["leaves::Hand"])
    .then(move || other.ring())
}
