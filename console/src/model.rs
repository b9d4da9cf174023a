//! What the console knows and how messages change it: message → [`Model::update`] → a screen drawn from `&Model`.
//!
//! Who writes: the loop in `attach`, one message after the other. Who reads: the view. No terminal, no socket and no clock in
//! here: time comes in with [`Message::Tick`], what is to be done outside goes out as an [`Effect`]. So that it can be tested,
//! and driven from something else than a socket.
//!
//! Invariants. *What is shown is one moment*: a picture changes whole, with a snapshot; pausing keeps the picture of that moment
//! while the live one goes on below. *History is bounded* by [`HISTORY_MAX`]. *What was lost is counted and stays counted*
//! over reconnections. *A choice follows its name*: the selected runtime stays selected when others come and go.

use std::collections::VecDeque;
use std::time::Duration;

use volt_telemetry::incident::Incidents;
use volt_telemetry::rates::Rates;
use volt_telemetry::snapshot::{Process, Snapshot};
use volt_telemetry::wire::Hello;

use crate::clean;
use crate::facts::{Scene, shown_workers};

mod message;
mod screens;

pub use message::{Action, Effect, Message};
pub use screens::{BlameTable, IncidentList, Screen};

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
/// Points of the polls-a-second line that are kept: one for each column of a wide terminal.
pub const HISTORY_MAX: usize = 400;
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
    /// Polls a second over time, by name of the runtime.
    histories: Vec<(String, VecDeque<Option<u64>>)>,
    /// When the snapshot came in.
    pub received_at: Duration,
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
    /// Snapshots that were skipped because somebody was too slow, since the console started.
    pub lost: u64,
    /// Time between two snapshots.
    pub interval: Duration,
    /// The time since the console started.
    pub now: Duration,
    /// What is shown.
    pub screen: Screen,
    /// The list of incidents.
    pub incidents: IncidentList,
    /// The blame table.
    pub blame: BlameTable,
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
}

impl Model {
    /// Before the first message.
    pub fn new(interval: Duration) -> Model {
        Model {
            hello: Hello::default(),
            link: Link::Live,
            lost: 0,
            interval,
            now: Duration::ZERO,
            screen: Screen::default(),
            incidents: IncidentList::default(),
            blame: BlameTable::default(),
            selected_worker: 0,
            is_help_open: false,
            is_detail_open: true,
            shows_totals: false,
            played: None,
            selected_runtime: None,
            live: Picture::default(),
            held: None,
            lost_in_subscription: 0,
        }
    }

    /// Takes one message in, and says what is to be done outside.
    pub fn update(&mut self, message: Message) -> Option<Effect> {
        match message {
            Message::Tick(now) => self.now = now,
            Message::Connected(hello) => {
                self.hello = clean::hello(hello);
                self.link = Link::Live;
                self.live.received_at = self.now;
                self.lost_in_subscription = 0;
            }
            Message::Snapshot { process, lost } => self.take(clean::process(*process), lost),
            Message::Disconnected { reason, retry_in } => self.lose(clean::text(&reason), retry_in),
            Message::Do(action) => return self.act(action),
        }
        None
    }

    /// Shows a moment of a recording; with `earlier`, the picture before it, what was shown is forgotten.
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

