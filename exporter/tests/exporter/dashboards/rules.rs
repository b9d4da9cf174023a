//! Tests of the recording rules and alerts: their names, texts, runbooks and tests, and the
//! configurations that use them.

use std::collections::BTreeSet;

use crate::dashboards::files::{RULES, read, root, rules, yaml};
use crate::dashboards::promql::{labels, labels_of, parse, selected};

/// The file with the alerts' runbooks.
const RUNBOOKS: &str = "docs/alerts.md";

#[test]
fn every_series_of_a_rule_is_in_the_catalog_or_recorded() {
    for file in RULES {
        for (name, expression, _) in rules(file) {
            for selected in selected(&expression) {
                let its = labels_of(&selected.name);
                for (label, _) in &selected.matchers {
                    assert!(its.contains(label), "{name}: {} has no label {label}", selected.name);
                }
            }
        }
    }
}

#[test]
fn alerts_use_no_recorded_series() {
    // An alert on a recorded series would never fire where the recording rule is not installed.
    for (name, expression, _) in rules(RULES[1]) {
        assert!(!expression.contains(':'), "{name} queries a recorded series: {expression}");
    }
}

#[test]
fn recorded_series_are_named_level_metric_operation() {
    for (name, expression, _) in rules(RULES[0]) {
        let parts: Vec<_> = name.split(':').collect();
        let [level, metric, done] = parts[..] else { panic!("{name} is not level:metric:operation") };
        assert!(metric.starts_with("volt_") && !done.is_empty(), "{name}");
        assert!(labels(&parse(&expression)).contains(level), "{name}: {level} is no label of {expression}");
    }
}

#[test]
fn every_alert_has_a_severity_a_text_and_tests_of_both_outcomes() {
    let tests = read("dashboards/prometheus/volt-alerts.test.yml");
    let alerts = rules(RULES[1]);
    assert!(alerts.len() >= 9, "{}", alerts.len());
    for (name, expression, rule) in alerts {
        assert!(["critical", "warning"].contains(&rule["labels"]["severity"].as_str().unwrap()), "{name}");
        assert!(rule["for"].as_str().is_some(), "{name} has no `for`");
        // A page with one program has no such label; Alertmanager groups and routes by it.
        assert_eq!(rule["labels"]["program"].as_str(), Some("{{ or $labels.program $labels.job }}"), "{name}");
        let quiet = format!("alertname: {name}, exp_alerts: [] }}");
        let firing = format!("alertname: {name}\n        exp_alerts:\n          - exp_labels:");
        assert!(tests.contains(&quiet), "no test shows {name} silent");
        assert!(tests.contains(&firing), "no test shows {name} firing");
        let kept = labels(&parse(&expression));
        for part in ["summary", "runbook", "runbook_url"] {
            let text = rule["annotations"][part].as_str().unwrap_or_else(|| panic!("{name} has no {part}"));
            for label in text.split("$labels.").skip(1) {
                let label = label.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap();
                let is_of_page = ["program", "pid"].contains(&label);
                assert!(
                    kept.contains(label) || is_of_page,
                    "{name}: its {part} names {label}, which {expression} has not"
                );
            }
        }
    }
}

#[test]
fn every_alert_has_its_section_and_every_section_its_alert() {
    let text = read(RUNBOOKS);
    let sections: BTreeSet<_> = text.lines().filter_map(|line| line.strip_prefix("## ")).map(str::to_string).collect();
    let alerts = rules(RULES[1]);
    for (name, _, rule) in &alerts {
        assert!(sections.contains(name), "{RUNBOOKS} has no section {name}");
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        assert!(url == format!("http://{{{{ $labels.instance }}}}/runbooks#{}", name.to_lowercase()), "{name}: {url}");
    }
    let named: BTreeSet<_> = alerts.iter().map(|(name, ..)| name.clone()).collect();
    let alien: Vec<_> =
        sections.iter().filter(|section| section.starts_with("Volt") && !named.contains(*section)).collect();
    assert!(alien.is_empty(), "no alert is called {alien:?}");
}

