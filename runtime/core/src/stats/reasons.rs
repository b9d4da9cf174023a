//! Reasons that are counted separately: why a worker woke up, and why it checked the global queue.

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
    /// The tuner's interval, a number of local polls, has passed.
    Interval,
    /// The target latency has passed since the last check.
    Elapsed,
    /// There is nothing left to poll locally or to steal.
    Empty,
}
