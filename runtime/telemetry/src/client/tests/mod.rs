//! The client against servers that behave correctly, incorrectly, or not at all.

mod disconnector;

use std::io::{Read, Write};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::connection::{Client, READ_BYTES, Waits};
use super::open::foreign;
use super::resolve::resolve;
use crate::dump::{self, Dump};
use crate::processes;
use crate::recording::flush::{Flush, Head};
use crate::scratch::Scratch;
use crate::snapshot::Program;
use crate::socket::{self, Environment};
use crate::wire::{
    self, Hello, MAGIC, MAX_REPLY_BYTES, MAX_REQUEST_BYTES, Reply, Request, VERSION, Version, read_frame, write_frame,
};

/// `LONG` where the test expects something, `SHORT` where it expects nothing.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);
const PATIENT: Waits = Waits { connect: LONG, hello: LONG, reply: LONG, dump: LONG };

/// Serves one connection on `name` with `serve`.
fn server(dir: &Path, name: &str, serve: impl FnOnce(UnixStream) + Send + 'static) -> (PathBuf, JoinHandle<()>) {
    let path = dir.join(name);
    let listener = UnixListener::bind(&path).unwrap();
    let thread = std::thread::spawn(move || serve(listener.accept().unwrap().0));
    (path, thread)
}

fn hello() -> Reply {
    Reply::Hello(Hello { magic: MAGIC.into(), version: VERSION, program: "fake".into(), ..Hello::default() })
}

fn snapshot_at(at_ns: u64) -> Reply {
    Reply::Snapshot { program: Box::new(Program { at_ns, ..Program::default() }), lost: at_ns / 2 }
}

fn send_reply(stream: &UnixStream, reply: &Reply) {
    write_frame(stream, reply, MAX_REPLY_BYTES).unwrap();
}

fn requested(stream: &UnixStream) -> Option<Request> {
    read_frame(stream, MAX_REQUEST_BYTES).unwrap()
}

#[test]
fn snapshots_come_one_at_a_time_and_by_subscription() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        send_reply(&stream, &hello());
        assert_eq!(requested(&stream), Some(Request::Snapshot));
        send_reply(&stream, &snapshot_at(1));
        assert_eq!(requested(&stream), Some(Request::Subscribe { interval_ms: wire::MIN_INTERVAL_MS }));
        (10..14).for_each(|at_ns| send_reply(&stream, &snapshot_at(at_ns)));
        assert_eq!(requested(&stream), None, "the client has disconnected");
    });
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.hello().program, "fake");
    assert_eq!(client.snapshot().unwrap().at_ns, 1);
    client.subscribe(Duration::ZERO).unwrap();
    for at_ns in 10..14 {
        let update = client.next(LONG).unwrap().unwrap();
        assert_eq!((update.program.at_ns, update.lost), (at_ns, at_ns / 2));
    }
    drop(client);
    server.join().unwrap();
}

#[test]
fn a_time_out_inside_a_frame_loses_nothing() {
    let scratch = Scratch::new();
    let (go_on, wait) = mpsc::channel();
    let (path, server) = server(scratch.path(), "s", move |mut stream| {
        send_reply(&stream, &hello());
        let frame = wire::encode(&snapshot_at(7), MAX_REPLY_BYTES).unwrap();
        for half in frame.chunks(frame.len() / 2 + 1) {
            stream.write_all(half).unwrap();
            wait.recv().unwrap();
        }
    });
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.next(SHORT).unwrap(), None);
    assert_eq!(client.next(Duration::ZERO).unwrap(), None);
    go_on.send(()).unwrap();
    assert_eq!(client.next(LONG).unwrap().unwrap().program.at_ns, 7);
    go_on.send(()).unwrap();
    assert!(client.next(LONG).unwrap_err().is_closed());
    server.join().unwrap();
}

