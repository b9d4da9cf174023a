//! Tests of which events `volt-console record` writes around triggers, and into which files.

use volt_recording::reader::Reader;
use volt_recording::writer::MIN_FILE_BYTES;
use volt_telemetry::recording::flush::Chunk;

use super::*;

const MS: u64 = 1_000_000;

/// A directory that is removed with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("volt-tape-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn recording(&self, triggers: &[On], max_files: u32) -> Recording {
        let reach = Reach {
            before: Duration::from_millis(50),
            after: Duration::from_millis(20),
            debounce: Duration::from_millis(100),
            ..Reach::default()
        };
        let (path, triggers) = (Some(self.0.join("x.voltrec")), triggers.to_vec());
        let options =
            Options { runtime: None, seconds: None, path, max_file_bytes: MIN_FILE_BYTES, max_files, triggers, reach };
        let path = options.path.clone().unwrap();
        let settings = Settings { path, max_file_bytes: options.max_file_bytes, max_files };
        Recording::new(Writer::create(settings, Head::default()).unwrap(), &options)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a flush with a poll that ends with `outcome` just before `at_ns`. The first flush has
/// the name of the task.
fn flush(at_ns: u64, outcome: Outcome) -> Flush {
    let end = Event::PollEnd { task: 1, location: 0, outcome, took_ns: 1 };
    let chunk = Chunk { track: 0, lost: 0, records: vec![Record::new(at_ns - 1, end)] };
    let texts = if at_ns == 10 * MS { vec![Text::new(Table::Task, 1, "feed")] } else { Vec::new() };
    Flush { at_ns, complete_until_ns: at_ns, chunks: vec![chunk], texts, ..Flush::default() }
}

fn panics_at(at_ns: u64, when_ns: u64) -> Flush {
    flush(at_ns, if at_ns == when_ns { Outcome::Panicked } else { Outcome::Pending })
}

#[test]
fn the_history_before_a_trigger_is_written_with_earlier_names() {
    let scratch = Scratch::new("before");
    let mut recording = scratch.recording(&[On::Panic], 1);
    let mut ended_at = None;
    for at_ns in (1..=100).map(|step| step * 10 * MS) {
        if !recording.take(panics_at(at_ns, 500 * MS)).unwrap() {
            ended_at = Some(at_ns);
            break;
        }
    }
    recording.close().unwrap();
    assert_eq!(ended_at, Some(520 * MS), "one file is one window");
    let mut reader = Reader::open(&recording.files[0]).unwrap();
    let (mut times, mut marks) = (Vec::new(), Vec::new());
    while let Some(flush) = reader.next_flush().unwrap() {
        times.extend(flush.chunks.iter().flat_map(|chunk| &chunk.records).map(|record| (record.at_ns() + 1) / MS));
        marks.extend(flush.marks);
    }
    assert_eq!(times, [450, 460, 470, 480, 490, 500, 510, 520]);
    assert_eq!(reader.texts().task(1), Some("feed"));
    assert!(matches!(&marks[..], [Mark { trigger: Trigger::Panic, .. }]), "{marks:?}");
}

#[test]
fn each_window_has_its_own_file_if_there_may_be_several() {
    let scratch = Scratch::new("several");
    let mut recording = scratch.recording(&[On::Panic], 3);
    for at_ns in (1..=100).map(|step| step * 10 * MS) {
        let when_ns = if at_ns < 500 * MS { 300 * MS } else { 700 * MS };
        assert!(recording.take(panics_at(at_ns, when_ns)).unwrap());
    }
    recording.close().unwrap();
    assert_eq!((recording.files.len(), recording.windows_written), (2, 2));
    assert!(recording.report(Why::Stopped).contains("16 events"), "{}", recording.report(Why::Stopped));
}

#[test]
fn the_flush_in_which_a_window_ends_is_in_its_file() {
    let panicked = |ms: u64| {
        let end = Event::PollEnd { task: 1, location: 0, outcome: Outcome::Panicked, took_ns: 1 };
        Record::new(ms * MS, end)
    };
    // The window of the first panic ends at 120 ms. The second worker's event may follow in a
    // separate piece.
    let chunks = vec![
        Chunk { track: 0, lost: 0, records: vec![panicked(100), panicked(150)] },
        Chunk { track: 1, lost: 0, records: vec![Record::new(110 * MS, Event::LifoHit { task: 1 })] },
    ];
    let whole = Flush { at_ns: 160 * MS, complete_until_ns: 160 * MS, chunks, ..Flush::default() };
    for (max_files, max_records) in [(1, 3), (1, 2), (3, 3), (3, 2)] {
        let scratch = Scratch::new(&format!("end-{max_files}-{max_records}"));
        let mut recording = scratch.recording(&[On::Panic], max_files);
        let mut pieces = whole.clone().into_pieces(max_records).into_iter();
        while pieces.next().is_some_and(|piece| recording.take(piece).unwrap()) {}
        recording.close().unwrap();
        let mut reader = Reader::open(&recording.files[0]).unwrap();
        let mut times = Vec::new();
        while let Some(flush) = reader.next_flush().unwrap() {
            times.extend(flush.chunks.iter().flat_map(|chunk| &chunk.records).map(|record| record.at_ns() / MS));
        }
        assert_eq!(times, [100, 150, 110], "{max_files} files, pieces of {max_records} records");
        assert_eq!(recording.windows_written, 1);
    }
}

