//! Finds tasks that wait for each other in a cycle, and locks that are held for long.
//!
//! Terms. In the *wait-for graph*, an edge leads from each task that waits to the task that it
//! waits for: the one that acquired the lock, or whose end is awaited. A cycle of edges is a
//! deadlock.
//!
//! An ordinary case: task 1 has lock A and waits for lock B; task 2 has B and waits for A. The
//! first check finds the cycle 1 → 2 → 1 and remembers it. A second later, another check finds the
//! same tasks in the same waits, and the deadlock is reported.
//!
//! The race: tasks run while a check copies the edges, so the copies are of different moments. A
//! lock may be handed on in between, and a cycle of copied edges need never have existed. So it is
//! only a suspicion, which the steps below confirm.
//!
//! `task::waits` has the edges that go through locks: which operation waits for which lock, and
//! which task acquired it. `joins` has those that go through JoinHandles. Protocol of a check,
//! which each snapshot includes:
//!
//! 1. Copy the edges, and follow them from task to task. A task whose poll left several operations
//!    waiting has no edge: it may need only one of them.
//! 2. Find the tasks of each cycle in the registry, and those of all operations that wait for the
//!    same locks. Each task of the cycle must be idle, and must not have been woken since its
//!    operation was pending. If that is also true of all others that wait for a lock, it is not
//!    being handed on at the moment, and the copy of its holder is right (`task::waits`, *A copy
//!    may be outdated*). For threads, for tasks outside of the registry and for those beyond the
//!    first `graph::WAITERS_MAX`, this cannot be determined.
//! 3. A cycle is reported if an earlier check, at least `CHECKS_APART_NS` before, saw the same
//!    tasks in the same waits. A wait for a lock is the same even if its task was polled in
//!    between, for another reason: locks are fair, so a holder that had released the lock could
//!    not have acquired it again before an operation that still waits.
//!
//! A cycle is *certain* if it is known that no lock of it is being handed on; if no task of it has
//! a reference other than the registry's, the JoinHandle's, and one waker, which is that of the
//! operation; if the operations have the wakers of the tasks themselves; and if the guards are
//! borrowed ones. Then no timer, no other future and no other task can end the cycle, short of an
//! abort. (Two exceptions are not detected. A borrowed guard of a `static` lock can be moved to
//! another task. And any code can add a permit to a semaphore of one permit, or close it.)
//!
//! An edge also leads from a task that waits for room in a bounded channel to the task that
//! receives from it, as far as that is recorded. It is never certain, since the receiver may have
//! been moved, and it counts only if the task has no waker but that of the operation.
//!
//! A lock is *held for long* if its holder has had it for `HELD_AFTER_NS`, and the first operation
//! that waits for it has waited as long. That operation must be unwoken, as in (2): a lock that is
//! released goes to it. Locks of a cycle are not reported a second time.
//!
//! A request handler in the task of its connection is never certain: the connection has a waker for
//! its socket, and drops the handler when the client closes the connection.
//!
//! Only cycles within one runtime are reported. Tasks of a `LocalSet` and futures of `block_on` are
//! not in the registry, so cycles through them are not reported either.
//!
//! Before the sentinel suspends its checks, it checks the suspicion of (1), and whether an
//! operation waits for a task that holds a lock. If so, it stays awake for further checks: a
//! program in a deadlock is idle.
//!
//! Bounds: those of `graph` and `joins`, `MAX_DEADLOCKS` reported cycles of `MAX_LINKS` tasks, and
//! `MAX_HELD_LOCKS` locks, of `HELD_CHECKED_MAX` that are checked.
//! Apart from the walks of `joins`, the registry is walked through only if there is a cycle, or a
//! lock that seems to be held for long, and until the tasks in question are found.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use volt_telemetry::listing::order;
use volt_telemetry::text;
use volt_telemetry::waits::{Deadlock, DeadlockLink, HeldLock, MAX_DEADLOCKS, MAX_HELD_LOCKS};

