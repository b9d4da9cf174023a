//! The state machine of a running supervisor.
//!
//! An ordinary case: a child fails, under `OneForOne`. Its `Down` event arrives, and its back-off
//! becomes the deadline of the alarm. When the alarm fires, the child is put into `to_start` and
//! started. Once its `init` has returned, it is up.
//!
//! The race: a child exits while it waits in `to_end` to be cancelled. Its `Down` event removes it
//! from `to_end`, and counts as the exit that was requested, not as another failure, which would
//! restart the group once more.
//!
//! Each step first takes its events, which change what has to be done. Then it does what is
//! possible now (`settle`):
//!
//! 1. A child whose `init` has returned is marked as up.
//! 2. Children in `to_end` are cancelled, the last first, each after the one before has exited
//!    (`end_next`).
//! 3. Children in `to_start` are started, the first first, each after the `init` of the one before
//!    has returned (`start_next`). At most [`STARTS_MAX`] starts are tried; the others follow in
//!    the next step.
//! 4. The alarm is set to the earliest deadline: a back-off that ends, or a child that must be
//!    killed.
//!
//! The supervisor is notified of an exit by a monitor, which exists before the child's first step
//! and which the child cannot remove. Children are also linked with the supervisor, so that they
//! exit when it does. It ignores `Event::Exit`, except from its parent.
//!
//! # Invariants
//!
//! * *ONE START AT A TIME*, so that children start in order.
//! * *GROUPS DO NOT MIX*: under `OneForAll` and `RestForOne`, no child is started while another one
//!   is ending or the pause of the group lasts (`hold`).
//! * *ONE ALARM*: there is one yielded sleep, however many children wait, since the yields of a
//!   process are bounded.
//! * *STEPS END*: a child that cannot be started and has no pause fails as often as it is tried,
//!   and must not keep the supervisor from its events.
//! * *NO WAY BACK*: once `stop` is set, no child is started, and every child is in `to_end` or
//!   ending.
//!
//! # Rejected
//!
//! Ending a child by the command `terminate`, which waits and kills in a future. That would be one
//! yield per child, and a second way in which an exit is reported.

use std::collections::BTreeSet;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::Duration;

use super::child_spec::Restart;
use super::control::{Refusal, Request};
use super::restart::{Backoff, Intensity};
use super::roster::{Live, Phase, Roster, Seq};
use super::tree::{Strategy, Supervisor};
use crate::messages::event::{Event, Message, Reply};
use crate::messages::failure::{ExitReason, Failure};
use crate::messages::payload::Payload;
use crate::messages::pid::Pid;
use crate::output::{Output, Status};
use crate::steps::context::Context;
use fastrand::Rng;
use volt::sync::oneshot;
use volt::time::Instant;

/// The tag of the alarm.
const ALARM: u64 = 0;
/// The most starts that are tried in one step.
const STARTS_MAX: usize = 128;
/// Longer pauses are cut to this, 30 years, so that their end is an instant.
const PAUSE_MAX: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The state machine of a running supervisor. See the module's documentation.
pub(super) struct Running {
    context: Context,
    waker: Waker,
    strategy: Strategy,
    backoff: Backoff,
    intensity: Intensity,
    random: Rng,
    roster: Roster,
    to_start: BTreeSet<Seq>,
    starting: Option<Seq>,
    to_end: BTreeSet<Seq>,
    ending: usize,
    /// The end of the group's pause. Under `OneForAll` and `RestForOne`, no child is started
    /// before.
    hold: Option<Instant>,
    alarm: Option<Instant>,
    stop: Option<Stop>,
    /// Notifies the supervisor above when the initial children have been started, or wait for a
    /// pause to end.
    started: Option<oneshot::Sender<()>>,
}

/// Why the supervisor ends.
enum Stop {
    Requested,
    Failed(Failure),
}

