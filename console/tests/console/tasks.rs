//! Tests of `volt-console tasks`: its output and its errors.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use volt_telemetry::wire::{VERSION, Version};

use crate::program::{Folder, Program, Speech, VOLT};

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the console runs")
}

#[test]
fn tasks_are_printed_for_people_and_for_programs() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let text = run(&mut folder.console(&["tasks", "shop", "--runtime", "app", "--sort", "polls"]));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("runtime app  tasks 23 alive, 20 of 20 shown, by polls, 3 not polled yet"), "{text}");
    assert!(text.contains("shop[2Jclerk  src/shop.rs:120:5"), "{text}");
    let json =
        run(&mut folder.console(&["tasks", "shop", "--json", "--limit", "7", "--reverse", "--filter", "shop.rs:11"]));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let of = &json["runtimes"][1];
    assert_eq!((&json["program"], &of["runtime"]), (&"shop".into(), &"exporter".into()));
    assert_eq!((&of["query"]["limit"], &of["query"]["is_inverted"]), (&7.into(), &true.into()));
    assert_eq!(of["rows"].as_array().unwrap().len(), 10);
    assert_eq!((&of["rows"][0]["busy_ns"], &of["rows"][0]["delay_ns"]), (&110_000_000.into(), &Value::Null));
}

#[test]
fn a_list_in_another_order_is_requested_again() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let text = run(&mut folder.console(&["tasks", "shop", "--runtime", "app", "--sort", "delay"]));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("20 of 20 shown, by delay"), "{text}");
}

#[test]
fn an_old_program_and_an_invalid_sort_order_are_refused() {
    let folder = Folder::new();
    let old = Version { minor: 1, ..VERSION };
    let _program = Program::start(&folder.socket(0), "shop", Speech::Volt(old));
    let output = run(&mut folder.console(&["tasks", "shop"]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("cannot list its tasks, which needs version 1.2: build the program with a newer Volt"),
        "{stderr}"
    );
    let output = run(&mut folder.console(&["tasks", "shop", "--sort", "colour"]));
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("possible values: busy, longest, polls, delay, woken, wakers, age, id"), "{stderr}");
}

#[test]
fn the_numbers_as_text_are_ascii_on_request() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stalled);
    let text = run(&mut folder.console(&["top", "shop", "--once", "--ascii", "--plain"])).stdout;
    assert!(text.is_ascii() && text.windows(5).any(|part| part == b".park"), "{}", String::from_utf8_lossy(&text));
}
