//! Tests of the chat as users run it: a separate program, and lines over TCP. In the kill test, one
//! step in a hundred panics under load.
//!
//! `VOLT_CHAT_SECONDS` sets how long the load of the kill test lasts (default 5).
//! `VOLT_CHAT_PROGRAM` sets which build of the chat is tested (default: cargo's), so that these
//! tests can test a release build without being one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// How long any step may take before it counts as hung.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How much memory a load may leave behind in the allocator.
const GROWTH_MAX_KB: u64 = 4096;
/// The maximum number of measured loads. A leak grows with each load. The memory for an incident of
/// the sentinel, on a busy machine, is allocated only once: up to twenty megabytes were measured.
const ROUNDS_MAX: usize = 3;

fn program() -> Command {
    Command::new(std::env::var("VOLT_CHAT_PROGRAM").unwrap_or_else(|_| env!("CARGO_BIN_EXE_chat").to_owned()))
}

/// A running chat; killed if a test does not stop it.
struct Chat {
    child: Child,
    lines: BufReader<ChildStdout>,
    address: String,
}

impl Chat {
    fn start(arguments: &[&str]) -> Self {
        let mut command = program();
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_remove("RUST_LOG");
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.trim_end().strip_prefix("chat ").unwrap_or_else(|| panic!("no address in {line:?}"));
        Self { child, lines, address: address.to_owned() }
    }

