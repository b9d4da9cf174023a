//! What a recording consists of, as plain data: a [`Head`], and then one [`Flush`] after another.
//!
//! Shape: a flush is what all rings held at one moment and had not given before: a [`Chunk`] a
//! track, the texts that its numbers stand for, a snapshot now and then, marks, and an [`Anchor`]
//! that says how the clocks stood. It travels as it is: in a file's frames (`frame`), and in a
//! message of the control socket (`serde`; records are one string of bytes there).
//!
//! Who writes: whoever drains the rings. Who reads: the recording's writer and reader, the merge,
//! the console.
//!
//! Invariants: *In order*: within a chunk, and from one flush to the next, a track's records stand
//! in the order in which they were made. *Complete until*: no ring will give a record from before
//! `complete_until_ns` in a later flush, but one whose writer was interrupted between its clock
//! reading and the ring. *Absent is `None`*.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::record::{RECORD_BYTES, Record};
use super::trigger::Trigger;
use crate::snapshot::Snapshot;

/// Longest text that is kept, bytes; longer ones are cut.
pub const MAX_TEXT_BYTES: usize = 512;

/// What a recording is of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// The process id.
    pub pid: u32,
    /// The program's name.
    pub program: String,
    /// The runtime's name.
    pub runtime: String,
    /// The version of `volt-runtime`.
    pub volt: String,
    /// The tracks; a chunk names its own by its place here.
    pub tracks: Vec<Track>,
    /// Records that each ring holds.
    pub ring_capacity: u32,
    /// How the clocks stood at the begin.
    pub anchor: Option<Anchor>,
    /// Which part this is of a recording that is cut into several files, from 1.
    pub part: u32,
    /// When the recording began, all parts of it: ns since 1970. With `pid` it tells the parts of
    /// one from those of another.
    pub began_at_unix_ns: u64,
}

/// Whose records a track holds: one thread's, or those of all threads of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Track {
    /// A worker.
    Worker {
        /// Its index.
        index: u16,
    },
    /// A spare thread, which stands in for workers that are stuck.
    Spare {
        /// Its number, from 0.
        index: u16,
    },
    /// Threads that are no workers and wake tasks.
    Outside,
    /// The thread that watches the workers.
    Sentinel,
    /// One of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Track {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Track::Worker { index } => write!(f, "worker {index}"),
            Track::Spare { index } => write!(f, "spare {index}"),
            Track::Outside => f.write_str("outside"),
            Track::Sentinel => f.write_str("sentinel"),
            Track::Unknown => f.write_str("unknown"),
        }
    }
}

/// How the clocks stood at one moment: two anchors show how they drift apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Anchor {
    /// The clock of all records: ns since the process first asked for the time.
    pub at_ns: u64,
    /// The system's monotonic clock (`CLOCK_MONOTONIC`), ns: what `perf` and the kernel's traces
    /// are stamped with.
    pub monotonic_ns: Option<u64>,
    /// Real time, ns since 1970.
    pub unix_ns: Option<u64>,
    /// The processor's cycle counter.
    pub cycles: Option<u64>,
    /// The readings were made within this many ns.
    pub width_ns: u64,
}

/// What one track gave.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// The track: its place in [`Head::tracks`].
    pub track: u32,
    /// Records that were overwritten before anybody read them, between the last chunk of this track
    /// and this one.
    pub lost: u64,
    /// In the order in which they were made.
    #[serde(with = "packed")]
    pub records: Vec<Record>,
}

/// What a number stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Table {
    /// Spawn locations: `file:line:column`.
    Location,
    /// Names of tasks.
    Task,
    /// Incidents, in a line each.
    Incident,
    /// Processes: name and kind.
    Process,
    /// One of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// What one number of one table stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Text {
    /// The table.
    pub table: Table,
    /// The number.
    pub number: u64,
    /// What it stands for; at most [`MAX_TEXT_BYTES`].
    pub text: String,
}

impl Text {
    /// A text, cut if it is too long.
    pub fn new(table: Table, number: u64, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        Self { table, number, text }
    }
}