use super::graph::{Edge, Fixed, Graph, Of, fixed};
use super::joins::{Edges, Joins};
use crate::task::details::awaits::Awaits;
use crate::task::header::Header;
use crate::task::registry::Registry;
use crate::task::waits::{Guard, Held, Holding, Waiter};

/// How many tasks are walked through to find those of the cycles.
const TASKS_MAX: usize = 4_000_000;
/// How many tasks the sentinel walks through, which checks no worker meanwhile: some 10 ms.
const SENTINEL_TASKS_MAX: usize = 100_000;
/// The least time between the two checks that a report requires. Longer than a thread takes between
/// two stores, even if the kernel interrupts it in between.
const CHECKS_APART_NS: u64 = 250_000_000;

/// Longer than ordinary work under a lock takes. The doctor waits for longer.
const HELD_AFTER_NS: u64 = 1_000_000_000;
/// How many locks that seem to be held for long are checked, those of all runtimes together.
const HELD_CHECKED_MAX: usize = 1024;

/// The cycles that the last check of a runtime saw.
#[derive(Default)]
pub(crate) struct Deadlocks {
    seen: Mutex<Vec<Seen>>,
    joins: Joins,
}

/// A cycle.
struct Seen {
    waits: Vec<Fixed>,
    first_at_ns: u64,
}

/// The data of a task that the registry has.
struct Facts {
    submitted_at_ns: u64,
    is_idle: bool,
    wakers: u64,
    name: Option<String>,
    spawned_at: String,
    /// The primitive that it waits for, and the location of the await.
    awaits: Option<(Awaits, Option<&'static Location<'static>>)>,
}

/// The result of a check.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) deadlocks: Vec<Deadlock>,
    pub(crate) held_locks: Vec<HeldLock>,
}

/// A lock whose holder is known, and the first operation that waits for it.
#[derive(Clone, Copy)]
struct Contended<'a> {
    held: &'a Held,
    holding: Holding,
    /// The task that holds it.
    holder: u64,
    since_ns: u64,
    first: &'a Waiter,
}

impl Deadlocks {
    /// Returns a number that identifies the cycles and the contended locks that exist, or `None` if
    /// there are none. Costs some µs while few operations wait, and few tasks exist.
    pub(crate) fn suspicion(&self, registry: &Registry) -> Option<u64> {
        let graph = Graph::with(self.joins.edges_without_waiting(registry, SENTINEL_TASKS_MAX));
        let mut waits: Vec<Vec<Fixed>> = graph.cycles().iter().map(|cycle| fixed(cycle)).collect();
        let of_lock = |lock: Contended<'_>| vec![(lock.holder, lock.since_ns, lock.held.key as u64)];
        waits.extend(contended(&graph.held).map(of_lock));
        waits.sort_unstable();
        let mut hasher = DefaultHasher::new();
        waits.hash(&mut hasher);
        (!waits.is_empty()).then(|| hasher.finish())
    }

    /// Returns which task awaits the JoinHandle of which other one.
    pub(in crate::scheduler) fn joins(&self, registry: &Registry) -> Edges {
        self.joins.edges(registry, TASKS_MAX)
    }

    /// Makes one check: see the module documentation.
    pub(crate) fn check(&self, registry: &Registry, now_ns: u64) -> Found {
        let graph = Graph::with(self.joins.edges(registry, TASKS_MAX));
        let cycles = graph.cycles();
        let long = held_for_long(&graph.held, now_ns);
        let facts = facts(wanted(&cycles, &long), registry);
        let mut found: Vec<_> = cycles
            .iter()
            .filter(|cycle| cycle.iter().all(|edge| is_real(edge, &facts)))
            // Cut here, since the cycles of other runtimes of the program are not real in this one.
            .take(MAX_DEADLOCKS)
            .map(|cycle| (fixed(cycle), report(cycle, &facts, now_ns)))
            .collect();
        let locked: HashSet<u64> = found.iter().flat_map(|(waits, _)| waits.iter().map(|&(_, _, key)| key)).collect();
        let is_held =
            |lock: &&Contended<'_>| !locked.contains(&(lock.held.key as u64)) && is_unwoken(lock.first, &facts);
        // Cut here, for the same reason.
        let reported = long.iter().filter(is_held).take(MAX_HELD_LOCKS);
        let held_locks = reported.map(|lock| lock.report(&facts, now_ns)).collect();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let known = |waits: &Vec<Fixed>| seen.iter().find(|seen| seen.waits == *waits).map(|seen| seen.first_at_ns);
        let firsts: Vec<u64> = found.iter().map(|(waits, _)| known(waits).unwrap_or(now_ns)).collect();
        *seen = found
            .iter()
            .zip(&firsts)
            .map(|((waits, _), &first_at_ns)| Seen { waits: waits.clone(), first_at_ns })
            .collect();
        drop(seen);
        let mut firsts = firsts.into_iter();
        found.retain(|_| firsts.next().is_some_and(|at_ns| now_ns.saturating_sub(at_ns) >= CHECKS_APART_NS));
        Found { deadlocks: found.into_iter().map(|(_, deadlock)| deadlock).collect(), held_locks }
    }
}

