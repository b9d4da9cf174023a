//! The data of a recording: a [`Head`], followed by a sequence of [`Flush`]es.
//!
//! The flight recorder keeps the events of each thread in a ring. A *flush* contains everything
//! that the rings contained at one moment and that no earlier flush contains:
//! * one [`Chunk`] of records per *track* (a thread, or all threads of one kind)
//! * the texts that the numbers in the records refer to
//! * sometimes a snapshot
//! * marks, which state why something was recorded
//! * an [`Anchor`] with the readings of all clocks
//!
//! The same structures are used in files (`frame`) and in messages of the control socket (`serde`,
//! with the records as one byte string). The thread that drains the rings creates flushes; the
//! writer and reader of recordings, the merge and the console use them.
//!
//! Invariants:
//! * IN ORDER: the records of a track are in the order in which they were made, within a chunk and
//!   from one flush to the next.
//! * COMPLETE UNTIL: no later flush contains a record from before `complete_until_ns`. The only
//!   exception is a record whose writer was interrupted between reading the clock and writing to
//!   the ring.
//! * ABSENT IS NONE: a value that is not known is `None`.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::record::{RECORD_BYTES, Record};
use super::trigger::Trigger;
use crate::snapshot::Snapshot;

/// Maximum length of a text in bytes; longer texts are truncated.
pub const MAX_TEXT_BYTES: usize = 512;

/// Describes the program and runtime of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Head {
    /// The process id of the program.
    pub pid: u32,
    /// The program's name.
    pub program: String,
    /// The runtime's name.
    pub runtime: String,
    /// The version of `volt-runtime`.
    pub volt: String,
    /// The tracks. A chunk refers to its track by its position in this list.
    pub tracks: Vec<Track>,
    /// Number of records in each ring.
    pub ring_capacity: u32,
    /// The readings of the clocks at the beginning.
    pub anchor: Option<Anchor>,
    /// The number of this part, from 1, if the recording is split into several files.
    pub part: u32,
    /// When the recording began, for all parts the same: ns since 1970. Together with `pid`,
    /// identifies the recording that a part belongs to.
    pub began_at_unix_ns: u64,
}

/// The source of a sequence of records: one thread, or all threads of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Track {
    /// A worker.
    Worker {
        /// Its index.
        index: u16,
    },
    /// A spare worker, which replaces stuck workers.
    Spare {
        /// Its number, from 0.
        index: u16,
    },
    /// Threads that wake tasks and are not workers.
    Outside,
    /// The sentinel thread, which watches the workers.
    Sentinel,
    /// A track of a newer version.
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

/// The readings of several clocks at one moment. Two anchors show the drift between the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Anchor {
    /// The clock of all records: ns since the program first read it.
    pub at_ns: u64,
    /// The system's monotonic clock (`CLOCK_MONOTONIC`), ns, which `perf` and kernel traces use.
    pub monotonic_ns: Option<u64>,
    /// Real time, ns since 1970.
    pub unix_ns: Option<u64>,
    /// The processor's cycle counter.
    pub cycles: Option<u64>,
    /// The time span within which the clocks were read, ns.
    pub width_ns: u64,
}

/// Records of one track.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Chunk {
    /// The track: its position in [`Head::tracks`].
    pub track: u32,
    /// Number of records that were overwritten before they were read, between the previous chunk of
    /// this track and this one.
    pub lost: u64,
    /// The records, in the order in which they were made.
    #[serde(with = "packed")]
    pub records: Vec<Record>,
}

/// The kind of thing that a number in a record refers to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Table {
    /// Spawn locations: `file:line:column`.
    Location,
    /// Names of tasks.
    Task,
    /// Incidents, one line each.
    Incident,
    /// Processes: name and kind.
    Process,
    /// A table of a newer version.
    #[default]
    #[serde(other)]
    Unknown,
}

/// The text that a number of a table refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Text {
    /// The table.
    pub table: Table,
    /// The number.
    pub number: u64,
    /// The text; at most [`MAX_TEXT_BYTES`].
    pub text: String,
}

impl Text {
    /// Creates a text, truncated if it is too long.
    pub fn new(table: Table, number: u64, text: impl Into<String>) -> Self {
        let mut text = text.into();
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        Self { table, number, text }
    }
}

/// The reason for a recording, and the time span that it covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Mark {
    /// When the trigger occurred: ns on the program's clock.
    pub at_ns: u64,
    /// The trigger.
    pub trigger: Trigger,
    /// The beginning of the time span.
    pub from_ns: u64,
    /// The end of the time span.
    pub until_ns: u64,
}

/// Everything that was collected at one moment; see the module header.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Flush {
    /// When it was collected: ns on the program's clock. Increases from flush to flush.
    pub at_ns: u64,
    /// This flush and the earlier ones contain all events before this time. It is the clock reading
    /// before the first ring was read.
    pub complete_until_ns: u64,
    /// The readings of the clocks; `None` if the file ends before it.
    pub anchor: Option<Anchor>,
    /// The texts of the numbers below, except those in earlier flushes. If many names are new, some
    /// of them are missing.
    pub texts: Vec<Text>,
    /// One chunk for each track that has new records.
    pub chunks: Vec<Chunk>,
    /// The state of the runtime; not in every flush.
    pub snapshot: Option<Box<Snapshot>>,
    /// Why this was recorded.
    pub marks: Vec<Mark>,
}

impl Flush {
    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.records.len() as u64).sum()
    }

    /// Returns the number of records that were lost before this flush.
    pub fn lost(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.lost).fold(0, u64::saturating_add)
    }

    /// Splits the flush into pieces of at most `max_records` records, to fit into bounded messages.
    ///
    /// Only the last piece contains `complete_until_ns` and the anchor. The first contains
    /// everything else except records.
    ///
    /// # Panics
    /// Panics if `max_records` is 0.
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

    /// Returns `true` if the flush contains no data.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.chunks.is_empty() && self.snapshot.is_none() && self.marks.is_empty()
    }
}

/// Serializes records as one byte string.
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

/// Parses a sequence of records. Returns `None` if the last one is incomplete.
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
    fn the_pieces_of_a_flush_contain_the_whole_flush() {
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
