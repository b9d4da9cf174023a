//! Tests of the export: its output is parsed, and read as Perfetto reads it.

use std::collections::HashMap;
use std::io::{self, Cursor};

use proptest::prelude::*;
use serde_json::Value;
use volt_telemetry::recording::event::{Ending, Event, Loss, Outcome, ParkTarget, Reason, Waker};
use volt_telemetry::recording::flush::{Anchor, Chunk, Flush, Head, Mark, Table, Text, Track};
use volt_telemetry::recording::record::Record;
use volt_telemetry::recording::trigger::Trigger;
use volt_telemetry::snapshot::{GlobalQueue, Snapshot, Worker};

use super::*;
use crate::scratch::Scratch;
use crate::writer::{MIN_FILE_BYTES, Settings, Writer};

/// Two workers, outside threads, the sentinel.
const TRACKS: [Track; 4] = [Track::Worker { index: 0 }, Track::Worker { index: 1 }, Track::Outside, Track::Sentinel];

/// Returns the bytes of a recording of these flushes.
fn recording(flushes: &[Flush]) -> Vec<u8> {
    let scratch = Scratch::new();
    let path = scratch.path().join("x.voltrec");
    let settings = Settings { path: path.clone(), max_file_bytes: 64 * MIN_FILE_BYTES, max_files: 1 };
    let head =
        Head { pid: 7, program: "server".into(), runtime: "main".into(), tracks: TRACKS.into(), ..Head::default() };
    let mut writer = Writer::create(settings, head).unwrap();
    flushes.iter().for_each(|flush| writer.write(flush).unwrap());
    writer.finish().unwrap();
    std::fs::read(path).unwrap()
}

/// Returns a flush of these events, by track and time.
fn flush(events: impl IntoIterator<Item = (u32, u64, Event)>) -> Flush {
    let mut chunks: Vec<Chunk> = (0..4).map(|track| Chunk { track, ..Chunk::default() }).collect();
    let mut until_ns = 0;
    for (track, at_ns, event) in events {
        until_ns = until_ns.max(at_ns);
        chunks[track as usize].records.push(Record::new(at_ns, event));
    }
    let anchor = Some(Anchor { at_ns: until_ns, unix_ns: Some(5), ..Anchor::default() });
    Flush { at_ns: until_ns, complete_until_ns: until_ns, anchor, chunks, ..Flush::default() }
}

fn poll_begin(task: u64, delay_ns: u32) -> Event {
    Event::PollBegin { task, location: 1, delay_ns }
}

fn poll_end(task: u64, took_ns: u32) -> Event {
    Event::PollEnd { task, location: 1, outcome: Outcome::Pending, took_ns }
}

fn wake(task: u64) -> Event {
    Event::Wake { task, location: 1, by: Waker::Task }
}

/// A closed slice: name, begin and end in ns, the arguments of both ends.
#[derive(Debug)]
struct Closed {
    tid: u64,
    name: String,
    from_ns: u64,
    until_ns: u64,
    begin: Value,
    end: Value,
}

/// A trace, read from top to bottom as Perfetto does.
#[derive(Debug, Default)]
struct Read {
    slices: Vec<Closed>,
    /// From which slice to which slice, by name.
    flows: Vec<(String, String)>,
    instants: Vec<(u64, String, Value)>,
    counters: Vec<(String, Value)>,
    names: HashMap<u64, String>,
    other: Value,
}

fn ns(line: &Value) -> u64 {
    (line["ts"].as_f64().expect("a time") * 1000.0).round() as u64
}