/// Returns the locks whose holder is a task that is known, and that others wait for. Not the
/// channels: a receiver that is slow is no fault.
fn contended(held: &[Held]) -> impl Iterator<Item = Contended<'_>> {
    held.iter().filter_map(|held| {
        let holding = held.holding.filter(|holding| holding.guard != Guard::Receiver)?;
        let (holder, since_ns) = (holding.task?, holding.since_ns?);
        Some(Contended { held, holding, holder, since_ns, first: held.waiters.first()? })
    })
}

/// Returns the locks that seem to be held for long, those with the longest wait first.
fn held_for_long(held: &[Held], now_ns: u64) -> Vec<Contended<'_>> {
    let is_old = |at_ns: u64| now_ns.saturating_sub(at_ns) >= HELD_AFTER_NS;
    let mut long: Vec<_> =
        contended(held).filter(|lock| is_old(lock.since_ns) && is_old(lock.first.since_ns)).collect();
    order::sort_by_key(&mut long, |lock| lock.first.since_ns);
    long.truncate(HELD_CHECKED_MAX);
    long
}

impl Contended<'_> {
    fn report(&self, facts: &HashMap<u64, Facts>, now_ns: u64) -> HeldLock {
        let holder = facts.get(&self.holder);
        let awaits = holder.and_then(|holder| holder.awaits);
        HeldLock {
            task: self.holder,
            name: holder.and_then(|holder| holder.name.clone()),
            spawned_at: holder.map(|holder| holder.spawned_at.clone()),
            holder_awaits: awaits.map(|(what, _)| what.name().to_owned()),
            holder_awaits_at: awaits.and_then(|(_, at)| Some(text::location(at?))),
            held_at: text::location(self.holding.at),
            held_ns: now_ns.saturating_sub(self.since_ns),
            awaits: self.first.awaits.name().to_owned(),
            awaits_at: text::location(self.first.at),
            waiting_ns: now_ns.saturating_sub(self.first.since_ns),
            waiting: self.held.waiting as u64,
        }
    }
}

/// Returns the tasks that the registry must be searched for: those that wait for the locks of these
/// cycles, and the holders and first waiters of these locks.
fn wanted(cycles: &[Vec<Edge<'_>>], long: &[Contended<'_>]) -> HashSet<u64> {
    let edges = || cycles.iter().flatten();
    let waiters = edges().flat_map(|edge| match edge.of {
        Of::Lock { held, .. } => &held.waiters[..],
        Of::End(_) => &[],
    });
    let waiters = waiters.chain(long.iter().map(|lock| lock.first));
    let mut wanted: HashSet<u64> = waiters.filter_map(|waiter| waiter.task).collect();
    wanted.extend(edges().map(|edge| edge.task));
    wanted.extend(long.iter().map(|lock| lock.holder));
    wanted
}

