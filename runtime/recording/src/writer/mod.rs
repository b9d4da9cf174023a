//! Writes a recording to files that are bounded in size and number.
//!
//! The console uses a [`Writer`]. It creates one and passes every flush that it receives from the
//! recorded program to [`Writer::write`].
//!
//! An ordinary case: a flush has one text and two chunks of events. The text and the first chunk
//! fit into the current file, and the second chunk does not. So the file is ended, and the next one
//! begins with a head and the kept texts, followed by the second chunk and the Anchor.
//!
//! The race: another program reads the file at the same time. It finds complete frames, and perhaps
//! a part of the last one, which it reports as truncated.
//!
//! # Protocol of a flush
//!
//! 1. Keep the texts, for the files to come. A text is the name that a number in an event stands
//!    for.
//! 2. Write the frames of the flush one by one. If the next frame does not fit, end the file and
//!    begin another, which opens with the kept texts. Remove the oldest file only after the head of
//!    the new one is written.
//! 3. End the flush with an Anchor frame.
//!
//! If any step fails, the file is truncated after its last complete frame, and the recording has
//! ended.
//!
//! # Invariants
//!
//! * *Each file stands by itself*: it has a head, and as many of the texts as fit into a quarter of
//!   it.
//! * *FOREIGN FILES STAY*: only files of this recording are removed.
//! * *What is recorded stays readable*: frames are passed to the operating system as they are made.
//!   There is no `fsync`: a power failure may lose the last seconds, a crash of the program loses
//!   nothing. A full disk destroys no older file.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::time::SystemTime;

use volt_telemetry::recording::flush::{Chunk, Flush, Head, MAX_TEXT_BYTES, Table, Text};
use volt_telemetry::recording::record::RECORD_BYTES;

use crate::error::RecordingError;
use crate::files::{Files, Sink, Store};
use crate::frame::{self, End, HEADER_BYTES, Kind, MAX_BODY_BYTES, MAX_CHUNK_RECORDS, Tail};

/// The smallest value of [`Settings::max_file_bytes`]: a head, the texts and a few frames must fit.
pub const MIN_FILE_BYTES: u64 = 1024 * 1024;
/// Maximum number of files that are kept. Their numbers count all files of the recording, so they
/// may be larger.
pub const MAX_FILES: u32 = 9999;
/// Maximum number of texts that are kept for the files to come, in addition to the number of
/// possible spawn locations. The names of the oldest tasks are dropped first.
const MAX_KEPT_TEXTS: usize = 16_384;
/// Maximum number of texts in one frame.
const TEXTS_A_FRAME: usize = 256;
/// Space reserved for the frames that end a flush and a file.
const RESERVED_BYTES: u64 = 1024;

const _: () = assert!(((MAX_CHUNK_RECORDS * RECORD_BYTES) as u64) < MIN_FILE_BYTES / 4);
const _: () = assert!(((TEXTS_A_FRAME * (MAX_TEXT_BYTES + 64)) as u64) < MIN_FILE_BYTES / 4);

/// The files of a recording, and their limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The path of the file. If there may be several files, they are numbered: `stall.voltrec`
    /// becomes `stall.0001.voltrec` and so on.
    pub path: PathBuf,
    /// Maximum size of a file in bytes; at least [`MIN_FILE_BYTES`].
    pub max_file_bytes: u64,
    /// Maximum number of files, 1 to [`MAX_FILES`]. If one more is created, the oldest is removed.
    /// With 1, the recording ends when the file is full.
    pub max_files: u32,
}

