//! The heads of HTTP requests, and the page that the exporter converts for a scraper.
#![no_main]

use std::net::SocketAddr;

use fuzz_targets::memory::bounded;
use libfuzzer_sys::fuzz_target;
use volt_diagnosis::exposition::is_local_host;

// Private files of the product, which need nothing of their crates.
#[allow(dead_code)]
#[path = "../../../../../exporter/src/openmetrics.rs"]
mod openmetrics;
#[allow(dead_code)]
#[path = "../../../../../runtime/core/src/observe/page/request.rs"]
mod request;

/// Stands for the metrics, and does not occur in a refusal.
const PAGE: &str = "volt_secret 1\n";

fuzz_target!(|bytes: &[u8]| {
    bounded(64 * bytes.len() + 65_536, || {
        head(bytes);
        if let Ok(text) = str::from_utf8(bytes) {
            openmetrics::is_preferred([text].into_iter());
            convert(text);
        }
    });
});

fn head(bytes: &[u8]) {
    let Some(parsed) = request::Request::parse(bytes) else { return };
    for address in ["127.0.0.1:1", "[::ffff:127.0.0.1]:1", "0.0.0.0:1"] {
        let address: SocketAddr = address.parse().expect("an address");
        let response = parsed.answer(address, || Ok(PAGE.into()));
        let whole = response.encode(false);
        let (fields, body) = whole.split_once("\r\n\r\n").expect("a head and a body");
        assert!(fields.starts_with("HTTP/1.1 "));
        assert!(fields.lines().any(|line| line == format!("Content-Length: {}", body.len())), "{whole:?}");
        assert_eq!(response.encode(true), format!("{fields}\r\n\r\n"));
        // A page of another site, whose name resolves to this machine, must not read the metrics.
        if body == PAGE && request::is_local(address) {
            assert!(is_from_here(bytes), "{:?} was answered", String::from_utf8_lossy(bytes));
        }
    }
}

/// Returns whether a request's host is this machine: that of its target if it has one, or that of
/// its header.
fn is_from_here(head: &[u8]) -> bool {
    let head = str::from_utf8(head).expect("it was parsed");
    let (line, fields) = head.split_once('\n').unwrap_or((head, ""));
    if let Some((_, rest)) = line.split_once(" http://") {
        return is_local_host(rest.split(['/', ' ']).next().unwrap_or(""));
    }
    let hosts = fields.lines().filter_map(|line| line.split_once(':'));
    hosts.filter(|(name, _)| name.to_ascii_lowercase() == "host").all(|(_, host)| is_local_host(host.trim()))
}

/// The samples stay as they are, and the page has one end.
fn convert(text: &str) {
    let page = openmetrics::from_text(text);
    assert!(page.ends_with("# EOF\n"));
    assert!(samples(text).eq(samples(&page)), "samples of {text:?} changed");
}

/// Returns the lines of a page that are samples. `lines` removes a carriage return before the end
/// of a line, but not before the end of the text.
fn samples(page: &str) -> impl Iterator<Item = &str> {
    let lines = page.lines().map(|line| line.trim_end_matches('\r'));
    lines.filter(|line| !line.is_empty() && !line.starts_with('#'))
}
