//! Ends a dump early, if its client has disconnected or its time is over.
//!
//! The thread that makes a dump owns a [`Limit`]. The requester of the dump owns the [`Canceller`],
//! and drops it when it no longer needs the dump. The thread checks the limit between slices of
//! polls, so it ends soon, with a partial dump. That dump is returned if its time is over, and
//! discarded if it was cancelled. Between the groups that it resolves, the thread checks only
//! whether it was cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a dump may list, poll and wait for other dumps of the runtime. After that it is
/// returned as it is. The client waits longer: `volt_telemetry::client::DUMP_TIMEOUT`.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(20);

/// The limit of a dump. See the module documentation.
#[derive(Debug)]
pub(crate) struct Limit {
    is_cancelled: Arc<AtomicBool>,
    ends_at: Instant,
}

/// Cancels a dump when it is dropped.
#[derive(Debug)]
pub(crate) struct Canceller(Arc<AtomicBool>);

impl Limit {
    /// Begins the time of a dump.
    pub(crate) fn new(time: Duration) -> (Self, Canceller) {
        let is_cancelled = Arc::new(AtomicBool::new(false));
        (Self { is_cancelled: is_cancelled.clone(), ends_at: Instant::now() + time }, Canceller(is_cancelled))
    }

    /// Returns whether the dump is no longer needed.
    pub(crate) fn is_cancelled(&self) -> bool {
        // ORDERING: Relaxed; a hint from the requester's thread, which publishes nothing.
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Returns how much time is left.
    pub(crate) fn left(&self) -> Duration {
        self.ends_at.saturating_duration_since(Instant::now())
    }
}

impl Drop for Canceller {
    fn drop(&mut self) {
        // ORDERING: Relaxed; as in `is_cancelled`.
        self.0.store(true, Ordering::Relaxed);
    }
}
