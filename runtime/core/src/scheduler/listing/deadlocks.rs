//! Finds tasks that wait for each other in a cycle, and the holders of the locks that tasks await.
//!
//! `task::waits` has the edges of the wait-for graph: which operation waits for which lock, and
//! which task acquired it. A cycle of these edges is only a suspicion: the edges are copies of
//! different moments. Protocol of a check, which each snapshot includes:
//!
//! 1. Copy the edges, and follow them from task to task. A task whose poll left several operations
//!    waiting has no edge: it may need only one of them.
//!    A task that holds a lock and awaits the JoinHandle of another task waits for that one. Its
//!    last poll recorded the spawn location of the awaited task (`task::awaits`).
//! 2. Find the tasks of each cycle in the registry, and those of all operations that wait for the
//!    same locks. Each must be idle, and must not have been woken since its operation was pending.
//!    So none of these locks is being handed on at the moment, and the copies of their holders are
//!    right (`task::waits`, *A copy may be outdated*).
//! 3. A cycle is reported if an earlier check, at least `CHECKS_APART_NS` before, saw the same
//!    tasks in the same waits. The state of a task does not change between the two, since a wake-up
//!    would have changed the time of its last submission.
//!
//! A cycle is *certain* if no task of it has a reference other than the registry's, the
//! JoinHandle's, and one waker, which is that of the operation; if the operations have the wakers
//! of the tasks themselves; and if the guards are borrowed ones. Then no timer, no other future and
//! no other task can end the cycle, short of an abort. (A borrowed guard of a `static` lock can be
//! moved to another task. That is not detected.)
//!
//! Only cycles within one runtime are reported. Tasks of a `LocalSet` and futures of `block_on` are
//! not in the registry, so cycles through them are not reported either.
//!
//! Before the sentinel dozes, it checks the suspicion of (1), and stays awake for a second check: a
//! program in a deadlock is idle.
//!
//! Bounds: `EDGES_MAX` operations, `WAITERS_MAX` of them per lock, `MAX_DEADLOCKS` cycles of
//! `MAX_LINKS` tasks. The registry is walked through only if there is a cycle.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use volt_telemetry::tasks::Task;
use volt_telemetry::waits::{Deadlock, DeadlockLink, MAX_DEADLOCKS, MAX_LINKS};

use crate::scheduler::ends::Ends;
use crate::scheduler::shared::Shared;
use crate::task::awaits::Awaits;
use crate::task::header::Header;
use crate::task::waits::{self, Guard, Held, Holding, Waiter};

/// The number of operations that are checked: some 20 ms, if they are in no cache.
const EDGES_MAX: usize = 65_536;
/// The number of operations that are checked for one lock. If there are more, no cycle through that
/// lock is reported.
const WAITERS_MAX: usize = 1024;
/// How many tasks are walked through to find those of the cycles.
const TASKS_MAX: usize = 4_000_000;
/// The number of tasks beyond which no cycle through a JoinHandle is reported: they are walked
/// through twice for each check, if tasks waited for a lock for `JOINS_AFTER_NS`.
const JOINS_MAX: usize = 100_000;
/// Shorter than the rest after which the sentinel dozes.
const JOINS_AFTER_NS: u64 = 100_000_000;
/// The least time between the two checks that a report requires. Longer than a thread takes between
/// two stores, even if the kernel interrupts it in between.
const CHECKS_APART_NS: u64 = 250_000_000;

/// The cycles that the last check of a runtime saw.
#[derive(Default)]
pub(crate) struct Deadlocks(Mutex<Vec<Seen>>);

struct Seen {
    waits: Vec<Fixed>,
    first_at_ns: u64,
}

/// Identifies a wait: the task, its last submission, and the lock or the awaited task.
type Fixed = (u64, u64, u64);

/// The edges of the wait-for graph.
#[derive(Default)]
struct Graph {
    held: Vec<Held>,
    /// The index of the lock and of the operation, by task; `None` for a task with several.
    waits: HashMap<u64, Option<(usize, usize)>>,
    /// By the task that awaits the JoinHandle.
    joins: HashMap<u64, Join>,
}

