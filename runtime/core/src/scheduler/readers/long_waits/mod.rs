//! Finds waits that are far longer than usual at their line: the data behind the rule
//! `waiting-forever`.
//!
//! A *line* is an await of `volt::sync` that has recorded itself (`task::details::awaits`). What is
//! usual at a line is learned by observation: a walk through the registry draws a sample of the
//! tasks that wait there, and the next walk checks which of these waits have ended, and how old
//! they were. Tasks and workers do nothing for it.
//!
//! An ordinary case: tasks that await a lock at some line usually get it within 30 ms. A walk draws
//! a sample of them. At the next walk these waits have ended, and were at most 30 ms old. One more
//! task has waited there for ten minutes: its line is reported.
//!
//! Protocol of a check, which each snapshot includes:
//! 1. If the last walk is recent, only report again: (5).
//! 2. For each task of the samples, read when it was submitted last. If that is the same time as in
//!    the sample, it still waits. Otherwise the wait has ended, and its age is counted.
//! 3. Walk through the registry. For each task that waits at a line, count it, and draw the new
//!    sample: each task has the same chance.
//! 4. Keep the task of each line that has waited longest.
//! 5. Report the lines whose longest wait exceeds `LONG_NS` and the ended ones by `TIMES_LONGER`,
//!    if that task still waits.
//!
//! An ended wait counts with the age that it had when it was last seen. That is too low by the time
//! between two walks at most. No walk is made while the program is idle, or if walks take long. A
//! wait that may have ended in such a gap counts with the longest time that it may have lasted, so
//! that a gap can hide a long wait, but cannot make one up.
//!
//! Only waits that one event ends are judged. Their task has one waker: a socket, a timer, or
//! another branch of a `select!` would have another one. An AbortHandle is a reference, too, and
//! hides the task. Waits for a message, a notification or room are not judged, since an idle
//! consumer or producer waits for them, nor are those for the end of a task, which may serve a
//! client for hours.
//!
//! Bounds: `LINES_MAX` lines with `SAMPLE` tasks each; lines beyond are ignored until others have
//! no tasks and no ended waits. With more than `TASKS_MAX` tasks nothing is reported. The result of
//! a walk is reused for `REST` times the processor time that it took. No worker takes the lock of
//! this file.
//!
//! Rejected: recording the duration of each wait when it ends. It takes a clock reading and an
//! entry in a table for each wait, a tenth of what a message costs.

use std::collections::HashMap;
use std::panic::Location;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use volt_telemetry::listing::order;
use volt_telemetry::text;
use volt_telemetry::waits::{LongWait, MAX_LONG_WAITS};

use super::census::processor_ns;
use crate::scheduler::core::rng::FastRand;
use crate::task::details::awaits::Awaits;
use crate::task::header::{Header, Place};
use crate::task::registry::Registry;

/// How many tasks are walked through: half a second, if none of them is in a cache.
const TASKS_MAX: usize = 4_000_000;
/// A walk is reused for this multiple of the processor time that it took.
const REST: u64 = 200;
/// The number of lines of which waits are counted.
const LINES_MAX: usize = 512;
/// The number of tasks of a line that are checked for the end of their wait.
const SAMPLE: usize = 16;
/// If a wait may have ended later than this after it was seen, its age then is no measure of its
/// duration.
const GAP_MAX_NS: u64 = 5_000_000_000;
/// The least duration of a wait that is reported. The doctor waits for longer.
const LONG_NS: u64 = 10_000_000_000;
/// By which multiple it exceeds the ended ones. The doctor requires more.
const TIMES_LONGER: u64 = 10;

/// The waits that the walks through a runtime have seen.
#[derive(Default)]
pub(crate) struct LongWaits(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    lines: HashMap<Key, Line>,
    walked_at_ns: u64,
    /// Until then no other walk is made.
    good_until_ns: u64,
}

/// The kind of the await, and the address of its location.
type Key = (Awaits, usize);

/// The waits at a line.
struct Line {
    at: &'static Location<'static>,
    /// The number of waits that were seen to end, and the age of the longest.
    ended: u64,
    longest_ended_ns: u64,
    /// The number of tasks that waited at the last walk.
    waiting: usize,
    oldest: Option<Waiting>,
    sample: Vec<Waiting>,
}

/// A task that waits.
#[derive(Clone, Copy)]
struct Waiting {
    id: u64,
    place: Place,
    since_ns: u64,
}

impl LongWaits {
    /// Makes one check: see the module documentation.
    pub(crate) fn check(&self, registry: &Registry, now_ns: u64) -> Vec<LongWait> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ns >= seen.good_until_ns {
            let began_ns = processor_ns();
            seen.walk(registry, now_ns);
            let busy_ns = processor_ns().saturating_sub(began_ns);
            seen.good_until_ns = now_ns + REST.saturating_mul(busy_ns);
        }
        seen.report(registry, now_ns)
    }
}

