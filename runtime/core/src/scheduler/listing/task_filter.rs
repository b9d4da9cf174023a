//! The filter of a list of tasks: accepts the tasks that contain the text of a client's query.

use std::collections::HashMap;
use std::panic::Location;
use std::ptr;

use volt_telemetry::tasks::{State, Task};
use volt_telemetry::text;
use volt_telemetry::text::{contains_ignoring_case as has_in, is_id_wanted};
use volt_telemetry::waits;

use crate::task::header::Header;

/// Accepts the tasks that have a text in their name, id, location or state, in what they await, or
/// in the location of that await.
pub(crate) struct TaskFilter {
    /// In lower case.
    wanted: String,
    /// Whether a location contains the text, by its address; there are few locations.
    places: HashMap<usize, bool>,
}

impl TaskFilter {
    pub(crate) fn new(wanted: &str) -> Self {
        Self { wanted: wanted.to_lowercase(), places: HashMap::new() }
    }

    pub(crate) fn has(&mut self, header: &Header, is_polled: bool) -> bool {
        if self.wanted.is_empty() {
            return true;
        }
        header.name().is_some_and(|name| has_in(name, &self.wanted))
            || self.has_place(header.location())
            || has_in(state_of(header, is_polled).name(), &self.wanted)
            || is_id_wanted(header.id.as_u64(), &self.wanted)
            || self.has_await(header)
    }

    pub(crate) fn has_task(&mut self, task: &Task) -> bool {
        self.wanted.is_empty()
            || task.name.as_ref().is_some_and(|name| has_in(name, &self.wanted))
            || has_in(&task.spawned_at, &self.wanted)
            || has_in(task.state.name(), &self.wanted)
            || is_id_wanted(task.id, &self.wanted)
            || task.awaits.as_deref().is_some_and(|name| self.has_awaited(name))
            || task.awaits_at.as_ref().is_some_and(|at| has_in(at, &self.wanted))
    }

    /// A task that was woken may be past the await that it recorded last.
    fn has_await(&mut self, header: &Header) -> bool {
        let awaits = if header.state.is_idle() { header.awaits() } else { None };
        awaits.is_some_and(|(what, at)| self.has_awaited(what.name()) || at.is_some_and(|at| self.has_place(at)))
    }

    /// A name as in JSON, or as it is shown.
    fn has_awaited(&self, name: &str) -> bool {
        has_in(name, &self.wanted) || has_in(waits::awaited(name), &self.wanted)
    }

    fn has_place(&mut self, location: &'static Location<'static>) -> bool {
        let wanted = &self.wanted;
        let has = || has_in(&text::location(location), wanted);
        *self.places.entry(ptr::from_ref(location).addr()).or_insert_with(has)
    }
}

/// Returns the state of a task, which the filter applies to.
pub(super) fn state_of(header: &Header, is_polled: bool) -> State {
    match (is_polled, header.state.is_idle()) {
        (true, _) => State::Polled,
        (false, false) => State::Queued,
        (false, true) if header.state.is_stranded() => State::Stranded,
        (false, true) => State::Waits,
    }
}