#[test]
fn the_scrape_config_names_the_exporters_address_and_every_rule() {
    let config = &yaml("prometheus/prometheus.yml")[0];
    let target = config["scrape_configs"][0]["static_configs"][0]["targets"][0].as_str();
    assert_eq!(target, Some(volt_exporter::DEFAULT_ADDRESS));
    let loaded: Vec<_> = config["rule_files"].as_vec().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    assert_eq!(loaded, RULES.map(|file| file.rsplit('/').next().unwrap()));
}

#[test]
fn the_provisioning_of_grafana_names_its_source_and_folder() {
    let source = &yaml("grafana/provisioning/datasources/volt.yml")[0]["datasources"][0];
    assert_eq!(source["type"].as_str(), Some("prometheus"));
    let provider = &yaml("grafana/provisioning/dashboards/volt.yml")[0]["providers"][0];
    assert_eq!((provider["type"].as_str(), provider["folder"].as_str()), (Some("file"), Some("Volt")));
    assert!(provider["options"]["path"].as_str().is_some_and(|path| path.starts_with('/')), "it is read from a folder");
}

#[test]
fn the_kubernetes_samples_agree_on_port_socket_folder_and_user() {
    let [pod, monitor] = ["sidecar.yml", "podmonitor.yml"].map(|file| yaml(&format!("kubernetes/{file}")).remove(0));
    let of_pod = &pod["spec"]["template"]["spec"];
    let containers = of_pod["containers"].as_vec().unwrap();
    let by_name = |name: &str| containers.iter().find(|container| container["name"].as_str() == Some(name)).unwrap();
    let (application, exporter) = (by_name("application"), by_name("volt-exporter"));
    let folder =
        application["env"].as_vec().unwrap().iter().find(|pair| pair["name"].as_str() == Some("VOLT_SOCKET_DIR"));
    let folder = folder.unwrap()["value"].as_str().unwrap();
    let arguments: Vec<_> = exporter["args"].as_vec().unwrap().iter().map(|part| part.as_str().unwrap()).collect();
    assert!(arguments.contains(&&*format!("--discover={folder}")), "{arguments:?}");
    let port = exporter["ports"][0]["containerPort"].as_i64().unwrap();
    assert!(arguments.contains(&&*format!("--listen=0.0.0.0:{port}")), "{arguments:?}");
    assert!(arguments.contains(&"--allow-remote"), "{arguments:?}");
    for container in [application, exporter] {
        assert!(
            container["volumeMounts"]
                .as_vec()
                .unwrap()
                .iter()
                .any(|mount| folder.starts_with(mount["mountPath"].as_str().unwrap()))
        );
    }
    assert!(
        of_pod["securityContext"]["runAsUser"].as_i64().is_some(),
        "one user for both: the sockets are for their owner alone"
    );
    assert_eq!(of_pod["shareProcessNamespace"].as_bool(), Some(true), "the kernel names no peer of another namespace");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"].as_str(), exporter["ports"][0]["name"].as_str());
    let wanted = monitor["spec"]["selector"]["matchLabels"].as_hash().unwrap();
    let labels = pod["spec"]["template"]["metadata"]["labels"].as_hash().unwrap();
    assert!(wanted.iter().all(|pair| labels.iter().any(|label| label == pair)), "it selects another pod");
}

#[test]
fn every_file_below_dashboards_is_in_its_list() {
    fn walk(folder: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { walk(&path, found) } else { found.push(path) }
        }
    }
    let (top, list) = (root().join("dashboards"), read("dashboards/README.md"));
    let mut found = Vec::new();
    walk(&top, &mut found);
    for path in found {
        let name = path.strip_prefix(&top).unwrap().display().to_string();
        assert!(
            name == "README.md" || list.contains(&format!("`{name}`")),
            "dashboards/README.md does not list {name}"
        );
    }
}