/// Writes flushes, and begins a new file when one is full.
///
/// ```no_run
/// use volt_recording::writer::{Settings, Writer};
/// use volt_telemetry::recording::flush::{Flush, Head};
///
/// let settings = Settings { path: "stall.voltrec".into(), max_file_bytes: 64 << 20, max_files: 4 };
/// let mut writer = Writer::create(settings, Head { program: "server".into(), ..Head::default() })?;
/// writer.write(&Flush::default())?;
/// println!("{} bytes in {:?}", writer.bytes(), writer.files());
/// writer.finish()?;
/// # Ok::<(), volt_recording::error::RecordingError>(())
/// ```
pub struct Writer {
    store: Box<dyn Store>,
    settings: Settings,
    /// The head of the current file.
    head: Head,
    kept: BTreeMap<(Table, u64), String>,
    part: Option<Part>,
    /// The numbers of the existing files, oldest first.
    parts: VecDeque<u32>,
    bytes: u64,
    /// The error that ended the recording.
    failed: Option<RecordingError>,
}

/// The file that is being written.
struct Part {
    to: Box<dyn Sink>,
    name: String,
    /// Length of the complete frames.
    bytes: u64,
    frames: u32,
    end: End,
}

impl Writer {
    /// Creates the recording and its first file. Fills in `part` and `began_at_unix_ns` of `head`.
    ///
    /// # Errors
    /// Returns an error for which one of these is true:
    /// - [`RecordingError::is_existing`]
    /// - [`RecordingError::is_unwritable`]
    /// - [`RecordingError::is_disk_full`]
    /// - [`RecordingError::is_invalid_setting`]
    ///
    /// Also returns the errors of the operating system.
    pub fn create(settings: Settings, head: Head) -> Result<Self, RecordingError> {
        let files = Files { path: settings.path.clone(), is_numbered: settings.max_files > 1 };
        files.is_free()?;
        Self::with_store(Box::new(files), settings, head)
    }

    fn with_store(store: Box<dyn Store>, settings: Settings, head: Head) -> Result<Self, RecordingError> {
        if settings.max_file_bytes < MIN_FILE_BYTES {
            let remedy = format!("set it to {MIN_FILE_BYTES} or more");
            return Err(RecordingError::setting("max_file_bytes", settings.max_file_bytes, remedy));
        }
        if !(1..=MAX_FILES).contains(&settings.max_files) {
            let remedy = format!("set it to 1 to {MAX_FILES}");
            return Err(RecordingError::setting("max_files", settings.max_files, remedy));
        }
        let began_at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let began_at_unix_ns = u64::try_from(began_at.as_nanos()).unwrap_or(u64::MAX);
        let head = Head { began_at_unix_ns, part: 0, ..head };
        let (kept, parts) = (BTreeMap::new(), VecDeque::new());
        let mut writer = Self { store, settings, head, kept, part: None, parts, bytes: 0, failed: None };
        let at_ns = writer.head.anchor.map_or(0, |anchor| anchor.at_ns);
        writer.begin_part(at_ns)?;
        Ok(writer)
    }

    /// Writes one flush.
    ///
    /// # Errors
    /// Returns an error for which [`RecordingError::is_full`] is true if there may be no further
    /// file. Also returns the errors of the operating system, such as
    /// [`RecordingError::is_disk_full`]. Everything written before stays readable; this flush may
    /// be written in part. An error ends the recording: later calls return the same error.
    pub fn write(&mut self, flush: &Flush) -> Result<(), RecordingError> {
        self.unless_failed(|writer| writer.write_flush(flush))
    }

