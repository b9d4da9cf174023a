//! The tasks that were chosen for the last list. Only `scheduler/listing` reads and writes them,
//! under this lock.

use std::collections::HashSet;
use std::sync::Mutex;

use volt_telemetry::listing::choice::Choice;
use volt_telemetry::tasks::Rank;

use crate::task::header::Place;

/// The last choice, if there is one.
#[derive(Default)]
pub(crate) struct Listing(pub(in crate::scheduler) Mutex<Option<Choice<Rank, Chosen>>>);

pub(in crate::scheduler) struct Chosen {
    pub(in crate::scheduler) places: Vec<(u64, Place)>,
    /// Tasks in their first poll.
    pub(in crate::scheduler) first_polls: HashSet<u64>,
    pub(in crate::scheduler) walked: u64,
    pub(in crate::scheduler) matching: u64,
    pub(in crate::scheduler) is_cut: bool,
}
