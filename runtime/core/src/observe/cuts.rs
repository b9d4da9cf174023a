//! Makes a snapshot that is too large fit a frame. The least useful parts are removed first, and
//! their names are stored in the snapshot's `incomplete`.
//!
//! The order is: the stacks of incidents, except the newest ones; the other stacks; the histograms;
//! the workers. Stacks are the largest part, and belong to incidents that were sent before. Without
//! histograms and workers there is nothing left to draw.

use std::io;

use volt_telemetry::histogram::Histogram;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::wire::Reply;

use super::registry::Registry;

/// Incidents that keep their stacks at first: as many as a screen displays.
const STACKS_KEPT: usize = 8;

/// The names of the fields that are removed, and a function that removes them and returns whether
/// there were any.
type Cut = (&'static [&'static str], fn(&mut Snapshot) -> bool);

const CUTS: [Cut; 4] = [
    (&["incidents.stack"], |snapshot| cut_stacks(snapshot, STACKS_KEPT)),
    (&["incidents.stack"], |snapshot| cut_stacks(snapshot, 0)),
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

/// Encodes the reply as a frame. Removes parts of its snapshots until it fits.
///
/// # Errors
/// Returns an error if it does not fit even then.
pub(super) fn encode_cutting(reply: &mut Reply, max_bytes: usize, registry: &Registry) -> io::Result<Vec<u8>> {
    let mut fitting = reply.to_frame(max_bytes);
    if fitting.is_err() {
        registry.count(|health| health.snapshots_cut += 1);
    }
    for (fields, cut) in CUTS {
        if fitting.is_ok() {
            break;
        }
        for snapshot in snapshots(reply) {
            let fields = if cut(snapshot) { fields } else { &[] };
            for field in fields {
                if !snapshot.lacks(field) {
                    snapshot.incomplete.push((*field).to_owned());
                }
            }
        }
        fitting = reply.to_frame(max_bytes);
    }
    fitting
}

fn snapshots(reply: &mut Reply) -> &mut [Snapshot] {
    match reply {
        Reply::Snapshot { process, .. } => &mut process.runtimes,
        Reply::Flush { flush } => flush.snapshot.as_deref_mut().map_or(&mut [], std::slice::from_mut),
        _ => &mut [],
    }
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
