//! Reads a recording: flush by flush, from any time on, as far as the file is intact.
//!
//! The console, [`timeline`](crate::timeline) and [`chrome_trace`](crate::chrome_trace) use a
//! [`Reader`].
//!
//! An ordinary case: a file has two flushes. The first two calls of `next_flush` return them, and
//! the third returns nothing. If the file ends in the middle of the second flush, the calls return
//! the first flush, the intact frames of the second, an error, and then nothing.
//!
//! The race: a program appends to the file while it is read. The reader stops at the length that
//! the file had when it was opened. If that is in the middle of a frame, the file counts as
//! truncated.
//!
//! # Protocol
//!
//! 1. Open: read preamble and head.
//! 2. Next flush: read frames up to its Anchor.
//! 3. If the file is truncated or damaged, reading ends. `next_flush` first returns the intact part
//!    of the flush, then the error, then nothing.
//! 4. Seek: read header by header from the beginning. Bodies are skipped, except texts, since later
//!    numbers refer to them.
//!
//! # Invariants
//!
//! * *Nothing is trusted*: lengths are bounded, checksums compared, frames counted. Arbitrary bytes
//!   result in flushes and errors, but never in a panic.
//! * *Memory is bounded* by [`MAX_FLUSH_BYTES`] and by the texts in the file.
//! * *A file that grows is read up to its length when it was opened*, so two passes see the same
//!   data.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use serde::de::DeserializeOwned;
use volt_telemetry::recording::flush::{Flush, Head, Table, Text};
use volt_telemetry::snapshot::Snapshot;

use crate::error::RecordingError;
use crate::frame::{self, End, HEADER_BYTES, Header, Kind, PREAMBLE_BYTES, Tail};

/// Maximum size of a flush: of its frames, and of its texts in memory. A longer one is returned in
/// pieces, each of which exceeds this by less than one frame.
pub const MAX_FLUSH_BYTES: usize = 256 * 1024 * 1024;

/// Reads a recording.
///
/// ```no_run
/// use volt_recording::reader::Reader;
///
/// let mut reader = Reader::open("stall.0001.voltrec".as_ref())?;
/// println!("{} of {}", reader.head().runtime, reader.head().program);
/// while let Some(flush) = reader.next_flush()? {
///     println!("{} records up to {} ns", flush.records(), flush.at_ns);
/// }
/// # Ok::<(), volt_recording::error::RecordingError>(())
/// ```
#[derive(Debug)]
pub struct Reader<R = BufReader<File>> {
    from: R,
    name: String,
    head: Head,
    texts: Texts,
    /// Offset of the next frame.
    at_byte: u64,
    /// Offset of the first frame after the head.
    first_byte: u64,
    len_bytes: u64,
    /// Number of the next frame.
    number: u32,
    state: State,
    end: Option<End>,
    /// [`MAX_FLUSH_BYTES`], or less in tests.
    max_flush_bytes: usize,
}

#[derive(Debug)]
enum State {
    Reading,
    /// The next call returns this error.
    Broken(RecordingError),
    Over,
}

/// The texts that the numbers of a recording stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts(HashMap<(Table, u64), String>);

impl Texts {
    /// Adds the text of a number.
    pub fn add(&mut self, text: &Text) {
        self.0.insert((text.table, text.number), text.text.clone());
    }

    /// Returns all texts.
    pub fn iter(&self) -> impl Iterator<Item = Text> + '_ {
        self.0.iter().map(|((table, number), text)| Text { table: *table, number: *number, text: text.clone() })
    }

    /// Returns the spawn location with this number: `file:line:column`.
    pub fn location(&self, number: u16) -> Option<&str> {
        self.get(Table::Location, number.into())
    }

    /// Returns the name of a task, if it has one.
    pub fn task(&self, id: u64) -> Option<&str> {
        self.get(Table::Task, id)
    }

    /// Returns a one-line description of an incident.
    pub fn incident(&self, number: u64) -> Option<&str> {
        self.get(Table::Incident, number)
    }

    /// Returns the name of a process, if it has one, and the type of its state machine.
    pub fn process(&self, number: u64) -> Option<&str> {
        self.get(Table::Process, number)
    }

    fn get(&self, table: Table, number: u64) -> Option<&str> {
        self.0.get(&(table, number)).map(String::as_str)
    }
}

