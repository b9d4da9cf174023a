//! `volt-console tasks` and `volt-console processes`: print a program's tasks or processes, one row
//! each.
//!
//! A program with very many tasks does not search them again for each client. It may return a list
//! that another client has requested. The request is then repeated until the list is the right one.

use std::io::Write;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::processes::{self, ProcessList};
use volt_telemetry::tasks::{self, TaskList};

use crate::error::Error;
use crate::tables;
use crate::text::clean;

/// How long a request is repeated before any list is accepted.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The options of the command.
#[derive(Clone, Debug)]
pub struct Options<Q> {
    /// The runtime; `None` means every runtime of the program.
    pub runtime: Option<String>,
    /// The selection and order of the rows.
    pub query: Q,
    /// Whether to print one JSON object.
    pub as_json: bool,
}

/// A list of tasks, or of processes.
pub trait List: Sized {
    /// The selection and order of the rows.
    type Query;

    /// Requests the list of `runtime`.
    ///
    /// # Errors
    ///
    /// Returns an error of the connection, or of a program that has no such list.
    fn request(client: &mut Client, runtime: &str, query: &Self::Query) -> Result<Self, ConnectError>;

    /// Returns whether it is the list for `query`.
    fn is_for(&self, query: &Self::Query) -> bool;

    /// Removes what would control a terminal.
    fn cleaned(self) -> Self;

    /// Returns the list as JSON.
    fn json(&self) -> Value;

    /// Returns the list as text, or `None` if a listing of every runtime should omit it.
    fn text(&self, is_only: bool) -> Option<String>;

    /// Returns a note for readers of this list. It stands below all lists.
    fn note(&self) -> Option<&'static str> {
        None
    }

    /// The text if there are no lists.
    const NOTHING: &str;
}

impl List for TaskList {
    type Query = tasks::Query;
    const NOTHING: &str = "";

    fn request(client: &mut Client, runtime: &str, query: &tasks::Query) -> Result<Self, ConnectError> {
        client.tasks(Some(runtime), query)
    }

    fn is_for(&self, query: &tasks::Query) -> bool {
        self.query == tasks::Query { limit: self.query.limit, ..query.clone() }
    }

    fn cleaned(self) -> Self {
        clean::tasks(self)
    }

    fn json(&self) -> Value {
        json!(self)
    }

    fn text(&self, _is_only: bool) -> Option<String> {
        Some(tables::tasks::text(self))
    }

    fn note(&self) -> Option<&'static str> {
        tables::tasks::note(self)
    }
}

impl List for ProcessList {
    type Query = processes::Query;
    const NOTHING: &str = "The program has no processes.\n";

    fn request(client: &mut Client, runtime: &str, query: &processes::Query) -> Result<Self, ConnectError> {
        client.processes(Some(runtime), query)
    }

    fn is_for(&self, query: &processes::Query) -> bool {
        self.query == processes::Query { limit: self.query.limit, ..query.clone() }
    }

    fn cleaned(self) -> Self {
        clean::processes(self)
    }

    fn json(&self) -> Value {
        json!(self)
    }

    /// Most runtimes have no processes; a line for each would hide the others.
    fn text(&self, is_only: bool) -> Option<String> {
        (self.alive > 0 || is_only).then(|| tables::processes::text(self))
    }
}

/// Prints a list of each runtime, or of one.
///
/// # Errors
///
/// Fails with [`Error::is_connect`], also if the program is too old for this request or has no such
/// runtime, and [`Error::is_output_closed`].
pub fn run<L: List>(client: &mut Client, options: &Options<L::Query>, out: &mut impl Write) -> Result<(), Error> {
    let names = match &options.runtime {
        Some(name) => vec![name.clone()],
        None => client.hello().runtimes.clone(),
    };
    let lists: Result<Vec<L>, ConnectError> = names.iter().map(|name| request(client, name, &options.query)).collect();
    let lists = lists?;
    let text = if options.as_json {
        let program = clean::text(&client.hello().program);
        let lists: Vec<_> = lists.iter().map(List::json).collect();
        format!("{}\n", json!({ "pid": client.hello().pid, "program": program, "runtimes": lists }))
    } else {
        let texts: Vec<_> = lists.iter().filter_map(|list| list.text(options.runtime.is_some())).collect();
        let note = lists.iter().find_map(List::note).map_or_else(String::new, |note| format!("\n{note}\n"));
        if texts.is_empty() { L::NOTHING.into() } else { texts.join("\n") + &note }
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

/// Returns the list for `query`, or after [`TIMEOUT`] the last one received.
fn request<L: List>(client: &mut Client, runtime: &str, query: &L::Query) -> Result<L, ConnectError> {
    let began = Instant::now();
    loop {
        let list = L::request(client, runtime, query)?;
        if list.is_for(query) || began.elapsed() > TIMEOUT {
            return Ok(list.cleaned());
        }
        thread::sleep(TIMEOUT / 50);
    }
}