    /// Polls a second of the selected runtime, the oldest first; `None` where there was no connection.
    pub fn history(&self) -> impl DoubleEndedIterator<Item = Option<u64>> + '_ {
        let name = self.scene().map(|scene| scene.snapshot.runtime.as_str());
        let found = self.picture().histories.iter().find(|(of, _)| Some(of.as_str()) == name);
        found.into_iter().flat_map(|(_, points)| points.iter().copied())
    }

    /// How long nothing was heard over a standing connection, when that is longer than it should be.
    pub fn silent_for(&self) -> Option<Duration> {
        let since = self.now.saturating_sub(self.live.received_at);
        (self.link == Link::Live && since > self.interval * 3 + SILENCE).then_some(since)
    }

    fn take(&mut self, process: Process, lost: u64) {
        // A subscription that was made anew counts from 0 again.
        let before = if lost < self.lost_in_subscription { 0 } else { self.lost_in_subscription };
        self.lost += lost - before;
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

    fn lose(&mut self, reason: String, retry_in: Duration) {
        let since = match self.link {
            Link::Live => {
                self.live.histories.iter_mut().for_each(|(_, points)| push(points, None));
                self.now
            }
            Link::Lost { since, .. } => since,
        };
        self.link = Link::Lost { since, reason, retry_at: self.now + retry_in };
    }

    fn act(&mut self, action: Action) -> Option<Effect> {
        match action {
            Action::Quit => return Some(Effect::Quit),
            Action::Back => return self.back(),
            Action::TogglePause => {
                self.held = if self.held.is_some() { None } else { Some(self.live.clone()) };
                self.refresh_choices();
            }
            Action::ToggleHelp => self.is_help_open = !self.is_help_open,
            Action::Show(screen) => (self.screen, self.is_help_open) = (screen, false),
            Action::ToggleDetail => self.toggle_detail(),
            Action::ToggleTotals => self.shows_totals = !self.shows_totals,
            Action::NextRuntime => self.select_runtime(1),
            Action::PreviousRuntime => self.select_runtime(self.runtimes().len().saturating_sub(1)),
            Action::Slower => return self.subscribe(|i| INTERVALS.iter().find(|interval| **interval > i)),
            Action::Faster => return self.subscribe(|i| INTERVALS.iter().rfind(|interval| **interval < i)),
            Action::SortBy(steps) if self.screen == Screen::Blame => self.blame.sort_by(steps),
            Action::InvertSort if self.screen == Screen::Blame => self.blame.is_inverted = !self.blame.is_inverted,
            Action::SortBy(_) | Action::InvertSort => {}
            Action::Move(rows) => self.select(|row| row.saturating_add_signed(rows)),
            Action::First => self.select(|_| 0),
            Action::Last => self.select(|_| usize::MAX),
        }
        None
    }

    /// Closes what lies on top, then goes back to the overview, then leaves.
    fn back(&mut self) -> Option<Effect> {
        let is_closed = std::mem::take(&mut self.is_help_open)
            || (self.screen == Screen::Incidents && self.incidents.close())
            || std::mem::take(&mut self.screen) != Screen::Overview;
        (!is_closed).then_some(Effect::Quit)
    }

    fn toggle_detail(&mut self) {
        match self.screen {
            Screen::Overview => self.is_detail_open = !self.is_detail_open,
            Screen::Incidents => self.with_incidents(IncidentList::toggle),
            Screen::Blame => {}
        }
    }

    /// Selects the row at the place that `to` makes of the present one.
    fn select(&mut self, to: impl Fn(usize) -> usize) {
        match self.screen {
            Screen::Overview => {
                let shown = self.scene().map(|scene| scene.shown_workers()).unwrap_or_default();
                let place = shown.iter().position(|index| *index == self.selected_worker).unwrap_or(0);
                let place = to(place).min(shown.len().saturating_sub(1));
                self.selected_worker = shown.get(place).copied().unwrap_or(0);
            }
            Screen::Incidents => self.with_incidents(|list, incidents| list.move_to(incidents, to)),
            Screen::Blame => {
                let mut table = std::mem::take(&mut self.blame);
                if let Some(scene) = self.scene() {
                    table.move_to(&table.rows(&scene), to);
                }
                self.blame = table;
            }
        }
    }

    /// Changes the list of incidents by what the picture has of them.
    fn with_incidents(&mut self, change: impl FnOnce(&mut IncidentList, &Incidents)) {
        let mut list = std::mem::take(&mut self.incidents);
        if let Some(scene) = self.scene() {
            change(&mut list, &scene.snapshot.incidents);
        }
        self.incidents = list;
    }

    /// Holds the choices against a picture that has changed: what has gone is no longer selected.
    fn refresh_choices(&mut self) {
        let shown = self.scene().map(|scene| shown_workers(scene.snapshot)).unwrap_or_default();
        // The spare that has gone off duty was the last, or one before.
        let nearest = shown.iter().rev().find(|index| **index <= self.selected_worker).or(shown.first());
        self.selected_worker = nearest.copied().unwrap_or(0);
        self.with_incidents(IncidentList::refresh);
    }

    fn select_runtime(&mut self, steps: usize) {
        let runtimes = self.runtimes();
        if !runtimes.is_empty() {
            let next = (self.runtime_index() + steps) % runtimes.len();
            self.selected_runtime = Some(runtimes[next].runtime.clone());
            self.selected_worker = 0;
            self.incidents = IncidentList::default();
        }
    }

    fn subscribe(&mut self, choose: impl Fn(Duration) -> Option<&'static Duration>) -> Option<Effect> {
        self.interval = *choose(self.interval)?;
        Some(Effect::Subscribe(self.interval))
    }
}

impl Picture {
    fn take(&mut self, process: Process, now: Duration) {
        let rates = self.process.as_ref().map(|earlier| Rates::between_processes(earlier, &process));
        self.rates = rates.unwrap_or_else(|| vec![None; process.runtimes.len()]);
        self.histories.retain(|(name, _)| process.runtimes.iter().any(|runtime| runtime.runtime == *name));
        for (runtime, rates) in process.runtimes.iter().zip(&self.rates) {
            let Some(rates) = rates else { continue };
            let index = self.histories.iter().position(|(name, _)| *name == runtime.runtime);
            let index = index.unwrap_or_else(|| {
                self.histories.push((runtime.runtime.clone(), VecDeque::new()));
                self.histories.len() - 1
            });
            push(&mut self.histories[index].1, Some(rates.polls_per_second as u64));
        }
        self.process = Some(process);
        self.received_at = now;
    }
}

fn push(points: &mut VecDeque<Option<u64>>, point: Option<u64>) {
    if points.len() == HISTORY_MAX {
        points.pop_front();
    }
    points.push_back(point);
}

/// The runtime whose workers have been busy longest since its start: in a program with helpers (an exporter's), the
/// application's own.
pub fn busiest(runtimes: &[Snapshot]) -> Option<usize> {
    let busy_ns = |runtime: &Snapshot| runtime.workers.iter().map(|worker| worker.busy_ns).sum::<u64>();
    // The last of equals is the greatest for `max_by_key`: looked at from the back, that is the first.
    (0..runtimes.len()).rev().max_by_key(|index| busy_ns(&runtimes[*index]))
}

#[cfg(test)]
mod tests;