    fn write_flush(&mut self, flush: &Flush) -> Result<(), RecordingError> {
        // (1)
        flush.texts.iter().for_each(|text| self.keep(text));
        if self.part.is_none() {
            self.begin_part(flush.at_ns)?;
        }
        // (2)
        for texts in flush.texts.chunks(TEXTS_A_FRAME) {
            let cut: Vec<_> = texts.iter().map(|text| Text::new(text.table, text.number, text.text.as_str())).collect();
            self.append(Kind::Texts, flush, &frame::packed(&cut))?;
        }
        for chunk in &flush.chunks {
            self.write_chunk(chunk, flush)?;
        }
        if let Some(snapshot) = &flush.snapshot {
            let body = frame::packed(snapshot);
            // A snapshot that would leave little room for other data is left out, and counted.
            if body.len() as u64 <= (self.settings.max_file_bytes / 4).min(MAX_BODY_BYTES as u64) {
                self.append(Kind::Snapshot, flush, &body)?;
            } else {
                self.count(|end| end.snapshots_skipped += 1);
            }
        }
        for mark in &flush.marks {
            self.append(Kind::Mark, flush, &frame::packed(mark))?;
        }
        // (3)
        self.commit(flush, flush.complete_until_ns)?;
        self.head.anchor = flush.anchor.or(self.head.anchor);
        Ok(())
    }

    fn write_chunk(&mut self, chunk: &Chunk, flush: &Flush) -> Result<(), RecordingError> {
        let mut lost = chunk.lost;
        // Lost records are reported even if no record is left.
        let nothing_left = (chunk.records.is_empty() && lost > 0).then_some(&[][..]);
        for records in chunk.records.chunks(MAX_CHUNK_RECORDS).chain(nothing_left) {
            let lost = std::mem::take(&mut lost);
            self.append(Kind::Events, flush, &frame::packed_events(chunk.track, lost, records))?;
            self.count(|end| {
                end.records += records.len() as u64;
                end.lost = end.lost.saturating_add(lost);
            });
        }
        Ok(())
    }

