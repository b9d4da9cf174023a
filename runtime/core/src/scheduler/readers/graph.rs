//! The wait-for graph: which task waits for which other task, because that one holds a lock or has
//! not ended. Plain data, copied from the table of waits and the registry.

use std::collections::HashMap;

use volt_telemetry::waits::MAX_LINKS;

use super::joins::{Edges, Join};
use crate::task::waits::{self, Guard, Held, Holding, Waiter};

/// The number of operations that are checked: some 20 ms, if they are in no cache.
const EDGES_MAX: usize = 65_536;
/// The number of operations that are checked for one lock. If there are more, a cycle through that
/// lock is never certain.
const WAITERS_MAX: usize = 1024;

/// The edges of the wait-for graph.
#[derive(Default)]
pub(in crate::scheduler) struct Graph {
    pub(in crate::scheduler) held: Vec<Held>,
    /// The index of the lock and of the operation, by task; `None` for a task with several.
    waits: HashMap<u64, Option<(usize, usize)>>,
    /// The same for semaphores of several permits. These waits are no edges.
    permits: HashMap<u64, Option<(usize, usize)>>,
    joins: Edges,
}

/// An edge.
#[derive(Clone, Copy)]
pub(in crate::scheduler) struct Edge<'a> {
    pub(in crate::scheduler) task: u64,
    /// The task that it waits for.
    pub(in crate::scheduler) next: u64,
    pub(in crate::scheduler) submitted_at_ns: u64,
    pub(in crate::scheduler) since_ns: u64,
    pub(in crate::scheduler) of: Of<'a>,
}

/// The reason why a task waits.
#[derive(Clone, Copy)]
pub(in crate::scheduler) enum Of<'a> {
    Lock { waiter: &'a Waiter, held: &'a Held, holding: Holding },
    End(Join),
}

/// Identifies a wait: the task, the poll in which it began, and the lock or the awaited task.
pub(in crate::scheduler) type Fixed = (u64, u64, u64);

impl Graph {
    /// Copies the table of waits, and adds these edges.
    pub(in crate::scheduler) fn with(joins: Edges) -> Self {
        let held = if waits::is_any() { waits::held(EDGES_MAX, WAITERS_MAX) } else { Vec::new() };
        let (mut waits, mut permits) = (HashMap::new(), HashMap::new());
        for (lock, held) in held.iter().enumerate() {
            let of_kind = if held.semaphore.is_some() { &mut permits } else { &mut waits };
            for (index, waiter) in held.waiters.iter().enumerate() {
                let Some(task) = waiter.task else { continue };
                of_kind.entry(task).and_modify(|known| *known = None).or_insert(Some((lock, index)));
            }
        }
        Self { held, waits, permits, joins }
    }

    /// Returns what this task waits for, a lock or a semaphore of several permits, and the task's
    /// index among those that wait. `None` if it waits for several.
    pub(in crate::scheduler) fn wait_of(&self, task: u64) -> Option<(&Held, usize)> {
        let (wait, other) = (self.waits.get(&task), self.permits.get(&task));
        let &(lock, index) = if other.is_none() { wait } else { other.filter(|_| wait.is_none()) }?.as_ref()?;
        Some((&self.held[lock], index))
    }

    /// Returns the lock that this task waits for, if it waits for one, and the task's index among
    /// the lock's waiters.
    pub(in crate::scheduler) fn lock_of(&self, task: u64) -> Option<(&Held, usize)> {
        let &(lock, index) = self.waits.get(&task)?.as_ref()?;
        Some((&self.held[lock], index))
    }

    /// Returns the task whose JoinHandle this task awaits, if it does.
    pub(in crate::scheduler) fn join_of(&self, task: u64) -> Option<Join> {
        self.joins.get(&task).copied()
    }

    fn edge(&self, task: u64) -> Option<Edge<'_>> {
        if !self.waits.contains_key(&task) {
            let &join = self.joins.get(&task)?;
            let (next, submitted_at_ns) = (join.child, join.submitted_at_ns);
            return Some(Edge { task, next, submitted_at_ns, since_ns: submitted_at_ns, of: Of::End(join) });
        }
        let (held, index) = self.lock_of(task)?;
        let (waiter, holding) = (&held.waiters[index], held.holding?);
        let (next, of) = (holding.task?, Of::Lock { waiter, held, holding });
        Some(Edge { task, next, submitted_at_ns: waiter.submitted_at_ns, since_ns: waiter.since_ns, of })
    }

    /// Returns the cycles, each from its lowest id on. As long as the edges stay, they are in the
    /// same order, because the walks begin in the order of ids.
    pub(in crate::scheduler) fn cycles(&self) -> Vec<Vec<Edge<'_>>> {
        let mut starts: Vec<u64> = self.waits.keys().chain(self.joins.keys()).copied().collect();
        starts.sort_unstable();
        // The number of the walk that came through a task first.
        let mut walked: HashMap<u64, u64> = HashMap::new();
        let mut cycles = Vec::new();
        for (start, number) in starts.into_iter().zip(1..) {
            let mut at = start;
            while !walked.contains_key(&at) {
                walked.insert(at, number);
                let Some(next) = self.edge(at).map(|edge| edge.next) else { break };
                at = next;
            }
            // A task without an edge ends the walk, and is in no cycle.
            if walked.get(&at) == Some(&number)
                && let Some(cycle) = self.cycle_of(at)
                && !is_for_another(&cycle)
            {
                cycles.push(cycle);
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

/// Returns whether this is a task that awaits a lock of which it has acquired an owned guard. Such
/// a guard is meant to be moved, and a task that awaits the lock again has moved it to another one:
/// `let permit = limit.clone().acquire_owned().await; spawn(job(permit))`, in a loop.
fn is_for_another(cycle: &[Edge<'_>]) -> bool {
    matches!(cycle, [Edge { of: Of::Lock { holding, .. }, .. }] if holding.guard == Guard::Owned)
}

/// Returns the identity of the waits of a cycle, by which two copies from different moments are
/// compared. A wait for a lock is identified by its first poll, since the lock is fair: as long as
/// the operation waits, no operation that came after it acquires the lock.
pub(in crate::scheduler) fn fixed(cycle: &[Edge<'_>]) -> Vec<Fixed> {
    let of = |edge: &Edge<'_>| match edge.of {
        Of::Lock { held, .. } => held.key as u64,
        Of::End(join) => join.child,
    };
    cycle.iter().map(|edge| (edge.task, edge.since_ns, of(edge))).collect()
}
