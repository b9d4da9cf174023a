//! What the console knows and how messages change it: message → [`Model::update`] → a screen drawn
//! from `&Model`.
//!
//! Who writes: the loop in `attach`, one message after the other. Who reads: the view. No terminal,
//! no socket and no clock in here: time comes in with [`Message::Tick`], what is to be done outside
//! goes out as an [`Effect`]. So that it can be tested, and driven from something else than a
//! socket.
//!
//! Invariants. *What is shown is one moment*: a picture changes whole, with a snapshot; pausing
//! keeps the picture of that moment while the live one goes on below. *History is bounded* by
//! [`HISTORY_MAX`]. *What was lost is counted and stays counted* over reconnections. *A choice
//! follows its name*: the selected runtime stays selected when others come and go.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use volt_diagnosis::doctor::key::Key;
use volt_diagnosis::doctor::watch::Watch;
use volt_diagnosis::rates::Rates;
use volt_telemetry::finding::Finding;
use volt_telemetry::processes::{self, ProcessList};
use volt_telemetry::snapshot::{Process, Snapshot};
use volt_telemetry::tasks::{Task, TaskList};
use volt_telemetry::wire::Hello;

use crate::facts::{Scene, Tone};
use crate::text::clean;

mod act;
mod events;
mod history;
mod message;
mod rows;
mod screens;

pub(crate) use events::tone_of;
pub use events::{EVENTS_MAX, Happened, Log};
pub use history::{CLASSES, EDGE_POWERS, HISTORY_MAX, History, Kind, Point, Spread, spread};
pub use message::{Action, Effect, Message, Wish};
pub use rows::{PROCESSES_SHOWN, TASKS_SHOWN, WORKER_ORDERS};
pub use screens::{IncidentList, LatencyChoice, List, ProcessTable, Screen, TaskTable};

/// Refresh intervals to choose from.
pub const INTERVALS: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// The one to begin with: slow enough to read figures, quick enough to see a stall of a second.
pub const DEFAULT_INTERVAL: Duration = INTERVALS[3];
/// Without a snapshot for this long beyond three intervals, a connection counts as silent.
const SILENCE: Duration = Duration::from_secs(1);

/// How the connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Snapshots come in.
    Live,
    /// It ended and is being made again.
    Lost {
        /// When it ended, since the console started.
        since: Duration,
        /// What the last try said.
        reason: String,
        /// When the next try is due.
        retry_at: Duration,
    },
}

/// Where in a recording the picture is from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// The time from its first snapshot.
    pub at: Duration,
    /// That of its last.
    pub whole: Duration,
    /// Whether it goes on by itself.
    pub is_playing: bool,
    /// Why it ends before its end.
    pub broke: Option<String>,
}

/// One moment of the program, and what led to it.
#[derive(Clone, Debug, Default)]
pub struct Picture {
    /// The numbers; `None` before the first snapshot.
    pub process: Option<Process>,
    /// What follows from the two last snapshots, by index of the runtime.
    pub rates: Vec<Option<Rates>>,
    /// The numbers before.
    earlier: Option<Process>,
    histories: Vec<History>,
    /// When the snapshot came in.
    pub received_at: Duration,
    /// The tasks that were asked for last.
    pub tasks: Option<TaskList>,
    /// How much of the time since the list before each of them was polled.
    task_loads: HashMap<u64, f64>,
    /// The processes that were asked for last.
    pub processes: Option<ProcessList>,
    /// The same of these, by pid.
    process_loads: HashMap<String, f64>,
    /// What is wrong with each runtime, the worst first: the runtime's name, and the finding.
    pub findings: Vec<(String, Finding)>,
    /// What has happened.
    pub log: Log,
    /// Judges programs that do not judge themselves.
    watch: Watch,
}

