//! What each screen beside the overview remembers: which of its rows is meant, and how they stand.
//!
//! Invariants. *A choice follows its name*: an incident by its number, a location by its text, while others come and
//! go. *What is being read stays*: an incident whose stack is open is kept when the program has made room for newer
//! ones.

use volt_telemetry::incident::{Incident, Incidents};

use crate::blame;
use crate::facts::Scene;
use crate::incidents::{Whose, calls, newest_first};

/// What the terminal shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Screen {
    /// The runtime, its workers, and one of them in full.
    #[default]
    Overview,
    /// Polls that did not end in time.
    Incidents,
    /// Who makes others wait.
    Blame,
}

impl Screen {
    /// All of them, in the order of their keys.
    pub const ALL: [Screen; 3] = [Screen::Overview, Screen::Incidents, Screen::Blame];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Screen::Overview => "overview",
            Screen::Incidents => "incidents",
            Screen::Blame => "blame",
        }
    }
}

/// The list of incidents, the latest first, and the stack of one of them.
#[derive(Clone, Debug, Default)]
pub struct IncidentList {
    /// The number of the one that was chosen; `None` = the latest, whichever that is.
    chosen: Option<u64>,
    /// The one whose stack is open, and the call in it that is pointed at.
    open: Option<(Incident, usize)>,
}

impl IncidentList {
    /// The place of the selected one in `incidents`, the latest first.
    pub fn position(&self, incidents: &Incidents) -> usize {
        newest_first(incidents).position(|incident| Some(incident.id) == self.chosen).unwrap_or(0)
    }

    /// The selected one: that whose stack is open, else the one in the list.
    pub fn selected<'a>(&'a self, incidents: &'a Incidents) -> Option<&'a Incident> {
        let in_list = || newest_first(incidents).nth(self.position(incidents));
        self.open.as_ref().map(|(incident, _)| incident).or_else(in_list)
    }

    /// The call that is pointed at, when a stack is open.
    pub fn open_call(&self) -> Option<usize> {
        self.open.as_ref().map(|(_, call)| *call)
    }

    /// Opens the stack of the selected one, or closes it.
    pub(super) fn toggle(&mut self, incidents: &Incidents) {
        if self.close() {
            return;
        }
        let Some(incident) = self.selected(incidents).cloned() else { return };
        // It stays selected when the stack is closed.
        self.chosen = Some(incident.id);
        let call = first_call(&incident);
        self.open = Some((incident, call));
    }

    /// Closes the stack; whether one was open.
    pub(super) fn close(&mut self) -> bool {
        self.open.take().is_some()
    }

    /// Moves in the open stack, else in the list.
    pub(super) fn move_to(&mut self, incidents: &Incidents, to: impl Fn(usize) -> usize) {
        if let Some((incident, call)) = &mut self.open {
            *call = to(*call).min(incident.stack.len().saturating_sub(1));
            return;
        }
        let place = to(self.position(incidents)).min(incidents.latest.len().saturating_sub(1));
        // At the top of the list one follows the latest.
        self.chosen = newest_first(incidents).nth(place).map(|incident| incident.id).filter(|_| place > 0);
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

/// The blame table.
#[derive(Clone, Debug, Default)]
pub struct BlameTable {
    /// By which of its columns it is sorted; behind the last one, by location.
    pub order: usize,
    /// Whether the smallest stand first.
    pub is_inverted: bool,
    chosen: Option<String>,
}

impl BlameTable {
    /// The rows as they stand.
    pub fn rows<'a>(&self, scene: &Scene<'a>) -> Vec<blame::Row<'a>> {
        blame::rows(scene, self.order, self.is_inverted)
    }

    /// The place of the selected one in `rows`; the first if none was chosen.
    pub fn position(&self, rows: &[blame::Row<'_>]) -> usize {
        rows.iter().position(|row| Some(&row.blame.spawned_at) == self.chosen.as_ref()).unwrap_or(0)
    }

    /// Sorts by another column, so many to the right, and round at the end.
    pub(super) fn sort_by(&mut self, steps: isize) {
        self.order = (self.order as isize + steps).rem_euclid(blame::ORDERS as isize) as usize;
    }

    pub(super) fn move_to(&mut self, rows: &[blame::Row<'_>], to: impl Fn(usize) -> usize) {
        let place = to(self.position(rows)).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(place).filter(|_| place > 0).map(|row| row.blame.spawned_at.clone());
    }
}
