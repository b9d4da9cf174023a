//! The error of `cargo volt`.

use std::fmt;
use std::io;
use std::path::Path;

/// The exit code of a failure, which is cargo's.
pub(crate) const FAILURE: u8 = 101;

/// Why a command failed, and what the user can do about it.
#[derive(Debug, Default)]
pub(crate) struct Error {
    message: String,
    help: Vec<String>,
}

impl Error {
    pub(crate) fn new(message: impl Into<String>) -> Error {
        Error { message: message.into(), ..Error::default() }
    }

    /// A failed system call on a file or folder.
    pub(crate) fn io(what: &str, path: &Path, error: &io::Error) -> Error {
        let failed = Error::new(format!("cannot {what} `{}`: {error}", path.display()));
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                failed.help("choose a directory that you may write to: `--target-dir DIR`")
            }
            io::ErrorKind::StorageFull => failed.help("free some space, or choose another disk: `--target-dir DIR`"),
            _ => failed,
        }
    }

    /// Adds a remedy.
    pub(crate) fn help(mut self, text: impl Into<String>) -> Error {
        self.help.push(text.into());
        self
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