/// An edge.
#[derive(Clone, Copy)]
struct Edge<'a> {
    task: u64,
    /// The task that it waits for.
    next: u64,
    submitted_at_ns: u64,
    since_ns: u64,
    of: Of<'a>,
}

/// What a task waits for.
#[derive(Clone, Copy)]
enum Of<'a> {
    Lock { waiter: &'a Waiter, held: &'a Held, holding: Holding },
    End(Join),
}

/// A task that awaits the JoinHandle of another.
#[derive(Clone, Copy)]
struct Join {
    child: u64,
    /// Where the child was spawned.
    spawned_at: &'static Location<'static>,
    submitted_at_ns: u64,
    /// Whether the registry has all tasks, so that no other child can be meant.
    is_sure: bool,
}

/// What the registry says about a task.
struct Facts {
    submitted_at_ns: u64,
    is_idle: bool,
    wakers: u64,
    name: Option<String>,
    spawned_at: String,
}

impl Graph {
    fn new() -> Self {
        let held = waits::held(EDGES_MAX, WAITERS_MAX);
        let mut waits = HashMap::new();
        for (lock, held) in held.iter().enumerate() {
            for (index, waiter) in held.waiters.iter().enumerate() {
                let Some(task) = waiter.task else { continue };
                waits.entry(task).and_modify(|known| *known = None).or_insert(Some((lock, index)));
            }
        }
        Self { held, waits, joins: HashMap::new() }
    }

    fn edge(&self, task: u64) -> Option<Edge<'_>> {
        let Some(wait) = self.waits.get(&task) else {
            let &join = self.joins.get(&task)?;
            let (next, submitted_at_ns) = (join.child, join.submitted_at_ns);
            return Some(Edge { task, next, submitted_at_ns, since_ns: submitted_at_ns, of: Of::End(join) });
        };
        let &(lock, index) = wait.as_ref()?;
        let held = &self.held[lock];
        let (holding, waiter) = (held.holding?, &held.waiters[index]);
        let (next, of) = (holding.task?, Of::Lock { waiter, held, holding });
        Some(Edge { task, next, submitted_at_ns: waiter.submitted_at_ns, since_ns: waiter.since_ns, of })
    }

    /// Returns the cycles. Each begins with its lowest id.
    fn cycles(&self) -> Vec<Vec<Edge<'_>>> {
        // The number of the walk that came through a task first.
        let mut walked: HashMap<u64, u64> = HashMap::new();
        let mut cycles = Vec::new();
        for (&start, number) in self.waits.keys().zip(1..) {
            let mut at = start;
            while !walked.contains_key(&at) {
                walked.insert(at, number);
                let Some(next) = self.edge(at).map(|edge| edge.next) else { break };
                at = next;
            }
            // A task without an edge ends the walk, and is in no cycle.
            if walked.get(&at) == Some(&number)
                && let Some(cycle) = self.cycle_of(at)
            {
                cycles.push(cycle);
                if cycles.len() == MAX_DEADLOCKS {
                    break;
                }
            }
        }
        cycles
    }

    /// Returns the cycle through this task, if there is one that is short enough.
    fn cycle_of(&self, task: u64) -> Option<Vec<Edge<'_>>> {
        let mut cycle = Vec::new();
        let mut at = task;
        while cycle.len() < MAX_LINKS {
            let edge = self.edge(at)?;
            cycle.push(edge);
            at = edge.next;
            if at == task {
                let lowest = (0..cycle.len()).min_by_key(|&index| cycle[index].task)?;
                cycle.rotate_left(lowest);
                return Some(cycle);
            }
        }
        None
    }
}

fn fixed(cycle: &[Edge<'_>]) -> Vec<Fixed> {
    let of = |edge: &Edge<'_>| match edge.of {
        Of::Lock { held, .. } => held.key as u64,
        Of::End(join) => join.child,
    };
    cycle.iter().map(|edge| (edge.task, edge.submitted_at_ns, of(edge))).collect()
}

