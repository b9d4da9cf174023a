//! Tests of the screen on which the user selects one of several programs.

use crate::program::{Folder, Program, VOLT};
use crate::screen::{ENTER, Screen, assert_given_back};

#[test]
fn without_arguments_an_arrow_and_enter_select_a_program() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    let mut screen = Screen::start(folder.console(&[]), 80, 24);
    screen.wait_on_screen(1, "shop");
    screen.wait_on_screen(1, "mail");
    screen.press(b"\x1b[B");
    screen.press(b"\r");
    screen.wait_on_screen(2, "mail");
    screen.press(b"q");
    let (status, printed) = screen.finish();
    assert_eq!(status.code(), Some(0));
    // The first screen is left before the second is entered.
    let attached = &printed[printed.rfind(ENTER).unwrap()..];
    assert!(attached.contains("mail") && !attached.contains("shop"), "{attached}");
    assert_given_back(attached);
}

#[test]
fn q_and_escape_leave_the_list_of_programs() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    for key in [&b"q"[..], b"\x1b"] {
        let mut screen = Screen::start(folder.console(&[]), 80, 24);
        screen.wait_for("mail", 0);
        screen.press(key);
        let (status, printed) = screen.finish();
        assert_eq!(status.code(), Some(0));
        assert_given_back(&printed);
    }
}

#[test]
fn sockets_that_programs_left_behind_are_not_listed() {
    let folder = Folder::new();
    // A pid that no process has.
    drop(std::os::unix::net::UnixListener::bind(folder.path().join("2000000003-7.sock")).unwrap());
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "ma\u{1b}[2Jil", VOLT);
    let mut screen = Screen::start(folder.console(&[]), 80, 24);
    screen.wait_for("shop", 0);
    screen.wait_for("ma[2Jil", 0);
    screen.press(b"q");
    let (_, printed) = screen.finish();
    assert!(!printed.contains("2000000003") && !printed.contains("stale"), "{printed}");
}

#[test]
fn a_name_as_the_only_argument_opens_that_program() {
    let folder = Folder::new();
    let _shop = Program::start(&folder.socket(0), "shop", VOLT);
    let _mail = Program::start(&folder.socket(1), "mail", VOLT);
    let mut screen = Screen::start(folder.console(&["mail"]), 80, 24);
    screen.wait_on_screen(1, "mail");
    screen.press(b"q");
    let (status, printed) = screen.finish();
    assert_eq!(status.code(), Some(0));
    assert!(!printed.contains("Select"), "{printed}");
}
