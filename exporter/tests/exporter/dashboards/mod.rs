//! Dashboards, rules and their documentation against the catalog: no panel of a metric that is not
//! there, no metric without a panel, and the habits that keep panels right on every installation.
//!
//! Expressions are parsed, so that a name in a comment is no name in a panel. Whether each gives
//! data, and each alert fires when it should, is asked of a real Prometheus by `.ci/metrics`;
//! whether the JSON is what Grafana understands, of Grafana's types by `.ci/grafana`.

mod documents;
mod files;
mod panels;
mod promql;
mod rules;
