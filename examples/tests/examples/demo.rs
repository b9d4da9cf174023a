//! Tests of the demo as users run it: a separate program, its output, and its exit code.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
    command.arg("--headless").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env_remove("RUST_LOG");
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the demo prints text")
}

/// Parses the summary, which is the last line.
fn summary(output: &Output) -> Value {
    let last = text(&output.stdout).lines().last().unwrap_or_default();
    serde_json::from_str(last).unwrap_or_else(|error| {
        panic!("{error} in the last line of:\n{}\n{}", text(&output.stdout), text(&output.stderr));
    })
}

/// A demo that runs until it is stopped; killed if a test does not stop it.
struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
    service: String,
    metrics: String,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut child = demo(arguments).args(["--seconds", "600", "--metrics", "127.0.0.1:0"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut address = |label: &str| {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            let rest = line.trim_end().strip_prefix(label).unwrap_or_else(|| panic!("no {label:?} in {line:?}"));
            rest.to_owned()
        };
        let (service, metrics) = (address("service http://"), address("metrics http://"));
        let control = address("control ");
        assert!(control.ends_with(".sock"), "{control}");
        Self { child, lines, service, metrics }
    }

    /// Waits until a line of the report shows an answered request.
    fn wait_for_answers(&mut self) {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "it ended before it had an answer");
            let (_, rest) = line.split_once(" s ").unwrap_or_else(|| panic!("no line of a second: {line:?}"));
            if rest.split_whitespace().next() != Some("0") {
                return;
            }
        }
    }

    fn stop(mut self, signal: &str) -> Output {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let mut stdout = Vec::new();
        self.lines.read_to_end(&mut stdout).unwrap();
        let mut stderr = Vec::new();
        self.child.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        let status = self.child.wait().unwrap();
        Output { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the response to a GET, head and body; "" if there is none.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn it_ends_without_an_error_and_prints_a_summary() {
    let output = demo(&["--seconds", "2", "--connections", "8", "--metrics", "127.0.0.1:0"]).output().unwrap();
    let summary = summary(&output);
    assert!(output.status.success(), "{summary}\n{}", text(&output.stderr));
    assert_eq!(summary["errors"], 0);
    assert_eq!(summary["lost_wakeup_rescues"], 0);
    for handler in ["fast", "fanout", "timer", "cpu", "block"] {
        let of_handler = &summary["by_handler"][handler];
        assert!(of_handler["requests"].as_u64().unwrap() > 0, "{handler}: {of_handler}");
        assert!(of_handler["p99_ms"].as_f64().unwrap() > 0.0, "{handler}: {of_handler}");
    }
    assert!(summary["polls"].as_u64() > summary["requests"].as_u64(), "a request takes more than one poll: {summary}");
    assert!(summary["runtimes"]["service"]["polls"].as_u64() > Some(0), "{summary}");
    assert!(text(&output.stdout).lines().any(|line| line.trim_start().starts_with("1 s ")), "a line a second");
}

#[test]
fn a_handler_that_blocks_is_logged_with_its_task() {
    let output = demo(&["--seconds", "1", "--connections", "1", "--metrics", "127.0.0.1:0"]).output().unwrap();
    let log = text(&output.stderr);
    let line =
        log.lines().find(|line| line.contains("blocks its worker")).unwrap_or_else(|| panic!("not logged: {log}"));
    for part in ["volt.task{", "id=", "name=", "spawn="] {
        assert!(line.contains(part), "{part:?} is missing in {line:?}");
    }
}

#[test]
fn with_no_block_no_request_blocks() {
    let output = demo(&["--seconds", "1", "--no-block", "--metrics", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(summary(&output)["by_handler"]["block"]["requests"], 0);
}

#[test]
fn the_page_has_application_metrics_and_runtime_metrics() {
    let running = Running::start(&["--connections", "2"]);
    let deadline = Instant::now() + Duration::from_secs(30);
    let address = running.metrics.strip_suffix("/metrics").expect("a path").to_owned();
    loop {
        let page = get(&address, "/metrics");
        let wanted = ["demo_requests_total{handler=\"fast\"}", "demo_request_seconds_", "volt_"];
        if wanted.iter().all(|part| page.contains(part)) {
            break;
        }
        assert!(Instant::now() < deadline, "one of {wanted:?} is missing in:\n{page}");
    }
    assert!(running.stop("-TERM").status.success());
}

#[test]
fn both_signals_end_it_cleanly_with_a_summary() {
    for signal in ["-INT", "-TERM"] {
        let mut running = Running::start(&["--connections", "4"]);
        assert!(get(running.service.trim_end_matches('/'), "/fast").ends_with("fast\n"));
        running.wait_for_answers();
        let output = running.stop(signal);
        let summary = summary(&output);
        assert_eq!(summary["errors"], 0, "{signal}");
        assert!(summary["requests"].as_u64() > Some(0), "{signal}: {summary}");
        assert!(output.status.success(), "{signal}: {:?}\n{}", output.status, text(&output.stderr));
    }
}

#[test]
fn a_signal_before_the_first_answer_ends_it_cleanly_too() {
    // The addresses are printed before the load begins. Most of these runs are therefore stopped
    // before the first response, and no request may fail.
    for _ in 0..5 {
        let output = Running::start(&["--connections", "1"]).stop("-TERM");
        assert_eq!(summary(&output)["errors"], 0);
        assert!(output.status.success(), "{:?}: {}", output.status, text(&output.stderr));
    }
}

#[test]
fn a_number_out_of_bounds_is_a_bad_request() {
    let running = Running::start(&["--connections", "1"]);
    let answer = get(running.service.trim_end_matches('/'), "/block?ms=100000");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("100000 is more than 1000\n"), "{answer}");
    running.stop("-TERM");
}

#[test]
fn an_address_that_is_taken_is_an_error_that_names_the_option() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for option in ["--metrics", "--http"] {
        let mut command = demo(&[option, &address]);
        if option == "--http" {
            command.args(["--metrics", "127.0.0.1:0"]);
        }
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{option}");
        assert!(text(&output.stderr).starts_with(&format!("demo: {option} {address}: ")), "{}", text(&output.stderr));
    }
}

#[test]
fn a_closed_output_ends_it_without_a_panic() {
    let mut child = demo(&["--seconds", "600", "--metrics", "127.0.0.1:0"]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(!text(&output.stderr).contains("panicked"), "{}", text(&output.stderr));
}

#[test]
fn settings_that_cannot_be_are_refused_with_their_name() {
    for (arguments, name) in [
        (["--seconds", "0"], "--seconds"),
        (["--workers", "0"], "--workers"),
        (["--connections", "0"], "--connections"),
        (["--workers", "1000000"], "worker"),
    ] {
        let output = demo(&arguments).args(["--metrics", "127.0.0.1:0"]).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text(&output.stderr).contains(name), "{arguments:?}: {}", text(&output.stderr));
    }
}
