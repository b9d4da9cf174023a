//! The task of a process. It takes events out of the mailbox, steps the state machine, and starts
//! and polls its yields.
//!
//! An ordinary case: a process waits for messages. A sender puts a message into the mailbox and
//! wakes the task. The poll takes the message (3), calls `step` with it (5), and starts the futures
//! that the step yields (6). Then the process waits again (7).
//!
//! The race: a second message arrives after (3) and before (7). Its sender does not wake the task,
//! but leaves a mark in the state word. Step 7 finds it, and the task is queued again; see `state`.
//!
//! One poll runs at most one step, so that the scheduler's fairness and its counters also apply to
//! processes. A poll does the following:
//!
//! 1. Polls the futures and sends that the process has yielded (`Work::poll`). A completion wakes
//!    the process (E2 of `state`).
//! 2. Changes the state word (`begin`, R1). The result is to step, to exit, or to do nothing.
//! 3. Takes at most `BATCH` events out of the mailbox (R2), if the process accepts any.
//! 4. Runs a pending upgrade, which replaces the state machine, if `init` was called.
//! 5. Steps (R3): `init` the first time, `step` from then on.
//! 6. Dispatches the yields of the step, in order, and polls the futures and sends among them.
//! 7. Drops what the step has left, and changes the state word (`end`, R4). Then the process waits,
//!    or its task is queued again behind other tasks.
//!
//! # A poll for a task dump
//!
//! Its waker records the stack when it is cloned. A process that is an async function steps in such
//! a poll: the step polls the function's future, which clones the waker, and so the dump has the
//! chain of its awaits. The clone is an ordinary waker of the task, and not the process's waker,
//! which makes the process READY first. So from then on each poll of the task does that itself, and
//! no wake-up is lost (`was_traced`). A state machine without an event does not step, because a
//! step may have effects. Its chain ends in [`waits_for_events`] or [`waits_for_yields`].
//!
//! # Invariants
//!
//! * *CLOSED ONCE*: `close` is called exactly once for each process whose `init` was called, even
//!   if `init` failed or the process panicked.
//! * *EXITS ARE REPORTED LAST*: when monitors and links are notified, the state machine, its
//!   futures and its yields have been dropped. The only exception is a process that a shutdown
//!   completes itself (`system::shutdown`, step 5).
//! * *ONE BARRIER*: a panic of any user code in steps 1 to 6, including destructors, is caught in
//!   one place, and becomes the exit reason. What a step leaves, and what an exit drops, has a
//!   barrier for each value: all of them must be dropped, and two panics at the same time abort the
//!   program.
//! * *SCRATCH STAYS*: the buffers of a step belong to the worker thread. A process that waits has
//!   none.

use std::cell::Cell;
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};

use crate::entry::mailbox::Left;
use crate::messages::event::{Event, Events};
use crate::messages::failure::{ExitReason, Failure, dropped};
use crate::messages::payload::Payload;
use crate::output::work::Work;
use crate::output::{Output, Status, Yield};
use crate::state::{Begin, End, Until};
use crate::steps::context::Context;
use crate::steps::machine::Process;
use crate::system::core::Entry;
use volt::sync::oneshot;

/// The maximum number of events per step. It equals the budget of a task, so that a process with a
/// full mailbox occupies its worker for a bounded time.
const BATCH: usize = 128;

/// The task of a process. See the module's documentation.
pub(crate) struct Runner {
    entry: Arc<Entry>,
    process: Box<dyn Process>,
    /// The arguments of `init`, until it is called.
    start: Option<Box<Start>>,
    work: Option<Box<Work>>,
    stage: Stage,
    /// Whether the process is an async function that was polled for a task dump.
    was_traced: bool,
}

/// The arguments of `init`, and the channel that reports its success.
pub(crate) struct Start {
    pub method: &'static str,
    pub input: Payload,
    pub started: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Born,
    Open,
    Closed,
}

/// The result of steps 1 to 6.
enum Turn {
    /// There was no reason to step.
    Rest,
    Stepped(Until),
    Over(ExitReason, Option<Payload>),
    /// A shutdown has completed the process.
    Complete,
}

/// Replaces the state machine of a process that has exited.
struct Exited;

impl Process for Exited {
    fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        Err(Failure::new("the process has exited"))
    }

    fn step(&mut self, _events: Events<'_>, _out: &mut Output) -> Result<(), Failure> {
        Err(Failure::new("the process has exited"))
    }
}

/// The input and output of a step. They are stored outside of the panic barrier, so that their
/// contents are dropped one by one even if the step has panicked.
#[derive(Default)]
struct Scratch {
    events: VecDeque<Event>,
    output: Output,
}