/// Why something was recorded, and which time it was to cover.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// When it came up: ns on the process's clock.
    pub at_ns: u64,
    /// What.
    pub trigger: Trigger,
    /// From when on records are kept.
    pub from_ns: u64,
    /// Until when.
    pub until_ns: u64,
}

/// What was collected at one moment; see the header of this file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flush {
    /// When it was collected: ns on the process's clock. Grows from flush to flush.
    pub at_ns: u64,
    /// What happened before this is in here, or in an earlier flush: the clock before the first
    /// ring was read.
    pub complete_until_ns: u64,
    /// `None` if the file breaks off before it.
    pub anchor: Option<Anchor>,
    /// What the numbers below stand for, as far as no earlier flush said so.
    pub texts: Vec<Text>,
    /// One for each track that gave something.
    pub chunks: Vec<Chunk>,
    /// The state of the runtime; not in every flush.
    pub snapshot: Option<Box<Snapshot>>,
    /// Why this is recorded.
    pub marks: Vec<Mark>,
}

impl Flush {
    /// Records in it.
    pub fn records(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.records.len() as u64).sum()
    }

    /// Records that are missing in front of it.
    pub fn lost(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.lost).fold(0, u64::saturating_add)
    }

    /// The same in pieces of so many records at most, for messages that are bounded. Only the last
    /// says until when it is complete and how the clocks stood; the first has all that is no
    /// record.
    ///
    /// # Panics
    /// If `max_records` is 0.
    ///
    /// ```
    /// use volt_telemetry::recording::flush::{Chunk, Flush};
    /// use volt_telemetry::recording::record::Record;
    /// let chunk = Chunk { records: vec![Record::default(); 5], ..Chunk::default() };
    /// let flush = Flush { chunks: vec![chunk], ..Flush::default() };
    /// let pieces: Vec<u64> = flush.into_pieces(2).iter().map(Flush::records).collect();
    /// assert_eq!(pieces, [2, 2, 1]);
    /// ```
    pub fn into_pieces(mut self, max_records: usize) -> Vec<Flush> {
        assert!(max_records > 0, "pieces of no records would never end");
        let (anchor, complete_until_ns) = (self.anchor.take(), self.complete_until_ns);
        let (at_ns, chunks) = (self.at_ns, std::mem::take(&mut self.chunks));
        let mut pieces = vec![Flush { complete_until_ns: 0, ..self }];
        let mut room = max_records;
        for Chunk { track, mut lost, mut records } in chunks {
            loop {
                if room == 0 {
                    pieces.push(Flush { at_ns, ..Flush::default() });
                    room = max_records;
                }
                let rest = records.split_off(room.min(records.len()));
                room -= records.len();
                let chunk = Chunk { track, lost: std::mem::take(&mut lost), records };
                pieces.last_mut().expect("there is a first").chunks.push(chunk);
                if rest.is_empty() {
                    break;
                }
                records = rest;
            }
        }
        let end = pieces.last_mut().expect("there is a first");
        (end.anchor, end.complete_until_ns) = (anchor, complete_until_ns);
        pieces
    }

    /// Whether there is nothing in it that anybody would miss.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.chunks.is_empty() && self.snapshot.is_none() && self.marks.is_empty()
    }
}

/// Records as one string of bytes.
mod packed {
    use super::*;

    pub(super) fn serialize<S: Serializer>(records: &[Record], to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::with_capacity(records.len() * RECORD_BYTES);
        records.iter().for_each(|record| bytes.extend_from_slice(&record.to_bytes()));
        to.serialize_bytes(&bytes)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Record>, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = Vec<Record>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "records of {RECORD_BYTES} bytes each")
            }

            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<Record>, E> {
                unpack(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }
        }

        from.deserialize_bytes(Bytes)
    }
}

/// Records that stand one behind the other; `None` if the last is not whole.
pub fn unpack(bytes: &[u8]) -> Option<Vec<Record>> {
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    rest.is_empty().then(|| records.iter().map(|bytes| Record::from_bytes(*bytes)).collect())
}

#[cfg(test)]
mod tests {
    use super::super::event::Event;
    use super::*;
    use crate::wire;

