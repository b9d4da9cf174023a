//! Tests of the program `volt-exporter` with real programs: which ones it shows, and that a stopped
//! program does not delay a page.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
#[cfg(feature = "otlp")]
use std::process::ExitStatus;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use volt_telemetry::client::{HELLO_TIMEOUT, REPLY_TIMEOUT};

use crate::tasks::{CAN_UNWIND, HEADER};

/// Set for the child processes of these tests.
const IS_APPLICATION: &str = "VOLT_TEST_APPLICATION";

/// Aborts the program if a test hangs. Dropped when the test is over.
struct Watchdog(#[expect(dead_code, reason = "its drop is the message")] mpsc::Sender<()>);

fn watchdog() -> Watchdog {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        if receiver.recv_timeout(Duration::from_secs(60)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _result = std::io::Write::write_all(&mut std::io::stderr(), b"the test hangs\n");
            std::process::abort();
        }
    });
    Watchdog(sender)
}

/// Kills its child process when dropped.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.0.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    /// Stops the program. When this returns, none of its threads runs any more. The kernel stops
    /// the threads one after the other, and until the last is stopped, one could still reply.
    fn stop(&self) {
        self.signal("STOP");
        let threads = format!("/proc/{}/task", self.pid());
        let is_stopped = |thread: std::io::Result<std::fs::DirEntry>| {
            // A thread that has exited in the meantime has no file.
            let stat = std::fs::read_to_string(thread.unwrap().path().join("stat"));
            stat.map_or(true, |stat| stat.rsplit_once(") ").unwrap().1.starts_with('T'))
        };
        while !std::fs::read_dir(&threads).unwrap().all(is_stopped) {
            std::thread::yield_now();
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits until the program has exited.
    #[cfg(feature = "otlp")]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.0.wait().unwrap()
    }
}

/// A directory for one test, which is removed with its contents.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        use std::os::unix::fs::DirBuilderExt;
        let path = std::env::temp_dir().join(format!("volt-{name}-{}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Not a test by itself: the application that the other tests start and observe.
#[test]
fn the_started_application_runs_until_its_input_ends() {
    if std::env::var_os(IS_APPLICATION).is_none() {
        return;
    }
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("main").build().unwrap();
    let _waits = runtime.spawn(planted());
    println!("is up");
    // Until the test closes the pipe, or has exited.
    let _ended = std::io::stdin().read(&mut [0]);
}

/// A wait that never ends, which a dump has to find.
async fn planted() {
    volt::time::sleep(Duration::from_secs(86_400)).await;
}

pub(crate) fn start_application(sockets: &Path) -> Running {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "sidecar::the_started_application_runs_until_its_input_ends", "--nocapture"])
        .env(IS_APPLICATION, "1")
        .env("VOLT_SOCKET_DIR", sockets)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let running = Running(child);
    assert!(output.lines().any(|line| line.unwrap().contains("is up")), "the application did not start");
    running
}

/// Starts `volt-exporter` and returns the address that it listens on.
fn start_exporter(arguments: &[&str]) -> (Running, String) {
    start_exporter_with(arguments, &[])
}

/// Starts `volt-exporter` with environment variables, and returns the address that it listens on.
pub(crate) fn start_exporter_with(arguments: &[&str], variables: &[(&str, String)]) -> (Running, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_volt-exporter"))
        .args(["--listen", "127.0.0.1:0"])
        .args(arguments)
        .envs(variables.iter().cloned())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("metrics http://").and_then(|rest| rest.strip_suffix("/metrics"));
    (Running(child), address.unwrap_or_else(|| panic!("{line:?}")).to_string())
}

fn send_request(address: &str, path: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    stream
}

fn answer(stream: &mut TcpStream) -> String {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer
}

fn get(address: &str, path: &str) -> String {
    answer(&mut send_request(address, path))
}

fn value(page: &str, name: &str, pid: u32) -> Option<f64> {
    let pid = format!("pid=\"{pid}\"");
    let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(&pid))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

