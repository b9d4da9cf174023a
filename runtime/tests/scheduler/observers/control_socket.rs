//! The control socket of a real program: a client finds it, attaches while every worker is stuck,
//! and it is removed when the program ends, or cleaned up later.
//!
//! The program is this test's own binary, started again with [`ROLE`] set, since its environment
//! and its death belong to a separate program.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use volt_telemetry::client::{Client, resolve};
use volt_telemetry::snapshot::Phase;
use volt_telemetry::socket::{self, Environment};

const ROLE: &str = "VOLT_TEST_ROLE";
const WORKERS: usize = 2;
/// The maximum time for an event that the test expects.
const LONG: Duration = Duration::from_secs(20);

/// Not a test when run as one: the main function of the started program.
#[test]
fn the_started_program_runs_until_its_input_ends() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let builder = volt::Builder::new_multi_thread().worker_threads(WORKERS).name("observed");
    let runtime = builder.build().unwrap();
    println!("path {}", volt::observe::socket_path().map(|path| path.display().to_string()).unwrap_or_default());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    if line == "wedge\n" {
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let stuck = std::sync::Arc::new(std::sync::Mutex::new(stuck));
        for _ in 0..WORKERS {
            let stuck = stuck.clone();
            // Blocks its worker until the program has to end.
            drop(runtime.spawn(async move {
                let _ = stuck.lock().unwrap().recv();
            }));
        }
        let mut rest = Vec::new();
        std::io::stdin().read_to_end(&mut rest).unwrap();
        drop(release);
    }
    drop(runtime);
    println!("ended {:?}", volt::observe::socket_path());
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/tmp/volt-control-{}-{name}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    fn environment(&self) -> Environment {
        let user_id = Environment::of_program().user_id;
        Environment { socket_dir: Some(self.0.join("volt")), runtime_dir: None, user_id }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<std::process::ChildStdout>,
    path: PathBuf,
}

impl Program {
    fn start(socket_dir: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "observers::control_socket::the_started_program_runs_until_its_input_ends",
                "--nocapture",
                "--quiet",
            ])
            .env(ROLE, "program")
            .env("VOLT_SOCKET_DIR", socket_dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut program = Self { child, input, output, path: PathBuf::new() };
        program.path = program.answer("path ").into();
        program
    }

    /// Returns the rest of the first line of its output that has `key`.
    fn answer(&mut self, key: &str) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "it ended without {key:?}");
            if let Some((_, value)) = line.trim_end_matches('\n').split_once(key) {
                return value.to_owned();
            }
        }
    }

    fn send(&mut self, line: &str) {
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_program_is_found_by_pid_or_name_while_it_runs() {
    let folder = Folder::new("found");
    let environment = folder.environment();
    let mut program = Program::start(&folder.0.join("volt"));
    let pid = program.child.id();

    let listing = socket::list(&environment);
    assert!(listing.refused.is_empty(), "{:?}", listing.refused);
    assert_eq!(listing.sockets.len(), 1);
    assert_eq!((listing.sockets[0].pid, listing.sockets[0].is_alive), (pid, true));
    assert_eq!(resolve(&pid.to_string(), &environment).unwrap(), program.path);
    assert_eq!(resolve("observed", &environment).unwrap(), program.path);

    let mut client = Client::connect(&program.path).unwrap();
    assert_eq!((client.hello().pid, client.hello().runtimes[0].as_str()), (pid, "observed"));
    let state = client.snapshot().unwrap();
    assert_eq!((state.pid, state.runtimes[0].workers.len()), (pid, WORKERS));

    program.send("end");
    assert_eq!(program.answer("ended "), "None");
    assert!(client.next(LONG).unwrap_err().is_closed());
    assert!(program.child.wait().unwrap().success());
    assert!(socket::list(&environment).sockets.is_empty());
}

#[test]
fn a_program_whose_every_worker_is_stuck_responds() {
    let folder = Folder::new("stuck");
    let mut program = Program::start(&folder.0.join("volt"));
    program.send("wedge");
    let mut client = Client::connect(&program.path).unwrap();
    let begun = Instant::now();
    loop {
        let state = client.snapshot().unwrap();
        let stuck: Vec<_> = state.runtimes[0].workers.iter().filter(|worker| worker.in_flight.is_some()).collect();
        if stuck.len() == WORKERS {
            assert!(stuck.iter().all(|worker| worker.phase == Phase::Busy));
            let spawned_at = &stuck[0].in_flight.as_ref().unwrap().spawned_at;
            assert!(spawned_at.contains("control_socket.rs"), "{spawned_at}");
            break;
        }
        assert!(begun.elapsed() < LONG, "never seen stuck: {:?}", state.runtimes[0].workers);
    }
    drop(program.input.take());
    assert_eq!(program.answer("ended "), "None");
}

#[test]
fn a_killed_programs_socket_is_stale_and_cleaned_up_later() {
    let folder = Folder::new("killed");
    let environment = folder.environment();
    let mut killed = Program::start(&folder.0.join("volt"));
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    assert!(killed.path.exists());
    assert!(Client::connect(&killed.path).unwrap_err().is_stale());
    assert!(resolve(&killed.child.id().to_string(), &environment).unwrap_err().is_stale());

    let next = Program::start(&folder.0.join("volt"));
    assert!(!killed.path.exists());
    assert!(Client::connect(&next.path).is_ok());
}

#[test]
fn a_program_that_gets_no_socket_runs_on() {
    let folder = Folder::new("refused");
    let open = folder.0.join("open");
    std::fs::DirBuilder::new().mode(0o755).create(&open).unwrap();
    for unusable in [open, folder.0.join("x".repeat(120)), folder.0.join("missing/volt")] {
        let mut program = Program::start(&unusable);
        assert_eq!(program.path, Path::new(""), "{unusable:?}");
        program.send("end");
        assert_eq!(program.answer("ended "), "None");
        assert!(program.child.wait().unwrap().success());
    }
}
