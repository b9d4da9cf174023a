//! The file format of a recording.
//!
//! [`writer`](crate::writer) and [`reader`](crate::reader) use this module. A file consists of a
//! preamble, followed by frames. All numbers are little-endian:
//!
//! ```text
//! preamble   "volt-rec"  | major u32 | minor u32                                        16 bytes
//! frame      body_len u32 | kind u32 | at_ns u64 | number u32 | crc u32 | body           24 bytes and the body
//! ```
//!
//! `at_ns` is the time of the flush that the frame belongs to. A reader can thus find a time by
//! reading only frame headers. `number` counts the frames of the file from 0. `crc` is the CRC-32
//! of the header's first 20 bytes and the body. These frames exist:
//!
//! ```text
//! Head       once, first           Head                                                  MessagePack
//! Texts      any number            what numbers stand for                                MessagePack
//! Events     any number            track u32 | count u32 | lost u64 | count records      24 bytes a record: see `record`
//! Snapshot   now and then          Snapshot                                              MessagePack
//! Mark       now and then          why this is recorded                                  MessagePack
//! Anchor     ends each flush       Tail: how the clocks stood, until when it is complete MessagePack
//! End        once, last            End                                                   MessagePack
//! ```
//!
//! MessagePack maps have named fields. A reader ignores unknown fields, uses defaults for missing
//! ones, and skips frames of an unknown kind. A change that an old reader would misinterpret
//! increases the major version.
//!
//! # Invariants
//!
//! * *Bounded*: no body is longer than [`MAX_BODY_BYTES`], and a declared length beyond that
//!   allocates nothing.
//! * *Readable up to the break*: every frame can be read independently. A file that is truncated,
//!   or was modified in one place, is intact before that place.
//! * *A file without End is no error*: the recorded program has exited, or the file is still being
//!   written.
//!
//! # Rejected alternatives
//!
//! * An index at the end: it is missing exactly when a program died, and reading the headers of 64
//!   MiB takes only milliseconds.
//! * Compression: it costs the writing thread more than the disk does.
//! * Perfetto's own format: its encoder is larger than this whole crate, and it cannot contain
//!   snapshots.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use volt_telemetry::recording::flush::{Anchor, Chunk, unpack};
use volt_telemetry::recording::record::{RECORD_BYTES, Record};
use volt_telemetry::wire::{self, Version};

use crate::error::RecordingError;

/// The first bytes of a recording.
pub const MAGIC: [u8; 8] = *b"volt-rec";
/// Version of the format.
pub const VERSION: Version = Version { major: 1, minor: 0 };
/// Maximum length of a frame's body.
pub const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// Length of the preamble.
pub(super) const PREAMBLE_BYTES: usize = 16;
/// Length of a frame's header.
pub(super) const HEADER_BYTES: usize = 24;
/// The part of the header that the CRC covers.
const CHECKED_BYTES: usize = 20;
/// Length of an Events body before its records.
const CHUNK_BYTES: usize = 16;
/// Maximum number of records in one Events frame; further ones go into the next frame.
pub(super) const MAX_CHUNK_RECORDS: usize = 8192;

const _: () = assert!(CHUNK_BYTES + MAX_CHUNK_RECORDS * RECORD_BYTES <= MAX_BODY_BYTES);

/// The kind of a frame's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Head = 1,
    Texts = 2,
    Events = 3,
    Snapshot = 4,
    Mark = 5,
    Anchor = 6,
    End = 7,
}

impl Kind {
    const ALL: [Kind; 7] = [Kind::Head, Kind::Texts, Kind::Events, Kind::Snapshot, Kind::Mark, Kind::Anchor, Kind::End];

    /// Returns `None` for a kind of a newer version.
    fn from_number(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) body_len: usize,
    pub(super) kind: Option<Kind>,
    pub(super) at_ns: u64,
    pub(super) number: u32,
    crc: u32,
    /// The bytes of the header that `crc` covers.
    checked: [u8; CHECKED_BYTES],
}

/// The contents of an Anchor frame, which ends a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Tail {
    pub(super) anchor: Option<Anchor>,
    pub(super) complete_until_ns: u64,
}

/// The contents of an End frame: a summary of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Number of records in the file.
    pub records: u64,
    /// Number of records that were overwritten before they were read.
    pub lost: u64,
    /// Number of snapshots that were left out because they were too large for the file.
    pub snapshots_skipped: u64,
}

/// Returns the first bytes of a file.
pub(super) fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.major.to_le_bytes());
    bytes[12..].copy_from_slice(&VERSION.minor.to_le_bytes());
    bytes
}

/// Checks whether a file that begins with `bytes` is a recording of a supported version.
pub(super) fn check_preamble(bytes: &[u8; PREAMBLE_BYTES], name: &str) -> Result<(), RecordingError> {
    if bytes[..8] != MAGIC {
        return Err(RecordingError::not_a_recording(name));
    }
    let (numbers, _) = bytes[8..].as_chunks::<4>();
    let version = Version { major: u32::from_le_bytes(numbers[0]), minor: u32::from_le_bytes(numbers[1]) };
    if version.major != VERSION.major {
        return Err(RecordingError::wrong_version(name, version, VERSION));
    }
    Ok(())
}

impl Header {
    /// Parses the header in `bytes`. Returns `None` if the declared length exceeds the bound.
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |index: usize| u32::from_le_bytes(words[index]);
        let body_len = word(0) as usize;
        let (checked, _) = bytes.split_first_chunk()?;
        (body_len <= MAX_BODY_BYTES).then_some(Self {
            body_len,
            kind: Kind::from_number(word(1)),
            at_ns: u64::from(word(2)) | u64::from(word(3)) << 32,
            number: word(4),
            crc: word(5),
            checked: *checked,
        })
    }

    /// Returns the length of the whole frame.
    pub(super) fn frame_bytes(&self) -> u64 {
        (HEADER_BYTES + self.body_len) as u64
    }

    /// Returns whether header and body match the checksum.
    pub(super) fn fits(&self, body: &[u8]) -> bool {
        self.crc == crc_of(&self.checked, body)
    }
}

