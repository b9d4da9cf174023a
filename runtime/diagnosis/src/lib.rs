//! Derives rates, findings and metrics from snapshots.
//!
//! A snapshot is one reading of all counters of a runtime. This crate reads
//! [snapshots](volt_telemetry::Snapshot) and nothing else: no clock, no file, no socket. The
//! runtime uses it for the findings in its own snapshots, the exporter for metrics, the console for
//! screens. All of them show the same numbers, since this crate computes them.
//!
//! Reading order: [`rates`] are computed from two snapshots. [`doctor`] is built on them: a table
//! of rules, each of which returns findings, and the history that turns findings into a lasting
//! verdict. [`catalog`] is the table of metrics, with their names, units and help texts; it reads
//! snapshots and findings. [`exposition`] writes these metrics in Prometheus' text format.
#![forbid(unsafe_code)]

pub mod rates;

pub mod doctor;

pub mod catalog;

pub mod exposition;

// The example in the README, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
