//! Tests of the reader of black boxes: what it finds in a whole file, in a half-written one, and in
//! arbitrary bytes.

use std::io::Cursor;

use volt_telemetry::recording::black_box::{PAGE_BYTES, ring_bytes};
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::Anchor;
use volt_telemetry::snapshot::{InFlight, Snapshot};

use super::*;

const LAYOUT: Layout = Layout { workers: 1, spares: 1, ring_records: 1024 };
const LOCATION: u64 = 0x5555_0000_1234;

/// A file that is written as a program would.
struct Written(Vec<u8>);

impl Written {
    fn new() -> Self {
        let mut written = Self(vec![0; LAYOUT.file_bytes()]);
        let anchor = Anchor { at_ns: 1_000, unix_ns: Some(5_000_000_000), ..Anchor::default() };
        let identity =
            Identity { pid: 7, program: "shop".into(), runtime: "api".into(), anchor, ..Identity::default() };
        let frame = wire::encode(&identity, PAGE_BYTES).unwrap();
        written.0[IDENTITY_AT..IDENTITY_AT + frame.len() - 4].copy_from_slice(&frame[4..]);
        written.set(0, word::MAGIC, MAGIC);
        written.set(0, word::VERSION, VERSION);
        written.set(0, word::WORKERS, 1);
        written.set(0, word::SPARES, 1);
        written.set(0, word::RING_RECORDS, 1024);
        written.set(0, word::IDENTITY_BYTES, frame.len() as u64 - 4);
        written.set(0, word::IDENTITY_CHECKSUM, checksum(&frame[4..]));
        written.set(0, word::BEAT_NS, 8_000);
        written
    }

