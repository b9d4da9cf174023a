//! How a snapshot comes to fit a frame: what says least is left out first, and what was left out is
//! named in its `incomplete`.
//!
//! In this order: the stacks of incidents, but for the newest of them; the other stacks; the
//! histograms; the workers. Stacks are most of what there is, and of incidents that were shown
//! before; without histograms and workers there is nothing left to draw.

use std::io;

use volt_telemetry::histogram::Histogram;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::wire::{self, Reply};

use super::registry::Registry;

/// Incidents that keep their stacks at first: what a screen shows of them.
const STACKS_KEPT: usize = 8;

/// What is left out, by field name, and how; says whether there was any.
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

/// The reply as a frame; its snapshots lose what has to go for that.
///
/// # Errors
/// It does not fit even so.
pub(super) fn encode_cutting(reply: &mut Reply, max_bytes: usize, registry: &Registry) -> io::Result<Vec<u8>> {
    let mut fitting = wire::encode(reply, max_bytes);
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
        fitting = wire::encode(reply, max_bytes);
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

/// All but those of the newest `kept`.
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
