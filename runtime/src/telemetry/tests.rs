//! Tests that the public paths below `volt::telemetry` do not depend on which crate defines a type.

/// Compiles only if both paths lead to the same type.
fn same<T>(_: fn(T), _: fn(T)) {}

#[test]
fn the_doctor_is_in_one_place_whatever_crate_defines_it() {
    use crate::telemetry::doctor::{self, course, finding, history, rule, watch};

    same(|_: finding::Finding| (), |_: doctor::Finding| ());
    same(|_: finding::Severity| (), |_: doctor::Severity| ());
    same(|_: finding::Evidence| (), |_: doctor::Evidence| ());
    same(|_: finding::Figure| (), |_: doctor::Figure| ());
    same(|_: finding::Place| (), |_: doctor::Place| ());
    same(|_: finding::Seen| (), |_: doctor::Seen| ());
    same(|_: finding::TaskName| (), |_: doctor::TaskName| ());
    same(|_: finding::Key| (), |_: doctor::Key| ());
    same(|_: rule::Rule| (), |_: doctor::Rule| ());
    same(|_: rule::RuleEntry| (), |_: doctor::RuleEntry| ());
    same(|_: history::History| (), |_: doctor::History| ());
    same(|_: watch::Watch| (), |_: doctor::Watch| ());
    same(|_: course::Course| (), |_: doctor::Course| ());
    same(|_: course::Turn| (), |_: doctor::Turn| ());
    assert_eq!(rule::RULES.len(), doctor::RULES.len());
    let snapshot = crate::telemetry::Snapshot::default();
    assert_eq!(rule::examine(&snapshot, &snapshot), doctor::examine(&snapshot, &snapshot));
    const { assert!(doctor::INTERVAL_MIN_NS < history::CHECKS_APART_NS) };
}

#[test]
fn data_rates_and_metrics_are_in_one_place() {
    use crate::telemetry::recording::{event, flush, record, trigger};
    use crate::telemetry::{self, catalog, rates, snapshot};

    same(|_: snapshot::Snapshot| (), |_: telemetry::Snapshot| ());
    let now = snapshot::Snapshot { at_ns: 1, ..snapshot::Snapshot::default() };
    assert!(rates::Rates::between(&now, &now).is_none());
    assert!(catalog::find(catalog::METRICS[0].name).is_some());
    let record = record::Record::new(1, event::Event::Return);
    let chunk = flush::Chunk { records: vec![record], ..flush::Chunk::default() };
    let mark = flush::Mark { trigger: trigger::Trigger::Request, ..flush::Mark::default() };
    let flush = flush::Flush { chunks: vec![chunk], marks: vec![mark], ..flush::Flush::default() };
    assert_eq!(flush.records(), 1);
}
