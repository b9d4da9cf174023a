//! What is wrong with a running program, told from two looks at it: rules over snapshots, and what they find.
//!
//! Pure: a rule reads plain data and gives plain data. Text, JSON, the metric, the table in the documentation and the
//! exit code of `volt-console doctor` come from one table, [`RULES`].

pub mod course;
pub mod finding;
pub mod rule;
pub mod watch;

mod case;

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
pub use finding::{Evidence, Figure, Finding, Place, Severity, TaskName};
pub use rule::{RULES, Rule, RuleEntry, count_of, examine, markdown_table};
pub use watch::Watch;
