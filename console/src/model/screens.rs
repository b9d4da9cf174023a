//! What each screen remembers: which of its rows is meant, and how they stand.
//!
//! Invariants. *A choice follows its name*: an incident by its number, a location by its text, a
//! task by its id, a process by its pid, while others come and go. *What is being read stays*: an
//! incident whose stack is open is kept when the program has made room for newer ones.

use volt_telemetry::incident::{Incident, Incidents};
use volt_telemetry::why::Why;

use crate::facts::incidents::{Whose, calls, newest_first};
use crate::model::history::Kind;

/// What the terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// The runtime, its workers, and one of them in full.
    #[default]
    Overview,
    /// One worker, and what it did before.
    Workers,
    /// Tasks one by one.
    Tasks,
    /// How delays and poll times are spread, now and over time.
    Latency,
    /// Polls that did not end in time.
    Incidents,
    /// Who makes others wait.
    Blame,
    /// What is wrong, and what to change.
    Doctor,
    /// What has happened.
    Events,
    /// State machines with mailboxes, one by one.
    Processes,
}

impl Screen {
    /// All of them, in the order of their keys.
    pub const ALL: [Screen; 9] = [
        Screen::Overview,
        Screen::Workers,
        Screen::Tasks,
        Screen::Latency,
        Screen::Incidents,
        Screen::Blame,
        Screen::Doctor,
        Screen::Events,
        Screen::Processes,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
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
        }
    }

    /// The same where there is little room.
    pub fn short_name(self) -> &'static str {
        match self {
            Screen::Overview => "over",
            Screen::Workers => "work",
            Screen::Latency => "lat",
            Screen::Incidents => "incid",
            Screen::Processes => "procs",
            other => other.name(),
        }
    }

    /// The order that it begins with: tasks by the time that their polls took, processes by their
    /// mailboxes.
    pub(super) fn first_order(self) -> usize {
        usize::from(matches!(self, Screen::Tasks | Screen::Processes))
    }
}

/// How the rows of a screen stand, and which there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// By which of its orders it is sorted.
    pub order: usize,
    /// Whether it is sorted the other way round.
    pub is_inverted: bool,
    /// What rows must have in them, whatever the case of its letters; empty for all.
    pub filter: String,
}

impl List {
    /// Whether a row that consists of these texts is shown.
    pub fn has<'a>(&self, texts: impl IntoIterator<Item = &'a str>) -> bool {
        let wanted = self.filter.to_lowercase();
        wanted.is_empty() || texts.into_iter().any(|text| text.to_lowercase().contains(&wanted))
    }
}

/// The table of tasks.
#[derive(Clone, Debug, Default)]
pub struct TaskTable {
    /// The id of the one that was chosen; `None` = the first, whichever that is.
    pub chosen: Option<u64>,
    /// Whether all that is known of the selected one is shown.
    pub is_open: bool,
    /// Why a task was polled last, by its id.
    pub why: Option<(u64, Result<Box<Why>, String>)>,
    /// Why the tasks cannot be told.
    pub trouble: Option<String>,
}

/// The table of processes.
#[derive(Clone, Debug, Default)]
pub struct ProcessTable {
    /// The pid of the one that was chosen; `None` = the first, whichever that is.
    pub chosen: Option<String>,
    /// Whether all that is known of the selected one is shown.
    pub is_open: bool,
    /// Why the processes cannot be told.
    pub trouble: Option<String>,
}

/// What the latency screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LatencyChoice {
    /// The worker; `None` = all of them.
    pub worker: Option<usize>,
    /// What is shown where there is room for one kind.
    pub kind: Kind,
}

/// The list of incidents, and the stack of one of them.
#[derive(Clone, Debug, Default)]
pub struct IncidentList {
    /// The number of the one that was chosen; `None` = the first, whichever that is.
    chosen: Option<u64>,
    /// The one whose stack is open, and the call in it that is pointed at.
    open: Option<(Incident, usize)>,
}

impl IncidentList {
    /// The place of the selected one in `rows`.
    pub fn position(&self, rows: &[&Incident]) -> usize {
        rows.iter().position(|incident| Some(incident.id) == self.chosen).unwrap_or(0)
    }

    /// The selected one: that whose stack is open, else the one in the list.
    pub fn selected<'a>(&'a self, rows: &[&'a Incident]) -> Option<&'a Incident> {
        let in_list = || rows.get(self.position(rows)).copied();
        self.open.as_ref().map(|(incident, _)| incident).or_else(in_list)
    }

    /// The call that is pointed at, when a stack is open.
    pub fn open_call(&self) -> Option<usize> {
        self.open.as_ref().map(|(_, call)| *call)
    }

    /// Opens the stack of the selected one, or closes it.
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

    /// Opens the stack of this one.
    pub(super) fn show(&mut self, incident: Incident) {
        self.chosen = Some(incident.id);
        let call = first_call(&incident);
        self.open = Some((incident, call));
    }

    /// Closes the stack; whether one was open.
    pub(super) fn close(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// Moves in the open stack, else in the list.
    pub(super) fn move_to(&mut self, rows: &[&Incident], to: impl Fn(usize) -> usize) {
        if let Some((incident, call)) = &mut self.open {
            *call = to(*call).min(incident.stack.len().saturating_sub(1));
            return;
        }
        let place = to(self.position(rows)).min(rows.len().saturating_sub(1));
        // At the top of the list one follows the first.
        self.chosen = rows.get(place).map(|incident| incident.id).filter(|_| place > 0);
    }

    /// Takes in what has become of the one that is open.
    pub(super) fn refresh(&mut self, incidents: &Incidents) {
        let Some((incident, call)) = &mut self.open else { return };
        if let Some(now) = newest_first(incidents).find(|now| now.id == incident.id) {
            if incident.stack.is_empty() && !now.stack.is_empty() {
                *call = first_call(now);
            }
            incident.clone_from(now);
        }
    }
}

/// The call to point at first: the line to look at.
fn first_call(incident: &Incident) -> usize {
    calls(incident).iter().position(|call| call.whose == Whose::Guilty).unwrap_or(0)
}
