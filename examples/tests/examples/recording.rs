//! A test that records the demo under load over its control socket, replays the recording, and
//! exports it: from the workers' rings to a trace.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use volt_console::commands::export;
use volt_console::commands::record;
use volt_console::commands::replay;
use volt_recording::windows::Reach;
use volt_telemetry::client::Client;

/// The demo, its socket and a directory, all removed with the test.
struct Running {
    child: Child,
    folder: PathBuf,
    socket: PathBuf,
}

impl Running {
    fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("volt-recording-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_demo"));
        command.args(["--headless", "--seconds", "600", "--metrics", "127.0.0.1:0"]).env_remove("RUST_LOG");
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the demo");
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut socket = None;
        // Waits for the line of the third second, when the demo is under load.
        for _ in 0..6 {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            socket = socket.or(line.strip_prefix("control ").map(|path| PathBuf::from(path.trim_end())));
        }
        // Keeps reading, so that a full pipe does not block the demo.
        std::thread::spawn(move || lines.read_to_end(&mut Vec::new()));
        Self { child, folder, socket: socket.expect("it prints the path of its socket") }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The contents of a trace: the slices by name, and the number of arrows.
#[derive(Default)]
struct Trace {
    slices: HashMap<String, usize>,
    flows: usize,
}

/// Reads a trace from top to bottom as Perfetto does, and checks it: slices nest, arrows resolve,
/// and time never goes back on a track.
fn read(path: &Path) -> Trace {
    let json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).expect("JSON");
    let mut trace = Trace::default();
    let (mut open, mut last, mut begun) = (HashMap::<u64, Vec<String>>::new(), HashMap::new(), HashMap::new());
    for line in json["traceEvents"].as_array().expect("events") {
        let (tid, phase) = (line["tid"].as_u64().unwrap(), line["ph"].as_str().unwrap());
        if phase == "M" {
            continue;
        }
        let at = line["ts"].as_f64().unwrap();
        assert!(last.insert(tid, at).is_none_or(|before| before <= at), "time goes back: {line}");
        let stack = open.entry(tid).or_default();
        match phase {
            "B" => stack.push(line["name"].as_str().unwrap().to_owned()),
            "E" => *trace.slices.entry(stack.pop().unwrap_or_else(|| panic!("no begin: {line}"))).or_default() += 1,
            "s" => {
                assert!(!stack.is_empty() && begun.insert(line["id"].as_u64(), ()).is_none(), "{line}");
            }
            "f" => {
                assert!(!stack.is_empty() && begun.remove(&line["id"].as_u64()).is_some(), "{line}");
                trace.flows += 1;
            }
            _ => {}
        }
    }
    assert!(open.values().all(Vec::is_empty), "slices that do not end: {open:?}");
    assert!(begun.is_empty(), "arrows that lead nowhere: {begun:?}");
    trace
}

#[test]
fn the_demo_is_recorded_replayed_and_exported_completely() {
    let demo = Running::start();
    let client = Client::connect(&demo.socket).unwrap();
    let file = demo.file("demo.voltrec");
    let options = record::Options {
        runtime: Some("service".into()),
        seconds: Some(Duration::from_secs(2)),
        path: Some(file.clone()),
        max_file_bytes: 256 << 20,
        max_files: 1,
        triggers: Vec::new(),
        reach: Reach { before: Duration::ZERO, ..Reach::default() },
    };
    let mut printed = Vec::new();
    record::run(client, &options, &mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert!(printed.contains(" events, ") && printed.contains("demo.voltrec"), "{printed}");

    export::run(&file, None, &mut std::io::sink()).unwrap();
    let trace = read(&demo.file("demo.json"));
    let count = |part: &str| -> usize {
        trace.slices.iter().filter(|(name, _)| name.contains(part)).map(|(_, count)| *count).sum()
    };
    assert!(trace.flows > 100, "{} arrows", trace.flows);
    // A connection has a name. The tasks that it spawns have none, and show where they were
    // spawned.
    for part in ["http 127.0.0.1", "service.rs:", "wake", "search", "parked"] {
        assert!(count(part) > 0, "no {part:?} in {:?}", trace.slices);
    }
    assert!(export::run(&file, None, &mut std::io::sink()).unwrap_err().is_recording(), "the trace is there already");

    let mut shown = Vec::new();
    replay::print(&file, true, false, None, &mut shown).unwrap();
    let moment: Value = serde_json::from_slice(&shown).unwrap();
    assert_eq!((&moment["program"], &moment["runtime"]), (&"demo".into(), &"service".into()));
    assert!(moment["rates"]["polls_per_second"].as_f64().unwrap() > 0.0);

    // The complete part of a truncated file is shown.
    let bytes = std::fs::read(&file).unwrap();
    let cut = demo.file("cut.voltrec");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    replay::print(&cut, false, false, None, &mut Vec::new()).unwrap();
    export::run(&cut, None, &mut std::io::sink()).unwrap();
    assert!(read(&demo.file("cut.json")).flows > 0);
}
