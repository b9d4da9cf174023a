//! `volt-console list`: which programs there are.

use std::io::Write;
use std::path::PathBuf;

use serde_json::{Value, json};
use volt_telemetry::client::Client;
use volt_telemetry::socket::{self, Candidate, Environment};
use volt_telemetry::wire::Hello;

use crate::clean;
use crate::error::Error;
use crate::figures::{left, right, width};

/// Sockets that are asked for their names at one time: one that is stopped takes seconds to say nothing.
const ASKED_AT_ONCE: usize = 16;

/// One socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The process's id.
    pub pid: u32,
    /// Where its socket is.
    pub path: PathBuf,
    /// When the process started, in clock ticks since boot.
    pub start_time: u64,
    /// Who answered; `None` when nobody did.
    pub hello: Option<Hello>,
    /// Why nobody did.
    pub trouble: Option<String>,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// By pid.
    pub entries: Vec<Entry>,
    /// Folders and sockets that could not be looked at, and why.
    pub refused: Vec<String>,
}

/// Looks at every control socket of this user, and asks each who it is.
pub fn look(environment: &Environment) -> Listing {
    let found = socket::list(environment);
    let mut entries = Vec::new();
    for candidates in found.sockets.chunks(ASKED_AT_ONCE) {
        std::thread::scope(|scope| {
            let asked: Vec<_> = candidates.iter().map(|candidate| scope.spawn(|| ask(candidate))).collect();
            // A thread that panicked leaves no entry; its message is on stderr.
            entries.extend(asked.into_iter().filter_map(|entry| entry.join().ok()));
        });
    }
    Listing { entries, refused: found.refused.iter().map(|error| clean::text(&error.to_string())).collect() }
}

/// Prints the listing, as a table or as a JSON array with one object for each socket.
///
/// # Errors
/// Those of the output.
pub fn run(environment: &Environment, as_json: bool, out: &mut impl Write) -> Result<(), Error> {
    let listing = look(environment);
    let text = if as_json {
        format!("{}\n", listing.json())
    } else if listing.entries.is_empty() {
        let dirs: Vec<_> = environment.directories().iter().map(|dir| dir.display().to_string()).collect();
        let refused: String = listing.refused.iter().map(|reason| format!("{reason}\n")).collect();
        format!("No Volt program is running (looked in {}).\n{refused}", dirs.join(", "))
    } else {
        listing.table()
    };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}

fn ask(candidate: &Candidate) -> Entry {
    let Candidate { path, pid, start_time, is_alive } = candidate.clone();
    let (hello, trouble) = if is_alive {
        match Client::connect(&path) {
            Ok(client) => (Some(clean::hello(client.hello().clone())), None),
            Err(error) => (None, Some(clean::text(&error.to_string()))),
        }
    } else {
        (None, Some("stale: its program has ended".into()))
    };
    Entry { pid, path, start_time, hello, trouble }
}

impl Listing {
    /// As a table for people.
    pub fn table(&self) -> String {
        let mut rows = vec![["PID", "PROGRAM", "RUNTIMES", "VOLT", "SOCKET"].map(String::from)];
        rows.extend(self.entries.iter().map(|entry| {
            let path = clean::text(&entry.path.display().to_string());
            match &entry.hello {
                Some(hello) => {
                    [entry.pid.to_string(), hello.program.clone(), hello.runtimes.join(","), hello.volt.clone(), path]
                }
                None => {
                    let trouble = entry.trouble.as_deref().unwrap_or("no answer");
                    [entry.pid.to_string(), "-".into(), "-".into(), "-".into(), with_trouble(&path, trouble)]
                }
            }
        }));
        let widest = |column: usize| rows.iter().map(|row| width(&row[column])).max().unwrap_or(0);
        let widths = [widest(0), widest(1), widest(2), widest(3)];
        let mut text = String::new();
        for row in &rows {
            text.push_str(&right(&row[0], widths[0]));
            for column in 1..widths.len() {
                text.push_str(&format!("  {}", left(&row[column], widths[column])));
            }
            text.push_str(&format!("  {}\n", row[4]));
        }
        self.refused.iter().for_each(|reason| text.push_str(&format!("not looked at: {reason}\n")));
        text
    }

    /// As a JSON array for programs.
    pub fn json(&self) -> Value {
        let entry = |entry: &Entry| {
            let hello = entry.hello.as_ref();
            json!({
                "pid": entry.pid,
                "program": hello.map(|hello| &hello.program),
                "runtimes": hello.map(|hello| &hello.runtimes),
                "volt": hello.map(|hello| &hello.volt),
                "protocol": hello.map(|hello| hello.version.to_string()),
                "socket": clean::text(&entry.path.display().to_string()),
                "start_time": entry.start_time,
                "is_alive": hello.is_some(),
                "trouble": entry.trouble,
            })
        };
        self.entries.iter().map(entry).collect()
    }
}

/// Most messages begin with the path.
fn with_trouble(path: &str, trouble: &str) -> String {
    if trouble.starts_with(path) { trouble.into() } else { format!("{path} {trouble}") }
}
