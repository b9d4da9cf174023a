//! Tests of the commands without a terminal: their output, their errors, and their exit codes.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixListener;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use volt_recording::writer::{MIN_FILE_BYTES, Settings, Writer};
use volt_telemetry::recording::flush::Head;
use volt_telemetry::wire::{VERSION, Version};

use crate::program::{Folder, Named, Program, Speech, VOLT};

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the console runs")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn assert_refused(command: &mut Command, parts: &[&str]) {
    let output = run(command);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    for part in parts {
        assert!(stderr.contains(part), "{part:?} is not in: {stderr}");
    }
}

#[test]
fn list_shows_a_program_with_its_name() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let table = stdout(&run(&mut folder.console(&["list"])));
    assert!(table.contains("shop") && table.contains("app,exporter"), "{table}");
    let json: Value = serde_json::from_slice(&run(&mut folder.console(&["list", "--json"])).stdout).unwrap();
    assert_eq!((&json[0]["pid"], &json[0]["program"]), (&std::process::id().into(), &"shop".into()));
    assert_eq!(json[0]["runtimes"], serde_json::json!(["app", "exporter"]));
    assert_eq!(json[0]["is_alive"], true);
}

#[test]
fn record_refuses_an_old_program_and_creates_no_file() {
    let folder = Folder::new();
    let old = Version { minor: 0, ..VERSION };
    let _program = Program::start(&folder.socket(0), "shop", Speech::Volt(old));
    let file = folder.socket(9).with_extension("voltrec");
    let path = file.to_str().unwrap();
    let parts = ["uses version 1.0", "cannot record", "build the program with a newer Volt than 0.9.9"];
    assert_refused(&mut folder.console(&["record", "shop", "--seconds", "1", "-o", path]), &parts);
    assert_refused(&mut folder.console(&["record", "shop", "--on"]), &["cannot switch the flight recorder"]);
    assert!(!file.exists());
}

#[test]
fn a_file_that_is_no_recording_is_neither_shown_nor_exported() {
    let folder = Folder::new();
    let file = folder.socket(9).with_extension("voltrec");
    let path = file.to_str().unwrap();
    for verb in [&["replay", "--once", path][..], &["export", path], &["export", path, "-o", "-"]] {
        assert_refused(&mut folder.console(verb), &["there is no recording", path]);
    }
    std::fs::write(&file, "{}").unwrap();
    for verb in [&["replay", "--json", path][..], &["export", path], &["export", path, "-o", "-"]] {
        assert_refused(&mut folder.console(verb), &["is not a Volt recording"]);
    }
    assert!(!file.with_extension("json").exists(), "nothing was made");
    // The error is about the file, not about the missing terminal.
    assert_refused(&mut folder.console(&["replay", path]), &["is not a Volt recording"]);
    assert_refused(&mut folder.console(&["replay", "/nowhere"]), &["there is no recording", "/nowhere"]);
}

#[test]
fn a_multi_file_recording_exports_to_one_trace_per_file() {
    let folder = Folder::new();
    let file = folder.socket(9).with_extension("voltrec");
    let settings = Settings { path: file.clone(), max_file_bytes: MIN_FILE_BYTES, max_files: 1 };
    Writer::create(settings, Head::default()).unwrap().finish().unwrap();
    let part = |number| file.with_extension(format!("{number}.voltrec"));
    std::fs::copy(&file, part("0000")).unwrap();
    std::fs::rename(&file, part("0001")).unwrap();
    let (from, to) = (file.to_str().unwrap(), file.with_file_name("trace.json"));
    let parts = ["several files", ".0000.voltrec", ".0001.voltrec"];
    assert_refused(&mut folder.console(&["export", from, "-o", "-"]), &parts);
    let output = run(&mut folder.console(&["export", from, "-o", to.to_str().unwrap()]));
    assert!(output.status.success(), "{output:?}");
    for number in ["0000", "0001"] {
        let trace = std::fs::read(to.with_extension(format!("{number}.json"))).unwrap();
        serde_json::from_slice::<Value>(&trace).unwrap();
    }
    assert!(!to.exists());
    let output = run(&mut folder.console(&["export", part("0001").to_str().unwrap(), "-o", "-"]));
    serde_json::from_slice::<Value>(&output.stdout).unwrap();
}

