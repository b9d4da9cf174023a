//! The state of the console. A message changes it through [`Model::update`], and the view draws a
//! screen from `&Model`.
//!
//! The loop in `attach` applies the messages one after the other. The model uses no terminal, no
//! socket and no clock, so that it can be tested, and so that a recording can drive it. Time
//! arrives with [`Message::Tick`], and in a replay with [`Model::play`]. The caller performs the
//! returned [`Effect`].
//!
//! # Invariants
//!
//! *A screen shows one moment*: each snapshot replaces the whole state. While the console is
//! paused, the held state stays, and the live one is updated in the background. *The history is
//! bounded* by [`HISTORY_MAX`]. *Lost snapshots are counted*, and the count survives reconnections.
//! *A selection follows its name*: the selected runtime stays selected when others come and go.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use volt_diagnosis::doctor::key::Key;
use volt_diagnosis::doctor::watch::Watch;
use volt_diagnosis::rates::Rates;
use volt_telemetry::finding::Finding;
use volt_telemetry::processes::{self, ProcessList};
use volt_telemetry::snapshot::{Program, Snapshot};
use volt_telemetry::tasks::{Task, TaskList};
use volt_telemetry::wire::Hello;

use crate::facts::{Scene, Tone};
use crate::text::clean;

mod history;
mod screens;

mod events;
pub mod help;
mod message;
mod rows;

mod act;

pub(crate) use events::tone_of;
pub use events::{EVENTS_MAX, Happened, Log};
pub use history::{CLASSES, EDGE_POWERS, HISTORY_MAX, History, Kind, Point, Spread, spread};
pub use message::{Action, Effect, Message, Needs};
pub use rows::{PROCESSES_SHOWN, TASKS_SHOWN, WORKER_ORDERS};
pub use screens::{IncidentList, LatencyChoice, List, ProcessTable, Screen, TaskTable, WaitRow, WaitTable};

/// The selectable refresh intervals.
pub const INTERVALS: [Duration; 7] = [
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
];
/// The default interval: long enough to read the figures, short enough to see a stall of a second.
pub const DEFAULT_INTERVAL: Duration = INTERVALS[3];
/// A connection counts as silent if no snapshot arrives for three intervals and this time.
const SILENCE: Duration = Duration::from_secs(1);

/// The state of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Snapshots arrive.
    Live,
    /// The connection was lost, and the console tries to connect again.
    Lost {
        /// When it was lost, since the console started.
        since: Duration,
        /// The error of the last attempt.
        reason: String,
        /// When the next attempt is due.
        retry_at: Duration,
    },
    /// The program has exited and cannot come back.
    Exited {
        /// When the connection was lost, since the console started.
        since: Duration,
        /// The pid of the program.
        pid: u32,
    },
}

/// The position in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Played {
    /// The time since its first snapshot.
    pub at: Duration,
    /// The time of its last snapshot.
    pub whole: Duration,
    /// Whether it is playing.
    pub is_playing: bool,
    /// Why the recording is not shown as a whole, if it is not.
    pub broke: Option<String>,
}

/// The state of the program at one moment, and its history.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// The numbers; `None` before the first snapshot.
    pub program: Option<Program>,
    /// The rates between the last two snapshots, by index of the runtime.
    pub rates: Vec<Option<Rates>>,
    /// The previous snapshot.
    earlier: Option<Program>,
    histories: Vec<History>,
    /// When the snapshot arrived.
    pub received_at: Duration,
    /// The last list of tasks.
    pub tasks: Option<TaskList>,
    /// For each task, the share of the time since the previous list that it was being polled.
    task_loads: HashMap<u64, f64>,
    /// The last list of processes.
    pub processes: Option<ProcessList>,
    /// The same for each process, by pid.
    process_loads: HashMap<String, f64>,
    /// The findings of each runtime, the worst first: the runtime's name, and the finding.
    pub findings: Vec<(String, Finding)>,
    /// The events.
    pub log: Log,
    /// Computes the findings of programs that do not compute them.
    watch: Watch,
}

