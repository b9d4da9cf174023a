//! Publishes Volt's metrics into the recorder of the crate `metrics` that the application has
//! installed: statsd, OpenTelemetry, its own Prometheus page.
//!
//! The crate `metrics` is a facade, as `log` is one for log lines. Libraries count with its macros,
//! and the application installs one *recorder*, which receives everything. A recorder has a handle
//! for each *series*, which is a name with labels. A handle of a counter accepts increments, and a
//! handle of a gauge accepts values. A recorder cannot read numbers when it needs them, so Volt's
//! numbers, which are counts already, are written into it at intervals.
//!
//! # Shape
//!
//! `builder` has the settings, and `publisher` the thread that publishes at each interval.
//! `published` has what the recorder has received so far, and publishes one collection. `series`
//! determines which handles a metric of the catalog has.
//!
//! An ordinary case: a runtime has spawned 100 tasks at one collection and 130 at the next. The
//! recorder receives an increment of 100, then one of 30.
//!
//! The race: the application installs its recorder between the two. The first increment went to no
//! recorder. The second collection has another recorder than the first one, so everything is
//! published anew, and its increment is 130.
//!
//! # Protocol of one publication
//!
//! 1. Take a snapshot of every runtime, and read the samples of the catalog, as a page does.
//! 2. If the program has another recorder than the last time, describe all metrics to it, and
//!    forget what was published.
//! 3. Publish each sample. Of a counter, publish what was counted since the last time. If its
//!    runtime is another one of the same name, or the counter fell, that is the whole count.
//! 4. After every [`BATCH`](series::BATCH) updates, pause for [`PAUSE`](publisher::PAUSE).
//! 5. Set the gauges of series that have ended to 0.
//!
//! # Invariants
//!
//! *Everything is counted once*: at most one [`Publisher`] exists, and the next one continues where
//! the last one stopped. *Bounded*: a publication makes at most one update for each series of the
//! page, where each bucket is a series, and the pauses let a recorder with a small queue keep up.
//! *Not idle*: each publication updates every current series, so that a recorder which removes idle
//! series keeps them, and removes those of runtimes that were shut down. *No ghosts*: a recorder
//! without that setting keeps the series of ended runtimes; their gauges are 0, as nothing waits
//! there.
//!
//! # Rejected alternatives
//!
//! * `Counter::absolute`: the recorders for statsd and OpenTelemetry ignore it, and the atomic
//!   counters of `metrics` keep the maximum, so that the counters of a runtime built anew would
//!   stand still until they have caught up.
//! * `Histogram::record_many` with the middle of each bucket: a recorder for OpenTelemetry ignores
//!   it, and the others use its default, which records each value singly. A runtime makes up to
//!   millions of polls per second. metrics-exporter-prometheus would store 16 bytes for each, and
//!   metrics-exporter-statsd would send a line for each.
//! * Counters for buckets: metrics-exporter-prometheus can be set to append `_total` to counters,
//!   and `histogram_quantile` would not find them.
//! * Counters for seconds: a counter of `metrics` is a whole number. In another unit it would need
//!   another name, and no dashboard would find it.
//! * Handles that are kept: they write into the storage of a series, even after a recorder that
//!   removes idle series has removed it. The macros of `metrics` register anew each time, too.

mod error;
mod series;

mod published;
mod publisher;

mod builder;

pub use builder::{PublisherBuilder, publish_to_recorder};
pub use error::PublishError;
pub use publisher::Publisher;
pub use series::Histograms;
