//! Finds the control sockets of a user, in all directories that may contain them.
//!
//! Invariant: *Each socket once*: a directory is listed once, even if several paths lead to it.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Environment, Kind, SocketError, file_name, is_listening, open_directory, sockets_in};
use crate::listing::order;

/// A control socket that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The path of the socket.
    pub path: PathBuf,
    /// The process id of the program that created it.
    pub pid: u32,
    /// The start time of that program.
    pub start_time: u64,
    /// Whether a program listens on it. Otherwise it is stale: its program ended without removing
    /// it. In a rare case, its program has created it and does not listen yet.
    pub is_alive: bool,
}

/// The control sockets of a user.
#[derive(Debug, Default)]
pub struct Listing {
    /// The sockets, sorted by pid, then start time.
    pub sockets: Vec<Candidate>,
    /// Directories and sockets that exist but could not be read.
    pub refused: Vec<SocketError>,
}

/// Lists the control sockets that a user with this environment may connect to.
///
/// Connects briefly to each socket to find out whether it is stale.
pub fn list(environment: &Environment) -> Listing {
    list_in(&environment.directories(), environment.user_id)
}

/// Lists the sockets in these directories.
pub(super) fn list_in(directories: &[PathBuf], user_id: u32) -> Listing {
    let mut listing = Listing::default();
    let mut seen = Vec::new();
    for dir in directories {
        // Two paths may lead to the same directory: `/var/run` is usually a link to `/run`.
        let identity = std::fs::symlink_metadata(dir).ok().map(|meta| (meta.dev(), meta.ino()));
        if identity.is_some() && seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        match list_directory(dir, user_id, &mut listing) {
            Ok(()) => {}
            Err(error) if error.is_missing() => {}
            Err(error) => listing.refused.push(error),
        }
    }
    order::sort_by_key(&mut listing.sockets, |found| (found.pid, found.start_time));
    listing
}

fn list_directory(path: &Path, user_id: u32, listing: &mut Listing) -> Result<(), SocketError> {
    let dir = open_directory(path, user_id)?;
    for (pid, start_time) in sockets_in(path, &dir, &mut listing.refused)? {
        let file = path.join(file_name(pid, start_time));
        match is_listening(&file) {
            Ok(is_alive) => listing.sockets.push(Candidate { path: file, pid, start_time, is_alive }),
            // The socket was removed after the directory was read.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                listing.refused.push(SocketError::new(Kind::Io, format!("{}: {error}", file.display())));
            }
        }
    }
    Ok(())
}
