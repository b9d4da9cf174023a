//! Writes the corpora from which the fuzzer starts: one valid input of each kind.
//!
//! ```sh
//! cargo run --example seeds -- FOLDER [FILE…]
//! ```
//!
//! Each file is a real one, and is recognized by its first bytes: a recording, a black box, or a
//! program with debug information. Without files, only the messages are written, which this program
//! makes itself. The script `seeds` makes the files.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use fuzz_targets::sealed;
use serde::Serialize;
use volt_telemetry::dump::{self, Dump, Group, Lock, Resource, Running, TaskRef};
use volt_telemetry::incident::{Blame, Frame, Incident, Incidents};
use volt_telemetry::processes::{self, Mailbox, ProcessList, Processes};
use volt_telemetry::recording::event::Event;
use volt_telemetry::recording::flush::{Chunk, Flush, Head, Mark, Table, Text, Track};
use volt_telemetry::recording::record::Record;
use volt_telemetry::snapshot::{InFlight, Program, Snapshot, Worker};
use volt_telemetry::tasks::{self, Task, TaskList};
use volt_telemetry::why::{Link, Why, Woken};
use volt_telemetry::wire::{self, Hello, MAGIC, Recorder, Reply, Request, VERSION};

/// The longest seed in bytes: a short one is changed in more places in the same time.
const SEED_BYTES_MAX: usize = 48 << 10;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().ok_or("the first argument is the folder of the corpora")?;
    let corpus = Corpus { folder };
    messages(&corpus)?;
    texts(&corpus)?;
    for path in arguments {
        let bytes = fs::read(&path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if bytes.starts_with(b"volt-rec") {
            corpus.add("recording", &name, &sealed::unsealed_recording(&bytes))?;
        } else if bytes.starts_with(b"VOLTBOX\0") {
            corpus.add("black_box", &name, &sealed::unsealed_black_box(&bytes))?;
        } else if bytes.starts_with(b"\x7fELF") {
            corpus.add("debug_info", &name, &bytes)?;
        } else {
            corpus.add("unwind", &name, &bytes)?;
        }
    }
    Ok(())
}

/// The folders of the inputs, one for each target.
struct Corpus {
    folder: PathBuf,
}

impl Corpus {
    fn add(&self, target: &str, name: &str, bytes: &[u8]) -> Result<()> {
        if bytes.len() > SEED_BYTES_MAX {
            return Err(
                format!("{target}/{name} has {} bytes, and at most {SEED_BYTES_MAX} are allowed", bytes.len()).into()
            );
        }
        let folder: &Path = &self.folder.join(target);
        fs::create_dir_all(folder)?;
        Ok(fs::write(folder.join(name), bytes)?)
    }
}

/// Returns the body of a frame.
fn body<T: Serialize>(message: &T) -> Result<Vec<u8>> {
    Ok(wire::encode(message, usize::MAX)?.split_off(4))
}

fn messages(corpus: &Corpus) -> Result<()> {
    for (index, request) in requests().iter().enumerate() {
        corpus.add("requests", &format!("request-{index}"), &body(request)?)?;
    }
    let replies = replies();
    for (index, reply) in replies.iter().enumerate() {
        corpus.add("replies", &format!("reply-{index}"), &body(reply)?)?;
        // The first byte is the kind of the client, and the size of the pieces.
        let mut stream = vec![0xfc | (index as u8 & 3)];
        stream.extend(wire::encode(&replies[0], usize::MAX)?);
        stream.extend(wire::encode(reply, usize::MAX)?);
        corpus.add("client", &format!("reply-{index}"), &stream)?;
    }
    Ok(())
}

fn texts(corpus: &Corpus) -> Result<()> {
    for (name, text) in [
        ("get", "GET /metrics HTTP/1.1\r\nHost: localhost:1\r\nAccept: text/plain;q=0.5, */*\r\n\r\n"),
        ("absolute", "HEAD http://127.0.0.1:1/runbooks?x HTTP/1.0\r\nHost: shop.example\r\n\r\n"),
        (
            "page",
            "# HELP a_total Number of \"a\".\n# TYPE a_total counter\na_total{b=\"c\"} 1\n\n# TYPE d untyped\nd 2\n",
        ),
        ("accept", "application/openmetrics-text;version=1.0.0;q=0.9,text/*;q=0.1"),
    ] {
        corpus.add("http", name, text.as_bytes())?;
    }
    for (name, text) in [
        ("stat", "7 (a) b) S 1 7 7 0 -1 4194560 100 0 3 0 0 0 0 0 20 0 1 0 5\0008 (a) R 1 7 7 0 -1 4194560 100 0 9"),
        ("schedstat", "5 17045 3\n"),
        ("syscall", "230 0x1 0xff 0x0 0x7fa4 0x0 0x0 0x7fa4 0x7fa4\n"),
        ("wchan", "anon_pipe_read"),
        ("cpu.stat", "usage_usec 7\nuser_usec 5\nnr_periods 9\nnr_throttled 2\nthrottled_usec 3\n"),
        ("cpu.max", "150000 100000\n"),
        (
            "mounts",
            "0::/a/b\n1:cpu,cpuacct:/c\0\
             30 23 0:26 / /sys/fs/cgroup\\040x rw shared:4 - cgroup2 cgroup2 rw\n\
             31 23 0:27 /c /sys/cpu rw - cgroup cgroup rw,cpu,cpuacct\n",
        ),
    ] {
        corpus.add("kernel", name, text.as_bytes())?;
    }
    // A head, and then a message, an answer to a call, an exit and a name.
    let frame = |kind: u8, body: &[u8]| [&[1, kind], &[7; 24][..], body].concat();
    for (name, bytes) in [
        ("message", frame(5, b"\x01\0\0\0\x02\0\0\0\x01\x03\0\0\0\x04\0\0\0\x01hello")),
        ("answer", frame(7, b"\x01\0\0\0\0\0\0\0\x01\x01\x03\0\0\0\x04\0\0\0")),
        ("exit", frame(13, b"\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0\x03no route")),
        ("where_is", frame(14, b"\x01\0\0\0\0\0\0\0orders")),
        ("pid", b"eu-west_1:17.3".to_vec()),
    ] {
        corpus.add("frames", name, &bytes)?;
    }
    for (name, symbol) in [
        ("legacy", "_ZN4demo5fetch28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE"),
        ("v0", "_RNCNvCs1234_4demo5fetch0B3_"),
        ("generic", "<demo::Body<u8> as demo::Read<alloc::vec::Vec<u8>>>::read::{closure#0}"),
    ] {
        corpus.add("debug_info", name, symbol.as_bytes())?;
    }
    Ok(())
}

