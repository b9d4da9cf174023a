//! A test that kills an unchanged program in a stuck poll, and reads from its black box what it
//! did.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde_json::Value;
use volt_console::commands::doctor::TextStyle;
use volt_console::commands::{post_mortem, record};
use volt_recording::black_box::{BlackBox, Poll, Worker, lives};
use volt_telemetry::client::{Client, resolve};
use volt_telemetry::recording::event::Event;
use volt_telemetry::rule::Rule;
use volt_telemetry::socket::Environment;

/// A program with a task that sleeps in its polls, and a directory for its socket and its black
/// boxes. Both are removed with the test.
struct Victim {
    child: Child,
    folder: PathBuf,
}

impl Victim {
    fn start() -> Self {
        // Not `TMPDIR`, whose path may be too long for a socket.
        let folder = PathBuf::from(format!("/tmp/volt-post-mortem-test-{}", std::process::id()));
        DirBuilder::new().mode(0o700).create(&folder).expect("a new folder in /tmp");
        Self { child: started(&folder), folder }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn client(&self) -> Client {
        let environment = Environment { socket_dir: Some(self.folder.clone()), ..Environment::of_program() };
        let path = resolve(&self.child.id().to_string(), &environment).expect("its control socket");
        Client::connect(&path).expect("it accepts connections")
    }

    /// Kills the program while a worker is in a poll of the task `sleeper`, once the black box has
    /// a finding, and events of that worker.
    fn kill_in_a_poll(&mut self) {
        loop {
            // A program that is stopped cannot leave the poll between this check and the kill.
            kill_process(self.pid(), Signal::STOP).unwrap();
            waitpid(Some(self.pid()), WaitOptions::UNTRACED).unwrap();
            let [life] = &lives::lives_in(&self.folder).unwrap()[..] else { panic!("one program, one run") };
            let black_box = BlackBox::open(&life.files[0]).unwrap();
            // Not a poll that began before the recorder was switched on, which is no event.
            let has_events = |worker: &Worker| {
                black_box.chunks.iter().any(|chunk| black_box.tracks[chunk.track as usize] == worker.track)
            };
            let is_stuck = black_box.workers.iter().any(|worker| {
                let is_named = |poll: &Poll| poll.task_name.is_some() && poll.spawned_at.is_some();
                worker.poll.as_ref().is_some_and(is_named) && has_events(worker)
            });
            let findings = black_box.samples.last().and_then(|sample| sample.snapshot.findings.as_ref());
            let is_found = findings.is_some_and(|all| all.iter().any(|finding| finding.rule == Rule::StalledPoll));
            if is_stuck && is_found {
                break;
            }
            kill_process(self.pid(), Signal::CONT).unwrap();
            std::thread::yield_now();
        }
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Starts the program, and waits until it has printed a line.
fn started(folder: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_symptoms"));
    command.args([Rule::StalledPoll.name(), "--seconds", "600"]).env_remove("RUST_LOG").stdin(Stdio::null());
    command.env("VOLT_SOCKET_DIR", folder).env("VOLT_BLACK_BOX", folder).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it runs");
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    if lines.read_line(&mut String::new()).unwrap_or_default() == 0 {
        let _ = child.kill();
        panic!("it prints nothing: {:?}", child.wait());
    }
    child
}

fn report(path: &Path, as_json: bool, output: Option<PathBuf>) -> String {
    let options = post_mortem::Options { events: 5, as_json, output, style: TextStyle::PLAIN };
    let mut text = Vec::new();
    post_mortem::run(path, &options, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

#[test]
fn a_killed_program_leaves_its_stuck_poll_events_and_findings() {
    let mut victim = Victim::start();
    record::switch(&mut victim.client(), None, true, &mut Vec::new()).unwrap();
    let alive = report(&victim.folder, false, None);
    assert!(alive.contains("still runs"), "{alive}");
    victim.kill_in_a_poll();

    let json: Value = serde_json::from_str(&report(&victim.folder, true, None)).unwrap();
    let killed = &json["black_boxes"][0];
    assert_eq!((&killed["ended"], &killed["identity"]["pid"]), (&"killed".into(), &victim.child.id().into()));
    assert!(killed["identity"]["executable"].as_str().unwrap().ends_with("/symptoms"));
    let workers = killed["workers"].as_array().unwrap();
    let stuck = workers.iter().find(|worker| worker["in_flight"]["task_name"] == "sleeper").expect("a stuck worker");
    let poll = &stuck["in_flight"];
    assert!(poll["spawned_at"].as_str().unwrap().contains("symptoms/stalls.rs"), "{poll}");
    let last_ns = killed["last_sign_ns"].as_u64().unwrap();
    assert_eq!(poll["began_at_ns"].as_u64().unwrap() + poll["for_ns"].as_u64().unwrap(), last_ns);
    assert!(killed["memory"]["resident_bytes"].as_u64().unwrap() > 0);
    let findings = killed["snapshot"]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["rule"] == Rule::StalledPoll.name()), "{findings:?}");
    assert!(killed["events"].as_array().is_some_and(|events| !events.is_empty()));
    // The last event of the stuck worker is the begin of that poll.
    let black_box = BlackBox::open(Path::new(killed["path"].as_str().unwrap())).unwrap();
    let index = stuck["index"].as_u64().unwrap();
    let slot = if stuck["is_spare"] == true { index + 2 } else { index };
    let chunk = black_box.chunks.iter().find(|chunk| u64::from(chunk.track) == slot).expect("its events");
    let last = chunk.records.last().unwrap().event();
    assert!(matches!(last, Event::PollBegin { task, .. } if poll["task_id"] == task), "{last:?}");

    let recording = victim.folder.join("end.voltrec");
    let text = report(&victim.folder, false, Some(recording.clone()));
    for part in ["killed or crashed at about 2", "polled task sleeper #", "stalled-poll", "Last events, 5 of"] {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
    let mut replayed = Vec::new();
    volt_console::commands::replay::print(&recording, false, true, None, &mut replayed).unwrap();
    assert!(String::from_utf8_lossy(&replayed).contains("symptoms"));

    // As a supervisor does it: the run that was killed is still the one to show.
    let pid = victim.child.id();
    victim.child = started(&victim.folder);
    let text = report(&victim.folder, false, None);
    assert!(text.contains(&format!("pid {pid}  ")) && text.contains("killed or crashed at about"), "{text}");
    assert!(text.contains("Other runs in this directory:") && text.contains("  still runs"), "{text}");
}