#[test]
fn other_files_are_distinguished_from_live_control_sockets() {
    let scratch = Scratch::new();
    let missing = scratch.path().join("missing");
    assert!(Client::connect(&missing).unwrap_err().is_missing());
    let file = scratch.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(Client::connect(&file).unwrap_err().is_not_a_socket());
    assert!(Client::connect(&file.join("below")).unwrap_err().is_missing());
    let stale = scratch.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    assert!(Client::connect(&stale).unwrap_err().is_stale());
    let datagram = scratch.path().join("datagram");
    let _datagram = UnixDatagram::bind(&datagram).unwrap();
    assert!(Client::connect(&datagram).unwrap_err().is_not_volt());
    let error = Client::connect(&scratch.path().join("x".repeat(120))).unwrap_err();
    assert!(error.is_missing(), "a path too long for a socket is missing as a rule: {error}");
}

#[test]
fn an_older_server_gets_no_unknown_requests() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        let version = Version { major: VERSION.major, minor: 0 };
        let hello = Hello { magic: MAGIC.into(), version, volt: "0.0.9".into(), ..Hello::default() };
        send_reply(&stream, &Reply::Hello(hello));
        assert_eq!(requested(&stream), Some(Request::Snapshot), "this is the first request");
        send_reply(&stream, &snapshot_at(1));
    });
    let mut client = Client::connect(&path).unwrap();
    for error in [client.record(None, SHORT).unwrap_err(), client.recorder(None, Some(true)).unwrap_err()] {
        assert!(error.is_wrong_version());
        let text = error.to_string();
        assert!(
            text.contains("uses version 1.0 of") && text.contains("needs version 1.1") && text.contains("0.0.9"),
            "{text}"
        );
    }
    let error = client.processes(None, &processes::Query::default()).unwrap_err();
    assert!(
        error.is_wrong_version() && error.to_string().contains("list its processes, which needs version 1.3"),
        "{error}"
    );
    assert_eq!(client.snapshot().unwrap().at_ns, 1, "the connection stays");
    server.join().unwrap();
}

#[test]
fn flushes_come_as_they_are_sent_and_an_answer_ends_them() {
    let scratch = Scratch::new();
    let flush = |at_ns| Flush { at_ns, ..Flush::default() };
    let (path, server) = server(scratch.path(), "s", move |stream| {
        send_reply(&stream, &hello());
        let request = Request::Record { runtime: Some("main".into()), before_ms: 50 };
        assert_eq!(requested(&stream), Some(request));
        send_reply(&stream, &Reply::Recording { head: Box::new(Head { pid: 7, ..Head::default() }) });
        (1..3).for_each(|at_ns| send_reply(&stream, &Reply::Flush { flush: Box::new(flush(at_ns)) }));
        send_reply(&stream, &Reply::Error { message: "the runtime was shut down".into() });
    });
    let mut client = Client::connect(&path).unwrap();
    assert_eq!(client.record(Some("main"), SHORT).unwrap().pid, 7);
    assert_eq!([1, 2].map(|_| client.next_flush(LONG).unwrap().unwrap().at_ns), [1, 2]);
    assert!(client.next_flush(LONG).unwrap_err().is_answer());
    server.join().unwrap();
}

#[test]
fn a_major_version_mismatch_is_refused_with_both_versions() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        let version = Version { major: 9, minor: 4 };
        let hello = Hello { magic: MAGIC.into(), version, volt: "9.9.9".into(), ..Hello::default() };
        send_reply(&stream, &Reply::Hello(hello));
    });
    let error = Client::connect(&path).unwrap_err();
    assert!(error.is_wrong_version());
    let text = error.to_string();
    assert!(
        text.contains("version 9.4 ") && text.contains(&format!("uses {VERSION}:")) && text.contains("Volt 9.9.9"),
        "{text}"
    );
    server.join().unwrap();
}

#[test]
fn a_server_of_another_minor_version_is_welcome() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        let version = Version { minor: 77, ..VERSION };
        send_reply(&stream, &Reply::Hello(Hello { magic: MAGIC.into(), version, ..Hello::default() }));
    });
    assert_eq!(Client::connect(&path).unwrap().hello().version.minor, 77);
    server.join().unwrap();
}