impl Extend<Text> for Texts {
    fn extend<I: IntoIterator<Item = Text>>(&mut self, texts: I) {
        texts.into_iter().for_each(|text| self.add(&text));
    }
}

impl Reader {
    /// Opens one file of a recording.
    ///
    /// # Errors
    /// Returns an error for which one of these is true:
    /// - [`RecordingError::is_missing`]
    /// - [`RecordingError::is_not_a_recording`]
    /// - [`RecordingError::is_wrong_version`]
    /// - [`RecordingError::is_truncated`] or [`RecordingError::is_damaged`] if not even the head is
    ///   intact
    ///
    /// Also returns the errors of the operating system.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let file = File::open(path).map_err(|error| RecordingError::open(path, error))?;
        Self::new(BufReader::new(file), path.display().to_string())
    }
}

impl<R: Read + Seek> Reader<R> {
    /// Reads a recording from any source. Error messages contain `name` as its name.
    ///
    /// # Errors
    /// Same as [`open`](Reader::open).
    pub fn new(mut from: R, name: impl Into<String>) -> Result<Self, RecordingError> {
        let name = name.into();
        let read_error = |error| RecordingError::read(&name, error);
        let len_bytes = from.seek(SeekFrom::End(0)).map_err(read_error)?;
        from.rewind().map_err(read_error)?;
        let mut preamble = [0; PREAMBLE_BYTES];
        match from.read_exact(&mut preamble) {
            Ok(()) => frame::check_preamble(&preamble, &name)?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => {
                return Err(RecordingError::not_a_recording(&name));
            }
            Err(error) => return Err(read_error(error)),
        }
        let at_byte = PREAMBLE_BYTES as u64;
        let mut reader = Self {
            from,
            name,
            head: Head::default(),
            texts: Texts::default(),
            at_byte,
            first_byte: at_byte,
            len_bytes,
            number: 0,
            state: State::Reading,
            end: None,
            max_flush_bytes: MAX_FLUSH_BYTES,
        };
        match reader.next_header()? {
            Some(header) if header.kind == Some(Kind::Head) => reader.head = reader.read_body(&header)?,
            Some(_) => return Err(reader.damaged("it does not begin with a header frame")),
            None => return Err(RecordingError::truncated(&reader.name, at_byte)),
        }
        reader.first_byte = reader.at_byte;
        Ok(reader)
    }

    /// Returns the head, which describes the recorded program and runtime.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Returns the texts that were read so far.
    pub fn texts(&self) -> &Texts {
        &self.texts
    }

    /// Returns how much of the file was read, 0..=1.
    pub fn progress_ratio(&self) -> f64 {
        if self.len_bytes == 0 { 1.0 } else { (self.at_byte as f64 / self.len_bytes as f64).min(1.0) }
    }

