//! The files that the tests compare with the catalog.

use std::path::{Path, PathBuf};

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

/// In reading order.
pub(crate) const DASHBOARDS: [&str; 2] = ["grafana/volt-overview.json", "grafana/volt-scheduler.json"];
/// Recording rules and alerts.
pub(crate) const RULES: [&str; 2] = ["prometheus/volt-rules.yml", "prometheus/volt-alerts.yml"];

/// Reads a file of the repository.
pub(crate) fn read(file: &str) -> String {
    let path = root().join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Reads one of [`DASHBOARDS`].
pub(crate) fn dashboard(file: &str) -> Value {
    serde_json::from_str(&read(&format!("dashboards/{file}"))).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the documents in a YAML file below `dashboards`.
pub(crate) fn yaml(file: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(&format!("dashboards/{file}"))).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Returns the panels of a dashboard, without rows.
pub(crate) fn panels(dashboard: &Value) -> Vec<&Value> {
    let panels = dashboard["panels"].as_array().expect("panels");
    panels.iter().filter(|panel| panel["type"] != "row").collect()
}

/// Returns the title, expression and legend of each query.
pub(crate) fn expressions(dashboard: &Value) -> Vec<(&str, &str, &str)> {
    panels(dashboard)
        .into_iter()
        .flat_map(|panel| {
            let targets = panel["targets"].as_array().expect("targets");
            let title = panel["title"].as_str().expect("a title");
            targets.iter().map(move |target| {
                (
                    title,
                    target["expr"].as_str().expect("an expression"),
                    target["legendFormat"].as_str().expect("a legend"),
                )
            })
        })
        .collect()
}

/// Returns each rule in one of [`RULES`], a recorded series or an alert, after its name and its
/// expression.
pub(crate) fn rules(file: &str) -> Vec<(String, String, Yaml)> {
    let documents = yaml(file);
    let groups = documents[0]["groups"].as_vec().expect("groups");
    let rules = groups.iter().flat_map(|group| group["rules"].as_vec().expect("rules"));
    rules
        .map(|rule| {
            let name = rule["alert"].as_str().or(rule["record"].as_str()).expect("a name");
            (name.to_string(), rule["expr"].as_str().expect("an expression").to_string(), rule.clone())
        })
        .collect()
}
