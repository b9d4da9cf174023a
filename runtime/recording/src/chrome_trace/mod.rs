//! Exports a recording as a Chrome trace: JSON that <https://ui.perfetto.dev>, `chrome://tracing`
//! and speedscope open.
//!
//! The console's export command calls [`export`].
//!
//! # Shape
//!
//! The trace has one track per worker (a thread of the program). Its slices are polls, searches,
//! sleeps and polls of the driver; other events are instant events. An arrow (a *flow*) leads from
//! each wake-up or spawn to the poll that it caused. Queue lengths and task counts of the snapshots
//! are counters. The name of a poll's slice is the task's name, or else its spawn location.
//!
//! # Invariants
//!
//! For a program that reads the file from top to bottom:
//! * *Balanced*: each begin has an end on its track, and vice versa. If the begin of a poll was
//!   overwritten, it is computed from the poll's duration. A slice that is open at the end, or
//!   where events were lost, is ended there and marked (`"unfinished"`, `"end_lost"`).
//! * *Nested*: two slices of a track are either nested or disjoint.
//! * *Never backwards*: on a track, times do not decrease.
//! * *Flows resolve*: each flow has one begin and one end, and both are inside a slice. A wake-up
//!   whose poll is not in the recording has no arrow.
//!
//! # Protocol
//!
//! The recording is read twice:
//! 1. Determine which wake-up leads to which poll. One bit per wake-up is kept.
//! 2. Write the trace. A flow's begin can thus be written in order, and memory grows only by these
//!    bits and the tasks that wait.
//!
//! Sources: Trace Event Format (Google). Perfetto's importer, `src/trace_processor/importers/json`:
//! a flow binds to the innermost slice that is open on its track.

use std::io::{Read, Seek, Write};

use crate::error::RecordingError;
use crate::reader::Reader;
use crate::timeline::{Timeline, What};

mod json;
mod lane;
mod pairing;
mod trace;

use pairing::{Link, Links, Pairing};
use trace::Trace;

pub use trace::Exported;

/// Progress is reported once per this many items.
const PROGRESS_EVERY: u64 = 4096;

/// Writes the whole recording to `to`. Calls `progress` from time to time with the completed
/// fraction of the work, 0..=1.
///
/// Afterwards the reader is at the end of the recording.
///
/// # Errors
/// Returns the errors of `to`, such as [`RecordingError::is_disk_full`] and
/// [`RecordingError::is_broken_pipe`]. Also returns the errors of the operating system when it goes
/// back to the beginning of the recording. A truncated recording is not an error; see
/// [`Exported::broke`].
///
/// ```no_run
/// use volt_recording::chrome_trace::export;
/// use volt_recording::reader::Reader;
///
/// let mut reader = Reader::open("stall.voltrec".as_ref())?;
/// let exported = export(&mut reader, std::fs::File::create("stall.json").unwrap(), |_ratio| {})?;
/// println!("{} polls: open https://ui.perfetto.dev", exported.polls);
/// # Ok::<(), volt_recording::error::RecordingError>(())
/// ```
pub fn export<R: Read + Seek>(
    reader: &mut Reader<R>,
    to: impl Write,
    mut progress: impl FnMut(f64),
) -> Result<Exported, RecordingError> {
    // (1)
    reader.rewind()?;
    let mut timeline = Timeline::new(reader);
    let (mut pairing, mut links) = (Pairing::default(), Links::default());
    let mut seen = 0_u64;
    while let Some(item) = timeline.next_item() {
        if let What::Event { event, .. } = item.what
            && let Some(Link::Poll(wake)) = pairing.link(item.at_ns, event)
        {
            links.set(wake);
        }
        seen += 1;
        if seen.is_multiple_of(PROGRESS_EVERY) {
            progress(timeline.progress_ratio() / 2.0);
        }
    }
    // (2)
    reader.rewind()?;
    let head = reader.head().clone();
    let mut timeline = Timeline::new(reader);
    let mut trace = Trace::open(to, &head, links)?;
    while let Some(item) = timeline.next_item() {
        trace.item(item, timeline.texts())?;
        seen += 1;
        if seen.is_multiple_of(PROGRESS_EVERY) {
            progress(0.5 + timeline.progress_ratio() / 2.0);
        }
    }
    let exported = trace.close(&head, timeline.anchors())?;
    progress(1.0);
    Ok(Exported { broke: timeline.broke().map(RecordingError::again), ..exported })
}

#[cfg(test)]
mod tests;
