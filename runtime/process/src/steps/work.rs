//! What a process has yielded and is not completed yet.
//!
//! Three kinds: futures that run in the task of the process, sends that wait for room in a mailbox,
//! and yields that somebody else completes. All have a number; a yield that was cancelled has none
//! any more, and its completion, should it still come, is dropped.
//!
//! Invariants:
//! * *Order of sends*: a send begins only when those yielded before it are done, so that none
//!   overtakes another, whatever mailboxes are full. A call is a future of its own, as its time
//!   runs from the first, and stands among the sends with a turn, which is over when its message is
//!   in.
//! * *Bounded*: at most `Output::YIELDS_MAX` are outstanding.
//! * *Nothing outlives the process*: it is all dropped with its runner, a send that waits for room,
//!   too.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable, Aborted};
use futures_util::stream::{FuturesUnordered, Stream};

use crate::messages::event::Event;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::steps::output::Output;
use volt::sync::oneshot;
use volt::time::Interval;

type Outcome = Result<Payload, Failure>;
type InTurn = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Job = Pin<Box<dyn Future<Output = (u64, Result<Finished, Aborted>)> + Send>>;

/// How a future of [`Work`] ended.
enum Finished {
    Once(Outcome),
    /// The interval ticked, when it was due, and goes on.
    Tick(Interval, Instant),
}

/// See the header of this file.
#[derive(Default)]
pub(crate) struct Work {
    /// In no order. What a poll of the process costs does not grow with their number, as each would
    /// be polled for itself only.
    outstanding: Vec<Outstanding>,
    next_id: u64,
    running: FuturesUnordered<Job>,
    sends: VecDeque<(u64, InTurn)>,
    completed: Vec<Event>,
}

struct Outstanding {
    id: u64,
    tag: u64,
    /// Ends its future.
    abort: Option<AbortHandle>,
}

impl Work {
    /// Whether something is outstanding that will complete.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Whether a yielded send waits for room.
    pub(crate) fn is_sending(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Whether a completion waits to be taken.
    pub(crate) fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    /// Takes what was completed.
    pub(crate) fn take_completed(&mut self, batch: &mut VecDeque<Event>) {
        batch.extend(self.completed.drain(..));
    }

    /// A yield with `tag` is completed.
    pub(crate) fn complete(&mut self, tag: u64, result: Outcome) {
        self.completed.push(Event::Completed { tag, result });
    }

    /// Somebody else will complete a yield with `tag`, by the number given.
    pub(crate) fn expect(&mut self, tag: u64) -> u64 {
        self.add(tag, None)
    }

    /// Runs `future` until it completes a yield with `tag`.
    pub(crate) fn run(&mut self, tag: u64, future: impl Future<Output = Outcome> + Send + 'static) {
        let (abort, registration) = AbortHandle::new_pair();
        let id = self.add(tag, Some(abort));
        let future = caught(future);
        self.start(id, registration, async { Finished::Once(future.await) });
    }

    /// Completes a yield with `tag` whenever `interval` ticks.
    pub(crate) fn repeat(&mut self, tag: u64, interval: Interval) {
        let (abort, registration) = AbortHandle::new_pair();
        let id = self.add(tag, Some(abort));
        self.start(id, registration, next_tick(interval));
    }

    /// Completes a yield with `tag` by `send`, once those before it are done.
    pub(crate) fn send(&mut self, tag: u64, send: impl Future<Output = Outcome> + Send + 'static) {
        let id = self.add(tag, None);
        self.sends.push_back((id, Box::pin(send)));
    }

    /// Completes a yield with `tag` by what `call` makes of its turn: it sends its message when the
    /// turn has come, and then drops what that gave.
    pub(crate) fn call<F>(&mut self, tag: u64, call: impl FnOnce(oneshot::Receiver<oneshot::Sender<()>>) -> F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let (begins, begun) = oneshot::channel();
        let (sent, is_sent) = oneshot::channel();
        let turn = async move {
            // A call that was given up before has no turn; one that is given up in it ends it, as
            // `sent` goes with it.
            if begins.send(sent).is_ok() {
                drop(is_sent.await);
            }
            Ok(Payload::empty())
        };
        let id = self.next_id();
        self.sends.push_back((id, Box::pin(turn)));
        let mut call = Box::pin(caught(call(begun)));
        if self.sends.len() == 1 {
            // Its message goes in at once if there is room, as that of a send does. If not, it is
            // polled again with a waker.
            let mut cx = Context::from_waker(Waker::noop());
            self.poll_sends(&mut cx);
            let answered = call.as_mut().poll(&mut cx);
            self.poll_sends(&mut cx);
            if let Poll::Ready(result) = answered {
                return self.complete(tag, result);
            }
        }
        self.run(tag, call);
    }

    /// Whether one more yield may be outstanding. Sends that were cancelled are not any more, but
    /// wait all the same.
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding.len().max(self.sends.len()) < Output::YIELDS_MAX
    }

