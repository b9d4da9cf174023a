//! What snapshots mean: rates, findings and metrics.
//!
//! This crate reads [snapshots](volt_telemetry::Snapshot) and nothing else: no clock, no file, no
//! socket. The runtime uses it for the findings in its own snapshots, the exporter for metrics, the
//! console for screens. They show the same numbers, since all of them are derived here.
//!
//! Reading order: [`rates`] follow from two snapshots. [`doctor`] is built on them: a table of
//! rules that give findings, and the history that makes a lasting verdict of them. [`catalog`] is
//! the table of metrics, with their names, units and help texts; it reads snapshots and findings.
#![forbid(unsafe_code)]

pub mod catalog;
pub mod doctor;
pub mod rates;
