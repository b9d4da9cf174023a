//! The list of processes for the console: those that rank highest by a criterion of the query.
//!
//! [`choice`] describes the two steps: choose by a walk through the registry, a few processes under
//! a lock at a time, and read the current values of these. The code runs on the thread of the
//! client, one client at a time.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use volt_telemetry::listing::choice::{self, Choice, Highest};
use volt_telemetry::processes::{Process, ProcessList, Query, Rank, State};
use volt_telemetry::text;
use volt_telemetry::text::contains_ignoring_case;

use crate::entry::{Entry, Home};
use crate::messages::pid::Pid;
use crate::registry::Registry;
use crate::report::info::ProcessInfo;
use crate::state::Lifecycle;

/// The last choice.
#[derive(Default)]
pub(crate) struct Listing(Mutex<Option<Choice<Rank, Chosen>>>);

struct Chosen {
    pids: Vec<Pid>,
    matching: u64,
    is_cut: bool,
}

impl Listing {
    /// Returns the processes of `registry` that `query` selects. The caller has enforced the bounds
    /// of the query.
    pub(crate) fn list<S: Home>(&self, registry: &Registry<Entry<S>>, query: &Query) -> ProcessList {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // Step (1).
        let chosen = match last.take() {
            Some(chosen) if chosen.is_good_for(query, now) => chosen,
            _ => choose(registry, query, now),
        };
        let chosen = &*last.insert(chosen);
        // Step (2).
        let rows = chosen.content.pids.iter().filter_map(|pid| registry.get(*pid)).map(|entry| row(&entry)).collect();
        ProcessList {
            query: chosen.query.clone(),
            rows,
            matching: chosen.content.matching,
            is_cut: chosen.content.is_cut,
            chosen_ago_ns: chosen.ago_ns(now),
            took_ns: chosen.took_ns(),
            ..ProcessList::default()
        }
    }
}

impl fmt::Debug for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}

fn choose<S: Home>(registry: &Registry<Entry<S>>, query: &Query, began: Instant) -> Choice<Rank, Chosen> {
    let wanted = query.filter.to_lowercase();
    let mut highest = Highest::new(query.limit as usize);
    let is_complete = registry.walk(choice::WALK_MAX, |entry| {
        if has(entry, &wanted) {
            let pid = entry.pid();
            highest.offer((query.key(weight(entry, query.rank)), pid), pid);
        }
    });
    let matching = highest.offered();
    let chosen = Chosen { pids: highest.into_rows(), matching, is_cut: !is_complete };
    Choice::of_walk(query.clone(), chosen, began)
}

/// Whether a text that the filter applies to contains `wanted`, which is in lower case.
fn has<S: Home>(entry: &Entry<S>, wanted: &str) -> bool {
    let has = |text: &str| contains_ignoring_case(text, wanted);
    wanted.is_empty()
        || entry.name().is_some_and(has)
        || has(entry.life().kind)
        || has(state_of(entry).name())
        || has(&entry.pid().to_string())
        || has(&text::location(entry.location()))
}

/// Returns the value by which a process is ranked. Must agree with [`Process::weight`].
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
        spawned_at: text::location(entry.location()),
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