/// Returns one of each request.
fn requests() -> Vec<Request> {
    let runtime = || Some("app".to_owned());
    vec![
        Request::Snapshot,
        Request::Subscribe { interval_ms: 250 },
        Request::Record { runtime: runtime(), before_ms: 7 },
        Request::Recorder { runtime: runtime(), is_on: Some(true) },
        Request::Why { runtime: runtime(), task: "feed".into() },
        Request::Processes { runtime: runtime(), query: processes::Query::default() },
        Request::Tasks { runtime: None, query: tasks::Query::default() },
        Request::Dump { runtime: runtime(), query: dump::Query { task: runtime(), ..dump::Query::default() } },
    ]
}

/// Returns one of each reply, with an element in every list. The first is the hello.
fn replies() -> Vec<Reply> {
    let worker = Worker { in_flight: Some(InFlight::default()), ..Worker::default() };
    let incident = Incident { stack: vec![Frame::default(); 2], task_name: Some("feed".into()), ..Incident::default() };
    let runtime = Snapshot {
        runtime: "app".into(),
        incomplete: vec!["workers".into()],
        parked_bitmap: vec![3],
        incidents: Incidents { by_cause: vec![1, 2], latest: vec![incident], ..Incidents::default() },
        blame: vec![Blame::default()],
        processes: Some(Processes { deepest: vec![Mailbox::default()], ..Processes::default() }),
        workers: vec![worker; 2],
        ..Snapshot::default()
    };
    let other = Snapshot { runtime: "other".into(), at_ns: 1_000_000, ..Snapshot::default() };
    let chunk = Chunk { track: 0, lost: 1, records: vec![Record::new(7, Event::SearchBegin); 9] };
    let flush = Flush {
        texts: vec![Text::new(Table::Task, 1, "feed")],
        chunks: vec![chunk],
        snapshot: Some(Box::new(runtime.clone())),
        marks: vec![Mark::default()],
        ..Flush::default()
    };
    let link = Link { woken: Some(Woken::default()), ..Link::default() };
    let chain = vec![dump::Link { function: Some("demo::fetch".into()), line: Some(7), ..dump::Link::default() }; 2];
    let group = Group {
        tasks: 2,
        examples: vec![TaskRef::default()],
        chain: chain.clone(),
        awaits: Some("Mutex::lock".into()),
        locks: vec![Lock { held_by: Some(3), queue: vec![1, 2], ..Lock::default() }],
        resources: vec![Resource { kind: "channel".into(), capacity: Some(8), ..Resource::default() }],
        ..Group::default()
    };
    let dump = Dump {
        runtime: "app".into(),
        running: vec![Running { chain, ..Running::default() }],
        groups: vec![group],
        remarks: vec!["cut".into()],
        ..Dump::default()
    };
    vec![
        Reply::Hello(Hello { magic: MAGIC.into(), version: VERSION, runtimes: vec!["app".into()], ..Hello::default() }),
        Reply::Snapshot {
            program: Box::new(Program { runtimes: vec![runtime, other], ..Program::default() }),
            lost: 3,
        },
        Reply::Recording { head: Box::new(Head { tracks: vec![Track::Outside], ..Head::default() }) },
        Reply::Flush { flush: Box::new(flush) },
        Reply::Recorder(Recorder::default()),
        Reply::Why(Why { links: vec![link], ..Why::default() }),
        Reply::Error { message: "no".into() },
        Reply::Processes(Box::new(ProcessList { rows: vec![processes::Process::default()], ..ProcessList::default() })),
        Reply::Tasks(Box::new(TaskList { rows: vec![Task::default()], ..TaskList::default() })),
        Reply::Dump(Box::new(dump)),
        Reply::Throttled { wait_ms: 7 },
    ]
}