/// The state of everything that the screens show.
///
/// ```
/// use volt_console::model::{Action, DEFAULT_INTERVAL, Effect, Message, Model};
/// let mut model = Model::new(DEFAULT_INTERVAL);
/// assert_eq!(model.update(Message::Do(Action::NextHelp)), None);
/// assert_eq!(model.help_page, Some(0));
/// assert_eq!(model.update(Message::Do(Action::Quit)), Some(Effect::Quit));
/// ```
#[derive(Clone, Debug)]
pub struct Model {
    /// The hello message of the program.
    pub hello: Hello,
    /// The state of the connection.
    pub link: Link,
    /// The number of lost snapshots since the console started: those that the server skipped
    /// because the console or the program was too slow, and those missed without a connection.
    pub lost: u64,
    /// Time between two snapshots.
    pub interval: Duration,
    /// The time since the console started; in a replay, [`Played::at`].
    pub now: Duration,
    /// The current screen.
    pub screen: Screen,
    /// The order and filter of each screen's rows.
    lists: [List; Screen::ALL.len()],
    /// Whether keys are typed into the filter of the screen.
    pub is_typing: bool,
    /// The state of the incidents screen.
    pub incidents: IncidentList,
    /// The state of the tasks screen.
    pub tasks: TaskTable,
    /// The state of the processes screen.
    pub processes: ProcessTable,
    /// The state of the waits screen.
    pub waits: WaitTable,
    /// The state of the latency screen.
    pub latency: LatencyChoice,
    /// The location of the selected row of the blame table.
    chosen_location: Option<String>,
    /// The name of the selected row of the table of routes.
    chosen_route: Option<String>,
    /// The selected finding and its runtime.
    chosen_finding: Option<(String, Key)>,
    /// The page of the selected finding, if it does not fit: any number, since pages repeat.
    pub finding_page: isize,
    /// The position of the selected event; 0 is the latest.
    chosen_event: usize,
    /// The index of the selected worker.
    pub selected_worker: usize,
    /// The page of the help, if it is open.
    pub help_page: Option<usize>,
    /// Whether the selected worker's details are shown.
    pub is_detail_open: bool,
    /// Whether counters show totals since the runtime started instead of rates per second.
    pub shows_totals: bool,
    /// The position in the recording, if the console replays one.
    pub played: Option<Played>,
    /// Why the last key did nothing, and when it was pressed.
    note: Option<(&'static str, Duration)>,
    selected_runtime: Option<String>,
    live: State,
    held: Option<State>,
    lost_in_subscription: u64,
    /// Whether the connection is to another program than the previous one.
    is_another_program: bool,
}

impl Model {
    /// Returns a model before the first message.
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
            waits: WaitTable::default(),
            latency: LatencyChoice::default(),
            chosen_location: None,
            chosen_route: None,
            chosen_finding: None,
            finding_page: 0,
            chosen_event: 0,
            selected_worker: 0,
            help_page: None,
            is_detail_open: true,
            shows_totals: false,
            played: None,
            note: None,
            selected_runtime: None,
            live: State::default(),
            held: None,
            lost_in_subscription: 0,
            is_another_program: false,
        }
    }

    /// Applies one message, and returns what the caller must do.
    pub fn update(&mut self, message: Message) -> Option<Effect> {
        match message {
            Message::Tick(now) => self.now = now,
            Message::Connected(hello) => {
                let hello = clean::hello(hello);
                self.is_another_program = (hello.pid, hello.start_time) != (self.hello.pid, self.hello.start_time);
                self.hello = hello;
                if let Link::Lost { since, .. } = &self.link {
                    let after = crate::text::figures::age(nanos(self.now.saturating_sub(*since)));
                    let text = format!("reconnected after {after}, pid {}", self.hello.pid);
                    self.live.log.add(self.now, "connection", "", text, Tone::Plain);
                }
                self.link = Link::Live;
                self.live.received_at = self.now;
                self.lost_in_subscription = 0;
            }
            // A program that was not running sent nothing that could be lost.
            Message::Missed(_) if self.is_another_program => {}
            Message::Missed(updates) => self.lost = self.lost.saturating_add(updates),
            Message::Snapshot { program, lost } => self.take(clean::program(*program), lost),
            Message::Disconnected { reason, retry_in } => self.lose(clean::text(&reason), retry_in),
            Message::Exited { pid } => self.end(pid),
            // The failure of a request that was under way must not hide the last data.
            Message::Refused(_) if self.has_ended() => {}
            Message::Tasks(list) => self.take_tasks(clean::tasks(*list)),
            Message::Processes(list) => self.take_processes(clean::processes(*list)),
            Message::Why { task, why } => {
                self.tasks.why =
                    Some((task, why.map(|why| Box::new(clean::why(*why))).map_err(|error| clean::text(&error))));
            }
            Message::Dump(dump) => {
                self.waits.dump = Some(Box::new(clean::dump(*dump)));
                (self.waits.made_at, self.waits.error) = (self.now, None);
            }
            Message::Refused(reason) if self.screen == Screen::Waits => {
                self.waits.error = Some(clean::text(&reason));
            }
            Message::Refused(reason) if self.screen == Screen::Processes => {
                self.processes.error = Some(clean::text(&reason));
            }
            Message::Refused(reason) => self.tasks.error = Some(clean::text(&reason)),
            Message::Do(action) => return self.act(action),
        }
        None
    }

    /// Shows a moment of a recording. With `earlier`, the previous snapshot, forgets the current
    /// history.
    pub fn play(&mut self, played: Played, earlier: Option<Program>, program: Program) {
        self.now = played.at;
        self.played = Some(played);
        if let Some(earlier) = earlier {
            (self.live, self.note) = (State::default(), None);
            self.take(earlier, 0);
        }
        self.take(program, 0);
    }

    /// Returns the state to draw: the held one while paused.
    pub fn state(&self) -> &State {
        self.held.as_ref().unwrap_or(&self.live)
    }

    /// Returns whether the state is held.
    pub fn is_paused(&self) -> bool {
        self.held.is_some()
    }

    /// Returns the runtimes of that state.
    pub fn runtimes(&self) -> &[Snapshot] {
        self.state().program.as_ref().map_or(&[], |program| &program.runtimes)
    }

    /// Returns the index of the selected runtime.
    pub fn runtime_index(&self) -> usize {
        let is_selected = |runtime: &Snapshot| Some(&runtime.runtime) == self.selected_runtime.as_ref();
        self.runtimes().iter().position(is_selected).unwrap_or(0)
    }

    /// Returns the selected runtime; `None` before the first snapshot, and for a program without
    /// runtimes.
    pub fn scene(&self) -> Option<Scene<'_>> {
        let index = self.runtime_index();
        let snapshot = self.runtimes().get(index)?;
        Some(Scene { snapshot, rates: self.state().rates.get(index).and_then(Option::as_ref) })
    }

    /// Returns the polls per second of the selected runtime, the oldest first; `None` for a moment
    /// without a connection.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = Option<u64>> + '_ {
        self.past().into_iter().flat_map(|history| history.polls.iter().copied())
    }

    /// Returns the history of the selected runtime.
    pub fn past(&self) -> Option<&History> {
        let name = self.scene().map(|scene| scene.snapshot.runtime.as_str());
        self.state().histories.iter().find(|history| Some(history.name.as_str()) == name)
    }

    /// Returns the selected runtime in the previous snapshot.
    pub fn earlier(&self) -> Option<&Snapshot> {
        let name = &self.scene()?.snapshot.runtime;
        self.state().earlier.as_ref()?.runtimes.iter().find(|runtime| runtime.runtime == *name)
    }

    /// Returns whether the program has exited and cannot come back: no request gets a reply.
    pub fn has_ended(&self) -> bool {
        matches!(self.link, Link::Exited { .. })
    }

    /// Returns how long no snapshot has arrived over an open connection, if that is longer than
    /// expected.
    pub fn silent_for(&self) -> Option<Duration> {
        let since = self.now.saturating_sub(self.live.received_at);
        (self.link == Link::Live && since > self.interval * 3 + SILENCE).then_some(since)
    }

    fn take(&mut self, program: Program, lost: u64) {
        // A new subscription counts from 0 again.
        let before = if lost < self.lost_in_subscription { 0 } else { self.lost_in_subscription };
        if lost > before {
            let text = format!("{} snapshots skipped: the console or the program was too slow", lost - before);
            self.live.log.add(self.now, "lost", "", text, Tone::Warn);
        }
        self.lost = self.lost.saturating_add(lost - before);
        self.lost_in_subscription = lost;
        self.link = Link::Live;
        if self.live.program.as_ref().is_some_and(|former| former.pid != program.pid) {
            // Another program numbers its incidents from the start, and has other tasks.
            self.incidents = IncidentList::default();
            self.waits = self.waits.anew();
        }
        self.live.take(program, self.now);
        if self.selected_runtime.is_none() {
            let runtimes = self.live.program.as_ref().map_or(&[][..], |program| &program.runtimes);
            self.selected_runtime = busiest(runtimes).map(|index| runtimes[index].runtime.clone());
        }
        self.refresh_choices();
    }

    fn take_tasks(&mut self, list: TaskList) {
        self.tasks.error = None;
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
        self.processes.error = None;
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
        let since = self.lost_since();
        if self.link == Link::Live {
            self.live.log.add(self.now, "connection", "", format!("lost: {reason}"), Tone::Alarm);
        }
        self.link = Link::Lost { since, reason, retry_at: self.now + retry_in };
    }

    fn end(&mut self, pid: u32) {
        let since = self.lost_since();
        self.live.log.add(self.now, "connection", "", format!("ended: pid {pid} has exited"), Tone::Alarm);
        (self.tasks.error, self.processes.error, self.waits.error) = (None, None, None);
        self.link = Link::Exited { since, pid };
    }

    /// Returns when the connection was lost, which is now if it was live. Its curves then end.
    fn lost_since(&mut self) -> Duration {
        match self.link {
            Link::Live => {
                self.live.histories.iter_mut().for_each(History::break_off);
                self.now
            }
            Link::Lost { since, .. } | Link::Exited { since, .. } => since,
        }
    }
}

