//! Reads a black box: the file in which a runtime kept its state until the program ended.
//!
//! The layout is that of [`volt_telemetry::recording::black_box`]. A program that is killed leaves
//! the file as it was at its last instruction. So a part may be half-written: the newest text, the
//! newer of the two samples, the event that was being recorded. The reader leaves out such a part.
//!
//! # Invariants
//!
//! * *Nothing is trusted*: arbitrary bytes result in a black box or an error, but never in a panic.
//!   What a damaged file contains may be wrong. Missing bytes count as zeros, and
//!   [`BlackBox::is_truncated`] reports them.
//! * *Memory is bounded*: at most [`MAX_RECORDS`] records are read, and at most the newest
//!   [`MAX_LANE_RECORDS`] of each track.

pub mod lives;

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use volt_telemetry::Phase;
use volt_telemetry::recording::black_box::{
    CELL_BYTES, HEAD_BYTES, IDENTITY_AT, Identity, Layout, MAGIC, RING_HEAD_WORDS, RING_MAGIC, SAMPLE_BYTES,
    SAMPLE_HEAD_WORDS, Sample, TEXT_HEAD_BYTES, TEXTS_BYTES, TEXTS_HEAD_WORDS, VERSION, cell, checksum, end, kind,
    word,
};
use volt_telemetry::recording::flush::{Chunk, Flush, Head, Table, Text, Track};
use volt_telemetry::recording::record::{RECORD_BYTES, Record};
use volt_telemetry::wire;

use crate::error::RecordingError;
use crate::reader::Texts;

/// The most workers and the most spares of a runtime.
const MAX_SLOTS: u64 = 1024;
/// The most records of a ring.
const MAX_RING_RECORDS: u64 = 1 << 20;
/// Maximum number of records of a track that are read.
pub const MAX_LANE_RECORDS: u64 = 131_072;
/// Maximum number of records of all tracks that are read.
pub const MAX_RECORDS: usize = 16_000_000;

/// The state of a runtime when its program ended, or now if it still runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlackBox {
    /// The program and the runtime.
    pub identity: Identity,
    /// How the runtime ended, as far as it could record that itself.
    pub ending: Ending,
    /// When the sentinel last checked the runtime: ns on the program's clock.
    pub checked_at_ns: u64,
    /// The workers and the spare workers that have ever run, in the order of a snapshot.
    pub workers: Vec<Worker>,
    /// The last samples, the older one first: none, one or two.
    pub samples: Vec<Sample>,
    /// The events of each track, as many as its ring still contained. Empty unless the flight
    /// recorder was on.
    pub chunks: Vec<Chunk>,
    /// The tracks. A chunk refers to its track by its position in this list.
    pub tracks: Vec<Track>,
    /// The number of records of a ring.
    pub ring_records: usize,
    /// The texts for the numbers in the events.
    pub texts: Texts,
    /// Whether the file is shorter than it should be.
    pub is_truncated: bool,
}

/// How a runtime ended, as far as it could record that itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// It did not record an end: the program runs, or was killed, or has crashed.
    #[default]
    None,
    /// It was shut down at this time, ns on the program's clock.
    ShutDown(u64),
    /// The program exited at this time, and had not shut the runtime down.
    Exited(u64),
}

/// A worker or spare worker, as it was when the program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Worker {
    /// The worker or spare worker.
    pub track: Track,
    /// Its thread, if it had one.
    pub thread_id: Option<u32>,
    /// Its phase.
    pub phase: Phase,
    /// When the phase began: ns on the program's clock.
    pub phase_since_ns: u64,
    /// The poll in flight.
    pub poll: Option<Poll>,
}

/// A poll that was in flight when the program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Poll {
    /// The id of the task.
    pub task_id: u64,
    /// The name of the task, if it has one and the file contains it.
    pub task_name: Option<String>,
    /// The line that spawned the task. `None` if the program ended before the sentinel could add
    /// it.
    pub spawned_at: Option<String>,
    /// When the poll began: ns on the program's clock.
    pub began_at_ns: u64,
}

