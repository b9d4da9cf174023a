//! `volt-console why`: prints the chain of wake-ups that caused a task's last poll, and what the
//! task waits for, as text or as JSON.

use std::io::Write;

use serde_json::json;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::dump::{Group, Query};
use volt_telemetry::socket::Environment;
use volt_telemetry::why::{State, Why};

use crate::error::Error;
use crate::facts::why;
use crate::programs::target::{self, Found};
use crate::text::clean;

/// The options of the command.
#[derive(Clone, Debug)]
pub struct Options {
    /// The runtime; `None` means every runtime of the program, until one has the task.
    pub runtime: Option<String>,
    /// Whether to request a dump of the task if it waits, for which it is polled once.
    pub polls: bool,
    /// Whether to print one JSON object.
    pub as_json: bool,
}

impl Options {
    /// Returns the command line for these options.
    fn line(&self, task: &str, program: &str) -> String {
        let mut words = vec!["volt-console why".to_owned(), quoted(task), quoted(program)];
        words.extend(self.runtime.iter().map(|name| format!("--runtime {}", quoted(name))));
        words.extend((!self.polls).then(|| "--no-poll".to_owned()));
        words.extend(self.as_json.then(|| "--json".to_owned()));
        words.join(" ")
    }
}

/// Returns the word as a shell reads it.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+=,".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

/// Attaches to `program`, which is the second argument of the command; see [`target::find`].
///
/// # Errors
///
/// Fails like [`target::find`]. If the arguments seem to be in the wrong order, the message has the
/// corrected command line.
pub fn find(task: &str, program: Option<&str>, options: &Options, environment: &Environment) -> Result<Found, Error> {
    let (error, program) = match (target::find(program, environment), program) {
        (Err(error), Some(program)) if error.is_connect() => (error, program),
        (result, _) => return result,
    };
    let line = options.line(program, task);
    let is_number = |text: &str| text.parse::<u64>().is_ok();
    let is_program = target::find(Some(task), environment).is_ok();
    if is_program && (!is_number(task) || is_number(program)) {
        Err(Error::wrong_order(task, &line))
    } else if is_program || is_number(program) && !is_number(task) {
        // The order may be right: a number may be the id of a task, and a task can have a name.
        Err(error.or_wrong_order(&line))
    } else {
        Err(error)
    }
}

/// Requests the chain of wake-ups of `task`, an id or a name, and prints it.
///
/// # Errors
///
/// Fails with [`Error::is_connect`], also if no runtime has the task, and
/// [`Error::is_output_closed`].
pub fn run(client: &mut Client, task: &str, options: &Options, out: &mut impl Write) -> Result<(), Error> {
    let mut chain = request(client, options.runtime.as_deref(), task).map_err(|error| {
        let is_program = error.is_answer() && client.hello().program == task;
        let error = Error::from(error);
        if is_program { error.or_wrong_order(&options.line("TASK", task)) } else { error }
    })?;
    if options.polls {
        add_resources(client, &mut chain);
    }
    let chain = clean::why(chain);
    let text = if options.as_json { format!("{}\n", json!(chain)) } else { why::text(&chain) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

/// Adds what the first task of the chain waits for, in numbers.
fn add_resources(client: &mut Client, chain: &mut Why) {
    let Some(link) = chain.links.first_mut().filter(|link| link.state == State::Waits) else { return };
    let query = Query { task: Some(format!("#{}", link.task)), ..Query::default() };
    // The chain is the answer also if the program is too old for dumps, or cannot make one now.
    if let Ok(dump) = client.dump(Some(&chain.runtime), &query) {
        // The task may have moved on since the chain was read.
        let is_there = |group: &Group| (&group.awaits, &group.awaits_at) == (&link.awaits, &link.awaits_at);
        let groups = dump.groups.into_iter().filter(is_there);
        let resources = groups.flat_map(|group| group.resources).collect();
        link.resources = resources;
    }
}

fn request(client: &mut Client, runtime: Option<&str>, task: &str) -> Result<Why, ConnectError> {
    let names = match runtime {
        Some(name) => vec![name.to_owned()],
        None => client.hello().runtimes.clone(),
    };
    let mut reply = client.why(names.first().map(String::as_str), task);
    for name in names.iter().skip(1) {
        match reply {
            Err(error) if error.is_answer() => reply = client.why(Some(name), task),
            _ => break,
        }
    }
    reply
}