    /// Returns the next line of its report.
    fn report(&mut self) -> Value {
        let mut line = String::new();
        assert!(self.lines.read_line(&mut line).unwrap() > 0, "it has ended");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    /// Returns the first line of its report, from now on, for which `is_so` is true.
    fn report_that(&mut self, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let began = Instant::now();
        loop {
            let report = self.report();
            if is_so(&report) {
                return report;
            }
            assert!(began.elapsed() < TIMEOUT, "never {what}: {report}");
        }
    }

    fn stop(mut self) -> Output {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut stdout = Vec::new();
        self.lines.read_to_end(&mut stdout).unwrap();
        let mut stderr = Vec::new();
        self.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        Output { status: self.child.wait().unwrap(), stdout, stderr }
    }

    fn guest(&self) -> Guest {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_nodelay(true).unwrap();
        let mut guest = Guest(BufReader::new(stream));
        assert!(guest.read().starts_with("* you are guest"));
        guest
    }

    fn guest_in(&self, nick: &str, room: &str) -> Guest {
        let mut guest = self.guest();
        guest.send(&format!("/nick {nick}\n/join {room}"));
        assert_eq!(guest.read(), format!("* you are {nick}"));
        assert_eq!(guest.read(), format!("* you are in {room}"));
        guest
    }
}

impl Drop for Chat {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Guest(BufReader<TcpStream>);

impl Guest {
    fn send(&mut self, line: &str) {
        // Written in one piece; otherwise the second part would wait until the first is
        // acknowledged.
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads until a line with this end.
    fn read_until(&mut self, end: &str) -> String {
        loop {
            let line = self.read();
            if line.ends_with(end) {
                return line;
            }
            assert!(!line.is_empty(), "the connection has ended without {end:?}");
        }
    }
}

#[test]
fn two_guests_talk_and_a_third_reads_the_history() {
    let chat = Chat::start(&[]);
    let mut ada = chat.guest_in("ada", "garden");
    let mut bob = chat.guest_in("bob", "garden");
    assert_eq!(ada.read(), "* bob has come into garden");
    ada.send("good morning");
    assert_eq!(ada.read(), "[garden] ada: good morning");
    assert_eq!(bob.read(), "[garden] ada: good morning");
    bob.send("/nick ada");
    assert_eq!(bob.read(), "* ada is in garden already: take another name by /nick");
    bob.send("/nick rob");
    assert_eq!(bob.read(), "* bob is rob now");
    assert_eq!(ada.read(), "* bob is rob now");
    bob.send("/who");
    assert_eq!(bob.read(), "* in garden: ada, rob");
    let mut eve = chat.guest_in("eve", "garden");
    assert_eq!(eve.read(), "- [garden] ada: good morning");
    assert_eq!(ada.read(), "* eve has come into garden");
    eve.send("/quit");
    assert_eq!(eve.read(), "* good-bye");
    assert_eq!(ada.read(), "* eve has left garden");
    drop(bob);
    assert_eq!(ada.read(), "* rob has left garden");
    ada.send("/join ../etc\n/foo\n/join hall\nhello");
    assert!(ada.read().starts_with("* /join takes a name"));
    assert!(ada.read().starts_with("* there is no /foo"));
    assert_eq!((ada.read(), ada.read()), ("* you are in hall".to_owned(), "[hall] ada: hello".to_owned()));
    ada.send(&"x".repeat(2000));
    assert!(ada.read().starts_with("* a line has at most 1024 bytes"));
}

#[test]
fn a_slow_reader_loses_lines_and_is_notified() {
    let mut chat = Chat::start(&["--report"]);
    let mut slow = chat.guest_in("slow", "hall");
    let mut quick = chat.guest_in("quick", "hall");
    let long = "x".repeat(1000);
    // The kernel buffers a few megabytes for a reader that does not read.
    let mut lines = 0;
    while chat.report()["dropped"] == 0 {
        for _ in 0..4000 {
            quick.send(&long);
            assert!(
                quick.read_until("x").ends_with(&long),
                "the quick one hears itself while the slow one hears nothing"
            );
        }
        lines += 4000;
        assert!(lines < 200_000, "nothing was dropped");
    }
    quick.send("the end");
    quick.read_until("the end");
    let notice = slow.read_until("lines were dropped: you read too slowly");
    let notice: u64 = notice.split(' ').nth(1).unwrap().parse().unwrap();
    assert!((1..=lines).contains(&notice), "{notice} of {lines}");
    // The connection still works as before.
    quick.send("are you there?");
    slow.read_until("[hall] quick: are you there?");
}

#[test]
fn an_interrupted_chat_notifies_guests_and_ends_all_processes() {
    let chat = Chat::start(&[]);
    let mut guests: Vec<Guest> = (0..20).map(|index| chat.guest_in(&format!("guest-{index}"), "hall")).collect();
    let output = chat.stop();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    for guest in &mut guests {
        guest.read_until("* the server is shutting down");
        assert_eq!(guest.read(), "", "and the connection is closed");
    }
}

#[test]
fn an_address_that_is_taken_is_named() {
    let chat = Chat::start(&[]);
    let second = program().args(["--listen", &chat.address]).output().unwrap();
    assert!(!second.status.success());
    let error = String::from_utf8(second.stderr).unwrap();
    assert!(error.contains(&chat.address) && error.contains("in use"), "{error}");
}

#[test]
fn no_room_is_lost_and_nothing_leaks_with_1_percent_panics() {
    let seconds =
        std::env::var("VOLT_CHAT_SECONDS").map_or(5, |seconds| seconds.parse().expect("VOLT_CHAT_SECONDS is a number"));
    let mut chat = Chat::start(&["--report", "--chaos", "0.01"]);
    let load = |chat: &Chat, seconds: u64| {
        let mut load = program();
        load.args(["--load", &chat.address, "--clients", "20", "--rooms", "4", "--seconds", &seconds.to_string()]);
        let output = load.output().unwrap();
        let outcome = String::from_utf8(output.stdout).unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "a room was lost, or lines were out of order: {outcome} {errors}");
        let outcome: Value = serde_json::from_str(&outcome).unwrap();
        assert_eq!((&outcome["rooms_alive"], &outcome["out_of_order"]), (&Value::from(4), &Value::from(0)));
        outcome
    };
    // At rest, there are two supervisors under a third, the keeper, the listener, the lobby and
    // four rooms.
    let is_at_rest = |report: &Value| report["connections"] == 0 && report["processes"] == 10;
    load(&chat, 1);
    let mut before = chat.report_that("at rest", is_at_rest);
    let mut grown = Vec::new();
    while grown.len() < ROUNDS_MAX {
        let outcome = load(&chat, seconds);
        let again = |report: &Value| is_at_rest(report) && report["accepted"].as_u64() > before["accepted"].as_u64();
        let after = chat.report_that("at rest", again);
        eprintln!("{outcome}\n{before}\n{after}");
        assert_eq!(after["rooms"], 5, "four rooms and the lobby");
        let count = |report: &Value, what: &str| report[what].as_u64().unwrap();
        for what in ["panics", "restarts"] {
            assert!(count(&after, what) > count(&before, what), "no {what} under load");
        }
        assert!(count(&after, "sockets") <= count(&before, "sockets"), "{before} {after}");
        let growth_kb = count(&after, "rss_anon_kb").saturating_sub(count(&before, "rss_anon_kb"));
        before = after;
        grown.push(growth_kb);
        if growth_kb <= GROWTH_MAX_KB {
            break;
        }
    }
    assert!(grown.last() <= Some(&GROWTH_MAX_KB), "it grew each time, by {grown:?} kB");
    let output = chat.stop();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
