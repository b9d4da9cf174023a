//! What metrics are called in OpenTelemetry: `volt.worker.polls` for `volt_worker_polls_total`.
//!
//! Shape: the first word (or `global_queue`) is the namespace; kind and unit are no part of a name
//! there.
//!
//! Invariant *there and back*: whatever turns OpenTelemetry's names into Prometheus' (dots to
//! underscores, then the unit, then `_total`) gives the catalog's again, so that dashboards and
//! alerts work on either way. Therefore gauges of unit 1 have no unit: theirs would become
//! `_ratio`.

use super::metric::Metric;

/// The one namespace of two words.
const GLOBAL_QUEUE: &str = "global_queue";

impl Metric {
    /// The name in OpenTelemetry.
    ///
    /// ```
    /// use volt_diagnosis::catalog;
    ///
    /// let delay = catalog::find("volt_schedule_delay_seconds").unwrap();
    /// assert_eq!((&*delay.opentelemetry_name(), &*delay.opentelemetry_unit()), ("volt.schedule.delay", "s"));
    /// ```
    pub fn opentelemetry_name(&self) -> String {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        let name = name.strip_suffix("_seconds").unwrap_or(name);
        let name = name.strip_prefix("volt_").unwrap_or(name);
        let rest = name.strip_prefix(GLOBAL_QUEUE).and_then(|rest| rest.strip_prefix('_'));
        match rest.map(|rest| (GLOBAL_QUEUE, rest)).or_else(|| name.split_once('_')) {
            Some((namespace, rest)) => format!("volt.{namespace}.{rest}"),
            None => format!("volt.{name}"),
        }
    }

    /// The unit in OpenTelemetry: `s`, nothing, or what is counted, in braces.
    pub fn opentelemetry_unit(&self) -> String {
        match self.unit {
            "seconds" => "s".into(),
            "1" => String::new(),
            counted => format!("{{{counted}}}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use crate::catalog::{Kind, METRICS};

    #[test]
    fn the_names_come_back_as_they_were() {
        for metric in METRICS {
            let mut name = metric.opentelemetry_name().replace('.', "_");
            name += if metric.opentelemetry_unit() == "s" { "_seconds" } else { "" };
            name += if metric.kind == Kind::Counter { "_total" } else { "" };
            assert_eq!(name, metric.name);
        }
    }

    #[test]
    fn names_are_unique_and_below_volt() {
        let names: HashSet<_> = METRICS.iter().map(|metric| metric.opentelemetry_name()).collect();
        assert_eq!(names.len(), METRICS.len());
        assert!(names.iter().all(|name| name.starts_with("volt.") && name.len() <= 255), "{names:?}");
        assert!(names.contains("volt.global_queue.oldest_age") && names.contains("volt.incidents"), "{names:?}");
    }
}
