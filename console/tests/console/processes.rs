//! Tests of `volt-console processes`: its output and its errors.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use volt_telemetry::wire::{VERSION, Version};

use crate::program::{Folder, Program, Speech, VOLT};

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the console runs")
}

#[test]
fn processes_are_printed_for_people_and_for_programs() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let text = run(&mut folder.console(&["processes", "shop", "--sort", "steps"]));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("runtime app  processes 5 alive, 5 of 5 shown, by steps"), "{text}");
    assert!(text.contains("shop[2Jtill  Till  src/till.rs:4:5"), "{text}");
    assert!(!text.contains("runtime exporter"), "it has none: {text}");
    let json = run(&mut folder.console(&["processes", "shop", "--json", "--limit", "7", "--reverse"]));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let [app, exporter] = [0, 1].map(|at| &json["runtimes"][at]);
    assert_eq!((&json["program"], &app["runtime"]), (&"shop".into(), &"app".into()));
    assert_eq!((&app["query"]["rank"], &app["query"]["limit"]), (&"mailbox".into(), &7.into()));
    assert_eq!((&app["rows"][4]["pid"], &app["rows"][4]["mailbox_len"]), (&"local:4.0".into(), &40.into()));
    assert_eq!((&app["rows"][0]["busy_ns"], exporter["rows"].as_array().unwrap().len()), (&Value::Null, 0));
    let none = run(&mut folder.console(&["processes", "shop", "--runtime", "exporter"]));
    assert!(String::from_utf8(none.stdout).unwrap().contains("runtime exporter  processes 0 alive"));
}

#[test]
fn an_old_program_and_an_invalid_sort_order_are_refused() {
    let folder = Folder::new();
    let old = Version { minor: 2, ..VERSION };
    let _program = Program::start(&folder.socket(0), "shop", Speech::Volt(old));
    let output = run(&mut folder.console(&["processes", "shop"]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.contains("cannot list its processes, which needs version 1.3: build the program with a newer Volt"),
        "{stderr}"
    );
    let output = run(&mut folder.console(&["processes", "shop", "--sort", "colour"]));
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("possible values: mailbox, peak, lost, steps, busy, pid"), "{stderr}");
}
