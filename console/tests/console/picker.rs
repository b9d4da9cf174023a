//! Tests of the prompt among several programs, line by line and on a terminal.

use crate::program::{Folder, Program, Speech, VOLT};
use crate::screen::{Screen, assert_given_back};
use volt_console::commands::picker::choose;
use volt_telemetry::socket::Environment;

/// Returns the program that these input lines select, and the output.
fn chosen(folder: &Folder, lines: &[u8]) -> (Option<String>, String) {
    let user_id = rustix::process::geteuid().as_raw();
    let environment = Environment { socket_dir: Some(folder.path().into()), runtime_dir: None, user_id };
    let mut printed = Vec::new();
    let found = choose(&environment, lines, &mut printed).unwrap();
    (found.map(|found| found.client.hello().program.clone()), String::from_utf8(printed).unwrap())
}

#[test]
fn the_picker_accepts_a_number_pid_or_name_or_prompts_again() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "ma\u{1b}[2Jil", Speech::Stuck);
    for (lines, expected) in [("1\n", "shop"), ("shop\n", "shop"), (&format!("{}\n", std::process::id()), "shop")] {
        assert_eq!(chosen(&folder, lines.as_bytes()).0.as_deref(), Some(expected), "{lines:?}");
    }
    let (who, printed) = chosen(&folder, b"7\nnobody\n\xff\xfe\n\n 2 \n");
    assert_eq!(who.as_deref(), Some("ma\u{1b}[2Jil"));
    assert!(printed.contains("pid 7 has no control socket") && printed.contains("is named \"nobody\""), "{printed}");
    assert_eq!(printed.matches("Select a program").count(), 5, "{printed}");
    assert!(
        printed.contains("\n1  ") && printed.contains("\n2  ") && printed.contains("4 workers, 14 tasks"),
        "{printed}"
    );
    assert!(!printed.contains('\u{1b}'), "{printed:?}");
}

#[test]
fn sockets_that_programs_left_behind_are_no_choice() {
    let folder = Folder::new();
    // A pid that no process has.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("2000000003-7.sock")).unwrap());
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    let (who, printed) = chosen(&folder, b"2\n");
    assert!(who.is_some() && !printed.contains("2000000003") && !printed.contains("stale"), "{printed}");
    let (who, printed) = chosen(&folder, b"3\nq\n");
    assert!(who.is_none() && printed.contains("pid 3 has no control socket"), "{printed}");
}

#[test]
fn an_arrow_key_is_no_program_and_is_not_printed_back() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    let (who, printed) = chosen(&folder, b"\x1b[B\nq\n");
    assert_eq!(who, None);
    assert!(printed.contains("Type a number") && !printed.contains("called") && !printed.contains("[B"), "{printed}");
}

#[test]
fn q_and_the_end_of_the_input_choose_nothing() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    let endless = [b'x'; 100_000];
    for lines in [&b"q\n"[..], b"", b"\n", &endless] {
        assert_eq!(chosen(&folder, lines).0, None);
    }
}

#[test]
fn without_arguments_the_console_lets_the_user_choose() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    let mut screen = Screen::start(folder.console(&[]), 80, 24);
    screen.wait_for("q quits): ", 0);
    screen.press(b"2\r");
    screen.wait_for("live", 0);
    screen.press(b"q");
    let (status, printed) = screen.finish();
    assert_eq!(status.code(), Some(0));
    assert_given_back(&printed);
}
