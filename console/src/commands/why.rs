//! `volt-console why`: prints the chain of wake-ups that caused a task's last poll, and what the
//! task waits for, as text or as JSON.

use std::io::Write;

use serde_json::json;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::dump::{Group, Query};
use volt_telemetry::why::{State, Why};

use crate::error::Error;
use crate::facts::why;
use crate::text::clean;

/// Requests the chain of wake-ups of `task`, an id or a name, and prints it. Without a `runtime`,
/// tries each runtime of the program until one has the task. If `polls` is true and the task
/// waits, also requests a dump of that task, for which it is polled once.
///
/// # Errors
///
/// Fails with [`Error::is_connect`], also if no runtime has the task, and
/// [`Error::is_output_closed`].
pub fn run(
    client: &mut Client,
    runtime: Option<&str>,
    task: &str,
    polls: bool,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), Error> {
    let mut chain = request(client, runtime, task)?;
    if polls {
        add_resources(client, &mut chain);
    }
    let chain = clean::why(chain);
    let text = if as_json { format!("{}\n", json!(chain)) } else { why::text(&chain) };
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
