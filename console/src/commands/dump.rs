//! `volt-console dump`: prints what every task of a program waits for, as text or as JSON.

use std::io::Write;

use serde_json::json;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::dump::{Dump, Query};

use crate::error::Error;
use crate::programs::sources::Sources;
use crate::tables::tasks::NO_MATCH;
use crate::text::clean;

/// The options of the command.
#[derive(Clone, Debug)]
pub struct Options {
    /// The runtime; `None` means every runtime of the program.
    pub runtime: Option<String>,
    /// The selection of the tasks.
    pub query: Query,
    /// Whether to print one JSON object.
    pub as_json: bool,
}

/// Requests a dump of each runtime, and prints it.
///
/// # Errors
///
/// Fails with [`Error::is_connect`], also if no runtime has the task that was selected, and
/// [`Error::is_output_closed`].
pub fn run(client: &mut Client, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let names = match &options.runtime {
        Some(name) => vec![name.clone()],
        None => client.hello().runtimes.clone(),
    };
    let dumps: Result<Vec<Dump>, ConnectError> =
        names.iter().map(|name| client.dump(Some(name), &options.query).map(clean::dump)).collect();
    let mut dumps = dumps?;
    if let Some(task) = &options.query.task
        && dumps.iter().all(|dump| dump.waiting == 0 && dump.running.is_empty())
    {
        return Err(Error::no_such_task(task));
    }
    let mut sources = Sources::of_program(client.hello().pid);
    dumps.iter_mut().for_each(|dump| sources.fill_in(dump));
    if options.as_json {
        let hello = client.hello();
        let program = clean::text(&hello.program);
        writeln!(out, "{}", json!({ "pid": hello.pid, "program": program, "runtimes": dumps }))
            .map_err(Error::output)?;
    } else {
        let texts: Vec<String> = dumps.iter().map(|dump| text(dump, &options.query.filter)).collect();
        out.write_all(texts.join("\n").as_bytes()).map_err(Error::output)?;
    }
    out.flush().map_err(Error::output)
}

fn text(dump: &Dump, filter: &str) -> String {
    let is_empty = dump.groups.is_empty() && dump.running.is_empty() && dump.block_on.is_empty();
    // The notes are about tasks that were not read, and may match.
    if filter.is_empty() || !is_empty || !dump.notes().is_empty() {
        return dump.text();
    }
    format!("{}\n{NO_MATCH}\n", dump.text())
}
