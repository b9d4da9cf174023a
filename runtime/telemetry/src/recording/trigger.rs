//! The reason for a recording, which a mark in the recording contains.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::text::duration;

/// The reason for a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trigger {
    /// A poll exceeded the stall threshold.
    Stall {
        /// The incident's number.
        incident: u64,
    },
    /// A task waited longer than the configured limit.
    Delay {
        /// How long it waited, ns.
        delay_ns: u64,
    },
    /// A poll lasted longer than the configured limit.
    Poll {
        /// How long it lasted, ns.
        poll_ns: u64,
    },
    /// A rule of the doctor fired.
    Rule {
        /// The name of the rule.
        name: String,
    },
    /// A task, or the program, panicked.
    Panic,
    /// A user or program requested it.
    Request,
    /// A trigger of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Stall { incident } => write!(f, "stall, incident {incident}"),
            Trigger::Delay { delay_ns } => write!(f, "a delay of {}", duration(*delay_ns)),
            Trigger::Poll { poll_ns } => write!(f, "a poll of {}", duration(*poll_ns)),
            Trigger::Rule { name } => write!(f, "doctor: {name}"),
            Trigger::Panic => f.write_str("panic"),
            Trigger::Request => f.write_str("request"),
            Trigger::Unknown => f.write_str("unknown"),
        }
    }
}
