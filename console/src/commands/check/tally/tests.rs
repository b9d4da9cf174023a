//! Tests of the sums and verdicts of a check, on hand-made snapshots.

use std::time::Duration;

use volt_telemetry::incident::{Blame, Frame, Incident};
use volt_telemetry::snapshot::{GlobalQueue, InFlight};

use super::*;

const MS: u64 = 1_000_000;

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

/// Returns a runtime at `at_ms` whose worker 0 has completed polls of these lengths since it was
/// built.
fn runtime(at_ms: u64, polls_ms: &[u64]) -> Snapshot {
    let mut worker = Worker::default();
    for ms in polls_ms {
        worker.poll_time.record(ms * MS);
        worker.schedule_delay.record(MS);
    }
    Snapshot { runtime: "app".into(), at_ns: at_ms * MS, workers: vec![worker], ..Snapshot::default() }
}

fn program(runtimes: impl IntoIterator<Item = Snapshot>) -> Program {
    Program { runtimes: runtimes.into_iter().collect(), ..Program::default() }
}

/// Returns the tally after these snapshots, in order.
fn seen(snapshots: impl IntoIterator<Item = Snapshot>) -> Tally {
    let mut tally = Tally::default();
    snapshots.into_iter().for_each(|snapshot| tally.take(&program([snapshot])));
    tally
}

fn verdict(tally: &Tally, measure: Measure, of: &str) -> Verdict {
    tally.judge(None, &[(measure, limit(of))]).remove(0)
}

#[test]
fn polls_before_the_watch_do_not_count() {
    let tally = seen([runtime(100, &[900]), runtime(200, &[900, 1, 2])]);
    let polls = verdict(&tally, Measure::Poll, "50ms");
    assert_eq!((polls.is_exceeded, polls.count, polls.over), (false, 2, 0));
    assert!(polls.measured_ns.is_some_and(|ns| ns < 3 * MS), "{polls:?}");
}

#[test]
fn a_poll_over_the_limit_exceeds_it_and_names_its_worker() {
    let tally = seen([runtime(100, &[]), runtime(200, &[1]), runtime(300, &[1, 80, 90])]);
    let polls = verdict(&tally, Measure::Poll, "50ms");
    assert!(polls.is_exceeded && polls.measured_ns.is_some_and(|ns| ns > 80 * MS), "{polls:?}");
    assert_eq!((polls.count, polls.over, polls.workers.len()), (3, 2, 1));
    assert!(!verdict(&tally, Measure::Poll, "100ms").is_exceeded);
    assert!(!verdict(&tally, Measure::Delay, "50ms").is_exceeded, "delays are something else");
}

#[test]
fn a_percentile_limit_permits_a_few_longer_polls() {
    let polls: Vec<u64> = (0..1000).map(|number| if number < 3 { 70 } else { 1 }).collect();
    let tally = seen([runtime(100, &[]), runtime(200, &polls)]);
    for (of, is_exceeded) in [("p99=20ms", false), ("p99.7=20ms", false), ("p99.8=20ms", true), ("max=20ms", true)] {
        let polls = verdict(&tally, Measure::Poll, of);
        assert_eq!((polls.is_exceeded, polls.over), (is_exceeded, 3), "{of}");
    }
}

#[test]
fn a_limit_inside_a_bucket_is_exceeded_only_if_proven() {
    // 51 and 52 ms share a bucket.
    let mut after = runtime(200, &[52]);
    let tally = seen([runtime(100, &[]), after.clone()]);
    let polls = verdict(&tally, Measure::Poll, "51ms");
    assert_eq!((polls.is_exceeded, polls.measured_ns), (false, Some(51 * MS)), "and what is shown fits the verdict");
    let blame =
        |longest_poll_ns| vec![Blame { spawned_at: "src/a.rs:1:1".into(), longest_poll_ns, ..Blame::default() }];
    after.blame = blame(52 * MS);
    let before = Snapshot { blame: blame(7 * MS), ..runtime(100, &[]) };
    let polls = verdict(&seen([before, after.clone()]), Measure::Poll, "51ms");
    assert_eq!((polls.is_exceeded, polls.measured_ns, polls.over), (true, Some(52 * MS), 1));
    assert_eq!(polls.places[0].0, "src/a.rs:1:1");
    let before = Snapshot { blame: blame(52 * MS), ..runtime(100, &[]) };
    assert!(!verdict(&seen([before, after]), Measure::Poll, "51ms").is_exceeded, "that was before the watch");
}