/// Parses the trace, and checks all invariants of `chrome_trace`.
fn read(trace: &[u8]) -> Read {
    let json: Value = serde_json::from_slice(trace).expect("JSON");
    let mut read = Read { other: json["otherData"].clone(), ..Read::default() };
    let mut open: HashMap<u64, Vec<(String, u64, Value)>> = HashMap::new();
    let (mut last, mut begun, mut ended) = (HashMap::new(), HashMap::new(), 0);
    for line in json["traceEvents"].as_array().expect("events") {
        let (tid, phase) = (line["tid"].as_u64().expect("a thread"), line["ph"].as_str().expect("a phase"));
        let name = line["name"].as_str().unwrap_or_default().to_owned();
        assert_eq!(line["pid"], 7);
        if phase == "M" {
            read.names
                .extend((name == "thread_name").then(|| (tid, line["args"]["name"].as_str().unwrap().to_owned())));
            continue;
        }
        let at_ns = ns(line);
        let before_ns = last.insert(tid, at_ns).unwrap_or(0);
        assert!(before_ns <= at_ns, "Never backwards: {line} after {before_ns}");
        let stack = open.entry(tid).or_default();
        match phase {
            "B" => stack.push((name, at_ns, line["args"].clone())),
            "E" => {
                let (name, from_ns, begin) = stack.pop().unwrap_or_else(|| panic!("Balanced: {line}"));
                let end = line["args"].clone();
                read.slices.push(Closed { tid, name, from_ns, until_ns: at_ns, begin, end });
            }
            "i" => read.instants.push((tid, name, line["args"].clone())),
            "C" => read.counters.push((name, line["args"].clone())),
            "s" | "f" => {
                let (inside, ..) = stack.last().unwrap_or_else(|| panic!("Flows resolve: {line} is in no slice"));
                assert_eq!((line["bp"].as_str(), line["cat"].as_str()), (Some("e"), Some("wake")));
                let id = line["id"].as_u64().expect("a number");
                if phase == "s" {
                    assert!(begun.insert(id, inside.clone()).is_none(), "Flows resolve: {line} begins twice");
                } else {
                    ended += 1;
                    let from = begun.get(&id).unwrap_or_else(|| panic!("Flows resolve: {line} has no begin"));
                    read.flows.push((from.clone(), inside.clone()));
                }
            }
            other => panic!("a phase {other}"),
        }
    }
    assert!(open.values().all(Vec::is_empty), "Balanced: {open:?}");
    assert_eq!(begun.len(), ended, "Flows resolve: each begin has one end");
    nested(&read.slices);
    read
}

/// Checks that two slices of a track are either nested or disjoint.
fn nested(slices: &[Closed]) {
    for (index, a) in slices.iter().enumerate() {
        for b in slices[..index].iter().rev().take(50).filter(|b| b.tid == a.tid) {
            let is_apart = b.until_ns <= a.from_ns || a.until_ns <= b.from_ns;
            let is_within = a.from_ns <= b.from_ns && b.until_ns <= a.until_ns;
            assert!(is_apart || is_within, "Nested: {a:?} and {b:?}");
        }
    }
}

fn export_of(flushes: &[Flush]) -> (Read, Exported) {
    let mut reader = Reader::new(Cursor::new(recording(flushes)), "x").unwrap();
    let mut trace = Vec::new();
    let exported = export(&mut reader, &mut trace, |_| {}).unwrap();
    (read(&trace), exported)
}

#[test]
fn a_wake_up_points_from_its_poll_to_the_poll_that_it_led_to() {
    let mut flush = flush([
        (0, 100, poll_begin(1, 0)),
        (0, 150, wake(2)),
        (0, 200, poll_end(1, 100)),
        (1, 160, poll_begin(2, 10)),
        (1, 190, poll_end(2, 30)),
    ]);
    flush.texts = vec![Text::new(Table::Location, 1, "/src/main.rs:7:9"), Text::new(Table::Task, 2, "feed \"x\"")];
    let (read, exported) = export_of(&[flush]);
    assert_eq!(read.flows, [("main.rs:7".to_owned(), "feed \"x\"".to_owned())]);
    assert_eq!((exported.polls, exported.flows, exported.lost), (2, 1, 0));
    assert_eq!(read.names[&2], "worker 0");
    assert_eq!(read.names[&4], "outside");
    let poll = read.slices.iter().find(|slice| slice.tid == 3).unwrap();
    assert_eq!((poll.from_ns, poll.until_ns), (160, 190));
    assert_eq!((&poll.begin["spawned_at"], &poll.begin["task"]), (&"/src/main.rs:7:9".into(), &2.into()));
    assert_eq!((&poll.begin["delay_ns"], &poll.end["outcome"]), (&10.into(), &"pending".into()));
    assert_eq!(read.other["clocks_at_end"], serde_json::json!([200, 0, 5, 0]));
}