impl BlackBox {
    /// Reads a black box.
    ///
    /// # Errors
    /// Returns an error for which one of these is true:
    /// - [`RecordingError::is_missing`]
    /// - [`RecordingError::is_not_a_recording`]
    /// - [`RecordingError::is_wrong_version`]
    /// - [`RecordingError::is_damaged`]
    ///
    /// Also returns the errors of the operating system.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        let file = File::open(path).map_err(|error| RecordingError::open_black_box(path, error))?;
        Self::read(BufReader::new(file), &path.display().to_string())
    }

    /// Reads a black box from any source. Error messages contain `name` as its name.
    ///
    /// # Errors
    /// Same as [`open`](Self::open).
    pub fn read(mut from: impl Read + Seek, name: &str) -> Result<Self, RecordingError> {
        let len_bytes = from.seek(SeekFrom::End(0)).map_err(|error| RecordingError::read(name, error))?;
        let mut source = Source { from, len_bytes, is_short: false };
        let read_error = |error| RecordingError::read(name, error);
        let head = source.bytes(0, HEAD_BYTES).map_err(read_error)?;
        if len_bytes < HEAD_BYTES as u64 || word_at(&head, word::MAGIC) != MAGIC {
            return Err(RecordingError::not_a_black_box(name));
        }
        let version = word_at(&head, word::VERSION);
        if version != VERSION {
            return Err(RecordingError::wrong_black_box_version(name, version, VERSION));
        }
        let numbers = [word::WORKERS, word::SPARES, word::RING_RECORDS].map(|index| word_at(&head, index));
        let [workers, spares, ring_records] = numbers;
        if workers > MAX_SLOTS || spares > MAX_SLOTS || ring_records > MAX_RING_RECORDS || ring_records == 0 {
            return Err(RecordingError::damaged_black_box(name, "its numbers of workers or events are impossible"));
        }
        let layout = Layout { workers: workers as usize, spares: spares as usize, ring_records: ring_records as usize };
        let identity = identity(&head).ok_or_else(|| {
            RecordingError::damaged_black_box(name, "the description of its program does not match its checksum")
        })?;
        let at_ns = word_at(&head, word::END_NS);
        let ending = match word_at(&head, word::END) {
            end::SHUT_DOWN => Ending::ShutDown(at_ns),
            end::EXITED => Ending::Exited(at_ns),
            _ => Ending::None,
        };
        let mut read = Self {
            identity,
            ending,
            checked_at_ns: word_at(&head, word::BEAT_NS),
            tracks: Track::all(layout.workers, layout.spares).collect(),
            ring_records: layout.ring_records,
            ..Self::default()
        };
        let addresses = read.read_texts(&mut source, layout).map_err(read_error)?;
        read.read_samples(&mut source, layout).map_err(read_error)?;
        read.read_cells(&mut source, layout, &addresses).map_err(read_error)?;
        read.read_rings(&mut source, layout).map_err(read_error)?;
        read.is_truncated = source.is_short;
        Ok(read)
    }

    /// Returns the time of the last entry in the black box: ns on the program's clock. If the
    /// program was idle, it may have run for longer.
    pub fn last_sign_ns(&self) -> u64 {
        let workers = self
            .workers
            .iter()
            .flat_map(|worker| [worker.phase_since_ns, worker.poll.as_ref().map_or(0, |poll| poll.began_at_ns)]);
        let samples = self.samples.iter().map(|sample| sample.snapshot.at_ns);
        let records = self.chunks.iter().filter_map(|chunk| Some(chunk.records.last()?.at_ns()));
        let ended = match self.ending {
            Ending::ShutDown(at_ns) | Ending::Exited(at_ns) => Some(at_ns),
            Ending::None => None,
        };
        workers.chain(samples).chain(records).chain(ended).fold(self.checked_at_ns, u64::max)
    }

    /// Converts a time of the program's clock to real time, ns since 1970, if that is known.
    pub fn unix_ns(&self, at_ns: u64) -> Option<u64> {
        let anchor = self.identity.anchor;
        anchor.unix_ns?.checked_add(at_ns.checked_sub(anchor.at_ns)?)
    }

    /// Returns the head of a recording with the events and samples of this black box.
    pub fn head(&self) -> Head {
        let Identity { pid, program, runtime, volt, anchor, .. } = self.identity.clone();
        let ring_capacity = u32::try_from(self.ring_records).unwrap_or(u32::MAX);
        Head {
            pid,
            program,
            runtime,
            volt,
            tracks: self.tracks.clone(),
            ring_capacity,
            anchor: Some(anchor),
            ..Head::default()
        }
    }

    /// Returns the events and samples of this black box as the flushes of a recording.
    pub fn flushes(&self) -> Vec<Flush> {
        let last_ns = self.last_sign_ns();
        let sample = |sample: &Sample| Flush {
            at_ns: sample.snapshot.at_ns,
            snapshot: Some(sample.snapshot.clone()),
            ..Flush::default()
        };
        let mut flushes: Vec<_> = self.samples.iter().map(sample).collect();
        flushes.push(Flush {
            at_ns: last_ns,
            complete_until_ns: last_ns,
            anchor: Some(self.identity.anchor),
            texts: self.texts.iter().collect(),
            chunks: self.chunks.clone(),
            ..Flush::default()
        });
        flushes
    }

    /// Reads the logs of texts, the older one first. Returns the lines of addresses.
    fn read_texts(&mut self, from: &mut Source<impl Read + Seek>, layout: Layout) -> io::Result<HashMap<u64, String>> {
        let mut addresses = HashMap::new();
        let mut logs = [0, 1]
            .map(|index| from.bytes(layout.texts_at(index), TEXTS_BYTES))
            .into_iter()
            .collect::<io::Result<Vec<_>>>()?;
        logs.sort_by_key(|log| word_at(log, 0));
        for log in logs {
            let end = usize::try_from(word_at(&log, 1)).unwrap_or(usize::MAX).min(log.len());
            let mut rest = log.get(TEXTS_HEAD_WORDS * 8..end).unwrap_or(&[]);
            while rest.len() >= TEXT_HEAD_BYTES {
                let (head, number) = (word_at(rest, 0), word_at(rest, 1));
                let text_bytes = (head >> 8) as usize & 0xffff;
                let Some(text) = rest.get(TEXT_HEAD_BYTES..TEXT_HEAD_BYTES + text_bytes) else { break };
                let text = String::from_utf8_lossy(text).into_owned();
                let table = match head & 0xff {
                    kind::LOCATION => Some(Table::Location),
                    kind::TASK => Some(Table::Task),
                    kind::INCIDENT => Some(Table::Incident),
                    kind::PROCESS => Some(Table::Process),
                    kind::ADDRESS => {
                        addresses.insert(number, text.clone());
                        None
                    }
                    _ => None,
                };
                self.texts.extend(table.map(|table| Text::new(table, number, text)));
                rest = rest.get((TEXT_HEAD_BYTES + text_bytes).next_multiple_of(8)..).unwrap_or(&[]);
            }
        }
        Ok(addresses)
    }

    fn read_samples(&mut self, from: &mut Source<impl Read + Seek>, layout: Layout) -> io::Result<()> {
        let mut samples = Vec::new();
        for index in [0, 1] {
            let bytes = from.bytes(layout.sample_at(index), SAMPLE_BYTES)?;
            let [number, length, sum] = [0, 1, 2].map(|index| word_at(&bytes, index));
            let body = &bytes[SAMPLE_HEAD_WORDS * 8..];
            let body = usize::try_from(length).ok().and_then(|length| body.get(..length));
            // A number that is odd: it was being written.
            let Some(body) = body.filter(|body| number > 0 && number.is_multiple_of(2) && checksum(body) == sum) else {
                continue;
            };
            samples.extend(wire::decode::<Sample>(body).ok().map(|sample| (number, sample)));
        }
        samples.sort_by_key(|(number, _)| *number);
        self.samples = samples.into_iter().map(|(_, sample)| sample).collect();
        Ok(())
    }

    fn read_cells(
        &mut self,
        from: &mut Source<impl Read + Seek>,
        layout: Layout,
        addresses: &HashMap<u64, String>,
    ) -> io::Result<()> {
        let cells = from.bytes(layout.cells_at(0), layout.slots() * CELL_BYTES)?;
        let sampled = self.samples.last().map_or(&[][..], |sample| &sample.snapshot.workers);
        let tracks = self.tracks.iter().zip(cells.chunks_exact(CELL_BYTES)).enumerate();
        for (index, (track, cells)) in tracks {
            let phase = usize::try_from(word_at(cells, cell::PHASE)).ok();
            let phase = phase.and_then(|index| Phase::TIMED.get(index)).copied().unwrap_or(Phase::Stopped);
            let poll_seq = word_at(cells, cell::POLL_SEQ);
            // A spare that was never called.
            if matches!(track, Track::Spare { .. }) && poll_seq == 0 && phase == Phase::Stopped {
                continue;
            }
            let is_in_poll = !poll_seq.is_multiple_of(2);
            let poll = is_in_poll.then(|| {
                let task_id = word_at(cells, cell::TASK);
                let same = sampled.get(index).and_then(|worker| worker.in_flight.as_ref());
                let same = same.filter(|poll| poll.task_id == task_id);
                Poll {
                    task_id,
                    task_name: same
                        .and_then(|poll| poll.task_name.clone())
                        .or_else(|| self.texts.task(task_id).map(str::to_owned)),
                    spawned_at: addresses
                        .get(&word_at(cells, cell::LOCATION))
                        .cloned()
                        .or_else(|| same.map(|poll| poll.spawned_at.clone())),
                    began_at_ns: word_at(cells, cell::POLL_BEGAN_NS),
                }
            });
            self.workers.push(Worker {
                track: *track,
                thread_id: u32::try_from(word_at(cells, cell::THREAD)).ok().filter(|id| *id != 0),
                phase,
                phase_since_ns: word_at(cells, cell::PHASE_SINCE_NS),
                poll,
            });
        }
        Ok(())
    }

    fn read_rings(&mut self, from: &mut Source<impl Read + Seek>, layout: Layout) -> io::Result<()> {
        let capacity = layout.ring_records as u64;
        let mut room = MAX_RECORDS as u64;
        for lane in 0..layout.lanes() {
            let at_byte = layout.ring_at(lane);
            // Rings without events are holes, also at the end of a file that was copied.
            if from.len_bytes <= at_byte as u64 {
                from.is_short = true;
                break;
            }
            let head = from.bytes(at_byte, RING_HEAD_WORDS * 8)?;
            let pushed = word_at(&head, 0);
            if word_at(&head, 1) != RING_MAGIC || pushed == 0 {
                continue;
            }
            // The slot of the next record may be half-written.
            let whole = pushed.min(capacity - 1).min(MAX_LANE_RECORDS).min(room);
            room -= whole;
            let slots = from.bytes(at_byte + RING_HEAD_WORDS * 8, layout.ring_records * RECORD_BYTES)?;
            let (slots, _) = slots.as_chunks::<RECORD_BYTES>();
            let record = |number: u64| Record::from_bytes(slots[(number % capacity) as usize]);
            let records: Vec<_> = (pushed - whole..pushed).map(record).collect();
            self.chunks.push(Chunk { track: lane as u32, lost: pushed - whole, records });
        }
        Ok(())
    }
}

fn identity(head: &[u8]) -> Option<Identity> {
    let length = usize::try_from(word_at(head, word::IDENTITY_BYTES)).ok()?;
    let bytes = head.get(IDENTITY_AT..IDENTITY_AT.checked_add(length)?)?;
    if checksum(bytes) != word_at(head, word::IDENTITY_CHECKSUM) {
        return None;
    }
    wire::decode(bytes).ok()
}

/// Returns the word with this index; 0 if the bytes end before it.
fn word_at(bytes: &[u8], index: usize) -> u64 {
    bytes.as_chunks::<8>().0.get(index).map_or(0, |word| u64::from_le_bytes(*word))
}

/// A file, with zeros after its end.
struct Source<R> {
    from: R,
    len_bytes: u64,
    /// Whether bytes after the end were read.
    is_short: bool,
}

impl<R: Read + Seek> Source<R> {
    fn bytes(&mut self, at_byte: usize, count: usize) -> io::Result<Vec<u8>> {
        self.from.seek(SeekFrom::Start(at_byte as u64))?;
        let mut bytes = Vec::new();
        self.from.by_ref().take(count as u64).read_to_end(&mut bytes)?;
        self.is_short |= bytes.len() < count;
        bytes.resize(count, 0);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
