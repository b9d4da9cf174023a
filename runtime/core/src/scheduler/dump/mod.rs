//! The task dump: finds out where every waiting task of a runtime waits.
//!
//! A future that waits has no stack. Its chain of awaits exists only while it is polled. So a dump
//! polls each waiting task once, with a *traced* waker: when a future clones it to be woken later,
//! the stack of the thread is copied. That stack leads from the task's function through the
//! functions that it awaits to the operation that is pending, for futures of any library.
//!
//! Such a poll is allowed at any time by the contract of `Future`; `select!` and `join!` poll
//! futures that were not woken all the time. A task that can make progress in it makes progress.
//!
//! # One ordinary case
//!
//! A console requests a dump. The observer starts a thread, which lists the waiting tasks and
//! spawns a *batch* ([`batch`]): a task of the runtime that polls the first of these tasks, one
//! after the other, in its own polls. After each of its polls, a *slice*, it sends the stacks to
//! the thread, which unwinds them meanwhile. When the batch has ended, the thread spawns the next
//! one. It groups equal stacks, resolves each group once ([`chain`]), unites groups with the same
//! chain ([`groups`]), and replies.
//!
//! # The race
//!
//! A task may be woken, cancelled or dropped at any time between the listing and its poll. The
//! batch *claims* each task by a transition of the task word (`task::state`), from IDLE to
//! SCHEDULED. Only a task that waits can be claimed. From then on the batch is the task's runner,
//! as a worker that has taken the task from a queue is, and wake-ups are recorded in the word as
//! during any poll.
//!
//! # Protocol
//!
//! 1. List (`select`): walk through the registry, and keep the id, the place and the last wake-up
//!    of each task that waits and may match the query.
//! 2. Spawn a batch for the next [`BATCH`] of these tasks; it runs on a worker, or on the thread
//!    that drives a current-thread runtime, so that futures that are not `Send` stay on it.
//! 3. The batch polls its tasks. After [`batch::SLICE`] it sends the slice, and yields. A task that
//!    was not claimed has progressed.
//! 4. Unwind the slice's stacks, and add each task to the group with its stacks, and to the
//!    primitives that it awaits (`resources`).
//! 5. After the last batch, or at the limit (`readers::limit`), resolve the groups, keep those that
//!    match the filter, add the holders of the awaited locks (`locks`), and the tasks that are
//!    being polled.
//!
//! The futures of `block_on` are not tasks. Their own threads poll them for the dump at the same
//! time, by the protocol of `readers::main_futures` ([`block_on`]).
//!
//! # Invariants
//!
//! * *Once*: a task is polled at most once for a dump.
//! * *One at a time*: a runtime makes one dump at a time, and the next request waits for it
//!   (`readers::turn`).
//! * *Never while closing*: a batch stops when the runtime shuts down.
//! * *Bounded*: at most `MAX_TASKS` tasks are polled, and the stacks of at most [`RESOLVED_MAX`]
//!   groups resolved. The thread waits at most [`TIMEOUT`] for a slice, and [`TIME_MAX`] for all
//!   of them. The dump contains the slices until then.
//! * *A wait stays as old as it is*: a poll for a dump is no wake-up, so it does not change when,
//!   or by what, the task was woken last.
//!
//! # Limits
//!
//! Futures that poll a child only when the child's own waker was called (`FuturesUnordered`,
//! `JoinSet` of other libraries) hide their children: the chain ends at them. Volt's `LocalSet`
//! polls its waiting tasks for the dump, so they are branches of the chain of the future that runs
//! it.
//!
//! A future that keeps its first waker copies nothing in a later poll. The clone that a future
//! makes is the task's ordinary waker, so `will_wake` between the clone and the traced waker
//! returns false, which its contract allows. A future that keeps a list of wakers without
//! duplicates by `will_wake` therefore gains an entry for each dump. A `select!` with random order
//! takes a random number in each poll.
//!
//! Rejected: waking each task, and tracing its next poll. The wake-up overwrites the cause of the
//! last one, the poll counts a delay from it, and each poll would have to check whether it is
//! traced. Also rejected: unwinding on the worker, which takes ten times longer than the copy.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use volt_stacks::{Calls, Recorded, Resolver, Tape};
use volt_telemetry::dump::{Dump, Group, Link, MAX_GROUPS, Query, TaskRef};
use volt_telemetry::listing::order;
use volt_telemetry::text;
use volt_telemetry::text::counted;

use self::batch::{Batch, Target, Traced};
use self::groups::{Found, Key, Shown, Stacks};
use self::locks::Locks;
use self::resources::Primitives;
use self::select::{Listed, Selection};
use super::ends::Ends;
use super::readers::limit::{Limit, TIME_MAX};
use super::readers::turn::NoTurn;
use super::shared::Shared;
use crate::clock;
use crate::task::details::awaits::Awaits;
use crate::task::resources::Noted;