#[test]
fn an_empty_list_names_the_searched_directories() {
    let folder = Folder::new();
    let output = run(&mut folder.console(&["list"]));
    assert!(output.status.success());
    assert!(stdout(&output).starts_with("No Volt program is running (searched /tmp/volt-console-test-"));
    assert_eq!(stdout(&run(&mut folder.console(&["list", "--json"]))), "[]\n");
}

#[test]
fn list_distinguishes_stale_foreign_and_live_sockets() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let _garbage = Program::start(&folder.socket(1), "", Speech::Garbage);
    drop(UnixListener::bind(folder.socket(2)).unwrap());
    let json: Value = serde_json::from_slice(&run(&mut folder.console(&["list", "--json"])).stdout).unwrap();
    let entry = |offset: u32| {
        let pid = Value::from(std::process::id() + offset);
        json.as_array().unwrap().iter().find(|entry| entry["pid"] == pid).unwrap()
    };
    assert_eq!(entry(0)["is_alive"], true);
    assert!(entry(1)["error"].as_str().unwrap().contains("not a Volt control socket"));
    assert!(entry(2)["error"].as_str().unwrap().contains("stale"));
}

#[test]
fn top_once_json_has_the_workers_and_their_rates() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    for target in [None, Some("shop".to_string()), Some(std::process::id().to_string()), Some("app".into())] {
        let mut command = folder.console(&["top", "--once", "--json", "--interval", "20ms"]);
        command.args(&target);
        let output = run(&mut command);
        assert!(output.status.success(), "{target:?}: {output:?}");
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["workers"].as_array().unwrap().len(), 3);
        assert_eq!(json["parked_bitmap"], serde_json::json!([0b111]));
        assert_eq!(json["runtimes"].as_array().unwrap().len(), 2);
        let polls = json["workers"][0]["rates"]["polls_per_second"].as_f64().unwrap();
        assert!((999_000.0..1_001_000.0).contains(&polls), "a poll every µs of its clock: {polls}");
    }
}

