//! What the last list of tasks was made of. It stands for a while, so that somebody who asks often
//! gets new numbers of the same tasks, and the program pays for few walks through the registry.
//!
//! Who writes, who reads: `listing`, under this lock.

use std::collections::HashSet;
use std::sync::Mutex;

use volt_telemetry::tasks::Query;

use crate::task::header::Place;

/// A walk stands for this many times as long as it took, if the same is asked again;
const REST: u64 = 200;
/// and for this many times, if something else is.
const REST_OF_ANOTHER: u64 = 10;

/// What was chosen last.
#[derive(Default)]
pub(crate) struct Listing(pub(super) Mutex<Option<Chosen>>);

pub(super) struct Chosen {
    pub(super) query: Query,
    pub(super) places: Vec<(u64, Place)>,
    /// Tasks in their first poll.
    pub(super) first_polls: HashSet<u64>,
    pub(super) walked: u64,
    pub(super) matching: u64,
    pub(super) is_cut: bool,
    pub(super) at_ns: u64,
    pub(super) took_ns: u64,
}

impl Chosen {
    /// Whether `query` is answered by it.
    pub(super) fn is_good_for(&self, query: &Query, now_ns: u64) -> bool {
        let rest = if self.query == *query { REST } else { REST_OF_ANOTHER };
        now_ns < self.at_ns + self.took_ns + self.took_ns.saturating_mul(rest)
    }
}
