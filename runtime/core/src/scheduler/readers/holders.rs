//! The holders of the locks and permits that tasks await, and the tasks whose ends they await, for
//! lists of tasks.

use std::cell::OnceCell;

use volt_telemetry::tasks::Task;
use volt_telemetry::text;
use volt_telemetry::waits::PermitHolder;

use super::graph::Graph;
use super::joins::Edges;
use super::permits::Permits;
use crate::task::details::awaits::Awaits;
use crate::task::registry::Registry;
use crate::task::waits::{Held, Holding};

/// The holders of the locks that tasks await, and the tasks whose ends they await.
pub(in crate::scheduler) struct Holders {
    graph: Graph,
    /// Copied when a task awaits permits.
    permits: OnceCell<Permits>,
}

impl Holders {
    /// Copies the table of waits.
    pub(in crate::scheduler) fn new() -> Self {
        Self::with(Edges::new())
    }

    /// Copies the table of waits, and adds these edges.
    pub(in crate::scheduler) fn with(joins: Edges) -> Self {
        Self { graph: Graph::with(joins), permits: OnceCell::new() }
    }

    /// Returns the task whose end this task awaits by a JoinHandle, if that is known. `awaits` is
    /// what it awaits, since it was woken at `woken_at_ns`.
    pub(in crate::scheduler) fn awaited_task(&self, task: u64, awaits: Option<&str>, woken_at_ns: u64) -> Option<u64> {
        // The edges may be older.
        let join = self.graph.join_of(task).filter(|join| join.submitted_at_ns == woken_at_ns)?;
        is_for_others(awaits).then_some(join.child)
    }

    /// Returns the permits of all semaphores.
    pub(in crate::scheduler) fn permits(&self) -> &Permits {
        self.permits.get_or_init(Permits::new)
    }

    /// Returns the holders of the permits that this task waits for, and the number of those that
    /// are left out.
    pub(in crate::scheduler) fn permit_holders(
        &self,
        task: u64,
        now_ns: u64,
        registry: &Registry,
    ) -> (Vec<PermitHolder>, u64) {
        match self.lock_of(task).and_then(|(held, _)| held.semaphore) {
            Some(semaphore) => self.permits().holders(semaphore, now_ns, registry),
            None => (Vec::new(), 0),
        }
    }

    /// Returns since when this task, which `awaits` something, has waited for a lock, and the
    /// lock's holder if it is known. An operation that the task began and no longer polls may wait
    /// for another lock.
    pub(in crate::scheduler) fn of(&self, task: u64, awaits: Option<&str>) -> Option<(u64, Option<Holding>)> {
        let (held, index) = self.lock_of(task)?;
        let waiter = &held.waiters[index];
        (awaits == Some(waiter.awaits.name())).then_some((waiter.since_ns, held.holding))
    }

    /// Returns the lock that this task waits for, and the task's index among the lock's waiters. A
    /// channel is no lock.
    pub(in crate::scheduler) fn lock_of(&self, task: u64) -> Option<(&Held, usize)> {
        self.graph.wait_of(task).filter(|(held, index)| held.waiters[*index].awaits != Awaits::Room)
    }

    /// Adds what is known to the row of a waiting task.
    pub(in crate::scheduler) fn add_to(&self, row: &mut Task, now_ns: u64, registry: &Registry) {
        let woken_at_ns = row.woken_ago_ns.map_or(0, |ago_ns| now_ns.saturating_sub(ago_ns));
        row.awaited_task = self.awaited_task(row.id, row.awaits.as_deref(), woken_at_ns);
        let Some((since_ns, holding)) = self.of(row.id, row.awaits.as_deref()) else { return };
        row.waiting_ns = Some(now_ns.saturating_sub(since_ns));
        if let Some((held, index)) = self.lock_of(row.id) {
            row.waiter_index = Some(index as u64);
            row.waiters_len = Some(held.waiting as u64);
        }
        (row.permit_holders, row.permit_holders_left_out) = self.permit_holders(row.id, now_ns, registry);
        if let Some(holding) = holding {
            row.held_by = holding.task;
            row.held_at = Some(text::location(holding.at));
            row.held_ns = holding.since_ns.map(|since_ns| now_ns.saturating_sub(since_ns));
        }
    }
}

/// Returns whether a task that awaits this may await the end of another.
pub(in crate::scheduler) fn is_for_others(awaits: Option<&str>) -> bool {
    awaits == Some(Awaits::Others.name())
}
