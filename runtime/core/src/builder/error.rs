//! Errors of building a runtime.

use std::fmt;
use std::io;

/// Error returned when a runtime could not be built. The message names the setting and the remedy.
///
/// ```
/// # use volt_core as volt;
/// let error = volt::Builder::new_multi_thread().worker_threads(100_000).build().unwrap_err();
/// assert!(error.is_invalid_setting());
/// assert!(error.to_string().starts_with("worker_threads is 100000"));
/// ```
#[derive(Debug)]
pub struct BuildError {
    message: String,
    source: Option<io::Error>,
}

impl BuildError {
    pub(crate) fn invalid(setting: &str, value: impl fmt::Display, remedy: impl fmt::Display) -> Self {
        Self { message: format!("{setting} is {value}: {remedy}"), source: None }
    }

    pub(crate) fn system(what: impl fmt::Display, source: io::Error) -> Self {
        Self { message: format!("{what}: {source}"), source: Some(source) }
    }

    /// Returns true if a setting of the builder is out of bounds.
    pub fn is_invalid_setting(&self) -> bool {
        self.source.is_none()
    }

    /// Returns true if the operating system refused a resource, such as a thread or the I/O
    /// backend.
    pub fn is_system(&self) -> bool {
        self.source.is_some()
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<BuildError> for io::Error {
    fn from(error: BuildError) -> Self {
        let kind = error.source.as_ref().map_or(io::ErrorKind::InvalidInput, io::Error::kind);
        io::Error::new(kind, error)
    }
}
