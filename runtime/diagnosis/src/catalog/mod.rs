//! The catalog of metrics: the public name of each number of a [`Snapshot`], and how it is read
//! from there.
//!
//! [`exposition`](crate::exposition) uses it for every line about Volt on `/metrics`. The page
//! `docs/metrics.md` is generated from it, and tests compare dashboards and alert rules with it.
//!
//! # Shape
//!
//! [`METRICS`] is a list of [`Metric`]s. [`Metric::samples`] reads one metric from one snapshot,
//! and [`Metric::samples_of_program`] reads the few metrics that are about the program rather than
//! one of its runtimes. The number of samples depends on the workers, on what the kernel and the
//! program report, on the HTTP routes, and on the spawn locations that have their own series.
//! [`Locations`] keeps the latter from one snapshot to the next. The doctor needs two snapshots for
//! most findings. A reader that keeps none sees only problems of the moment.
//!
//! # Names and labels
//!
//! Names have the prefix `volt_` and end with the base unit (`_seconds`). Counters end in `_total`,
//! only increase, and restart at 0 with their runtime. All metrics except those of the program have
//! the label `runtime`. Then follows `worker`, or `location`, or `method` and `route`, then at most
//! one of `state`, `reason`, `queue`, `cause`, `duty`, `trigger` and `outcome` (or `rule` and
//! `severity`, or the label of an info metric). `location` is one of at most [`LOCATIONS_MAX`]
//! spawn locations, or `other`. `route` is one of at most [`MAX_ROUTES`] paths of routers, or
//! `other`. Task ids and bit masks are never used: the parked bitmap is a gauge of 0 or 1 for each
//! worker.
//!
//! # Missing values
//!
//! A gauge of a duration that is absent in the snapshot (no poll in flight, an empty queue) is 0:
//! nothing has waited. A counter that the kernel does not report is missing, and so is everything
//! that a snapshot lacks ([`Snapshot::incomplete`]). A counter that is 0 once would appear to have
//! restarted.
//!
//! # Left out
//!
//! * Thread ids and phases: they are identities, not numbers; the time by state is more useful.
//! * The next deadline of the timers, and the maximum length of a worker's current park.
//! * The settings, except limits that a panel draws.
//! * The incidents themselves: they are events, which `volt-console` and the application's log
//!   show.
//!
//! [`MAX_ROUTES`]: volt_telemetry::routes::MAX_ROUTES
//! [`Snapshot`]: volt_telemetry::Snapshot
//! [`Snapshot::incomplete`]: volt_telemetry::Snapshot::incomplete

mod locations;
mod metric;
mod table;

mod opentelemetry;
mod page;

#[cfg(test)]
mod tests;

pub use locations::{LOCATIONS_MAX, Location, Locations, OTHER};
pub use metric::{BUCKETS_NS, Kind, Metric, Sample, Value, seconds};
pub use page::markdown_page;
pub use table::METRICS;

/// Returns the metric of this name.
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// Returns the metric that a series of this name belongs to. Like [`find`], but also accepts a
/// histogram's `_bucket`, `_sum` and `_count`.
pub fn find_series(name: &str) -> Option<&'static Metric> {
    let histogram = || {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| name.strip_suffix(suffix))?;
        find(base).filter(|metric| metric.kind == Kind::Histogram)
    };
    find(name).or_else(histogram)
}