    fn set(&mut self, at_byte: usize, index: usize, value: u64) {
        self.0[at_byte + index * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }

    fn get(&self, at_byte: usize, index: usize) -> u64 {
        word_at(&self.0[at_byte..], index)
    }

    fn text(&mut self, log: usize, kind: u64, number: u64, text: &str) {
        let at_byte = LAYOUT.texts_at(log);
        let end = (self.get(at_byte, 1) as usize).max(TEXTS_HEAD_WORDS * 8);
        self.set(at_byte + end, 0, kind | (text.len() as u64) << 8);
        self.set(at_byte + end, 1, number);
        self.0[at_byte + end + TEXT_HEAD_BYTES..][..text.len()].copy_from_slice(text.as_bytes());
        self.set(at_byte, 1, (end + TEXT_HEAD_BYTES + text.len()).next_multiple_of(8) as u64);
    }

    fn sample(&mut self, number: u64, at_ns: u64) {
        let poll = InFlight { task_id: 42, task_name: Some("checkout".into()), ..InFlight::default() };
        let worker = volt_telemetry::Worker { in_flight: Some(poll), ..volt_telemetry::Worker::default() };
        let snapshot = Box::new(Snapshot { at_ns, workers: vec![worker], ..Snapshot::default() });
        let frame = wire::encode(&Sample { snapshot, ..Sample::default() }, SAMPLE_BYTES).unwrap();
        let at_byte = LAYOUT.sample_at((number / 2 % 2) as usize);
        self.set(at_byte, 0, number);
        self.set(at_byte, 1, frame.len() as u64 - 4);
        self.set(at_byte, 2, checksum(&frame[4..]));
        self.0[at_byte + SAMPLE_HEAD_WORDS * 8..][..frame.len() - 4].copy_from_slice(&frame[4..]);
    }

    fn push(&mut self, lane: usize, number: u64) {
        let at_byte = LAYOUT.ring_at(lane);
        let record = Record::new(number, Event::PollBegin { task: 42, location: 3, delay_ns: 0 });
        let slot = RING_HEAD_WORDS * 8 + (number as usize % 1024) * RECORD_BYTES;
        self.0[at_byte + slot..][..RECORD_BYTES].copy_from_slice(&record.to_bytes());
        self.set(at_byte, 0, number + 1);
        self.set(at_byte, 1, RING_MAGIC);
    }

    /// Worker 0 polls task 42.
    fn poll(&mut self) {
        let cells = LAYOUT.cells_at(0);
        self.set(cells, cell::TASK, 42);
        self.set(cells, cell::LOCATION, LOCATION);
        self.set(cells, cell::POLL_BEGAN_NS, 6_000);
        self.set(cells, cell::POLL_SEQ, 9);
        self.set(cells, cell::THREAD, 77);
        self.set(LAYOUT.cells_at(1), cell::PHASE, Phase::TIMED.len() as u64);
    }

    fn whole() -> Self {
        let mut written = Self::new();
        written.text(0, kind::ADDRESS, LOCATION, "src/old.rs:1:1");
        written.set(LAYOUT.texts_at(1), 0, 1);
        written.text(1, kind::ADDRESS, LOCATION, "src/shop.rs:12:5");
        written.text(1, kind::LOCATION, 3, "src/shop.rs:12:5");
        written.text(1, kind::TASK, 42, "checkout");
        written.poll();
        (1..=2).for_each(|number| written.sample(2 * number, 7_000 + number));
        (0..1500).for_each(|number| written.push(0, number));
        written
    }

    fn read(&self) -> Result<BlackBox, RecordingError> {
        BlackBox::read(Cursor::new(&self.0), "shop.voltbox")
    }
}

#[test]
fn a_poll_in_flight_has_its_task_line_and_begin() {
    let read = Written::whole().read().unwrap();
    assert_eq!((read.identity.pid, read.identity.program.as_str(), read.ending), (7, "shop", Ending::None));
    let [worker] = &read.workers[..] else { panic!("an unused spare is left out: {:?}", read.workers) };
    let poll = Poll {
        task_id: 42,
        task_name: Some("checkout".into()),
        spawned_at: Some("src/shop.rs:12:5".into()),
        began_at_ns: 6_000,
    };
    assert_eq!((worker.thread_id, worker.phase, worker.poll.as_ref()), (Some(77), Phase::Busy, Some(&poll)));
    assert_eq!(read.samples.iter().map(|sample| sample.snapshot.at_ns).collect::<Vec<_>>(), [7_001, 7_002]);
    assert_eq!((read.last_sign_ns(), read.unix_ns(8_000), read.is_truncated), (8_000, Some(5_000_007_000), false));
}

#[test]
fn events_that_may_be_half_written_are_left_out() {
    let mut written = Written::whole();
    let read = written.read().unwrap();
    let [chunk] = &read.chunks[..] else { panic!("one ring is in use") };
    let times: Vec<_> = chunk.records.iter().map(|record| record.at_ns()).collect();
    assert_eq!((times, chunk.lost), ((477..1500).collect::<Vec<_>>(), 477));
    assert_eq!(read.texts.location(3), Some("src/shop.rs:12:5"));
    // The next record overwrites the oldest one, and is not counted yet.
    written.set(LAYOUT.ring_at(0) + RING_HEAD_WORDS * 8 + 1500 % 1024 * RECORD_BYTES, 0, u64::MAX);
    assert_eq!(written.read().unwrap().chunks, read.chunks);
}

#[test]
fn a_half_written_sample_is_left_out() {
    let mut written = Written::whole();
    written.set(LAYOUT.sample_at(0), 0, 5);
    let at_ns = |read: &BlackBox| read.samples.iter().map(|sample| sample.snapshot.at_ns).collect::<Vec<_>>();
    assert_eq!(at_ns(&written.read().unwrap()), [7_001]);
    written.set(LAYOUT.sample_at(1), 2, 0);
    assert_eq!(at_ns(&written.read().unwrap()), [0; 0]);
}

#[test]
fn the_end_is_as_the_program_marked_it() {
    let mut written = Written::whole();
    written.set(0, word::END_NS, 9_000);
    for (number, ending) in [(1, Ending::ShutDown(9_000)), (2, Ending::Exited(9_000)), (77, Ending::None)] {
        written.set(0, word::END, number);
        assert_eq!(written.read().unwrap().ending, ending);
    }
}

#[test]
fn a_recording_of_a_black_box_can_be_replayed() {
    use crate::writer::{MIN_FILE_BYTES, Settings, Writer};

    let scratch = crate::scratch::Scratch::new();
    let path = scratch.path().join("shop.voltrec");
    let read = Written::whole().read().unwrap();
    let settings = Settings { path: path.clone(), max_file_bytes: MIN_FILE_BYTES, max_files: 1 };
    let mut writer = Writer::create(settings, read.head()).unwrap();
    read.flushes().iter().for_each(|flush| writer.write(flush).unwrap());
    writer.finish().unwrap();
    let mut reader = crate::reader::Reader::open(&path).unwrap();
    assert_eq!(reader.snapshot_at(u64::MAX).unwrap().unwrap().at_ns, 7_002);
    let mut timeline = crate::timeline::Timeline::new(&mut reader);
    let events = std::iter::from_fn(|| timeline.next_item());
    let events = events.filter(|item| matches!(item.what, crate::timeline::What::Event { .. })).count();
    assert_eq!((events, timeline.texts().task(42), timeline.broke().is_none()), (1023, Some("checkout"), true));
}

#[test]
fn other_files_are_refused_with_the_reason() {
    let refused = |written: &Written| written.read().unwrap_err();
    assert!(refused(&Written(b"#!/bin/sh".to_vec())).is_not_a_recording());
    assert!(refused(&Written(vec![0; HEAD_BYTES])).is_not_a_recording());
    let mut newer = Written::whole();
    newer.set(0, word::VERSION, VERSION + 1);
    assert!(refused(&newer).is_wrong_version());
    for (index, value) in [(word::WORKERS, u64::MAX), (word::RING_RECORDS, 0), (word::IDENTITY_BYTES, u64::MAX)] {
        let mut damaged = Written::whole();
        damaged.set(0, index, value);
        assert!(refused(&damaged).is_damaged(), "{index}");
    }
}

/// A sequence of numbers that is the same in every run (xorshift).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Reads everything that a caller may.
fn use_all(read: &BlackBox) {
    let _ = (read.last_sign_ns(), read.unix_ns(read.last_sign_ns()), read.head(), read.flushes());
    let mut merge = crate::timeline::Merge::default();
    read.flushes().into_iter().for_each(|flush| merge.add(flush));
    merge.finish();
    while merge.next_item().is_some() {}
}

#[test]
fn a_damaged_file_is_read_or_refused_and_never_panics() {
    let whole = Written::whole();
    // Where bytes have a meaning: most of the file is zeros.
    let parts = [
        (0, 128),
        (IDENTITY_AT, 512),
        (LAYOUT.texts_at(0), 128),
        (LAYOUT.texts_at(1), 256),
        (LAYOUT.sample_at(0), 1024),
        (LAYOUT.cells_at(0), 2 * CELL_BYTES),
        (LAYOUT.ring_at(0), 512),
        (LAYOUT.ring_at(3), ring_bytes(1024)),
    ];
    let (mut random, mut read_count) = (Random(0x9E37_79B9_7F4A_7C15), 0);
    for round in 0..200 {
        let mut written = Written(whole.0.clone());
        for _ in 0..=random.below(8) {
            let (begin, length) = parts[random.below(parts.len())];
            let at = begin + random.below(length);
            match random.below(3) {
                0 => written.0[at] ^= 1 << random.below(8),
                1 => written.0[at] = random.next() as u8,
                _ => written.set(at / 8 * 8, 0, [0, 1, u64::MAX, 1 << 63, random.next()][random.below(5)]),
            }
        }
        if round % 4 == 0 {
            written.0.truncate(random.below(whole.0.len()));
        }
        if let Ok(read) = written.read() {
            read_count += 1;
            use_all(&read);
        }
    }
    assert!((20..200).contains(&read_count), "{read_count} of 200 were read");
}

#[test]
fn arbitrary_bytes_are_read_or_refused_and_never_panic() {
    let mut random = Random(88_172_645_463_325_252);
    for _ in 0..20 {
        let mut written = Written::new();
        let begin = LAYOUT.texts_at(0);
        written.0[begin..].chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&random.next().to_le_bytes()));
        // So that the random bytes are used.
        written.set(LAYOUT.texts_at(0), 1, u64::MAX);
        written.set(LAYOUT.ring_at(0), 1, RING_MAGIC);
        use_all(&written.read().unwrap());
    }
}