impl State {
    fn take(&mut self, mut program: Program, now: Duration) {
        let rates = self.program.as_ref().map(|earlier| Rates::of_program(earlier, &program));
        self.rates = rates.unwrap_or_else(|| vec![None; program.runtimes.len()]);
        self.histories.retain(|history| program.runtimes.iter().any(|runtime| runtime.runtime == history.name));
        for (runtime, rates) in program.runtimes.iter().zip(&self.rates) {
            let Some(rates) = rates else { continue };
            let index = self.histories.iter().position(|history| history.name == runtime.runtime);
            let index = index.unwrap_or_else(|| {
                self.histories.push(History { name: runtime.runtime.clone(), ..History::default() });
                self.histories.len() - 1
            });
            self.histories[index].take(runtime, rates);
        }
        self.watch.fill_in(&mut program.runtimes);
        self.log.take(&program, now);
        let of = |runtime: &Snapshot| {
            let findings = runtime.findings.iter().flatten().cloned();
            findings.map(|finding| (runtime.runtime.clone(), finding)).collect::<Vec<_>>()
        };
        self.findings = program.runtimes.iter().flat_map(of).collect();
        self.findings.sort_by_key(|(_, finding)| (Reverse(finding.seen.is_current), Reverse(finding.severity)));
        self.earlier = self.program.replace(program);
        self.received_at = now;
    }

    /// Returns the share of the time since the previous list that this task was being polled.
    pub fn load_of(&self, task: u64) -> Option<f64> {
        self.task_loads.get(&task).copied()
    }

    /// Returns the same for the process with this pid.
    pub fn load_of_process(&self, pid: &str) -> Option<f64> {
        self.process_loads.get(pid).copied()
    }
}

/// Returns, for each row in both lists, the share of `past_ns` that it was being polled. `of`
/// returns the row's key and the total duration of its polls in ns.
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

/// Returns the runtime whose workers have been busy longest since it started: in a program with
/// additional runtimes (an exporter's, for example), the application's.
pub fn busiest(runtimes: &[Snapshot]) -> Option<usize> {
    let busy_ns = |runtime: &Snapshot| runtime.workers.iter().map(|worker| worker.busy_ns).fold(0, u64::saturating_add);
    // `max_by_key` returns the last of equal elements; in reverse order, that is the first.
    (0..runtimes.len()).rev().max_by_key(|index| busy_ns(&runtimes[*index]))
}

#[cfg(test)]
mod tests;