    /// Returns the contents of the file's last frame. `None` before it was read, and for a file
    /// whose writer has not ended it.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    /// Returns the next flush, or `None` at the end. If the file is truncated or damaged, this
    /// returns the intact part of the flush, if there is one, and the next call returns the error.
    ///
    /// # Errors
    /// Returns an error for which [`RecordingError::is_truncated`] or
    /// [`RecordingError::is_damaged`] is true; nothing after that can be read. Also returns the
    /// errors of the operating system.
    pub fn next_flush(&mut self) -> Result<Option<Flush>, RecordingError> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Over => return Ok(None),
            State::Broken(error) => return Err(error),
            State::Reading => {}
        }
        let mut flush = Flush::default();
        let read = self.read_flush(&mut flush);
        match read {
            Ok(true) => {
                self.state = State::Reading;
                return Ok(Some(flush));
            }
            Ok(false) => {}
            Err(error) if flush.is_empty() => return Err(error),
            Err(error) => self.state = State::Broken(error),
        }
        Ok((!flush.is_empty()).then_some(flush))
    }

    /// Returns to the beginning.
    ///
    /// # Errors
    /// Returns the errors of the operating system.
    pub fn rewind(&mut self) -> Result<(), RecordingError> {
        self.from.seek(SeekFrom::Start(self.first_byte)).map_err(|error| self.read_error(error))?;
        (self.at_byte, self.number, self.state) = (self.first_byte, 1, State::Reading);
        Ok(())
    }

    /// Moves to the first flush at `at_ns` or later, ns on the recorded program's clock. All
    /// records of that time and later follow.
    ///
    /// # Errors
    /// As [`next_flush`](Self::next_flush), for the frames before it.
    pub fn seek(&mut self, at_ns: u64) -> Result<(), RecordingError> {
        self.rewind()?;
        let sought = self.pass(|header| header.at_ns < at_ns);
        if sought.is_err() {
            self.state = State::Over;
        }
        sought
    }

    /// Returns the snapshot of the last flush at `at_ns` or earlier that has one: the state of the
    /// runtime at that time. Does not change the position. Where the file is truncated or damaged,
    /// the search ends.
    ///
    /// # Errors
    /// Returns an error for which [`RecordingError::is_damaged`] is true if the snapshot that was
    /// found is damaged. Also returns the errors of the operating system.
    pub fn snapshot_at(&mut self, at_ns: u64) -> Result<Option<Snapshot>, RecordingError> {
        self.aside(|reader| {
            let mut found = None;
            loop {
                let (at_byte, number) = (reader.at_byte, reader.number);
                match reader.next_header() {
                    Ok(Some(header)) if header.at_ns <= at_ns => {
                        if reader.skip(&header).is_err() {
                            break;
                        }
                        if header.kind == Some(Kind::Snapshot) {
                            found = Some((at_byte, number));
                        }
                    }
                    // At a damaged header, the part before it is used.
                    _ => break,
                }
            }
            let Some((at_byte, number)) = found else { return Ok(None) };
            reader.go_to(at_byte, number)?;
            let Some(header) = reader.next_header()? else { return Ok(None) };
            reader.read_body(&header).map(Some)
        })
    }

    /// Returns the times of the first and the last readable flush, or `None` if there is none. Does
    /// not change the position.
    ///
    /// # Errors
    /// Returns the errors of the operating system. A truncated file is not an error.
    pub fn span(&mut self) -> Result<Option<(u64, u64)>, RecordingError> {
        self.aside(|reader| {
            let mut span: Option<(u64, u64)> = None;
            while let Ok(Some(header)) = reader.next_header() {
                if header.kind == Some(Kind::Anchor) {
                    span = Some((span.map_or(header.at_ns, |(first, _)| first), header.at_ns));
                }
                if reader.skip(&header).is_err() {
                    break;
                }
            }
            Ok(span)
        })
    }

    /// Runs `read` from the first flush on, and restores the position.
    fn aside<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, RecordingError>) -> Result<T, RecordingError> {
        let (at_byte, number) = (self.at_byte, self.number);
        self.go_to(self.first_byte, 1)?;
        let result = read(self);
        self.go_to(at_byte, number)?;
        result
    }

    fn go_to(&mut self, at_byte: u64, number: u32) -> Result<(), RecordingError> {
        self.from.seek(SeekFrom::Start(at_byte)).map_err(|error| self.read_error(error))?;
        (self.at_byte, self.number) = (at_byte, number);
        Ok(())
    }

    /// Skips frames while `is_before` returns true, but reads their texts.
    fn pass(&mut self, is_before: impl Fn(&Header) -> bool) -> Result<(), RecordingError> {
        loop {
            let (at_byte, number) = (self.at_byte, self.number);
            let Some(header) = self.next_header()? else { return Ok(()) };
            if !is_before(&header) {
                return self.go_to(at_byte, number);
            }
            match header.kind {
                Some(Kind::Texts) => {
                    let texts: Vec<Text> = self.read_body(&header)?;
                    texts.iter().for_each(|text| self.texts.add(text));
                }
                _ => self.skip(&header)?,
            }
        }
    }

    /// Step 2. Returns true if the flush has ended, and false if the file has.
    fn read_flush(&mut self, flush: &mut Flush) -> Result<bool, RecordingError> {
        let mut bytes = 0;
        while let Some(header) = self.next_header()? {
            flush.at_ns = flush.at_ns.max(header.at_ns);
            match header.kind {
                Some(Kind::Texts) => {
                    let texts: Vec<Text> = self.read_body(&header)?;
                    texts.iter().for_each(|text| self.texts.add(text));
                    // An empty one takes a single byte in the file.
                    bytes += texts.len() * size_of::<Text>();
                    flush.texts.extend(texts);
                }
                Some(Kind::Events) => {
                    flush.chunks.push(self.read(&header, frame::unpacked_events)?);
                }
                Some(Kind::Snapshot) => flush.snapshot = Some(Box::new(self.read_body(&header)?)),
                Some(Kind::Mark) => flush.marks.push(self.read_body(&header)?),
                Some(Kind::Anchor) => {
                    let tail: Tail = self.read_body(&header)?;
                    (flush.anchor, flush.complete_until_ns) = (tail.anchor, tail.complete_until_ns);
                    return Ok(true);
                }
                Some(Kind::End) => {
                    self.end = Some(self.read_body(&header)?);
                    return Ok(false);
                }
                Some(Kind::Head) => return Err(self.damaged("a second header frame")),
                None => self.skip(&header)?,
            }
            bytes += HEADER_BYTES + header.body_len;
            if bytes > self.max_flush_bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the header of the next frame. Returns `None` at the end of the file.
    fn next_header(&mut self) -> Result<Option<Header>, RecordingError> {
        if self.at_byte == self.len_bytes {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_BYTES];
        self.fill(&mut bytes, HEADER_BYTES as u64)?;
        let Some(header) = Header::parse(&bytes) else { return Err(self.damaged("a frame of an impossible length")) };
        if header.number != self.number {
            let why = format!("frame {} where {} was expected", header.number, self.number);
            return Err(self.damaged(why));
        }
        Ok(Some(header))
    }

    /// Reads bytes of the frame that begins here. Fails if the file is shorter than the whole
    /// frame.
    fn fill(&mut self, bytes: &mut [u8], frame_bytes: u64) -> Result<(), RecordingError> {
        let is_there = self.len_bytes - self.at_byte >= frame_bytes;
        let read = if is_there { self.from.read_exact(bytes) } else { Err(ErrorKind::UnexpectedEof.into()) };
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => RecordingError::truncated(&self.name, self.at_byte),
            _ => self.read_error(error),
        })
    }

    fn behind(&mut self, header: &Header) {
        self.at_byte += header.frame_bytes();
        self.number += 1;
    }

    fn skip(&mut self, header: &Header) -> Result<(), RecordingError> {
        // Seeking beyond the end would succeed, so check that the frame is complete.
        self.fill(&mut [], header.frame_bytes())?;
        self.from.seek_relative(header.body_len as i64).map_err(|error| self.read_error(error))?;
        self.behind(header);
        Ok(())
    }

    fn read_body<T: DeserializeOwned>(&mut self, header: &Header) -> Result<T, RecordingError> {
        self.read(header, frame::unpacked)
    }

    /// Reads a body, and decodes it. If that fails, the position stays at the beginning of the
    /// frame.
    fn read<T>(&mut self, header: &Header, decode: impl Fn(&[u8]) -> Result<T, String>) -> Result<T, RecordingError> {
        self.fill(&mut [], header.frame_bytes())?;
        let mut body = vec![0; header.body_len];
        self.fill(&mut body, header.frame_bytes())?;
        if !header.fits(&body) {
            return Err(self.damaged("a frame does not match its checksum"));
        }
        let decoded = decode(&body).map_err(|why| self.damaged(why))?;
        self.behind(header);
        Ok(decoded)
    }

    fn damaged(&self, why: impl std::fmt::Display) -> RecordingError {
        RecordingError::damaged(&self.name, self.at_byte, why)
    }

    fn read_error(&self, error: io::Error) -> RecordingError {
        RecordingError::read(&self.name, error)
    }
}

impl<R: Read + Seek> Iterator for Reader<R> {
    type Item = Result<Flush, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_flush().transpose()
    }
}

#[cfg(test)]
mod tests;
