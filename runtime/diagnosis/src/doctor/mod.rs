//! What is wrong with a running program: rules over snapshots, what they find, and the history of
//! what they found.
//!
//! [`examine`] applies the rules to two snapshots. [`History`] does so again and again, and its
//! findings are the verdict: a program keeps one for each runtime and sends it with its snapshots,
//! so that every reader shows the same.
//!
//! A finding itself is data: see [`volt_telemetry::finding`].
//!
//! Pure: a rule reads plain data and gives plain data. Text, JSON, the metric, the table in the
//! documentation and the exit code of `volt-console doctor` come from one table, [`RULES`].

pub mod course;
pub mod history;
pub mod key;
pub mod rule;
pub mod watch;

mod case;
mod describe;
mod growth;

mod machine;
mod processes;
mod queues;
mod stalls;
mod tasks;
mod wakes;

#[cfg(test)]
mod tests;

pub use case::INTERVAL_MIN_NS;
pub use course::{Course, Turn};
pub use history::History;
pub use key::Key;
pub use rule::{RULES, RuleEntry, count_of, examine, markdown_table};
pub use watch::Watch;
