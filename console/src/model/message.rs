//! What goes into the model, and what comes out.

use std::time::Duration;

use volt_telemetry::processes::{self, ProcessList};
use volt_telemetry::snapshot::Process;
use volt_telemetry::tasks::{Query, TaskList};
use volt_telemetry::why::Why;
use volt_telemetry::wire::Hello;

use super::screens::Screen;

/// Something happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The time since the console started.
    Tick(Duration),
    /// The connection stands.
    Connected(Hello),
    /// All runtimes at one moment.
    Snapshot {
        /// The numbers.
        process: Box<Process>,
        /// Snapshots of this subscription that the server skipped so far.
        lost: u64,
    },
    /// The connection stands again: so many snapshots would have come while it did not.
    Missed(u64),
    /// The connection ended, or could not be made again.
    Disconnected {
        /// Why.
        reason: String,
        /// When it is tried again.
        retry_in: Duration,
    },
    /// The tasks that were asked for.
    Tasks(Box<TaskList>),
    /// The processes that were asked for.
    Processes(Box<ProcessList>),
    /// Why a task was polled last, or why that cannot be told.
    Why {
        /// Its id.
        task: u64,
        /// The chain.
        why: Result<Box<Why>, String>,
    },
    /// What was asked for cannot be told.
    Refused(String),
    /// A key, or the mouse.
    Do(Action),
}

/// What a person asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave.
    Quit,
    /// Close what lies on top, else leave.
    Back,
    /// Hold the picture, or let it go on.
    TogglePause,
    /// The help text.
    ToggleHelp,
    /// Another screen.
    Show(Screen),
    /// The details of the selected worker, the stack of the selected incident.
    ToggleDetail,
    /// Counters a second or since start.
    ToggleTotals,
    /// The next runtime, the first after the last.
    NextRuntime,
    /// The one before.
    PreviousRuntime,
    /// Refresh less often.
    Slower,
    /// Refresh more often.
    Faster,
    /// Sort by another column, this many to the right.
    SortBy(isize),
    /// Sort the other way round.
    InvertSort,
    /// Select another row, this many down.
    Move(isize),
    /// Select the first row.
    First,
    /// Select the last row.
    Last,
    /// Select the row at this place; the selected one: open it.
    Pick(usize),
    /// Begin to type what rows must have in them.
    Filter,
    /// One character more of it.
    Type(char),
    /// One less.
    Erase,
    /// That was it.
    Accept,
}

/// What is to be done outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Subscribe with another interval.
    Subscribe(Duration),
    /// End.
    Quit,
}

/// What is to be asked, again and again.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Wish {
    /// The tasks of a runtime.
    pub tasks: Option<(String, Query)>,
    /// The processes of a runtime.
    pub processes: Option<(String, processes::Query)>,
    /// Why a task of a runtime was polled last.
    pub why: Option<(String, u64)>,
    /// Time between two answers.
    pub interval: Duration,
}

impl Wish {
    /// Whether there is nothing to ask.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.processes.is_none() && self.why.is_none()
    }
}
