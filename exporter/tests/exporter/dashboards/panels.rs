//! Tests of the dashboards: the metrics that they show, their queries, and the layout of their
//! panels.

use std::collections::BTreeSet;

use serde_json::Value;
use volt_diagnosis::catalog::{self, Kind, METRICS};

use crate::dashboards::files::{DASHBOARDS, dashboard, expressions, panels};
use crate::dashboards::promql::{labels, labels_of, parse, selected};

#[test]
fn panels_and_the_metric_catalog_cover_each_other() {
    let mut shown = BTreeSet::new();
    for file in DASHBOARDS {
        for (_, expression, _) in expressions(&dashboard(file)) {
            for selected in selected(expression) {
                // Panics if no metric or rule has this name.
                labels_of(&selected.name);
                shown.extend(catalog::find_series(&selected.name).map(|metric| metric.name));
            }
        }
    }
    for metric in METRICS {
        assert!(shown.contains(metric.name), "{} is on no panel", metric.name);
    }
}

#[test]
fn counters_are_shown_as_rates_and_gauges_are_not() {
    for file in DASHBOARDS {
        for (title, expression, _) in expressions(&dashboard(file)) {
            for selected in selected(expression) {
                let Some(metric) = catalog::find_series(&selected.name) else { continue };
                // The one counter that is shown as a total: it should stay 0 for ever.
                let is_rate = metric.kind != Kind::Gauge && selected.name != "volt_worker_lost_wakeup_rescues_total";
                assert_eq!(selected.is_rate, is_rate, "{title}: {expression}");
            }
            // A five-minute interval is used only where the query can fall back to a recorded
            // series of five minutes.
            let rates = expression.matches("rate(").count();
            let is_recorded = expression.contains(":p99_rate5m");
            let interval = if is_recorded { "[5m]" } else { "[$__rate_interval]" };
            assert_eq!(expression.matches(interval).count(), rates, "{title}: {expression}");
        }
    }
}

#[test]
fn every_panel_uses_the_variables_that_apply_to_its_metric() {
    for (file, names) in DASHBOARDS.iter().zip([
        &["datasource", "job", "instance", "program", "runtime"][..],
        &["datasource", "job", "instance", "program", "runtime", "worker"],
    ]) {
        let dashboard = dashboard(file);
        let variables = dashboard["templating"]["list"].as_array().expect("variables");
        let found: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "{file}");
        for (title, expression, _) in expressions(&dashboard) {
            for selected in selected(expression) {
                let its = labels_of(&selected.name);
                for variable in names[1..].iter().filter(|variable| its.contains(**variable)) {
                    let wanted = (variable.to_string(), format!("${variable}"));
                    assert!(selected.matchers.contains(&wanted), "{title}: {} disregards ${variable}", selected.name);
                }
                for (label, _) in &selected.matchers {
                    assert!(its.contains(label), "{title}: {} has no label {label}", selected.name);
                }
            }
        }
        let annotations = dashboard["annotations"]["list"].as_array().unwrap();
        for part in panels(&dashboard).into_iter().chain(annotations) {
            let targets = part["targets"].as_array().into_iter().flatten();
            for source in targets.chain([part]).map(|part| &part["datasource"]["uid"]) {
                assert_eq!(source, "${datasource}", "{}", part["title"]);
            }
        }
    }
}

#[test]
fn workers_of_programs_on_one_page_are_not_added_up() {
    for file in DASHBOARDS {
        for (title, expression, _) in expressions(&dashboard(file)) {
            let kept = labels(&parse(expression));
            let is_distinguished = ["instance", "program", "pid"].iter().all(|label| kept.contains(*label));
            assert!(!kept.contains("worker") || is_distinguished, "{title}: {expression}");
        }
    }
}

#[test]
fn each_label_in_a_legend_is_a_label_of_the_query() {
    for file in DASHBOARDS {
        for (title, expression, legend) in expressions(&dashboard(file)) {
            let kept = labels(&parse(expression));
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                assert!(kept.contains(label), "{title}: {label} is no label of {expression}, which has {kept:?}");
            }
        }
    }
}

#[test]
fn panels_have_unique_ids_and_do_not_overlap() {
    for file in DASHBOARDS {
        let dashboard = dashboard(file);
        let all = dashboard["panels"].as_array().unwrap();
        let ids: BTreeSet<_> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), all.len());
        let mut cells = BTreeSet::new();
        for panel in all {
            let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24, "{} is off the grid", panel["title"]);
            for y in at("y")..at("y") + at("h") {
                for x in at("x")..at("x") + at("w") {
                    assert!(cells.insert((x, y)), "{} lies over another panel", panel["title"]);
                }
            }
        }
    }
}

#[test]
fn every_panel_has_a_description() {
    for file in DASHBOARDS {
        for panel in panels(&dashboard(file)) {
            let description = panel["description"].as_str().unwrap_or("");
            assert!(description.ends_with('.'), "{file}: {} has the description {description:?}", panel["title"]);
        }
    }
}

#[test]
fn the_first_row_is_about_starvation() {
    let dashboard = dashboard(DASHBOARDS[0]);
    let panels = dashboard["panels"].as_array().unwrap();
    assert_eq!(panels[0]["title"], "Am I starving?");
    let first = panels[1]["targets"][0]["expr"].as_str().unwrap();
    assert!(first.contains("volt_worker_in_flight_poll_seconds"), "{first}");
}

#[test]
fn the_dashboards_lead_to_each_other_and_keep_what_was_chosen() {
    let all = DASHBOARDS.map(dashboard);
    let paths: BTreeSet<_> = all.iter().map(|dashboard| format!("/d/{}", dashboard["uid"].as_str().unwrap())).collect();
    for dashboard in &all {
        let links = dashboard["links"].as_array().unwrap();
        let own = format!("/d/{}", dashboard["uid"].as_str().unwrap());
        let led: BTreeSet<_> = links.iter().map(|link| link["url"].as_str().unwrap().to_string()).collect();
        assert_eq!(led, paths.iter().filter(|path| **path != own).cloned().collect(), "{own}");
        assert!(links.iter().all(|link| link["includeVars"] == true && link["keepTime"] == true), "{own}");
    }
    // Also the links of single panels.
    fn urls(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| match (name.as_str(), value) {
                ("url", Value::String(url)) => found.push(url.clone()),
                _ => urls(value, found),
            }),
            Value::Array(items) => items.iter().for_each(|item| urls(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    all.iter().for_each(|dashboard| urls(dashboard, &mut found));
    for url in found {
        assert!(paths.contains(url.split('?').next().unwrap()), "{url} leads nowhere");
    }
}
