//! The tasks that acquired the permits of semaphores, for lists of tasks and dumps.
//!
//! The records (`task::waits::permits`) are copied once. Permits that are acquired or returned
//! meanwhile may be in the copy or not.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::panic::Location;

use volt_telemetry::listing::order;
use volt_telemetry::text;
use volt_telemetry::waits::{MAX_PERMIT_HOLDERS, PermitHolder};

use crate::task::registry::Registry;
use crate::task::waits::{Acquisition, acquisitions};

/// A task, if it was one, and the location where it acquired permits.
type Source = (Option<u64>, &'static Location<'static>);
/// The number of permits, and since when the first of them are held.
type Held = (u64, Option<u64>);

/// The permits of all semaphores, by the number of the semaphore.
#[derive(Default)]
pub(in crate::scheduler) struct Permits(HashMap<u64, Vec<Acquisition>>);

impl Permits {
    /// Copies the records.
    pub(in crate::scheduler) fn new() -> Self {
        let mut permits = Self::default();
        acquisitions().for_each(|acquisition| permits.add(acquisition));
        permits
    }

    fn add(&mut self, acquisition: Acquisition) {
        self.0.entry(acquisition.semaphore).or_default().push(acquisition);
    }

    /// Returns the holders of the permits of this semaphore, the oldest first, and the number of
    /// those that are left out.
    pub(in crate::scheduler) fn holders(
        &self,
        semaphore: u64,
        now_ns: u64,
        registry: &Registry,
    ) -> (Vec<PermitHolder>, u64) {
        // A task may have acquired permits at a line several times.
        let mut by_source: HashMap<Source, Held> = HashMap::new();
        for acquisition in self.0.get(&semaphore).into_iter().flatten() {
            let Acquisition { permits, task, at, since_ns, .. } = *acquisition;
            let known = by_source.entry((task, at)).or_insert((0, since_ns));
            known.0 += permits;
            known.1 = known.1.min(since_ns);
        }
        let mut holders: Vec<_> = by_source.into_iter().collect();
        // Those outside of tasks have no time, and come last.
        order::sort_by_key(&mut holders, |((task, at), (permits, since_ns))| {
            (since_ns.is_none(), *since_ns, Reverse(*permits), *task, (at.file(), at.line(), at.column()))
        });
        let left_out = holders.len().saturating_sub(MAX_PERMIT_HOLDERS) as u64;
        holders.truncate(MAX_PERMIT_HOLDERS);
        let named = |((task, at), (permits, since_ns)): (Source, Held)| PermitHolder {
            permits,
            task,
            name: task.and_then(|task| registry.name_by_id(task)),
            acquired_at: text::location(at),
            acquired_ago_ns: since_ns.map(|since_ns| now_ns.saturating_sub(since_ns)),
        };
        (holders.into_iter().map(named).collect(), left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_holders_are_named_and_the_others_counted() {
        let (mut permits, here, there) = (Permits::default(), Location::caller(), Location::caller());
        let acquired =
            |task: u64, at, since_ns| Acquisition { semaphore: 7, permits: 2, task: Some(task), at, since_ns };
        for task in (1..=6).rev() {
            permits.add(acquired(task, here, Some(100 * task)));
        }
        permits.add(acquired(3, here, Some(50)));
        permits.add(acquired(4, there, Some(60)));
        permits.add(Acquisition { task: None, ..acquired(0, here, None) });
        permits.add(Acquisition { semaphore: 8, ..acquired(9, here, Some(1)) });
        let (holders, left_out) = permits.holders(7, 1000, &Registry::new(1));
        let found: Vec<_> =
            holders.iter().map(|holder| (holder.task, holder.permits, holder.acquired_ago_ns)).collect();
        let expected = [(3, 4, 950), (4, 2, 940), (1, 2, 900), (2, 2, 800)];
        assert_eq!(found, expected.map(|(task, permits, ago_ns)| (Some(task), permits, Some(ago_ns))));
        assert_eq!(left_out, 4, "tasks 4, 5, 6 and code outside of tasks");
        assert!(permits.holders(9, 1000, &Registry::new(1)).0.is_empty());
    }
}
