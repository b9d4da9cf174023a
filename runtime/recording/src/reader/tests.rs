//! Tests of the reader, with intact and damaged files.

use std::io::{Cursor, Write};
use std::sync::LazyLock;

use proptest::prelude::*;
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::{Anchor, Chunk, Mark};
use volt_telemetry::recording::record::Record;
use volt_telemetry::recording::trigger::Trigger;

use super::*;
use crate::scratch::Scratch;
use crate::writer::{MIN_FILE_BYTES, Settings, Writer};

/// Returns flush `number`: ten records of each of two tracks; a flush covers 100 ns.
fn flush(number: u64) -> Flush {
    let at_ns = (number + 1) * 100;
    let records = |track: u64| {
        let times = (0..10).map(|step| number * 100 + step * 10 + track);
        times.map(|at_ns| Record::new(at_ns, Event::LifoHit { task: at_ns })).collect()
    };
    Flush {
        at_ns,
        complete_until_ns: at_ns - 1,
        anchor: Some(Anchor { at_ns, monotonic_ns: Some(7), unix_ns: Some(8), cycles: Some(9), width_ns: 1 }),
        texts: vec![Text::new(Table::Location, number, format!("src/{number}.rs:1:1"))],
        chunks: (0..2).map(|track| Chunk { track, lost: number, records: records(track.into()) }).collect(),
        snapshot: number.is_multiple_of(2).then(|| Box::new(Snapshot { at_ns, ..Snapshot::default() })),
        marks: (number == 1).then(|| Mark { at_ns, trigger: Trigger::Panic, ..Mark::default() }).into_iter().collect(),
    }
}

fn head() -> Head {
    Head { pid: 7, program: "server".into(), runtime: "main".into(), ..Head::default() }
}

