//! The names of the metrics in OpenTelemetry: `volt.worker.polls` for `volt_worker_polls_total`.
//!
//! The exporter uses these names when it pushes metrics by OTLP. The first word (or `global_queue`)
//! is the namespace. Kind and unit are not part of a name in OpenTelemetry.
//!
//! Invariant *there and back*: the standard conversion of OpenTelemetry names to Prometheus names
//! (dots to underscores, then the unit, then `_total`) returns the catalog's names. Dashboards and
//! alerts thus work with either. For this reason gauges of unit 1 have no unit: it would become the
//! suffix `_ratio`.

use super::metric::Metric;

/// The only namespace of two words.
const GLOBAL_QUEUE: &str = "global_queue";

impl Metric {
    /// Returns the name in OpenTelemetry.
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

    /// Returns the unit in OpenTelemetry: `s`, nothing, or the counted things in braces.
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