    /// Ends the current file; the next flush begins another one. Use this to write separate time
    /// spans to separate files.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn end_file(&mut self) -> Result<(), RecordingError> {
        self.unless_failed(Self::end_part)
    }

    /// Ends the recording. Dropping the writer does the same, but discards any error.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn finish(mut self) -> Result<(), RecordingError> {
        self.end_file()
    }

    /// Returns the number of bytes written so far, including removed files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the existing files, oldest first.
    pub fn files(&self) -> Vec<PathBuf> {
        self.parts.iter().map(|part| self.store.path(*part)).collect()
    }

    fn unless_failed(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<(), RecordingError>,
    ) -> Result<(), RecordingError> {
        if let Some(error) = &self.failed {
            return Err(error.again());
        }
        work(self).inspect_err(|error| {
            self.failed = Some(error.again());
            self.part = None;
        })
    }

    fn keep(&mut self, text: &Text) {
        // Spawn locations have 16-bit numbers, so no event refers to a higher one.
        let is_impossible = text.table == Table::Location && text.number > u64::from(u16::MAX);
        if text.table == Table::Unknown || is_impossible {
            return;
        }
        let Text { table, number, text } = Text::new(text.table, text.number, text.text.as_str());
        self.kept.insert((table, number), text);
        // Locations are bounded by their numbers; the other texts grow while the program runs.
        if self.kept.len() > MAX_KEPT_TEXTS + usize::from(u16::MAX)
            && let Some(oldest) = self.kept.range((Table::Task, 0)..).next().map(|(key, _)| *key)
        {
            self.kept.remove(&oldest);
        }
    }

    fn part(&mut self) -> &mut Part {
        self.part.as_mut().expect("there is a file while a flush is written")
    }

    fn count(&mut self, what: impl FnOnce(&mut End)) {
        what(&mut self.part().end);
    }

    /// Appends a frame to this file or the next.
    fn append(&mut self, kind: Kind, flush: &Flush, body: &[u8]) -> Result<(), RecordingError> {
        let max_bytes = self.settings.max_file_bytes;
        if !self.part().has_room(body, max_bytes) {
            // The rest of this flush is written to the next file, so this file is not complete up
            // to any later time than before.
            self.commit(flush, 0)?;
            self.end_part()?;
            self.begin_part(flush.at_ns)?;
            debug_assert!(self.part().has_room(body, max_bytes), "head, texts and any frame fit a file");
        }
        self.append_here(kind, flush.at_ns, body)
    }

    fn append_here(&mut self, kind: Kind, at_ns: u64, body: &[u8]) -> Result<(), RecordingError> {
        self.bytes += self.part().append(kind, at_ns, body)?;
        Ok(())
    }

    fn commit(&mut self, flush: &Flush, complete_until_ns: u64) -> Result<(), RecordingError> {
        let tail = Tail { anchor: flush.anchor, complete_until_ns };
        self.append_here(Kind::Anchor, flush.at_ns, &frame::packed(&tail))
    }

    fn end_part(&mut self) -> Result<(), RecordingError> {
        let Some(mut part) = self.part.take() else { return Ok(()) };
        let at_ns = self.head.anchor.map_or(0, |anchor| anchor.at_ns);
        let end = frame::packed(&part.end);
        self.bytes += part.append(Kind::End, at_ns, &end)?;
        Ok(())
    }

    fn begin_part(&mut self, at_ns: u64) -> Result<(), RecordingError> {
        if self.head.part > 0 && self.settings.max_files == 1 {
            let name = self.store.path(self.head.part).display().to_string();
            return Err(RecordingError::full(&name, self.bytes));
        }
        let number = self.head.part + 1;
        let path = self.store.path(number);
        let to = self.store.create(number).map_err(|error| RecordingError::create(&path, error))?;
        self.head.part = number;
        let mut part = Part { to, name: path.display().to_string(), bytes: 0, frames: 0, end: End::default() };
        if let Err(error) = self.open_part(&mut part, at_ns) {
            // Without a head the file is useless.
            let _ = self.store.remove(number);
            return Err(error);
        }
        self.bytes += part.bytes;
        self.part = Some(part);
        self.parts.push_back(number);
        while self.parts.len() > self.settings.max_files as usize
            && let Some(oldest) = self.parts.pop_front()
        {
            // Another program may have removed it. If it cannot be removed, recording continues
            // nevertheless.
            let _ = self.store.remove(oldest);
        }
        Ok(())
    }

    /// Writes preamble, head and the kept texts.
    fn open_part(&self, part: &mut Part, at_ns: u64) -> Result<(), RecordingError> {
        part.put(&frame::preamble())?;
        part.append(Kind::Head, at_ns, &frame::packed(&self.head))?;
        let kept = self.kept.iter().map(|((table, number), text)| Text::new(*table, *number, text.as_str()));
        // Locations first, then processes, incidents and tasks; of these, the highest number first.
        let (locations, mut others): (Vec<_>, Vec<_>) = kept.partition(|text| text.table == Table::Location);
        others.reverse();
        let budget_bytes = self.settings.max_file_bytes / 4;
        for texts in locations.chunks(TEXTS_A_FRAME).chain(others.chunks(TEXTS_A_FRAME)) {
            let body = frame::packed(&texts);
            if part.bytes + body.len() as u64 > budget_bytes {
                break;
            }
            part.append(Kind::Texts, at_ns, &body)?;
        }
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // An error cannot be reported here. The file is readable without its last frame.
        let _ = self.end_part();
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("settings", &self.settings).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl Part {
    fn has_room(&self, body: &[u8], max_bytes: u64) -> bool {
        self.bytes + (HEADER_BYTES + body.len()) as u64 + RESERVED_BYTES <= max_bytes
    }

    /// Appends one frame, and returns its length in bytes.
    fn append(&mut self, kind: Kind, at_ns: u64, body: &[u8]) -> Result<u64, RecordingError> {
        let frame = frame::seal(kind, at_ns, self.frames, body);
        self.put(&frame)?;
        self.frames += 1;
        Ok(frame.len() as u64)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), RecordingError> {
        if let Err(error) = self.to.write_all(bytes) {
            // If truncating fails too, the reader detects the incomplete frame.
            let _ = self.to.cut(self.bytes);
            return Err(RecordingError::write(&self.name, self.bytes, error));
        }
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