#[test]
fn a_buffered_snapshot_is_charged_its_size_in_memory() {
    let scratch = Scratch::new("held");
    let mut recording = scratch.recording(&[On::Stall], 1);
    recording.before_ns = u64::MAX;
    let snapshot = || Snapshot { workers: vec![Worker::default(); 64], ..Snapshot::default() };
    for at_ns in [10 * MS, 20 * MS, 30 * MS] {
        let made = Flush { snapshot: Some(Box::new(snapshot())), ..flush(at_ns, Outcome::Pending) };
        assert!(recording.take(made).unwrap());
    }
    let bytes = recording.held_weight * size_of::<Record>() as u64;
    let least = 3 * 64 * 2 * size_of_val(Worker::default().poll_time.counts()) as u64;
    assert!((least..least * 5 / 4).contains(&bytes), "{bytes} bytes of {least}");
    recording.before_ns = 0;
    assert!(recording.take(flush(40 * MS, Outcome::Pending)).unwrap());
    assert_eq!((recording.held.len() as u64, recording.held_weight), (1, 1), "what goes is taken off");
}

#[test]
fn losses_are_counted_up_to_the_end_of_the_recording() {
    let scratch = Scratch::new("lost");
    let mut recording = scratch.recording(&[], 1);
    for at_ns in [10 * MS, 20 * MS] {
        let mut made = flush(at_ns, Outcome::Pending);
        made.chunks[0].lost = u64::MAX;
        assert!(recording.take(made).unwrap());
    }
    recording.close().unwrap();
    assert_eq!((recording.records, recording.lost), (2, u64::MAX));
}

#[test]
fn a_file_is_named_for_the_program_whatever_that_is_called() {
    let named = |program: &str| {
        let path = name_of(&Head { program: program.into(), pid: 7, ..Head::default() });
        path.to_str().unwrap().rsplitn(3, '-').last().unwrap().to_owned()
    };
    assert_eq!(named("my shop/../\u{1b}[2J-x"), "myshop2J-x");
    assert_eq!([named(""), named("--"), named("-rf")], ["program", "program", "rf"]);
    assert_eq!(named(&"語".repeat(1000)), "語".repeat(21));
}

#[test]
fn a_poll_trigger_fires_at_its_limit_and_not_below() {
    let scratch = Scratch::new("poll");
    let mut recording = scratch.recording(&[On::Poll(Duration::from_millis(20))], 1);
    let ended = |took_ns| {
        let end = Event::PollEnd { task: 1, location: 0, outcome: Outcome::Pending, took_ns };
        let chunk = Chunk { track: 0, lost: 0, records: vec![Record::new(100 * MS, end)] };
        Flush { at_ns: 100 * MS, complete_until_ns: 100 * MS, chunks: vec![chunk], ..Flush::default() }
    };
    assert!(recording.take(ended(19_999_999)).unwrap() && recording.windows.open().is_none());
    assert!(recording.take(ended(20_000_000)).unwrap());
    let window = recording.windows.open().expect("a window is open");
    assert_eq!(window.trigger, Trigger::Poll { poll_ns: 20_000_000 });
    assert_eq!(window.trigger.to_string(), "a poll of 20 ms");
}

#[test]
fn a_delay_trigger_fires_at_its_limit_and_not_below() {
    let scratch = Scratch::new("delay");
    let mut recording = scratch.recording(&[On::Delay(Duration::from_millis(5))], 1);
    let begin = |delay_ns| {
        let begin = Event::PollBegin { task: 1, location: 0, delay_ns };
        let chunk = Chunk { track: 0, lost: 0, records: vec![Record::new(100 * MS, begin)] };
        Flush { at_ns: 100 * MS, complete_until_ns: 100 * MS, chunks: vec![chunk], ..Flush::default() }
    };
    assert!(recording.take(begin(4_999_999)).unwrap() && recording.windows.open().is_none());
    assert!(recording.take(begin(5_000_000)).unwrap() && recording.windows.open().is_some());
    recording.close().unwrap();
    assert_eq!((recording.records, recording.windows_written), (2, 1), "what was held, and what came up");
    assert!(recording.report(Why::Full).contains("--max-size"));
}