impl Scratch {
    /// Resets the output, drops what a step has left, and shrinks large buffers. Returns the
    /// message of the first destructor that panicked.
    fn clear(&mut self) -> Option<Failure> {
        let Self { events, output } = self;
        let is_left = !events.is_empty() || !output.yields.is_empty() || !output.result.is_empty();
        if is_left || events.capacity().max(output.yields.capacity()) > BATCH {
            return self.clear_rest();
        }
        (output.status, output.has_waker) = Default::default();
        None
    }

    /// The unusual case of `clear`.
    #[cold]
    fn clear_rest(&mut self) -> Option<Failure> {
        let Output { mut yields, result, .. } = std::mem::take(&mut self.output);
        let events = self.events.drain(..).fold(dropped(result), |first, event| first.or(dropped(event)));
        let failure = yields.drain(..).fold(events, |first, left| first.or(dropped(left)));
        self.events.shrink_to(BATCH);
        yields.shrink_to(BATCH);
        self.output.yields = yields;
        failure
    }
}

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

impl Runner {
    pub(crate) fn new(entry: Arc<Entry>, process: Box<dyn Process>, start: Start) -> Self {
        Self { entry, process, start: Some(Box::new(start)), work: None, stage: Stage::Born, was_traced: false }
    }

    /// Steps 1 to 6. `is_traced`: this is a poll for a task dump.
    fn turn(&mut self, cx: &mut TaskContext<'_>, is_traced: bool, scratch: &mut Scratch) -> Turn {
        let takes_events = self.start.is_none() && self.process.takes_events();
        // While there are completions that the process does not accept yet, its futures are not
        // polled. Otherwise an interval would accumulate ticks.
        if let Some(work) = self.work.as_mut().filter(|work| takes_events || !work.has_completed()) {
            work.poll(cx);
            self.entry.set_sending(work.is_sending());
            if takes_events && work.has_completed() {
                // No wake-up is needed: this task is the one to wake, and is being polled.
                let _wakes = self.entry.state.wake();
            }
        }
        if self.start.is_none() && is_traced && self.process.function().is_some() {
            self.was_traced = true;
        }
        if self.was_traced {
            // No wake-up is needed, as above.
            let _wakes = self.entry.state.wake();
        }
        match self.entry.state.begin() {
            Begin::Step => {}
            Begin::Rest => return Turn::Rest,
            Begin::Complete => return Turn::Complete,
            Begin::Exit => {
                let reason = self.entry.life().exit_reason.clone();
                return Turn::Over(reason.map_or(ExitReason::Killed, |reason| *reason), None);
            }
        }
        let left = if takes_events { self.take_events(&mut scratch.events) } else { Left::default() };
        let output = &mut scratch.output;
        if !is_traced {
            self.entry.count_step();
        }
        let is_first = self.start.is_some();
        let result = match self.start.take() {
            Some(start) => {
                self.stage = Stage::Open;
                let Start { method, input, started } = *start;
                let result = self.process.init(&Context::new(self.entry.clone()), method, input);
                if let Some(started) = started.filter(|_| result.is_ok()) {
                    // The process that waits for this may have exited.
                    let _sent = started.send(());
                }
                result
            }
            None => {
                self.upgrade();
                let events = Events::new(&mut scratch.events);
                match self.process.function().filter(|_| is_traced) {
                    Some(function) => function.step_traced(cx, events, output),
                    None => self.process.step(events, output),
                }
            }
        };
        if let Err(failure) = result {
            return Turn::Over(ExitReason::Failed(failure), None);
        }
        if !output.yields.is_empty() {
            self.dispatch(&mut output.yields);
        }
        if output.status == Status::Done {
            let reason = if self.entry.is_cancelled() { ExitReason::Shutdown } else { ExitReason::Normal };
            return Turn::Over(reason, Some(std::mem::take(&mut output.result)));
        }
        let wants_events = self.process.takes_events();
        let mut left = match (wants_events, takes_events) {
            (false, _) => Left::default(),
            (true, true) => left,
            (true, false) => self.entry.mailbox.left(),
        };
        if let Some(work) = &mut self.work {
            if wants_events || !work.has_completed() {
                work.poll(cx);
            }
            self.entry.set_sending(work.is_sending());
            left.has_events |= wants_events && work.has_completed();
        }
        // An upgrade that arrived before `init` was called.
        left.has_events |= is_first && self.entry.life().upgrade.is_some();
        match output.status {
            Status::Continue => Turn::Stepped(Until::Again),
            _ if left.has_events => Turn::Stepped(Until::Again),
            Status::Yield if output.has_waker || self.is_waiting() => Turn::Stepped(Until::Completed),
            Status::Yield => {
                let stuck = Failure::new("it waits for its yields, and has none outstanding");
                Turn::Over(ExitReason::Failed(stuck), None)
            }
            _ if left.has_mail => Turn::Stepped(Until::Again),
            _ => Turn::Stepped(Until::Event),
        }
    }

