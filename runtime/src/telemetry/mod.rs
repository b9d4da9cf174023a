//! The data that the runtime reports, and the tools that interpret it.
//!
//! This module contains the types returned by [`Handle::snapshot`](crate::Handle::snapshot) and
//! [`observe::program`](crate::observe::program). They are defined in the crate `volt-telemetry`.
//! The crate `volt-diagnosis` derives [`rates`], findings ([`doctor`]) and metrics ([`catalog`])
//! from them. This module re-exports all of this.
//!
//! [`recording`] contains the data that the flight recorder sends. To write and read recording
//! files, and to convert them to traces, add the crate `volt-recording`. Programs that run on Volt
//! do not need it, so Volt does not depend on it.

pub use volt_diagnosis::{catalog, rates};
pub use volt_telemetry::*;

#[cfg(test)]
mod tests;

/// Detection of problems in a running program: rules that compare snapshots, and the history of
/// their findings.
pub mod doctor {
    pub use volt_diagnosis::doctor::*;
    pub use volt_telemetry::finding::{Evidence, Figure, Finding, Place, Seen, Severity, TaskName};
    pub use volt_telemetry::rule::Rule;

    /// Findings as plain data, and the key that identifies equal findings.
    pub mod finding {
        pub use volt_diagnosis::doctor::key::Key;
        pub use volt_telemetry::finding::*;
    }

    /// The table of rules, and the examination that applies all of them.
    pub mod rule {
        pub use volt_diagnosis::doctor::rule::*;
        pub use volt_telemetry::rule::Rule;
    }
}
