//! Applies actions of the keyboard and the mouse to the model.

use std::time::Duration;

use volt_telemetry::finding::{Finding, Place};
use volt_telemetry::incident::Incident;
use volt_telemetry::rule::Rule;

use super::{Action, Effect, INTERVALS, Kind, Model, Screen, help};
use crate::facts::incidents::newest_first;

/// The largest number of characters in a filter.
const FILTER_MAX: usize = 100;
/// How long a note is shown, if no other key is pressed.
const NOTE_LASTS: Duration = Duration::from_secs(5);

/// Why a key did nothing. Each note fits the smallest screen.
const ONE_RUNTIME: &str = "This program has one runtime, so there is no other to show.";
const ONE_RECORDED: &str = "This recording has one runtime, so there is no other to show.";
const SHOWN_BELOW: &str = "Nothing to open: the selected row is always shown in full below the list.";
const NO_TASK: &str = "Nothing to open: this finding names neither a task nor a line of code.";
const NO_STACK: &str = "Nothing to open: the recording has no stack for this row, and no waits.";
const NO_STUCK_POLL: &str = "Nothing to open: no incident of this route is known, so there is no stack.";

impl Model {
    /// Returns why the last key did nothing. A key that does something removes the note, and so
    /// does time.
    pub fn note(&self) -> Option<&'static str> {
        let (note, since) = self.note?;
        (self.now < since + NOTE_LASTS).then_some(note)
    }

    fn explain(&mut self, note: &'static str) {
        self.note = Some((note, self.now));
    }

    pub(super) fn act(&mut self, action: Action) -> Option<Effect> {
        self.note = None;
        if let Some(page) = self.help_page
            && let Some(to) = self.turn(page, action)
        {
            self.help_page = to;
            return None;
        }
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Back => self.back(),
            Action::TogglePause => {
                self.held = if self.held.is_some() { None } else { Some(self.live.clone()) };
                self.refresh_choices();
            }
            Action::NextHelp => self.help_page = Some(0),
            Action::Show(screen) => {
                if screen == Screen::Waits {
                    self.waits.requested += 1;
                }
                (self.screen, self.help_page, self.is_typing) = (screen, None, false);
            }
            Action::ToggleDetail => self.toggle_detail(),
            Action::ToggleTotals if self.screen == Screen::Waits => self.waits.requested += 1,
            Action::ToggleTotals => self.shows_totals = !self.shows_totals,
            Action::NextRuntime => self.select_runtime(1),
            Action::PreviousRuntime => self.select_runtime(self.runtimes().len().saturating_sub(1)),
            Action::Slower => return self.subscribe(|i| INTERVALS.iter().find(|interval| **interval > i)),
            Action::Faster => return self.subscribe(|i| INTERVALS.iter().rfind(|interval| **interval < i)),
            Action::SortBy(steps) => {
                let orders = self.orders().len().max(1) as isize;
                let list = self.list_mut();
                list.order = (list.order as isize + steps).rem_euclid(orders) as usize;
            }
            Action::InvertSort => {
                let list = self.list_mut();
                list.is_inverted = !list.is_inverted;
            }
            Action::Move(rows) => self.select(|row| row.saturating_add_signed(rows)),
            Action::TurnPage(pages) => self.turn_page(pages),
            Action::First => self.select(|_| 0),
            Action::Last => self.select(|_| usize::MAX),
            Action::Pick(place) if self.position() == Some(place) => self.toggle_detail(),
            Action::Pick(place) => self.select(|_| place),
            Action::Filter => (self.is_typing, self.help_page) = (self.can_filter(), None),
            Action::Type(c) if self.list().filter.chars().count() < FILTER_MAX => self.list_mut().filter.push(c),
            Action::Type(_) => {}
            Action::Erase => _ = self.list_mut().filter.pop(),
            Action::Accept => self.is_typing = false,
        }
        None
    }

    /// Returns the page of the help after an action that turns pages: `None` after the last one,
    /// which closes the help. Other actions have their usual effect.
    fn turn(&self, page: usize, action: Action) -> Option<Option<usize>> {
        let last = help::pages(self.screen, self.played.is_some()).len() - 1;
        match action {
            Action::NextHelp => Some((page < last).then_some(page + 1)),
            Action::Move(rows) => Some(Some(page.saturating_add_signed(rows.signum()).min(last))),
            Action::First => Some(Some(0)),
            Action::Last => Some(Some(last)),
            _ => None,
        }
    }

    fn can_filter(&self) -> bool {
        self.screen != Screen::Latency
    }

    /// Closes what is open on top; otherwise clears the filter; otherwise returns to the overview.
    ///
    /// Never quits: pressed once too often, the key must not end the screen during an incident.
    fn back(&mut self) {
        if std::mem::take(&mut self.is_typing) {
            return self.list_mut().filter.clear();
        }
        let _is_done = self.help_page.take().is_some()
            || self.clear_filter_without_rows()
            || (self.screen == Screen::Incidents && self.incidents.close())
            || (self.screen == Screen::Tasks && std::mem::take(&mut self.tasks.is_open))
            || (self.screen == Screen::Processes && std::mem::take(&mut self.processes.is_open))
            || !std::mem::take(&mut self.list_mut().filter).is_empty()
            || std::mem::take(&mut self.screen) != Screen::Overview;
    }

    /// Clears the filter if no row matches it: an open detail is not visible then.
    fn clear_filter_without_rows(&mut self) -> bool {
        let is_empty = match self.screen {
            Screen::Tasks => self.task_rows().is_empty(),
            Screen::Processes => self.process_rows().is_empty(),
            Screen::Incidents => self.incidents.selected(&self.incident_rows()).is_none(),
            _ => false,
        };
        is_empty && !std::mem::take(&mut self.list_mut().filter).is_empty()
    }

    fn toggle_detail(&mut self) {
        match self.screen {
            Screen::Overview => self.is_detail_open = !self.is_detail_open,
            Screen::Incidents => {
                let mut list = std::mem::take(&mut self.incidents);
                list.toggle(&self.incident_rows());
                self.incidents = list;
            }
            Screen::Tasks => {
                self.tasks.is_open = !self.tasks.is_open;
                // The task stays selected while its detail is open.
                self.tasks.chosen = self.selected_task().map(|task| task.id);
            }
            Screen::Processes => {
                self.processes.is_open = !self.processes.is_open;
                let rows = self.process_rows();
                self.processes.chosen =
                    self.position().and_then(|place| rows.get(place)).map(|row| row.item.pid.clone());
            }
            Screen::Latency => {
                self.latency.kind = if self.latency.kind == Kind::Delay { Kind::Poll } else { Kind::Delay };
            }
            Screen::Doctor => self.open_finding(),
            Screen::Blame => self.open_location(),
            Screen::Routes => self.open_route(),
            Screen::Workers | Screen::Events | Screen::Waits => self.explain(SHOWN_BELOW),
        }
    }

    /// Shows another page of the selected finding, which stays selected.
    fn turn_page(&mut self, pages: isize) {
        if self.screen == Screen::Doctor {
            let rows = self.finding_rows();
            let row = self.position().and_then(|place| rows.get(place));
            self.chosen_finding = row.map(|row| super::rows::key_of(row));
            self.finding_page = self.finding_page.wrapping_add(pages);
        }
    }

    /// Opens the stack of the latest incident that the selected finding is about, if there is one;
    /// else what its tasks wait for.
    fn open_finding(&mut self) {
        let rows = self.finding_rows();
        let Some(row) = self.position().and_then(|place| rows.get(place)) else { return };
        let (runtime, finding) = (*row).clone();
        let is_place = |at: &str| finding.locations.iter().any(|place| place.at() == at);
        let is_it = |incident: &Incident| {
            let line = incident.guilty().map(|frame| Place::of_frame(frame).at().to_owned());
            is_place(&incident.spawned_at) && line.is_none_or(|line| is_place(&line))
        };
        let filter = filter_of(&finding);
        let none = if filter.is_some() { NO_STACK } else { NO_TASK };
        self.open(runtime, is_it, filter, none);
    }

    /// Does the same for the tasks of the selected spawn location.
    fn open_location(&mut self) {
        let rows = self.blame_rows();
        let Some(spawned_at) = self.position().and_then(|place| rows.get(place)).map(|row| row.item.spawned_at.clone())
        else {
            return;
        };
        let Some(runtime) = self.scene().map(|scene| scene.snapshot.runtime.clone()) else { return };
        let filter = Some(spawned_at.clone());
        self.open(runtime, |incident| incident.spawned_at == spawned_at, filter, NO_STACK);
    }

    /// Opens the stack of the latest incident of a request of the selected route, if there is one.
    fn open_route(&mut self) {
        let rows = self.route_rows();
        let Some(route) = self.position().and_then(|place| rows.get(place)).map(|row| row.item.name()) else { return };
        let Some(runtime) = self.scene().map(|scene| scene.snapshot.runtime.clone()) else { return };
        self.open(runtime, |incident| incident.route.as_ref() == Some(&route), None, NO_STUCK_POLL);
    }

    /// Opens the stack of the latest incident of this runtime that `is_it`. If there is none, opens
    /// the waits of the tasks that `filter` finds. If that is impossible, too, shows the note
    /// `none`.
    fn open(&mut self, runtime: String, is_it: impl Fn(&Incident) -> bool, filter: Option<String>, none: &'static str) {
        let of = self.runtimes().iter().find(|of| of.runtime == runtime);
        if let Some(incident) = of.and_then(|of| newest_first(&of.incidents).find(|incident| is_it(incident))).cloned()
        {
            self.selected_runtime = Some(runtime);
            self.incidents.show(incident);
            self.screen = Screen::Incidents;
        } else if let Some(filter) = filter.filter(|_| self.played.is_none()) {
            self.selected_runtime = Some(runtime);
            self.act(Action::Show(Screen::Waits));
            self.waits.chosen = 0;
            self.list_mut().filter = filter;
        } else {
            self.explain(none);
        }
    }

    /// Selects the row at the position that `to` computes from the current one.
    fn select(&mut self, to: impl Fn(usize) -> usize) {
        let bounded = |place: Option<usize>, rows: usize| to(place.unwrap_or(0)).min(rows.saturating_sub(1));
        match self.screen {
            Screen::Overview | Screen::Workers => {
                let rows = self.worker_rows();
                let place = bounded(self.position(), rows.len());
                self.selected_worker = rows.get(place).copied().unwrap_or(0);
            }
            Screen::Tasks => {
                let rows = self.task_rows();
                let place = bounded(self.position(), rows.len());
                let chosen = rows.get(place).map(|row| row.item.id);
                // At the top of the table, the selection follows the first row.
                self.tasks.chosen = chosen.filter(|_| place > 0 || self.tasks.is_open);
            }
            Screen::Processes => {
                let rows = self.process_rows();
                let place = bounded(self.position(), rows.len());
                let chosen = rows.get(place).map(|row| row.item.pid.clone());
                self.processes.chosen = chosen.filter(|_| place > 0 || self.processes.is_open);
            }
            Screen::Latency => {
                // The first position stands for all workers together.
                let workers = self.scene().map_or(0, |scene| scene.snapshot.workers.len());
                let place = to(self.latency.worker.map_or(0, |index| index + 1)).min(workers);
                self.latency.worker = place.checked_sub(1);
            }
            Screen::Incidents => {
                let mut list = std::mem::take(&mut self.incidents);
                list.move_to(&self.incident_rows(), to);
                self.incidents = list;
            }
            Screen::Blame => {
                let rows = self.blame_rows();
                let place = bounded(self.position(), rows.len());
                self.chosen_location = rows.get(place).filter(|_| place > 0).map(|row| row.item.spawned_at.clone());
            }
            Screen::Routes => {
                let rows = self.route_rows();
                let place = bounded(self.position(), rows.len());
                self.chosen_route = rows.get(place).filter(|_| place > 0).map(|row| row.item.name());
            }
            Screen::Doctor => {
                let rows = self.finding_rows();
                let place = bounded(self.position(), rows.len());
                self.chosen_finding = rows.get(place).filter(|_| place > 0).map(|row| super::rows::key_of(row));
                self.finding_page = 0;
            }
            Screen::Waits => {
                let rows = self.wait_rows().len();
                self.waits.chosen = bounded(Some(self.waits.chosen), rows);
            }
            Screen::Events => {
                let rows = self.event_rows().len();
                self.chosen_event = bounded(Some(self.chosen_event), rows);
            }
        }
    }

    /// Adjusts the selections to a new state: items that no longer exist are deselected.
    pub(super) fn refresh_choices(&mut self) {
        let shown = self.scene().map(|scene| scene.shown_workers()).unwrap_or_default();
        // If the selected spare is inactive now, selects the nearest worker before it.
        let nearest = shown.iter().rev().find(|index| **index <= self.selected_worker).or(shown.first());
        self.selected_worker = nearest.copied().unwrap_or(0);
        let workers = self.scene().map_or(0, |scene| scene.snapshot.workers.len());
        self.latency.worker = self.latency.worker.filter(|index| *index < workers);
        let mut list = std::mem::take(&mut self.incidents);
        if let Some(scene) = self.scene() {
            list.refresh(&scene.snapshot.incidents);
        }
        self.incidents = list;
    }

    fn select_runtime(&mut self, steps: usize) {
        let runtimes = self.runtimes();
        if runtimes.len() == 1 {
            self.explain(if self.played.is_some() { ONE_RECORDED } else { ONE_RUNTIME });
        } else if !runtimes.is_empty() {
            let next = (self.runtime_index() + steps) % runtimes.len();
            self.selected_runtime = Some(runtimes[next].runtime.clone());
            self.selected_worker = 0;
            self.incidents = super::IncidentList::default();
            self.tasks = super::TaskTable::default();
            self.processes = super::ProcessTable::default();
            self.waits = self.waits.anew();
            self.latency.worker = None;
        }
    }

    fn subscribe(&mut self, choose: impl Fn(Duration) -> Option<&'static Duration>) -> Option<Effect> {
        self.interval = *choose(self.interval)?;
        Some(Effect::Subscribe(self.interval))
    }
}

/// Returns the text by which the waits screen finds the tasks of a finding: a task of a deadlock,
/// and those that wait for it; else a spawn location.
fn filter_of(finding: &Finding) -> Option<String> {
    let task = finding.tasks.first().map(|task| format!("#{}", task.id));
    if finding.rule == Rule::Deadlock {
        return task;
    }
    let is_spawned = |place: &&Place| matches!(place, Place::Spawned { .. });
    let place = finding.locations.iter().find(is_spawned).or(finding.locations.first());
    place.map(|place| place.at().to_owned()).or(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::figures::width;

    #[test]
    fn each_note_fits_the_smallest_screen() {
        for note in [ONE_RUNTIME, ONE_RECORDED, SHOWN_BELOW, NO_TASK, NO_STACK, NO_STUCK_POLL] {
            assert!(width(note) < 80 && note.ends_with('.'), "{note}");
        }
    }
}
