//! Tests of `volt-console dump`: its output and its errors.

use std::process::{Command, Output, Stdio};

use serde_json::Value;
use volt_telemetry::wire::{VERSION, Version};

use crate::program::{Folder, Program, Speech, VOLT};

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the console runs")
}

#[test]
fn a_dump_is_printed_for_people_and_for_programs() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let text = run(&mut folder.console(&["dump", "shop", "--runtime", "app"]));
    let text = String::from_utf8(text.stdout).unwrap();
    assert_eq!(
        text,
        "runtime app: 1 task: 1 waiting\n\n1 task waiting for 5 s, spawned at src/main.rs:3:1  #7 \"cle[2Jrk\"\n  \
         shop::pay  src/pay.rs:9\n"
    );
    let json = run(&mut folder.console(&["dump", "shop", "--json"]));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["program"], &json["runtimes"][1]["runtime"]), (&"shop".into(), &"exporter".into()));
    assert_eq!(json["runtimes"][0]["groups"][0]["chain"][0]["line"], 9);
}

#[test]
fn a_filter_without_a_match_is_named_by_dump_and_tasks() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let text = |verb: &str, filter: &str| {
        let output = run(&mut folder.console(&[verb, "shop", "--runtime", "app", "--filter", filter]));
        assert!(output.status.success(), "{verb}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(text("dump", "zzz"), "runtime app: 1 task\n\nNo task matches the filter.\n");
    assert!(text("tasks", "zzz").ends_with("\nNo task matches the filter.\n"));
    for (verb, filter) in [("dump", "src/main.rs"), ("tasks", "src/shop.rs")] {
        assert!(!text(verb, filter).contains("No task matches"), "{verb}");
    }
}

#[test]
fn a_task_that_neither_waits_nor_runs_is_an_error() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    assert!(run(&mut folder.console(&["dump", "shop", "--task", "7"])).status.success());
    let output = run(&mut folder.console(&["dump", "shop", "--task", "clerk"]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("no waiting or running task has the id or name \"clerk\""), "{stderr}");
}

#[test]
fn the_command_why_shows_what_the_task_awaits_in_numbers() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let text = |options: &[&str]| String::from_utf8(run(&mut folder.console(options)).stdout).unwrap();
    let channel = "      awaits oneshot channel with 1 sender (owner of the sender: unknown)\n";
    let shown = text(&["why", "7", "shop"]);
    assert!(shown.starts_with("task 7, spawned at src/why.rs:3:1, waiting\n") && shown.contains(channel), "{shown}");
    let json: Value = serde_json::from_str(&text(&["why", "7", "shop", "--json"])).unwrap();
    assert_eq!(json["links"][0]["resources"][0]["kind"], "oneshot");
    let unpolled = text(&["why", "7", "shop", "--no-poll"]);
    assert!(unpolled.starts_with("task 7") && !unpolled.contains("oneshot"), "{unpolled}");
}

#[test]
fn swapped_arguments_of_why_get_the_corrected_command_line() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "my shop", VOLT);
    let stderr = |options: &[&str]| {
        let output = run(&mut folder.console(options));
        assert_eq!(output.status.code(), Some(1), "{options:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let error = stderr(&["why", "my shop", "999999999", "--no-poll"]);
    let wanted = "volt-console: \"my shop\" is a program, and the order is `why TASK PROGRAM`: run \
                  `volt-console why 999999999 'my shop' --no-poll`\n";
    assert_eq!(error, wanted);
    // The program may have exited, or be right but mistyped.
    let error = stderr(&["why", "mail", "999999999"]);
    assert!(error.contains("pid 999999999 has no control socket"), "{error}");
    assert!(error.contains("did you mean `volt-console why 999999999 mail`?"), "{error}");
    // The only program is given, without a task.
    let error = stderr(&["why", "my shop"]);
    assert!(error.starts_with(&format!("volt-console: my shop (pid {}): no live task", std::process::id())), "{error}");
    assert!(error.contains("`volt-console why TASK 'my shop'`"), "{error}");
    let error = stderr(&["why", "7", "mail"]);
    assert!(error.contains("is named \"mail\"") && !error.contains("TASK PROGRAM"), "{error}");
}

#[test]
fn an_old_program_and_an_invalid_sample_are_refused() {
    let folder = Folder::new();
    let old = Version { minor: 4, ..VERSION };
    let _program = Program::start(&folder.socket(0), "shop", Speech::Volt(old));
    let output = run(&mut folder.console(&["dump", "shop"]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("cannot dump its tasks, which needs version 1.5"), "{stderr}");
    let output = run(&mut folder.console(&["dump", "shop", "--sample", "0"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("expected 1 to 200000"));
}
