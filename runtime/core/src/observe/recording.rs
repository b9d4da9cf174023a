//! A recording for one client: the records of a runtime's rings, flush by flush, and a snapshot at
//! intervals.
//!
//! Only the thread of the server's loop uses it. A flush is collected when it is due and the client
//! has received the one before. It is kept here in pieces, each of which fits a frame. The server
//! does not wait for a client that reads too slowly: the rings are overwritten, and the records
//! that the client missed are counted in the next chunk.
//!
//! A recording keeps the recorder on while it lives, but does not keep the runtime alive.
//!
//! Bound: the contents of all rings, once.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Weak;
use std::time::{Duration, Instant};

use volt_telemetry::recording::flush::{Flush, Head};
use volt_telemetry::wire::Reply;

use super::cuts::encode_cutting;
use super::registry::{Observed, Registry, program_name};
use crate::clock;
use crate::recorder::drain::Drain;
use crate::recorder::lanes::Hold;

/// Records per piece. With the maximum of texts in a flush, a piece of this size fits a frame.
const MAX_PIECE_RECORDS: usize = 12_288;
/// Time between two snapshots.
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(250);

/// The error that a client receives if its answer panicked.
pub(super) const FAULT: &str = "the value is missing because Volt panicked: see the program's stderr";

/// See the header of this file.
pub(super) struct Recording {
    runtime: Weak<dyn Observed>,
    drain: Drain,
    due_at: Instant,
    snapshot_at: Instant,
    pieces: VecDeque<Flush>,
    _on: Hold,
}

impl Recording {
    /// Begins a recording with the records of the last `before` that are still in the rings.
    /// Also returns the recording's head. `None` if the runtime was shut down.
    pub(super) fn begin(
        name: &str,
        runtime: Weak<dyn Observed>,
        before: Duration,
        now: Instant,
    ) -> Option<(Recording, Head)> {
        let found = runtime.upgrade()?;
        let recorder = found.recorder()?;
        let from_ns = clock::now_ns().saturating_sub(clock::saturating_ns(before));
        let drain = if before.is_zero() { Drain::from_now(recorder) } else { Drain::since(recorder, from_ns) };
        let head = recorder.head(&program_name(), name);
        let (pieces, on) = (VecDeque::new(), recorder.hold());
        drop(found);
        Some((Recording { runtime, drain, due_at: now, snapshot_at: now, pieces, _on: on }, head))
    }

    /// Returns when the next flush is due; now if pieces are left to send.
    pub(super) fn due_at(&self) -> Instant {
        if self.pieces.is_empty() { self.due_at } else { Instant::now() }
    }

    /// Returns the next frame for a client that has received the last one; `None` if nothing is
    /// due. An error is sent to the client and ends the recording.
    pub(super) fn next_frame(
        &mut self,
        now: Instant,
        max_bytes: usize,
        registry: &Registry,
    ) -> Result<Option<Vec<u8>>, String> {
        if self.pieces.is_empty() && self.due_at <= now {
            // A panic while texts of a task or process are looked up ends this recording, not the
            // socket.
            catch_unwind(AssertUnwindSafe(|| self.collect(now))).unwrap_or_else(|_| Err(FAULT.to_owned()))?;
        }
        let Some(piece) = self.pieces.pop_front() else { return Ok(None) };
        // Only a snapshot can be too large. If it does not fit even when cut, only the snapshot is
        // lost.
        Ok(encode_cutting(&mut Reply::Flush { flush: Box::new(piece) }, max_bytes, registry).ok())
    }

    fn collect(&mut self, now: Instant) -> Result<(), String> {
        let has_ended = || "the runtime was shut down".to_owned();
        let runtime = self.runtime.upgrade().ok_or_else(has_ended)?;
        let flush = self.drain.collect(runtime.names().ok_or_else(has_ended)?);
        if self.snapshot_at <= now {
            let snapshot = runtime.snapshot();
            let (at_ns, snapshot) = (snapshot.at_ns, Some(Box::new(snapshot)));
            self.pieces.push_back(Flush { at_ns: at_ns.min(flush.at_ns), snapshot, ..Flush::default() });
            self.snapshot_at = now + SNAPSHOT_INTERVAL;
        }
        self.due_at = now + self.drain.next_in();
        // Even an empty one, since it contains the time until which the recording is complete.
        self.pieces.extend(flush.into_pieces(MAX_PIECE_RECORDS));
        Ok(())
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("pieces", &self.pieces.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use volt_telemetry::histogram::Histogram;
    use volt_telemetry::snapshot::{Snapshot, Worker};
    use volt_telemetry::wire::MAX_REPLY_BYTES;

    use super::*;
    use crate::observe::limits::Limits;
    use crate::recorder::drain::Names;
    use crate::recorder::lanes::Recorder;

    /// A runtime with a recorder and with workers whose histograms are large.
    struct Fake(Arc<Recorder>);

    impl Observed for Fake {
        fn snapshot(&self) -> Snapshot {
            let poll_time = Histogram::from_counts(vec![u64::MAX / 1024; 500], 1);
            let workers = (0..12).map(|index| Worker { index, poll_time: poll_time.clone(), ..Worker::default() });
            Snapshot { workers: workers.collect(), ..Snapshot::default() }
        }

        fn recorder(&self) -> Option<&Arc<Recorder>> {
            Some(&self.0)
        }

        fn names(&self) -> Option<&dyn Names> {
            Some(self)
        }
    }

    impl Names for Fake {
        fn location(&self, _number: u16) -> Option<String> {
            None
        }

        fn task(&self, _id: u64) -> Option<String> {
            None
        }

        fn incident(&self, _number: u64) -> Option<String> {
            None
        }
    }

    #[test]
    fn an_oversized_recording_snapshot_is_cut_or_omitted() {
        let fake: Arc<dyn Observed> = Arc::new(Fake(Recorder::new(1, 0, 8, false)));
        let now = Instant::now();
        let mut cut = Vec::new();
        for max_bytes in [MAX_REPLY_BYTES, 24 * 1024, 512] {
            let registry = Registry::new(|| unreachable!("no socket is wanted"), Limits::DEFAULT);
            let (mut recording, _) = Recording::begin("fake", Arc::downgrade(&fake), Duration::ZERO, now).unwrap();
            let is_sent = recording.next_frame(now, max_bytes, &registry).unwrap().is_some();
            cut.push((is_sent, registry.health().snapshots_cut));
        }
        assert_eq!(cut, [(true, 0), (true, 1), (false, 1)]);
    }
}
