//! The task of a process: takes its events out, steps its state machine, and sees to what it
//! yields.
//!
//! One poll is at most one step, so that the scheduler's fairness and its counts are the processes'
//! too. In a poll:
//! 1. futures and sends that the process has yielded get on (`Work::poll`); what they complete
//!    wakes it (E2);
//! 2. `begin` (R1) says whether it is to step, to end, or was polled for nothing;
//! 3. at most `BATCH` events are taken out (R2), if the process wants any;
//! 4. an upgrade replaces the state machine, once `init` was called;
//! 5. it steps (R3): `init` the first time, `step` from then on;
//! 6. its yields are dispatched, in their order;
//! 7. what the step left is dropped, and `end` (R4) says: it waits, or its task is queued again
//!    behind others.
//!
//! Invariants:
//! * *Closed once*: `close` is called exactly once for each process whose `init` was called, also
//!   when that failed or it panicked.
//! * *Ends told last*: when others are told of an end, the state machine, its futures and what it
//!   had yielded are gone.
//! * *One barrier*: whatever code of the user panics in steps 1 to 6, a destructor too, ends the
//!   process, which says so. An end has one for each thing that it drops, as it has to get through,
//!   and so has what a step leaves: two that panic at once abort the program.
//! * *Scratch stays*: the buffers of a step belong to the worker's thread, not to the process: one
//!   that waits holds none.

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
use crate::state::{Begin, End, Until};
use crate::steps::context::Context;
use crate::steps::machine::Process;
use crate::steps::output::{Output, Status, Yield};
use crate::steps::work::Work;
use crate::system::core::Entry;
use volt::sync::oneshot;

/// Events that a step gets at most: as the budget of a task, so that a process with a full mailbox
/// keeps its worker for a bounded time.
const BATCH: usize = 128;

/// See the header of this file.
pub(crate) struct Runner {
    entry: Arc<Entry>,
    process: Box<dyn Process>,
    /// Until `init` is called.
    start: Option<Box<Start>>,
    work: Option<Box<Work>>,
    stage: Stage,
}

/// What `init` is called with, and who is told that it succeeded.
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

/// What a poll has come to.
enum Turn {
    /// It was polled for nothing.
    Rest,
    Stepped(Until),
    Over(ExitReason, Option<Payload>),
    /// Somebody else has ended it.
    Complete,
}

/// Stands where a state machine was.
struct Gone;

impl Process for Gone {
    fn init(&mut self, _context: &Context, _method: &str, _input: Payload) -> Result<(), Failure> {
        Err(Failure::new("it has ended"))
    }

    fn step(&mut self, _events: Events<'_>, _out: &mut Output) -> Result<(), Failure> {
        Err(Failure::new("it has ended"))
    }
}

/// What a step is given and what it says, outside of the barrier: what it leaves is dropped one by
/// one, also when it has panicked.
#[derive(Default)]
struct Scratch {
    events: VecDeque<Event>,
    output: Output,
}

impl Scratch {
    /// Drops what a step has left, and what a large one has grown. Gives what a destructor panicked
    /// with.
    fn clear(&mut self) -> Option<Failure> {
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
        Self { entry, process, start: Some(Box::new(start)), work: None, stage: Stage::Born }
    }

    /// Steps 1 to 6.
    fn turn(&mut self, cx: &mut TaskContext<'_>, scratch: &mut Scratch) -> Turn {
        let takes_events = self.start.is_none() && self.process.takes_events();
        // What is completed and not wanted yet holds up the rest, or an interval would pile up
        // ticks.
        if let Some(work) = self.work.as_mut().filter(|work| takes_events || !work.has_completed()) {
            work.poll(cx);
            self.entry.set_sending(work.is_sending());
            if takes_events && work.has_completed() {
                // The task is this one, and is being polled.
                let _wakes = self.entry.state.wake();
            }
        }
        match self.entry.state.begin() {
            Begin::Step => {}
            Begin::Rest => return Turn::Rest,
            Begin::Complete => return Turn::Complete,
            Begin::Doomed => {
                let reason = self.entry.life().doom.clone();
                return Turn::Over(reason.map_or(ExitReason::Killed, |reason| *reason), None);
            }
        }
        let left = if takes_events { self.take_events(&mut scratch.events) } else { Left::default() };
        let output = &mut scratch.output;
        self.entry.count_step();
        let is_first = self.start.is_some();
        let result = match self.start.take() {
            Some(start) => {
                self.stage = Stage::Open;
                let Start { method, input, started } = *start;
                let result = self.process.init(&Context::new(self.entry.clone()), method, input);
                if let Some(started) = started.filter(|_| result.is_ok()) {
                    // Who started it may have ended meanwhile.
                    let _told = started.send(());
                }
                result
            }
            None => {
                self.upgrade();
                self.process.step(Events::new(&mut scratch.events), output)
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
        // One that came before `init` was called.
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

    /// Step 3; gives what is left in the mailbox.
    fn take_events(&mut self, events: &mut VecDeque<Event>) -> Left {
        if let Some(work) = &mut self.work {
            work.take_completed(events);
        }
        let before = events.len();
        let left = self.entry.mailbox.drain(events, BATCH);
        // A yield that somebody else completed bears its number; one that was cancelled is not
        // told.
        if let Some(work) = &mut self.work {
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

    /// The process has ended: closes it, drops what it had, then tells everybody.
    fn end(&mut self, reason: ExitReason, result: Option<Payload>) {
        let closed = self.close();
        let process = std::mem::replace(&mut self.process, Box::new(Gone));
        let panics = [closed, dropped(self.work.take()), dropped(self.start.take()), dropped(process)];
        let reason = panics.into_iter().flatten().next().map_or(reason, ExitReason::Panicked);
        if self.entry.state.complete() {
            self.entry.end(&reason, result);
        }
    }

    /// Gives what it panicked with, if it did.
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
        self.entry.set_waker(cx.waker());
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let turn = catch_unwind(AssertUnwindSafe(|| self.turn(cx, &mut scratch)));
        let mut turn = turn.unwrap_or_else(|panic| Turn::Over(ExitReason::Panicked(Failure::of_panic(panic)), None));
        if let (Some(failure), Turn::Stepped(_)) = (scratch.clear(), &turn) {
            turn = Turn::Over(ExitReason::Panicked(failure), None);
        }
        SCRATCH.set(Some(scratch));
        match turn {
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

impl Drop for Runner {
    /// Its task was aborted, or the runtime shut down, if it is open still; or a shutdown has ended
    /// it in the middle of a step.
    fn drop(&mut self) {
        if self.stage != Stage::Closed {
            self.end(ExitReason::Killed, None);
        }
    }
}
