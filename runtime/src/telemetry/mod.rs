//! What the numbers mean: the types of [`Handle::snapshot`](crate::Handle::snapshot) and
//! [`observe::process`](crate::observe::process).
//!
//! The data is defined in `volt-telemetry`; [`rates`], findings ([`doctor`]) and metrics
//! ([`catalog`]) are derived from it in `volt-diagnosis`. Both are here under one name.
//!
//! [`recording`] is the data that the flight recorder sends. To write recordings to files, to read
//! them and to turn them into traces, add the crate `volt-recording`: a program that runs on Volt
//! does not need it, so Volt does not depend on it.

pub use volt_diagnosis::{catalog, rates};
pub use volt_telemetry::*;

#[cfg(test)]
mod tests;

/// What is wrong with a running program: rules over snapshots, and the history of what they found.
pub mod doctor {
    pub use volt_diagnosis::doctor::*;
    pub use volt_telemetry::finding::{Evidence, Figure, Finding, Place, Seen, Severity, TaskName};
    pub use volt_telemetry::rule::Rule;

    /// Findings as plain data, and what makes two of them the same.
    pub mod finding {
        pub use volt_diagnosis::doctor::key::Key;
        pub use volt_telemetry::finding::*;
    }

    /// The table of rules, and the examination that applies them all.
    pub mod rule {
        pub use volt_diagnosis::doctor::rule::*;
        pub use volt_telemetry::rule::Rule;
    }
}
