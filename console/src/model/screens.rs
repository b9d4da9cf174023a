//! The state of each screen: the selected row, the order, and the filter.
//!
//! # Invariants
//!
//! *A selection follows its name*: an incident by its number, a location by its text, a task by its
//! id, a process by its pid, while other rows come and go. *An open stack stays*: an incident whose
//! stack is open stays in the list after its runtime ends, and after newer incidents have replaced
//! it in the program.

use std::time::Duration;

use volt_telemetry::dump::{Dump, Link, Lock, Resource, TaskRef};
use volt_telemetry::incident::{Incident, Incidents};
use volt_telemetry::text::{contains_ignoring_case, is_id_wanted};
use volt_telemetry::why::Why;

use crate::facts::incidents::{Whose, calls, newest_first};
use crate::model::history::Kind;

/// A screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// The runtime, its workers, and one worker in full.
    #[default]
    Overview,
    /// One worker and its history.
    Workers,
    /// Individual tasks.
    Tasks,
    /// The distribution of delays and poll durations, now and over time.
    Latency,
    /// Stuck polls.
    Incidents,
    /// Which spawn locations delay other tasks.
    Blame,
    /// Findings and remedies.
    Doctor,
    /// The log of events.
    Events,
    /// Individual processes (actors with mailboxes).
    Processes,
    /// The awaits of the tasks.
    Waits,
    /// HTTP routes.
    Routes,
}

impl Screen {
    /// All screens, in the order of their keys.
    pub const ALL: [Screen; 11] = [
        Screen::Overview,
        Screen::Workers,
        Screen::Tasks,
        Screen::Latency,
        Screen::Incidents,
        Screen::Blame,
        Screen::Doctor,
        Screen::Events,
        Screen::Processes,
        Screen::Waits,
        Screen::Routes,
    ];

    /// Returns the name of the screen.
    pub const fn name(self) -> &'static str {
        match self {
            Screen::Overview => "overview",
            Screen::Workers => "workers",
            Screen::Tasks => "tasks",
            Screen::Latency => "latency",
            Screen::Incidents => "incidents",
            Screen::Blame => "blame",
            Screen::Doctor => "doctor",
            Screen::Events => "events",
            Screen::Processes => "processes",
            Screen::Waits => "waits",
            Screen::Routes => "routes",
        }
    }

    /// Returns the key of the screen.
    pub fn key(self) -> char {
        match self {
            Screen::Routes => 'u',
            // The tenth has the key behind 9.
            digit => char::from_digit((digit as u32 + 1) % 10, 10).unwrap_or(' '),
        }
    }

    /// Returns the initial sort order: tasks by their busy time, processes by their mailboxes.
    pub(super) fn first_order(self) -> usize {
        usize::from(matches!(self, Screen::Tasks | Screen::Processes))
    }
}

/// The order and filter of a screen's rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// The index of the sort order.
    pub order: usize,
    /// Whether the order is reversed.
    pub is_inverted: bool,
    /// The text that rows must contain, ignoring case; empty for all rows.
    pub filter: String,
}

impl List {
    /// Returns whether the filter selects one of these tasks by its id.
    pub fn has_task(&self, ids: impl IntoIterator<Item = u64>) -> bool {
        let wanted = self.filter.to_lowercase();
        ids.into_iter().any(|id| is_id_wanted(id, &wanted))
    }

    /// Returns whether a row with these texts is shown.
    pub fn has<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || texts.into_iter().any(|text| contains_ignoring_case(text, &wanted))
    }
}

/// The state of the tasks screen.
#[derive(Clone, Debug, Default)]
pub struct TaskTable {
    /// The id of the selected task; `None` means the first row.
    pub chosen: Option<u64>,
    /// Whether the detail of the selected task is open.
    pub is_open: bool,
    /// Why a task was polled last, with the task's id.
    pub why: Option<(u64, Result<Box<Why>, String>)>,
    /// Why there is no list of tasks.
    pub error: Option<String>,
}

/// The state of the processes screen.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    /// The pid of the selected process; `None` means the first row.
    pub chosen: Option<String>,
    /// Whether the detail of the selected process is open.
    pub is_open: bool,
    /// Why there is no list of processes.
    pub error: Option<String>,
}

/// The state of the waits screen.
#[derive(Clone, Debug, Default)]
pub struct WaitTable {
    /// The position of the selected group.
    pub chosen: usize,
    /// The last dump.
    pub dump: Option<Box<Dump>>,
    /// When it arrived.
    pub made_at: Duration,
    /// Why there is no dump.
    pub error: Option<String>,
    /// The number of dumps that were requested.
    pub(super) requested: u64,
}

