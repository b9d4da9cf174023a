//! Tests with hostile programs. Whatever numbers and strings a snapshot contains, no screen, nor
//! `top`, `stacks` and the tally of `check`, panics, and no escape sequence reaches the terminal.
//!
//! The tests change some fields of the fixture's snapshots: numbers become the ends of their
//! ranges, strings become escape sequences, and lists become empty or longer. For longer runs, use
//! `PROPTEST_CASES=20000 cargo test --release hostile`.

use std::time::Duration;

use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use serde_json::{Value, json};
use volt_diagnosis::doctor::rule::examine;
use volt_telemetry::snapshot::Program;
use volt_telemetry::wire::Hello;

use crate::commands::check::limit::Measure;
use crate::commands::check::tally::Tally;
use crate::commands::stacks;
use crate::commands::top;
use crate::fixture;
use crate::model::{Action, DEFAULT_INTERVAL, Message, Model, Screen};
use crate::text::clean;
use crate::view;
use crate::view::hits::Hits;
use crate::view::theme::Theme;

const EVIL: &str = "a\u{1b}]0;t\u{7}\u{9b}2J\r\n\u{202e}\u{200b}語e\u{301}\u{26a0}\u{fe0f}z";

/// A change to one value of a message.
#[derive(Clone, Debug)]
struct Change {
    /// The index of the value in the message, modulo the number of values.
    place: usize,
    number: u64,
    is_long: bool,
}

fn change() -> impl Strategy<Value = Change> {
    let ends = [0, 1, 63, 64, u64::from(u32::MAX), i64::MAX as u64, u64::MAX - 1, u64::MAX];
    let number = prop_oneof![prop::sample::select(ends.to_vec()), any::<u64>(), 0..1000_u64];
    (any::<usize>(), number, any::<bool>()).prop_map(|(place, number, is_long)| Change { place, number, is_long })
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(values) => values.values().map(count).sum(),
        _ => 0,
    }
}

/// Changes the value at `place`, or counts it and continues with the values inside.
fn apply(value: &mut Value, place: &mut usize, change: &Change) {
    if *place == 0 {
        *place = usize::MAX;
        return match value {
            Value::Number(_) => *value = json!(change.number),
            Value::String(text) => *text = if change.is_long { EVIL.repeat(300) } else { EVIL.into() },
            Value::Bool(is) => *is = !*is,
            Value::Null => *value = json!(change.number),
            Value::Array(values) if change.is_long => {
                let more: Vec<_> = values.iter().cycle().take(values.len() * 3).cloned().collect();
                *values = more;
            }
            Value::Array(values) => values.clear(),
            Value::Object(_) => {}
        };
    }
    *place -= 1;
    let inner: Vec<&mut Value> = match value {
        Value::Array(values) => values.iter_mut().collect(),
        Value::Object(values) => values.values_mut().collect(),
        _ => return,
    };
    for value in inner {
        if *place == usize::MAX {
            return;
        }
        apply(value, place, change);
    }
}

/// Returns `program` with these changes. Skips a change after which the message cannot be parsed.
fn changed(program: &Program, changes: &[Change]) -> Program {
    let mut value = json!(program);
    for change in changes {
        let mut next = value.clone();
        apply(&mut next, &mut (change.place % count(&value)), change);
        if serde_json::from_value::<Program>(next.clone()).is_ok() {
            value = next;
        }
    }
    serde_json::from_value(value).expect("it was one before")
}

#[track_caller]
fn assert_tame(text: &str) {
    let is_wild = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}' || c == '\u{200b}');
    assert!(!text.contains(is_wild) && !text.contains("\\u001b"), "{text:?}");
}

/// Prints what `top` and `stacks` print, as text and as JSON, and judges the snapshots.
fn print_all(earlier: &Program, later: &Program) {
    assert_tame(&top::text(earlier, later));
    assert_tame(&top::json(earlier, later).to_string());
    for is_all in [false, true] {
        assert_tame(&stacks::text(later, is_all));
        assert_tame(&stacks::json(later, is_all).to_string());
    }
    for runtime in &later.runtimes {
        for then in &earlier.runtimes {
            examine(then, runtime).iter().for_each(|finding| assert_tame(&finding.title));
        }
    }
    let mut tally = Tally::default();
    [earlier, later].into_iter().for_each(|program| tally.take(program));
    let limits = ["50ms", "p99=1ms"].map(|limit| (Measure::Poll, limit.parse().unwrap()));
    tally.judge(None, &limits).iter().for_each(|verdict| assert_tame(&verdict.runtime));
}

/// Draws every screen, at the smallest size and at a large one.
fn draw_all(earlier: &Program, later: &Program) {
    let mut model = Model::new(DEFAULT_INTERVAL);
    model.update(Message::Connected(Hello { program: EVIL.into(), ..Hello::default() }));
    for (step, program) in [earlier, later, earlier, later].into_iter().enumerate() {
        model.update(Message::Tick(Duration::from_millis(500) * step as u32));
        model.update(Message::Snapshot { program: Box::new(program.clone()), lost: step as u64 });
    }
    model.update(Message::Tasks(Box::new(fixture::tasks("app", 9, 2))));
    model.update(Message::Processes(Box::new(fixture::processes("app", 9, 2))));
    for size in [(80, 24), (200, 50)] {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        for screen in Screen::ALL {
            model.update(Message::Do(Action::Show(screen)));
            for action in [Action::Last, Action::ToggleDetail, Action::NextRuntime, Action::ToggleTotals] {
                model.update(Message::Do(action));
                terminal.draw(|frame| view::draw(frame, &model, Theme::new(true), &mut Hits::default())).unwrap();
                terminal.backend().buffer().content.iter().for_each(|cell| assert_tame(cell.symbol()));
            }
        }
    }
}

proptest! {
    // Failures are printed, and no file is written.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(
        std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(8),
    ) })]

    #[test]
    fn hostile_snapshots_cause_no_panic_and_no_escape_sequence(
        earlier in prop::collection::vec(change(), 0..24),
        later in prop::collection::vec(change(), 0..24),
    ) {
        let program = |step, changes: &[Change]| changed(&fixture::stalled(fixture::program(3, step), 7), changes);
        let (earlier, later) = (program(2, &earlier), program(3, &later));
        draw_all(&earlier, &later);
        print_all(&clean::program(earlier), &clean::program(later));
    }
}