#[test]
fn bytes_of_another_protocol_are_not_volt() {
    let oversized = [0xff; 64].to_vec();
    let undecodable = vec![3, 0, 0, 0, 0xc1, 0xc1, 0xc1];
    let other_magic = wire::encode(&Reply::Hello(Hello::default()), MAX_REPLY_BYTES).unwrap();
    let no_hello = wire::encode(&snapshot_at(1), MAX_REPLY_BYTES).unwrap();
    let text = b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    for bytes in [oversized, undecodable, other_magic, no_hello, text] {
        let scratch = Scratch::new();
        let sent = bytes.clone();
        let (path, server) = server(scratch.path(), "s", move |mut stream| stream.write_all(&sent).unwrap());
        let error = Client::connect(&path).unwrap_err();
        assert!(error.is_not_volt(), "{bytes:?}: {error}");
        server.join().unwrap();
    }
}

#[test]
fn a_server_that_closes_is_distinguished_from_one_that_refuses() {
    let scratch = Scratch::new();
    let (path, first) = server(scratch.path(), "closes", drop);
    let error = Client::connect(&path).unwrap_err();
    let text = error.to_string();
    assert!(error.is_closed() && text.contains("without a hello") && text.contains("PID namespace"), "{error}");
    first.join().unwrap();
    let (path, second) = server(scratch.path(), "refuses", |stream| {
        send_reply(&stream, &Reply::Error { message: "8 clients are attached".into() });
    });
    let error = Client::connect(&path).unwrap_err();
    assert!(error.is_busy() && error.to_string().ends_with("8 clients are attached"), "{error}");
    second.join().unwrap();
}

#[test]
fn a_server_that_ends_while_a_client_waits_is_closed() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        send_reply(&stream, &hello());
        assert_eq!(requested(&stream), Some(Request::Snapshot));
    });
    let mut client = Client::connect(&path).unwrap();
    let error = client.snapshot().unwrap_err();
    assert!(error.is_closed() && error.to_string().contains("has exited"), "{error}");
    assert!(error.to_string().starts_with("fake (pid 0) closed the connection"), "{error}");
    server.join().unwrap();
    assert!(client.snapshot().unwrap_err().is_closed());
}

#[test]
fn an_error_for_one_request_leaves_the_connection() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        send_reply(&stream, &hello());
        requested(&stream);
        send_reply(&stream, &Reply::Error { message: "no snapshot".into() });
        requested(&stream);
        send_reply(&stream, &snapshot_at(3));
    });
    let mut client = Client::connect(&path).unwrap();
    assert!(client.snapshot().unwrap_err().is_answer());
    assert_eq!(client.snapshot().unwrap().at_ns, 3);
    server.join().unwrap();
}

#[test]
fn a_throttled_client_shows_why_it_waits() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        send_reply(&stream, &hello());
        send_reply(&stream, &Reply::Throttled { wait_ms: 90_000 });
        assert_eq!(requested(&stream), Some(Request::Snapshot));
        assert_eq!(requested(&stream), Some(Request::Snapshot));
        send_reply(&stream, &snapshot_at(7));
        assert_eq!(requested(&stream), None, "the client has disconnected");
    });
    let mut client = Client::connect_within(&path, Waits { reply: SHORT, ..PATIENT }).unwrap();
    let error = client.snapshot().unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("request less often"), "{error}");
    client.reply_wait = LONG;
    assert_eq!(client.snapshot().unwrap().at_ns, 7, "it is passed over, as by a client that does not know it");
    drop(client);
    server.join().unwrap();
}