/// Returns the data of these tasks in the registry.
fn facts(mut wanted: HashSet<u64>, registry: &Registry) -> HashMap<u64, Facts> {
    let (mut facts, mut left) = (HashMap::new(), TASKS_MAX);
    registry.find(|header| {
        if wanted.is_empty() || left == 0 {
            return Some(());
        }
        left -= 1;
        let id = header.id.as_u64();
        if wanted.remove(&id) {
            facts.insert(id, Facts::of(header));
        }
        None
    });
    facts
}

impl Facts {
    fn of(header: &Header) -> Self {
        Self {
            submitted_at_ns: header.submitted_at_ns(),
            is_idle: header.state.is_idle(),
            wakers: header.state.wakers(),
            name: header.name().map(str::to_owned),
            spawned_at: text::location(header.location()),
            awaits: if header.state.is_idle() { header.awaits() } else { None },
        }
    }
}

/// Returns whether the task of this edge waits: (2). A task that waits for room must have no other
/// waker: with one, it may wait for a message, too, and thus make room.
fn is_real(edge: &Edge<'_>, facts: &HashMap<u64, Facts>) -> bool {
    match edge.of {
        Of::Lock { waiter, holding, .. } if holding.guard == Guard::Receiver => {
            waiter.has_own_waker && is_unwoken(waiter, facts) && has_one_waker(edge, facts)
        }
        Of::Lock { waiter, .. } => is_unwoken(waiter, facts),
        Of::End(_) => waits(edge.task, edge.submitted_at_ns, facts),
    }
}

/// Returns whether it is known that the lock is not being handed on: (2).
fn is_still(held: &Held, facts: &HashMap<u64, Facts>) -> bool {
    held.is_complete() && held.waiters.iter().all(|waiter| is_unwoken(waiter, facts))
}

/// Returns whether the task of this operation has not been woken since the operation was pending.
fn is_unwoken(waiter: &Waiter, facts: &HashMap<u64, Facts>) -> bool {
    waiter.task.is_some_and(|task| waits(task, waiter.submitted_at_ns, facts))
}

/// Returns whether the task has waited since the poll for which it was submitted at this time.
fn waits(task: u64, submitted_at_ns: u64, facts: &HashMap<u64, Facts>) -> bool {
    facts.get(&task).is_some_and(|facts| facts.is_idle && facts.submitted_at_ns == submitted_at_ns)
}

fn has_one_waker(edge: &Edge<'_>, facts: &HashMap<u64, Facts>) -> bool {
    facts.get(&edge.task).is_some_and(|facts| facts.wakers == 1)
}

fn is_certain(edge: &Edge<'_>, facts: &HashMap<u64, Facts>) -> bool {
    has_one_waker(edge, facts)
        && match edge.of {
            Of::Lock { waiter, held, holding } => {
                waiter.has_own_waker && holding.guard == Guard::Borrowed && is_still(held, facts)
            }
            Of::End(_) => true,
        }
}

fn report(cycle: &[Edge<'_>], facts: &HashMap<u64, Facts>, now_ns: u64) -> Deadlock {
    let ago = |at_ns: u64| now_ns.saturating_sub(at_ns);
    let link = |edge: &Edge<'_>| {
        let facts = facts.get(&edge.task);
        let (awaits, awaits_at, held) = match edge.of {
            Of::Lock { waiter, holding, .. } => (waiter.awaits, waiter.at, Some(holding)),
            Of::End(join) => (Awaits::Others, join.spawned_at, None),
        };
        DeadlockLink {
            task: edge.task,
            name: facts.and_then(|facts| facts.name.clone()),
            spawned_at: facts.map_or(String::new(), |facts| facts.spawned_at.clone()),
            awaits: awaits.name().to_owned(),
            awaits_at: text::location(awaits_at),
            waiting_ns: ago(edge.since_ns),
            held_at: held.map(|holding| text::location(holding.at)),
            held_ns: held.and_then(|holding| holding.since_ns).map(ago),
        }
    };
    let last_at_ns = cycle.iter().map(|edge| edge.since_ns).max().unwrap_or(now_ns);
    Deadlock {
        is_certain: cycle.iter().all(|edge| is_certain(edge, facts)),
        for_ns: ago(last_at_ns),
        links: cycle.iter().map(link).collect(),
    }
}
