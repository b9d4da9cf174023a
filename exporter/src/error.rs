//! The error of an exporter that cannot serve its page.

use std::fmt;
use std::io;

/// The error returned when a page cannot be served.
///
/// Its message contains the name of the setting and a remedy.
///
/// ```
/// let taken = volt_exporter::serve("127.0.0.1:0").unwrap();
/// let error = volt_exporter::serve(taken.local_addr()).unwrap_err();
/// assert!(error.is_address_in_use());
/// assert!(error.to_string().contains("is already in use"));
/// ```
#[derive(Debug)]
pub struct ServeError {
    message: String,
    source: Option<io::Error>,
}

impl ServeError {
    pub(crate) fn invalid(setting: &str, text: impl fmt::Display) -> Self {
        Self { message: format!("{setting}: {text}"), source: None }
    }

    pub(crate) fn system(setting: &str, text: impl fmt::Display, source: io::Error) -> Self {
        Self { message: format!("{setting}: {text}"), source: Some(source) }
    }

    /// Returns whether a setting is invalid.
    pub fn is_invalid_setting(&self) -> bool {
        self.source.is_none()
    }

    /// Returns whether another program or socket already listens at the address.
    pub fn is_address_in_use(&self) -> bool {
        self.source.as_ref().is_some_and(|source| source.kind() == io::ErrorKind::AddrInUse)
    }
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ServeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

impl From<ServeError> for io::Error {
    fn from(error: ServeError) -> Self {
        let kind = error.source.as_ref().map_or(io::ErrorKind::InvalidInput, io::Error::kind);
        io::Error::new(kind, error)
    }
}