#[test]
fn top_prints_until_its_output_is_closed() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let mut command = folder.console(&["top", "--interval", "20ms"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let heads = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let heads: Vec<_> = heads.filter(|line| line.starts_with("shop  pid")).take(6).collect();
    assert!(heads[0].contains("runtime app") && heads[5].contains("runtime exporter"), "{heads:?}");
    // The reader of its output is closed now.
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

/// Starts `top`; returns the child process and the JSON objects that it prints.
fn top(command: &mut Command) -> (std::process::Child, impl Iterator<Item = Value> + use<>) {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines.map(|line| serde_json::from_str(&line.unwrap()).expect("whole objects to the end")))
}

#[test]
fn top_fails_when_a_program_found_by_pid_or_path_ends() {
    let folder = Folder::new();
    let mut named = Some(Named::start());
    let (pid, path) = named.as_ref().map(|named| (named.pid(), named.socket(&folder))).unwrap();
    for target in [pid, path.to_str().unwrap().to_owned()] {
        let program = Program::start(&path, "shop", VOLT);
        let (console, mut objects) = top(&mut folder.console(&["top", "--json", "--interval", "20ms", &target]));
        assert_eq!(objects.next().unwrap()["program"], "shop");
        drop(named.take());
        drop(program);
        objects.for_each(drop);
        let output = console.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        // The name that the program reports, not the path of its socket.
        let program = format!("shop (pid {})", std::process::id());
        assert!(error.starts_with(&format!("volt-console: {program} closed the connection")), "{error}");
    }
}

#[test]
fn top_waits_for_a_restarted_program_and_reports_lost_updates() {
    let folder = Folder::new();
    let program = Program::start(&folder.socket(0), "shop", VOLT);
    let (mut child, mut objects) = top(&mut folder.console(&["top", "--json", "--interval", "20ms", "shop"]));
    assert_eq!(objects.next().unwrap()["lost"], 0);
    drop(program);
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(stderr.next().unwrap().contains("waiting for the program to come back"));
    let _again = Program::start(&folder.socket(0), "shop", VOLT);
    let back = stderr.next().unwrap();
    let lost: u64 = back.split("pid").nth(1).and_then(|rest| rest.split(' ').nth(2)).unwrap().parse().expect(&back);
    assert!(lost > 0 && back.contains("shop is back"), "{back}");
    let first = objects.find(|object| object["lost"] != 0).unwrap();
    assert_eq!(first["lost"], lost);
    drop(objects);
    assert_eq!(child.wait().unwrap().code(), Some(0), "the reader has closed its end");
}

#[test]
fn a_waiting_top_ends_when_its_output_is_closed() {
    let folder = Folder::new();
    let program = Program::start(&folder.socket(0), "shop", VOLT);
    let (mut child, mut objects) = top(&mut folder.console(&["top", "--json", "--interval", "20ms"]));
    objects.next().unwrap();
    drop(program);
    let mut stderr = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(stderr.next().unwrap().unwrap().contains("waiting for the program to come back"));
    drop(objects);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn stacks_prints_stuck_polls_and_with_all_the_past_ones_too() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stalled);
    let text = stdout(&run(&mut folder.console(&["stacks"])));
    assert!(text.contains("incident 2: worker 1 has been stuck for 240ms so far"), "{text}");
    assert!(text.contains("→ shop::price  src/shop.rs:61"), "{text}");
    assert!(!text.contains("incident 1"), "{text}");
    assert!(stdout(&run(&mut folder.console(&["stacks", "--all", "shop"]))).contains("incident 1: worker 1 was stuck"));
    let json: Value = serde_json::from_slice(&run(&mut folder.console(&["stacks", "--json"])).stdout).unwrap();
    assert_eq!(json["incidents"].as_array().unwrap().len(), 1);
    assert_eq!(json["incidents"][0]["guilty"]["function"], "shop::price");
    let json: Value = serde_json::from_slice(&run(&mut folder.console(&["stacks", "--json", "--all"])).stdout).unwrap();
    assert_eq!(json["incidents"][1]["is_over"], true);
}

#[test]
fn top_lists_past_incidents_too() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stalled);
    let text = stdout(&run(&mut folder.console(&["top", "--once", "--interval", "20ms"])));
    assert!(text.contains("incidents   2!  (sleep 2)  new/s 0  not recorded 0"), "{text}");
    let json = run(&mut folder.console(&["top", "--once", "--json", "--interval", "20ms"])).stdout;
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["incidents"]["latest"][1]["stack"][0]["line"], 61);
    assert_eq!((&json["incidents_total"], &json["active_count"]), (&2.into(), &3.into()));
    assert_eq!(json["blame"][0]["spawned_at"], "src/shop.rs:7:5");
    assert_eq!(json["rates"]["locations"][0]["stalls_per_second"], 0.0);
}

#[test]
fn a_missing_target_is_named_with_a_remedy() {
    let folder = Folder::new();
    assert_refused(&mut folder.console(&["top", "/tmp/none.sock"]), &["there is no socket /tmp/none.sock", "list"]);
    assert_refused(&mut folder.console(&["top", "nobody"]), &["no program or runtime is named \"nobody\"", "list"]);
    assert_refused(&mut folder.console(&["top", "999999999"]), &["no program has this pid", "list"]);
    assert_refused(&mut folder.console(&["top"]), &["no Volt program is running", "Start one"]);
    assert_refused(&mut folder.console(&[]), &["no Volt program is running", "Start one"]);
}