/// Returns the bytes of a recording of `flushes` flushes.
fn recording(flushes: u64) -> Vec<u8> {
    let scratch = Scratch::new();
    let path = scratch.path().join("x.voltrec");
    let settings = Settings { path: path.clone(), max_file_bytes: MIN_FILE_BYTES, max_files: 1 };
    let mut writer = Writer::create(settings, head()).unwrap();
    (0..flushes).for_each(|number| writer.write(&flush(number)).unwrap());
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

fn open(bytes: impl Into<Vec<u8>>) -> Reader<Cursor<Vec<u8>>> {
    Reader::new(Cursor::new(bytes.into()), "x.voltrec").unwrap()
}

/// Returns everything that can be read, and why reading ended.
fn drain(reader: &mut Reader<Cursor<Vec<u8>>>) -> (Vec<Flush>, Option<RecordingError>) {
    let mut flushes = Vec::new();
    loop {
        match reader.next_flush() {
            Ok(Some(flush)) => flushes.push(flush),
            Ok(None) => return (flushes, None),
            Err(error) => return (flushes, Some(error)),
        }
    }
}

#[test]
fn written_records_are_read_back() {
    let mut reader = open(recording(5));
    assert_eq!((reader.head().pid, reader.head().program.as_str(), reader.head().part), (7, "server", 1));
    assert!(reader.head().began_at_unix_ns > 0);
    let (flushes, error) = drain(&mut reader);
    assert!(error.is_none());
    assert_eq!(flushes, (0..5).map(flush).collect::<Vec<_>>());
    assert_eq!(reader.texts().location(3), Some("src/3.rs:1:1"));
    let end = reader.end().unwrap();
    assert_eq!((end.records, end.lost), (100, 20));
    assert_eq!(reader.progress_ratio(), 1.0);
    assert!(reader.next_flush().unwrap().is_none(), "and stays over");
}

#[test]
fn a_file_that_breaks_off_anywhere_is_whole_up_to_there() {
    let whole = recording(3);
    let expected: Vec<_> = (0..3).map(flush).collect();
    let head_len = open(whole.clone()).first_byte as usize;
    for len in 0..whole.len() {
        let cut = Reader::new(Cursor::new(whole[..len].to_vec()), "x.voltrec");
        let Ok(mut reader) = cut else {
            let error = cut.unwrap_err();
            assert!(len < head_len && (error.is_not_a_recording() || error.is_truncated()), "{len}: {error}");
            continue;
        };
        let (flushes, error) = drain(&mut reader);
        assert!(error.is_none_or(|error| error.is_truncated()), "{len}");
        for (read, expected) in flushes.iter().zip(&expected) {
            if read.anchor.is_some() {
                assert_eq!(read, expected);
            } else {
                assert!(read.chunks.iter().zip(&expected.chunks).all(|(read, expected)| read == expected));
            }
        }
        assert!(flushes.iter().rev().skip(1).all(|flush| flush.anchor.is_some()), "only the last is in pieces");
    }
}

#[test]
fn the_truncation_is_reported_after_the_complete_part() {
    let whole = recording(3);
    let mut reader = open(&whole[..whole.len() - 120]);
    let (flushes, error) = drain(&mut reader);
    assert_eq!((flushes.len(), flushes[2].anchor, flushes[2].records()), (3, None, 20));
    let error = error.expect("it breaks off");
    let text = error.to_string();
    assert!(error.is_truncated() && text.starts_with("x.voltrec is truncated at byte "), "{text}");
    assert!(text.ends_with("the data before that byte is complete"), "{text}");
    assert!(reader.next_flush().unwrap().is_none());
}

#[test]
fn a_file_without_an_end_is_no_error() {
    let whole = recording(2);
    let mut reader = open(whole.clone());
    drain(&mut reader);
    let (last, _) = (whole.len(), ());
    // The End frame is the last: a header and a map of three numbers.
    let mut cut = whole;
    let end_len = (1..200).find(|len| {
        let mut reader = open(&cut[..last - len]);
        let (flushes, error) = drain(&mut reader);
        flushes.len() == 2 && error.is_none() && reader.end().is_none()
    });
    cut.truncate(last - end_len.expect("it can be cut off"));
    assert_eq!(drain(&mut open(cut)).0.len(), 2);
}

#[test]
fn damage_is_reported_and_earlier_records_are_read() {
    let mut bytes = recording(3);
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    let (flushes, error) = drain(&mut open(bytes));
    let error = error.expect("it is damaged");
    assert!(error.is_damaged() && error.to_string().contains("is damaged at byte"), "{error}");
    assert_eq!(flushes[0], flush(0));
    assert!(flushes.len() < 3);
}

#[test]
fn a_frame_that_is_missing_is_found() {
    let bytes = recording(3);
    let mut reader = open(bytes.clone());
    reader.next_flush().unwrap();
    let (from, head) = (reader.at_byte as usize, reader.first_byte as usize);
    let without: Vec<u8> = bytes[..head].iter().chain(&bytes[from..]).copied().collect();
    let (flushes, error) = drain(&mut open(without));
    assert!(flushes.is_empty());
    let text = error.expect("frames are counted").to_string();
    assert!(text.contains("where 1 was expected"), "{text}");
}

#[test]
fn a_file_that_is_no_recording_is_refused() {
    for bytes in [&b""[..], b"#!/bin/sh\n", b"{\"traceEvents\":[]}    "] {
        let error = Reader::new(Cursor::new(bytes.to_vec()), "x").unwrap_err();
        assert!(error.is_not_a_recording(), "{error}");
    }
    let scratch = Scratch::new();
    assert!(Reader::open(&scratch.path().join("none")).unwrap_err().is_missing());
    let error = Reader::open(scratch.path()).unwrap_err();
    assert!(error.is_not_a_recording() || error.to_string().contains("directory"), "{error}");
}

#[test]
fn a_seek_finds_the_flush_of_a_time_and_loads_earlier_names() {
    let mut reader = open(recording(9));
    for (at_ns, expected) in [(0, 100), (100, 100), (101, 200), (550, 600), (900, 900), (250, 300)] {
        reader.seek(at_ns).unwrap();
        assert_eq!(reader.next_flush().unwrap().map(|flush| flush.at_ns), Some(expected), "{at_ns}");
    }
    reader.seek(901).unwrap();
    assert!(reader.next_flush().unwrap().is_none());
    let mut reader = open(recording(9));
    reader.seek(700).unwrap();
    assert_eq!(reader.texts().location(2), Some("src/2.rs:1:1"));
}

#[test]
fn the_snapshot_of_a_time_is_the_last_before_it() {
    let mut reader = open(recording(6));
    reader.seek(300).unwrap();
    let at = |reader: &mut Reader<_>, at_ns| reader.snapshot_at(at_ns).unwrap().map(|snapshot| snapshot.at_ns);
    assert_eq!(at(&mut reader, 99), None);
    assert_eq!(at(&mut reader, 100), Some(100));
    assert_eq!(at(&mut reader, 299), Some(100));
    assert_eq!(at(&mut reader, u64::MAX), Some(500));
    assert_eq!(reader.span().unwrap(), Some((100, 600)));
    assert_eq!(reader.next_flush().unwrap().map(|flush| flush.at_ns), Some(300), "the position stays");
}

#[test]
fn before_a_truncated_snapshot_the_one_before_it_is_found() {
    let whole = recording(6);
    let cuts = (0..=whole.len()).rev().map(|len| Cursor::new(whole[..len].to_vec()));
    let readers = cuts.filter_map(|bytes| Reader::new(bytes, "x.voltrec").ok());
    let found = readers.map(|mut reader| reader.snapshot_at(u64::MAX).expect("the one before").map(|of| of.at_ns));
    let mut times: Vec<_> = found.collect();
    times.dedup();
    assert_eq!(times, [Some(500), Some(300), Some(100), None]);
}

#[test]
fn data_that_cannot_be_decoded_is_reported_at_its_frame() {
    for kind in [Kind::Texts, Kind::Events, Kind::Snapshot, Kind::Mark, Kind::Anchor] {
        let mut file = recording(1);
        let head_len = open(file.clone()).first_byte as usize;
        file.truncate(head_len);
        file.extend(frame::seal(kind, 100, 1, b"nonsense"));
        let error = open(file).next_flush().unwrap_err();
        assert!(error.is_damaged() && error.to_string().contains(&format!("byte {head_len}: ")), "{kind:?}: {error}");
    }
}

#[test]
fn a_flush_of_very_many_empty_texts_is_returned_in_pieces() {
    const TEXTS: u16 = 1_000;
    let mut file = recording(1);
    let head_len = open(file.clone()).first_byte as usize;
    file.truncate(head_len);
    // A list of empty maps: each takes one byte here.
    let mut body = vec![0xdc];
    body.extend(TEXTS.to_be_bytes());
    body.resize(body.len() + usize::from(TEXTS), 0x80);
    (1..=6).for_each(|number| file.extend(frame::seal(Kind::Texts, 100, number, &body)));
    let mut reader = open(file);
    assert_eq!(reader.max_flush_bytes, MAX_FLUSH_BYTES);
    reader.max_flush_bytes = 2 * usize::from(TEXTS) * size_of::<Text>();
    let (flushes, error) = drain(&mut reader);
    assert!(error.is_none(), "{error:?}");
    let texts: Vec<_> = flushes.iter().map(|flush| flush.texts.len()).collect();
    assert_eq!(texts, [2_000, 2_000, 2_000]);
}

#[test]
fn a_file_that_grows_is_read_as_far_as_it_was() {
    let scratch = Scratch::new();
    let path = scratch.path().join("x.voltrec");
    let settings = Settings { path: path.clone(), max_file_bytes: MIN_FILE_BYTES, max_files: 1 };
    let mut writer = Writer::create(settings, head()).unwrap();
    writer.write(&flush(0)).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    writer.write(&flush(1)).unwrap();
    assert!(reader.next_flush().unwrap().is_some());
    assert!(reader.next_flush().unwrap().is_none());
    reader.rewind().unwrap();
    assert_eq!(reader.span().unwrap(), Some((100, 100)));
    // A file that shrinks is a truncated one.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(reader.first_byte + 30).unwrap();
    assert!(reader.by_ref().last().unwrap().unwrap_err().is_truncated());
}

#[test]
fn a_frame_incomplete_at_open_is_truncated_even_if_completed() {
    let scratch = Scratch::new();
    let (path, whole) = (scratch.path().join("x.voltrec"), recording(2));
    std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    let mut reader = Reader::open(&path).unwrap();
    std::fs::write(&path, &whole).unwrap();
    let last = reader.by_ref().last().expect("it has a flush");
    assert!(last.unwrap_err().is_truncated());
}

#[test]
fn the_span_passes_over_frames_of_a_newer_version() {
    let mut bytes = recording(1);
    let mut reader = open(bytes.clone());
    drain(&mut reader);
    let newer = frame::seal(Kind::Mark, 500, reader.number, b"news");
    bytes.write_all(&newer).unwrap();
    // Makes the frame's kind unknown. Its checksum does not matter, since unknown frames are not
    // read.
    let kind_at = bytes.len() - newer.len() + 4;
    bytes[kind_at] = 99;
    let mut reader = open(bytes);
    assert_eq!(reader.span().unwrap(), Some((100, 100)));
    assert!(drain(&mut reader).1.is_none());
}

proptest! {
    // A failing case is printed; no file is written.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_give_flushes_or_errors_and_no_panic(
        noise in prop::collection::vec((0_usize..4096, any::<u8>()), 0..8),
        cut in 0_usize..8192,
    ) {
        static WHOLE: LazyLock<Vec<u8>> = LazyLock::new(|| recording(3));
        let mut bytes = WHOLE.clone();
        for (at, byte) in noise {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes.truncate(cut);
        if let Ok(mut reader) = Reader::new(Cursor::new(bytes), "x") {
            let _ = reader.span();
            let _ = reader.snapshot_at(250);
            let _ = reader.seek(150);
            while let Ok(Some(_)) = reader.next_flush() {}
        }
    }

    #[test]
    fn garbage_behind_a_preamble_is_no_panic(garbage in prop::collection::vec(any::<u8>(), 0..300)) {
        let bytes: Vec<u8> = frame::preamble().into_iter().chain(garbage).collect();
        if let Ok(mut reader) = Reader::new(Cursor::new(bytes), "x") {
            while let Ok(Some(_)) = reader.next_flush() {}
        }
    }
}