impl Seen {
    /// Protocol (2) to (4).
    fn walk(&mut self, registry: &Registry, now_ns: u64) {
        let walked_at_ns = std::mem::replace(&mut self.walked_at_ns, now_ns);
        self.lines.retain(|_, line| {
            line.count_ended(registry, walked_at_ns, now_ns);
            line.ended > 0 || line.waiting > 0
        });
        for line in self.lines.values_mut() {
            (line.waiting, line.oldest) = (0, None);
        }
        let mut rng = FastRand::new(now_ns, 0);
        let is_complete = registry.walk(TASKS_MAX, |header| {
            let Some((awaits, at, waiting)) = judged(header) else { return };
            let (key, has_room) = ((awaits, ptr::from_ref(at).addr()), self.lines.len() < LINES_MAX);
            if has_room || self.lines.contains_key(&key) {
                self.lines.entry(key).or_insert_with(|| Line::new(at)).see(waiting, &mut rng);
            }
        });
        if !is_complete {
            self.lines.clear();
        }
    }

    /// Protocol (5).
    fn report(&self, registry: &Registry, now_ns: u64) -> Vec<LongWait> {
        let mut long: Vec<_> = self
            .lines
            .iter()
            .filter_map(|((awaits, _), line)| {
                let oldest = line.oldest?;
                let waiting_ns = now_ns.saturating_sub(oldest.since_ns);
                let is_long = line.ended > 0 && waiting_ns >= LONG_NS;
                (is_long && waiting_ns / TIMES_LONGER >= line.longest_ended_ns)
                    .then_some((waiting_ns, *awaits, line, oldest))
            })
            .collect();
        order::sort_by_key(&mut long, |(waiting_ns, .., oldest)| (std::cmp::Reverse(*waiting_ns), oldest.id));
        long.truncate(MAX_LONG_WAITS);
        let of = |(waiting_ns, awaits, line, oldest): (u64, Awaits, &Line, Waiting)| {
            let (name, spawned_at) = registry.look_up(oldest.id, oldest.place, |task| {
                let header = task.header();
                let still_waits = header.submitted_at_ns() == oldest.since_ns;
                still_waits.then(|| (header.name().map(str::to_owned), text::location(header.location())))
            })??;
            Some(LongWait {
                awaits: awaits.name().to_owned(),
                awaits_at: text::location(line.at),
                waiting: line.waiting as u64,
                waiting_ns,
                task: oldest.id,
                name,
                spawned_at,
                ended: line.ended,
                longest_ended_ns: line.longest_ended_ns,
            })
        };
        long.into_iter().filter_map(of).collect()
    }
}

impl Line {
    fn new(at: &'static Location<'static>) -> Self {
        Self { at, ended: 0, longest_ended_ns: 0, waiting: 0, oldest: None, sample: Vec::new() }
    }

    /// Protocol (2).
    fn count_ended(&mut self, registry: &Registry, walked_at_ns: u64, now_ns: u64) {
        for waiting in std::mem::take(&mut self.sample) {
            let submitted_at_ns = registry.look_up(waiting.id, waiting.place, |task| task.header().submitted_at_ns());
            if submitted_at_ns == Some(waiting.since_ns) {
                continue;
            }
            let ended_by_ns = submitted_at_ns.unwrap_or(now_ns);
            let is_gap = ended_by_ns.saturating_sub(walked_at_ns) > GAP_MAX_NS;
            let until_ns = if is_gap { ended_by_ns } else { walked_at_ns };
            self.ended += 1;
            self.longest_ended_ns = self.longest_ended_ns.max(until_ns.saturating_sub(waiting.since_ns));
        }
    }

    /// Protocol (3) and (4).
    fn see(&mut self, waiting: Waiting, rng: &mut FastRand) {
        self.waiting += 1;
        if self.oldest.is_none_or(|oldest| waiting.since_ns < oldest.since_ns) {
            self.oldest = Some(waiting);
        }
        if self.sample.len() < SAMPLE {
            self.sample.push(waiting);
            return;
        }
        if let Some(place) = self.sample.get_mut(rng.below(self.waiting)) {
            *place = waiting;
        }
    }
}

/// Returns what a task waits for, if that is judged.
fn judged(header: &Header) -> Option<(Awaits, &'static Location<'static>, Waiting)> {
    let is_alone = || header.state.is_idle() && header.state.wakers() == 1;
    if !is_alone() {
        return None;
    }
    let since_ns = header.submitted_at_ns();
    let (awaits, at) = header.awaits()?;
    let is_of_one_event = match awaits {
        Awaits::Lock | Awaits::Permits | Awaits::Value => true,
        Awaits::Notice | Awaits::Message | Awaits::Room | Awaits::Others => false,
    };
    // The task may have been polled in between.
    let is_same = is_alone() && header.submitted_at_ns() == since_ns;
    let waiting = Waiting { id: header.id.as_u64(), place: header.place(), since_ns };
    (is_of_one_event && is_same).then_some((awaits, at?, waiting))
}

#[cfg(test)]
mod tests;
