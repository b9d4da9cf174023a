//! Rings of tasks, connected by channels of little room: each value must arrive once, in order.

use std::sync::Arc;
use std::time::Duration;

use volt::Handle;
use volt::sync::{mpsc, oneshot};

use crate::part::{Part, pause};
use crate::random::Random;

const RINGS: u64 = 4;
const TASKS: usize = 16;
const PAUSE_MAX: Duration = Duration::from_millis(4);

pub(super) fn start(runtime: &Handle, part: &Arc<Part>) {
    for ring in 0..RINGS {
        drop(runtime.spawn(lap(part.clone(), ring)));
        drop(runtime.spawn(replies(part.clone(), ring)));
    }
}

/// Sends numbers through a ring of tasks, some of them behind each other, and checks their order.
async fn lap(part: Arc<Part>, seed: u64) {
    let mut random = Random::new(seed);
    let (first, mut from) = mpsc::channel::<u64>(1);
    for place in 1..TASKS {
        let (to, next) = mpsc::channel(1 + place % 3);
        let mut before = std::mem::replace(&mut from, next);
        drop(volt::spawn(async move {
            while let Some(number) = before.recv().await {
                // The next task returns only after this one.
                if to.send(number).await.is_err() {
                    return;
                }
            }
        }));
    }
    let mut number = 0;
    while !part.is_over() {
        let sent = 1 + random.below(8);
        for value in number..number + sent {
            part.verify(first.send(value).await.is_ok(), "a ring is broken");
        }
        for value in number..number + sent {
            let got = from.recv().await;
            part.verify(got == Some(value), format_args!("{got:?} arrived instead of {value}"));
        }
        number += sent;
        pause(&mut random, PAUSE_MAX).await;
    }
}

/// Requests with a reply channel each. Some requesters give up; then the server sees that.
async fn replies(part: Arc<Part>, seed: u64) {
    let mut random = Random::new(!seed);
    let (requests, mut inbox) = mpsc::unbounded_channel::<(u64, oneshot::Sender<u64>)>();
    drop(volt::spawn(async move {
        while let Some((number, reply)) = inbox.recv().await {
            // A requester that gave up has dropped the receiver.
            let _ = reply.send(number + 1);
        }
    }));
    while !part.is_over() {
        let number = random.below(1 << 32);
        let (reply, answer) = oneshot::channel();
        part.verify(requests.send((number, reply)).is_ok(), "the server has ended");
        if random.below(4) > 0 {
            let got = answer.await;
            part.verify(got == Ok(number + 1), format_args!("the answer to {number} is {got:?}"));
        }
        pause(&mut random, PAUSE_MAX).await;
    }
}