#[test]
fn a_poll_that_does_not_end_counts_as_long_as_it_has_lasted() {
    let stuck = |at_ms, for_ms: u64| {
        let mut runtime = runtime(at_ms, &[]);
        let poll = InFlight { spawned_at: "src/a.rs:1:1".into(), for_ns: for_ms * MS, ..InFlight::default() };
        runtime.workers[0].in_flight = Some(poll);
        runtime
    };
    let tally = seen([stuck(100, 30), stuck(200, 130)]);
    let polls = verdict(&tally, Measure::Poll, "50ms");
    assert_eq!((polls.is_exceeded, polls.measured_ns, polls.count), (true, Some(130 * MS), 1));
    assert!(verdict(&tally, Measure::Poll, "p50=50ms").is_exceeded, "it is the only one");
    assert_eq!(polls.workers.len(), 1);
    let tally = seen([stuck(100, 30), stuck(200, 130), runtime(300, &[140])]);
    assert_eq!(verdict(&tally, Measure::Poll, "50ms").count, 1, "once when it has ended");
}

#[test]
fn a_task_that_no_worker_takes_counts_as_a_delay() {
    let waits = |at_ms, age_ms: u64| Snapshot {
        global_queue: GlobalQueue { len: 1, oldest_age_ns: Some(age_ms * MS), ..GlobalQueue::default() },
        ..runtime(at_ms, &[])
    };
    let tally = seen([waits(100, 1), waits(200, 101)]);
    let delays = verdict(&tally, Measure::Delay, "20ms");
    assert_eq!((delays.is_exceeded, delays.measured_ns, delays.count), (true, Some(101 * MS), 1));
    let over = seen([waits(100, 101), runtime(200, &[])]);
    assert!(verdict(&over, Measure::Delay, "20ms").is_exceeded, "it did wait so long");
}

#[test]
fn the_line_of_a_stuck_poll_is_that_of_its_incident() {
    let frame = Frame { file: Some("src/pay.rs".into()), line: Some(40), is_user_code: true, ..Frame::default() };
    let incident = |is_over, began_ms: u64| Incident {
        began_at_ns: began_ms * MS,
        for_ns: 60 * MS,
        is_over,
        spawned_at: "src/a.rs:1:1".into(),
        stack: vec![frame.clone()],
        ..Incident::default()
    };
    let mut after = runtime(200, &[60]);
    after.incidents.latest = vec![incident(true, 110)];
    let polls = verdict(&seen([runtime(100, &[]), after.clone()]), Measure::Poll, "50ms");
    assert_eq!((polls.places[0].1.line.as_deref(), polls.measured_ns), (Some("src/pay.rs:40"), Some(60 * MS)));
    after.incidents.latest = vec![incident(true, 20)];
    let polls = verdict(&seen([runtime(100, &[]), after]), Measure::Poll, "50ms");
    assert!(polls.is_exceeded && polls.places.is_empty(), "that incident was over before: {polls:?}");
}

#[test]
fn no_worker_has_a_longer_poll_than_the_longest() {
    // At the lower end of its bucket: a histogram reports the middle of the bucket.
    let of = |at_ms, polls_ms: &[u64]| {
        let longest_poll_ns = polls_ms.iter().sum::<u64>() * MS;
        let blame = vec![Blame { spawned_at: "src/a.rs:1:1".into(), longest_poll_ns, ..Blame::default() }];
        Snapshot { blame, ..runtime(at_ms, polls_ms) }
    };
    let polls = verdict(&seen([of(100, &[]), of(200, &[59])]), Measure::Poll, "50ms");
    assert_eq!((polls.measured_ns, polls.workers), (Some(59 * MS), vec![(0, 1, 59 * MS)]));
}

