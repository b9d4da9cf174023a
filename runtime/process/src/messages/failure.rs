//! Exit reasons, and the errors of processes.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use volt_telemetry::recording::event::Ending;

/// A description of an error. `?` converts any error into one.
///
/// ```
/// use volt_process::Failure;
///
/// fn parse(text: &str) -> Result<u16, Failure> {
///     let port: u16 = text.parse()?;
///     if port == 0 { Err(Failure::new("port 0 cannot be reached")) } else { Ok(port) }
/// }
/// assert_eq!(parse("0").unwrap_err().to_string(), "port 0 cannot be reached");
/// assert!(parse("x").is_err());
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Failure(Arc<str>);

impl Failure {
    /// Returns a failure with this message.
    pub fn new(message: impl fmt::Display) -> Self {
        Self(message.to_string().into())
    }

    /// Returns the message of a panic.
    pub(crate) fn of_panic(panic: Box<dyn Any + Send>) -> Self {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let failure = Self::new(text.unwrap_or("a panic without a message"));
        // The payload of the panic may panic when it is dropped.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            std::mem::forget(second);
        }
        failure
    }
}

/// Drops a value that may have a user-defined destructor. Returns the message if that panicked.
pub(crate) fn dropped<T>(value: T) -> Option<Failure> {
    catch_unwind(AssertUnwindSafe(|| drop(value))).err().map(Failure::of_panic)
}

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Failure({:?})", &*self.0)
    }
}

/// The reason why a process exited.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExitReason {
    /// It completed.
    Normal,
    /// It was [cancelled](crate::System::cancel), and completed.
    Shutdown,
    /// It was ended before its next step: by [`kill`](crate::System::kill), by a shutdown whose
    /// time was over, or because its runtime shut down.
    Killed,
    /// `init` or `step` returned an error. Or the process waits for its yields
    /// ([`Yield`](crate::Status::Yield)) and has none outstanding.
    Failed(Failure),
    /// It panicked.
    Panicked(Failure),
    /// No such process existed at the time of the request.
    NoProcess,
    /// Its node cannot be reached any more. The process may still be alive.
    NoConnection,
}

impl ExitReason {
    /// Returns whether the exit is abnormal: any reason but [`Normal`](Self::Normal) and
    /// [`Shutdown`](Self::Shutdown). An abnormal exit spreads to linked processes, and makes a
    /// supervisor restart a transient child.
    pub fn is_abnormal(&self) -> bool {
        !matches!(self, Self::Normal | Self::Shutdown)
    }
}

impl ExitReason {
    /// Returns the value that a recording contains.
    pub(crate) fn ending(&self) -> Ending {
        match self {
            Self::Normal => Ending::Normal,
            Self::Shutdown => Ending::Shutdown,
            Self::Killed => Ending::Killed,
            Self::Failed(_) => Ending::Failed,
            Self::Panicked(_) => Ending::Panicked,
            // The exit of this process was caused by a link: it spread from a process that does not
            // exist or cannot be reached.
            Self::NoProcess | Self::NoConnection => Ending::Failed,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Normal => f.write_str("done"),
            Self::Shutdown => f.write_str("shut down"),
            Self::Killed => f.write_str("killed"),
            Self::Failed(failure) => write!(f, "failed: {failure}"),
            Self::Panicked(failure) => write!(f, "panicked: {failure}"),
            Self::NoProcess => f.write_str("no such process"),
            Self::NoConnection => f.write_str("its node cannot be reached"),
        }
    }
}
