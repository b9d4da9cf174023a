//! Items of Tokio's unstable API that Volt does not have: each line with the word `missing` has an
//! error on Volt, which names the replacement. On Tokio, the file compiles.
#![cfg(tokio_unstable)]
#![allow(dead_code)]

use std::time::Duration;

use tokio::runtime::{
    Builder, HistogramConfiguration, HistogramScale, InvalidHistogramConfiguration, LogHistogram, LogHistogramBuilder,
    RngSeed, UnhandledPanic,
};
use tokio::task::LocalSet;

fn seeds(builder: &mut Builder, seed: RngSeed) {
    builder.rng_seed(seed); // missing
    RngSeed::from_bytes(b"seed"); // missing
}

fn panics(builder: &mut Builder) {
    builder.unhandled_panic(UnhandledPanic::ShutdownRuntime); // missing
    LocalSet::new().unhandled_panic(UnhandledPanic::Ignore); // missing
}

#[allow(deprecated)]
fn histograms(builder: &mut Builder, configuration: HistogramConfiguration) {
    let mut log: LogHistogramBuilder = LogHistogram::builder();
    let _: Result<LogHistogram, InvalidHistogramConfiguration> = log.max_buckets(30);
    builder.metrics_poll_time_histogram_configuration(configuration); // missing
    HistogramConfiguration::log(log.build()); // missing
    HistogramConfiguration::linear(Duration::from_millis(1), 30); // missing
    builder.metrics_poll_count_histogram_scale(HistogramScale::Log); // missing
    builder.metrics_poll_count_histogram_resolution(Duration::from_millis(1)); // missing
    builder.metrics_poll_count_histogram_buckets(30); // missing
}
