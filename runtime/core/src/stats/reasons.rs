//! Reasons that are counted apart: of a wake-up, and of a check of the global queue.

/// Why a worker woke up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    Notified,
    Timeout,
    Io,
    Timer,
    Spurious,
}

/// Why a worker checks the global queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// As many local polls as the tuner's interval have passed.
    Interval,
    /// The target latency has passed since the last check.
    Elapsed,
    /// Nothing is left to poll locally or to steal.
    Empty,
}
