//! Tests of pushes to a collector that redirects them, or requests a pause.

use super::*;

#[test]
fn a_redirect_is_followed_with_the_same_request() {
    let _watchdog = watchdog();
    let (address, pushes) = collector(|number| match number {
        0 => ("307 Temporary Redirect\r\nLocation: /moved?tenant=1", Vec::new()),
        _ => ("200 OK", Vec::new()),
    });
    let otlp = push_to(address).header("x-scope-orgid", "tenant");
    let _exporter = Exporter::builder().listen("127.0.0.1:0").otlp(otlp).serve().unwrap();
    let (first, second) = (pushes.recv_timeout(LONG).unwrap(), pushes.recv_timeout(LONG).unwrap());
    assert_eq!(first.line, "POST /v1/metrics HTTP/1.1");
    assert_eq!(second.line, "POST /moved?tenant=1 HTTP/1.1");
    assert_eq!(second.headers["x-scope-orgid"], "tenant");
    assert!(first.request == second.request, "the same numbers");
}

#[test]
fn a_redirect_to_another_server_is_an_error_that_names_it() {
    let _watchdog = watchdog();
    let log = log();
    let (other, others) = collector(|_| ("200 OK", Vec::new()));
    // The text of a response has to be static.
    let moved = format!("308 Permanent Redirect\r\nLocation: http://{other}/v1/metrics?key=hunter2");
    let moved: &'static str = moved.leak();
    let (address, pushes) = collector(move |_| (moved, Vec::new()));
    let otlp = push_to(address).header("authorization", "hunter2");
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(otlp).serve().unwrap();
    // When the second push arrives, the outcome of the first has been logged.
    for _ in 0..2 {
        pushes.recv_timeout(LONG).unwrap();
    }
    drop(exporter);
    let reported = log.about(address);
    assert!(reported[0].contains(&format!("redirects to http://{other},")), "{}", reported[0]);
    assert!(reported[0].contains("set the endpoint to its address"), "{}", reported[0]);
    assert!(!reported.concat().contains("hunter2"), "a secret is logged");
    assert!(others.try_recv().is_err(), "another server got metrics");
}

#[test]
fn endless_redirects_end_and_are_reported() {
    let _watchdog = watchdog();
    let log = log();
    let (address, pushes) = collector(|_| ("307 Temporary Redirect\r\nLocation: /v1/metrics", Vec::new()));
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(push_to(address)).serve().unwrap();
    // Four requests belong to the first push, and the fifth to the second.
    for _ in 0..5 {
        pushes.recv_timeout(LONG).unwrap();
    }
    drop(exporter);
    let reported = log.about(address);
    assert!(reported[0].contains("redirects more than 3 times"), "{}", reported[0]);
}

#[test]
fn a_requested_pause_outlasts_the_interval() {
    let _watchdog = watchdog();
    let (address, pushes) = collector(|_| ("503 Service Unavailable\r\nRetry-After: 3600", Vec::new()));
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(push_to(address)).serve().unwrap();
    pushes.recv_timeout(LONG).unwrap();
    // Not a synchronization: it only allows some more intervals to pass.
    std::thread::sleep(20 * OFTEN);
    assert!(pushes.try_recv().is_err(), "it was pushed during the pause");
    drop(exporter);
    pushes.recv_timeout(LONG).expect("the last push does not wait for the end of the pause");
}

#[test]
fn a_long_error_page_hides_neither_the_status_nor_the_pause() {
    let _watchdog = watchdog();
    let log = log();
    // One byte more than the exporter reads.
    let page = vec![b'x'; 64 * 1024 + 1];
    let (address, pushes) = collector(move |_| ("503 Service Unavailable\r\nRetry-After: 3600", page.clone()));
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(push_to(address)).serve().unwrap();
    pushes.recv_timeout(LONG).unwrap();
    assert!(pushes.recv_timeout(20 * OFTEN).is_err(), "it was pushed during the pause");
    drop(exporter);
    pushes.recv_timeout(LONG).expect("the last push");
    let reported = log.about(address);
    assert!(reported[0].contains("the collector returned 503"), "{}", reported[0]);
}

#[test]
fn a_busy_collector_gets_the_next_push_when_it_requests_it() {
    let _watchdog = watchdog();
    let (address, pushes) = collector(|number| match number % 2 {
        0 => ("429 Too Many Requests\r\nRetry-After: 1", Vec::new()),
        _ => ("503 Service Unavailable\r\nRetry-After: Sun, 06 Nov 1994 08:49:37 GMT", Vec::new()),
    });
    let interval = Duration::from_secs(2);
    let otlp = push_to(address).interval(interval);
    let _exporter = Exporter::builder().listen("127.0.0.1:0").otlp(otlp).serve().unwrap();
    // On a slow machine, some of the pauses may be longer. Pauses of one interval never count.
    let mut before = pushes.recv_timeout(LONG).unwrap().collected_at();
    loop {
        let at = pushes.recv_timeout(LONG).unwrap().collected_at();
        if at - before < interval * 3 / 4 {
            break;
        }
        before = at;
    }
}
