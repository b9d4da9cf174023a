//! Tests with malformed and nearly valid messages, from a server or from a client. Decoding any
//! bytes must end soon, with a message or an error.
//!
//! Longer runs: `PROPTEST_CASES=1000000 cargo test --release -p volt-telemetry hostile`.

use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use proptest::prelude::*;

use crate::client::Client;
use crate::dump::{self, Dump};
use crate::incident::{Blame, CauseTime, Frame, Incident, Incidents};
use crate::processes::{self, Mailbox, ProcessList, Processes};
use crate::recording::event::Event;
use crate::recording::flush::{Chunk, Flush, Head, Mark, Table, Text, Track};
use crate::recording::record::Record;
use crate::scratch::Scratch;
use crate::snapshot::{InFlight, Program, Snapshot, Worker};
use crate::tasks::{self, Task, TaskList};
use crate::waits::PermitHolder;
use crate::why::{Link, Why, Woken};
use crate::wire::{self, Hello, MAGIC, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, Request, VERSION};

/// Returns the messages, which are paired with the variants of their enum. A variant without one is
/// an error of the compiler.
macro_rules! one_of_each {
    ($($variant:pat => $message:expr,)*) => {{
        let messages = vec![$({
            let message = $message;
            assert!(matches!(message, $variant), "{message:?} is another variant");
            message
        }),*];
        messages.iter().for_each(|message| match message {
            $($variant => {})*
        });
        messages
    }};
}

fn dump() -> Dump {
    let chain = vec![dump::Link { line: Some(7), ..dump::Link::default() }; 2];
    let resource = dump::Resource {
        permit_holders: vec![PermitHolder::default()],
        queue: vec![7, 700],
        ..dump::Resource::default()
    };
    let group = dump::Group {
        examples: vec![dump::TaskRef::default()],
        chain: chain.clone(),
        awaits: Some("lock".into()),
        locks: vec![dump::Lock { queue: vec![7, 700], ..dump::Lock::default() }],
        resources: vec![resource],
        ..dump::Group::default()
    };
    Dump {
        running: vec![dump::Running { chain: chain.clone(), ..dump::Running::default() }],
        groups: vec![group],
        block_on: vec![dump::BlockOn { chain, ..dump::BlockOn::default() }],
        remarks: vec!["no".into()],
        ..Dump::default()
    }
}

/// Returns one of each reply, with elements in most of their lists.
pub(crate) fn replies() -> Vec<Reply> {
    let mut worker = Worker { in_flight: Some(InFlight::default()), ..Worker::default() };
    worker.poll_time.record(700);
    let incident = Incident {
        stack: vec![Frame::default(); 2],
        causes: vec![CauseTime::default(); 2],
        task_name: Some("feed".into()),
        ..Incident::default()
    };
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
    let chunk = Chunk { track: 0, lost: 1, records: vec![Record::new(7, Event::SearchBegin); 3] };
    let flush = Flush {
        texts: vec![Text::new(Table::Task, 1, "feed")],
        chunks: vec![chunk],
        snapshot: Some(Box::new(runtime.clone())),
        marks: vec![Mark::default()],
        ..Flush::default()
    };
    let link = Link { woken: Some(Woken::default()), ..Link::default() };
    let hello = Hello { magic: MAGIC.into(), version: VERSION, runtimes: vec!["app".into()], ..Hello::default() };
    let program = Program { runtimes: vec![runtime], ..Program::default() };
    let processes = ProcessList { rows: vec![processes::Process::default()], ..ProcessList::default() };
    one_of_each![
        Reply::Hello(_) => Reply::Hello(hello),
        Reply::Snapshot { .. } => Reply::Snapshot { program: Box::new(program), lost: 3 },
        Reply::Recording { .. } =>
            Reply::Recording { head: Box::new(Head { tracks: vec![Track::Outside], ..Head::default() }) },
        Reply::Flush { .. } => Reply::Flush { flush: Box::new(flush) },
        Reply::Recorder(_) => Reply::Recorder(wire::Recorder::default()),
        Reply::Why(_) => Reply::Why(Why { links: vec![link], ..Why::default() }),
        Reply::Processes(_) => Reply::Processes(Box::new(processes)),
        Reply::Tasks(_) => Reply::Tasks(Box::new(TaskList { rows: vec![Task::default()], ..TaskList::default() })),
        Reply::Dump(_) => Reply::Dump(Box::new(dump())),
        Reply::Throttled { .. } => Reply::Throttled { wait_ms: 700 },
        Reply::Error { .. } => Reply::Error { message: "no".into() },
        Reply::Unknown => Reply::Unknown,
    ]
}

