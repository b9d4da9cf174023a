//! Tests of the last push, at the end of an exporter.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// An interval that does not pass in a test.
const NEVER: Duration = Duration::from_secs(60 * 60);

fn push_at_the_end_to(address: SocketAddr) -> Exporter {
    push_to_every(address, NEVER)
}

fn push_to_every(address: SocketAddr, interval: Duration) -> Exporter {
    let otlp = Otlp::new(format!("http://{address}")).interval(interval).timeout(LONG);
    Exporter::builder().listen("127.0.0.1:0").runtimes(["ended"]).otlp(otlp).serve().unwrap()
}

fn runtime() -> volt::Runtime {
    volt::Builder::new_multi_thread().worker_threads(1).name("ended").build().unwrap()
}

/// Starts a collector that counts each push before it responds to it, and sends it to the test.
fn counting() -> (SocketAddr, Receiver<Pushed>, Arc<AtomicUsize>) {
    // ORDERING: Relaxed, also for the reads: it publishes no other data, and a push ends after the
    // response that follows the count.
    let received = Arc::new(AtomicUsize::new(0));
    let counter = received.clone();
    let (address, pushes) = collector(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
        ("200 OK", Vec::new())
    });
    (address, pushes, received)
}

async fn spawn(tasks: usize) {
    for _ in 0..tasks {
        volt::spawn(async {}).await.unwrap();
    }
}

#[test]
fn the_final_counts_are_pushed_when_the_exporter_is_dropped() {
    let _watchdog = watchdog();
    let (address, pushes, received) = counting();
    let runtime = runtime();
    let exporter = push_at_the_end_to(address);
    runtime.block_on(spawn(7));
    drop(exporter);
    assert_eq!(received.load(Ordering::Relaxed), 1, "the drop waits for the push");
    assert_eq!(pushes.recv_timeout(LONG).unwrap().count("volt.tasks.spawned", "ended"), 7);
}

#[test]
fn an_interval_without_an_end_still_has_its_last_push() {
    let _watchdog = watchdog();
    let (address, _pushes, received) = counting();
    drop(push_to_every(address, Duration::MAX));
    assert_eq!(received.load(Ordering::Relaxed), 1, "the drop waits for the push");
}

#[test]
fn the_shutdown_of_a_runtime_waits_for_a_last_push_inside_it() {
    let _watchdog = watchdog();
    let (address, pushes, received) = counting();
    let runtime = runtime();
    runtime.block_on(async {
        let _exporter = push_at_the_end_to(address);
        spawn(7).await;
    });
    drop(runtime);
    assert_eq!(received.load(Ordering::Relaxed), 1, "the shutdown waits for the push");
    assert_eq!(pushes.recv_timeout(LONG).unwrap().count("volt.tasks.spawned", "ended"), 7);
}

#[test]
fn the_last_push_replaces_one_that_is_under_way() {
    let _watchdog = watchdog();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = runtime();
    let exporter =
        Exporter::builder().listen("127.0.0.1:0").runtimes(["ended"]).otlp(push_to(address)).serve().unwrap();
    // This push never gets a response.
    let (_unanswered, _) = listener.accept().unwrap();
    runtime.block_on(spawn(7));
    let pushes = collect(listener, |_| ("200 OK", Vec::new()));
    drop(exporter);
    assert_eq!(pushes.recv_timeout(LONG).unwrap().count("volt.tasks.spawned", "ended"), 7);
}

#[test]
fn a_collector_without_a_response_does_not_block_the_end() {
    let _watchdog = watchdog();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = push_at_the_end_to(listener.local_addr().unwrap());
    drop(exporter);
    let (mut stream, _) = listener.accept().unwrap();
    let mut sent = Vec::new();
    let _closed = stream.read_to_end(&mut sent);
    assert!(sent.starts_with(b"POST /v1/metrics HTTP/1.1\r\n"));
}

#[cfg(feature = "cli")]
#[test]
fn the_sidecar_pushes_the_final_counts_at_sigterm() {
    use std::os::unix::process::ExitStatusExt;

    use crate::sidecar::{Folder, start_application, start_exporter_with};

    let _watchdog = watchdog();
    let sockets = Folder::new("sigterm");
    let application = start_application(&sockets.0);
    let (address, pushes, _) = counting();
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{address}")),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20YTpi,x-tenant=1".into()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "3600000".into()),
    ];
    let arguments = ["--discover", sockets.0.to_str().unwrap(), "--otlp", "--otlp-header", "x-tenant=2"];
    let (mut exporter, _) = start_exporter_with(&arguments, &variables);
    exporter.signal("TERM");
    let pushed = pushes.recv_timeout(LONG).expect("a last push");
    assert_eq!(exporter.wait().signal(), Some(15), "it terminates with the signal");
    assert_eq!(pushed.line, "POST /v1/metrics HTTP/1.1");
    assert_eq!((&*pushed.headers["authorization"], &*pushed.headers["x-tenant"]), ("Basic YTpi", "2"));
    let resource = &pushed.request.resource_metrics[0].resource.as_ref().unwrap().attributes;
    assert_eq!(text(resource, "process.pid").unwrap(), application.pid().to_string());
    assert!(pushed.count("volt.runtime.workers", "main") == 1);
}