    fn is_waiting(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.is_waiting())
    }

    /// Step 3. Returns what is left in the mailbox.
    fn take_events(&mut self, events: &mut VecDeque<Event>) -> Left {
        if let Some(work) = &mut self.work {
            work.take_completed(events);
        }
        let before = events.len();
        let left = self.entry.mailbox.drain(events, BATCH);
        // The event of a yield that another thread has completed contains its number: replace it
        // with the tag. Drop the event if the yield was cancelled.
        if let Some(work) = self.work.as_mut().filter(|_| events.len() > before) {
            let mut at = 0;
            events.retain_mut(|event| {
                at += 1;
                match event {
                    Event::Completed { tag, .. } if at > before => match work.settle(*tag) {
                        Some(yielded) => {
                            *tag = yielded;
                            true
                        }
                        None => false,
                    },
                    _ => true,
                }
            });
        }
        left
    }

    /// Step 4.
    fn upgrade(&mut self) {
        if let Some(upgrade) = self.entry.take_upgrade() {
            let (upgrade, waiter) = *upgrade;
            let result = catch_unwind(AssertUnwindSafe(|| upgrade(&mut self.process)));
            let result = result.unwrap_or_else(|panic| Err(Failure::of_panic(panic)));
            drop(waiter.send(result.map(|kind| self.entry.life().kind = kind)));
        }
    }

    /// Step 6.
    fn dispatch(&mut self, yields: &mut VecDeque<Yield>) {
        let work = self.work.get_or_insert_default();
        let handlers = self.entry.system().handlers();
        while let Some(command) = yields.pop_front() {
            handlers.dispatch(&self.entry, work, command);
        }
    }

    /// Ends the process: closes it, drops its state machine and yields, then notifies monitors and
    /// links.
    fn end(&mut self, reason: ExitReason, result: Option<Payload>) {
        let closed = self.close();
        let process = std::mem::replace(&mut self.process, Box::new(Exited));
        let panics = [closed, dropped(self.work.take()), dropped(self.start.take()), dropped(process)];
        let reason = panics.into_iter().flatten().next().map_or(reason, ExitReason::Panicked);
        if self.entry.state.complete() {
            self.entry.end(&reason, result);
        }
    }

    /// Calls `close` if necessary. Returns the message if it panicked.
    fn close(&mut self) -> Option<Failure> {
        let stage = std::mem::replace(&mut self.stage, Stage::Closed);
        if stage != Stage::Open {
            return None;
        }
        catch_unwind(AssertUnwindSafe(|| self.process.close())).err().map(Failure::of_panic)
    }
}

impl Future for Runner {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<()> {
        let is_traced = self.entry.set_waker(cx.waker());
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let turn = catch_unwind(AssertUnwindSafe(|| self.turn(cx, is_traced, &mut scratch)));
        let mut turn = turn.unwrap_or_else(|panic| Turn::Over(ExitReason::Panicked(Failure::of_panic(panic)), None));
        if let (Some(failure), Turn::Stepped(_)) = (scratch.clear(), &turn) {
            turn = Turn::Over(ExitReason::Panicked(failure), None);
        }
        SCRATCH.set(Some(scratch));
        match turn {
            Turn::Rest if is_traced => {
                note_wait(cx, self.is_waiting());
                Poll::Pending
            }
            Turn::Rest => Poll::Pending,
            Turn::Stepped(until) => match self.entry.state.end(until) {
                End::Rest => Poll::Pending,
                End::Again => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                End::Complete => Poll::Ready(()),
            },
            Turn::Over(reason, result) => {
                self.end(reason, result);
                Poll::Ready(())
            }
            Turn::Complete => Poll::Ready(()),
        }
    }
}

/// Records in a task dump that a state machine waits, which awaits nothing itself.
fn note_wait(cx: &TaskContext<'_>, has_yields: bool) {
    if has_yields { waits_for_yields(cx) } else { waits_for_events(cx) }
}

/// Where a state machine without yields ends in a task dump.
#[inline(never)]
fn waits_for_events(cx: &TaskContext<'_>) {
    drop(cx.waker().clone());
}

/// Where a state machine with yields ends in a task dump.
#[inline(never)]
fn waits_for_yields(cx: &TaskContext<'_>) {
    drop(cx.waker().clone());
}

impl Drop for Runner {
    /// Ends the process if its runner is not closed yet. In that case, the task was aborted, the
    /// runtime has shut down, or a shutdown has completed the process.
    fn drop(&mut self) {
        if self.stage != Stage::Closed {
            self.end(ExitReason::Killed, None);
        }
    }
}
