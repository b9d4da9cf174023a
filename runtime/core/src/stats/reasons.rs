//! Reasons that are counted separately: why a worker woke up, why it checked the global queue, and
//! how a task ended.

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

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its future returned.
    Completed,
    /// It was aborted, or its runtime was shut down.
    Cancelled,
    /// Its future panicked.
    Panicked,
}