/// Everything that the screen shows.
///
/// ```
/// use volt_console::model::{Action, DEFAULT_INTERVAL, Effect, Message, Model};
/// let mut model = Model::new(DEFAULT_INTERVAL);
/// assert_eq!(model.update(Message::Do(Action::ToggleHelp)), None);
/// assert!(model.is_help_open);
/// assert_eq!(model.update(Message::Do(Action::Quit)), Some(Effect::Quit));
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    /// Who answers.
    pub hello: Hello,
    /// How the connection is.
    pub link: Link,
    /// Snapshots that were skipped because somebody was too slow, or would have come while there
    /// was no connection, since the console started.
    pub lost: u64,
    /// Time between two snapshots.
    pub interval: Duration,
    /// The time since the console started.
    pub now: Duration,
    /// What is shown.
    pub screen: Screen,
    /// How the rows of each screen stand.
    lists: [List; Screen::ALL.len()],
    /// What is typed goes into the filter of the screen.
    pub is_typing: bool,
    /// The list of incidents.
    pub incidents: IncidentList,
    /// The table of tasks.
    pub tasks: TaskTable,
    /// The table of processes.
    pub processes: ProcessTable,
    /// The latency screen.
    pub latency: LatencyChoice,
    /// The selected row of the blame table: its location.
    chosen_location: Option<String>,
    /// The selected finding, and its runtime.
    chosen_finding: Option<(String, Key)>,
    /// The place of the selected event, the first being the latest.
    chosen_event: usize,
    /// The selected worker, by its index.
    pub selected_worker: usize,
    /// Whether the help is open.
    pub is_help_open: bool,
    /// Whether the selected worker's details are shown.
    pub is_detail_open: bool,
    /// Counters since start instead of a second.
    pub shows_totals: bool,
    /// If it is a recording that is shown: where.
    pub played: Option<Played>,
    selected_runtime: Option<String>,
    live: Picture,
    held: Option<Picture>,
    lost_in_subscription: u64,
    /// The connection is to another process than the one before.
    is_another_life: bool,
}

impl Model {
    /// Before the first message.
    pub fn new(interval: Duration) -> Model {
        let mut lists: [List; Screen::ALL.len()] = Default::default();
        for screen in Screen::ALL {
            lists[screen as usize].order = screen.first_order();
        }
        Model {
            hello: Hello::default(),
            link: Link::Live,
            lost: 0,
            interval,
            now: Duration::ZERO,
            screen: Screen::default(),
            lists,
            is_typing: false,
            incidents: IncidentList::default(),
            tasks: TaskTable::default(),
            processes: ProcessTable::default(),
            latency: LatencyChoice::default(),
            chosen_location: None,
            chosen_finding: None,
            chosen_event: 0,
            selected_worker: 0,
            is_help_open: false,
            is_detail_open: true,
            shows_totals: false,
            played: None,
            selected_runtime: None,
            live: Picture::default(),
            held: None,
            lost_in_subscription: 0,
            is_another_life: false,
        }
    }

    /// Takes one message in, and says what is to be done outside.
    pub fn update(&mut self, message: Message) -> Option<Effect> {
        match message {
            Message::Tick(now) => self.now = now,
            Message::Connected(hello) => {
                let hello = clean::hello(hello);
                self.is_another_life = (hello.pid, hello.start_time) != (self.hello.pid, self.hello.start_time);
                self.hello = hello;
                if let Link::Lost { since, .. } = &self.link {
                    let after = crate::text::figures::age(nanos(self.now.saturating_sub(*since)));
                    let text = format!("reconnected after {after}, pid {}", self.hello.pid);
                    self.live.log.add(self.now, "link", "", text, Tone::Plain);
                }
                self.link = Link::Live;
                self.live.received_at = self.now;
                self.lost_in_subscription = 0;
            }
            // A program that was not there has sent nothing that could be lost.
            Message::Missed(_) if self.is_another_life => {}
            Message::Missed(updates) => self.lost = self.lost.saturating_add(updates),
            Message::Snapshot { process, lost } => self.take(clean::process(*process), lost),
            Message::Disconnected { reason, retry_in } => self.lose(clean::text(&reason), retry_in),
            Message::Tasks(list) => self.take_tasks(clean::tasks(*list)),
            Message::Processes(list) => self.take_processes(clean::processes(*list)),
            Message::Why { task, why } => {
                self.tasks.why =
                    Some((task, why.map(|why| Box::new(clean::why(*why))).map_err(|error| clean::text(&error))));
            }
            Message::Refused(reason) if self.screen == Screen::Processes => {
                self.processes.trouble = Some(clean::text(&reason));
            }
            Message::Refused(reason) => self.tasks.trouble = Some(clean::text(&reason)),
            Message::Do(action) => return self.act(action),
        }
        None
    }

