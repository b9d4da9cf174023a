//! Tests of the live screen on a real (pseudo-)terminal: it appears, it reacts, and the terminal is
//! restored however the console ends.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use crate::program::{Folder, Named, Program, Speech, VOLT};
use crate::screen::{LEAVE, Screen, assert_given_back, has_taken_mouse};
use rustix::process::Signal;

fn attached(folder: &Folder) -> Screen {
    let screen = Screen::start(folder.console(&["attach", "--interval", "50ms"]), 80, 24);
    screen.wait_for("live", 0);
    assert!(screen.is_raw());
    screen
}

#[test]
fn q_and_control_c_restore_the_terminal() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    for key in [b"q", b"\x03"] {
        let mut screen = attached(&folder);
        screen.press(key);
        let (status, printed) = screen.finish();
        assert_eq!(status.code(), Some(0));
        assert_given_back(&printed);
    }
}

#[test]
fn a_signal_restores_the_terminal_and_ends_the_console() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let screen = attached(&folder);
        screen.signal(signal);
        let (status, printed) = screen.finish();
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert_given_back(&printed);
    }
}

#[test]
fn a_dumb_terminal_gets_a_hint_and_no_escape_sequences() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    for verb in [&["attach"][..], &[]] {
        let mut command = folder.console(verb);
        command.env("TERM", "dumb");
        let (status, printed) = Screen::start(command, 80, 24).finish();
        assert_eq!(status.code(), Some(1), "{printed}");
        assert!(printed.contains("TERM is `dumb`") && printed.contains("volt-console top"), "{printed}");
        assert!(!printed.contains('\u{1b}'), "{printed:?}");
    }
}

#[test]
fn a_terminal_that_is_closed_without_a_signal_ends_the_console() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let status = attached(&folder).hang_up();
    assert_eq!(status.code(), Some(1), "{status:?}");
}

#[test]
fn a_panic_restores_the_terminal_before_its_message() {
    const AS_CHILD: &str = "VOLT_CONSOLE_TEST_PANICS";
    const NAME: &str = "terminal::a_panic_restores_the_terminal_before_its_message";
    if std::env::var_os(AS_CHILD).is_some() {
        let mut terminal = volt_console::terminal::Terminal::enter(true).unwrap();
        terminal.draw(|frame| frame.render_widget("drawn", frame.area())).unwrap();
        let other = std::thread::spawn(|| panic!("of another thread"));
        assert!(other.join().is_err());
        terminal.draw(|frame| frame.render_widget("drawn once more", frame.area())).unwrap();
        panic!("of the owner");
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", NAME, "--nocapture"]).env(AS_CHILD, "1");
    let (status, printed) = Screen::start(command, 80, 24).finish();
    assert!(!status.success());
    assert_given_back(&printed);
    let left = printed.find(LEAVE).unwrap();
    let after = |text: &str| assert!(printed.find(text).unwrap() > left, "{text:?} is printed on the normal screen");
    after("of another thread");
    after("of the owner");
    assert!(printed[..left].contains("more"), "another thread's panic leaves the screen to its owner");
}

#[test]
fn attach_waits_for_a_program_that_exits_to_come_back() {
    let folder = Folder::new();
    let program = Program::start(&folder.socket(0), "shop", VOLT);
    let mut screen = attached(&folder);
    let mark = screen.mark();
    drop(program);
    screen.wait_for("connection lost", mark);
    let mark = screen.mark();
    // It was found as the only program, so the console finds it again by name, with another pid.
    let _again = Program::start(&folder.socket(1), "shop", VOLT);
    screen.wait_for("live", mark);
    screen.press(b"q");
    let (status, printed) = screen.finish();
    assert_eq!(status.code(), Some(0));
    assert_given_back(&printed);
}

#[test]
fn attach_by_pid_stops_retrying_once_the_program_exits() {
    let folder = Folder::new();
    let named = Named::start();
    let program = Program::start(&named.socket(&folder), "shop", VOLT);
    let pid = named.pid();
    let mut screen = Screen::start(folder.console(&["attach", "--interval", "50ms", &pid]), 80, 24);
    screen.wait_for("live", 0);
    let mark = screen.mark();
    drop(named);
    drop(program);
    screen.wait_for(&format!("pid {pid} exited"), mark);
    // The numbers of the last snapshot are drawn again.
    let mark = screen.mark();
    screen.press(b"?");
    screen.wait_for("selected", mark);
    let mark = screen.mark();
    screen.press(b"\x1b");
    screen.wait_for("injected/s", mark);
    screen.press(b"q");
    let (status, printed) = screen.finish();
    assert_eq!(status.code(), Some(0));
    assert_given_back(&printed);
}

#[test]
fn keys_change_the_screen_and_a_new_size_redraws_it() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let mut screen = attached(&folder);
    let mark = screen.mark();
    screen.press(b"?");
    screen.wait_for("selected", mark);
    let mark = screen.mark();
    screen.press(b"?");
    screen.wait_for("curve", mark);
    let mark = screen.mark();
    screen.press(b"\x1b");
    screen.wait_for("injected/s", mark);
    let mark = screen.mark();
    screen.resize(60, 20);
    screen.wait_for("Enlarge to", mark);
    let mark = screen.mark();
    screen.resize(120, 30);
    screen.wait_for("counters", mark);
    let mark = screen.mark();
    screen.press(b" ");
    screen.wait_for("PAUSED", mark);
    screen.press(b"q");
    assert_given_back(&screen.finish().1);
}