impl Shared {
    /// Returns a number that identifies the cycles that exist, or `None` if there is none. Costs
    /// some µs while few operations wait.
    pub(crate) fn suspicion(&self, now_ns: u64) -> Option<u64> {
        let graph = self.waits(now_ns);
        let mut waits: Vec<Vec<Fixed>> = graph.cycles().iter().map(|cycle| fixed(cycle)).collect();
        waits.sort_unstable();
        let mut hasher = DefaultHasher::new();
        waits.hash(&mut hasher);
        (!waits.is_empty()).then(|| hasher.finish())
    }

    /// Returns the edges that exist.
    fn waits(&self, now_ns: u64) -> Graph {
        let mut graph = if waits::is_any() { Graph::new() } else { Graph::default() };
        if !graph.held.is_empty() {
            graph.joins = self.joins(&graph, now_ns);
        }
        graph
    }

    /// Returns which tasks that hold a lock await the JoinHandle of another task.
    ///
    /// The awaited task is not recorded, only its spawn location. It is known if only one task of
    /// that location is awaited.
    fn joins(&self, graph: &Graph, now_ns: u64) -> HashMap<u64, Join> {
        let is_old = |waiter: &Waiter| now_ns.saturating_sub(waiter.submitted_at_ns) >= JOINS_AFTER_NS;
        let held = graph.held.iter().filter(|held| held.waiters.iter().any(is_old));
        let holders = held.filter_map(|held| held.holding?.task).filter(|task| !graph.waits.contains_key(task));
        let holders: HashSet<u64> = holders.collect();
        if holders.is_empty() {
            return HashMap::new();
        }
        let (mut joiners, mut walked) = (Vec::new(), 0);
        let is_complete = self.registry.walk(JOINS_MAX, |header| {
            walked += 1;
            if !holders.contains(&header.id.as_u64()) || !header.state.is_idle() {
                return;
            }
            if let Some((Awaits::Others, Some(at))) = header.awaits() {
                joiners.push((header.id.as_u64(), header.submitted_at_ns(), at));
            }
        });
        if joiners.is_empty() || !is_complete {
            return HashMap::new();
        }
        let mut children: HashMap<usize, Vec<u64>> = HashMap::new();
        joiners.iter().for_each(|(_, _, at)| drop(children.insert(ptr::from_ref(*at).addr(), Vec::new())));
        let _is_complete = self.registry.walk(JOINS_MAX, |header| {
            let of_location = children.get_mut(&ptr::from_ref(header.location()).addr());
            if let Some(children) = of_location.filter(|children| children.len() < 2 && header.state.is_joined()) {
                children.push(header.id.as_u64());
            }
        });
        let ([completed, cancelled, panicked], [inside, outside]) = self.count_tasks();
        let is_sure = inside + outside == completed + cancelled + panicked + walked;
        let join = |(task, submitted_at_ns, at): (u64, u64, &'static Location<'static>)| {
            let &[child] = &children[&ptr::from_ref(at).addr()][..] else { return None };
            Some((task, Join { child, spawned_at: at, submitted_at_ns, is_sure }))
        };
        joiners.into_iter().filter_map(join).collect()
    }

    /// Returns the cycles of tasks that wait for each other. Makes one check: see the module
    /// documentation.
    pub(crate) fn deadlocks(&self, now_ns: u64) -> Vec<Deadlock> {
        let graph = self.waits(now_ns);
        let cycles = graph.cycles();
        let facts = if cycles.is_empty() { HashMap::new() } else { self.facts(&cycles) };
        let mut found: Vec<_> = cycles
            .iter()
            .filter(|cycle| cycle.iter().all(|edge| is_real(edge, &facts)))
            .map(|cycle| (fixed(cycle), report(cycle, &facts, now_ns)))
            .collect();
        let mut seen = self.deadlocks.0.lock().unwrap_or_else(PoisonError::into_inner);
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
        found.into_iter().map(|(_, deadlock)| deadlock).collect()
    }

