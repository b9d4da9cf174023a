//! `volt-console list`: prints the running programs and their state.

use std::io::Write;

use volt_telemetry::socket::Environment;

use crate::error::Error;
use crate::programs::list::scan_with_health;

/// Prints the list, as a table or as a JSON array with one object for each socket.
///
/// # Errors
///
/// Returns the errors of the output.
pub fn run(environment: &Environment, as_json: bool, out: &mut impl Write) -> Result<(), Error> {
    let listing = scan_with_health(environment);
    let text = if as_json { format!("{}\n", listing.json()) } else { listing.table_or(environment) };
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::output)
}