#[test]
fn a_wake_outside_polls_gets_a_slice_only_if_a_poll_follows() {
    let (read, exported) = export_of(&[flush([
        (2, 100, Event::Wake { task: 5, location: 0, by: Waker::Outside }),
        (2, 110, Event::Spawn { task: 6, location: 0 }),
        (2, 120, wake(7)),
        (0, 130, poll_begin(5, 30)),
        (0, 140, poll_end(5, 10)),
        (0, 150, poll_begin(6, 40)),
        (0, 160, poll_end(6, 10)),
    ])]);
    let names: Vec<_> = read.flows.iter().map(|(from, to)| (from.as_str(), to.as_str())).collect();
    assert_eq!(names, [("wake", "task 5"), ("spawn", "task 6")]);
    assert_eq!(exported.flows, 2);
    let outside: Vec<_> = read.slices.iter().filter(|slice| slice.tid == 4).map(|slice| slice.name.as_str()).collect();
    assert_eq!(outside, ["wake", "spawn"], "the wake-up of 7 led nowhere");
    assert_eq!(read.slices[0].begin["by"], "outside");
}

#[test]
fn a_recording_that_begins_and_ends_in_a_poll_shows_both_whole() {
    let (read, exported) = export_of(&[flush([
        (0, 1_000, poll_end(1, 400)),
        (0, 1_100, poll_begin(2, 0)),
        (1, 1_500, Event::Unpark { reason: Reason::Io, slept_ns: 1_200 }),
    ])]);
    let found: Vec<_> = read.slices.iter().map(|slice| (slice.name.as_str(), slice.from_ns, slice.until_ns)).collect();
    assert_eq!(found, [("task 1", 600, 1_000), ("parked", 300, 1_500), ("task 2", 1_100, 1_500)]);
    assert_eq!(read.slices[0].begin["begin_lost"], true);
    assert_eq!((&read.slices[1].begin["begin_lost"], &read.slices[1].end["reason"]), (&true.into(), &"io".into()));
    assert_eq!(read.slices[2].end["unfinished"], true);
    assert_eq!(exported.polls, 2);
}

#[test]
fn lost_events_are_shown_in_a_trace_that_stays_balanced() {
    let mut second = flush([(0, 900, poll_end(3, 200)), (0, 950, Event::SearchBegin)]);
    second.chunks[0].lost = 42;
    let (read, exported) = export_of(&[flush([(0, 100, poll_begin(1, 0))]), second]);
    let found: Vec<_> = read.slices.iter().map(|slice| (slice.name.as_str(), slice.from_ns, slice.until_ns)).collect();
    let expected = [("task 1", 100, 100), ("42 events lost", 100, 700), ("task 3", 700, 900), ("search", 950, 950)];
    assert_eq!(found, expected);
    assert_eq!(read.slices[0].end["end_lost"], true);
    assert_eq!(exported.lost, 42);
}

#[test]
fn a_recording_with_excessive_loss_counts_is_exported() {
    let lossy = |at_ns, events: usize| {
        let mut made = flush([(0, at_ns, Event::SearchBegin), (1, at_ns, Event::SearchBegin)]);
        made.chunks.iter_mut().for_each(|chunk| chunk.lost = u64::MAX);
        made.chunks[0].records.truncate(events);
        made
    };
    let (_, exported) = export_of(&[lossy(100, 0), lossy(200, 1), lossy(300, 1)]);
    assert_eq!(exported.lost, u64::MAX);
}

#[test]
fn a_poll_without_a_recorded_end_ends_at_the_next_event() {
    let (read, _) = export_of(&[flush([
        (0, 100, poll_begin(1, 0)),
        (0, 200, poll_begin(2, 0)),
        (0, 250, poll_end(2, 50)),
        (0, 300, poll_begin(3, 0)),
        (0, 400, Event::SearchBegin),
        (0, 500, poll_end(4, 60)),
    ])]);
    let found: Vec<_> = read.slices.iter().map(|slice| (slice.name.as_str(), slice.from_ns, slice.until_ns)).collect();
    let expected =
        [("task 1", 100, 200), ("task 2", 200, 250), ("task 3", 300, 400), ("search", 400, 440), ("task 4", 440, 500)];
    assert_eq!(found, expected);
    assert_eq!((&read.slices[0].end["end_lost"], &read.slices[1].end["end_lost"]), (&true.into(), &Value::Null));
}

