//! The rows of each screen's list: filtered, sorted, and with one selected.

use std::cmp::Reverse;

use volt_diagnosis::doctor::key::Key;
use volt_telemetry::dump::{self, Dump, chain_has};
use volt_telemetry::finding::Finding;
use volt_telemetry::incident::Incident;
use volt_telemetry::processes::Process;
use volt_telemetry::tasks::{Query, Task};
use volt_telemetry::waits::awaited;

use super::{Happened, List, Model, Screen, WaitRow};
use crate::facts::incidents::{newest_first, place_of, task};
use crate::facts::state_word;
use crate::model::Needs;
use crate::tables::blame;
use crate::tables::listing::{self, Row};
use crate::tables::processes;
use crate::tables::routes;
use crate::tables::tasks;
use crate::tables::workers::in_flight;

/// The maximum number of tasks that are requested: more than fit on any screen.
pub const TASKS_SHOWN: u32 = 300;
/// The maximum number of processes that are requested, likewise.
pub const PROCESSES_SHOWN: u32 = 300;
/// The sort orders of the workers.
pub const WORKER_ORDERS: [&str; 5] = ["number", "busy", "polls/s", "queue", "in flight"];
/// The sort orders of the incidents.
const INCIDENT_ORDERS: [&str; 4] = ["when", "duration", "worker", "cause"];

impl Model {
    /// Returns the order and filter of the current screen's rows.
    pub fn list(&self) -> &List {
        &self.lists[self.screen as usize]
    }

    pub(super) fn list_mut(&mut self) -> &mut List {
        &mut self.lists[self.screen as usize]
    }

    fn list_of(&self, screen: Screen) -> &List {
        &self.lists[screen as usize]
    }