    /// Shows a moment of a recording; with `earlier`, the picture before it, what was shown is
    /// forgotten.
    pub fn play(&mut self, played: Played, earlier: Option<Process>, process: Process) {
        self.played = Some(played);
        if let Some(earlier) = earlier {
            self.live = Picture::default();
            self.take(earlier, 0);
        }
        self.take(process, 0);
    }

    /// The picture to draw: the held one while paused.
    pub fn picture(&self) -> &Picture {
        self.held.as_ref().unwrap_or(&self.live)
    }

    /// Whether the picture is held.
    pub fn is_paused(&self) -> bool {
        self.held.is_some()
    }

    /// The runtimes of the picture.
    pub fn runtimes(&self) -> &[Snapshot] {
        self.picture().process.as_ref().map_or(&[], |process| &process.runtimes)
    }

    /// The index of the selected runtime.
    pub fn runtime_index(&self) -> usize {
        let is_selected = |runtime: &Snapshot| Some(&runtime.runtime) == self.selected_runtime.as_ref();
        self.runtimes().iter().position(is_selected).unwrap_or(0)
    }

    /// The selected runtime; `None` before the first snapshot, and for a process that has none.
    pub fn scene(&self) -> Option<Scene<'_>> {
        let index = self.runtime_index();
        let snapshot = self.runtimes().get(index)?;
        Some(Scene { snapshot, rates: self.picture().rates.get(index).and_then(Option::as_ref) })
    }

    /// Polls a second of the selected runtime, the oldest first; `None` where there was no
    /// connection.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = Option<u64>> + '_ {
        self.past().into_iter().flat_map(|history| history.polls.iter().copied())
    }

    /// What is kept of the selected runtime's past.
    pub fn past(&self) -> Option<&History> {
        let name = self.scene().map(|scene| scene.snapshot.runtime.as_str());
        self.picture().histories.iter().find(|history| Some(history.name.as_str()) == name)
    }

    /// The selected runtime in the snapshot before.
    pub fn earlier(&self) -> Option<&Snapshot> {
        let name = &self.scene()?.snapshot.runtime;
        self.picture().earlier.as_ref()?.runtimes.iter().find(|runtime| runtime.runtime == *name)
    }

    /// How long nothing was heard over a standing connection, when that is longer than it should
    /// be.
    pub fn silent_for(&self) -> Option<Duration> {
        let since = self.now.saturating_sub(self.live.received_at);
        (self.link == Link::Live && since > self.interval * 3 + SILENCE).then_some(since)
    }

    fn take(&mut self, process: Process, lost: u64) {
        // A subscription that was made anew counts from 0 again.
        let before = if lost < self.lost_in_subscription { 0 } else { self.lost_in_subscription };
        if lost > before {
            let text = format!("{} snapshots skipped: the console or the program was too slow", lost - before);
            self.live.log.add(self.now, "lost", "", text, Tone::Warn);
        }
        self.lost = self.lost.saturating_add(lost - before);
        self.lost_in_subscription = lost;
        self.link = Link::Live;
        if self.live.process.as_ref().is_some_and(|former| former.pid != process.pid) {
            // Another program counts its incidents anew.
            self.incidents = IncidentList::default();
        }
        self.live.take(process, self.now);
        if self.selected_runtime.is_none() {
            let runtimes = self.live.process.as_ref().map_or(&[][..], |process| &process.runtimes);
            self.selected_runtime = busiest(runtimes).map(|index| runtimes[index].runtime.clone());
        }
        self.refresh_choices();
    }

    fn take_tasks(&mut self, list: TaskList) {
        self.tasks.trouble = None;
        let former = self.live.tasks.take().filter(|former| former.runtime == list.runtime);
        if let Some(former) = former.filter(|former| former.at_ns < list.at_ns) {
            let of = |task: &Task| Some((task.id, task.busy_ns?));
            self.live.task_loads = loads(&former.rows, &list.rows, of, list.at_ns - former.at_ns);
        } else {
            self.live.task_loads.clear();
        }
        self.live.tasks = Some(list);
    }

    fn take_processes(&mut self, list: ProcessList) {
        self.processes.trouble = None;
        let former = self.live.processes.take().filter(|former| former.runtime == list.runtime);
        if let Some(former) = former.filter(|former| former.at_ns < list.at_ns) {
            let of = |process: &processes::Process| Some((process.pid.clone(), process.busy_ns?));
            self.live.process_loads = loads(&former.rows, &list.rows, of, list.at_ns - former.at_ns);
        } else {
            self.live.process_loads.clear();
        }
        self.live.processes = Some(list);
    }

    fn lose(&mut self, reason: String, retry_in: Duration) {
        let since = match self.link {
            Link::Live => {
                self.live.histories.iter_mut().for_each(History::break_off);
                self.live.log.add(self.now, "link", "", format!("connection lost: {reason}"), Tone::Alarm);
                self.now
            }
            Link::Lost { since, .. } => since,
        };
        self.link = Link::Lost { since, reason, retry_at: self.now + retry_in };
    }
}

