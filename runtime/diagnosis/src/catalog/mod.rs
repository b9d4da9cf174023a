//! The one table of metrics: what a number of a [`Snapshot`] is called outside, and how it is read
//! from there.
//!
//! Shape: [`METRICS`] is a list of [`Metric`]s; [`Metric::samples`] reads one of them from one
//! snapshot, and [`Metric::samples_of_process`] those few that are about the program and no runtime
//! of it. How many samples that gives depends on the workers, on what the kernel tells of their
//! threads, and on the spawn locations that have series of their own, which [`Locations`] remembers
//! from one snapshot to the next. What the doctor finds is told of two snapshots, so a reader that
//! keeps none sees only what is stuck at the moment.
//!
//! Who reads: the exporter (every line of `/metrics`), the page `docs/metrics.md`, and the tests
//! that hold dashboards and alert rules against it.
//!
//! Names: prefix `volt_`; base units, named last (`_seconds`); counters end in `_total`, only grow,
//! and start anew with their runtime. Labels: `runtime` on everything but what is about the
//! program, then `worker`, then at most one of `state`, `reason`, `queue`, `cause`, `duty` and
//! `rule` (or what an info metric tells); `location` is one of at most [`LOCATIONS_MAX`] spawn
//! locations, or `other`. Never a task's id, and no bit mask: the parked bitmap is a gauge of 0 or
//! 1 for each worker.
//!
//! A gauge of a duration that is absent in the snapshot (no poll in flight, an empty queue) is 0
//! here: nothing has waited. A counter that the kernel does not tell is not there, and neither is
//! what a snapshot came without ([`Snapshot::incomplete`]): a counter that were 0 for once would
//! have started anew.
//!
//! Left out: thread ids and phases (identities, not numbers; time by state says more), when the
//! next timer is due, how long a worker's present sleep lasts at most, the settings (but for limits
//! that a panel draws), and the incidents themselves, which are events: `volt-console` shows them,
//! the application's log has them.
//!
//! [`Snapshot`]: volt_telemetry::Snapshot
//! [`Snapshot::incomplete`]: volt_telemetry::Snapshot::incomplete

mod locations;
mod metric;
mod opentelemetry;
mod page;
mod table;

#[cfg(test)]
mod tests;

pub use locations::{LOCATIONS_MAX, Location, Locations, OTHER};
pub use metric::{BUCKETS_NS, Kind, Metric, Sample, Value, seconds};
pub use page::markdown_page;
pub use table::METRICS;

/// The metric of this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// The metric that a series of this name belongs to: as [`find`], and a histogram's `_bucket`,
/// `_sum` and `_count` too.
pub fn find_series(name: &str) -> Option<&'static Metric> {
    let histogram = || {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix))?;
        find(base).filter(|metric| metric.kind == Kind::Histogram)
    };
    find(name).or_else(histogram)
}