#[test]
fn a_truncated_file_is_read_up_to_its_end() {
    let mut written = Written::whole();
    written.0.truncate(LAYOUT.cells_at(0) + CELL_BYTES);
    let read = written.read().unwrap();
    assert!(read.is_truncated && read.chunks.is_empty());
    assert_eq!(read.workers[0].poll.as_ref().unwrap().task_id, 42);
}

#[test]
fn the_newest_run_of_a_directory_comes_first() {
    let scratch = crate::scratch::Scratch::new();
    assert!(lives::lives_in(scratch.path()).unwrap_err().to_string().contains("VOLT_BLACK_BOX="));
    assert!(lives::lives_in(&scratch.path().join("none")).unwrap_err().is_missing());
    for name in ["shop.5.7-1.api.voltbox", "shop.9.8-1.api.voltbox", "shop.9.8-1.db.voltbox", "notes.txt"] {
        std::fs::write(scratch.path().join(name), "").unwrap();
    }
    let lives = lives::lives_in(scratch.path()).unwrap();
    assert_eq!(lives.iter().map(|life| (life.pid, life.files.len())).collect::<Vec<_>>(), [(8, 2), (7, 1)]);
    let file = std::fs::File::open(&lives[0].files[0]).unwrap();
    file.lock().unwrap();
    assert_eq!([0, 1].map(|index| lives::is_locked(&lives[0].files[index])), [Some(true), Some(false)]);
}