mod batch;
mod block_on;
mod chain;
mod locks;
mod resources;
mod running;
mod select;

mod groups;

/// The number of tasks in a batch.
const BATCH: usize = 128;
/// How long a dump waits for a slice of a batch before it gives up. Workers that are stuck are
/// replaced much sooner.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The number of groups whose stacks are resolved at most: half a second.
const RESOLVED_MAX: usize = 10_000;

/// The remark of a dump that was cancelled.
const CANCELLED: &str = "the dump was cancelled";

/// Why a group has no chain.
const NO_WAKER: &str = "no waker registered: nothing can wake it, or its future keeps its first waker";
/// Why a part of a chain is missing.
const LEFT_OUT: &str = "it waits for more operations than are shown";

impl Shared {
    /// Makes a dump of the tasks that match `query`, within `limit`. Blocks for as long as it
    /// takes, so it is called by plain threads only, never by one that polls tasks.
    pub(crate) fn dump(self: &Arc<Self>, query: &Query, limit: &Limit) -> Dump {
        let turn = self.readers.dumps.take(limit);
        let began_at_ns = clock::now_ns();
        let mut dump = Dump { runtime: self.identity.name.clone(), at_ns: began_at_ns, ..Dump::default() };
        let mut turn = match turn {
            Ok(turn) => turn,
            Err(why) => {
                dump.remarks.push(remark_without_turn(why).to_owned());
                return dump;
            }
        };
        let mut maker = Maker::new(self, query, limit, turn.resolver(), dump);
        let requested = maker.request_block_on();
        maker.poll_all();
        maker.add_block_on(requested);
        maker.finish()
    }
}

fn remark_without_turn(why: NoTurn) -> &'static str {
    match why {
        NoTurn::Full => "too many dumps of this runtime are in progress: try again later",
        NoTurn::Late => "other dumps of this runtime took all of the time: try again later",
        NoTurn::Cancelled => CANCELLED,
    }
}

/// The chain of a group, the errors for the remarks, and the tasks.
type Resolved = (Vec<Link>, Vec<String>, Found);

/// A dump that is being made.
struct Maker<'a> {
    shared: &'a Arc<Shared>,
    query: &'a Query,
    selection: Selection<'a>,
    limit: &'a Limit,
    began_at_ns: u64,
    resolver: &'a mut Resolver,
    groups: HashMap<Key, Found>,
    primitives: Primitives,
    /// The number of tasks that match only if their chain does, which is not known.
    unread: u64,
    dump: Dump,
}

