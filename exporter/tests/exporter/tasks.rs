//! Tests of the live page's dumps and lists of tasks, over HTTP: the replies for this program, and
//! the requests that are refused.

use std::future::poll_fn;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::Duration;

use serde_json::Value;
use volt_exporter::Exporter;

use crate::serve::{request, watchdog};

/// The header that a request needs.
pub(crate) const HEADER: &str = "Volt-Request: 1\r\n";

/// Whether a dump has chains on this system.
pub(crate) const CAN_UNWIND: bool =
    cfg!(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")));

/// Sends a request about the tasks of a runtime of this program, and returns its status and body.
fn get(address: SocketAddr, path: &str, runtime: &str, headers: &str) -> (u16, Value) {
    let pid = std::process::id();
    let path = format!("/live/{path}?program=any&pid={pid}&runtime={runtime}");
    fetch(address, &path, headers)
}

fn fetch(address: SocketAddr, path: &str, headers: &str) -> (u16, Value) {
    let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{headers}Connection: close\r\n\r\n");
    let (status, answer) = request(address, &head);
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/json"), "{answer}");
    assert!(head.contains("cache-control: no-store"), "{answer}");
    (status, serde_json::from_str(body).unwrap())
}

/// Requests again while the program rests from the last request.
fn get_with_patience(address: SocketAddr, path: &str, runtime: &str) -> Value {
    loop {
        let (status, json) = get(address, path, runtime, HEADER);
        if status != 429 {
            assert_eq!(status, 200, "{json}");
            return json;
        }
        std::thread::yield_now();
    }
}

/// Waits for a lock that never becomes free.
async fn planted(lock: std::sync::Arc<volt::sync::Mutex<()>>) {
    let _never = lock.lock().await;
}

#[test]
fn a_dump_over_http_has_the_line_of_a_planted_wait() {
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("planted").build().unwrap();
    let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
    let lock = std::sync::Arc::new(volt::sync::Mutex::new(()));
    let held = lock.try_lock().unwrap();
    let _waits = volt::task::Builder::new().name("thirsty").spawn_on(planted(lock.clone()), runtime.handle());
    let group = loop {
        let json = get_with_patience(exporter.local_addr(), "dump.json", "planted");
        assert_eq!((&json["pid"], &json["runtimes"][0]["runtime"]), (&std::process::id().into(), &"planted".into()));
        assert_eq!(
            json["runtimes"][0]["groups"].as_array().map(Vec::len),
            json["runtimes"][0]["details"].as_array().map(Vec::len)
        );
        if json["runtimes"][0]["groups"][0]["examples"][0]["name"] == "thirsty" {
            break json["runtimes"][0].clone();
        }
    };
    let chain = group["groups"][0]["chain"].to_string();
    assert!(!CAN_UNWIND || chain.contains("tests/exporter/tasks.rs") && chain.contains("planted"), "{group}");
    assert!(group["details"][0][0].as_str().is_some_and(|text| text.starts_with("held by code outside of")), "{group}");
    assert!(group["took_ns"].as_u64() > Some(0), "{group}");
    drop(held);
}

#[test]
fn a_list_of_tasks_has_the_requested_rank_or_is_refused() {
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("listed").build().unwrap();
    let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
    for name in ["first", "second"] {
        let _waits = volt::task::Builder::new().name(name).spawn_on(std::future::pending::<()>(), runtime.handle());
    }
    let list = loop {
        let json = get_with_patience(exporter.local_addr(), "tasks.json", "listed&rank=age");
        if json["runtimes"][0]["rows"].as_array().is_some_and(|rows| rows.len() == 2) {
            break json["runtimes"][0].clone();
        }
    };
    assert_eq!((&list["query"]["rank"], &list["alive"]), (&"age".into(), &2.into()));
    let (status, json) = get(exporter.local_addr(), "tasks.json", "listed&rank=colour", HEADER);
    assert_eq!(status, 400);
    assert!(json["error"].as_str().unwrap().contains("use one of busy, longest"), "{json}");
}

#[test]
fn a_request_without_the_header_is_refused() {
    let _watchdog = watchdog();
    let _runtime = volt::Builder::new_multi_thread().worker_threads(1).name("asked").build().unwrap();
    let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
    for path in ["dump.json", "tasks.json"] {
        let (status, json) = get(exporter.local_addr(), path, "asked", "");
        assert_eq!(status, 403, "{json}");
        assert!(json["error"].as_str().unwrap().contains("Volt-Request"), "{json}");
        // The request of a browser for permission to send the header is not granted.
        let address = exporter.local_addr();
        let preflight = format!(
            "OPTIONS /live/{path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://evil.example\r\n\
             Access-Control-Request-Headers: volt-request\r\nConnection: close\r\n\r\n"
        );
        let (status, answer) = request(address, &preflight);
        assert!(status == 405 && !answer.to_lowercase().contains("access-control-allow"), "{answer}");
    }
}

#[test]
fn a_wrong_name_or_parameter_is_an_error_with_a_remedy() {
    let _watchdog = watchdog();
    let _runtime = volt::Builder::new_multi_thread().worker_threads(1).name("hidden").build().unwrap();
    let exporter = Exporter::builder().listen("127.0.0.1:0").runtimes(["shown"]).serve().unwrap();
    let address = exporter.local_addr();
    let (status, json) = get(address, "dump.json", "hidden", HEADER);
    assert!(status == 404 && json["error"].as_str().unwrap().contains("serves no runtime \"hidden\""), "{json}");
    let (status, json) = get(address, "dump.json", "shown", HEADER);
    assert_eq!(status, 404, "no such runtime exists: {json}");
    let (status, json) = fetch(address, "/live/dump.json?program=any&pid=1&runtime=shown", HEADER);
    assert_eq!(status, 404, "another program: {json}");
    let (status, json) = fetch(address, "/live/dump.json?runtime=shown", HEADER);
    assert!(status == 400 && json["error"].as_str().unwrap().contains("name the program, pid and runtime"), "{json}");
    let (status, json) = get(address, "dump.json", &format!("shown&filter={}", "x".repeat(201)), HEADER);
    assert!(status == 400 && json["error"].as_str().unwrap().contains("shorten it"), "{json}");
}

#[test]
fn a_client_that_disconnects_ends_its_dump() {
    // A dump that is not cancelled polls all of them, which takes a little more than 5 s: it would
    // end early only after 20 s. The exporter notices long before 5 s that its client has left.
    const TASKS: usize = 1_000;
    const POLL_TIME: Duration = Duration::from_millis(5);
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("left").build().unwrap();
    let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
    let address = exporter.local_addr();
    let (polls, is_fast) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for _ in 0..TASKS {
        let (polls, is_fast) = (polls.clone(), is_fast.clone());
        runtime.spawn(poll_fn(move |_| {
            // Later polls are those of dumps. They block, which tasks must not do.
            let is_for_dump = polls.fetch_add(1, Ordering::Relaxed) >= TASKS;
            if is_for_dump && !is_fast.load(Ordering::Relaxed) {
                std::thread::sleep(POLL_TIME);
            }
            Poll::<()>::Pending
        }));
    }
    let wait_for = |count| {
        while polls.load(Ordering::Relaxed) < count {
            std::thread::yield_now();
        }
    };
    wait_for(TASKS);
    // The only worker polls this when the last task has begun to wait.
    runtime.block_on(runtime.spawn(async {})).unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    let path = format!("/live/dump.json?program=any&pid={}&runtime=left", std::process::id());
    write!(client, "GET {path} HTTP/1.1\r\nHost: {address}\r\n{HEADER}\r\n").unwrap();
    wait_for(TASKS + 1);
    drop(client);
    // The next dump begins when the one before has ended.
    let next = loop {
        let (status, json) = get(address, "dump.json", "left", HEADER);
        if status == 200 {
            break json;
        }
        if json["error"].as_str().unwrap().contains("pauses after a dump") {
            // The exporter has noticed it. If the dump goes on nevertheless, it soon polls all.
            is_fast.store(true, Ordering::Relaxed);
        }
    };
    let others = next["runtimes"][0]["read"].as_u64().unwrap() as usize;
    assert!(others > 0, "{next}");
    let polled = polls.load(Ordering::Relaxed) - TASKS - others;
    assert!(polled < TASKS, "the dump polled all tasks after its client had left");
}

#[test]
fn a_second_dump_of_a_program_meanwhile_is_refused() {
    let _watchdog = watchdog();
    let runtime = volt::Builder::new_multi_thread().worker_threads(1).name("slow").build().unwrap();
    let exporter = volt_exporter::serve("127.0.0.1:0").unwrap();
    let address = exporter.local_addr();
    let (waits, does_wait) = mpsc::channel();
    let (begun, has_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let mut polls = 0;
    let mut released = Some(released);
    let blocks = runtime.spawn(poll_fn(move |_| {
        polls += 1;
        match polls {
            1 => waits.send(()).unwrap(),
            // The poll of the dump blocks, which tasks must not do.
            _ => {
                begun.send(()).unwrap();
                let _ended = released.take().map(|released| released.recv());
            }
        }
        if polls == 1 { Poll::Pending } else { Poll::Ready(()) }
    }));
    does_wait.recv().unwrap();
    let first = std::thread::spawn(move || get_with_patience(address, "dump.json", "slow"));
    has_begun.recv().unwrap();
    // If this thread is very slow, the first dump has ended early, and the program rests.
    let (status, json) = get(address, "dump.json", "slow", HEADER);
    let error = json["error"].as_str().unwrap();
    let is_due = error.contains("in progress") || error.contains("pauses after a dump") && first.is_finished();
    assert!(status == 429 && is_due, "{json}");
    // The exporter responds in the meantime.
    assert_eq!(
        request(address, &format!("GET /healthz HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")).0,
        200
    );
    drop(release);
    runtime.block_on(blocks).unwrap();
    assert_eq!(first.join().unwrap()["runtimes"][0]["runtime"], "slow");
}
