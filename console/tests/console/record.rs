//! Tests of `record`, `replay` and `export` under failures: a signal, a full disk, a program that
//! exits, a truncated file.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::program::{Folder, Program, VOLT};
use crate::screen::{Screen, has_taken_mouse};

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the console runs")
}

fn stderr(output: &Output) -> String {
    let stderr = String::from_utf8(output.stderr.clone()).unwrap();
    assert!(!stderr.contains("panicked"), "{stderr}");
    stderr
}

/// Starts a recording; returns it and its file, once the file has some data.
fn recording(folder: &Folder) -> (Child, PathBuf) {
    let path = folder.path().join("shop.voltrec");
    let mut command = folder.console(&["record", "shop", "-o", path.to_str().unwrap()]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let begun = Instant::now();
    // Some of the stand-in's flushes, of a thousand events each.
    while std::fs::metadata(&path).map_or(0, |meta| meta.len()) < 100_000 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing is recorded");
        std::thread::yield_now();
    }
    (child, path)
}

/// Asserts that `replay` shows the recording, and returns its output.
#[track_caller]
fn assert_shown(folder: &Folder, path: &Path) -> Output {
    let output = run(&mut folder.console(&["replay", "--json", path.to_str().unwrap()]));
    assert!(output.status.success(), "{}", stderr(&output));
    let json: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(json["program"], "shop");
    output
}

#[test]
fn a_signal_ends_a_recording_cleanly_with_a_summary() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = Folder::new();
        let _program = Program::start(&folder.socket(0), "shop", VOLT);
        let (child, path) = recording(&folder);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        let printed = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{signal:?}: {}", stderr(&output));
        assert!(printed.contains(" events, 0 lost, ") && printed.contains(path.to_str().unwrap()), "{printed}");
        assert!(printed.contains("volt-console replay"), "{printed}");
        assert!(assert_shown(&folder, &path).stderr.is_empty(), "it is whole");
    }
}

#[test]
fn a_recording_is_complete_when_the_program_exits() {
    let folder = Folder::new();
    let program = Program::start(&folder.socket(0), "shop", VOLT);
    let (child, path) = recording(&folder);
    drop(program);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        String::from_utf8_lossy(&output.stdout).starts_with("The program has exited, or the runtime was shut down.\n")
    );
    assert!(assert_shown(&folder, &path).stderr.is_empty(), "it is whole");
}

#[test]
fn record_stops_on_a_full_disk_and_keeps_a_readable_file() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let path = folder.path().join("shop.voltrec");
    // This simulates a full disk without root privileges: no file may exceed 256 KiB.
    let console = folder.console(&[]);
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=262144").arg(console.get_program()).args(["record", "shop", "-o", path.to_str().unwrap()]);
    limited.env("VOLT_SOCKET_DIR", folder.path());
    let output = run(&mut limited);
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{:?}: {printed}", output.status);
    for part in [path.to_str().unwrap(), "File too large", "free some space", "recorded so far stay readable"] {
        assert!(printed.contains(part), "{part:?} is not in: {printed}");
    }
    assert_shown(&folder, &path);
    let bytes = std::fs::metadata(&path).unwrap().len();
    assert!((200_000..=262_144).contains(&bytes), "{bytes}");
}

#[test]
fn record_refuses_an_unusable_output_path_before_recording() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let there = folder.path().join("there.voltrec");
    std::fs::write(&there, "somebody's").unwrap();
    let cases = [
        (folder.path().join("none/x.voltrec"), "its directory does not exist: create it, or choose another"),
        (there.clone(), "already exists: choose another name, or delete it"),
        ("/proc/x.voltrec".into(), "cannot be created"),
    ];
    for (path, part) in cases {
        let output = run(&mut folder.console(&["record", "shop", "--seconds", "1", "-o", path.to_str().unwrap()]));
        let printed = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains(path.to_str().unwrap()) && printed.contains(part), "{printed}");
    }
    assert_eq!(std::fs::read_to_string(there).unwrap(), "somebody's");
}

#[test]
fn a_truncated_recording_is_shown_and_exported_with_a_warning() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let (child, path) = recording(&folder);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap();
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() * 2 / 3]).unwrap();
    let printed = stderr(&assert_shown(&folder, &path));
    assert!(
        printed.contains("is truncated at byte") && printed.contains("the data before that byte is complete"),
        "{printed}"
    );
    let output = run(&mut folder.console(&["export", path.to_str().unwrap()]));
    assert_eq!(output.status.code(), Some(0));
    assert!(stderr(&output).contains("is truncated at byte"), "{}", stderr(&output));
    let trace = std::fs::read(path.with_extension("json")).unwrap();
    serde_json::from_slice::<Value>(&trace).expect("a whole trace of what there is");
}

#[test]
fn replay_applies_display_options_and_has_its_own_help() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let (child, path) = recording(&folder);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap();
    let path = path.to_str().unwrap();
    let output = run(&mut folder.console(&["replay", "--once", "--ascii", path]));
    assert!(output.status.success() && output.stdout.is_ascii(), "{}", stderr(&output));
    // Without a terminal, the error names the command for recordings, not the one for live
    // programs.
    let output = run(&mut folder.console(&["replay", path]));
    let printed = stderr(&output);
    assert!(
        printed.contains("use `volt-console replay --once FILE`") && !printed.contains("volt-console top"),
        "{printed}"
    );
    let arguments = ["replay", "--plain", "--ascii", "--no-mouse", path];
    let mut screen = Screen::start(folder.console(&arguments), 80, 24);
    screen.wait_for("replay", 0);
    let mark = screen.mark();
    screen.press(b"?");
    screen.wait_for("faster", mark);
    screen.press(b"q");
    let printed = screen.finish().1;
    assert!(printed.is_ascii() && !has_taken_mouse(&printed), "{printed}");
}

#[test]
fn an_incomplete_trace_is_removed() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let (child, path) = recording(&folder);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child.wait_with_output().unwrap();
    let console = folder.console(&[]);
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=16").arg(console.get_program()).args(["export", path.to_str().unwrap()]);
    let output = run(&mut limited);
    assert_eq!(output.status.code(), Some(1), "{:?}", output.status);
    assert!(stderr(&output).contains("the export cannot be written: File too large"), "{}", stderr(&output));
    assert!(!path.with_extension("json").exists());
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = folder.console(&["export", "-o", "-", path.to_str().unwrap()]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("No space left"), "{}", stderr(&output));
}
