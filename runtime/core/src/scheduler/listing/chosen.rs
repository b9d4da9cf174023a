//! The tasks that were chosen for the last list. They are reused for a while, so that a client that
//! polls often gets new numbers of the same tasks, and the program pays for few walks through the
//! registry. Only `listing` reads and writes them, under this lock.

use std::collections::HashSet;
use std::sync::Mutex;

use volt_telemetry::tasks::Query;

use crate::task::header::Place;

/// For the same query, a choice is reused for this multiple of the time that its walk took.
const REST: u64 = 200;
/// For a different query, the next walk is delayed by this multiple only.
const REST_OF_ANOTHER: u64 = 10;

/// The last choice, if there is one.
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
    /// Returns whether `query` may be answered from this choice.
    pub(super) fn is_good_for(&self, query: &Query, now_ns: u64) -> bool {
        let rest = if self.query == *query { REST } else { REST_OF_ANOTHER };
        now_ns < self.at_ns + self.took_ns + self.took_ns.saturating_mul(rest)
    }
}
