//! Tests of the writer, on a disk and on one that fails.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};

use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::Anchor;
use volt_telemetry::recording::record::Record;
use volt_telemetry::snapshot::Snapshot;

use super::*;
use crate::files::parts_of;
use crate::reader::Reader;
use crate::scratch::Scratch;

/// A disk in memory with a limited number of bytes.
#[derive(Clone, Default)]
struct Disk {
    files: Arc<Mutex<BTreeMap<u32, Vec<u8>>>>,
    space_bytes: usize,
}

struct OnDisk {
    disk: Disk,
    part: u32,
}

impl Store for Disk {
    fn path(&self, part: u32) -> PathBuf {
        format!("disk/{part}").into()
    }

    fn create(&mut self, part: u32) -> io::Result<Box<dyn Sink>> {
        assert!(self.files.lock().unwrap().insert(part, Vec::new()).is_none(), "never one that is there");
        Ok(Box::new(OnDisk { disk: self.clone(), part }))
    }

    fn remove(&mut self, part: u32) -> io::Result<()> {
        self.files.lock().unwrap().remove(&part).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Write for OnDisk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut files = self.disk.files.lock().unwrap();
        let used: usize = files.values().map(Vec::len).sum();
        let count = bytes.len().min(self.disk.space_bytes - used);
        if count == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        files.get_mut(&self.part).expect("an open file").extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for OnDisk {
    fn cut(&mut self, bytes: u64) -> io::Result<()> {
        self.disk.files.lock().unwrap().get_mut(&self.part).expect("an open file").truncate(bytes as usize);
        Ok(())
    }
}

fn settings(path: PathBuf, max_files: u32) -> Settings {
    Settings { path, max_file_bytes: MIN_FILE_BYTES, max_files }
}

/// Returns a flush of `count` records, the first of which is `first`.
fn flush(first: u64, count: u64) -> Flush {
    let records = (first..first + count).map(|at_ns| Record::new(at_ns, Event::LifoHit { task: at_ns })).collect();
    Flush {
        at_ns: first + count,
        complete_until_ns: first + count,
        anchor: Some(Anchor { at_ns: first + count, ..Anchor::default() }),
        chunks: vec![Chunk { track: 0, lost: 1, records }],
        ..Flush::default()
    }
}

/// Returns the numbers of the records in the files, in order, and how many were lost.
fn recorded(files: &[PathBuf]) -> (Vec<u64>, u64) {
    let (mut times, mut lost) = (Vec::new(), 0);
    for file in files {
        let mut reader = Reader::open(file).unwrap();
        let before = times.len();
        while let Some(flush) = reader.next_flush().unwrap() {
            lost += flush.lost();
            times.extend(flush.chunks.iter().flat_map(|chunk| &chunk.records).map(|record| record.at_ns()));
        }
        let end = reader.end().expect("ended in order");
        assert_eq!(end.records, (times.len() - before) as u64);
        assert!(std::fs::metadata(file).unwrap().len() <= MIN_FILE_BYTES, "{file:?}");
    }
    (times, lost)
}

#[test]
fn a_recording_of_one_file_ends_with_a_message_when_full() {
    let scratch = Scratch::new();
    let path = scratch.path().join("one.voltrec");
    let mut writer = Writer::create(settings(path.clone(), 1), Head::default()).unwrap();
    let mut first = 0;
    let error = loop {
        match writer.write(&flush(first, 1_000)) {
            Ok(()) => first += 1_000,
            Err(error) => break error,
        }
    };
    assert!(error.is_full(), "{error}");
    let again = writer.write(&flush(first, 1)).unwrap_err();
    assert!(again.is_full() && again.to_string() == error.to_string(), "{again}");
    assert_eq!(writer.files(), [path.as_path()]);
    drop(writer);
    let (times, _) = recorded(&[path]);
    assert_eq!(times, (0..first).collect::<Vec<_>>());
    assert!(first * RECORD_BYTES as u64 > MIN_FILE_BYTES * 9 / 10, "{first}");
}

#[test]
fn a_file_is_filled_to_its_bound_and_not_beyond() {
    let scratch = Scratch::new();
    let path = scratch.path().join("fine.voltrec");
    let mut writer = Writer::create(settings(path.clone(), 2), Head::default()).unwrap();
    let mut first = 0;
    while writer.files().len() == 1 {
        writer.write(&flush(first, 1)).unwrap();
        first += 1;
    }
    let len = std::fs::metadata(&writer.files()[0]).unwrap().len();
    assert!((MIN_FILE_BYTES - 2 * RESERVED_BYTES..=MIN_FILE_BYTES).contains(&len), "{len}");
    writer.finish().unwrap();
    assert_eq!(recorded(&parts_of(&path)), ((0..first).collect(), first));
}

#[test]
fn losses_are_reported_even_without_remaining_events() {
    let scratch = Scratch::new();
    let path = scratch.path().join("lost.voltrec");
    let mut writer = Writer::create(settings(path.clone(), 1), Head::default()).unwrap();
    writer.write(&flush(0, 0)).unwrap();
    writer.finish().unwrap();
    assert_eq!(recorded(&[path]), (vec![], 1));
}

#[test]
fn files_are_bounded_in_size_and_number_and_the_newest_stay() {
    let scratch = Scratch::new();
    let path = scratch.path().join("ring.voltrec");
    let mut writer = Writer::create(settings(path.clone(), 3), Head::default()).unwrap();
    // One that is larger than a file, between many that are not.
    let mut next = 0;
    for count in [10_000, 200_000, 10_000, 10_000, 10_000] {
        writer.write(&flush(next, count)).unwrap();
        next += count;
        assert!(writer.files().len() <= 3);
    }
    let files = writer.files();
    writer.finish().unwrap();
    assert_eq!(files, parts_of(&path));
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 3);
    let (times, _) = recorded(&files);
    let first = times[0];
    assert!(first > 0 && times.len() as u64 * RECORD_BYTES as u64 > 2 * MIN_FILE_BYTES * 8 / 10, "{}", times.len());
    assert_eq!(times, (first..next).collect::<Vec<_>>(), "what is left has no hole");
    let parts: Vec<_> = files.iter().map(|file| Reader::open(file).unwrap().head().part).collect();
    assert!(parts.is_sorted() && parts[0] > 1, "{parts:?}");
}

#[test]
fn each_file_has_the_names_of_earlier_files() {
    let scratch = Scratch::new();
    let path = scratch.path().join("names.voltrec");
    let mut writer = Writer::create(settings(path, 2), Head::default()).unwrap();
    let texts = vec![
        Text::new(Table::Location, 3, "src/main.rs:1:1"),
        Text::new(Table::Task, 8, "feed"),
        Text { table: Table::Task, number: 9, text: "n".repeat(10_000) },
    ];
    writer.write(&Flush { texts, ..flush(0, 1) }).unwrap();
    writer.end_file().unwrap();
    writer.write(&flush(1, 1)).unwrap();
    let files = writer.files();
    writer.finish().unwrap();
    assert_eq!(files.len(), 2);
    for file in &files {
        let mut reader = Reader::open(file).unwrap();
        while reader.next_flush().unwrap().is_some() {}
        assert_eq!(reader.texts().location(3), Some("src/main.rs:1:1"), "{file:?}");
        assert_eq!(reader.texts().task(8), Some("feed"));
        assert_eq!(reader.texts().task(9).map(str::len), Some(MAX_TEXT_BYTES));
    }
    assert_eq!(Reader::open(&files[1]).unwrap().head().anchor.map(|anchor| anchor.at_ns), Some(1), "of the last flush");
}

#[test]
fn names_are_bounded_and_the_youngest_stay() {
    let scratch = Scratch::new();
    let mut writer = Writer::create(settings(scratch.path().join("many.voltrec"), 9), Head::default()).unwrap();
    let count = MAX_KEPT_TEXTS as u64 + u64::from(u16::MAX) + 1000;
    let texts = (0..count).map(|id| Text::new(Table::Task, id, "a name of some length")).collect();
    writer.write(&Flush { texts, ..flush(0, 1) }).unwrap();
    assert_eq!(writer.kept.len() as u64, count - 1000);
    writer.end_file().unwrap();
    writer.write(&flush(1, 1)).unwrap();
    let mut reader = Reader::open(writer.files().last().unwrap()).unwrap();
    while reader.next_flush().unwrap().is_some() {}
    assert!(reader.texts().task(count - 1).is_some());
    assert_eq!(reader.texts().task(1000), None, "a quarter of the file, and not more");
}

#[test]
fn files_that_are_there_are_never_touched() {
    let scratch = Scratch::new();
    let path = scratch.path().join("mine.voltrec");
    std::fs::write(&path, "mine").unwrap();
    let error = Writer::create(settings(path.clone(), 1), Head::default()).unwrap_err();
    assert!(error.is_existing() && error.to_string().contains("choose another name"), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");

    // A later part of an earlier recording.
    let path = scratch.path().join("yours.voltrec");
    std::fs::write(scratch.path().join("yours.0007.voltrec"), "yours").unwrap();
    assert!(Writer::create(settings(path, 2), Head::default()).unwrap_err().is_existing());
}

#[test]
fn a_file_is_for_its_user_only() {
    let scratch = Scratch::new();
    let path = scratch.path().join("secret.voltrec");
    let _writer = Writer::create(settings(path.clone(), 1), Head::default()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_cannot_be_created_is_reported_as_unwritable() {
    let scratch = Scratch::new();
    let missing = scratch.path().join("no/such/folder.voltrec");
    let error = Writer::create(settings(missing, 1), Head::default()).unwrap_err();
    assert!(error.is_unwritable() && error.to_string().contains("its directory does not exist"), "{error}");
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = Writer::create(settings(file.join("inside.voltrec"), 1), Head::default()).unwrap_err();
    assert!(error.is_unwritable(), "{error}");
    let error = RecordingError::create("/x".as_ref(), io::ErrorKind::PermissionDenied.into());
    assert!(error.is_unwritable() && error.to_string().contains("choose a directory"), "{error}");
}

#[test]
fn bounds_that_make_no_sense_are_refused() {
    let small = Settings { max_file_bytes: MIN_FILE_BYTES - 1, ..settings("x".into(), 1) };
    let error = Writer::with_store(Box::new(Disk::default()), small, Head::default()).unwrap_err();
    assert!(error.is_invalid_setting());
    assert_eq!(error.to_string(), "max_file_bytes is 1048575: set it to 1048576 or more");
    let none = settings("x".into(), 0);
    let error = Writer::with_store(Box::new(Disk::default()), none, Head::default()).unwrap_err();
    assert_eq!(error.to_string(), "max_files is 0: set it to 1 to 9999");
}

#[test]
fn a_full_disk_stops_the_writer_and_keeps_data_readable() {
    let disk = Disk { space_bytes: 2_500_000, ..Disk::default() };
    let mut writer = Writer::with_store(Box::new(disk.clone()), settings("x".into(), 9), Head::default()).unwrap();
    let mut written = 0;
    let error = loop {
        match writer.write(&flush(written, 1_000)) {
            Ok(()) => written += 1_000,
            Err(error) => break error,
        }
    };
    assert!(error.is_disk_full(), "{error}");
    assert!(error.to_string().contains("free some space; the"), "{error}");
    let files = disk.files.lock().unwrap().clone();
    assert!(writer.write(&flush(written, 1)).unwrap_err().is_disk_full());
    assert!(writer.end_file().unwrap_err().is_disk_full());
    drop(writer);
    assert_eq!(*disk.files.lock().unwrap(), files, "nothing is written or removed any more");

    let mut times = Vec::new();
    for (part, bytes) in files {
        let mut reader = Reader::new(io::Cursor::new(bytes), format!("part {part}")).unwrap();
        while let Some(flush) = reader.next_flush().unwrap() {
            times.extend(flush.chunks.iter().flat_map(|chunk| &chunk.records).map(|record| record.at_ns()));
        }
    }
    assert!(times.len() as u64 >= written, "{} of {written}", times.len());
    assert_eq!(times, (0..times.len() as u64).collect::<Vec<_>>());
}

#[test]
fn a_disk_that_is_full_from_the_start_leaves_no_file() {
    let disk = Disk { space_bytes: 10, ..Disk::default() };
    let created = Writer::with_store(Box::new(disk.clone()), settings("x".into(), 9), Head::default());
    assert!(created.unwrap_err().is_disk_full());
    assert!(disk.files.lock().unwrap().is_empty());
}

#[test]
fn a_snapshot_that_is_too_large_is_left_out_and_counted() {
    let disk = Disk { space_bytes: 9_000_000, ..Disk::default() };
    let mut writer = Writer::with_store(Box::new(disk.clone()), settings("x".into(), 9), Head::default()).unwrap();
    let large = Snapshot { runtime: "r".repeat(1_000_000), ..Snapshot::default() };
    writer.write(&Flush { snapshot: Some(Box::new(large)), ..flush(0, 1) }).unwrap();
    writer.write(&Flush { snapshot: Some(Box::default()), ..flush(1, 1) }).unwrap();
    writer.finish().unwrap();
    let bytes = disk.files.lock().unwrap()[&1].clone();
    let mut reader = Reader::new(io::Cursor::new(bytes), "x").unwrap();
    let flushes: Vec<_> = reader.by_ref().map(Result::unwrap).collect();
    assert_eq!(flushes.iter().map(|flush| flush.snapshot.is_some()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(reader.end().map(|end| end.snapshots_skipped), Some(1));
}

#[test]
fn a_location_of_an_impossible_number_is_not_kept() {
    let disk = Disk { space_bytes: usize::MAX, ..Disk::default() };
    let mut writer = Writer::with_store(Box::new(disk), settings("x".into(), 2), Head::default()).unwrap();
    let texts = [7, 1 << 16].map(|number| Text::new(Table::Location, number, "src/main.rs:1:1")).to_vec();
    writer.write(&Flush { texts, ..Flush::default() }).unwrap();
    assert_eq!(writer.kept.keys().map(|(_, number)| *number).collect::<Vec<_>>(), [7]);
}

#[test]
fn parts_are_found_in_order_and_nothing_else() {
    let scratch = Scratch::new();
    let path = scratch.path().join("a.rec");
    let others = ["a.1.rec", "a.00001.rec", "a.0003.rec.bak", "b.0001.rec", "a.00x1.rec", "a..rec", "a"];
    for name in ["a.10000.rec", "a.0002.rec", "a.9999.rec", "a.0001.rec"].iter().chain(&others) {
        std::fs::write(scratch.path().join(name), "").unwrap();
    }
    let found = parts_of(&path);
    let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a.0001.rec", "a.0002.rec", "a.9999.rec", "a.10000.rec"]);
    // The last one of an earlier recording.
    names[..3].iter().for_each(|name| std::fs::remove_file(scratch.path().join(name)).unwrap());
    assert!(Writer::create(settings(path, 2), Head::default()).unwrap_err().is_existing());
    assert_eq!(parts_of(&scratch.path().join("a")), [scratch.path().join("a")]);
    std::fs::write(scratch.path().join("plain.0005"), "").unwrap();
    assert_eq!(parts_of(&scratch.path().join("plain")), [scratch.path().join("plain.0005")]);
}