#[test]
fn activities_of_a_worker_between_polls_are_shown() {
    let (read, _) = export_of(&[flush([
        (0, 100, Event::SearchBegin),
        (0, 110, Event::StealMiss { victims: 1 }),
        (0, 120, Event::SearchEnd { is_hit: false }),
        (0, 130, Event::Park { target: ParkTarget::Driver }),
        (0, 135, Event::DriverIn),
        (0, 180, Event::DriverOut { events: 3, timers: 1 }),
        (0, 190, Event::Unpark { reason: Reason::Io, slept_ns: 60 }),
        (0, 195, Event::Steal { victim: 1, count: 4 }),
        (0, 200, poll_begin(1, 0)),
        (0, 210, poll_end(1, 10)),
    ])]);
    let found: Vec<_> = read.slices.iter().map(|slice| (slice.name.as_str(), slice.from_ns, slice.until_ns)).collect();
    let expected =
        [("search", 100, 120), ("driver", 135, 180), ("parked in the driver", 130, 190), ("task 1", 200, 210)];
    assert_eq!(found, expected);
    assert_eq!(read.slices[1].end["events"], 3);
    assert_eq!(read.slices[3].begin["from"], "steal");
    let points: Vec<_> = read.instants.iter().map(|(tid, name, _)| (*tid, name.as_str())).collect();
    assert_eq!(points, [(2, "steal miss"), (2, "steal")]);
}

#[test]
fn an_incident_is_on_the_track_of_its_worker() {
    let mut flush = flush([
        (1, 100, poll_begin(1, 0)),
        (3, 500, Event::Stall { incident: 9, worker: 1 }),
        (1, 900, poll_end(1, 800)),
    ]);
    flush.texts = vec![Text::new(Table::Incident, 9, "sleeps in the kernel")];
    flush.marks = vec![Mark { at_ns: 510, trigger: Trigger::Stall { incident: 9 }, ..Mark::default() }];
    let (read, _) = export_of(&[flush]);
    assert_eq!((read.slices[0].from_ns, read.slices[0].until_ns), (100, 900));
    let (tid, name, args) = &read.instants[0];
    assert_eq!((*tid, name.as_str(), &args["text"]), (3, "incident", &"sleeps in the kernel".into()));
    assert_eq!(read.instants[1].2["trigger"], "stall, incident 9");
}

#[test]
fn process_events_appear_on_the_track_where_they_occurred() {
    let (room, child) = (7 << 32 | 1, 9 << 32);
    let mut flush = flush([
        (0, 100, Event::ProcessStart { process: child, parent: 8 }),
        (0, 110, Event::MessageLost { process: room, loss: Loss::Refused }),
        (1, 120, Event::ProcessEnd { process: child, ending: Ending::Panicked, steps: 3 }),
        (1, 130, Event::ProcessRestart { supervisor: room }),
    ]);
    flush.texts = vec![Text::new(Table::Process, room, "lobby (chat::Room)")];
    let (read, _) = export_of(&[flush]);
    let points: Vec<_> = read.instants.iter().map(|(tid, name, _)| (*tid, name.as_str())).collect();
    assert_eq!(points, [(2, "process start"), (2, "message lost"), (3, "process end"), (3, "restart")]);
    let args: Vec<_> = read.instants.iter().map(|(_, _, args)| args).collect();
    assert_eq!((&args[0]["process"], &args[0]["parent"]), (&"9.0".into(), &7.into()));
    assert_eq!((&args[1]["process"], &args[1]["what"]), (&"7.1".into(), &"lobby (chat::Room)".into()));
    assert_eq!((&args[2]["reason"], &args[2]["steps"]), (&"panicked".into(), &3.into()));
}