#[test]
fn a_stale_socket_is_called_stale() {
    let folder = Folder::new();
    let path = folder.socket(0);
    drop(UnixListener::bind(&path).unwrap());
    let path = path.to_str().unwrap();
    assert_refused(&mut folder.console(&["top", "--once", path]), &[path, "is stale", "volt-console list"]);
    assert_refused(&mut folder.console(&["top", "--once", &std::process::id().to_string()]), &["is stale"]);
}

#[test]
fn without_a_program_a_stale_socket_is_not_blamed() {
    let folder = Folder::new();
    drop(UnixListener::bind(folder.socket(0)).unwrap());
    let output = run(&mut folder.console(&["top", "--once"]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("no Volt program is running") && !stderr.contains("stale"), "{stderr}");
}

#[test]
fn a_choice_of_programs_shows_their_uptime_and_state() {
    let folder = Folder::new();
    let _programs = [0, 1].map(|offset| Program::start(&folder.socket(offset), "shop", VOLT));
    let output = run(&mut folder.console(&["top", "--once"]));
    let stderr = String::from_utf8(output.stderr).unwrap();
    let rows: Vec<_> = stderr.lines().filter(|line| line.contains("shop")).collect();
    assert!(rows.len() == 2 && rows.iter().all(|row| row.contains(" workers, ")), "{stderr}");
    assert!(!stderr.contains(".sock"), "{stderr}");
}

#[test]
fn a_file_and_a_foreign_server_are_no_control_sockets() {
    let folder = Folder::new();
    let path = folder.socket(0);
    std::fs::write(&path, "").unwrap();
    let text = path.to_str().unwrap();
    assert_refused(&mut folder.console(&["top", text]), &[text, "is not a socket"]);
    std::fs::remove_file(&path).unwrap();
    let _program = Program::start(&path, "", Speech::Garbage);
    assert_refused(&mut folder.console(&["top", text]), &[text, "is not a Volt control socket"]);
}

#[test]
fn another_major_version_is_refused_with_both_numbers() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Volt(Version { major: 7, minor: 3 }));
    let path = folder.socket(0);
    let parts = ["uses version 7.3", "but this program uses 1.", "use the console of Volt 0.9.9"];
    assert_refused(&mut folder.console(&["top", "--once", path.to_str().unwrap()]), &parts);
}

#[test]
fn a_newer_minor_version_is_read() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Volt(Version { major: 1, minor: 99 }));
    assert!(run(&mut folder.console(&["top", "--once", "--interval", "20ms"])).status.success());
}

#[test]
fn a_program_that_breaks_off_is_an_error() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::CutOff);
    assert_refused(&mut folder.console(&["top", "--once"]), &["closed the connection"]);
}

#[test]
fn several_programs_are_listed_with_the_way_to_choose() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    let output = run(&mut folder.console(&[]));
    assert!(output.status.success());
    assert!(stdout(&output).contains("shop") && stdout(&output).contains("mail"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("volt-console attach PID"));
    assert_refused(&mut folder.console(&["top"]), &["several Volt programs are running", "shop", "mail"]);
    assert_refused(&mut folder.console(&["top", "app"]), &["give the pid of one"]);
}

#[test]
fn without_a_terminal_attach_names_an_alternative() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    assert_refused(&mut folder.console(&["attach", "shop"]), &["needs a terminal", "volt-console top"]);
    assert_refused(&mut folder.console(&[]), &["needs a terminal", "volt-console top"]);
    assert_refused(&mut folder.console(&["attach", "999999999"]), &["no program has this pid"]);
}

#[test]
fn a_program_is_shown_by_its_name_alone() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    assert_refused(&mut folder.console(&["shop"]), &["needs a terminal"]);
    assert_refused(&mut folder.console(&["atach"]), &["\"atach\"", "volt-console --help"]);
}

