//! Finds the control socket that a user names by path, by pid, or by the name of a program or
//! runtime.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::connection::Client;
use super::error::{ConnectError, Kind};
use crate::socket::{self, Candidate, Environment, SocketError};

/// Returns the socket for `target`: a path (which contains a `/`), a pid, or the name of a program
/// or of one of its runtimes. A path is returned without any check.
///
/// Root can also find programs of other users, by pid.
///
/// # Errors
/// Returns an error for which one of these is true:
/// - [`ConnectError::is_missing`] if there is no such socket
/// - [`ConnectError::is_stale`] for the pid of a program that has exited
/// - [`ConnectError::is_ambiguous`] for a name that several programs have
pub fn resolve(target: &str, environment: &Environment) -> Result<PathBuf, ConnectError> {
    if target.contains('/') {
        return Ok(target.into());
    }
    match target.parse() {
        Ok(pid) => resolve_pid(pid, environment),
        Err(_) => resolve_name(target, environment),
    }
}

fn resolve_pid(pid: u32, environment: &Environment) -> Result<PathBuf, ConnectError> {
    let owner = std::fs::metadata(format!("/proc/{pid}")).ok().map(|meta| meta.uid());
    let mut listing = socket::list(environment);
    if let Some(user_id) = owner.filter(|user| environment.user_id == 0 && *user != 0) {
        let theirs = socket::list(&Environment { socket_dir: None, runtime_dir: None, user_id });
        listing.sockets.extend(theirs.sockets);
        listing.refused.extend(theirs.refused);
    }
    let mut found: Vec<Candidate> = listing.sockets.into_iter().filter(|socket| socket.pid == pid).collect();
    found.sort_by_key(|socket| (socket.is_alive, socket.start_time));
    if let Some(socket) = found.pop() {
        if socket.is_alive {
            return Ok(socket.path);
        }
        let message = format!("{} is stale: its program has exited", socket.path.display());
        return Err(ConnectError::new(Kind::Stale, message));
    }
    let why = if owner.is_some() || !Path::new("/proc/self").exists() {
        "it does not use Volt, has its control socket off, or belongs to another user"
    } else {
        "no program has this pid"
    };
    Err(not_found(&format!("pid {pid} has no control socket: {why}"), environment, &[], &listing.refused))
}

fn resolve_name(name: &str, environment: &Environment) -> Result<PathBuf, ConnectError> {
    let listing = socket::list(environment);
    let (mut matching, mut nameless) = (Vec::new(), Vec::new());
    for socket in listing.sockets.into_iter().filter(|socket| socket.is_alive) {
        match Client::connect(&socket.path) {
            Ok(client) if client.hello().program == name || client.hello().runtimes.iter().any(|of| of == name) => {
                matching.push((socket, client.hello().runtimes.clone()));
            }
            Ok(_) => {}
            // This may be the right program: it may have no room for another client.
            Err(error) => nameless.push(error),
        }
    }
    match &matching[..] {
        [(only, _)] => Ok(only.path.clone()),
        [] => {
            let what = format!("no program or runtime is named {name:?}");
            Err(not_found(&what, environment, &nameless, &listing.refused))
        }
        several => {
            let which = |(socket, runtimes): &(Candidate, Vec<String>)| match &runtimes[..] {
                [] => socket.pid.to_string(),
                [only] => format!("{} (runtime {only})", socket.pid),
                several => format!("{} (runtimes {})", socket.pid, several.join(", ")),
            };
            let pids: Vec<_> = several.iter().map(which).collect();
            let message = format!("{name:?} is the name of several programs; give the pid of one: {}", pids.join(", "));
            Err(ConnectError::new(Kind::Ambiguous, message))
        }
    }
}

/// Each program without a name and each refused directory has its own sentence, with its remedy.
fn not_found(
    what: &str,
    environment: &Environment,
    nameless: &[ConnectError],
    refused: &[SocketError],
) -> ConnectError {
    let dirs: Vec<_> = environment.directories().iter().map(|dir| dir.display().to_string()).collect();
    let mut message = format!("{what} (searched {})", dirs.join(", "));
    for error in nameless {
        message.push_str(&format!(". One program did not report its name: {error}"));
    }
    for error in refused {
        message.push_str(&format!(". Not usable: {error}"));
    }
    ConnectError::new(Kind::Missing, message)
}