#[test]
fn queue_lengths_come_from_the_snapshots() {
    let snapshot = Snapshot {
        at_ns: 150,
        global_queue: GlobalQueue { len: 12, ..GlobalQueue::default() },
        workers: vec![Worker { index: 0, ring_len: 3, batch_len: 1, is_lifo_filled: true, ..Worker::default() }],
        ..Snapshot::default()
    };
    let flush = Flush { snapshot: Some(Box::new(snapshot)), ..flush([(0, 100, poll_begin(1, 0))]) };
    let (read, _) = export_of(&[flush]);
    assert!(read.counters.contains(&("waiting".into(), serde_json::json!({"global queue": 12, "blocking": 0}))));
    assert!(read.counters.contains(&("queued".into(), serde_json::json!({"worker 0": 5}))));
    assert!(read.counters.iter().any(|(name, _)| name == "tasks"));
}

#[test]
fn a_snapshot_that_came_late_does_not_turn_time_back() {
    let snapshot = |at_ns| Flush { snapshot: Some(Box::new(Snapshot { at_ns, ..Snapshot::default() })), ..flush([]) };
    let mark = Mark { at_ns: 900, ..Mark::default() };
    let late = Flush { marks: vec![mark], complete_until_ns: 1_000, ..snapshot(950) };
    let (read, _) = export_of(&[Flush { complete_until_ns: 1_000, ..snapshot(1_000) }, late]);
    assert_eq!((read.counters.len(), read.instants.len()), (8, 1));
}

#[test]
fn a_recording_that_breaks_off_is_exported_up_to_there() {
    let flushes =
        [flush([(0, 100, poll_begin(1, 0)), (0, 200, poll_end(1, 100))]), flush([(0, 300, poll_begin(2, 0))])];
    let whole = recording(&flushes);
    let mut reader = Reader::new(Cursor::new(whole[..whole.len() - 100].to_vec()), "x").unwrap();
    let mut trace = Vec::new();
    let exported = export(&mut reader, &mut trace, |_| {}).unwrap();
    assert!(exported.broke.expect("it breaks off").is_truncated());
    assert_eq!(read(&trace).slices.len(), 2);
}

#[test]
fn an_export_to_a_closed_output_fails() {
    struct Closed;
    impl io::Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut reader = Reader::new(Cursor::new(recording(&[flush([])])), "x").unwrap();
    assert!(export(&mut reader, Closed, |_| {}).unwrap_err().is_broken_pipe());
}

#[test]
fn progress_increases_to_the_end() {
    let events = (0..5_000).flat_map(|n| [(0, n * 10, poll_begin(n, 0)), (0, n * 10 + 5, poll_end(n, 5))]);
    let mut reader = Reader::new(Cursor::new(recording(&[flush(events)])), "x").unwrap();
    let mut reported = Vec::new();
    export(&mut reader, io::sink(), |ratio| reported.push(ratio)).unwrap();
    assert!(reported.len() > 3 && reported.is_sorted() && reported.last() == Some(&1.0), "{reported:?}");
}

/// Any event of any kind, including kinds that only a later version has: any words form a record.
fn any_event() -> impl Strategy<Value = Event> {
    let words = (0_u64..32, 0_u64..8, any::<u64>(), any::<u64>());
    words.prop_map(|(kind, detail, subject, rest)| {
        Record::from_words([0, subject, kind | detail << 8 | rest << 16]).event()
    })
}

/// Events in an order that no runtime would produce: any kinds, few tasks, times that mostly
/// increase.
fn any_stream() -> impl Strategy<Value = Vec<Flush>> {
    let likely = prop_oneof![
        (0_u64..4, any::<u8>()).prop_map(|(task, delay)| poll_begin(task, delay.into())),
        (0_u64..4, any::<u8>()).prop_map(|(task, took)| poll_end(task, took.into())),
        (0_u64..4).prop_map(wake),
        (0_u64..4).prop_map(|task| Event::Spawn { task, location: 0 }),
        any::<u8>().prop_map(|slept| Event::Unpark { reason: Reason::Timer, slept_ns: slept.into() }),
    ];
    let event = prop_oneof![4 => likely, 1 => any_event()];
    let step = (0_u32..4, -3_i64..40, event);
    let parts = (prop::collection::vec(step, 0..40), prop::collection::vec(0_u64..2, 4), any::<bool>());
    prop::collection::vec(parts, 0..5).prop_map(|flushes| {
        let mut at_ns = 1_000_u64;
        flushes
            .into_iter()
            .map(|(steps, lost, has_snapshot)| {
                let mut made = flush(steps.into_iter().map(|(track, step, event)| {
                    at_ns = at_ns.saturating_add_signed(step);
                    (track, at_ns, event)
                }));
                made.chunks.iter_mut().zip(lost).for_each(|(chunk, lost)| chunk.lost = lost);
                made.snapshot = has_snapshot.then(|| Box::new(Snapshot { at_ns, ..Snapshot::default() }));
                made
            })
            .collect()
    })
}

