//! The catalog as a page of the documentation: `docs/metrics.md` is this, and a test holds it to
//! that.

use super::locations::LOCATIONS_MAX;
use super::metric::{BUCKETS_NS, Metric};
use super::table::METRICS;

/// The whole page as Markdown, `\n` at its end.
pub fn markdown_page() -> String {
    let [first, .., last] = BUCKETS_NS.map(|ns| ns as f64 / 1e9);
    let mut page = format!(
        "# All metrics\n\n\
         Made from the catalog, `runtime/diagnosis/src/catalog/table.rs`; after a change there:\n\
         `cargo run -q -p volt-diagnosis --example metrics_page >docs/metrics.md`.\n\n\
         Counters end in `_total`, only grow, and start anew with their runtime. A gauge is what is true at the moment of the scrape; one of a duration is \
         0 when nothing waits. A histogram has buckets at powers of two, {} ns to {last:.0} s. At most {LOCATIONS_MAX} spawn locations of a runtime have \
         series of their own; the others are `other`. What the kernel or an older program does not tell is not there.\n\n\
         `volt-exporter` adds the labels `program` and `pid` to all of them. On the same page stand the application's own metrics and, on Linux and FreeBSD, `process_*`. \
         Pushed by OTLP (feature `otlp` of the exporter) they have the second name, and no suffix for kind and unit.\n\n",
        first * 1e9
    );
    page += "| Metric, and its name in OpenTelemetry | Kind | Unit | Labels | What it says |\n|---|---|---|---|---|\n";
    for metric in METRICS {
        let Metric { name, kind, unit, help, labels, .. } = metric;
        let other_name = metric.opentelemetry_name();
        page += &format!("| `{name}` `{other_name}` | {} | {unit} | {} | {help} |\n", kind.name(), labels.join(", "));
    }
    page
}
