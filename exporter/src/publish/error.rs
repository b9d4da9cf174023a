//! The error of a publisher that cannot be started.

use std::fmt;
use std::io;

/// The error returned when metrics cannot be published.
///
/// Its message contains a remedy.
///
/// ```
/// use std::time::Duration;
///
/// let error = volt_exporter::publish_to_recorder(Duration::ZERO).unwrap_err();
/// assert!(error.is_invalid_setting());
/// assert_eq!(error.to_string(), "interval: 0ns is too short: use at least 10 ms");
/// ```
#[derive(Debug)]
pub struct PublishError {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Interval(String),
    Publishing,
    Thread(io::Error),
}

impl PublishError {
    pub(super) fn interval(text: String) -> Self {
        Self { kind: Kind::Interval(text) }
    }

    pub(super) fn publishing() -> Self {
        Self { kind: Kind::Publishing }
    }

    pub(super) fn thread(error: io::Error) -> Self {
        Self { kind: Kind::Thread(error) }
    }

    /// Returns whether a setting is invalid.
    pub fn is_invalid_setting(&self) -> bool {
        matches!(self.kind, Kind::Interval(_))
    }

    /// Returns whether the program already has a [`Publisher`](crate::Publisher).
    pub fn is_already_publishing(&self) -> bool {
        matches!(self.kind, Kind::Publishing)
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Interval(text) => write!(f, "interval: {text}"),
            Kind::Publishing => f.write_str(
                "this program already publishes Volt's metrics, and two publishers would count everything twice: keep \
                 the first Publisher, or drop it before you start another one",
            ),
            Kind::Thread(error) => write!(
                f,
                "cannot start the thread that publishes metrics ({error}): raise the limit on threads or memory \
                 (`ulimit -u`, `ulimit -v`, or `pids.max` and `memory.max` of the control group)"
            ),
        }
    }
}

impl std::error::Error for PublishError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.kind {
            Kind::Thread(error) => Some(error),
            Kind::Interval(_) | Kind::Publishing => None,
        }
    }
}

impl From<PublishError> for io::Error {
    fn from(error: PublishError) -> Self {
        let kind = match &error.kind {
            Kind::Interval(_) => io::ErrorKind::InvalidInput,
            Kind::Publishing => io::ErrorKind::AlreadyExists,
            Kind::Thread(source) => source.kind(),
        };
        io::Error::new(kind, error)
    }
}