/// Returns one of each request.
pub(crate) fn requests() -> Vec<Request> {
    let runtime = || Some("app".to_owned());
    let task = dump::Query { task: Some("feed".into()), ..dump::Query::default() };
    one_of_each![
        Request::Snapshot => Request::Snapshot,
        Request::Subscribe { .. } => Request::Subscribe { interval_ms: 250 },
        Request::Record { .. } => Request::Record { runtime: runtime(), before_ms: 7 },
        Request::Recorder { .. } => Request::Recorder { runtime: runtime(), is_on: Some(true) },
        Request::Why { .. } => Request::Why { runtime: runtime(), task: "feed".into() },
        Request::Tasks { .. } => Request::Tasks { runtime: runtime(), query: tasks::Query::default() },
        Request::Processes { .. } => Request::Processes { runtime: runtime(), query: processes::Query::default() },
        Request::Dump { .. } => Request::Dump { runtime: runtime(), query: task },
        Request::Unknown => Request::Unknown,
    ]
}

/// Returns the bodies of the frames of these replies and requests.
fn bodies() -> Vec<Vec<u8>> {
    let of_replies = replies().into_iter().map(|reply| wire::encode(&reply, MAX_REPLY_BYTES).unwrap());
    let of_requests = requests().into_iter().map(|request| wire::encode(&request, MAX_REQUEST_BYTES).unwrap());
    of_replies.chain(of_requests).map(|frame| frame[4..].to_vec()).collect()
}

/// Generates a body with some bytes changed, some removed, and some of another body inserted.
fn spoiled() -> impl Strategy<Value = Vec<u8>> {
    let bodies = prop::sample::select(bodies());
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12);
    let cut = (any::<prop::sample::Index>(), 0..16_usize);
    (bodies.clone(), changes, bodies, cut, any::<bool>()).prop_map(
        |(mut body, changes, other, (at, length), is_put_in)| {
            for (at, byte) in changes {
                let at = at.index(body.len());
                body[at] = byte;
            }
            let at = at.index(body.len());
            let end = (at + length).min(body.len());
            let put_in = if is_put_in { &other[..] } else { &[] };
            body.splice(at..end, put_in.iter().copied());
            body
        },
    )
}

/// Decodes the body as both sides do. A valid message is encoded again, which must not panic but
/// may exceed the size limit.
fn read_as_both(body: &[u8]) {
    if let Ok(reply) = wire::decode::<Reply>(body) {
        let _ = wire::encode(&reply, MAX_REPLY_BYTES);
    }
    if let Ok(request) = wire::decode::<Request>(body) {
        let _ = wire::encode(&request, MAX_REQUEST_BYTES);
    }
    let framed: Vec<u8> = (body.len() as u32).to_le_bytes().into_iter().chain(body.iter().copied()).collect();
    let mut from = &framed[..];
    while let Ok(Some(_)) = wire::read_frame::<Reply>(&mut from, MAX_REPLY_BYTES) {}
}

/// Decodes the body as a `T`, and again with rmp-serde. Both must accept it, with the same result,
/// or both must refuse it.
fn read_as_rmp_serde_does<T: serde::Serialize + serde::de::DeserializeOwned>(body: &[u8]) {
    let again = |value: T| wire::encode(&value, 16 * MAX_REPLY_BYTES).unwrap();
    let own = wire::unpack(body).map(again).map_err(|error| error.to_string());
    let mut from = rmp_serde::Deserializer::from_read_ref(body);
    from.set_max_depth(wire::MAX_DEPTH);
    let theirs = T::deserialize(&mut from).map(again).map_err(|error| error.to_string());
    // Messages of Volt have no values of the application's own types, which rmp-serde skips.
    if own.as_ref().is_err_and(|error| error.contains("of an unknown type")) {
        return;
    }
    assert_eq!(
        own.as_ref().ok(),
        theirs.as_ref().ok(),
        "{:?} and {:?} for {body:x?}",
        own.as_ref().err(),
        theirs.as_ref().err()
    );
}

/// Runs `then` with a client of a server that sends these bytes, in pieces of the given size, and
/// nothing else.
fn client_of(bytes: Vec<u8>, piece: usize, then: impl FnOnce(Client)) {
    let scratch = Scratch::new();
    let path = scratch.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _): (UnixStream, _) = listener.accept().unwrap();
        // Stops when the client has disconnected.
        let _ = bytes.chunks(piece.max(1)).try_for_each(|piece| stream.write_all(piece));
    });
    if let Ok(client) = Client::connect(&path) {
        then(client);
    }
    server.join().unwrap();
}