#[test]
fn a_rebuilt_runtime_is_counted_anew_and_ended_ones_still_count() {
    let mut again = runtime(300, &[80]);
    again.started_at_ns = 250 * MS;
    let tally = seen([runtime(100, &[1]), runtime(200, &[1, 1]), again]);
    let polls = verdict(&tally, Measure::Poll, "50ms");
    assert_eq!((polls.is_exceeded, polls.count), (true, 2));

    let mut tally = Tally::default();
    tally.take(&program([runtime(100, &[])]));
    tally.take(&program([runtime(200, &[80]), Snapshot { runtime: "late".into(), ..runtime(200, &[90]) }]));
    tally.take(&program([]));
    let verdicts = tally.judge(None, &[(Measure::Poll, limit("50ms"))]);
    assert!(verdicts.iter().all(|verdict| verdict.is_exceeded) && verdicts.len() == 2, "{verdicts:?}");
    assert_eq!(tally.judge(Some("late"), &[(Measure::Poll, limit("50ms"))]).len(), 1);
}

#[test]
fn exceeded_limits_come_first_and_missing_histograms_are_marked() {
    let mut after = runtime(200, &[80]);
    let limits = [(Measure::Delay, limit("1s")), (Measure::Poll, limit("50ms"))];
    let verdicts = seen([runtime(100, &[]), after.clone()]).judge(None, &limits);
    assert_eq!([verdicts[0].is_exceeded, verdicts[1].is_exceeded], [true, false]);
    assert!(verdicts.iter().all(|verdict| !verdict.is_cut));
    after.incomplete = vec!["poll_time".into(), "schedule_delay".into()];
    assert!(verdict(&seen([runtime(100, &[]), after]), Measure::Poll, "50ms").is_cut);
}

#[test]
fn polls_before_the_watch_do_not_count_after_a_cut_either() {
    let fields = || vec!["poll_time".into(), "schedule_delay".into()];
    let cut = |at_ms| Snapshot { incomplete: fields(), ..runtime(at_ms, &[]) };
    for first in [runtime(100, &[900]), cut(100)] {
        let tally = seen([first, cut(200), runtime(300, &[900]), runtime(400, &[900, 1])]);
        let polls = verdict(&tally, Measure::Poll, "50ms");
        assert_eq!((polls.is_exceeded, polls.over, polls.count, polls.is_cut), (false, 0, 1, true));
        assert_eq!(verdict(&tally, Measure::Delay, "50ms").count, 1);
    }
}

#[test]
fn a_program_of_ever_new_places_does_not_fill_the_memory() {
    let blame = |number: u64| Blame { spawned_at: format!("src/{number}.rs:1:1"), ..Blame::default() };
    let mut tally = Tally::default();
    for round in 0..4 {
        let blame = (0..500).map(|number| blame(round * 500 + number)).collect();
        tally.take(&program([Snapshot { blame, ..runtime(100 + round, &[]) }]));
    }
    assert_eq!(tally.runtimes[0].places.len(), PLACES_MAX);
}

#[test]
fn limits_are_read_as_they_are_written() {
    for (text, quantile, ms) in
        [("50ms", 1.0, 50), ("max=2s", 1.0, 2000), ("p99=20ms", 0.99, 20), ("p99.9=0.5s", 0.999, 500)]
    {
        assert_eq!(limit(text), Limit { quantile, time: Duration::from_millis(ms) }, "{text}");
    }
    for bad in
        ["", "50", "0ms", "p99", "p101=1ms", "p0=1ms", "p-1=1ms", "q99=1ms", "pNaN=1ms", "p99=0s", "max=", "=5ms"]
    {
        assert!(bad.parse::<Limit>().is_err(), "{bad}");
    }
}
