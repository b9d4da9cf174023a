//! Why a recorder writes down what its rings hold.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What makes a recorder write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Trigger {
    /// A poll does not end in time.
    Stall {
        /// The incident's number.
        incident: u64,
    },
    /// A task waited for longer than was promised.
    Delay {
        /// For how long.
        delay_ns: u64,
    },
    /// A rule of the doctor's has fired.
    Rule {
        /// Its name.
        name: String,
    },
    /// A task, or the program, panicked.
    Panic,
    /// Somebody asked for it.
    Request,
    /// One that this reader does not know.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Stall { incident } => write!(f, "stall, incident {incident}"),
            Trigger::Delay { delay_ns } => write!(f, "a delay of {:?}", Duration::from_nanos(*delay_ns)),
            Trigger::Rule { name } => write!(f, "doctor: {name}"),
            Trigger::Panic => f.write_str("panic"),
            Trigger::Request => f.write_str("request"),
            Trigger::Unknown => f.write_str("unknown"),
        }
    }
}