impl Running {
    /// Creates the state machine from `plan`. If there is a supervisor above, `input` is the
    /// channel by which that is notified.
    pub(super) fn new(plan: Supervisor, context: &Context, input: Payload) -> Result<Self, Failure> {
        let mut roster = Roster::default();
        let mut to_start = BTreeSet::new();
        for spec in plan.children {
            let seq = roster
                .add(spec, false, None)
                .map_err(|(spec, _)| Failure::new(format_args!("two children have the id {:?}", spec.id())))?;
            to_start.insert(seq);
        }
        let seed = RandomState::new().hash_one(context.pid());
        Ok(Running {
            context: context.clone(),
            waker: context.waker(),
            strategy: plan.strategy,
            backoff: plan.backoff,
            intensity: Intensity::new(plan.restarts_max, plan.window),
            random: Rng::with_seed(seed),
            roster,
            to_start,
            starting: None,
            to_end: BTreeSet::new(),
            ending: 0,
            hold: None,
            alarm: None,
            stop: None,
            started: input.downcast().ok(),
        })
    }

    /// Handles an event.
    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Message(message) => self.answer(message),
            Event::Completed { tag: ALARM, .. } => {
                self.alarm = None;
                self.ring();
            }
            Event::Down { monitor, reason, .. } => {
                if let Some(seq) = self.roster.unwatch(monitor) {
                    self.ended(seq, reason);
                }
            }
            Event::Exit { pid, .. } if Some(pid) == self.context.parent() => self.stop(Stop::Requested),
            Event::Cancel => self.stop(Stop::Requested),
            _ => {}
        }
    }

    fn answer(&mut self, message: Message) {
        let (Some(reply), Ok(request)) = (message.reply, message.payload.downcast::<Request>()) else { return };
        match request {
            Request::List => reply.send(Payload::new(self.roster.list())),
            Request::Start(_) if self.stop.is_some() => refuse::<Pid>(reply, Refusal::Ending),
            Request::Start(spec) => match self.roster.add(spec, true, Some(reply)) {
                Ok(seq) => _ = self.to_start.insert(seq),
                Err((spec, reply)) => {
                    let refusal = Refusal::Duplicate(spec.id().to_owned());
                    reply.into_iter().for_each(|reply| refuse::<Pid>(reply, refusal.clone()));
                }
            },
            Request::Terminate(id) => match self.roster.by_id(&id) {
                Some(seq) => {
                    if let Some(child) = self.roster.get(seq) {
                        child.is_leaving = true;
                        child.terminators.push(reply);
                    }
                    // While the supervisor stops, the child keeps its place in the order of
                    // `to_end`.
                    if self.stop.is_none() {
                        self.to_end.remove(&seq);
                        self.end(seq);
                    }
                }
                None => refuse::<ExitReason>(reply, Refusal::NoChild(id)),
            },
        }
    }

    /// Handles the deadlines that have passed.
    fn ring(&mut self) {
        let now = Instant::now();
        if self.hold.is_some_and(|hold| hold <= now) {
            self.hold = None;
        }
        while let Some(seq) = self.roster.pop_due(now) {
            match self.roster.get(seq).map(|child| &child.phase) {
                Some(Phase::Ending(live)) => {
                    tracing::warn!(target: "volt::process", supervisor = %self.context.pid(), child = %live.pid, "a child did not exit in time and is killed");
                    self.context.system().kill(live.pid);
                }
                Some(Phase::Down) => _ = self.to_start.insert(seq),
                _ => {}
            }
        }
    }

    /// Handles the exit of a child's process.
    fn ended(&mut self, seq: Seq, reason: ExitReason) {
        self.began();
        if self.starting == Some(seq) {
            self.starting = None;
        }
        let was_to_end = self.to_end.remove(&seq);
        self.roster.set_deadline(seq, None);
        let Some(child) = self.roster.get(seq) else { return };
        let phase = std::mem::replace(&mut child.phase, Phase::Down);
        let was_ending = matches!(phase, Phase::Ending(_));
        self.ending -= usize::from(was_ending);
        if child.is_leaving {
            self.forget(seq, reason);
        } else if was_ending || was_to_end {
            // Its group is being restarted.
            self.to_start.insert(seq);
        } else if !child.spec.restart().follows(&reason) || child.starter.is_some() {
            self.forget(seq, reason);
        } else if self.context.system().is_stopping() {
            // The system is shutting down: it has cancelled all processes, this child before its
            // supervisor.
            self.stop(Stop::Requested);
        } else {
            let lived = if let Phase::Up(_, since) = phase {
                Some(Instant::now().saturating_duration_since(since))
            } else {
                None
            };
            self.restart(seq, &reason, lived);
        }
    }

    /// Schedules the restart of a child that has failed.
    fn restart(&mut self, seq: Seq, reason: &ExitReason, lived: Option<Duration>) {
        let now = Instant::now();
        let random = self.random.f64();
        let is_admitted = self.intensity.admit(now);
        let Some(child) = self.roster.get(seq) else { return };
        let id = child.spec.id().to_owned();
        if !is_admitted {
            let (max, window) = (self.intensity.max, self.intensity.window);
            let why = format!("more than {max} restarts within {window:?}, the last of {id:?}: {reason}");
            tracing::error!(target: "volt::process", supervisor = %self.context.pid(), child = id, "a supervisor gives up: {why}");
            return self.stop(Stop::Failed(Failure::new(why)));
        }
        child.failures = self.backoff.failures(child.failures, lived);
        child.restarts += 1;
        let pause = self.backoff.pause(child.failures, random);
        self.context.count_restart();
        let supervisor = self.context.pid();
        tracing::warn!(target: "volt::process", %supervisor, child = id, %reason, pause_ms = pause.as_millis() as u64, "a child exited and is restarted after a pause");
        let at = (!pause.is_zero()).then(|| now + pause.min(PAUSE_MAX));
        if self.strategy == Strategy::OneForOne {
            match at {
                Some(at) => self.roster.set_deadline(seq, Some(at)),
                None => _ = self.to_start.insert(seq),
            }
            return;
        }
        self.hold = self.hold.max(at);
        self.to_start.insert(seq);
        for other in self.roster.seqs() {
            let is_taken_along = other > seq || (other < seq && self.strategy == Strategy::OneForAll);
            if let Some(child) = self.roster.get(other).filter(|child| is_taken_along && child.live().is_some()) {
                child.is_leaving |= child.spec.restart() == Restart::Temporary;
                if !matches!(child.phase, Phase::Ending(_)) {
                    self.to_end.insert(other);
                }
            }
        }
    }

    fn stop(&mut self, stop: Stop) {
        if self.stop.is_some() {
            return;
        }
        self.stop = Some(stop);
        self.hold = None;
        for seq in self.roster.seqs() {
            let Some(child) = self.roster.get(seq) else { continue };
            child.is_leaving = true;
            match child.phase {
                Phase::Down => self.forget(seq, ExitReason::NoProcess),
                Phase::Ending(_) => {}
                _ => _ = self.to_end.insert(seq),
            }
        }
    }

    /// Does everything that is possible now.
    pub(super) fn settle(&mut self, out: &mut Output) -> Result<(), Failure> {
        self.began();
        self.end_next();
        if (0..STARTS_MAX).all(|_| self.start_next()) {
            out.set_status(Status::Continue);
        }
        // Do not let the supervisor above wait for the pause of a group: it does not depend on
        // these children.
        if (self.to_start.is_empty() || self.hold.is_some())
            && self.starting.is_none()
            && let Some(started) = self.started.take()
        {
            // The supervisor above may have exited.
            let _sent = started.send(());
        }
        match &self.stop {
            Some(Stop::Requested) if self.roster.is_empty() => out.done(),
            Some(Stop::Failed(failure)) if self.roster.is_empty() => return Err(failure.clone()),
            _ => self.set_alarm(out),
        }
        Ok(())
    }

    /// Marks the child that is starting as up if its `init` has returned.
    fn began(&mut self) {
        let Some(child) = self.starting.and_then(|seq| self.roster.get(seq)) else { return };
        let Phase::Starting(live, started) = &mut child.phase else { return };
        let live = *live;
        let Some(receiver) = started else { return };
        match Pin::new(receiver).poll(&mut TaskContext::from_waker(&self.waker)) {
            Poll::Pending => {}
            // `init` has failed. The `Down` event that follows contains the reason.
            Poll::Ready(Err(_dropped)) => *started = None,
            Poll::Ready(Ok(())) => {
                child.phase = Phase::Up(live, Instant::now());
                self.starting = None;
                if let Some(starter) = child.starter.take() {
                    starter.send(Payload::new(Ok::<_, Refusal>(live.pid)));
                }
            }
        }
    }

    fn end_next(&mut self) {
        while let Some(&last) = self.to_end.last() {
            let has_no_order =
                self.strategy == Strategy::OneForOne && self.roster.get(last).is_some_and(|child| child.is_added);
            if self.ending > 0 && !has_no_order {
                return;
            }
            self.to_end.remove(&last);
            self.end(last);
        }
    }

    /// Cancels a child, or removes it if it has no process.
    fn end(&mut self, seq: Seq) {
        let Some(child) = self.roster.get(seq) else { return };
        let live = match child.phase {
            Phase::Ending(_) => return,
            Phase::Down => return self.forget(seq, ExitReason::NoProcess),
            Phase::Starting(live, _) | Phase::Up(live, _) => live,
        };
        child.phase = Phase::Ending(live);
        let limit = child.spec.limit(live.is_supervisor);
        if self.starting == Some(seq) {
            self.starting = None;
        }
        self.ending += 1;
        self.context.system().cancel(live.pid);
        self.roster.set_deadline(seq, limit.and_then(|limit| Instant::now().checked_add(limit)));
    }

    /// Starts the first child in `to_start`, if that is allowed now. Returns false if it is not.
    fn start_next(&mut self) -> bool {
        let is_held =
            self.strategy != Strategy::OneForOne && (self.hold.is_some() || self.ending > 0 || !self.to_end.is_empty());
        if self.starting.is_some() || is_held {
            return false;
        }
        let Some(seq) = self.to_start.pop_first() else { return false };
        let Some(child) = self.roster.get(seq) else { return true };
        let made = catch_unwind(AssertUnwindSafe(|| child.spec.make()));
        let failure = match made {
            Ok(Some(mut spawn)) => {
                let (started, is_started) = oneshot::channel();
                let is_supervisor = spawn.is_supervisor;
                if is_supervisor {
                    // A supervisor sends this notification itself, when its children have started.
                    spawn.input = Payload::new(started);
                } else {
                    spawn.started = Some(started);
                }
                match self.context.spawn_monitored(spawn.link()) {
                    Ok((pid, monitor)) => {
                        child.phase = Phase::Starting(Live { pid, is_supervisor }, Some(is_started));
                        self.starting = Some(seq);
                        self.roster.watch(seq, monitor);
                        self.began();
                        return true;
                    }
                    Err(error) if error.is_shut_down() => {
                        self.stop(Stop::Requested);
                        return false;
                    }
                    Err(error) => ExitReason::Failed(Failure::from(error)),
                }
            }
            Ok(None) => ExitReason::Failed(Failure::new("a temporary child is started only once")),
            Err(panic) => ExitReason::Panicked(Failure::of_panic(panic)),
        };
        if child.starter.is_some() || !child.spec.restart().follows(&failure) {
            self.forget(seq, failure);
        } else {
            self.restart(seq, &failure, None);
        }
        true
    }

    /// Removes a child, and replies to the requests that wait for it.
    fn forget(&mut self, seq: Seq, reason: ExitReason) {
        self.to_start.remove(&seq);
        let Some(child) = self.roster.remove(seq) else { return };
        if let Some(starter) = child.starter {
            let why = Failure::new(&reason);
            refuse::<Pid>(starter, Refusal::NotStarted { id: child.spec.id().to_owned(), why });
        }
        for terminator in child.terminators {
            terminator.send(Payload::new(Ok::<_, Refusal>(reason.clone())));
        }
    }

    fn set_alarm(&mut self, out: &mut Output) {
        let next = self.hold.into_iter().chain(self.roster.next_deadline()).min();
        let Some(next) = next.filter(|&next| self.alarm.is_none_or(|alarm| next < alarm)) else { return };
        out.cancel(ALARM);
        out.sleep(ALARM, next.saturating_duration_since(Instant::now()));
        self.alarm = Some(next);
    }
}

fn refuse<T: Send + 'static>(reply: Reply, refusal: Refusal) {
    reply.send(Payload::new(Err::<T, Refusal>(refusal)));
}
