//! The error of `cargo volt`.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The exit code of a failure, which is cargo's.
pub(crate) const FAILURE: u8 = 101;

/// Why a command failed, and what the user can do about it.
#[derive(Debug, Default)]
pub(crate) struct Error {
    message: String,
    help: Vec<String>,
    /// Whether the project cannot be built on Volt as it is. After other errors, this is unknown.
    is_unsupported: bool,
    /// The file of a failed system call, and the kind of the failure.
    file: Option<(PathBuf, io::ErrorKind)>,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), ..Error::default() }
    }

    /// The reason why a project cannot be built on Volt.
    pub(crate) fn unsupported(message: impl Into<String>) -> Error {
        Error { message: message.into(), is_unsupported: true, ..Error::default() }
    }

    /// A failed system call on a file or folder.
    pub(crate) fn io(what: &str, path: &Path, error: &io::Error) -> Error {
        let message = format!("cannot {what} `{}`: {error}", path.display());
        Error { message, file: Some((path.to_owned(), error.kind())), ..Error::default() }
    }

    /// Adds the remedy for a file below the target directory, which the user can choose.
    pub(crate) fn below_target(self, target: &Path) -> Error {
        let Some((_, kind)) = self.file.as_ref().filter(|(path, _)| path.starts_with(target)) else { return self };
        match kind {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                self.help("choose a directory that you may write to: `--target-dir DIR`")
            }
            io::ErrorKind::StorageFull => self.help("free some space, or choose another disk: `--target-dir DIR`"),
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                self.help("remove the file that is in the way, or choose another directory: `--target-dir DIR`")
            }
            _ => self,
        }
    }

    /// Adds a remedy.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Error {
        self.help.push(text.into());
        self
    }

    pub(crate) fn is_unsupported(&self) -> bool {
        self.is_unsupported
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    pub(crate) fn remedies(&self) -> &[String] {
        &self.help
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_below_the_target_directory_get_a_remedy() {
        let target = Path::new("/project/target/volt");
        let denied = io::Error::from(io::ErrorKind::PermissionDenied);
        let remedies = |path: &str| Error::io("write", Path::new(path), &denied).below_target(target).help;
        assert_eq!(remedies("/project/target/volt/lock").len(), 1);
        assert_eq!(remedies("/project/Cargo.lock"), [""; 0]);
        assert_eq!(remedies("/project/third-party/volt"), [""; 0]);
    }
}
