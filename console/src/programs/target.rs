//! Finds the program that a command's argument selects.

use std::path::{Path, PathBuf};

use volt_telemetry::client::{Client, ConnectError, resolve};
use volt_telemetry::socket::{Environment, is_program_alive, parse_file_name};

use crate::error::Error;
use crate::programs::connection::Locate;
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

/// How to find a program again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Again {
    /// At this path.
    Path(PathBuf),
    /// At this path while the program lives, then by this name. Another program may have the same
    /// name meanwhile.
    Name(String, PathBuf),
}

impl Again {
    /// Returns whether the program cannot come back: it was selected by its pid or socket, and has
    /// exited.
    pub fn is_over(&self) -> bool {
        matches!(self, Again::Path(path) if has_exited(path) == Some(true))
    }

    /// Returns a function for the connection's thread that finds the program.
    pub fn locate(self, environment: Environment) -> Locate {
        match self {
            Again::Path(path) => Box::new(move || Ok(path.clone())),
            Again::Name(name, mut path) => Box::new(move || {
                if has_exited(&path) != Some(false) || !path.exists() {
                    path = resolve(&name, &environment)?;
                }
                Ok(path.clone())
            }),
        }
    }
}

/// Returns whether the program with this control socket has exited; `None` if the socket's name
/// does not contain the pid.
fn has_exited(path: &Path) -> Option<bool> {
    let name = path.file_name().and_then(|name| name.to_str()).and_then(parse_file_name);
    name.map(|(pid, start_time)| !is_program_alive(pid, start_time))
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

#[cfg(test)]
mod tests {
    use volt_telemetry::socket::{file_name, own_start_time};

    use super::*;

    #[test]
    fn a_program_that_lives_is_found_whatever_others_are_called() {
        let folder = std::env::temp_dir().join(format!("volt-target-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let socket = |start_time| {
            let path = folder.join(file_name(std::process::id(), start_time));
            std::fs::write(&path, "").unwrap();
            path
        };
        let (own, exited) = (socket(own_start_time()), socket(own_start_time() + 1));
        let locate = |path: &Path| {
            let name = "no program has this name".to_owned();
            Again::Name(name, path.to_owned()).locate(Environment::of_program())()
        };
        assert_eq!(locate(&own).unwrap(), own);
        assert!(locate(&exited).is_err(), "after a restart, the name counts");
        std::fs::remove_file(&own).unwrap();
        assert!(locate(&own).is_err(), "it has no socket any more");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
