//! Generates the documentation page of the catalog, `docs/metrics.md`. A test compares that file
//! with this output.

use volt_telemetry::routes::MAX_ROUTES;

use super::locations::LOCATIONS_MAX;
use super::metric::{BUCKETS_NS, Metric};
use super::table::METRICS;

/// Returns the whole page as Markdown, with `\n` at its end.
pub fn markdown_page() -> String {
    let [first, .., last] = BUCKETS_NS.map(|ns| ns as f64 / 1e9);
    let mut page = format!(
        "# All metrics\n\n\
         This page is generated from `runtime/diagnosis/src/catalog/table.rs`. After a change there, run\n\
         `cargo run -q -p volt-diagnosis --example metrics_page >docs/metrics.md`.\n\n\
         * Counters end in `_total`. They only increase, and restart at 0 with their runtime.\n\
         * Gauges report the state at the time of the scrape. A gauge of a duration is 0 if nothing waits.\n\
         * Histograms have buckets at powers of two, from {} ns to {last:.0} s.\n\
         * At most {LOCATIONS_MAX} spawn locations per runtime have their own series; the rest are summed up as `other`.\n\
         * At most {MAX_ROUTES} HTTP routes (method and path) per runtime have their own series. The requests of\n\
         \x20 all further routes are counted together, with `other` as method and as route.\n\
         * A metric is absent if the kernel or an older program does not report it.\n\
         * The sentinel is the thread that finds stuck polls.\n\
         * A worker's queues: batch (from the global queue, polled first), LIFO slot (polled before the\n\
         \x20 ring), ring, inbox (from other threads).\n\
         * The [guide](guide/terms.md) explains other terms, such as tick and spawn location.\n\n\
         A program serves these metrics with the crate `volt-exporter`, or without code if the environment\n\
         variable `VOLT_METRICS` is set; the [guide](guide/metrics.md) compares the ways. The crate's\n\
         `/metrics` also contains the application's own metrics and, on Linux and FreeBSD, `process_*`. The\n\
         sidecar `volt-exporter` adds the labels `program` and `pid` to every metric. Metrics that are pushed\n\
         with OTLP (feature `otlp` of the exporter) have the second name, without a suffix for kind and unit.\n\
         `volt_exporter::publish_to_recorder` publishes these metrics into a recorder of the crate `metrics`,\n\
         under the first name; the [guide](guide/metrics.md#publish-into-your-own-recorder) lists the\n\
         differences.\n\n",
        first * 1e9
    );
    page += "| Metric and OpenTelemetry name | Kind | Unit | Labels | Description |\n|---|---|---|---|---|\n";
    for metric in METRICS {
        let Metric { name, kind, unit, help, labels, .. } = metric;
        let other_name = metric.opentelemetry_name();
        page += &format!("| `{name}` `{other_name}` | {} | {unit} | {} | {help} |\n", kind.name(), labels.join(", "));
    }
    page
}