#[test]
fn arguments_that_make_no_sense_exit_with_2() {
    let folder = Folder::new();
    for arguments in [&["top", "--interval", "0s"][..], &["list", "--yaml"], &["attach", "--interval", "x"]] {
        let output = run(&mut folder.console(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn each_command_without_its_program_or_file_exits_as_documented() {
    let folder = Folder::new();
    let commands: [(&[&str], i32); 14] = [
        (&["list"], 0),
        (&["attach"], 1),
        (&["doctor"], 2),
        (&["stacks"], 1),
        (&["dump"], 1),
        (&["why", "7"], 1),
        (&["top", "--once"], 1),
        (&["tasks"], 1),
        (&["processes"], 1),
        (&["check", "--max-poll", "1s"], 2),
        (&["record"], 1),
        (&["replay", "none.voltrec", "--once"], 1),
        (&["export", "none.voltrec"], 1),
        (&["post-mortem", "none.voltbox"], 1),
    ];
    for (arguments, code) in commands {
        let output = run(&mut folder.console(arguments));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let unknown = run(folder.console(&arguments[..1]).arg("--no-such-option"));
        assert_eq!(unknown.status.code(), Some(2), "{arguments:?}");
        let help = stdout(&run(folder.console(&arguments[..1]).arg("--help")));
        let codes = help.split_once("\nExit codes:\n").unwrap().1;
        assert!(
            [code, 2]
                .iter()
                .all(|code| codes.contains(&format!("\n  {code}  ")) || codes.starts_with(&format!("  {code}  "))),
            "{help}"
        );
    }
}

#[test]
fn escape_sequences_are_removed_from_printed_names() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "sh\u{1b}[2Jop\u{9b}3J", Speech::Stalled);
    let printed: [&[&str]; 6] = [
        &["list"],
        &["list", "--json"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["stacks"],
        &["stacks", "--all", "--json"],
    ];
    for arguments in printed {
        let output = run(&mut folder.console(arguments));
        let text = stdout(&output);
        assert!(text.contains("sh[2Jop3J"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    }
}

#[test]
fn each_shell_gets_its_completions_and_man_its_page() {
    let folder = Folder::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&mut folder.console(&["completions", shell]));
        let script = stdout(&output);
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}");
        for word in ["doctor", "check", "max-delay", "max-size"] {
            assert!(script.contains(word), "{word:?} is not among what {shell} completes");
        }
    }
    let output = run(&mut folder.console(&["completions", "tcsh"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("possible values: bash, elvish, fish, powershell, zsh"));
    let page = stdout(&run(&mut folder.console(&["man"])));
    assert!(page.contains(".TH volt") && page.contains("\n.SS check\n") && page.contains(".SH EXIT"), "{page}");
}

#[test]
fn closed_output_is_no_error() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let printing: [&[&str]; 8] = [
        &["list"],
        &["top", "--once", "--interval", "20ms"],
        &["stacks", "--all"],
        &["doctor", "--for", "100ms", "--fail-on", "critical"],
        &["check", "--max-poll", "1s", "--for", "100ms"],
        &["completions", "zsh"],
        &["man"],
        &["--help"],
    ];
    for arguments in printing {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = folder.console(arguments).stdin(Stdio::null()).stdout(writer).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), stderr.as_ref()), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_an_error() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stalled);
    for (arguments, code) in [
        (&["list"][..], 1),
        (&["top", "--once", "--interval", "20ms"], 1),
        (&["man"], 1),
        (&["completions", "bash"], 1),
        (&["stacks"], 1),
        (&["doctor", "--for", "100ms"], 2),
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = folder.console(arguments).stdin(Stdio::null()).stdout(full).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
        assert!(stderr.contains("cannot write to standard output: No space left"), "{stderr}");
    }
}
