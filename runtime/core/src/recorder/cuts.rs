//! Removes parts of a snapshot that is too large, the least useful ones first.
//!
//! The names of the parts that were removed are stored in its `incomplete`. The order is: the
//! stacks of incidents, except the newest ones; the other stacks; the awaits of tasks; the
//! histograms of HTTP routes; the routes; the histograms of workers; the workers. Stacks are the
//! largest part, and belong to incidents that were sent or written before. Without histograms and
//! workers there is nothing left to draw.

use volt_telemetry::histogram::Histogram;
use volt_telemetry::snapshot::Snapshot;

/// Incidents that keep their stacks at first: as many as a screen displays.
const STACKS_KEPT: usize = 8;

/// How many parts can be removed from a snapshot.
pub(crate) const STEPS: usize = 7;

/// The names of the fields that are removed, and a function that removes them and returns whether
/// there were any.
type Cut = (&'static [&'static str], fn(&mut Snapshot) -> bool);

const CUTS: [Cut; STEPS] = [
    (&["incidents.stack"], |snapshot| cut_stacks(snapshot, STACKS_KEPT)),
    (&["incidents.stack"], |snapshot| cut_stacks(snapshot, 0)),
    (&["blame.main_await"], |snapshot| {
        let awaits = snapshot.blame.iter_mut().filter_map(|blame| blame.main_await.take());
        awaits.count() > 0
    }),
    (&["routes.duration"], |snapshot| {
        snapshot.routes.iter_mut().for_each(|route| route.duration = Histogram::default());
        !snapshot.routes.is_empty()
    }),
    (&["routes"], |snapshot| {
        let has_any = !snapshot.routes.is_empty();
        snapshot.routes.clear();
        has_any
    }),
    (&["poll_time", "schedule_delay"], |snapshot| {
        for worker in &mut snapshot.workers {
            (worker.poll_time, worker.schedule_delay) = (Histogram::default(), Histogram::default());
        }
        true
    }),
    (&["workers"], |snapshot| {
        snapshot.workers.clear();
        true
    }),
];

/// Removes the part number `step` of a snapshot, the least useful ones first. Returns `false` if
/// there are no more parts.
pub(crate) fn cut(snapshot: &mut Snapshot, step: usize) -> bool {
    let Some((fields, cut)) = CUTS.get(step) else { return false };
    if cut(snapshot) {
        let missing: Vec<_> = fields.iter().filter(|field| !snapshot.lacks(field)).collect();
        snapshot.incomplete.extend(missing.into_iter().map(|field| (*field).to_owned()));
    }
    true
}

/// Removes all stacks except those of the newest `kept` incidents.
fn cut_stacks(snapshot: &mut Snapshot, kept: usize) -> bool {
    let mut is_any = false;
    let older = snapshot.incidents.latest.iter_mut().rev().skip(kept);
    for incident in older.filter(|incident| !incident.stack.is_empty()) {
        incident.stack = Vec::new();
        incident.stack_error = Some("left out, since the snapshot was too large".to_owned());
        is_any = true;
    }
    is_any
}

#[cfg(test)]
mod tests {
    use volt_telemetry::incident::{Blame, MainAwait};

    use super::*;

    #[test]
    fn the_awaits_of_tasks_are_removed_and_named() {
        let step = CUTS.iter().position(|(fields, _)| fields.contains(&"blame.main_await")).unwrap();
        let blame = |main_await| vec![Blame { spawned_at: "src/a.rs:7:3".into(), main_await, ..Blame::default() }];
        for (main_await, incomplete) in [(Some(MainAwait::default()), &["blame.main_await"][..]), (None, &[])] {
            let mut snapshot = Snapshot { blame: blame(main_await), ..Snapshot::default() };
            assert!(cut(&mut snapshot, step));
            assert_eq!(
                (&snapshot.blame, &snapshot.incomplete[..]),
                (&blame(None), &incomplete.iter().map(|of| (*of).to_owned()).collect::<Vec<_>>()[..])
            );
        }
    }
}
