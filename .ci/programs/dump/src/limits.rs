//! Futures of which a dump shows less: the limits that the documentation of the dump describes.
//!
//! Some have no waker, or keep the first one that they get: nothing is copied. Others poll a child
//! only after the child's own waker was called: the chain ends at the parent.

use std::future::{Future, pending};
use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use futures_concurrency::prelude::*;
use tokio::sync::oneshot::{Receiver, channel};

use crate::case::Case;
use crate::leaves::{Bell, Hand, Keeps};

pub fn all() -> Vec<fn() -> Case> {
    vec![
        tokio_once_cell,
        std_pending,
        hand_keeps_the_first_waker,
        kanal_send,
        futures_join_all_of_40,
        futures_unordered,
        buffer_unordered,
        for_each_concurrent,
        shared,
        concurrency_join,
        local_set,
    ]
}

async fn hidden(receiver: Receiver<u32>) -> u32 {
    receiver.await.unwrap()
}

fn tokio_once_cell() -> Case {
    let cell = tokio::sync::OnceCell::<u32>::new();
    Case::new(async move {
        cell.get_or_init(pending).await;
    })
}

fn std_pending() -> Case {
    Case::new(async move {
        pending::<()>().await;
    })
}

fn hand_keeps_the_first_waker() -> Case {
    let bell = Arc::new(Bell::default());
    let other = bell.clone();
    Case::new(async move {
        Hand(bell, Keeps::First).await;
    })
    .then(move || other.ring())
}

fn kanal_send() -> Case {
    let (sender, receiver) = kanal::bounded_async(0);
    Case::new(async move {
        sender.send(3).await.unwrap();
    })
    .then(move || assert_eq!(receiver.clone_sync().recv().unwrap(), 3))
}

fn futures_join_all_of_40() -> Case {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..40).map(|_| channel()).unzip();
    Case::new(async move {
        futures::future::join_all(receivers.into_iter().map(hidden)).await; // AWAIT
    })
    .ends_at(["futures_util::future::join_all"])
    .then(move || senders.into_iter().for_each(|sender| sender.send(1).unwrap()))
}

fn futures_unordered() -> Case {
    let (sender, receiver) = channel();
    Case::new(async move {
        let mut tasks = futures::stream::FuturesUnordered::from_iter([hidden(receiver)]);
        tasks.next().await.unwrap(); // AWAIT
    })
    .ends_at(["futures_util::stream::futures_unordered"])
    .then(move || sender.send(1).unwrap())
}

fn buffer_unordered() -> Case {
    let (sender, receiver) = channel();
    Case::new(async move {
        let mut tasks = futures::stream::iter([hidden(receiver)]).buffer_unordered(4);
        tasks.next().await.unwrap(); // AWAIT
    })
    .ends_at(["futures_util::stream::stream::buffer_unordered"])
    .then(move || sender.send(1).unwrap())
}

fn for_each_concurrent() -> Case {
    let (sender, receiver) = channel();
    Case::new(async move {
        let tasks = futures::stream::iter([hidden(receiver)]);
        tasks.for_each_concurrent(4, |task| task.map(drop)).await; // AWAIT
    })
    .ends_at(["futures_util::stream::stream::for_each_concurrent"])
    .then(move || sender.send(1).unwrap())
}

fn shared() -> Case {
    let (sender, receiver) = channel();
    Case::new(async move {
        let shared = hidden(receiver).shared();
        let other = shared.clone();
        shared.await; // AWAIT
        drop(other);
    })
    .ends_at(["futures_util::future::future::shared"])
    .then(move || sender.send(1).unwrap())
}

fn concurrency_join() -> Case {
    let ((first, left), (second, right)) = (channel(), channel());
    Case::new(async move {
        (hidden(left), hidden(right)).join().await; // AWAIT
    })
    .ends_at(["futures_concurrency"])
    .then(move || (first.send(1).unwrap(), second.send(1).unwrap()).1)
}

/// A future that is polled and dropped on the one worker of the runtime. Before its first poll it
/// has only a receiver, which is `Send`.
struct OnOneWorker<F>(F);

// SAFETY: the runtime of the cases has one worker, and the body of a case is polled there only.
unsafe impl<F> Send for OnOneWorker<F> {}

impl<F: Future> Future for OnOneWorker<F> {
    type Output = F::Output;

    fn poll(self: std::pin::Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> std::task::Poll<F::Output> {
        // SAFETY: a projection to the only field, which is never moved.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }.poll(cx) // POINT local
    }
}

fn local_set() -> Case {
    let (sender, receiver) = channel();
    let body = async move {
        let tasks = tokio::task::LocalSet::new();
        tasks.spawn_local(hidden(receiver));
        tasks.await; // AWAIT local
    };
    Case::new(OnOneWorker(body)).ends_at(["tokio::task::local"]).then(move || sender.send(1).unwrap())
}
