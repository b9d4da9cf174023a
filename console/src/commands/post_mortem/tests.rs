//! Tests of the report on a black box.

use volt_recording::black_box::{Ending, Poll};
use volt_telemetry::Phase;
use volt_telemetry::recording::black_box::{
    FileName, HEAD_BYTES, IDENTITY_AT, Identity, MAGIC, Memory, Sample, VERSION, checksum, word,
};
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::{Anchor, Chunk, Table, Text};
use volt_telemetry::recording::record::Record;
use volt_telemetry::snapshot::Snapshot;
use volt_telemetry::wire;

use super::ending::How;
use super::found::cleaned;
use super::*;

const MS: u64 = 1_000_000;

fn found(how: How) -> Found {
    let anchor = Anchor { at_ns: MS, unix_ns: Some(1_764_135_000_000 * MS), ..Anchor::default() };
    let identity = Identity {
        pid: 7,
        program: "shop".into(),
        runtime: "api\u{1b}[31m".into(),
        executable: Some("/usr/bin/shop".into()),
        build_id: Some("c0ffee".into()),
        volt: "1.2.3".into(),
        anchor,
        ..Identity::default()
    };
    let poll = Poll {
        task_id: 42,
        task_name: Some("checkout".into()),
        spawned_at: Some("src/shop.rs:12:5".into()),
        began_at_ns: 1_000 * MS,
    };
    let worker = |index, phase, poll| Worker {
        track: Track::Worker { index },
        phase,
        phase_since_ns: 4_000 * MS,
        poll,
        thread_id: Some(70),
    };
    let memory = Memory {
        resident_bytes: Some(3 << 19),
        group_bytes: Some(5 << 20),
        group_max_bytes: Some(6 << 20),
        ..Memory::default()
    };
    let snapshot = Box::new(Snapshot { at_ns: 3_900 * MS, ..Snapshot::default() });
    let records = (0..3).map(|n| Record::new((4_000 + n) * MS, Event::Spawn { task: n, location: 1 })).collect();
    let mut black_box = BlackBox {
        identity,
        checked_at_ns: 4_200 * MS,
        workers: vec![worker(0, Phase::Busy, Some(poll)), worker(1, Phase::Parked, None)],
        samples: vec![Sample { snapshot, memory }],
        chunks: vec![Chunk { track: 0, lost: 5, records }],
        tracks: Track::all(2, 0).collect(),
        ..BlackBox::default()
    };
    black_box.texts.add(&Text::new(Table::Location, 1, "src/shop.rs:12:5"));
    Found { path: "/dev/shm/x.voltbox".into(), black_box: cleaned(black_box), how, memory_kills: None }
}

fn report(found: &Found) -> String {
    text::text(found, 2, None, TextStyle::PLAIN)
}

#[test]
fn the_report_names_worker_task_line_and_time() {
    let text = report(&found(How::Killed));
    for line in [
        "shop  pid 7  runtime api[31m",
        "killed or crashed at about 2025-11-26 05:30:04.199 UTC (last sign of life), after 4.1s",
        "executable /usr/bin/shop, build id c0ffee, Volt 1.2.3",
        "  worker 0  thread 70  polled task checkout #42 for 3.2s, spawned at src/shop.rs:12:5",
        "  worker 1  thread 70  was parked for 200ms",
        "  resident 1.5 MiB",
        "  control group 5.0 MiB, limit 6.0 MiB",
        "Findings, 300ms before the last sign of life:",
        "Last events, 2 of 3, by the time before the last sign of life:",
        "     198ms  worker 0    spawns task 2, spawned at src/shop.rs:12:5",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in:\n{text}");
    }
    assert!(!text.contains("spawns task 0"), "only the last two events");
}

