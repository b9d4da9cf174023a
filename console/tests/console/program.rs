//! A stand-in for a Volt program: a thread that serves a control socket in a separate directory.

use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use volt_telemetry::Histogram;
use volt_telemetry::dump::{self, Dump, Group, Resource, TaskRef};
use volt_telemetry::incident::{Blame, Cause, Frame, Incident, Incidents};
use volt_telemetry::processes;
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::{Chunk, Flush, Head};
use volt_telemetry::recording::record::Record;
use volt_telemetry::snapshot::{self, Phase, Snapshot, Tasks, Worker};
use volt_telemetry::socket::{file_name, own_start_time, start_time_of};
use volt_telemetry::tasks::{Query, Rank, State, Task, TaskList};
use volt_telemetry::why::{self, Link, Why};
use volt_telemetry::wire::{
    Hello, MAGIC, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, Request, VERSION, Version, read_frame, write_frame,
};

/// A directory for control sockets, removed with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Folder {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // ORDERING: Relaxed; only the number matters, it publishes no other data.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // Not `TMPDIR`, whose path may be too long for a socket.
        let path = PathBuf::from(format!("/tmp/volt-console-test-{}-{number}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path).expect("a new folder in /tmp");
        Folder(path)
    }

    /// Returns the path of a socket for the pid that is `offset` above this program's.
    pub fn socket(&self, offset: u32) -> PathBuf {
        self.0.join(file_name(std::process::id() + offset, own_start_time()))
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns a command that runs the console with this socket directory.
    pub fn console(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_volt-console"));
        command.args(arguments).env("VOLT_SOCKET_DIR", &self.0).env_remove("NO_COLOR").env("TERM", "xterm");
        command
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Another process. A socket that is named after it belongs to a program that exits when this is
/// dropped.
pub struct Named {
    process: Child,
    file_name: String,
}

impl Named {
    pub fn start() -> Named {
        let process = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn().unwrap();
        let file_name = file_name(process.id(), start_time_of(process.id()).unwrap());
        Named { process, file_name }
    }

    pub fn pid(&self) -> String {
        self.process.id().to_string()
    }

    pub fn socket(&self, folder: &Folder) -> PathBuf {
        folder.0.join(&self.file_name)
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.process.kill();
        // Until then, the pid still exists.
        let _ = self.process.wait();
    }
}

/// How the stand-in behaves.
#[derive(Clone, Copy, PartialEq)]
pub enum Speech {
    /// Like a program of this protocol version.
    Volt(Version),
    /// Like a program whose worker 1 is stuck.
    Stuck,
    /// Like a program whose worker 1 was stuck briefly, before any snapshot was taken.
    WasStuck,
    /// Like a program with two incidents, with stacks and blame; one of the polls is still stuck.
    Stalled,
    /// Sends bytes that are not Volt's protocol.
    Garbage,
    /// Sends a frame of the protocol that is cut in the middle of a snapshot.
    CutOff,
}

/// Like a program of the current protocol version.
pub const VOLT: Speech = Speech::Volt(VERSION);

/// The running stand-in. Stops when dropped, and removes its socket.
pub struct Program {
    path: PathBuf,
    is_over: Arc<AtomicBool>,
    connections: Arc<Mutex<Vec<UnixStream>>>,
    snapshots: Arc<AtomicU32>,
    listener: Option<JoinHandle<()>>,
}

impl Program {
    pub fn start(path: &Path, name: &str, speech: Speech) -> Program {
        let listener = UnixListener::bind(path).expect("a socket in the test's folder");
        let is_over = Arc::new(AtomicBool::new(false));
        let connections = Arc::new(Mutex::new(Vec::new()));
        let snapshots = Arc::new(AtomicU32::new(0));
        let (over, accepted, sent, name) = (is_over.clone(), connections.clone(), snapshots.clone(), name.to_string());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                // ORDERING: Relaxed; the connection that `drop` makes after its store orders the
                // two.
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let stream = stream.unwrap();
                accepted.lock().unwrap().push(stream.try_clone().unwrap());
                let (name, sent) = (name.clone(), sent.clone());
                // The thread ends with an error when the client disconnects.
                std::thread::spawn(move || {
                    let _ = serve(&stream, &name, speech, &sent);
                    let _ = stream.shutdown(std::net::Shutdown::Both);
                });
            }
        });
        Program { path: path.into(), is_over, connections, snapshots, listener: Some(thread) }
    }

    /// Waits until this many snapshots were sent, over all connections.
    pub fn wait_for_snapshots(&self, count: u32) {
        let begun = Instant::now();
        // ORDERING: Relaxed; the number alone is the message.
        while self.snapshots.load(Ordering::Relaxed) < count {
            assert!(begun.elapsed() < Duration::from_secs(60), "no client requests {count} snapshots");
            std::thread::yield_now();
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // ORDERING: Relaxed; see the load.
        self.is_over.store(true, Ordering::Relaxed);
        let _ = UnixStream::connect(&self.path);
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
        let _ = std::fs::remove_file(&self.path);
        for stream in self.connections.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

fn serve(mut stream: &UnixStream, name: &str, speech: Speech, sent: &AtomicU32) -> io::Result<()> {
    let version = match speech {
        Speech::Volt(version) => version,
        Speech::Stuck | Speech::WasStuck | Speech::Stalled | Speech::CutOff => VERSION,
        Speech::Garbage => return stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    };
    let runtimes = vec!["app".into(), "exporter".into()];
    let pid = std::process::id();
    let volt = "0.9.9".into();
    let hello = Hello { magic: MAGIC.into(), version, pid, program: name.into(), runtimes, start_time: 1, volt };
    write_frame(stream, &Reply::Hello(hello), MAX_REPLY_BYTES)?;
    let started = Instant::now();
    let snapshot = || {
        // ORDERING: Relaxed, as in `wait_for_snapshots`.
        sent.fetch_add(1, Ordering::Relaxed);
        Reply::Snapshot { program: Box::new(program(name, started.elapsed(), speech)), lost: 0 }
    };
    let mut has_answered = false;
    while let Some(request) = read_frame::<Request>(stream, MAX_REQUEST_BYTES)? {
        match request {
            _ if speech == Speech::CutOff => return stream.write_all(&[200, 0, 0, 0, 0x81, 0xa4]),
            Request::Record { .. } => {
                let head = Head { pid, program: name.into(), runtime: "app".into(), ..Head::default() };
                write_frame(stream, &Reply::Recording { head: Box::new(head) }, MAX_REPLY_BYTES)?;
                loop {
                    // ORDERING: Relaxed, as in `wait_for_snapshots`.
                    sent.fetch_add(1, Ordering::Relaxed);
                    let flush = flush(program(name, started.elapsed(), speech).runtimes.remove(0));
                    write_frame(stream, &Reply::Flush { flush: Box::new(flush) }, MAX_REPLY_BYTES)?;
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            Request::Subscribe { interval_ms } => loop {
                write_frame(stream, &snapshot(), MAX_REPLY_BYTES)?;
                std::thread::sleep(Duration::from_millis(interval_ms));
            },
            Request::Tasks { runtime, mut query } => {
                // The first reply is for another client's query, as in a program with very many
                // tasks.
                if query.rank == Rank::Delay && !std::mem::replace(&mut has_answered, true) {
                    query.rank = Rank::Id;
                }
                let list = tasks(&runtime.unwrap_or_default(), name, query);
                write_frame(stream, &Reply::Tasks(Box::new(list)), MAX_REPLY_BYTES)?;
            }
            Request::Processes { runtime, query } => {
                let list = processes(&runtime.unwrap_or_default(), name, query);
                write_frame(stream, &Reply::Processes(Box::new(list)), MAX_REPLY_BYTES)?;
            }
            Request::Dump { runtime, query } => {
                let dump = dump(&runtime.unwrap_or_default(), &query);
                write_frame(stream, &Reply::Dump(Box::new(dump)), MAX_REPLY_BYTES)?;
            }
            Request::Why { task, .. } if task.parse::<u64>().is_err() => {
                let message = format!("no live task has the id or name {task:?}");
                write_frame(stream, &Reply::Error { message }, MAX_REPLY_BYTES)?;
            }
            Request::Why { runtime, task } => {
                let (task, spawned_at) = (task.parse().unwrap_or(0), "src/why.rs:3:1".into());
                let link = Link { task, spawned_at, state: why::State::Waits, ..Link::default() };
                let why = Why { runtime: runtime.unwrap_or_default(), links: vec![link], ..Why::default() };
                write_frame(stream, &Reply::Why(why), MAX_REPLY_BYTES)?;
            }
            _ => write_frame(stream, &snapshot(), MAX_REPLY_BYTES)?,
        }
    }
    Ok(())
}

/// Returns a dump with one waiting task, whose name has an escape sequence; without it if the query
/// is for another task or location.
fn dump(runtime: &str, query: &dump::Query) -> Dump {
    let mut dump = Dump { runtime: runtime.into(), alive: 1, ..Dump::default() };
    let is_other = query.task.as_deref().is_some_and(|task| task.trim_start_matches('#') != "7");
    if is_other || !"src/main.rs:3:1".contains(&query.filter) {
        return dump;
    }
    let link = dump::Link {
        function: Some("shop::pay".into()),
        file: Some("src/pay.rs".into()),
        line: Some(9),
        is_user_code: true,
        times: 1,
        ..dump::Link::default()
    };
    let task = TaskRef { id: 7, name: Some("cle\u{1b}[2Jrk".into()), waiting_ns: 5_000_000_000 };
    let group = Group {
        spawned_at: "src/main.rs:3:1".into(),
        tasks: 1,
        oldest_ns: 5_000_000_000,
        newest_ns: 5_000_000_000,
        examples: vec![task],
        chain: vec![link],
        resources: query.task.as_ref().map(|_| resource()).into_iter().collect(),
        ..Group::default()
    };
    (dump.waiting, dump.read, dump.groups) = (1, 1, vec![group]);
    dump
}

/// Returns the channel that the task awaits, in a dump of that task alone.
fn resource() -> Resource {
    Resource { kind: "oneshot".into(), tasks: 1, senders: Some(1), ..Resource::default() }
}

/// Returns twenty tasks. The one with the highest id is stranded, and its name has the program's
/// name and an escape sequence.
fn tasks(runtime: &str, name: &str, query: Query) -> TaskList {
    let task = |id: u64| Task {
        id,
        name: (id == 120).then(|| format!("{name}\u{1b}[2Jclerk")),
        spawned_at: format!("src/shop.rs:{id}:5"),
        state: if id == 120 { State::Stranded } else { State::Waits },
        polls: Some(1_000 - id),
        busy_ns: Some(id * 1_000_000),
        ..Task::default()
    };
    let rows = (101..=120).map(task).filter(|task| task.spawned_at.contains(&query.filter)).collect();
    TaskList { runtime: runtime.into(), query, rows, alive: 23, seen: 20, matching: 20, ..TaskList::default() }
}

/// Returns five processes of the runtime `app`, and none of other runtimes.
fn processes(runtime: &str, name: &str, query: processes::Query) -> processes::ProcessList {
    let process = |index: u64| processes::Process {
        pid: format!("local:{index}.0"),
        number: index << 32,
        name: (index == 4).then(|| format!("{name}\u{1b}[2Jtill")),
        kind: "shop::till::Till".into(),
        spawned_at: format!("src/till.rs:{index}:5"),
        mailbox_len: index * 10,
        mailbox_capacity: 100,
        steps: 1_000 - index,
        parent: Some("local:9.9".into()),
        ..processes::Process::default()
    };
    let rows: Vec<_> = (0..if runtime == "app" { 5 } else { 0 }).map(process).collect();
    let (alive, runtime) = (rows.len() as u64, runtime.to_owned());
    processes::ProcessList { runtime, query, rows, alive, matching: alive, ..processes::ProcessList::default() }
}

fn program(name: &str, age: Duration, speech: Speech) -> snapshot::Program {
    let at_ns = 1_000_000_000 + age.as_nanos() as u64;
    let stuck = Incident {
        id: 1,
        began_at_ns: 500_000_000,
        for_ns: if speech == Speech::Stuck { at_ns - 500_000_000 } else { 30_000_000 },
        is_over: speech == Speech::WasStuck,
        worker: 1,
        task_id: 7,
        task_name: Some("check\u{1b}[2Jout".into()),
        spawned_at: "src/main.rs:12:5".into(),
        cause: Cause::Sleep,
        ..Incident::default()
    };
    let latest = if matches!(speech, Speech::Stuck | Speech::WasStuck) { vec![stuck] } else { Vec::new() };
    let incidents = Incidents { latest, ..Incidents::default() };
    let (poll_time, schedule_delay) = match speech {
        Speech::Volt(_) | Speech::Stuck => (polled(age, 1_000_000), polled(age, 100_000)),
        _ => <(Histogram, Histogram)>::default(),
    };
    let worker = |index| Worker {
        index,
        phase: Phase::Parked,
        polls: at_ns / 1_000,
        poll_time: poll_time.clone(),
        schedule_delay: schedule_delay.clone(),
        ..Worker::default()
    };
    let runtime = |name: &str, workers: u32| Snapshot {
        runtime: name.into(),
        at_ns,
        parked_bitmap: vec![(1 << workers) - 1],
        tasks: Tasks { spawned: 7, alive: 7, ..Tasks::default() },
        workers: (0..workers).map(worker).collect(),
        incidents: if name == "app" { incidents.clone() } else { Incidents::default() },
        ..Snapshot::default()
    };
    let mut runtimes = vec![runtime("app", 3), runtime("exporter", 1)];
    if speech == Speech::Stalled {
        let latest = vec![incident(name, 1), incident(name, 2)];
        runtimes[0].incidents = Incidents { by_cause: vec![0, 2], latest, ..Incidents::default() };
        runtimes[0].blame = vec![Blame { spawned_at: "src/shop.rs:7:5".into(), stalls: 2, ..Blame::default() }];
    }
    snapshot::Program { pid: std::process::id(), name: name.into(), at_ns, runtimes, ..snapshot::Program::default() }
}

/// Returns a snapshot and the thousand events before it.
fn flush(snapshot: Snapshot) -> Flush {
    let at_ns = snapshot.at_ns;
    let records = (1..=1000).rev().map(|before| Record::new(at_ns - before, Event::LifoHit { task: before })).collect();
    Flush {
        at_ns,
        complete_until_ns: at_ns,
        chunks: vec![Chunk { records, ..Chunk::default() }],
        snapshot: Some(Box::new(snapshot)),
        ..Flush::default()
    }
}

/// Returns a histogram with one value of `ns` for each millisecond in `age`.
fn polled(age: Duration, ns: u64) -> Histogram {
    let mut histogram = Histogram::default();
    (0..age.as_millis()).for_each(|_| histogram.record(ns));
    histogram
}

/// Returns one of two incidents, of which the second is not over. The task's name is the program's.
fn incident(name: &str, id: u64) -> Incident {
    let frame = Frame {
        function: Some(format!("{name}::price")),
        file: Some("src/shop.rs".into()),
        line: Some(61),
        is_user_code: true,
        ..Frame::default()
    };
    Incident {
        id,
        began_at_ns: 1_000_000,
        for_ns: 240_000_000,
        is_over: id == 1,
        worker: 1,
        task_id: 42,
        task_name: Some(name.into()),
        spawned_at: "src/shop.rs:7:5".into(),
        cause: Cause::Sleep,
        stack: vec![frame],
        ..Incident::default()
    }
}
