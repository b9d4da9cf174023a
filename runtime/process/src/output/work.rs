//! The outstanding yields of a process, that is, those that have not completed.
//!
//! There are three kinds: futures that run in the task of the process, sends that wait for room in
//! a mailbox, and yields that another thread completes. Each has a number. A cancelled yield loses
//! its number, and its completion is dropped if it arrives later.
//!
//! # Invariants
//!
//! * *ORDER OF SENDS*: a send begins only after all sends that were yielded before it, so that none
//!   overtakes another, whichever mailboxes are full. A call is a separate future, because its
//!   time-out runs from the beginning. It has a *turn* among the sends, which lasts until its
//!   message is in the mailbox.
//! * *BOUNDED*: at most `Output::YIELDS_MAX` are outstanding.
//! * *NOTHING OUTLIVES THE PROCESS*: all of them are dropped with the runner, including sends that
//!   wait for room.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures_util::FutureExt;
use futures_util::future::{AbortHandle, AbortRegistration, Abortable, Aborted};
use futures_util::stream::{FuturesUnordered, Stream};

use crate::messages::event::Event;
use crate::messages::failure::Failure;
use crate::messages::payload::Payload;
use crate::output::Output;
use volt::sync::oneshot;
use volt::time::{Instant, Interval};

type Outcome = Result<Payload, Failure>;
type InTurn = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Job = Pin<Box<dyn Future<Output = (u64, Result<Finished, Aborted>)> + Send>>;

/// The result of a future in [`Work`].
enum Finished {
    Once(Outcome),
    /// The interval has ticked, at the time when the tick was due, and continues.
    Tick(Interval, Instant),
}

/// The outstanding yields of a process. See the module's documentation.
#[derive(Default)]
pub(crate) struct Work {
    /// In no particular order. A poll of the process does not go through all of them:
    /// `running` polls only futures that were woken.
    outstanding: Vec<Outstanding>,
    next_id: u64,
    running: FuturesUnordered<Job>,
    sends: VecDeque<(u64, InTurn)>,
    completed: Vec<Event>,
}

struct Outstanding {
    id: u64,
    tag: u64,
    /// Aborts the future.
    abort: Option<AbortHandle>,
}

impl Work {
    /// Whether a yield is outstanding.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.outstanding.is_empty()
    }

    /// Whether a yielded send waits for room.
    pub(crate) fn is_sending(&self) -> bool {
        !self.sends.is_empty()
    }

    /// Whether the process has not taken all completions.
    pub(crate) fn has_completed(&self) -> bool {
        !self.completed.is_empty()
    }

    /// Moves the completions to `batch`.
    pub(crate) fn take_completed(&mut self, batch: &mut VecDeque<Event>) {
        match self.completed.len() {
            // The usual case, without the cost of `drain`.
            1 => batch.extend(self.completed.pop()),
            _ => batch.extend(self.completed.drain(..)),
        }
    }

    /// Completes a yield with `tag`.
    pub(crate) fn complete(&mut self, tag: u64, result: Outcome) {
        self.completed.push(Event::Completed { tag, result });
    }

    /// Registers a yield with `tag` that another thread will complete. Returns its number.
    pub(crate) fn expect(&mut self, tag: u64) -> u64 {
        self.add(tag, None)
    }

    /// Runs `future`, whose result completes a yield with `tag`.
    pub(crate) fn run(&mut self, tag: u64, future: impl Future<Output = Outcome> + Send + 'static) {
        let (abort, registration) = AbortHandle::new_pair();
        let id = self.add(tag, Some(abort));
        let future = caught(future);
        self.start(id, registration, async { Finished::Once(future.await) });
    }

    /// Completes a yield with `tag` at each tick of `interval`.
    pub(crate) fn repeat(&mut self, tag: u64, interval: Interval) {
        let (abort, registration) = AbortHandle::new_pair();
        let id = self.add(tag, Some(abort));
        self.start(id, registration, next_tick(interval));
    }

    /// Completes a yield with `tag` by running `send` after all earlier sends.
    pub(crate) fn send(&mut self, tag: u64, send: impl Future<Output = Outcome> + Send + 'static) {
        let id = self.add(tag, None);
        self.sends.push_back((id, Box::pin(send)));
    }

    /// Completes a yield with `tag` by running `call`. Its argument resolves when the turn of the
    /// call has come. The call then sends its message, and drops the value to end its turn.
    pub(crate) fn call<F>(&mut self, tag: u64, call: impl FnOnce(oneshot::Receiver<oneshot::Sender<()>>) -> F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let (begins, begun) = oneshot::channel();
        let (sent, is_sent) = oneshot::channel();
        let turn = async move {
            // A call that was dropped earlier has no turn. A call that is dropped during its turn
            // drops `sent`, which ends the turn.
            if begins.send(sent).is_ok() {
                drop(is_sent.await);
            }
            Ok(Payload::empty())
        };
        let id = self.next_id();
        self.sends.push_back((id, Box::pin(turn)));
        let mut call = Box::pin(caught(call(begun)));
        if self.sends.len() == 1 {
            // If there is room, the message enters the mailbox immediately, like that of a send. If
            // not, the call is polled again with a real waker.
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

    /// Whether one more yield may be outstanding. Cancelled sends are not outstanding any more, but
    /// still occupy memory, and count here.
    pub(crate) fn has_room(&self) -> bool {
        self.outstanding.len().max(self.sends.len()) < Output::YIELDS_MAX
    }

    /// Cancels the yields with `tag`: they do not complete. A send among them still takes place,
    /// since it keeps its place in the order.
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

    /// Returns the tag of the yield with number `id`, which has completed; `None` if it was
    /// cancelled.
    pub(crate) fn settle(&mut self, id: u64) -> Option<u64> {
        let place = self.outstanding.iter().position(|outstanding| outstanding.id == id)?;
        Some(self.outstanding.swap_remove(place).tag)
    }

    /// Polls futures and sends. `cx` wakes the process when one of them can make progress.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) {
        self.poll_sends(cx);
        if !self.running.is_empty() {
            self.poll_running(cx);
            // The turn of a call may have ended.
            self.poll_sends(cx);
        }
    }

    fn poll_running(&mut self, cx: &mut Context<'_>) {
        // The number of polls is limited, so that futures that are immediately ready again do not
        // occupy the worker.
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

/// Turns a panic of the future into a failure of the yield.
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