proptest! {
    // A failing case is printed; no file is written.
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// A file may contain events that no recorder produces; the trace must be valid nevertheless.
    #[test]
    fn any_stream_of_events_gives_a_trace_that_is_in_order(flushes in any_stream()) {
        let (read, exported) = export_of(&flushes);
        prop_assert_eq!(read.flows.len() as u64, exported.flows);
        let lost: u64 = flushes.iter().map(Flush::lost).sum();
        prop_assert_eq!(exported.lost, lost);
        for slice in read.slices.iter().filter(|slice| slice.begin["task"].is_u64() && slice.tid <= 3) {
            prop_assert!(slice.from_ns <= slice.until_ns);
        }
    }
}

/// A simplified runtime of two workers: tasks wake each other; workers poll queued tasks, search
/// and sleep.
#[derive(Debug, Default)]
struct Outline {
    now_ns: u64,
    queue: std::collections::VecDeque<(u64, u64)>,
    queued: std::collections::HashSet<u64>,
    polling: [Option<(u64, u64)>; 2],
    events: Vec<(u32, u64, Event)>,
}

impl Outline {
    fn step(&mut self, worker: usize, task: u64, step_ns: u64) {
        self.now_ns += step_ns;
        let (now_ns, track) = (self.now_ns, worker as u32);
        match self.polling[worker].take() {
            Some((polled, from_ns)) if step_ns.is_multiple_of(2) => {
                self.events.push((track, now_ns, poll_end(polled, (now_ns - from_ns) as u32)));
            }
            Some(poll) => {
                self.polling[worker] = Some(poll);
                if self.queued.insert(task) {
                    self.queue.push_back((task, now_ns));
                    self.events.push((track, now_ns, wake(task)));
                }
            }
            None => match self.queue.pop_front() {
                Some((next, woken_at_ns)) => {
                    self.queued.remove(&next);
                    self.polling[worker] = Some((next, now_ns));
                    self.events.push((track, now_ns, poll_begin(next, (now_ns - woken_at_ns) as u32)));
                }
                None => {
                    self.queued.insert(task);
                    self.queue.push_back((task, now_ns));
                    self.events.push((2, now_ns, Event::Wake { task, location: 0, by: Waker::Outside }));
                }
            },
        }
    }
}

proptest! {
    // A failing case is printed; no file is written.
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// If a runtime made the events, nothing is missing: every poll with a wake-up has its arrow,
    /// however the events are split into flushes.
    #[test]
    fn every_wake_up_of_a_run_is_an_arrow_to_its_poll(
        steps in prop::collection::vec((0_usize..2, 0_u64..6, 1_u64..50), 0..300),
        cut in 1_usize..50,
    ) {
        let mut outline = Outline::default();
        steps.into_iter().for_each(|(worker, task, step_ns)| outline.step(worker, task, step_ns));
        let begins = outline.events.iter().filter(|(_, _, event)| matches!(event, Event::PollBegin { .. })).count();
        let flushes: Vec<_> = outline.events.chunks(cut).map(|events| flush(events.iter().copied())).collect();
        let (read, exported) = export_of(&flushes);
        prop_assert_eq!((exported.polls, exported.flows), (begins as u64, begins as u64));
        let polls = read.slices.iter().filter(|slice| slice.begin["task"].is_u64() && slice.tid <= 3);
        for poll in polls {
            prop_assert!(poll.begin["begin_lost"].is_null() && poll.end["end_lost"].is_null(), "{poll:?}");
        }
    }
}
