//! Tests of the output of `volt-console doctor`: its text, its JSON and its verdict.

use super::*;
use volt_telemetry::incident::{Cause, Frame, Incident};
use volt_telemetry::rule::Rule;

use crate::text::figures::width;

const WIDE: TextStyle = TextStyle { columns: 80, has_colors: false };

/// A program whose worker 0 has been stuck for `for_ms` at `at_ms`.
fn program(at_ms: u64, for_ms: u64) -> Program {
    let guilty = Frame {
        function: Some("shop::pay::wait_for_the_bank".into()),
        file: Some("src/pay.rs".into()),
        line: Some(40),
        is_user_code: true,
        ..Frame::default()
    };
    let incident = Incident {
        id: 1,
        began_at_ns: (at_ms - for_ms) * 1_000_000,
        for_ns: for_ms * 1_000_000,
        task_id: 7,
        task_name: Some("check\u{1b}[2Jout".into()),
        spawned_at: "src/main.rs:12:5".into(),
        cause: Cause::Sleep,
        stack: vec![guilty],
        ..Incident::default()
    };
    let mut runtime = Snapshot { runtime: "app".into(), at_ns: at_ms * 1_000_000, ..Snapshot::default() };
    runtime.incidents.latest.push(incident);
    Program { pid: 7, name: "shop".into(), at_ns: runtime.at_ns, runtimes: vec![runtime], ..Program::default() }
}

/// Returns the findings in the last of these snapshots.
fn reported(snapshots: &[&Program]) -> Vec<Reported> {
    let mut watch = Watch::default();
    let judge = |program: &&Program| watch.filled(&clean::program((*program).clone())).into_owned();
    findings(snapshots.iter().map(judge).last().as_ref().unwrap())
}

#[test]
fn text_names_the_task_the_line_the_cause_and_what_to_do() {
    let reported = text(&reported(&[&program(900, 300)]), WIDE);
    let reported = reported.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "CRITICAL stalled-poll in runtime app",
        "task 7 \"check[2Jout\" has blocked worker 0 for 300 ms (cause: sleep)",
        "at src/pay.rs:40",
        "src/pay.rs:40 in shop::pay::wait_for_the_bank",
        "spawned at src/main.rs:12:5",
        "cause: sleep, the thread sleeps in the kernel",
        "action of the runtime: none",
        "> Await time::sleep",
    ] {
        assert!(reported.contains(part), "{part:?} is not in:\n{reported}");
    }
}

#[test]
fn workers_and_tasks_of_a_finding_do_not_read_as_counts() {
    let mut reported = reported(&[&program(900, 300)]);
    assert_eq!((&reported[0].finding.workers[..], reported[0].finding.tasks.len()), (&[0][..], 1));
    let one = text(&reported, WIDE);
    assert!(one.contains("\n    - worker 0\n    - task 7 \"check[2Jout\"\n"), "{one}");
    reported[0].finding.workers.push(2);
    reported[0].finding.tasks.push(TaskName { id: 9, name: None });
    let two = text(&reported, WIDE);
    assert!(two.contains("\n    - workers 0, 2\n    - tasks 7 \"check[2Jout\", 9\n"), "{two}");
    (reported[0].finding.workers, reported[0].finding.tasks) = (Vec::new(), Vec::new());
    let none = text(&reported, WIDE);
    assert!(!none.contains("- worker ") && !none.contains("- task "), "{none}");
}

#[test]
fn the_title_line_has_the_time_of_a_kept_finding() {
    let mut reported = reported(&[&program(900, 300)]);
    let at_ns = reported[0].at_ns;
    for (ago_ms, held) in [(0, ""), (1_999, ""), (8_700, ", last seen 8 s ago")] {
        reported[0].at_ns = at_ns + ago_ms * 1_000_000;
        let text = text(&reported, WIDE);
        let wanted = format!("CRITICAL  stalled-poll  in runtime app{held}\n");
        assert!(text.starts_with(&wanted), "{ago_ms} ms: {text}");
    }
}

#[test]
fn doctor_output_has_no_control_characters() {
    let (first, second) = (program(900, 300), program(1_900, 1_300));
    let all = reported(&[&first, &second]);
    let both = text(&all, WIDE) + &json(&first, &second, &all).to_string();
    assert!(both.contains("check[2Jout"), "{both}");
    assert!(!both.contains('\u{1b}') && !both.contains("\\u001b"), "{both}");
}

#[test]
fn no_line_is_wider_than_the_terminal_unless_a_word_is() {
    for columns in [40, 80, 120] {
        let reported = reported(&[&program(900, 300)]);
        let reported = text(&reported, TextStyle { columns, has_colors: false });
        for line in reported.lines() {
            assert!(width(line) <= columns || line.split_whitespace().count() <= 2, "{columns}: {line}");
        }
    }
    assert_eq!(paragraph("- ", "  ", "one two three", 7), "- one\n  two\n  three\n");
    assert_eq!(paragraph("", "", "one muchlonger two", 5), "one\nmuchlonger\ntwo\n");
}

#[test]
fn colours_are_optional_and_severity_words_are_always_shown() {
    let reported = reported(&[&program(900, 300)]);
    let colored = text(&reported, TextStyle { columns: 80, has_colors: true });
    assert!(colored.starts_with("\u{1b}[1;31mCRITICAL\u{1b}[0m"), "{colored}");
    assert!(!text(&reported, WIDE).contains('\u{1b}'));
}