    #[test]
    fn a_flush_travels_as_it_is_and_its_records_as_bytes() {
        let records: Vec<_> = (0..1000).map(|at_ns| Record::new(at_ns, Event::LifoHit { task: at_ns })).collect();
        let flush = Flush {
            at_ns: 7,
            anchor: Some(Anchor { at_ns: 7, unix_ns: Some(8), ..Anchor::default() }),
            texts: vec![Text::new(Table::Location, 1, "src/main.rs:1:1")],
            chunks: vec![Chunk { track: 1, lost: 2, records }],
            snapshot: Some(Box::default()),
            ..Flush::default()
        };
        let frame = wire::encode(&flush, wire::MAX_REPLY_BYTES).unwrap();
        assert!(frame.len() < 1000 * RECORD_BYTES + 4096, "{} bytes", frame.len());
        assert_eq!(wire::decode::<Flush>(&frame[4..]).unwrap(), flush);
    }

    #[test]
    fn pieces_hold_together_what_the_whole_does() {
        let record = |at_ns| Record::new(at_ns, Event::SearchBegin);
        let chunk = |track, lost, count| Chunk { track, lost, records: (0..count).map(record).collect() };
        let whole = Flush {
            at_ns: 9,
            complete_until_ns: 8,
            anchor: Some(Anchor { at_ns: 9, ..Anchor::default() }),
            texts: vec![Text::new(Table::Task, 1, "a")],
            chunks: vec![chunk(0, 3, 5), chunk(1, 0, 3), chunk(2, 4, 0), chunk(3, 0, 4)],
            ..Flush::default()
        };
        let pieces = whole.clone().into_pieces(4);
        assert_eq!(pieces.iter().map(Flush::records).collect::<Vec<_>>(), [4, 4, 4]);
        assert!(pieces.iter().all(|piece| piece.at_ns == 9));
        let (last, others) = pieces.split_last().unwrap();
        assert_eq!((last.anchor, last.complete_until_ns), (whole.anchor, 8));
        assert!(others.iter().all(|piece| piece.anchor.is_none() && piece.complete_until_ns == 0));
        assert_eq!(pieces[0].texts, whole.texts);
        assert_eq!(pieces.iter().map(Flush::lost).sum::<u64>(), 7);
        for track in 0..4 {
            let of = |flush: &Flush| -> Vec<Record> {
                let chunks = flush.chunks.iter().filter(|chunk| chunk.track == track);
                chunks.flat_map(|chunk| chunk.records.clone()).collect()
            };
            assert_eq!(pieces.iter().flat_map(of).collect::<Vec<_>>(), of(&whole));
        }
        assert_eq!(Flush::default().into_pieces(1).len(), 1);
    }

    #[test]
    fn a_record_that_is_not_whole_is_refused() {
        assert_eq!(unpack(&[0; RECORD_BYTES * 2]).map(|records| records.len()), Some(2));
        assert_eq!(unpack(&[0; RECORD_BYTES + 1]), None);
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let text = Text::new(Table::Task, 1, "ä".repeat(MAX_TEXT_BYTES));
        assert_eq!(text.text, "ä".repeat(MAX_TEXT_BYTES / 2));
    }

    #[test]
    fn tracks_and_tables_of_a_newer_version_are_unknown() {
        #[derive(Serialize)]
        struct Newer {
            r#type: &'static str,
            depth: u32,
        }
        let newer = wire::encode(&Newer { r#type: "gpu", depth: 3 }, 64).unwrap();
        assert_eq!(wire::decode::<Track>(&newer[4..]).unwrap(), Track::Unknown);
        assert_eq!(wire::decode::<Trigger>(&newer[4..]).unwrap(), Trigger::Unknown);
        let newer = wire::encode(&"gpu", 64).unwrap();
        assert_eq!(wire::decode::<Table>(&newer[4..]).unwrap(), Table::Unknown);
        let spare = wire::encode(&Track::Spare { index: 3 }, 64).unwrap();
        assert_eq!(wire::decode::<Track>(&spare[4..]).unwrap(), Track::Spare { index: 3 });
    }
}