impl WaitTable {
    /// Returns a state without a dump, in which another one is requested.
    pub(super) fn anew(&self) -> WaitTable {
        WaitTable { requested: self.requested + 1, ..WaitTable::default() }
    }
}

/// A row of the waits screen: tasks that wait at the same place, a task that is running, or the
/// future of a `block_on`.
#[derive(Clone, Copy, Debug)]
pub struct WaitRow<'a> {
    /// The number of tasks.
    pub tasks: u64,
    /// The longest wait, or the duration of the poll.
    pub longest_ns: u64,
    /// Where the tasks were spawned, or where `block_on` was called.
    pub spawned_at: &'a str,
    /// Whether this is the future of a `block_on`, which is not a task.
    pub is_block_on: bool,
    /// The chain of calls.
    pub chain: &'a [Link],
    /// Some of the tasks.
    pub examples: &'a [TaskRef],
    /// The worker that runs the task.
    pub worker: Option<u32>,
    /// The primitive that the tasks await, as in
    /// [`Group::awaits`](volt_telemetry::dump::Group::awaits).
    pub awaits: Option<&'a str>,
    /// The location of that await.
    pub awaits_at: Option<&'a str>,
    /// The locks that they await.
    pub locks: &'a [Lock],
    /// The primitives that they await, in numbers.
    pub resources: &'a [Resource],
    /// Why there is no chain.
    pub note: Option<&'a str>,
}

/// The state of the latency screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyChoice {
    /// The worker; `None` means all workers.
    pub worker: Option<usize>,
    /// The kind to show if there is room for only one.
    pub kind: Kind,
}

/// The state of the incidents screen: the selected incident, and its stack.
#[derive(Clone, Debug, Default)]
pub struct IncidentList {
    /// The number of the selected incident; `None` means the first row.
    chosen: Option<u64>,
    /// The incident whose stack is open, and the index of the selected call.
    open: Option<(Incident, usize)>,
}

impl IncidentList {
    /// Returns the position of the selected incident in `rows`.
    pub fn position(&self, rows: &[&Incident]) -> usize {
        rows.iter().position(|incident| Some(incident.id) == self.chosen).unwrap_or(0)
    }

    /// Returns the selected incident: the one whose stack is open, else the one in the list.
    pub fn selected<'a>(&'a self, rows: &[&'a Incident]) -> Option<&'a Incident> {
        let in_list = || rows.get(self.position(rows)).copied();
        self.open.as_ref().map(|(incident, _)| incident).or_else(in_list)
    }

    /// Returns the selected call, if a stack is open.
    pub fn open_call(&self) -> Option<usize> {
        self.open.as_ref().map(|(_, call)| *call)
    }

    /// Opens or closes the stack of the selected incident.
    pub(super) fn toggle(&mut self, rows: &[&Incident]) {
        if self.close() {
            return;
        }
        let Some(incident) = self.selected(rows).cloned() else { return };
        // It stays selected when the stack is closed.
        self.chosen = Some(incident.id);
        let call = first_call(&incident);
        self.open = Some((incident, call));
    }

    /// Opens the stack of this incident.
    pub(super) fn show(&mut self, incident: Incident) {
        self.chosen = Some(incident.id);
        let call = first_call(&incident);
        self.open = Some((incident, call));
    }

    /// Closes the stack. Returns whether one was open.
    pub(super) fn close(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// Moves the selection in the open stack, else in the list.
    pub(super) fn move_to(&mut self, rows: &[&Incident], to: impl Fn(usize) -> usize) {
        if let Some((incident, call)) = &mut self.open {
            *call = to(*call).min(incident.stack.len().saturating_sub(1));
            return;
        }
        let place = to(self.position(rows)).min(rows.len().saturating_sub(1));
        // At the top of the list, the selection follows the first row.
        self.chosen = rows.get(place).map(|incident| incident.id).filter(|_| place > 0);
    }

    /// Updates the open incident from the program's incidents.
    pub(super) fn refresh(&mut self, incidents: &Incidents) {
        let Some((incident, call)) = &mut self.open else { return };
        // Each runtime numbers its incidents from 1, also one that was built anew with the same
        // name. The ids of tasks are unique in the program.
        let is_same = |now: &&Incident| (now.id, now.task_id) == (incident.id, incident.task_id);
        if let Some(now) = newest_first(incidents).find(is_same) {
            if incident.stack.is_empty() && !now.stack.is_empty() {
                *call = first_call(now);
            }
            incident.clone_from(now);
        }
    }
}

/// Returns the call to select first: the line to fix.
fn first_call(incident: &Incident) -> usize {
    calls(incident).iter().position(|call| call.whose == Whose::Guilty).unwrap_or(0)
}