    /// Returns the sort orders of the current screen.
    pub fn orders(&self) -> Vec<&'static str> {
        match self.screen {
            Screen::Overview | Screen::Workers => WORKER_ORDERS.to_vec(),
            Screen::Tasks => listing::orders(&tasks::COLUMNS).into_iter().map(|rank| rank.name()).collect(),
            Screen::Processes => listing::orders(&processes::COLUMNS).into_iter().map(|rank| rank.name()).collect(),
            Screen::Incidents => INCIDENT_ORDERS.to_vec(),
            Screen::Blame => blame::COLUMNS.iter().map(|column| column.title).chain([blame::LOCATION_TITLE]).collect(),
            Screen::Routes => routes::COLUMNS.iter().map(|column| column.title).chain([routes::ROUTE_TITLE]).collect(),
            Screen::Doctor => vec!["severity"],
            Screen::Events => vec!["time"],
            Screen::Waits => vec!["longest"],
            Screen::Latency => Vec::new(),
        }
    }

    /// Returns the position of the selected row; `None` on a screen without a list.
    pub fn position(&self) -> Option<usize> {
        Some(match self.screen {
            Screen::Overview | Screen::Workers => {
                self.worker_rows().iter().position(|index| *index == self.selected_worker).unwrap_or(0)
            }
            Screen::Tasks => {
                let rows = self.task_rows();
                rows.iter().position(|row| Some(row.item.id) == self.tasks.chosen).unwrap_or(0)
            }
            Screen::Processes => {
                let rows = self.process_rows();
                rows.iter().position(|row| Some(&row.item.pid) == self.processes.chosen.as_ref()).unwrap_or(0)
            }
            Screen::Incidents => self.incidents.position(&self.incident_rows()),
            Screen::Blame => {
                let rows = self.blame_rows();
                rows.iter().position(|row| Some(&row.item.spawned_at) == self.chosen_location.as_ref()).unwrap_or(0)
            }
            Screen::Routes => {
                let rows = self.route_rows();
                rows.iter().position(|row| Some(row.item.name()) == self.chosen_route).unwrap_or(0)
            }
            Screen::Doctor => {
                let rows = self.finding_rows();
                rows.iter().position(|row| Some(key_of(row)) == self.chosen_finding).unwrap_or(0)
            }
            Screen::Waits => self.waits.chosen.min(self.wait_rows().len().saturating_sub(1)),
            Screen::Events => self.chosen_event.min(self.event_rows().len().saturating_sub(1)),
            Screen::Latency => return None,
        })
    }

    /// Returns the indexes of the workers that are shown.
    pub fn worker_rows(&self) -> Vec<usize> {
        let Some(scene) = self.scene() else { return Vec::new() };
        let screen = if self.screen == Screen::Workers { Screen::Workers } else { Screen::Overview };
        let list = self.list_of(screen);
        let mut rows = scene.shown_workers();
        let workers = &scene.snapshot.workers;
        if !list.filter.is_empty() {
            rows.retain(|index| {
                let worker = &workers[*index];
                let poll = in_flight(worker.in_flight.as_ref(), usize::MAX).text;
                list.has([worker.index.to_string().as_str(), state_word(worker), &poll])
            });
        }
        let per_second = |index: usize, of: fn(&volt_diagnosis::rates::WorkerRates) -> f64| {
            (scene.worker_rates(index).map_or(0.0, of) * 1e6) as u64
        };
        let weight = |index: usize| {
            let worker = &workers[index];
            match list.order {
                1 => per_second(index, |rates| rates.shares.busy_ratio),
                2 => per_second(index, |rates| rates.polls_per_second),
                3 => worker.queued(),
                4 => worker.in_flight.as_ref().map_or(0, |poll| poll.for_ns),
                // Sorted by number, the smallest comes first; in all other orders, the largest.
                _ => u64::MAX - u64::from(worker.index),
            }
        };
        rows.sort_by_key(|index| {
            let weight = weight(*index);
            (Reverse(if list.is_inverted { !weight } else { weight }), *index)
        });
        rows
    }

    /// Returns the tasks that are shown.
    pub fn task_rows(&self) -> Vec<Row<'_, Task>> {
        let state = self.state();
        let runtime = self.scene().map(|scene| &scene.snapshot.runtime);
        let Some(listed) = state.tasks.as_ref().filter(|listed| Some(&listed.runtime) == runtime) else {
            return Vec::new();
        };
        let list = self.list_of(Screen::Tasks);
        let rank = self.task_query().rank;
        // There may be thousands of rows, so their texts are compared only if there is a filter.
        let has = |task: &&Task| {
            if list.filter.is_empty() {
                return true;
            }
            let shown = task.awaits.as_deref().map(awaited);
            let awaits = [task.awaits.as_deref(), shown, task.awaits_at.as_deref()].into_iter().flatten();
            let texts = [task.name.as_deref().unwrap_or(""), &task.spawned_at, task.state.name()];
            list.has(texts.into_iter().chain(awaits)) || list.has_task([task.id])
        };
        let rows = listed.rows.iter().filter(has);
        let mut rows: Vec<_> = rows.map(|item| Row { item, busy_ratio: state.load_of(item.id) }).collect();
        sort(&mut rows, list.is_inverted, |item| (item.weight(rank), item.id));
        rows
    }

    /// Returns the selected task.
    pub fn selected_task(&self) -> Option<&Task> {
        let rows = self.task_rows();
        let chosen = rows.iter().find(|row| Some(row.item.id) == self.tasks.chosen);
        chosen.or(rows.first()).map(|row| row.item)
    }

    /// Returns the query for the tasks on the screen.
    pub fn task_query(&self) -> Query {
        let list = self.list_of(Screen::Tasks);
        let rank = listing::orders(&tasks::COLUMNS).get(list.order).copied().unwrap_or_default();
        Query { rank, is_inverted: list.is_inverted, filter: listing::filter(&list.filter), limit: TASKS_SHOWN }
    }

    /// Returns the processes that are shown.
    pub fn process_rows(&self) -> Vec<Row<'_, Process>> {
        let state = self.state();
        let runtime = self.scene().map(|scene| &scene.snapshot.runtime);
        let Some(listed) = state.processes.as_ref().filter(|listed| Some(&listed.runtime) == runtime) else {
            return Vec::new();
        };
        let list = self.list_of(Screen::Processes);
        let rank = self.process_query().rank;
        let has = |process: &&Process| {
            let name = process.name.as_deref().unwrap_or("");
            list.has([name, &process.pid, &process.kind, &process.spawned_at, process.state.name()])
        };
        let rows = listed.rows.iter().filter(has);
        let mut rows: Vec<_> = rows.map(|item| Row { item, busy_ratio: state.load_of_process(&item.pid) }).collect();
        sort(&mut rows, list.is_inverted, |item| (item.weight(rank), item.number));
        rows
    }

    /// Returns the query for the processes on the screen.
    pub fn process_query(&self) -> volt_telemetry::processes::Query {
        let list = self.list_of(Screen::Processes);
        let rank = listing::orders(&processes::COLUMNS).get(list.order).copied().unwrap_or_default();
        let (is_inverted, filter) = (list.is_inverted, listing::filter(&list.filter));
        volt_telemetry::processes::Query { rank, is_inverted, filter, limit: PROCESSES_SHOWN }
    }

    /// Returns the requests that the screen needs in addition to the snapshots.
    pub fn needs(&self) -> Needs {
        let runtime = self.scene().map(|scene| scene.snapshot.runtime.clone());
        let can_reply = self.played.is_none() && !self.has_ended();
        let Some(runtime) = runtime.filter(|_| can_reply) else { return Needs::default() };
        match self.screen {
            Screen::Tasks => {}
            Screen::Processes => {
                let processes = Some((runtime, self.process_query()));
                return Needs { processes, interval: self.interval, ..Needs::default() };
            }
            Screen::Waits => {
                let dump = Some((runtime, dump::Query::default(), self.waits.requested));
                return Needs { dump, interval: self.interval, ..Needs::default() };
            }
            _ => return Needs::default(),
        }
        let task = self.selected_task().filter(|_| self.tasks.is_open).map(|task| task.id);
        let why = task.map(|task| (runtime.clone(), task));
        Needs { tasks: Some((runtime, self.task_query())), why, interval: self.interval, ..Needs::default() }
    }

    /// Returns the dump of the selected runtime.
    pub fn dump(&self) -> Option<&Dump> {
        let runtime = &self.scene()?.snapshot.runtime;
        self.waits.dump.as_deref().filter(|dump| dump.runtime == *runtime)
    }

    /// Returns the running tasks of the dump, then its groups, and then the futures of `block_on`.
    pub fn wait_rows(&self) -> Vec<WaitRow<'_>> {
        let Some(dump) = self.dump() else { return Vec::new() };
        let running = dump.running.iter().map(|running| WaitRow {
            tasks: 1,
            longest_ns: running.for_ns,
            spawned_at: &running.spawned_at,
            is_block_on: false,
            chain: &running.chain,
            examples: std::slice::from_ref(&running.task),
            worker: Some(running.worker),
            awaits: None,
            awaits_at: None,
            locks: &[],
            resources: &[],
            note: None,
        });
        let groups = dump.groups.iter().map(|group| WaitRow {
            tasks: group.tasks,
            longest_ns: group.oldest_ns,
            spawned_at: &group.spawned_at,
            is_block_on: false,
            chain: &group.chain,
            examples: &group.examples,
            worker: None,
            awaits: group.awaits.as_deref(),
            awaits_at: group.awaits_at.as_deref(),
            locks: &group.locks,
            resources: &group.resources,
            note: group.error.as_deref(),
        });
        let block_on = dump.block_on.iter().map(|block_on| WaitRow {
            tasks: 0,
            longest_ns: block_on.waiting_ns.unwrap_or(0),
            spawned_at: &block_on.called_at,
            is_block_on: true,
            chain: &block_on.chain,
            examples: &[],
            worker: None,
            awaits: None,
            awaits_at: None,
            locks: &[],
            resources: &[],
            note: block_on.error.as_deref().or(block_on.waiting_ns.is_none().then_some("being polled")),
        });
        let list = self.list_of(Screen::Waits);
        let has = |row: &WaitRow<'_>| {
            let names = row.examples.iter().filter_map(|task| task.name.as_deref());
            let awaits = [row.awaits, row.awaits_at].into_iter().flatten();
            let kinds = row.resources.iter().map(|resource| resource.kind.as_str());
            let block_on = row.is_block_on.then_some("block_on");
            let texts = names.chain(awaits).chain(kinds).chain([row.spawned_at]).chain(block_on);
            // A search for a task also finds the tasks that wait for it.
            let holders = row.locks.iter().filter_map(|lock| lock.held_by);
            let is_task = list.has_task(row.examples.iter().map(|task| task.id).chain(holders));
            let held = row.locks.iter().flat_map(|lock| [Some(lock.held_at.as_str()), lock.held_by_name.as_deref()]);
            is_task || list.has(texts.chain(held.flatten())) || chain_has(row.chain, &list.filter.to_lowercase())
        };
        let mut rows: Vec<_> = running.chain(groups).chain(block_on).filter(has).collect();
        if list.is_inverted {
            rows.reverse();
        }
        rows
    }

    /// Returns the incidents that are shown.
    pub fn incident_rows(&self) -> Vec<&Incident> {
        let Some(scene) = self.scene() else { return Vec::new() };
        let list = self.list_of(Screen::Incidents);
        let has = |incident: &&Incident| {
            let (task, line) = (task(incident), place_of(incident));
            list.has([task.as_str(), &line, &incident.spawned_at, incident.cause.name(), incident.remedy.name()])
        };
        let mut rows: Vec<&Incident> = newest_first(&scene.snapshot.incidents).filter(has).collect();
        // The sort is stable: equal rows stay in order, the latest first.
        match list.order {
            1 => rows.sort_by_key(|incident| Reverse(incident.for_ns)),
            2 => rows.sort_by_key(|incident| incident.worker),
            3 => rows.sort_by_key(|incident| incident.cause.name()),
            _ => {}
        }
        if list.is_inverted {
            rows.reverse();
        }
        rows
    }

    /// Returns the rows of the blame table.
    pub fn blame_rows(&self) -> Vec<blame::Row<'_>> {
        let Some(scene) = self.scene() else { return Vec::new() };
        let list = self.list_of(Screen::Blame);
        let mut rows = blame::rows(&scene, list.order, list.is_inverted);
        rows.retain(|row| list.has([row.item.spawned_at.as_str()]));
        rows
    }

    /// Returns the rows of the table of HTTP routes.
    pub fn route_rows(&self) -> Vec<routes::Row<'_>> {
        let Some(scene) = self.scene() else { return Vec::new() };
        let list = self.list_of(Screen::Routes);
        let mut rows = routes::rows(&scene, list.order, list.is_inverted);
        rows.retain(|row| list.has([row.item.name().as_str()]));
        rows
    }

    /// Returns the findings of every runtime.
    pub fn finding_rows(&self) -> Vec<&(String, Finding)> {
        let list = self.list_of(Screen::Doctor);
        let has = |row: &&(String, Finding)| {
            let (runtime, finding) = row;
            let places = finding.locations.iter().map(|place| place.at());
            let texts = [runtime.as_str(), finding.rule.name(), finding.severity.name(), &finding.title];
            list.has(texts.into_iter().chain(places))
        };
        let mut rows: Vec<_> = self.state().findings.iter().filter(has).collect();
        if list.is_inverted {
            rows.reverse();
        }
        rows
    }

    /// Returns the events, the latest first.
    pub fn event_rows(&self) -> Vec<&Happened> {
        let list = self.list_of(Screen::Events);
        let has = |event: &&Happened| list.has([event.kind, event.runtime.as_str(), &event.full_text()]);
        let mut rows: Vec<_> = self.state().log.newest_first().filter(has).collect();
        if list.is_inverted {
            rows.reverse();
        }
        rows
    }
}

/// Returns the identity of a finding, which does not depend on its numbers.
pub(super) fn key_of((runtime, finding): &(String, Finding)) -> (String, Key) {
    (runtime.clone(), Key::of(finding))
}

/// Sorts by weight, the largest first unless `is_inverted`, and equal weights by number. `key`
/// returns both.
fn sort<T>(rows: &mut [Row<'_, T>], is_inverted: bool, key: impl Fn(&T) -> (u64, u64)) {
    rows.sort_by_key(|row| {
        let (weight, number) = key(row.item);
        (Reverse(if is_inverted { !weight } else { weight }), number)
    });
}