#[test]
fn digits_change_the_screen_and_enter_opens_a_stack() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stalled);
    let mut screen = attached(&folder);
    for (key, wanted) in [
        (&b"5"[..], "new/s"),
        (b"\r", "suspect line"),
        (b"6", "suffered:"),
        (b"1", "injected/s"),
        (b"2", "inbox"),
        (b"4", "p99.9"),
        (b"7", "CRITICAL!!"),
        (b"6", "suffered:"),
        (b"\x1b", "injected/s"),
    ] {
        let mark = screen.mark();
        screen.press(key);
        screen.wait_for(wanted, mark);
    }
    screen.press(b"q");
    assert_given_back(&screen.finish().1);
}

#[test]
fn tasks_are_listed_filtered_and_opened_on_their_screen() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let mut screen = attached(&folder);
    // Types a filter letter by letter. After that, keys are commands again, and Enter opens the
    // task.
    for (keys, wanted) in [(&b"t"[..], "shop[2Jclerk"), (b"/shop.rs:119", "apply"), (b"\r\r", "why.rs:3:1,")] {
        let mark = screen.mark();
        screen.press(keys);
        screen.wait_for(wanted, mark);
    }
    let mark = screen.mark();
    // Closes the task, then clears the filter.
    screen.press(b"\x1b");
    screen.wait_for("detail", mark);
    screen.press(b"\x1b");
    screen.wait_for("clerk", mark);
    screen.press(b"q");
    assert_given_back(&screen.finish().1);
}

#[test]
fn a_click_on_a_tab_selects_a_screen_and_the_mouse_is_released() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stalled);
    let mut screen = attached(&folder);
    let mark = screen.mark();
    // Presses the left button on `5 incidents`, in the first line of tabs; then on `6 blame`.
    screen.press(b"\x1b[<0;43;22M\x1b[<0;43;22m");
    screen.wait_for("new/s", mark);
    let mark = screen.mark();
    screen.press(b"\x1b[<0;54;22M\x1b[<0;54;22m");
    screen.wait_for("suffered:", mark);
    screen.press(b"q");
    let printed = screen.finish().1;
    assert!(has_taken_mouse(&printed));
    assert_given_back(&printed);
}

#[test]
fn plain_ascii_output_has_no_colours_and_no_mouse_codes() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", Speech::Stalled);
    let arguments = ["attach", "--plain", "--ascii", "--no-mouse", "--interval", "50ms"];
    let mut screen = Screen::start(folder.console(&arguments), 80, 24);
    screen.wait_for("live", 0);
    screen.press(b"5");
    screen.wait_for("new/s", 0);
    screen.press(b"q");
    let printed = screen.finish().1;
    assert!(printed.is_ascii(), "{printed}");
    assert!(!has_taken_mouse(&printed));
    // Codes of colours begin with 3 or 4, those of bright colours with 9 or 10. Bold, dim and
    // reversed are 1, 2 and 7.
    for colour in ["[31m", "[32m", "[33m", "[35m", "[36m", "38;5;"] {
        assert!(!printed.contains(colour), "{colour}");
    }
    assert_given_back(&printed);
}

#[test]
fn a_lone_console_attaches_to_the_only_program() {
    let folder = Folder::new();
    let _program = Program::start(&folder.socket(0), "shop", VOLT);
    let mut screen = Screen::start(folder.console(&[]), 80, 24);
    screen.wait_for("live", 0);
    screen.press(b"q");
    assert_given_back(&screen.finish().1);
}
