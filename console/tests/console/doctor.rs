//! Tests of `volt-console doctor`: its output, its timing, and its exit code.

use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::program::{Folder, Program, Speech, VOLT};

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the console runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_healthy_program_gives_0_and_lists_the_checks() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let output = run(&mut folder.console(&["doctor", "--for", "200ms"]));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.starts_with("shop  pid "), "{text}");
    assert!(text.contains("Nothing found. Checked ") && text.contains("across 2 runtimes with 4 workers"), "{text}");
}

#[test]
fn a_stuck_program_gives_1_and_names_the_task_and_the_place() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    let output = run(&mut folder.console(&["doctor", "shop", "--for", "200ms"]));
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for part in
        ["CRITICAL  stalled-poll  in runtime app", "task 7 \"check[2Jout\"", "src/main.rs:12:5", "Found: 1 critical."]
    {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    assert_eq!(text.matches("stalled-poll").count(), 1, "more than one report:\n{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_stuck_poll_is_printed_before_the_second_snapshot() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    let mut command = folder.console(&["doctor", "--for", "3600s"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let advice = lines.take_while(|line| !line.contains("Found")).find(|line| line.contains("> Await time::sleep"));
    // The second snapshot would be taken after an hour.
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(advice.is_some());
}

#[test]
fn one_object_of_json_has_the_findings_with_their_runtime() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    for wait in ["0s", "200ms"] {
        let output = run(&mut folder.console(&["doctor", "--json", "--for", wait]));
        assert_eq!(output.status.code(), Some(1));
        let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
        assert_eq!((&json["program"], &json["worst"]), (&"shop".into(), &"critical".into()));
        let findings = json["findings"].as_array().unwrap();
        assert_eq!(findings.len(), 1, "{json}");
        assert_eq!((&findings[0]["rule"], &findings[0]["runtime"]), (&"stalled-poll".into(), &"app".into()));
        assert_eq!(findings[0]["tasks"][0]["name"], "check[2Jout");
    }
}

#[test]
fn the_level_decides_the_exit_code() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::WasStuck);
    for (level, code) in [("info", 1), ("warning", 0), ("critical", 0)] {
        let output = run(&mut folder.console(&["doctor", "--for", "100ms", "--fail-on", level]));
        assert_eq!(output.status.code(), Some(code), "{level}: {}", stdout(&output));
        assert!(stdout(&output).contains("INFO  stalled-poll"), "findings below the level are printed, too");
    }
}

#[test]
fn doctor_gives_its_verdict_to_a_closed_output_too() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stuck);
    for arguments in [&["doctor", "--for", "200ms"][..], &["doctor", "--json", "--for", "0s"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = folder.console(arguments);
        let status = command.stdin(Stdio::null()).stdout(writer).status().unwrap();
        assert_eq!(status.code(), Some(1), "{arguments:?}");
    }
}

#[test]
fn a_failed_check_gives_2() {
    let folder = Folder::new();
    let _cut_off = Program::start(&folder.socket(0), "shop", Speech::CutOff);
    for arguments in
        [&["doctor"][..], &["doctor", "nobody"], &["doctor", "--for", "7ms"], &["doctor", "--fail-on", "fatal"]]
    {
        let output = run(&mut folder.console(arguments));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(!stderr.is_empty() && !stderr.contains("panicked"), "{arguments:?}: {stderr}");
    }
}