#[test]
fn findings_of_the_first_snapshot_are_repeated_only_if_worse() {
    let stuck = |for_ms| reported(&[&program(900, for_ms)]);
    let (all, news) = join(stuck(300), stuck(300));
    assert_eq!((all.len(), news.len()), (1, 0));
    assert!(!text(&stuck(300), WIDE).contains("reported above"));
    let (all, news) = join(stuck(30), stuck(300));
    assert_eq!((all.len(), news.len()), (1, 1));
    assert_eq!(all[0].finding.severity, Severity::Critical);
    let text = text(&news, WIDE);
    assert!(text.starts_with("CRITICAL  stalled-poll  in runtime app, reported above as a warning\n"), "{text}");
    let (all, news) = join(stuck(300), Vec::new());
    assert_eq!((all.len(), news.len()), (1, 0), "a stall that is over was one");
}

#[test]
fn a_stall_whose_stack_is_read_meanwhile_is_one_finding() {
    let mut first = program(900, 300);
    let second = first.clone();
    first.runtimes[0].incidents.latest[0].stack.clear();
    let (all, news) = join(reported(&[&first]), reported(&[&second]));
    assert_eq!((all.len(), news.len()), (1, 1));
    assert_eq!(all[0].finding.locations[0].at(), "src/pay.rs:40");
}

#[test]
fn a_stall_whose_stack_is_read_meanwhile_is_as_bad_as_it_was() {
    let mut first = program(900, 300);
    let mut second = first.clone();
    first.runtimes[0].incidents.latest[0].stack.clear();
    second.runtimes[0].incidents.latest[0].is_over = true;
    let milder = reported(&[&second]);
    assert_eq!(milder[0].finding.severity, Severity::Warning);
    let (all, news) = join(reported(&[&first]), milder);
    assert_eq!((all.len(), news.len(), worst(&all)), (1, 1, Some(Severity::Critical)));
    assert_eq!(all[0].finding.locations[0].at(), "src/pay.rs:40");
    let (all, news) = join(reported(&[&first]), Vec::new());
    assert_eq!((all.len(), news.len(), worst(&all)), (1, 0, Some(Severity::Critical)), "nothing replaces it");
}

#[test]
fn a_past_finding_shows_its_times_and_does_not_fail() {
    let mut first = program(900, 300);
    first.runtimes[0].incidents.latest[0].is_over = true;
    let mut later = first.clone();
    later.runtimes[0].at_ns += 125_000_000_000;
    let past = reported(&[&first, &later]);
    assert_eq!((past.len(), past[0].finding.severity), (1, Severity::Info));
    assert_eq!((at_once(&later), worst(&past)), (Vec::new(), None));
    let text = text(&past, WIDE);
    assert!(text.starts_with("PAST  stalled-poll"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("worst severity warning; began 2 min 5 s ago, last seen 2 min 5 s ago, in 1 check"));
    let summary = summary(&first, &later, &past, WIDE);
    assert!(summary.starts_with("Found: 1 past. Checked"), "{summary}");
}

#[test]
fn the_verdict_of_the_program_is_the_one_that_is_printed() {
    let mut program = program(900, 300);
    program.runtimes[0].findings = Some(Vec::new());
    assert_eq!(reported(&[&program]), []);
}

#[test]
fn a_report_without_findings_lists_the_checks() {
    let at = |at_ns| Program {
        runtimes: vec![Snapshot { runtime: "app".into(), at_ns, ..Snapshot::default() }],
        at_ns,
        ..Program::default()
    };
    let (first, second) = (at(1_000_000_000), at(2_000_000_000));
    let reported = summary(&first, &second, &reported(&[&first, &second]), WIDE);
    let begin = format!("Nothing found. Checked {} rules across 1 runtime with 0 workers over 1 s.\n", Rule::COUNT);
    assert!(reported.starts_with(&begin), "{reported}");
    assert!(
        reported.contains("Not checked, because the program does not report") && reported.contains("cpu-starved"),
        "{reported}"
    );
    assert!(summary(&first, &first, &[], WIDE).contains("in one snapshot"), "without an interval");
}

#[test]
fn findings_that_found_no_room_are_counted_in_text_and_json() {
    let mut program = program(900, 300);
    program.runtimes[0].findings = Some(Vec::new());
    program.runtimes[0].findings_left_out = Some(3);
    let text = summary(&program, &program, &[], WIDE);
    assert!(text.contains("3 findings omitted: the program keeps at most 64 for each runtime."), "{text}");
    assert_eq!(json(&program, &program, &[])["findings_left_out"], 3);
}

#[test]
fn json_has_the_findings_and_the_rules_that_were_not_checked() {
    let (first, second) = (program(900, 300), program(1_900, 1_300));
    let json = json(&first, &second, &reported(&[&first, &second]));
    assert_eq!((&json["program"], &json["interval_ns"]), (&json!("shop"), &json!(1_000_000_000)));
    assert_eq!(json["worst"], "critical");
    assert_eq!(
        (&json["findings"][0]["rule"], &json["findings"][0]["runtime"]),
        (&json!("stalled-poll"), &json!("app"))
    );
    assert_eq!(json["rules"].as_array().unwrap().len(), Rule::COUNT);
    assert!(json["not_checked"].as_array().unwrap().contains(&json!("cpu-starved")));
}
