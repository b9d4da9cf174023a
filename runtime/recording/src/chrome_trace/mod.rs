//! A recording as a Chrome trace: JSON that <https://ui.perfetto.dev>, `chrome://tracing` and
//! speedscope open.
//!
//! Shape: a track a worker (a thread of the process); on it polls, searches, sleeps and polls of
//! the driver as slices, what else happened as instant events; an arrow (a *flow*) from each
//! wake-up or spawn to the poll that it led to; queue lengths and counts of tasks from the
//! snapshots as counters. A slice's name is the task's name, else where it was spawned.
//!
//! Invariants, for whoever reads the file from top to bottom:
//! * *Balanced*: each begin has an end on its track, and the other way round. The begin of a poll
//!   whose begin was overwritten follows from its duration; what is still open at the end, or where
//!   events were lost, is ended there and says so (`"unfinished"`, `"end_lost"`).
//! * *Nested*: slices of a track lie within each other or apart.
//! * *Never backwards*: on a track, times do not go back.
//! * *Flows resolve*: each has one begin and one end, and both stand inside a slice. A wake-up
//!   whose poll is not in the recording has no arrow.
//!
//! Protocol: the recording is read twice. (1) Which wake-up leads to which poll: one bit a wake-up
//! is kept. (2) The same again, written down; a flow's begin can so be written when its turn comes,
//! and memory grows by that bit and the tasks that wait.
//!
//! Source: Trace Event Format (Google); how Perfetto reads it,
//! `src/trace_processor/importers/json`: flows bind to the innermost slice that is open on their
//! track when they come.

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

/// How often progress is told: once in so many things.
const PROGRESS_EVERY: u64 = 4096;

/// Writes the whole recording to `to`, and tells `progress` now and then how much of the work is
/// done, 0..=1.
///
/// The reader is left at the end.
///
/// # Errors
/// Those of the writer: [`RecordingError::is_disk_full`], [`RecordingError::is_broken_pipe`]. A
/// recording that breaks off is none.
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
