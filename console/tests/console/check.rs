//! Tests of `volt-console check`: its output and exit code if limits are met and if they are
//! exceeded.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::program::{Folder, Program, Speech, VOLT};

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the console runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn assert_check_failed(output: &Output, part: &str) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(part) && !stderr.contains("panicked"), "{part:?} is not in: {stderr}");
}

#[test]
fn check_exits_with_0_and_prints_the_margin_within_limits() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let limits = ["check", "--max-poll", "50ms", "--max-poll", "p99=10ms", "--max-delay", "20ms", "--for", "300ms"];
    let output = run(&mut folder.console(&limits));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.starts_with("shop  pid ") && text.contains("watched for "), "{text}");
    assert!(
        text.contains("WITHIN    app: longest poll 999µs, limit 50.0ms; 0 of ")
            && text.contains("WITHIN    exporter: p99 poll"),
        "{text}"
    );
    assert!(text.ends_with("No limit was exceeded.\n") && output.stderr.is_empty(), "{text}");
}

#[test]
fn check_gives_its_verdict_to_a_closed_output_too() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    for arguments in [
        &["check", "--max-poll", "50ms", "--for", "200ms"][..],
        &["check", "--max-poll", "50ms", "--for", "200ms", "--json"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = folder.console(arguments);
        let status = command.stdin(Stdio::null()).stdout(writer).status().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn check_exits_with_1_and_lists_the_exceeded_limit_and_location() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    let output = run(&mut folder.console(&["check", "shop", "--max-poll", "50ms", "--for", "200ms"]));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("EXCEEDED  app: longest poll ") && text.contains("limit 50.0ms"), "{text}");
    assert!(text.contains("tasks spawned at src/main.rs:12:5: longest "), "{text}");
    assert!(text.contains("WITHIN    exporter") && text.contains("1 of 2 limits exceeded"), "{text}");

    let arguments = ["check", "--max-poll", "50ms", "--max-delay", "p99=1s", "--for", "200ms", "--json"];
    let output = run(&mut folder.console(&arguments));
    assert_eq!(output.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&json["program"], &json["is_within"], &json["broke"]), (&"shop".into(), &false.into(), &Value::Null));
    let first = &json["limits"][0];
    assert_eq!(
        (&first["runtime"], &first["measure"], &first["limit_ns"]),
        (&"app".into(), &"poll".into(), &50_000_000.into())
    );
    assert_eq!(first["locations"][0]["spawned_at"], "src/main.rs:12:5");
    assert_eq!(json["limits"].as_array().unwrap().len(), 4);
}

#[test]
fn a_single_runtime_can_be_checked_and_must_exist() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    let arguments = ["check", "--max-poll", "50ms", "--for", "200ms", "--runtime"];
    let output = run(folder.console(&arguments).arg("exporter"));
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    assert_check_failed(
        &run(folder.console(&arguments).arg("web")),
        "there is no runtime named \"web\"; the program has: app, exporter",
    );
}

#[test]
fn a_program_that_did_nothing_has_passed_nothing() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::WasStuck);
    let output = run(&mut folder.console(&["check", "--max-poll", "50ms", "--for", "200ms"]));
    assert_check_failed(&output, "no poll ended within 200ms: give the program work to do");
    assert!(output.stdout.is_empty());
}

#[test]
fn a_program_that_ends_before_the_time_is_over_has_not_passed() {
    let folder = Folder::new();
    let program = Program::start(&folder.socket(0), "shop", VOLT);
    let mut command = folder.console(&["check", "--max-poll", "50ms", "--for", "3600s"]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    program.wait_for_snapshots(3);
    drop(program);
    let output = child.wait_with_output().unwrap();
    assert_check_failed(&output, "of 1h00m, within the limits so far");
    assert!(output.stdout.is_empty());
}

#[test]
fn limits_exceeded_before_the_exit_are_reported() {
    let folder = Folder::new();
    let program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    let mut command = folder.console(&["check", "--max-poll", "50ms", "--for", "3600s"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    program.wait_for_snapshots(3);
    drop(program);
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{text}");
    assert!(text.contains("EXCEEDED  app") && text.contains("The check ended early"), "{text}");
}

#[test]
fn a_failed_check_and_one_without_a_limit_exit_with_2() {
    let folder = Folder::new();
    assert_check_failed(&run(&mut folder.console(&["check", "--max-poll", "1ms"])), "no Volt program is running");
    let _cut_off = Program::start(&folder.socket(0), "shop", Speech::CutOff);
    let limit = ["check", "--max-poll", "1ms", "--for", "200ms"];
    assert_check_failed(&run(&mut folder.console(&limit)), "closed the connection");
    for arguments in [&["check"][..], &["check", "--max-poll", "fast"], &["check", "--max-delay", "p0=1ms"]] {
        assert_check_failed(&run(&mut folder.console(arguments)), "--max-");
    }
    assert_check_failed(
        &run(&mut folder.console(&["check", "--max-poll", "1ms", "--for", "0s"])),
        "expected 100ms to 1h",
    );
}