#[test]
fn messages_are_read_as_they_were_written() {
    for reply in replies() {
        let frame = wire::encode(&reply, MAX_REPLY_BYTES).unwrap();
        let read = wire::unpack::<Reply>(&frame[4..]).unwrap();
        assert_eq!(wire::encode(&read, MAX_REPLY_BYTES).unwrap(), frame, "{reply:?}");
        read_as_rmp_serde_does::<Reply>(&frame[4..]);
    }
    for request in requests() {
        let frame = wire::encode(&request, MAX_REQUEST_BYTES).unwrap();
        let read = wire::unpack::<Request>(&frame[4..]).unwrap();
        assert_eq!(wire::encode(&read, MAX_REQUEST_BYTES).unwrap(), frame, "{request:?}");
        read_as_rmp_serde_does::<Request>(&frame[4..]);
    }
}

#[test]
fn a_key_that_is_a_number_is_read_as_by_rmp_serde() {
    let numbers = [&b"\x01"[..], b"\xcc\x01", b"\xcd\x72\x75", b"\xce\0\0\0\x01", b"\xcf\0\0\0\0\0\0\0\x01", b"\xff"];
    for number in numbers {
        let body = [b"\x83\xa4type\xa9subscribe\xabinterval_ms\x07", number, b"\xc0"].concat();
        read_as_rmp_serde_does::<Request>(&body);
    }
}

#[test]
fn excessive_nesting_is_an_error_on_a_small_stack() {
    let nested = |open: &[u8]| open.iter().copied().cycle().take(60_000).collect::<Vec<u8>>();
    let ignored = b"\x82\xa4type\xa5hello\xa1x";
    let bodies = [nested(b"\x91"), nested(b"\x81\xa1x"), [&ignored[..], &nested(b"\x91")].concat()];
    // Half of the default stack size, which the observer's thread has.
    let read = move || bodies.iter().for_each(|body| read_as_both(body));
    std::thread::Builder::new().stack_size(1024 * 1024).spawn(read).unwrap().join().unwrap();
}

proptest! {
    // proptest prints the failing case; it must not leave a file behind.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn spoiled_messages_are_read_as_by_rmp_serde(body in spoiled()) {
        read_as_rmp_serde_does::<Reply>(&body);
        read_as_rmp_serde_does::<Request>(&body);
    }

    #[test]
    fn any_bytes_are_a_message_or_an_error(body in prop::collection::vec(any::<u8>(), 0..400)) {
        read_as_both(&body);
    }

    #[test]
    fn a_spoiled_message_is_a_message_or_an_error(body in spoiled()) {
        read_as_both(&body);
    }

    #[test]
    fn reading_arbitrary_bytes_terminates(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut from = &bytes[..];
        while let Ok(Some(_)) = wire::read_frame::<Request>(&mut from, MAX_REQUEST_BYTES) {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn frames_come_whole_however_they_are_cut(piece in 1..700_usize, order in prop::collection::vec(any::<prop::sample::Index>(), 1..12)) {
        // The client stops at an error.
        let replies: Vec<_> = replies().into_iter().filter(|reply| !matches!(reply, Reply::Error { .. })).collect();
        let mut frames = wire::encode(&replies[0], MAX_REPLY_BYTES).unwrap();
        let mut expected = Vec::new();
        for (number, at) in order.iter().enumerate() {
            let snapshot = Reply::Snapshot { program: Box::default(), lost: number as u64 };
            for reply in [at.get(&replies), &snapshot] {
                if let Reply::Snapshot { lost, .. } = reply {
                    expected.push(*lost);
                }
                frames.extend(wire::encode(reply, MAX_REPLY_BYTES).unwrap());
            }
        }
        client_of(frames, piece, |mut client| {
            let mut lost = Vec::new();
            let error = loop {
                match client.next(Duration::from_secs(20)) {
                    Ok(update) => lost.extend(update.map(|update| update.lost)),
                    Err(error) => break error,
                }
            };
            assert!(error.is_closed(), "{error}");
            assert_eq!(lost, expected);
        });
    }

    #[test]
    fn any_reply_of_a_server_is_accepted_or_refused(body in spoiled(), rest in prop::collection::vec(any::<u8>(), 0..64)) {
        let framed: Vec<u8> = (body.len() as u32).to_le_bytes().into_iter().chain(body).chain(rest).collect();
        client_of(framed, 4096, |mut client| {
            while let Ok(_update) = client.next(Duration::from_secs(20)) {}
        });
    }
}
