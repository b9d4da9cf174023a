//! `volt-console why`: prints the chain of wake-ups that caused a task's last poll, as text or as
//! JSON.

use std::io::Write;

use serde_json::json;
use volt_telemetry::client::{Client, ConnectError};
use volt_telemetry::why::Why;

use crate::error::Error;
use crate::facts::why;
use crate::text::clean;

/// Requests the chain of wake-ups of `task`, an id or a name, and prints it. Without a `runtime`,
/// tries each runtime of the program until one has the task.
///
/// # Errors
///
/// Fails with [`Error::is_connect`], also if no runtime has the task, and
/// [`Error::is_output_closed`].
pub fn run(
    client: &mut Client,
    runtime: Option<&str>,
    task: &str,
    as_json: bool,
    out: &mut impl Write,
) -> Result<(), Error> {
    let chain = clean::why(ask(client, runtime, task)?);
    let text = if as_json { format!("{}\n", json!(chain)) } else { why::text(&chain) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

fn ask(client: &mut Client, runtime: Option<&str>, task: &str) -> Result<Why, ConnectError> {
    let names = match runtime {
        Some(name) => vec![name.to_owned()],
        None => client.hello().runtimes.clone(),
    };
    let mut asked = client.why(names.first().map(String::as_str), task);
    for name in names.iter().skip(1) {
        match asked {
            Err(error) if error.is_answer() => asked = client.why(Some(name), task),
            _ => break,
        }
    }
    asked
}