#[test]
fn the_pid_distinguishes_programs_with_equal_runtime_names() {
    let _watchdog = watchdog();
    let sockets = Folder::new("told-apart");
    let (first, second) = (start_application(&sockets.0), start_application(&sockets.0));
    let (_exporter, address) = start_exporter(&["--discover", sockets.0.to_str().unwrap()]);
    let page = get(&address, "/metrics");
    for application in [&first, &second] {
        assert_eq!(value(&page, "volt_program_up", application.pid()), Some(1.0), "{page}");
        assert_eq!(value(&page, "volt_runtime_workers", application.pid()), Some(1.0), "{page}");
    }
    assert_eq!(page.matches("# TYPE volt_runtime_workers gauge").count(), 1, "one family, one head");
    let (_, json) =
        get(&address, "/snapshot").split_once("\r\n\r\n").map(|(h, b)| (h.to_string(), b.to_string())).unwrap();
    let programs: Vec<volt_telemetry::Program> = serde_json::from_str(&json).unwrap();
    let mut pids: Vec<_> = programs.iter().map(|program| program.pid).collect();
    pids.sort_unstable();
    let mut expected = [first.pid(), second.pid()];
    expected.sort_unstable();
    assert_eq!(pids, expected);

    let (gone, stays) = (second.pid(), first.pid());
    drop(second);
    let page = get(&address, "/metrics");
    assert_eq!(value(&page, "volt_runtime_workers", gone), None, "{page}");
    assert_eq!(value(&page, "volt_program_up", stays), Some(1.0), "{page}");
}

#[test]
fn a_dump_through_the_sidecar_has_the_line_of_a_wait() {
    let _watchdog = watchdog();
    let sockets = Folder::new("dumped");
    let application = start_application(&sockets.0);
    let (_exporter, address) = start_exporter(&["--discover", sockets.0.to_str().unwrap()]);
    let snapshot = get(&address, "/live.json");
    let programs: serde_json::Value = serde_json::from_str(snapshot.split_once("\r\n\r\n").unwrap().1).unwrap();
    let (program, pid) = (programs[0]["program"].as_str().unwrap(), application.pid());
    let send = |path: &str, header: &str| {
        let path = format!("/live/{path}?program={program}&pid={pid}&runtime=main");
        let mut stream = TcpStream::connect(&*address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{header}Connection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    for path in ["dump.json", "tasks.json"] {
        let refused = send(path, "");
        assert!(refused.starts_with("HTTP/1.1 403") && refused.contains("Volt-Request"), "{refused}");
        let found = loop {
            let answer = send(path, HEADER);
            // The program rests for as long as the last request took.
            if !answer.starts_with("HTTP/1.1 429") && answer.contains("tests/exporter/sidecar.rs") {
                break answer;
            }
            assert!(["200", "429"].contains(&&answer[9..12]), "{answer}");
        };
        assert!(found.contains(&format!("\"pid\":{pid}")) && found.contains("\"runtime\":\"main\""), "{found}");
        assert!(path != "dump.json" || !CAN_UNWIND || found.contains("sidecar::planted"), "{found}");
    }
}

#[test]
fn a_stopped_program_is_reported_down_until_it_resumes() {
    let _watchdog = watchdog();
    let sockets = Folder::new("stopped");
    let (stopped, runs) = (start_application(&sockets.0), start_application(&sockets.0));
    let (_exporter, address) = start_exporter(&["--discover", sockets.0.to_str().unwrap()]);
    assert_eq!(value(&get(&address, "/metrics"), "volt_program_up", stopped.pid()), Some(1.0));
    stopped.stop();
    // Longer than the exporter waits for a reply, and then for a hello, before it connects again.
    let stopped_at = Instant::now();
    while stopped_at.elapsed() < REPLY_TIMEOUT + HELLO_TIMEOUT + Duration::from_secs(1) {
        let page = get(&address, "/metrics");
        assert_eq!(value(&page, "volt_program_up", stopped.pid()), Some(0.0), "{page}");
        assert_eq!(value(&page, "volt_runtime_workers", stopped.pid()), None, "no number of a program that is silent");
        assert_eq!(value(&page, "volt_program_up", runs.pid()), Some(1.0), "{page}");
    }
    stopped.signal("CONT");
    // If an attempt to connect failed just before, it takes one page more.
    while value(&get(&address, "/metrics"), "volt_program_up", stopped.pid()) != Some(1.0) {}
}

/// Tests of the routes cover that the scrapes share one collection, and that the health is reported
/// meanwhile.
#[test]
fn many_scrapes_of_a_stopped_program_are_answered() {
    let _watchdog = watchdog();
    let sockets = Folder::new("many-ask");
    let stopped = start_application(&sockets.0);
    let (_exporter, address) = start_exporter(&["--discover", sockets.0.to_str().unwrap()]);
    assert_eq!(value(&get(&address, "/metrics"), "volt_program_up", stopped.pid()), Some(1.0));
    stopped.stop();
    let mut requests: Vec<TcpStream> = (0..20).map(|_| send_request(&address, "/metrics")).collect();
    get(&address, "/healthz");
    requests
        .iter_mut()
        .for_each(|stream| assert_eq!(value(&answer(stream), "volt_program_up", stopped.pid()), Some(0.0)));
    stopped.signal("CONT");
}

#[test]
fn without_a_program_no_volt_metric_is_served_and_health_is_ok() {
    let _watchdog = watchdog();
    let sockets = Folder::new("nobody");
    let (_exporter, address) = start_exporter(&["--discover", sockets.0.to_str().unwrap()]);
    let page = get(&address, "/metrics");
    assert!(!page.contains("volt_"), "{page}");
    assert!(get(&address, "/healthz").ends_with("ok\n"));
}

#[test]
fn a_path_that_is_no_folder_is_an_error_that_names_it() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_volt-exporter")).args(["--discover", "/nowhere/volt"]).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("--discover: /nowhere/volt is not a directory"), "{error}");
}

#[test]
fn startup_errors_name_the_setting_and_the_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (arguments, code, reported) in [
        (["--listen", &*taken], 1, "is already in use: choose another port"),
        (["--listen", "0.0.0.0:0"], 1, "--allow-remote"),
        (["--listen", "nonsense"], 1, "use the form 127.0.0.1:9464"),
        (["--discover", "/proc/self/stat"], 1, "is not a directory"),
        (["--nonsense", "1"], 2, "unexpected argument"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_volt-exporter")).args(arguments).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}");
        assert!(error.contains(reported) && output.stdout.is_empty(), "{arguments:?}: {error}");
    }
}

