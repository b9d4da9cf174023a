//! Futures made of futures: `select!`, `join!`, streams, timeouts, recursion.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::oneshot as other_oneshot;
use futures::{FutureExt, StreamExt};
use futures_concurrency::prelude::*;
use tokio::sync::oneshot::{Receiver, Sender, channel};

use crate::case::Case;

pub fn all() -> Vec<fn() -> Case> {
    vec![
        futures_select,
        futures_join,
        futures_join_function,
        futures_select_function,
        futures_join_all,
        futures_join_all_of_20,
        tokio_select,
        tokio_join,
        tokio_task_local,
        tokio_unconstrained,
        tokio_timeout,
        stream_merge,
        async_stream_macro,
        async_trait_method,
        recursive,
        generic_over_several_lines,
        concurrency_race,
        async_executor_run,
        tower_buffer_call,
        tower_buffer_ready,
    ]
}

const OPERATION: &str = "tokio::sync::oneshot";

async fn left(receiver: Receiver<u32>) -> u32 {
    receiver.await.unwrap() // POINT left
}

async fn right(receiver: Receiver<u32>) -> u32 {
    receiver.await.unwrap() // POINT right
}

/// The senders and receivers of two channels.
struct Two {
    senders: (Sender<u32>, Sender<u32>),
    receivers: (Receiver<u32>, Receiver<u32>),
}

impl Two {
    fn new() -> Self {
        let (first, second) = (channel(), channel());
        Self { senders: (first.0, second.0), receivers: (first.1, second.1) }
    }
}

/// Sends to both. A receiver may have been dropped.
fn send(senders: (Sender<u32>, Sender<u32>)) {
    let _was_received = (senders.0.send(1), senders.1.send(1));
}

/// Sends to the first, and keeps the second open.
fn send_first(senders: (Sender<u32>, Sender<u32>)) {
    senders.0.send(1).unwrap();
    std::mem::forget(senders.1);
}

fn futures_select() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        let (left, right) = (left(receivers.0).fuse(), right(receivers.1).fuse());
        futures::pin_mut!(left, right);
        futures::select! { _ = left => {}, _ = right => {} } // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send_first(senders))
}

fn futures_join() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        futures::join!(left(receivers.0), right(receivers.1)); // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send(senders))
}

fn futures_join_function() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        futures::future::join(left(receivers.0), right(receivers.1)).await; // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send(senders))
}

fn futures_select_function() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        let (left, right) = (Box::pin(left(receivers.0)), Box::pin(right(receivers.1)));
        futures::future::select(left, right).await; // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send_first(senders))
}

fn futures_join_all() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        let both = [left(receivers.0).boxed(), right(receivers.1).boxed()];
        futures::future::join_all(both).await; // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send(senders))
}

fn futures_join_all_of_20() -> Case {
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..20).map(|_| channel()).unzip();
    Case::new(async move {
        futures::future::join_all(receivers.into_iter().map(left)).await; // AWAIT left
    })
    .ends_at([OPERATION])
    .then(move || senders.into_iter().for_each(|sender| sender.send(1).unwrap()))
}

fn tokio_select() -> Case {
    let Two { senders, receivers: (first, second) } = Two::new();
    Case::new(async move {
        tokio::select! { _ = left(first) => {}, _ = right(second) => {} } // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send_first(senders))
}

fn tokio_join() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        tokio::join!(left(receivers.0), right(receivers.1)); // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send(senders))
}

tokio::task_local! {
    static NUMBER: u32;
}

fn tokio_task_local() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        NUMBER.scope(1, left(receivers.0)).await; // AWAIT left
    })
    .ends_at([OPERATION])
    .then(move || send(senders))
}

fn tokio_unconstrained() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        tokio::task::unconstrained(left(receivers.0)).await; // AWAIT left
    })
    .ends_at([OPERATION])
    .then(move || send(senders))
}

fn tokio_timeout() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        tokio::time::timeout(Duration::from_secs(60), left(receivers.0)).await.unwrap(); // AWAIT left
    })
    .ends_at([OPERATION, "tokio::time::timeout"])
    .then(move || send(senders))
}

fn stream_merge() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        let (left, right) = (futures::stream::once(left(receivers.0)), futures::stream::once(right(receivers.1)));
        let mut both = Box::pin(tokio_stream::StreamExt::merge(left, right));
        StreamExt::next(&mut both).await.unwrap(); // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send_first(senders))
}

fn async_stream_macro() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        let stream = async_stream::stream! {
            let number = left(receivers.0).await; // AWAIT left
            yield number;
        };
        futures::pin_mut!(stream);
        stream.next().await.unwrap(); // AWAIT
    })
    .ends_at([OPERATION])
    .then(move || send(senders))
}