    /// Returns what the registry says about the tasks that wait for the locks of these cycles.
    fn facts(&self, cycles: &[Vec<Edge<'_>>]) -> HashMap<u64, Facts> {
        let edges = || cycles.iter().flatten();
        let waiters = edges().flat_map(|edge| match edge.of {
            Of::Lock { held, .. } => &held.waiters[..],
            Of::End(_) => &[],
        });
        let mut wanted: HashSet<u64> = waiters.filter_map(|waiter| waiter.task).collect();
        wanted.extend(edges().map(|edge| edge.task));
        let mut facts = HashMap::new();
        let is_complete = self.registry.walk(TASKS_MAX, |header| {
            let id = header.id.as_u64();
            if wanted.contains(&id) {
                facts.insert(id, Facts::of(header));
            }
        });
        if is_complete { facts } else { HashMap::new() }
    }
}

/// Which tasks hold the locks that tasks await.
pub(in crate::scheduler) struct Holders(Graph);

impl Holders {
    pub(in crate::scheduler) fn new() -> Self {
        Self(if waits::is_any() { Graph::new() } else { Graph::default() })
    }

    /// Returns since when this task has waited for a lock, and the lock's holder if it is known.
    pub(super) fn of(&self, task: u64) -> Option<(u64, Option<Holding>)> {
        let (lock, index) = (*self.0.waits.get(&task)?)?;
        let held = &self.0.held[lock];
        Some((held.waiters[index].since_ns, held.holding))
    }

    /// Returns the lock that this task waits for, and the task's index among the lock's waiters.
    pub(in crate::scheduler) fn lock_of(&self, task: u64) -> Option<(&Held, usize)> {
        let &(lock, index) = self.0.waits.get(&task)?.as_ref()?;
        Some((&self.0.held[lock], index))
    }

    /// Adds what is known to the row of a waiting task.
    pub(super) fn add_to(&self, row: &mut Task, now_ns: u64) {
        let Some((since_ns, holding)) = row.awaits.as_ref().and_then(|_| self.of(row.id)) else { return };
        row.waiting_ns = Some(now_ns.saturating_sub(since_ns));
        if let Some((held, index)) = self.lock_of(row.id) {
            row.waiter_index = Some(index as u64);
            row.waiters_len = (!held.is_cut).then_some(held.waiters.len() as u64);
        }
        if let Some(holding) = holding {
            row.held_by = holding.task;
            row.held_at = Some(holding.at.to_string());
            row.held_ns = holding.since_ns.map(|since_ns| now_ns.saturating_sub(since_ns));
        }
    }
}

impl Facts {
    fn of(header: &Header) -> Self {
        Self {
            submitted_at_ns: header.submitted_at_ns(),
            is_idle: header.state.is_idle(),
            wakers: header.state.wakers(),
            name: header.name().map(str::to_owned),
            spawned_at: header.location().to_string(),
        }
    }
}

/// Returns whether the tasks of this edge wait, and its lock is not being handed on: (2).
fn is_real(edge: &Edge<'_>, facts: &HashMap<u64, Facts>) -> bool {
    let waits = |task: u64, submitted_at_ns: u64| {
        facts.get(&task).is_some_and(|facts| facts.is_idle && facts.submitted_at_ns == submitted_at_ns)
    };
    let is_unwoken = |waiter: &Waiter| waiter.task.is_some_and(|task| waits(task, waiter.submitted_at_ns));
    match edge.of {
        Of::Lock { held, .. } => !held.is_cut && held.waiters.iter().all(is_unwoken),
        Of::End(_) => waits(edge.task, edge.submitted_at_ns),
    }
}

fn is_certain(edge: &Edge<'_>, facts: &HashMap<u64, Facts>) -> bool {
    let has_one_waker = facts.get(&edge.task).is_some_and(|facts| facts.wakers == 1);
    has_one_waker
        && match edge.of {
            Of::Lock { waiter, holding, .. } => waiter.has_own_waker && holding.guard == Guard::Borrowed,
            Of::End(join) => join.is_sure,
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
            awaits_at: awaits_at.to_string(),
            waiting_ns: ago(edge.since_ns),
            held_at: held.map(|holding| holding.at.to_string()),
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
