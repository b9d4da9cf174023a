//! Tests of the documentation: the names that it uses, and the page that is generated from the
//! catalog.

use std::collections::BTreeSet;

use volt_diagnosis::catalog;

use crate::dashboards::files::{DASHBOARDS, RULES, dashboard, panels, read, rules};

/// Documents that may mention metrics, alerts and panels. Others mention some, too.
const DOCUMENTS: [&str; 24] = [
    "dashboards/README.md",
    "docs/alerts.md",
    "docs/guide/README.md",
    "docs/guide/blocking.md",
    "docs/guide/console.md",
    "docs/guide/dumps.md",
    "docs/guide/limits.md",
    "docs/guide/metrics.md",
    "docs/guide/packages.md",
    "docs/guide/program.md",
    "docs/guide/recordings.md",
    "docs/guide/terms.md",
    "docs/internals/idle.md",
    "docs/metrics.md",
    "docs/operations.md",
    "docs/operations/tuning.md",
    "docs/slow.md",
    "docs/start/concepts.md",
    "docs/start/tokio-service.md",
    "docs/walks/deadlock.md",
    "docs/walks/leak.md",
    "docs/walks/noisy-neighbour.md",
    "docs/walks/slow-timer.md",
    "docs/walks/starvation.md",
];

#[test]
fn documents_and_rule_tests_use_only_catalog_metrics() {
    let recorded: BTreeSet<_> = rules(RULES[0]).into_iter().map(|(name, ..)| name).collect();
    for file in DOCUMENTS.iter().chain(&["dashboards/prometheus/volt-alerts.test.yml", "README.md"]) {
        let text = read(file);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
        for word in words.filter(|word| word.contains("volt_") && !word.starts_with("volt_exporter")) {
            let word = word.trim_matches(':');
            let is_known = catalog::find_series(word).is_some() || recorded.contains(word);
            // The prefix alone.
            assert!(is_known || word == "volt_" || word.contains("::"), "{file} names {word}, which does not exist");
        }
    }
}

#[test]
fn every_panel_that_a_document_or_an_alert_names_is_there() {
    let all = DASHBOARDS.map(dashboard);
    let titles: BTreeSet<_> =
        all.iter().flat_map(panels).map(|panel| panel["title"].as_str().unwrap().to_string()).collect();
    let texts = DOCUMENTS
        .iter()
        .map(|file| (*file, read(file)))
        .chain(RULES.map(|file| (file, read(&format!("dashboards/{file}")))));
    for (file, text) in texts {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for rest in text.split("panel \"").skip(1).chain(text.split("panels \"").skip(1)) {
            let title = rest.split('"').next().unwrap();
            assert!(titles.contains(title), "{file} sends people to the panel {title:?}, which is not there");
        }
    }
}

#[test]
fn every_alert_that_a_document_names_is_there() {
    let alerts: BTreeSet<_> = rules(RULES[1]).into_iter().map(|(name, ..)| name).collect();
    for file in DOCUMENTS {
        let text = read(file);
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let is_alert = |word: &&str| {
            word.strip_prefix("Volt").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        };
        for word in words.filter(is_alert) {
            assert!(alerts.contains(word), "{file} names the alert {word}, which is not there");
        }
    }
}

#[test]
fn the_table_of_metrics_is_the_catalog_as_it_is() {
    assert!(
        read("docs/metrics.md") == catalog::markdown_page(),
        "docs/metrics.md is stale: cargo run -q -p volt-diagnosis --example metrics_page >docs/metrics.md"
    );
}
