//! `volt-console` without arguments, if several programs are running: prompts for one of them, line
//! by line, so that it works on any terminal.
//!
//! # Protocol
//!
//! 1. Print the programs, numbered, with the state of each.
//! 2. Read a line: a number of the list, a pid or a name. Enter refreshes the list. q or the end of
//!    the input quits.
//! 3. If the console cannot attach to the choice, print the reason and continue with (1).

use std::io::{BufRead, Write};

use volt_telemetry::socket::Environment;

use crate::error::Error;
use crate::programs::list::{self, Listing};
use crate::programs::target::{self, Found};

/// A longer line is not a valid choice.
const LINE_BYTES_MAX: u64 = 4096;

/// Prompts for a program and returns it; `None` if the user quits.
///
/// # Errors
///
/// Returns the errors of the output, and [`Error::is_no_program`] when no program is left.
pub fn choose(
    environment: &Environment,
    mut input: impl BufRead,
    out: &mut impl Write,
) -> Result<Option<Found>, Error> {
    let mut print = |text: &str| out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output);
    loop {
        let mut listing = list::scan_with_health(environment);
        // The console cannot attach to the socket of a program that has exited.
        listing.entries.retain(|entry| !entry.is_stale());
        print(&numbered(&listing, environment))?;
        print("Select a program by number, pid or name (Enter refreshes, q quits): ")?;
        let mut line = Vec::new();
        let read = std::io::Read::take(&mut input, LINE_BYTES_MAX).read_until(b'\n', &mut line);
        match (read, String::from_utf8_lossy(&line).trim()) {
            (Ok(0) | Err(_), _) => {
                print("\n")?;
                return Ok(None);
            }
            (_, "q" | "quit") => return Ok(None),
            (_, "") => {}
            // For example an arrow key, which has no function here.
            (_, choice) if choice.contains(char::is_control) => {
                print("Type a number, a pid or a name; other keys have no function here.\n")?;
            }
            (_, choice) => match target::find(Some(&meant(&listing, choice)), environment) {
                Ok(found) => return Ok(Some(found)),
                Err(error) => print(&format!("{}\n", crate::text::clean::lines(&error.to_string())))?,
            },
        }
        print("\n")?;
    }
}

/// Returns the pid for a number of the list, and any other choice unchanged.
fn meant(listing: &Listing, choice: &str) -> String {
    let row = choice.parse::<usize>().ok().and_then(|number| listing.entries.get(number.checked_sub(1)?));
    row.map_or_else(|| choice.to_owned(), |entry| entry.pid.to_string())
}

fn numbered(listing: &Listing, environment: &Environment) -> String {
    let table = listing.table_or(environment);
    if listing.entries.is_empty() {
        return table;
    }
    let rows = listing.entries.len();
    let digits = rows.to_string().len();
    let number = |(index, line): (usize, &str)| match index {
        index if (1..=rows).contains(&index) => format!("{index:>digits$}  {line}\n"),
        0 => format!("{:digits$}  {line}\n", ""),
        _ => format!("{line}\n"),
    };
    table.lines().enumerate().map(number).collect()
}
