//! Lists the tasks of a runtime one by one: those that rank highest by the criterion of a query.
//!
//! The console and other observers call this on their own threads, one at a time. A request takes
//! these steps:
//! 1. Read from the workers' cells which tasks are being polled.
//! 2. Choose: walk through the registry, a few tasks under a lock at a time, and keep the ids and
//!    places of the highest-ranking ones, as many as requested.
//! 3. Look each of these up, and read its header.
//!
//! The choice of (2) is reused for a while; [`choice`] describes how long, and the bounds.
//!
//! The registry contains the tasks that have waited once, or have a name. For a task in its first
//! poll only the data that its worker exposes is available. Tasks that wait in a queue for their
//! first poll are only counted.
//!
//! No worker takes the lock of this file, and the locks of the registry's shards are held for a few
//! tasks.
//!
//! Rejected: lists made from the tasks that changed since the last list: each change would have to
//! be recorded.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use volt_telemetry::InFlight;
use volt_telemetry::listing::choice::{self, Choice, Highest};
use volt_telemetry::listing::order;
use volt_telemetry::processes::ProcessList;
use volt_telemetry::tasks::{Query, Rank, State, Task, TaskList};
use volt_telemetry::text;

use self::task_filter::{TaskFilter, state_of};
use super::shared::Shared;
use crate::clock;
use crate::scheduler::ends::Ends;
use crate::scheduler::readers::chosen::Chosen;
use crate::scheduler::readers::holders::{Holders, is_for_others};
use crate::task::header::{Header, Place};

pub(super) mod task_filter;
mod why;

/// The current poll of a worker.
pub(super) struct Poll {
    worker: u32,
    pub(super) poll: InFlight,
}

impl Shared {
    /// Returns the tasks that match `query`.
    pub(crate) fn list_tasks(&self, query: &Query) -> TaskList {
        let query = query.bounded();
        let mut last = self.readers.listing.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (now, now_ns) = (Instant::now(), clock::now_ns());
        // Protocol (1).
        let polls = self.polls(now_ns);
        // Protocol (2).
        let choice = match last.take() {
            Some(choice) if choice.is_good_for(&query, now) => choice,
            _ => self.choose(query, &polls, now, now_ns),
        };
        let choice = &*last.insert(choice);
        let (query, chosen) = (&choice.query, &choice.content);
        // Protocol (3).
        let now_ns = clock::now_ns();
        let look_up = |(id, place): &(u64, Place)| {
            self.workers.registry.look_up(*id, *place, |task| row(task.header(), polls.get(id), now_ns))
        };
        let mut rows: Vec<Task> = chosen.places.iter().filter_map(look_up).collect();
        let in_first = polls.values().filter(|poll| chosen.first_polls.contains(&poll.poll.task_id));
        let first_polls: Vec<Task> = in_first.map(of_first_poll).collect();
        let seen = chosen.walked + first_polls.len() as u64;
        let mut task_filter = TaskFilter::new(&query.filter);
        let matching_first = first_polls.into_iter().filter(|task| task_filter.has_task(task));
        let before = rows.len();
        rows.extend(matching_first);
        let matching = chosen.matching + (rows.len() - before) as u64;
        order::sort_by_key(&mut rows, |task| (query.key(task.weight(query.rank)), task.id));
        rows.truncate(query.limit as usize);
        let holders = self.holders_for(rows.iter().map(|row| row.awaits.as_deref()));
        rows.iter_mut().for_each(|row| holders.add_to(row, now_ns, &self.workers.registry));
        let ([completed, cancelled, panicked], [inside, outside]) = self.count_tasks();
        TaskList {
            runtime: self.identity.name.clone(),
            at_ns: now_ns,
            query: query.clone(),
            rows,
            alive: (inside + outside).saturating_sub(completed + cancelled + panicked),
            seen,
            matching,
            is_cut: chosen.is_cut,
            chosen_ago_ns: choice.ago_ns(Instant::now()),
            took_ns: choice.took_ns(),
        }
    }

