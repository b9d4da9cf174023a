//! Accepts tasks by a text that a client has entered.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::Location;
use std::ptr;

use volt_telemetry::tasks::Task;

use super::state_of;
use crate::task::header::Header;

/// Accepts the tasks that have a text in their name, id, location or state.
pub(crate) struct Sieve {
    /// In lower case.
    wanted: String,
    /// Whether a location contains the text, by its address; there are few locations.
    places: HashMap<usize, bool>,
    text: String,
}

impl Sieve {
    pub(crate) fn new(wanted: &str) -> Self {
        Self { wanted: wanted.to_lowercase(), places: HashMap::new(), text: String::new() }
    }

    pub(crate) fn has(&mut self, header: &Header, is_polled: bool) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        header.name().is_some_and(|name| has_in(name, &self.wanted))
            || self.has_place(header.location())
            || has_in(state_of(header, is_polled).name(), &self.wanted)
            || self.has_id(header.id.as_u64())
    }

    pub(crate) fn has_task(&mut self, task: &Task) -> bool {
        self.wanted.is_empty()
            || task.name.as_ref().is_some_and(|name| has_in(name, &self.wanted))
            || has_in(&task.spawned_at, &self.wanted)
            || has_in(task.state.name(), &self.wanted)
            || self.has_id(task.id)
    }

    fn has_place(&mut self, location: &'static Location<'static>) -> bool {
        let wanted = &self.wanted;
        let has = || has_in(&location.to_string(), wanted);
        *self.places.entry(ptr::from_ref(location).addr()).or_insert_with(has)
    }

    fn has_id(&mut self, id: u64) -> bool {
        self.text.clear();
        // Writing to a String never fails.
        let _ = write!(self.text, "#{id}");
        self.text.contains(&self.wanted)
    }
}

/// Returns whether `text` contains `wanted`, which is in lower case, regardless of the case.
fn has_in(text: &str, wanted: &str) -> bool {
    if text.is_ascii() {
        let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
        return wanted.is_empty() || text.windows(wanted.len()).any(|part| part.eq_ignore_ascii_case(wanted));
    }
    text.to_lowercase().contains(wanted)
}