#[test]
fn a_silent_server_costs_no_more_than_the_time_out() {
    let scratch = Scratch::new();
    let (path, silent) = server(scratch.path(), "silent", |mut stream| {
        let mut end = Vec::new();
        stream.read_to_end(&mut end).unwrap();
    });
    let error = Client::connect_within(&path, Waits { hello: SHORT, ..PATIENT }).unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("sent no hello within 50ms"), "{error}");
    silent.join().unwrap();

    let (path, mute) = server(scratch.path(), "mute", |mut stream| {
        send_reply(&stream, &hello());
        let mut end = Vec::new();
        stream.read_to_end(&mut end).unwrap();
    });
    let mut client = Client::connect_within(&path, Waits { reply: SHORT, ..PATIENT }).unwrap();
    let error = client.snapshot().unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("did not respond within 50ms"), "{error}");
    drop(client);
    mute.join().unwrap();
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_queue_of_connections_costs_no_more_than_the_time_out() {
    let scratch = Scratch::new();
    let path = scratch.path().join("s");
    let listener = socket::stream_socket().unwrap();
    rustix::net::bind(&listener, &socket::address(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    assert!(socket::is_listening(&path).unwrap(), "a full queue is a sign of life");
    let error = Client::connect_within(&path, Waits { connect: SHORT, ..PATIENT }).unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("accepted no connection within 50ms"), "{error}");
}

#[test]
fn peers_of_other_users_are_reported_with_both_uids() {
    let error = foreign(Path::new("/x"), 1001, 1000);
    assert!(error.is_foreign_owner());
    assert_eq!(error.to_string(), "/x belongs to user 1001, but this is user 1000: attach as that user, or as root");
}

#[test]
fn a_target_is_a_path_a_pid_or_a_name() {
    let scratch = Scratch::new();
    let dir = scratch.path().join("volt");
    let user_id = rustix::process::geteuid().as_raw();
    let environment = Environment { socket_dir: Some(dir.clone()), runtime_dir: None, user_id };
    socket::create_directory(&dir, user_id).unwrap();
    let named = |runtime: &'static str| {
        move |listener: UnixListener| {
            for stream in listener.incoming() {
                let hello = Hello {
                    magic: MAGIC.into(),
                    version: VERSION,
                    program: "twins".into(),
                    runtimes: vec![runtime.into()],
                    ..Hello::default()
                };
                let _ = write_frame(&stream.unwrap(), &Reply::Hello(hello), MAX_REPLY_BYTES);
            }
        }
    };
    for (name, runtime) in [("2000000001-5.sock", "web"), ("2000000002-5.sock", "batch")] {
        let listener = UnixListener::bind(dir.join(name)).unwrap();
        std::thread::spawn(move || named(runtime)(listener));
    }
    drop(UnixListener::bind(dir.join("2000000003-5.sock")).unwrap());

    assert_eq!(resolve("a/b", &environment).unwrap(), Path::new("a/b"));
    assert_eq!(resolve("2000000001", &environment).unwrap(), dir.join("2000000001-5.sock"));
    assert_eq!(resolve("batch", &environment).unwrap(), dir.join("2000000002-5.sock"));
    let error = resolve("twins", &environment).unwrap_err();
    assert!(
        error.is_ambiguous() && error.to_string().ends_with("2000000001 (runtime web), 2000000002 (runtime batch)"),
        "{error}"
    );
    assert!(resolve("2000000003", &environment).unwrap_err().is_stale());
    let error = resolve("2000000004", &environment).unwrap_err();
    assert!(error.is_missing() && error.to_string().contains("no program has this pid (searched"), "{error}");
    let error = resolve("nobody", &environment).unwrap_err();
    assert!(error.is_missing() && error.to_string().contains("is named \"nobody\" (searched"), "{error}");

    let full = UnixListener::bind(dir.join("2000000005-5.sock")).unwrap();
    std::thread::spawn(move || {
        for stream in full.incoming() {
            let message = "8 clients are attached, which is the limit".into();
            let _ = write_frame(&stream.unwrap(), &Reply::Error { message }, MAX_REPLY_BYTES);
        }
    });
    let error = resolve("nobody", &environment).unwrap_err().to_string();
    assert!(
        error.contains("(searched ")
            && error.contains(". One program did not report its name: ")
            && error.contains("8 clients are attached"),
        "{error}"
    );
}

