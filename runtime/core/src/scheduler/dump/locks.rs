//! The locks that the tasks of a dump await, and their holders, and the holders of permits.
//!
//! The copies of the holders (`task::waits`) are taken once, after the tasks were polled. A lock
//! that is handed on meanwhile may have another holder by then.

use std::cmp::Reverse;
use std::collections::HashMap;

use volt_telemetry::dump::{Group, Lock, MAX_EXAMPLES, MAX_LOCKS};
use volt_telemetry::listing::order;
use volt_telemetry::text;
use volt_telemetry::waits::PermitHolder;

use crate::clock;
use crate::scheduler::readers::holders::Holders;
use crate::task::registry::Registry;
use crate::task::waits::{Held, Holding};

/// The locks that tasks wait for, and their holders.
pub(super) struct Locks {
    holders: Holders,
    now_ns: u64,
}

impl Locks {
    pub(super) fn new() -> Self {
        Self { holders: Holders::new(), now_ns: clock::now_ns() }
    }

    /// Adds to `group` the locks that these tasks await.
    pub(super) fn add_to(&self, group: &mut Group, tasks: &[u64], registry: &Registry) {
        let mut awaited: HashMap<usize, (u64, &Held, Holding)> = HashMap::new();
        for &task in tasks {
            if let Some((held, _)) = self.holders.lock_of(task)
                && let Some(holding) = held.holding
            {
                awaited.entry(held.key).or_insert((0, held, holding)).0 += 1;
            }
        }
        let mut awaited: Vec<_> = awaited.into_values().collect();
        order::sort_by_key(&mut awaited, |(tasks, held, _)| {
            (Reverse(*tasks), held.waiters.first().and_then(|waiter| waiter.task))
        });
        group.locks_left_out = awaited.len().saturating_sub(MAX_LOCKS) as u64;
        awaited.truncate(MAX_LOCKS);
        group.locks =
            awaited.into_iter().map(|(tasks, held, holding)| self.lock(tasks, held, holding, registry)).collect();
    }

    /// Returns the holders of the permits of this semaphore, and the number of those that are left
    /// out.
    pub(super) fn permit_holders(&self, semaphore: u64, registry: &Registry) -> (Vec<PermitHolder>, u64) {
        self.holders.permits().holders(semaphore, self.now_ns, registry)
    }

    fn lock(&self, tasks: u64, held: &Held, holding: Holding, registry: &Registry) -> Lock {
        Lock {
            tasks,
            held_by: holding.task,
            held_by_name: holding.task.and_then(|task| registry.name_by_id(task)),
            held_at: text::location(holding.at),
            held_ns: holding.since_ns.map(|since_ns| self.now_ns.saturating_sub(since_ns)),
            queue: held.waiters.iter().filter_map(|waiter| waiter.task).take(MAX_EXAMPLES).collect(),
            waiters_len: Some(held.waiting as u64),
        }
    }
}
