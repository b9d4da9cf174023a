//! The input and the output of the model: [`Message`] and [`Action`] go in, [`Effect`] and
//! [`Needs`] come out.

use std::time::Duration;

use volt_telemetry::dump::{self, Dump};
use volt_telemetry::processes::{self, ProcessList};
use volt_telemetry::snapshot::Program;
use volt_telemetry::tasks::{Query, TaskList};
use volt_telemetry::why::Why;
use volt_telemetry::wire::Hello;

use super::screens::Screen;

/// An event that changes the model.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The time since the console started.
    Tick(Duration),
    /// The connection is established.
    Connected(Hello),
    /// A snapshot of all runtimes.
    Snapshot {
        /// The numbers.
        program: Box<Program>,
        /// The number of snapshots of this subscription that the server has skipped so far.
        lost: u64,
    },
    /// The connection is established again. This many snapshots were missed in the meantime.
    Missed(u64),
    /// The connection was closed, or could not be established again.
    Disconnected {
        /// The reason.
        reason: String,
        /// The time until the next attempt.
        retry_in: Duration,
    },
    /// The program with this pid has exited and cannot come back, so no further attempt follows.
    Exited {
        /// Its pid.
        pid: u32,
    },
    /// A reply to a request for tasks.
    Tasks(Box<TaskList>),
    /// A reply to a request for processes.
    Processes(Box<ProcessList>),
    /// A dump of a runtime's tasks.
    Dump(Box<Dump>),
    /// Why a task was polled last, or why this is unknown.
    Why {
        /// The task's id.
        task: u64,
        /// The chain of wake-ups, or the error.
        why: Result<Box<Why>, String>,
    },
    /// A request failed, because the program could not be reached or could not reply.
    Refused(String),
    /// An action of the keyboard or the mouse.
    Do(Action),
}

/// An action of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Quit.
    Quit,
    /// Close what is open on top, else clear the filter, else return to the overview. Never quits.
    Back,
    /// Pause the screen, or continue.
    TogglePause,
    /// Open the help, or its next page; close it after the last one.
    NextHelp,
    /// Show another screen.
    Show(Screen),
    /// Open or close the details of the selected row.
    ToggleDetail,
    /// Switch between rates per second and totals since the runtime started. On the waits screen,
    /// make a new dump.
    ToggleTotals,
    /// Select the next runtime, or the first after the last.
    NextRuntime,
    /// Select the previous runtime.
    PreviousRuntime,
    /// Refresh less often.
    Slower,
    /// Refresh more often.
    Faster,
    /// Sort by another column, this many to the right.
    SortBy(isize),
    /// Reverse the sort order.
    InvertSort,
    /// Select another row, this many down.
    Move(isize),
    /// Show another part of the selected finding, this many pages on.
    TurnPage(isize),
    /// Select the first row.
    First,
    /// Select the last row.
    Last,
    /// Select the row at this position. If it is selected already, open it.
    Pick(usize),
    /// Start typing a filter.
    Filter,
    /// Append a character to the filter.
    Type(char),
    /// Delete the last character of the filter.
    Erase,
    /// Finish typing the filter.
    Accept,
}

/// An action that the caller of the model must take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Subscribe with another interval.
    Subscribe(Duration),
    /// Quit.
    Quit,
}

/// The requests that the current screen needs, repeated at an interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// The tasks of a runtime.
    pub tasks: Option<(String, Query)>,
    /// The processes of a runtime.
    pub processes: Option<(String, processes::Query)>,
    /// Why a task of a runtime was polled last.
    pub why: Option<(String, u64)>,
    /// A dump of a runtime, and its number: each is requested once.
    pub dump: Option<(String, dump::Query, u64)>,
    /// The time between two replies.
    pub interval: Duration,
}

impl Needs {
    /// Returns whether there is nothing to request.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_none() && self.processes.is_none() && self.why.is_none() && self.dump.is_none()
    }
}
