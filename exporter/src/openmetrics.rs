//! Converts the page to OpenMetrics, for scrapers that request this format.
//!
//! # Shape
//!
//! One pass over the lines of the Prometheus text. OpenMetrics differs in these ways:
//!
//! * The family of a counter is named without `_total`.
//! * `untyped` is called `unknown`.
//! * Quotes in help texts are escaped.
//! * There are no empty lines.
//! * A last line marks the end, so that a scraper detects a page that was cut off.
//!
//! Invariant *no series changes its name*: an application may have a counter that does not end in
//! `_total`, which OpenMetrics does not allow. It gets the type `unknown` instead. The same applies
//! to a counter whose family, without `_total`, would have the name of another family. Dashboards
//! must not depend on the format that a scraper happened to request.
//!
//! Source: the OpenMetrics specification, version 1.0.0.

use std::collections::HashSet;

/// The content type of `/metrics` in this format.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const MEDIA_TYPE: &str = "application/openmetrics-text";
const TOTAL: &str = "_total";

/// Returns whether the values of a request's `Accept` headers prefer OpenMetrics to plain text.
pub(crate) fn is_preferred<'a>(accepts: impl Iterator<Item = &'a str>) -> bool {
    let (mut openmetrics, mut text) = (0.0, 0.0);
    for range in accepts.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let media_type = parts.next().unwrap_or("").to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse::<f32>().ok()).unwrap_or(1.0);
        let liking = match media_type.as_str() {
            MEDIA_TYPE => &mut openmetrics,
            "text/plain" | "text/*" | "*/*" => &mut text,
            _ => continue,
        };
        *liking = quality.max(*liking);
    }
    openmetrics > text
}

/// Converts `text` from the Prometheus format to OpenMetrics.
pub(crate) fn from_text(text: &str) -> String {
    let declared: HashSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).map(|(name, _)| name).collect();
    let mut page = String::with_capacity(text.len() + 64);
    // A family's help precedes its type, and the name in the help line depends on the type.
    let mut help = None;
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# HELP ") {
            help = Some(head.split_once(' ').unwrap_or((head, "")));
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|head| head.split_once(' ')) {
            let (family, kind) = family(name, kind, &declared);
            if let Some((_, help)) = help.take().filter(|(of, _)| *of == name) {
                page.extend(["# HELP ", family, " ", &help.replace('"', "\\\""), "\n"]);
            }
            page.extend(["# TYPE ", family, " ", kind, "\n"]);
        } else if !line.is_empty() && !line.starts_with('#') {
            page.extend([line, "\n"]);
        }
    }
    page.push_str("# EOF\n");
    page
}

/// Returns the name and type of a family in OpenMetrics.
fn family<'a>(name: &'a str, kind: &'a str, declared: &HashSet<&str>) -> (&'a str, &'a str) {
    match kind {
        "counter" => match name.strip_suffix(TOTAL) {
            Some(family) if !declared.contains(family) => (family, kind),
            _ => (name, "unknown"),
        },
        "untyped" => (name, "unknown"),
        _ => (name, kind),
    }
}

#[cfg(test)]
mod tests {
    use volt_diagnosis::catalog::{Kind, METRICS};

    use super::*;

    #[test]
    fn counter_headers_drop_the_total_suffix_and_eof_is_appended() {
        let text = "# HELP polls_total What \"it\" did.\n# TYPE polls_total counter\npolls_total{w=\"0\"} 3\n\n\
                    # TYPE free untyped\nfree 1\n# TYPE depth gauge\ndepth 2\n\n";
        let page = "# HELP polls What \\\"it\\\" did.\n# TYPE polls counter\npolls_total{w=\"0\"} 3\n\
                    # TYPE free unknown\nfree 1\n# TYPE depth gauge\ndepth 2\n# EOF\n";
        assert_eq!(from_text(text), page);
    }

    #[test]
    fn no_series_changes_its_name_whatever_an_application_calls_it() {
        let text =
            "# TYPE served counter\nserved 1\n# TYPE depth gauge\ndepth 2\n# TYPE depth_total counter\ndepth_total 3\n";
        let page = "# TYPE served unknown\nserved 1\n# TYPE depth gauge\ndepth 2\n# TYPE depth_total unknown\ndepth_total 3\n# EOF\n";
        assert_eq!(from_text(text), page);
    }

    #[test]
    fn every_counter_of_the_catalog_stays_a_counter() {
        for metric in METRICS.iter().filter(|metric| metric.kind == Kind::Counter) {
            let family = metric.name.strip_suffix(TOTAL).unwrap_or_else(|| panic!("{} is a counter", metric.name));
            assert!(METRICS.iter().all(|other| other.name != family), "{family} is a metric of its own");
        }
    }

    #[test]
    fn openmetrics_is_sent_to_clients_that_prefer_it() {
        let is_preferred = |accept: &str| is_preferred([accept].into_iter());
        // The header that Prometheus 2 sends.
        assert!(is_preferred(
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
        ));
        assert!(is_preferred("application/openmetrics-text"));
        for accept in [
            "",
            "*/*",
            "text/plain",
            "text/html,*/*;q=0.8",
            "text/plain;q=0.9, application/openmetrics-text; q=0.5",
            "application/openmetrics-text;q=0",
        ] {
            assert!(!is_preferred(accept), "{accept}");
        }
    }
}
