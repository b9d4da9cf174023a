//! Tests of findings in messages: round trips, unknown rules and values, and bounds.

use serde::Serialize;

use super::message::MAX_WEIGHT;
use super::*;
use crate::snapshot::Snapshot;
use crate::wire::{MAX_REPLY_BYTES, decode, encode};

fn finding() -> Finding {
    Finding {
        rule: Rule::StalledPoll,
        severity: Severity::Warning,
        title: "it blocks".into(),
        evidence: vec![
            evidence("for_ns", Figure::Count(7), "for: 7 ns"),
            evidence("rate", Figure::Number(2.0), "rate: 2 a second"),
            evidence("cause", Figure::Text("sleep".into()), "cause: sleep"),
        ],
        workers: vec![3],
        tasks: vec![TaskName { id: 7, name: Some("checkout".into()) }],
        locations: vec![Place::Spawned { at: "src/main.rs:12:5".into() }],
        advice: "Do not.".into(),
        seen: Seen { first_at_ns: 5, last_at_ns: 9, worst: Severity::Warning, ..Seen::default() },
    }
}

fn evidence(key: &'static str, value: Figure, text: &str) -> Evidence {
    Evidence { key: key.into(), value, text: text.into() }
}

#[test]
fn findings_come_through_a_message_as_they_were() {
    let sent = Snapshot { findings: Some(vec![finding()]), ..Snapshot::default() };
    let frame = encode(&sent, MAX_REPLY_BYTES).unwrap();
    assert_eq!(decode::<Snapshot>(&frame[4..]).unwrap(), sent);
    let frame = encode(&Snapshot::default(), MAX_REPLY_BYTES).unwrap();
    assert_eq!(decode::<Snapshot>(&frame[4..]).unwrap().findings, None);
}

#[test]
fn unknown_findings_are_skipped_and_too_many_are_refused() {
    let mut json =
        serde_json::to_value(Snapshot { findings: Some(vec![finding(); 2]), ..Snapshot::default() }).unwrap();
    json["findings"][0]["rule"] = "of-tomorrow".into();
    let read: Snapshot = serde_json::from_value(json).unwrap();
    assert_eq!(read.findings, Some(vec![finding()]));
    let many = Snapshot { findings: Some(vec![finding(); MAX_WEIGHT]), ..Snapshot::default() };
    assert!(serde_json::from_value::<Snapshot>(serde_json::to_value(many).unwrap()).is_err());
}

/// Serializes `finding` as JSON, applies `change`, and reads the result.
fn read_with(change: impl Fn(&mut serde_json::Value)) -> Vec<Finding> {
    let mut json = serde_json::to_value(Snapshot { findings: Some(vec![finding()]), ..Snapshot::default() }).unwrap();
    change(&mut json["findings"][0]);
    serde_json::from_value::<Snapshot>(json).unwrap().findings.unwrap()
}

#[test]
fn an_unknown_place_or_number_costs_only_itself() {
    let of_tomorrow = serde_json::json!({ "kind": "awaits", "at": "src/main.rs:3", "since_ns": 5 });
    let read = read_with(|json| json["locations"].as_array_mut().unwrap().insert(0, of_tomorrow.clone()));
    assert_eq!(read, [finding()]);
    let of_tomorrow = serde_json::json!({ "key": "per_worker", "value": [1, 2], "text": "per worker: 1, 2" });
    let read = read_with(|json| json["evidence"].as_array_mut().unwrap().push(of_tomorrow.clone()));
    assert_eq!(read, [finding()]);
}

/// Lists of unknown elements, one byte each.
#[derive(Serialize)]
struct Hostile {
    findings: [HostileFinding; 1],
}

#[derive(Serialize)]
struct HostileFinding {
    rule: &'static str,
    severity: &'static str,
    evidence: Vec<()>,
    locations: Vec<()>,
    workers: Vec<u32>,
}

fn read_hostile(evidence: usize, locations: usize, workers: usize) -> std::io::Result<Snapshot> {
    let (evidence, locations, workers) = (vec![(); evidence], vec![(); locations], vec![0; workers]);
    let finding = HostileFinding { rule: "stalled-poll", severity: "info", evidence, locations, workers };
    decode(&encode(&Hostile { findings: [finding] }, MAX_REPLY_BYTES)?[4..])
}

#[test]
fn a_list_of_unknown_elements_is_bounded_as_it_is_read() {
    let findings = read_hostile(9, 9, 0).unwrap().findings.unwrap();
    assert_eq!((findings.len(), findings[0].evidence.len(), findings[0].locations.len()), (1, 0, 0));
    let over = MAX_WEIGHT + 1;
    for (evidence, locations, workers) in [(over, 0, 0), (0, over, 0), (0, 0, over)] {
        let error = read_hostile(evidence, locations, workers).unwrap_err().to_string();
        assert!(error.ends_with("a list of more than 16384"), "{error}");
    }
}

#[test]
fn every_field_survives_a_message() {
    let mut sent = finding();
    sent.evidence.push(evidence("ratio", Figure::Number(0.5), "ratio: 50 %"));
    let at = || "src/pay.rs:7".to_owned();
    sent.locations.push(Place::Guilty { at: at(), function: Some("pay".into()) });
    sent.locations.push(Place::Guilty { at: at(), function: None });
    let sent = Snapshot { findings: Some(vec![sent]), ..Snapshot::default() };
    let frame = encode(&sent, MAX_REPLY_BYTES).unwrap();
    assert_eq!(decode::<Snapshot>(&frame[4..]).unwrap(), sent);
}

#[test]
fn an_unknown_severity_is_a_warning() {
    let read = read_with(|json| {
        json["severity"] = "catastrophic".into();
        json["seen"]["worst"] = "catastrophic".into();
    });
    assert_eq!((read[0].severity, read[0].seen.worst), (Severity::Warning, Severity::Warning));
}

#[test]
fn the_history_is_one_line() {
    const SECOND: u64 = 1_000_000_000;
    let mut finding = finding();
    finding.seen = Seen { first_at_ns: 10 * SECOND, last_at_ns: 190 * SECOND, count: 45, ..finding.seen };
    assert_eq!(finding.history(190 * SECOND), "began 3 min ago, last seen just now, in 45 checks");
    finding.seen.is_current = false;
    let text = "worst severity warning; began 6 min 40 s ago, last seen 3 min 40 s ago, in 45 checks";
    assert_eq!(finding.history(410 * SECOND), text);
}
