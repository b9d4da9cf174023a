//! The doctor: rules that find problems of a running program in its snapshots, and the history of
//! what they found.
//!
//! [`examine`] applies all rules to two snapshots. [`History`] does so repeatedly, and its findings
//! are the verdict. A program keeps a history for each runtime and sends its findings with its
//! snapshots, so that all readers show the same. Findings are plain data: see
//! [`volt_telemetry::finding`].
//!
//! Rules are pure functions of plain data. One table, [`RULES`], is the source of the text and JSON
//! output, the metric, the table in the documentation and the exit code of `volt-console doctor`.

pub mod key;

mod case;
mod describe;
mod growth;

mod machine;

mod polls;
mod processes;
mod queues;
mod tasks;

mod stalls;
mod waits;
mod wakes;

pub mod rule;

pub mod history;
pub mod verdict;
pub mod watch;

pub mod course;

#[cfg(test)]
mod tests;

pub use case::INTERVAL_MIN_NS;
pub use course::{Course, Turn};
pub use history::History;
pub use key::Key;
pub use rule::{RULES, RuleEntry, count_of, examine, markdown_table};
pub use verdict::Verdict;
pub use watch::Watch;