#[test]
fn the_exporter_warns_once_of_a_socket_folder_open_to_others() {
    assert_warns_once(0o755, 0);
    assert_warns_once(0o777, 3);
}

/// Checks that the exporter warns once of a socket folder with this mode, in a run with this many
/// scrapes.
#[track_caller]
fn assert_warns_once(mode: u32, scrapes: usize) {
    use std::os::unix::fs::PermissionsExt;
    let _watchdog = watchdog();
    let sockets = Folder::new("open");
    std::fs::set_permissions(&sockets.0, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_volt-exporter"))
        .args(["--listen", "127.0.0.1:0", "--discover", sockets.0.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("metrics http://").and_then(|rest| rest.strip_suffix("/metrics")).unwrap();
    let mut reported = child.stderr.take().unwrap();
    let running = Running(child);
    for _ in 0..scrapes {
        get(address, "/metrics");
    }
    drop(running);
    let mut log = String::new();
    reported.read_to_string(&mut log).unwrap();
    assert_eq!(log.matches(&format!("{} (mode {:04o})", sockets.0.display(), mode)).count(), 1, "{log}");
}

#[test]
fn an_exporter_with_closed_output_continues_to_serve() {
    let _watchdog = watchdog();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let sockets = Folder::new("unread");
    let mut child = Command::new(env!("CARGO_BIN_EXE_volt-exporter"))
        .args(["--listen", &*free, "--discover", sockets.0.to_str().unwrap()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The pipe is closed before the exporter writes to it.
    drop(child.stdout.take());
    let mut reported = child.stderr.take().unwrap();
    let running = Running(child);
    while TcpStream::connect(&*free).is_err() {
        std::thread::yield_now();
    }
    // It prints its address after it has started to listen.
    for _ in 0..100 {
        assert!(get(&free, "/healthz").ends_with("ok\n"));
    }
    drop(running);
    let mut log = String::new();
    reported.read_to_string(&mut log).unwrap();
    assert!(!log.contains("panicked"), "{log}");
}
