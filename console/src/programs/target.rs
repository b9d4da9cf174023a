//! Finds the program that a command's argument selects.

use volt_telemetry::client::{Client, ConnectError, resolve};
use volt_telemetry::socket::Environment;

use crate::error::Error;
use crate::programs::again::Again;
use crate::programs::list;
use crate::text::clean;

/// A program that was found and replies.
#[derive(Debug)]
pub struct Found {
    /// The connection to it.
    pub client: Client,
    /// How to find it again after a restart. A program that was selected by name, or as the only
    /// one, is found by its name, because a restarted program has another pid. A program that was
    /// selected by pid or path is only found at that path.
    pub again: Again,
}

/// Attaches to `target`, a path, a pid or a name; without a target, to the only running program.
///
/// # Errors
///
/// Fails with [`Error::is_connect`]; without a target also [`Error::is_no_program`] and
/// [`Error::is_several_programs`].
pub fn find(target: Option<&str>, environment: &Environment) -> Result<Found, Error> {
    match target {
        Some(target) => Ok(find_named(target, environment)?),
        None => find_only(environment),
    }
}

fn find_named(target: &str, environment: &Environment) -> Result<Found, ConnectError> {
    let path = resolve(target, environment)?;
    let client = Client::connect(&path)?;
    let is_name = !target.contains('/') && target.parse::<u32>().is_err();
    let again = if is_name { Again::Name(target.into(), path) } else { Again::Path(path) };
    Ok(Found { client, again })
}

fn find_only(environment: &Environment) -> Result<Found, Error> {
    let listing = list::scan(environment);
    let answering: Vec<_> = listing.entries.iter().filter(|entry| entry.hello.is_some()).collect();
    match &answering[..] {
        [only] => {
            let client = Client::connect(&only.path)?;
            let again = Again::Name(client.hello().program.clone(), only.path.clone());
            Ok(Found { client, again })
        }
        [] => {
            let dirs: Vec<_> = environment.directories().iter().map(|dir| dir.display().to_string()).collect();
            // The socket of an exited program is no reason for the failure.
            let silent = listing.entries.iter().filter(|entry| !entry.is_stale());
            let silent = silent.filter_map(list::Entry::error_at);
            let refused: Vec<_> = listing.refused.iter().cloned().chain(silent).collect();
            Err(Error::no_program(&dirs.join(", "), &refused))
        }
        _ => {
            let listing = list::scan_with_health(environment);
            Err(Error::several_programs(clean::lines(&listing.table()).trim_end()))
        }
    }
}
