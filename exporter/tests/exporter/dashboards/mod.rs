//! Tests of the dashboards, the rules and their documentation against the catalog: every panel
//! shows existing metrics, every metric has a panel, and panels follow the conventions that make
//! them correct on every installation.
//!
//! The tests parse the expressions, so a metric that only a comment mentions does not count.
//! `.ci/metrics` checks with a real Prometheus whether each expression returns data and each alert
//! fires when it should. `.ci/grafana` checks with Grafana's types and components whether Grafana
//! accepts the JSON and shows the data.

mod files;
mod promql;

mod documents;
mod panels;
mod rules;