impl<'a> Maker<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        query: &'a Query,
        limit: &'a Limit,
        resolver: &'a mut Resolver,
        dump: Dump,
    ) -> Self {
        Self {
            shared,
            query,
            selection: Selection::new(query),
            limit,
            began_at_ns: dump.at_ns,
            resolver,
            groups: HashMap::new(),
            primitives: Primitives::default(),
            unread: 0,
            dump,
        }
    }

    /// Protocol (1) to (4).
    fn poll_all(&mut self) {
        let Listed { registered, targets, chosen, unread } =
            self.selection.list(&self.shared.workers.registry, self.began_at_ns);
        // Before the dump spawns its own tasks. At least those that were seen: tasks may have
        // ended since.
        let ([completed, cancelled, panicked], [inside, outside]) = self.shared.count_tasks();
        let counted = (inside + outside).saturating_sub(completed + cancelled + panicked);
        (self.dump.alive, self.dump.waiting, self.unread) = (counted.max(registered), chosen, unread);
        let queued: usize = self.shared.workers.remotes_in_use().iter().map(|remote| remote.queued()).sum();
        self.dump.queued = (self.shared.workers.injector.len() + queued) as u64;
        if !self.query.polls {
            targets.iter().for_each(|target| self.add(target, Stacks::default(), Noted::default()));
            return;
        }
        let is_all = self.query.task.is_none() && unread == 0;
        let is_all = is_all && targets.iter().filter(|target| target.is_chosen).count() as u64 == chosen;
        let shared = self.shared;
        // Each one is spawned when it is taken from here.
        let mut batches = targets.chunks(BATCH).map(|targets| Batch::spawn(shared, targets));
        let mut next = batches.next();
        while let Some(batch) = &mut next {
            let timeout = self.limit.left().min(TIMEOUT);
            if timeout.is_zero() || self.limit.is_cancelled() {
                return self.end_early();
            }
            let slice = match batch.next(timeout) {
                Ok(slice) => slice,
                Err(error) => {
                    let polled = batch.polled();
                    return self.give_up(error, polled);
                }
            };
            if batch.is_complete() {
                // Polled while this thread unwinds.
                next = batches.next();
            }
            slice.into_iter().for_each(|traced| self.take(traced));
        }
        self.primitives.is_complete = is_all;
    }

    /// The dump was cancelled, or its time is over.
    fn end_early(&mut self) {
        let remark = if self.limit.is_cancelled() {
            CANCELLED.to_owned()
        } else {
            let polled = self.dump.read + self.dump.progressed;
            format!(
                "the dump ended after {TIME_MAX:?}, with {polled} of {} tasks polled: select fewer tasks, as with --filter or --sample",
                self.dump.waiting
            )
        };
        self.dump.remarks.push(remark);
    }

    /// The batch made no progress. `polled` is the task that it polls.
    fn give_up(&mut self, error: RecvTimeoutError, polled: Option<u64>) {
        if error == RecvTimeoutError::Timeout && self.limit.left().is_zero() {
            return self.end_early();
        }
        let remark = match (error, polled) {
            (RecvTimeoutError::Timeout, Some(id)) => {
                format!("the poll of task #{id} for this dump did not end within {TIMEOUT:?}, so the dump ended early")
            }
            (RecvTimeoutError::Timeout, None) if self.shared.workers.is_undriven() => {
                "no thread drives this current-thread runtime now, so its tasks cannot be polled".to_owned()
            }
            (RecvTimeoutError::Timeout, None) => {
                format!("no worker polled the dump's own task within {TIMEOUT:?}: see what the running tasks do")
            }
            (RecvTimeoutError::Disconnected, _) => "the runtime is shutting down".to_owned(),
        };
        self.dump.remarks.push(remark);
    }

    /// Protocol (4).
    fn take(&mut self, traced: Traced) {
        let Traced { target, still_waits, recorded, resources } = traced;
        if !still_waits {
            self.dump.progressed += u64::from(target.is_chosen);
            return;
        }
        let stacks = self.unwind(&recorded);
        self.add(&target, stacks, resources);
    }

    fn unwind(&mut self, recorded: &Recorded) -> Stacks {
        let marker = Tape::marker();
        let mut stacks = Stacks { left_out: recorded.left_out > 0, ..Stacks::default() };
        for stack in &recorded.stacks {
            let calls = self.resolver.calls(stack, marker);
            match stacks.calls.iter().position(|known| *known == calls) {
                Some(at) => stacks.times[at] += 1,
                None => {
                    stacks.calls.push(calls);
                    stacks.times.push(1);
                }
            }
        }
        stacks
    }

    fn add(&mut self, target: &Target, stacks: Stacks, awaited: Noted) {
        let Stacks { calls, times, left_out } = stacks;
        let key = Key { spawned_at: target.spawned_at, stacks: calls, awaits: target.awaits, left_out };
        let waiting_ns = self.began_at_ns.saturating_sub(target.since_ns);
        let found = self.groups.entry(key).or_insert_with(|| Found { times, ..Found::default() });
        let members = if target.is_chosen { &mut found.chosen } else { &mut found.others };
        if target.awaits.is_some_and(|(what, _)| matches!(what, Awaits::Lock | Awaits::Permits)) {
            members.lockers.push(target.id);
        }
        members.resources.add(awaited, target.since_ns, target.id, &mut self.primitives);
        members.add(TaskRef { id: target.id, name: None, waiting_ns });
    }

    /// Protocol (5).
    fn finish(mut self) -> Dump {
        let Some(mut shown) = self.resolve() else { return self.dump };
        order::sort_by_key(&mut shown, |(_, (.., found))| found.rank());
        let (mut errors, locks) = (Vec::new(), Locks::new());
        for (shown, (chain, known, found)) in shown {
            if self.dump.groups.len() == MAX_GROUPS {
                self.leave_out(found);
                continue;
            }
            if let Some(group) = self.group(shown, chain, found, &locks) {
                errors.extend(known);
                self.dump.groups.push(group);
            }
        }
        order::sort_by_key(&mut self.dump.groups, |group| std::cmp::Reverse((group.oldest_ns, group.tasks)));
        if self.unread > 0 {
            let tasks = counted(self.unread, "more waiting task");
            self.dump.remarks.push(format!("{tasks} not read; their chains may match the filter"));
        }
        self.add_running();
        self.remark(errors);
        self.dump.took_ns = clock::now_ns().saturating_sub(self.began_at_ns);
        self.dump
    }

    /// Resolves the groups, and unites those with the same chain. Returns `None` if the dump is
    /// cancelled meanwhile: it will be discarded, and resolving takes long.
    fn resolve(&mut self) -> Option<Vec<(Shown, Resolved)>> {
        let mut found: Vec<_> = std::mem::take(&mut self.groups).into_iter().collect();
        order::sort_by_key(&mut found, |(_, found)| found.rank());
        let unresolved = found.split_off(found.len().min(RESOLVED_MAX));
        unresolved.into_iter().for_each(|(_, found)| self.leave_out(found));
        let mut shown: HashMap<Shown, Resolved> = HashMap::new();
        for (key, mut found) in found {
            if self.limit.is_cancelled() {
                return None;
            }
            let (chain, error, known) = self.chain(&key.stacks, std::mem::take(&mut found.times));
            let same = self.shown(key, &chain, error);
            match shown.entry(same) {
                Entry::Occupied(mut same) => same.get_mut().2.add_all(found),
                Entry::Vacant(new) => drop(new.insert((chain, known, found))),
            }
        }
        Some(shown.into_iter().collect())
    }

    /// Adds errors to the remarks. The same remedy is named once, not in each group.
    fn remark(&mut self, errors: Vec<String>) {
        for error in errors {
            if !self.dump.remarks.contains(&error) && self.dump.remarks.len() < 8 {
                self.dump.remarks.push(error);
            }
        }
    }

    /// Returns the chain of these stacks, why some of it is missing, and errors for the remarks.
    fn chain(&mut self, stacks: &[Calls], times: Vec<u32>) -> (Vec<Link>, Option<String>, Vec<String>) {
        let (mut frames, mut known, mut error) = (Vec::new(), Vec::new(), None);
        for (calls, times) in stacks.iter().zip(times) {
            let resolved = self.resolver.frames(calls);
            if calls.error().is_some() {
                error = resolved.error;
            } else {
                known.extend(resolved.error);
            }
            frames.push((resolved.frames, times));
        }
        (chain::of(&frames, self.query.is_whole), error, known)
    }

    /// Counts the tasks of a group that is not shown.
    fn leave_out(&mut self, found: Found) {
        self.dump.groups_left_out += u64::from(found.chosen.tasks > 0);
        self.dump.read += found.chosen.tasks;
        self.unread += found.others.tasks;
    }

    /// Returns the dump's entry for tasks with this key and this chain, which may have an error.
    fn shown(&self, key: Key, chain: &[Link], mut error: Option<String>) -> Shown {
        if self.query.polls && key.stacks.is_empty() {
            error = Some(NO_WAKER.to_owned());
        }
        if key.left_out {
            error = Some(LEFT_OUT.to_owned());
        }
        let chain = chain.iter().map(|link| Link { times: 0, ..link.clone() }).collect();
        Shown { spawned_at: key.spawned_at, chain, awaits: key.awaits, error }
    }

    /// Returns the tasks of this group that match the query, if there are any.
    fn group(&mut self, shown: Shown, chain: Vec<Link>, found: Found, locks: &Locks) -> Option<Group> {
        let Found { chosen: mut members, others, .. } = found;
        self.dump.read += members.tasks;
        let has_resource = || others.resources.has(|resource| self.selection.has_resource(resource));
        if others.tasks > 0 && (self.selection.has_chain(&chain) || has_resource()) {
            self.dump.waiting += others.tasks;
            self.dump.read += others.tasks;
            members.add_all(others);
        }
        if members.tasks == 0 {
            return None;
        }
        let mut examples = members.examples;
        order::sort_by_key(&mut examples, |task| std::cmp::Reverse(task.waiting_ns));
        for task in &mut examples {
            task.name = self.shared.workers.registry.name_by_id(task.id);
        }
        let awaits = shown.awaits;
        let mut group = Group {
            spawned_at: text::location(shown.spawned_at),
            tasks: members.tasks,
            oldest_ns: members.oldest_ns,
            newest_ns: members.newest_ns,
            examples,
            chain,
            awaits: awaits.map(|(what, _)| what.name().to_owned()),
            awaits_at: awaits.and_then(|(_, at)| Some(text::location(at?))),
            error: shown.error,
            ..Group::default()
        };
        locks.add_to(&mut group, &members.lockers, &self.shared.workers.registry);
        members.resources.add_to(&mut group, &self.primitives, locks, &self.shared.workers.registry);
        Some(group)
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::scheduler::shared::without_threads;

    #[test]
    fn a_dump_that_is_cancelled_resolves_no_further_group() {
        let shared = Arc::new(without_threads(1).0);
        let (query, mut resolver) = (Query::default(), Resolver::default());
        let (limit, canceller) = Limit::new(TIME_MAX);
        let mut resolved = || {
            let mut maker = Maker::new(&shared, &query, &limit, &mut resolver, Dump::default());
            let key = Key { spawned_at: Location::caller(), stacks: Vec::new(), awaits: None, left_out: false };
            maker.groups.insert(key, Found::default());
            maker.resolve().map(|shown| shown.len())
        };
        assert_eq!(resolved(), Some(1));
        drop(canceller);
        assert_eq!(resolved(), None);
    }
}