/// A reply of a newer version.
fn newer() -> Vec<u8> {
    #[derive(serde::Serialize)]
    struct Newer {
        r#type: &'static str,
    }
    wire::encode(&Newer { r#type: "weather" }, MAX_REPLY_BYTES).unwrap()
}

#[test]
fn unrelated_replies_do_not_extend_the_reply_timeout() {
    let scratch = Scratch::new();
    let (path, chatty) = server(scratch.path(), "s", |mut stream| {
        send_reply(&stream, &hello());
        let much = newer().repeat(4096);
        // Until the client has disconnected.
        while stream.write_all(&much).is_ok() {}
    });
    let mut client = Client::connect_within(&path, Waits { reply: SHORT, ..PATIENT }).unwrap();
    // Before the bytes that arrived with the hello.
    let taken = client.taken;
    client.inbox.splice(taken..taken, newer().repeat(3));
    assert_eq!(client.next(Duration::ZERO).unwrap(), None);
    assert_eq!(client.taken - taken, newer().len(), "no time was left for a second");
    assert_eq!(client.next(SHORT).unwrap(), None);
    assert!(client.snapshot().unwrap_err().is_timeout());
    assert!(client.inbox.len() <= 2 * READ_BYTES, "what is passed over is forgotten");
    drop(client);
    chatty.join().unwrap();
}

#[test]
fn a_dripping_server_does_not_extend_the_timeouts() {
    let scratch = Scratch::new();
    let drip = |mut stream: UnixStream, bytes: Vec<u8>| {
        for byte in bytes {
            // The client disconnects before half of this is sent.
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            std::thread::sleep(SHORT / 4);
        }
    };
    let slow_hello = move |stream| drip(stream, wire::encode(&hello(), MAX_REPLY_BYTES).unwrap());
    let (path, first) = server(scratch.path(), "hello", slow_hello);
    let error = Client::connect_within(&path, Waits { hello: SHORT, ..PATIENT }).unwrap_err();
    assert!(error.is_timeout() && error.to_string().contains("sent no hello within"), "{error}");
    first.join().unwrap();
    let (path, second) = server(scratch.path(), "reply", move |stream| {
        send_reply(&stream, &hello());
        drip(stream, wire::encode(&snapshot_at(1), MAX_REPLY_BYTES).unwrap());
    });
    let mut client = Client::connect_within(&path, Waits { reply: SHORT, ..PATIENT }).unwrap();
    assert!(client.snapshot().unwrap_err().is_timeout());
    drop(client);
    second.join().unwrap();
}

#[test]
fn a_server_that_does_not_read_costs_no_more_than_the_time_out() {
    let scratch = Scratch::new();
    let (end, ended) = mpsc::channel::<()>();
    let (path, deaf) = server(scratch.path(), "s", move |stream| {
        send_reply(&stream, &hello());
        let _ = ended.recv();
        drop(stream);
    });
    let mut client = Client::connect_within(&path, Waits { reply: SHORT, ..PATIENT }).unwrap();
    let begun = Instant::now();
    let error = loop {
        // Send long requests until the kernel's buffer is full.
        match client.send(&Request::Why { runtime: None, task: "x".repeat(60_000) }) {
            Ok(()) => assert!(begun.elapsed() < LONG),
            Err(error) => break error,
        }
    };
    assert!(error.is_timeout() && error.to_string().contains("does not read its requests"), "{error}");
    end.send(()).unwrap();
    deaf.join().unwrap();
}

#[test]
fn a_frame_that_breaks_off_is_a_closed_connection() {
    let scratch = Scratch::new();
    let frame = wire::encode(&snapshot_at(7), MAX_REPLY_BYTES).unwrap();
    for length in [1, 3, 4, 5, frame.len() - 1] {
        let part = frame[..length].to_vec();
        let (path, server) = server(scratch.path(), &format!("{length}"), move |mut stream| {
            send_reply(&stream, &hello());
            requested(&stream);
            stream.write_all(&part).unwrap();
        });
        let mut client = Client::connect(&path).unwrap();
        assert!(client.snapshot().unwrap_err().is_closed(), "{length} bytes");
        server.join().unwrap();
    }
}

#[test]
fn a_dump_may_take_longer_than_other_replies() {
    let scratch = Scratch::new();
    let (path, server) = server(scratch.path(), "s", |stream| {
        send_reply(&stream, &hello());
        assert!(matches!(requested(&stream), Some(Request::Dump { .. })));
        // Longer than the client waits for other replies.
        std::thread::sleep(2 * SHORT);
        send_reply(&stream, &Reply::Dump(Box::new(Dump { waiting: 7, ..Dump::default() })));
        assert!(matches!(requested(&stream), Some(Request::Dump { .. })));
        assert_eq!(requested(&stream), None, "the client has disconnected");
    });
    let waits = Waits { reply: SHORT, ..PATIENT };
    let mut client = Client::connect_within(&path, waits).unwrap();
    let query = dump::Query::default();
    assert_eq!(client.dump(None, &query).unwrap().waiting, 7);
    client.dump_wait = SHORT;
    assert!(client.dump(None, &query).unwrap_err().is_timeout());
    drop(client);
    server.join().unwrap();
}
