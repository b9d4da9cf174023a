//! The processes of a system one by one, for whoever asks: those that rank highest by what it asks
//! for.
//!
//! Protocol of an answer. (1) Choose: walk through the registry, a few processes under a lock at a
//! time, and keep the pids of the highest, as many as are wanted. (2) Look each of these up, and
//! read it. What was chosen in (1) stands for a while, so that who asks often gets new numbers of
//! the same processes, and the program pays for few walks.
//!
//! Who reads: whoever asks, on its own thread; one at a time. Bounds: `PROCESSES_MAX` processes are
//! read; a walk stands for `REST` times as long as it took if the same is asked again, and for
//! `REST_OF_ANOTHER` times if something else is, as `scheduler::listing` does it for tasks: askers,
//! however many, take a two-hundredth of a processor, and a tenth while somebody changes the
//! question as fast as that.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use volt_telemetry::processes::{Process, ProcessList, Query, Rank, State};

use crate::entry::{Entry, Home};
use crate::messages::pid::Pid;
use crate::registry::Registry;
use crate::report::info::ProcessInfo;
use crate::state::Lifecycle;

/// Processes that are walked through.
const PROCESSES_MAX: usize = 4_000_000;
/// See the header of this file.
const REST: u32 = 200;
const REST_OF_ANOTHER: u32 = 10;

/// What was chosen last.
#[derive(Default)]
pub(crate) struct Listing(Mutex<Option<Chosen>>);

struct Chosen {
    query: Query,
    pids: Vec<Pid>,
    matching: u64,
    is_cut: bool,
    at: Instant,
    took: Duration,
}

impl Chosen {
    /// Whether `query` is answered by it.
    fn is_good_for(&self, query: &Query, now: Instant) -> bool {
        let rest = if self.query == *query { REST } else { REST_OF_ANOTHER };
        now < self.at + self.took + self.took.saturating_mul(rest)
    }
}

impl Listing {
    /// The processes of `registry` that `query` asks for; its bounds are kept already.
    pub(crate) fn list<S: Home>(&self, registry: &Registry<Entry<S>>, query: &Query) -> ProcessList {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // Protocol (1).
        let chosen = match last.take() {
            Some(chosen) if chosen.is_good_for(query, now) => chosen,
            _ => choose(registry, query, now),
        };
        let chosen = &*last.insert(chosen);
        // Protocol (2).
        let rows = chosen.pids.iter().filter_map(|pid| registry.get(*pid)).map(|entry| row(&entry)).collect();
        ProcessList {
            query: chosen.query.clone(),
            rows,
            matching: chosen.matching,
            is_cut: chosen.is_cut,
            chosen_ago_ns: now.duration_since(chosen.at).as_nanos() as u64,
            took_ns: chosen.took.as_nanos() as u64,
            ..ProcessList::default()
        }
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}

fn choose<S: Home>(registry: &Registry<Entry<S>>, query: &Query, began: Instant) -> Chosen {
    let wanted = query.filter.to_lowercase();
    let limit = query.limit as usize;
    let mut matching = 0;
    // The lowest of the highest on top.
    let mut highest = BinaryHeap::with_capacity(limit + 1);
    let is_complete = registry.walk(PROCESSES_MAX, |entry| {
        if !has(entry, &wanted) {
            return;
        }
        matching += 1;
        let weight = weight(entry, query.rank);
        let weight = if query.is_inverted { !weight } else { weight };
        let ranked = Reverse((weight, Reverse(entry.pid())));
        if highest.len() < limit || highest.peek().is_some_and(|lowest| ranked < *lowest) {
            highest.push(ranked);
            if highest.len() > limit {
                highest.pop();
            }
        }
    });
    Chosen {
        query: query.clone(),
        pids: highest.into_iter().map(|Reverse((_, Reverse(pid)))| pid).collect(),
        matching,
        is_cut: !is_complete,
        at: began,
        took: began.elapsed(),
    }
}

/// Whether the process has `wanted`, in lower case, in what the filter reads.
fn has<S: Home>(entry: &Entry<S>, wanted: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(wanted);
    wanted.is_empty()
        || entry.name().is_some_and(has)
        || has(entry.life().kind)
        || has(state_of(entry).name())
        || has(&entry.pid().to_string())
        || has(&entry.location().to_string())
}

/// What ranks a process, as [`Process::weight`] of its row.
fn weight<S: Home>(entry: &Entry<S>, rank: Rank) -> u64 {
    match rank {
        Rank::Mailbox => entry.mailbox.depth().messages.into(),
        Rank::Peak => entry.mailbox.depth().high_water.into(),
        Rank::Lost => entry.mailbox.depth().dropped,
        Rank::Steps => entry.steps(),
        Rank::Busy => busy_ns(entry).unwrap_or(0),
        _ => u64::MAX - entry.pid().number(),
    }
}

fn busy_ns<S: Home>(entry: &Entry<S>) -> Option<u64> {
    entry.task().map(|task| task.busy_time().as_nanos() as u64)
}

fn state_of<S: Home>(entry: &Entry<S>) -> State {
    match entry.state.lifecycle() {
        Lifecycle::Ready => State::Ready,
        Lifecycle::Running => State::Running,
        Lifecycle::Blocked => State::Blocked,
        Lifecycle::Idle => State::Idle,
        Lifecycle::Complete => State::Complete,
    }
}

fn row<S: Home>(entry: &Entry<S>) -> Process {
    let info = ProcessInfo::of(entry);
    Process {
        pid: info.pid.to_string(),
        number: info.pid.number(),
        name: info.name,
        kind: info.kind.to_owned(),
        spawned_at: entry.location().to_string(),
        state: state_of(entry),
        mailbox_len: info.mailbox_len as u64,
        mailbox_high_water: info.mailbox_high_water as u64,
        mailbox_capacity: info.mailbox_capacity as u64,
        messages_lost: info.dropped,
        steps: info.steps,
        busy_ns: busy_ns(entry),
        in_poll_ns: None,
        parent: info.parent.map(|parent| parent.to_string()),
        links: info.link_count as u64,
        monitors: info.monitor_count as u64,
        task: info.task.map(|task| task.as_u64()),
    }
}