fn crc_of(checked: &[u8], body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(checked);
    crc.update(body);
    crc.finalize()
}

/// Builds a frame. `number` counts the frames of its file.
pub(super) fn seal(kind: Kind, at_ns: u64, number: u32, body: &[u8]) -> Vec<u8> {
    debug_assert!(body.len() <= MAX_BODY_BYTES, "a frame's body is bounded where it is made");
    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(kind as u32).to_le_bytes());
    frame.extend_from_slice(&at_ns.to_le_bytes());
    frame.extend_from_slice(&number.to_le_bytes());
    frame.extend_from_slice(&crc_of(&frame, body).to_le_bytes());
    frame.extend_from_slice(body);
    frame
}

/// Encodes a body as MessagePack. The caller ensures that it is not too long.
pub(super) fn packed<T: Serialize>(what: &T) -> Vec<u8> {
    rmp_serde::to_vec_named(what).expect("plain data can be written to memory")
}

/// Decodes the output of [`packed`]. The error describes what is wrong.
pub(super) fn unpacked<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    wire::unpack(body).map_err(|error| error.to_string())
}

/// Encodes the body of an Events frame, with at most [`MAX_CHUNK_RECORDS`] records.
pub(super) fn packed_events(track: u32, lost: u64, records: &[Record]) -> Vec<u8> {
    let mut body = Vec::with_capacity(CHUNK_BYTES + records.len() * RECORD_BYTES);
    body.extend_from_slice(&track.to_le_bytes());
    body.extend_from_slice(&(records.len() as u32).to_le_bytes());
    body.extend_from_slice(&lost.to_le_bytes());
    // One record at a time: byte by byte takes ten times as long.
    records.iter().for_each(|record| body.extend_from_slice(&record.to_bytes()));
    body
}

/// Decodes the output of [`packed_events`].
pub(super) fn unpacked_events(body: &[u8]) -> Result<Chunk, String> {
    let Some((head, records)) = body.split_first_chunk::<CHUNK_BYTES>() else {
        return Err(format!("events of {} bytes, at least {CHUNK_BYTES} were expected", body.len()));
    };
    let (words, _) = head.as_chunks::<4>();
    let word = |index: usize| u32::from_le_bytes(words[index]);
    let (track, count, lost) = (word(0), word(1), u64::from(word(2)) | u64::from(word(3)) << 32);
    match unpack(records) {
        Some(records) if records.len() == count as usize => Ok(Chunk { track, lost, records }),
        _ => Err(format!("{count} events in {} bytes", records.len())),
    }
}

#[cfg(test)]
mod tests {
    use volt_telemetry::recording::event::Event;

    use super::*;

    fn parse(frame: &[u8]) -> Header {
        Header::parse(frame.first_chunk().unwrap()).unwrap()
    }

    #[test]
    fn a_frame_comes_back_as_it_was() {
        let frame = seal(Kind::Mark, 0x0102_0304_0506_0708, 9, b"body");
        let header = parse(&frame);
        assert_eq!((header.body_len, header.kind), (4, Some(Kind::Mark)));
        assert_eq!((header.at_ns, header.number), (0x0102_0304_0506_0708, 9));
        assert!(header.fits(b"body"));
    }

    #[test]
    fn any_bit_that_was_changed_is_found() {
        let frame = seal(Kind::Mark, 7, 9, b"body");
        for bit in 0..frame.len() * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let header = Header::parse(changed.first_chunk().unwrap());
            assert!(header.is_none_or(|header| !header.fits(&changed[HEADER_BYTES..])), "bit {bit}");
        }
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused() {
        let mut frame = seal(Kind::Mark, 7, 9, b"body");
        frame[..4].copy_from_slice(&(MAX_BODY_BYTES as u32 + 1).to_le_bytes());
        assert_eq!(Header::parse(frame.first_chunk().unwrap()), None);
    }

    #[test]
    fn a_kind_of_a_newer_version_has_no_name_and_is_no_error() {
        let mut frame = seal(Kind::Mark, 7, 9, b"body");
        frame[4] = 99;
        assert_eq!(parse(&frame).kind, None);
    }

    #[test]
    fn events_come_back_as_they_were_and_cut_ones_are_refused() {
        let records: Vec<_> = (0..5).map(|at_ns| Record::new(at_ns, Event::SearchBegin)).collect();
        let body = packed_events(3, 4, &records);
        assert_eq!(unpacked_events(&body).unwrap(), Chunk { track: 3, lost: 4, records });
        assert_eq!(unpacked_events(&body[..body.len() - RECORD_BYTES]).unwrap_err(), "5 events in 96 bytes");
        assert!(unpacked_events(&body[..7]).unwrap_err().starts_with("events of 7 bytes"));
    }

    #[test]
    fn other_files_and_other_versions_are_distinguished() {
        assert!(check_preamble(&preamble(), "a").is_ok());
        let error = check_preamble(b"#!/bin/sh\nexit 0", "a").unwrap_err();
        assert!(error.is_not_a_recording() && error.to_string() == "a is not a Volt recording");
        let mut newer = preamble();
        newer[8] = 2;
        let error = check_preamble(&newer, "a").unwrap_err();
        assert!(
            error.is_wrong_version() && error.to_string().contains("format 2.0, but this program reads 1.0"),
            "{error}"
        );
    }
}