#[test]
fn each_ending_has_its_own_verdict() {
    let verdict = |how, kills| {
        let mut found = found(how);
        found.memory_kills = kills;
        report(&found).lines().nth(1).unwrap().to_owned()
    };
    assert!(verdict(How::Runs, None).starts_with("still runs"));
    assert!(verdict(How::ShutDown, None).starts_with("the runtime was shut down at 2025-11-26"));
    assert!(verdict(How::Exited, None).starts_with("the program exited at"));
    assert!(verdict(How::Killed, Some(1)).contains("the OOM killer has killed"));
    assert!(!verdict(How::Killed, Some(0)).contains("OOM"));
    let mut idle = found(How::Killed);
    assert!(!report(&idle).contains("may have ended later"));
    idle.black_box.workers[0] = idle.black_box.workers[1].clone();
    assert!(report(&idle).contains("all workers were parked, so it may have ended later"));
}

#[test]
fn json_has_the_poll_in_flight_and_the_ending() {
    let value = json(&found(How::Killed), 1);
    let poll = &value["workers"][0]["in_flight"];
    assert_eq!((&poll["task_id"], &poll["for_ns"]), (&json!(42), &json!(3_200 * MS)));
    assert_eq!((&value["ended"], &value["last_sign_ns"]), (&json!("killed"), &json!(4_200 * MS)));
    assert_eq!((value["events"].as_array().unwrap().len(), &value["events_kept"]), (1, &json!(3)));
    assert_eq!((&value["events_lost"], &value["memory"]["resident_bytes"]), (&json!(5), &json!(3 << 19)));
}

#[test]
fn a_shut_down_runtime_is_not_reported_as_killed() {
    let mut found = found(How::Killed);
    found.black_box.ending = Ending::ShutDown(4_300 * MS);
    assert_eq!(How::of(&found.path, &found.black_box), How::ShutDown);
    assert_eq!(found.black_box.last_sign_ns(), 4_300 * MS);
}

#[test]
fn of_a_directory_the_run_that_ended_last_is_shown() {
    let dir = std::env::temp_dir().join(format!("volt-post-mortem-{}", std::process::id()));
    std::fs::create_dir(&dir).unwrap();
    // The program that started first has ended last.
    for (pid, began_ms, lasted_ms) in [(1, 1_000, 9_000), (2, 2_000, 1_000)] {
        let anchor = Anchor { unix_ns: Some(began_ms * MS), ..Anchor::default() };
        let identity = Identity { pid, anchor, ..Identity::default() };
        let frame = wire::encode(&identity, HEAD_BYTES - IDENTITY_AT).unwrap();
        let identity = &frame[4..];
        let mut head = vec![0; HEAD_BYTES];
        head[IDENTITY_AT..][..identity.len()].copy_from_slice(identity);
        for (index, value) in [
            (word::MAGIC, MAGIC),
            (word::VERSION, VERSION),
            (word::RING_RECORDS, 1024),
            (word::IDENTITY_BYTES, identity.len() as u64),
            (word::IDENTITY_CHECKSUM, checksum(identity)),
            (word::BEAT_NS, lasted_ms * MS),
        ] {
            head[index * 8..][..8].copy_from_slice(&value.to_le_bytes());
        }
        std::fs::write(dir.join(FileName::new("shop", began_ms, pid, 1, "api").to_string()), head).unwrap();
    }
    let options = Options { events: 1, as_json: true, output: None, style: TextStyle::PLAIN };
    let mut out = Vec::new();
    let shown = run(&dir, &options, &mut out);
    std::fs::remove_dir_all(&dir).unwrap();
    shown.unwrap();
    let value: Value = serde_json::from_slice(&out).unwrap();
    let boxes = value["black_boxes"].as_array().unwrap();
    assert_eq!((boxes.len(), &boxes[0]["identity"]["pid"]), (1, &json!(1)));
}

#[test]
fn times_are_printed_as_dates() {
    let times = [0, 951_782_400, 1_709_164_800, 4_107_542_399].map(|seconds: u64| text::utc(seconds * 1000 * MS));
    let expected = ["1970-01-01 00:00:00", "2000-02-29 00:00:00", "2024-02-29 00:00:00", "2100-02-28 23:59:59"];
    assert_eq!(times, expected.map(|time| format!("{time}.000 UTC")));
}
