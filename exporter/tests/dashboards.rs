//! Dashboards, rules and their documentation against the catalog: no panel of a metric that is not there, no metric without a
//! panel, and the habits that keep panels right on every installation.
//!
//! Whether each expression is good PromQL, and gives data, is asked of a real Prometheus by `.ci/metrics`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;
use volt_telemetry::catalog::{self, Kind, METRICS};

fn dashboards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards")
}

fn read(file: &str) -> String {
    let path = dashboards().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn dashboard() -> Value {
    serde_json::from_str(&read("grafana/volt-overview.json")).expect("the dashboard is JSON")
}

/// All words of `text` that could be names of Volt's metrics.
fn metric_words(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.starts_with("volt_")).collect()
}

/// Panels, rows left out.
fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().expect("panels");
    panels.iter().filter(|panel| panel["type"] != "row").collect()
}

/// (title of the panel, expression)
fn expressions(dashboard: &Value) -> Vec<(&str, &str)> {
    panels(dashboard)
        .into_iter()
        .flat_map(|panel| {
            let title = panel["title"].as_str().expect("a title");
            let targets = panel["targets"].as_array().expect("targets");
            targets.iter().map(move |target| (title, target["expr"].as_str().expect("an expression")))
        })
        .collect()
}

#[test]
fn every_metric_on_a_dashboard_or_in_a_rule_is_in_the_catalog() {
    for file in [
        "grafana/volt-overview.json",
        "prometheus/prometheus.yml",
        "prometheus/volt-alerts.yml",
        "prometheus/volt-alerts.test.yml",
        "README.md",
    ] {
        let text = read(file);
        for word in metric_words(&text) {
            assert!(catalog::find_series(word).is_some(), "{file} names {word}, which is not in the catalog");
        }
    }
}

#[test]
fn every_metric_of_the_catalog_is_on_the_dashboard() {
    let dashboard = dashboard();
    let shown: BTreeSet<_> = expressions(&dashboard)
        .into_iter()
        .flat_map(|(_, expression)| metric_words(expression))
        .map(|word| catalog::find_series(word).expect("in the catalog").name)
        .collect();
    for metric in METRICS {
        assert!(shown.contains(metric.name), "{} is on no panel", metric.name);
    }
}

#[test]
fn counters_are_shown_as_rates_over_the_interval_that_grafana_knows() {
    let dashboard = dashboard();
    for (title, expression) in expressions(&dashboard) {
        for word in metric_words(expression) {
            let metric = catalog::find_series(word).expect("in the catalog");
            // The one total that is worth its value: it should be 0 for ever.
            let is_rate = metric.kind != Kind::Gauge && word != "volt_worker_lost_wakeup_rescues_total";
            assert_eq!(expression.contains(&format!("rate({word}{{")), is_rate, "{title}: {expression}");
        }
        let rates = expression.matches("rate(").count();
        assert_eq!(expression.matches("[$__rate_interval]").count(), rates, "{title}: {expression}");
    }
}

#[test]
fn every_panel_obeys_the_variables() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let names: Vec<_> = variables.iter().map(|variable| variable["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "job", "instance", "runtime"]);
    let selector = r#"{job=~"$job", instance=~"$instance", runtime=~"$runtime""#;
    for (title, expression) in expressions(&dashboard) {
        let (selectors, metrics) = (expression.matches(selector).count(), expression.matches("volt_").count());
        assert_eq!(selectors, metrics, "{title}: {expression}");
    }
    for panel in panels(&dashboard) {
        let targets = panel["targets"].as_array().unwrap();
        for source in targets.iter().chain([panel]).map(|part| &part["datasource"]["uid"]) {
            assert_eq!(source, "${datasource}", "{}", panel["title"]);
        }
    }
}

#[test]
fn labels_in_legends_and_groupings_are_labels_of_their_metric() {
    let dashboard = dashboard();
    for panel in panels(&dashboard) {
        for target in panel["targets"].as_array().unwrap() {
            let (expression, legend) = (target["expr"].as_str().unwrap(), target["legendFormat"].as_str().unwrap());
            let metric = catalog::find_series(metric_words(expression).first().unwrap()).unwrap();
            let known = |label: &str| metric.labels.contains(&label) || ["le", "instance", "job"].contains(&label);
            for label in legend.split("{{").skip(1).map(|rest| rest.split("}}").next().unwrap()) {
                assert!(known(label), "{}: no label {label} in {expression}", panel["title"]);
                let is_kept = !expression.contains("sum") || expression.contains(&format!("by ({label})"));
                assert!(is_kept, "{}: {label} is summed away in {expression}", panel["title"]);
            }
            for label in expression.split("by (").skip(1).map(|rest| rest.split(')').next().unwrap()) {
                assert!(known(label), "{}: no label {label} in {expression}", panel["title"]);
            }
        }
    }
}

#[test]
fn panels_have_ids_of_their_own_and_do_not_overlap() {
    let dashboard = dashboard();
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

#[test]
fn the_first_row_is_about_starvation() {
    let dashboard = dashboard();
    let panels = dashboard["panels"].as_array().unwrap();
    assert_eq!(panels[0]["title"], "Am I starving?");
    let first = panels[1]["targets"][0]["expr"].as_str().unwrap();
    assert!(first.contains("volt_worker_in_flight_poll_seconds"), "{first}");
}

#[test]
fn every_alert_has_a_severity_a_runbook_and_a_test_each_way() {
    let (rules, tests) = (read("prometheus/volt-alerts.yml"), read("prometheus/volt-alerts.test.yml"));
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    assert!(alerts.len() >= 2);
    for alert in alerts {
        let name = alert.lines().next().unwrap();
        for part in ["expr: ", "for: ", "severity: ", "summary: ", "runbook: "] {
            assert!(alert.contains(part), "{name} has no {part}");
        }
        let quiet = format!("alertname: {name}, exp_alerts: [] }}");
        let firing = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels:");
        assert!(tests.contains(&quiet), "no test shows {name} silent");
        assert!(tests.contains(&firing), "no test shows {name} firing");
    }
}

#[test]
fn the_scrape_config_looks_where_the_exporter_listens() {
    let target = format!("targets: [\"{}\"]", volt_exporter::DEFAULT_ADDRESS);
    assert!(read("prometheus/prometheus.yml").contains(&target));
}

#[test]
fn the_readme_holds_the_catalog_as_it_is() {
    let table = catalog::markdown_table();
    assert!(read("README.md").contains(&table), "dashboards/README.md is to hold this table:\n\n{table}");
}