impl Picture {
    fn take(&mut self, mut process: Process, now: Duration) {
        let rates = self.process.as_ref().map(|earlier| Rates::between_processes(earlier, &process));
        self.rates = rates.unwrap_or_else(|| vec![None; process.runtimes.len()]);
        self.histories.retain(|history| process.runtimes.iter().any(|runtime| runtime.runtime == history.name));
        for (runtime, rates) in process.runtimes.iter().zip(&self.rates) {
            let Some(rates) = rates else { continue };
            let index = self.histories.iter().position(|history| history.name == runtime.runtime);
            let index = index.unwrap_or_else(|| {
                self.histories.push(History { name: runtime.runtime.clone(), ..History::default() });
                self.histories.len() - 1
            });
            self.histories[index].take(runtime, rates);
        }
        self.watch.fill_in(&mut process.runtimes);
        self.log.take(&process, now);
        let of = |runtime: &Snapshot| {
            let findings = runtime.findings.iter().flatten().cloned();
            findings.map(|finding| (runtime.runtime.clone(), finding)).collect::<Vec<_>>()
        };
        self.findings = process.runtimes.iter().flat_map(of).collect();
        self.findings.sort_by_key(|(_, finding)| (Reverse(finding.seen.is_current), Reverse(finding.severity)));
        self.earlier = self.process.replace(process);
        self.received_at = now;
    }

    /// How much of the time since the list before the task of this id was polled.
    pub fn load_of(&self, task: u64) -> Option<f64> {
        self.task_loads.get(&task).copied()
    }

    /// The same of the process of this pid.
    pub fn load_of_process(&self, pid: &str) -> Option<f64> {
        self.process_loads.get(pid).copied()
    }
}

/// How much of `past_ns` each was polled that is in both lists; `of` says who it is, and for how
/// long it was polled, ns.
fn loads<T, K: Eq + Hash>(
    before: &[T],
    now: &[T],
    of: impl Fn(&T) -> Option<(K, u64)>,
    past_ns: u64,
) -> HashMap<K, f64> {
    let before: HashMap<K, u64> = before.iter().filter_map(&of).collect();
    let load = |row: &T| {
        let (who, busy_ns) = of(row)?;
        let grown_ns = busy_ns.saturating_sub(*before.get(&who)?);
        Some((who, (grown_ns as f64 / past_ns as f64).min(1.0)))
    };
    now.iter().filter_map(load).collect()
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The runtime whose workers have been busy longest since its start: in a program with helpers (an
/// exporter's), the application's own.
pub fn busiest(runtimes: &[Snapshot]) -> Option<usize> {
    let busy_ns = |runtime: &Snapshot| runtime.workers.iter().map(|worker| worker.busy_ns).fold(0, u64::saturating_add);
    // The last of equals is the greatest for `max_by_key`: scanned from the back, that is the
    // first.
    (0..runtimes.len()).rev().max_by_key(|index| busy_ns(&runtimes[*index]))
}

#[cfg(test)]
mod tests;