    /// Returns the holders of the locks that tasks await, for tasks that await these. The edges to
    /// tasks whose JoinHandles are awaited are included if one of these tasks may await one.
    fn holders_for<'a>(&self, mut awaits: impl Iterator<Item = Option<&'a str>>) -> Holders {
        match awaits.any(is_for_others) {
            true => Holders::with(self.readers.deadlocks.joins(&self.workers.registry)),
            false => Holders::new(),
        }
    }

    /// Returns the processes that match `query`, with the data of their tasks' current polls.
    pub(crate) fn list_processes(&self, query: &volt_telemetry::processes::Query) -> ProcessList {
        let mut list = self.readers.processes.list(&query.bounded());
        let now_ns = clock::now_ns();
        let polls = self.polls(now_ns);
        for process in &mut list.rows {
            let poll = process.task.and_then(|task| polls.get(&task));
            process.in_poll_ns = poll.map(|poll| poll.poll.for_ns);
            process.busy_ns = process.busy_ns.map(|busy_ns| busy_ns + process.in_poll_ns.unwrap_or(0));
        }
        list.sort();
        ProcessList { runtime: self.identity.name.clone(), at_ns: now_ns, ..list }
    }

    /// Returns the current polls, by the ids of their tasks.
    pub(super) fn polls(&self, now_ns: u64) -> HashMap<u64, Poll> {
        let of = |(worker, remote): (usize, &std::sync::Arc<super::remote::Remote>)| {
            let (poll, _) = remote.cells.in_flight(now_ns)?;
            Some((poll.task_id, Poll { worker: worker as u32, poll }))
        };
        self.workers.remotes_in_use().iter().enumerate().filter_map(of).collect()
    }

    fn choose(
        &self,
        query: Query,
        polls: &HashMap<u64, Poll>,
        began: Instant,
        began_at_ns: u64,
    ) -> Choice<Rank, Chosen> {
        let mut task_filter = TaskFilter::new(&query.filter);
        let mut first_polls: HashSet<u64> = polls.keys().copied().collect();
        let mut walked = 0;
        let mut highest = Highest::new(query.limit as usize);
        let is_complete = self.workers.registry.walk(choice::WALK_MAX, |header| {
            walked += 1;
            let id = header.id.as_u64();
            let poll = if header.state.is_idle() { None } else { polls.get(&id) };
            if poll.is_some() {
                first_polls.remove(&id);
            }
            if task_filter.has(header, poll.is_some()) {
                let rank = rank_in(header, poll, query.rank, began_at_ns);
                highest.offer((query.key(rank), id), (id, header.place()));
            }
        });
        let matching = highest.offered();
        let chosen = Chosen { places: highest.into_rows(), first_polls, walked, matching, is_cut: !is_complete };
        Choice::of_walk(query, chosen, began)
    }
}

/// Returns the rank of a task, from its header.
fn rank_in(header: &Header, poll: Option<&Poll>, rank: Rank, now_ns: u64) -> u64 {
    let balance = header.account.read();
    let in_poll_ns = poll.map_or(0, |poll| poll.poll.for_ns);
    match rank {
        Rank::Busy => balance.busy_ns + in_poll_ns,
        Rank::Longest => balance.longest_ns.max(in_poll_ns),
        Rank::Polls => balance.polls,
        Rank::Delay => balance.delay_ns,
        Rank::Woken => now_ns.saturating_sub(header.submitted_at_ns()),
        Rank::Wakers => header.state.wakers(),
        Rank::Age => now_ns.saturating_sub(header.born_at_ns()),
        _ => header.id.as_u64(),
    }
}

fn row(header: &Header, poll: Option<&Poll>, now_ns: u64) -> Task {
    let (balance, wake) = (header.account.read(), header.last_wake());
    let poll = poll.filter(|_| !header.state.is_idle());
    let in_poll_ns = poll.map(|poll| poll.poll.for_ns);
    let awaits = if header.state.is_idle() { header.awaits() } else { None };
    let by = if wake.is_spawn { "spawn" } else { wake.by.name() };
    Task {
        id: header.id.as_u64(),
        name: header.name().map(str::to_owned),
        spawned_at: text::location(header.location()),
        state: state_of(header, poll.is_some()),
        worker: poll.map(|poll| poll.worker),
        in_poll_ns,
        polls: Some(balance.polls),
        busy_ns: Some(balance.busy_ns + in_poll_ns.unwrap_or(0)),
        longest_ns: Some(balance.longest_ns.max(in_poll_ns.unwrap_or(0))),
        delay_ns: Some(balance.delay_ns),
        age_ns: Some(now_ns.saturating_sub(header.born_at_ns())),
        woken_ago_ns: Some(now_ns.saturating_sub(wake.at_ns)),
        woken_by: Some(by.to_owned()),
        waker_task: wake.task,
        awaits: awaits.map(|(what, _)| what.name().to_owned()),
        awaits_at: awaits.and_then(|(_, at)| Some(text::location(at?))),
        wakers: Some(header.state.wakers()),
        ..Task::default()
    }
}

fn of_first_poll(poll: &Poll) -> Task {
    Task {
        id: poll.poll.task_id,
        name: poll.poll.task_name.clone(),
        spawned_at: poll.poll.spawned_at.clone(),
        state: State::Polled,
        worker: Some(poll.worker),
        in_poll_ns: Some(poll.poll.for_ns),
        ..Task::default()
    }
}