    /// The yields with `tag` are completed no more. A send among them is made all the same, as its
    /// place in the order is kept.
    pub(crate) fn cancel(&mut self, tag: u64) {
        self.outstanding.retain(|outstanding| {
            if outstanding.tag == tag
                && let Some(abort) = &outstanding.abort
            {
                abort.abort();
            }
            outstanding.tag != tag
        });
        let is_given_up = |event: &Event| matches!(event, Event::Completed { tag: completed, .. } if *completed == tag);
        self.completed.retain(|event| !is_given_up(event));
    }

    /// The tag of the yield with number `id`, which is completed; `None` if it was cancelled.
    pub(crate) fn settle(&mut self, id: u64) -> Option<u64> {
        let place = self.outstanding.iter().position(|outstanding| outstanding.id == id)?;
        Some(self.outstanding.swap_remove(place).tag)
    }

    /// Lets futures and sends get on; `cx` wakes the process when one of them can get further.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        self.poll_sends(cx);
        self.poll_running(cx);
        // The turn of a call may be over.
        self.poll_sends(cx);
    }

    fn poll_running(&mut self, cx: &mut Context<'_>) {
        // As many as there are, so that futures that are ready again at once do not keep the worker
        // here.
        for _ in 0..=self.running.len() {
            let Poll::Ready(Some((id, finished))) = Pin::new(&mut self.running).poll_next(cx) else { return };
            match finished {
                Ok(Finished::Once(result)) => {
                    if let Some(tag) = self.settle(id) {
                        self.complete(tag, result);
                    }
                }
                Ok(Finished::Tick(interval, due)) => self.tick(id, interval, due),
                Err(Aborted) => {}
            }
        }
        cx.waker().wake_by_ref();
    }

    fn poll_sends(&mut self, cx: &mut Context<'_>) {
        while let Some((id, send)) = self.sends.front_mut() {
            let Poll::Ready(result) = send.as_mut().poll(cx) else { break };
            let id = *id;
            self.sends.pop_front();
            if let Some(tag) = self.settle(id) {
                self.complete(tag, result);
            }
        }
    }

    fn tick(&mut self, id: u64, interval: Interval, due: Instant) {
        let (abort, registration) = AbortHandle::new_pair();
        let Some(outstanding) = self.outstanding.iter_mut().find(|outstanding| outstanding.id == id) else { return };
        outstanding.abort = Some(abort);
        let tag = outstanding.tag;
        self.complete(tag, Ok(Payload::new(due)));
        self.start(id, registration, next_tick(interval));
    }

    fn start(
        &mut self,
        id: u64,
        registration: AbortRegistration,
        future: impl Future<Output = Finished> + Send + 'static,
    ) {
        let future = Abortable::new(future, registration);
        self.running.push(Box::pin(async move { (id, future.await) }));
    }

    fn next_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    fn add(&mut self, tag: u64, abort: Option<AbortHandle>) -> u64 {
        let id = self.next_id();
        self.outstanding.push(Outstanding { id, tag, abort });
        id
    }
}

/// Its panic fails the yield, as its handler's would.
fn caught(future: impl Future<Output = Outcome> + Send) -> impl Future<Output = Outcome> + Send {
    let future = AssertUnwindSafe(future).catch_unwind();
    async { future.await.unwrap_or_else(|panic| Err(Failure::of_panic(panic))) }
}

async fn next_tick(mut interval: Interval) -> Finished {
    let due = interval.tick().await;
    Finished::Tick(interval, due)
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Work").field("outstanding", &self.outstanding.len()).finish_non_exhaustive()
    }
}