#[async_trait::async_trait]
trait Waits {
    async fn wait(&self, receiver: Receiver<u32>) -> u32;
}

struct Plainly;

#[async_trait::async_trait]
impl Waits for Plainly {
    async fn wait(&self, receiver: Receiver<u32>) -> u32 {
        receiver.await.unwrap() // POINT method
    }
}

fn async_trait_method() -> Case {
    let (sender, receiver) = channel();
    let waits: Box<dyn Waits + Send + Sync> = Box::new(Plainly);
    Case::new(async move {
        waits.wait(receiver).await; // AWAIT method
    })
    .ends_at([OPERATION])
    .then(move || sender.send(1).unwrap())
}

fn deeper(receiver: Receiver<u32>, depth: u32) -> Pin<Box<dyn Future<Output = u32> + Send>> {
    Box::pin(async move {
        if depth == 0 {
            receiver.await.unwrap() // POINT deepest
        } else {
            deeper(receiver, depth - 1).await + 1 // POINT deeper
        }
    })
}

fn recursive() -> Case {
    let (sender, receiver) = channel();
    Case::new(async move {
        deeper(receiver, 3).await; // AWAIT deeper deepest
    })
    .ends_at([OPERATION])
    .then(move || sender.send(1).unwrap())
}

#[rustfmt::skip]
async fn generic<F: Future<Output = Result<u32, E>>, E: std::fmt::Debug>(future: F, number: u32) -> u32 {
    let result = future
        .await; // POINT generic
    result.unwrap() + number
}

#[rustfmt::skip]
fn generic_over_several_lines() -> Case {
    let (sender, receiver) = channel();
    Case::new(async move {
        let number = generic(
            receiver,
            3,
        )
        .await; // AWAIT generic
        assert_eq!(number, 4);
    })
    .ends_at([OPERATION])
    .then(move || sender.send(1).unwrap())
}

fn concurrency_race() -> Case {
    let Two { senders, receivers } = Two::new();
    Case::new(async move {
        (left(receivers.0), right(receivers.1)).race().await; // AWAIT left right
    })
    .ends_at([OPERATION; 2])
    .then(move || send_first(senders))
}

fn async_executor_run() -> Case {
    let (sender, receiver) = other_oneshot::channel::<()>();
    Case::new(async move {
        let executor = async_executor::Executor::new();
        let task = executor.spawn(receiver);
        executor.run(task).await.unwrap(); // AWAIT
    })
    // The task of the inner executor has its own waker, so its chain is not shown.
    .ends_at(["async_executor"])
    .then(move || sender.send(()).unwrap())
}

type Answer = Pin<Box<dyn Future<Output = Result<u32, tower::BoxError>> + Send>>;
type Buffer = tower::buffer::Buffer<u32, Answer>;

/// A service behind a buffer for one request. It responds when it is notified.
fn buffer(notify: Arc<tokio::sync::Notify>) -> (Buffer, impl Future<Output = ()> + Send + 'static) {
    let service = tower::service_fn(move |_request: u32| {
        let notify = notify.clone();
        async move {
            notify.notified().await; // POINT answer
            Ok::<u32, tower::BoxError>(1)
        }
    });
    let limited = tower::ServiceBuilder::new().concurrency_limit(1).service(service);
    tower::buffer::Buffer::pair(tower::util::BoxService::new(limited), 1)
}

fn tower_buffer_call() -> Case {
    let notify = Arc::new(tokio::sync::Notify::new());
    let (mut buffer, worker) = buffer(notify.clone());
    Case::new(async move {
        volt::spawn(worker);
        let ready = tower::ServiceExt::ready(&mut buffer).await.unwrap();
        tower::Service::call(ready, 3).await.unwrap(); // AWAIT answer
    })
    // The worker has handed over the future of the service.
    .ends_at(["tokio::sync::notify"])
    .then(move || notify.notify_one())
}

fn tower_buffer_ready() -> Case {
    let notify = Arc::new(tokio::sync::Notify::new());
    let (mut buffer, worker) = buffer(notify.clone());
    let (sender, receiver) = channel::<()>();
    volt::spawn(async move {
        receiver.await.unwrap();
        worker.await;
    });
    Case::new(async move {
        let ready = tower::ServiceExt::ready(&mut buffer).await.unwrap();
        let _first = tower::Service::call(ready, 1);
        tower::ServiceExt::ready(&mut buffer).await.unwrap(); // AWAIT
    })
    .ends_at(["tower::"])
    .then(move || sender.send(()).unwrap())
}
