//! Finds a program again after its connection was lost.

use std::fs;
use std::path::{Path, PathBuf};

use volt_telemetry::client::{ConnectError, resolve};
use volt_telemetry::socket::{Environment, is_program_alive, parse_file_name};

/// Finds the program's socket, each time that a connection is to be established.
pub type Locate = Box<dyn FnMut() -> Result<PathBuf, ConnectError> + Send>;

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
    /// Returns the pid of the program if it cannot come back: it was selected by its pid or socket,
    /// and has exited.
    pub fn exited(&self) -> Option<u32> {
        let Again::Path(path) = self else { return None };
        process_of(path).filter(|&(pid, start_time)| has_exited(pid, start_time)).map(|(pid, _)| pid)
    }

    /// Returns the name of the program if it was selected by name, and has exited: another program
    /// with this name may start.
    pub fn awaited(&self) -> Option<&str> {
        match self {
            Again::Name(name, path) if is_of_exited(path) == Some(true) => Some(name),
            _ => None,
        }
    }

    /// Returns the path of the program's socket.
    ///
    /// # Errors
    ///
    /// Returns an error if no program, or several, have the name.
    pub fn find(&mut self, environment: &Environment) -> Result<PathBuf, ConnectError> {
        match self {
            Again::Path(path) => Ok(path.clone()),
            Again::Name(name, path) => {
                if is_of_exited(path) != Some(false) || !path.exists() {
                    *path = resolve(name, environment)?;
                }
                Ok(path.clone())
            }
        }
    }

    /// Returns a function that finds the program.
    pub fn locate(mut self, environment: Environment) -> Locate {
        Box::new(move || self.find(&environment))
    }
}

/// Returns the pid and the start time of the program with this control socket; `None` if the
/// socket's name does not contain them.
fn process_of(path: &Path) -> Option<(u32, u64)> {
    path.file_name().and_then(|name| name.to_str()).and_then(parse_file_name)
}

/// Returns whether the program with this control socket has exited; `None` if the socket's name
/// does not contain the pid.
fn is_of_exited(path: &Path) -> Option<bool> {
    process_of(path).map(|(pid, start_time)| has_exited(pid, start_time))
}

/// Returns whether the program with this pid and start time has exited. Its parent may not have
/// waited for it yet.
pub(crate) fn has_exited(pid: u32, start_time: u64) -> bool {
    !is_program_alive(pid, start_time) || is_zombie(pid)
}

fn is_zombie(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in parentheses may contain anything.
    stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use volt_telemetry::socket::{file_name, own_start_time, start_time_of};

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
        let named = |path: &Path| Again::Name("no program has this name".to_owned(), path.to_owned());
        let find = |path: &Path| named(path).find(&Environment::of_program());
        assert_eq!(find(&own).unwrap(), own);
        assert!(find(&exited).is_err(), "after a restart, the name counts");
        assert_eq!([&own, &exited].map(|path| named(path).awaited().is_some()), [false, true]);
        let exited_pid = |path: &Path| Again::Path(path.to_owned()).exited();
        assert_eq!([&own, &exited].map(|path| exited_pid(path)), [None, Some(std::process::id())]);
        assert_eq!(exited_pid(Path::new("/tmp/any.sock")), None, "its name has no pid");
        std::fs::remove_file(&own).unwrap();
        assert!(find(&own).is_err(), "it has no socket any more");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_program_has_exited_before_its_parent_waits_for_it() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let (pid, start_time) = (child.id(), start_time_of(child.id()).unwrap());
        assert!(!has_exited(pid, start_time));
        drop(child.stdin.take());
        while !has_exited(pid, start_time) {
            thread::yield_now();
        }
        assert!(is_program_alive(pid, start_time), "it still has its pid");
        child.wait().unwrap();
        assert!(has_exited(pid, start_time));
    }
}
