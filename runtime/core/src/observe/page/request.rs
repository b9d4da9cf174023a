//! Parses the head of an HTTP/1 request, as far as the page needs it, and builds the response.
//!
//! `server` uses it. Nothing here reads a socket.

use std::net::SocketAddr;

use volt_diagnosis::exposition::{self, is_local_host};

/// The path of the metrics.
const PATH: &str = "/metrics";
/// The path to which the `runbook_url` of the alerts links.
const RUNBOOKS: &str = "/runbooks";
const PLAIN: &str = "text/plain; charset=utf-8";

/// The resource that a request is for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request<'a> {
    method: &'a str,
    /// Without a query.
    path: &'a str,
    host: Option<&'a str>,
}

impl<'a> Request<'a> {
    /// Parses a complete head. Returns `None` if it is not one of HTTP/1.
    pub(super) fn parse(head: &'a [u8]) -> Option<Self> {
        let mut lines = str::from_utf8(head).ok()?.lines();
        let mut words = lines.next()?.split(' ');
        let (method, target, version) = (words.next()?, words.next()?, words.next()?);
        if words.next().is_some() || !version.starts_with("HTTP/1.") {
            return None;
        }
        let mut hosts = lines.filter_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("host").then_some(value.trim())
        });
        let host = hosts.next();
        if hosts.next().is_some() {
            return None;
        }
        // A client may send the whole address. Its host counts then.
        let (host, target) = match target.strip_prefix("http://") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (Some(authority), path)
            }
            None => (host, target),
        };
        Some(Self { method, path: target.split('?').next().unwrap_or(target), host })
    }

    /// Returns whether the response must have no body.
    pub(super) fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// Returns the response of a page at `address`. `page` returns the text of the page.
    pub(super) fn answer(&self, address: SocketAddr, page: impl FnOnce() -> Result<String, &'static str>) -> Response {
        // As in the exporter: other hosts are refused only if the page is for this machine.
        if is_local(address) && self.host.is_some_and(|host| !is_local_host(host)) {
            let text = "this page is only for this machine: request it from 127.0.0.1 or localhost";
            return Response::refusal("403 Forbidden", text);
        }
        if ![PATH, RUNBOOKS].contains(&self.path) {
            let text = "the metrics are at /metrics; the crate volt-exporter also has a live page, probes and JSON";
            return Response::refusal("404 Not Found", text);
        }
        if !matches!(self.method, "GET" | "HEAD") {
            let refusal = Response::refusal("405 Method Not Allowed", "use GET or HEAD");
            return Response { header: "Allow: GET, HEAD\r\n", ..refusal };
        }
        if self.path == RUNBOOKS {
            return Response { status: OK, header: "", content_type: PLAIN, body: runbooks() };
        }
        match page() {
            Ok(body) => Response { status: OK, header: "", content_type: exposition::CONTENT_TYPE, body },
            Err(text) => Response::refusal("500 Internal Server Error", text),
        }
    }
}

/// Returns the page for a reader who follows the link of an alert. The runbooks themselves are not
/// part of it, because every program on Volt would contain them.
fn runbooks() -> String {
    let pid = std::process::id();
    format!(
        "The link of the alert ends with the alert's name. Its runbook is the section of that name in the file\n\
         docs/alerts.md of Volt's repository. The crate volt-exporter serves the file at /runbooks.\n\
         \n\
         These commands show what is wrong in this program, and the stacks of its stuck polls. Run them on the\n\
         machine of the program, as its user. No restart is needed.\n\
         \n    \
         volt-console doctor {pid}\n    \
         volt-console stacks --all {pid}\n"
    )
}

const OK: &str = "200 OK";

/// A response, after which the connection is closed.
#[derive(Debug)]
pub(super) struct Response {
    status: &'static str,
    /// A further header line, or nothing.
    header: &'static str,
    content_type: &'static str,
    body: String,
}

impl Response {
    pub(super) fn refusal(status: &'static str, text: &str) -> Self {
        Self { status, header: "", content_type: PLAIN, body: format!("{text}\n") }
    }

    /// Returns the bytes to send.
    pub(super) fn encode(&self, is_head: bool) -> String {
        let Self { status, header, content_type, body } = self;
        let length = body.len();
        let body = if is_head { "" } else { body };
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{header}Connection: close\r\n\r\n{body}"
        )
    }
}

/// Returns whether only this machine can reach the address.
pub(super) fn is_local(address: SocketAddr) -> bool {
    // The canonical form of `::ffff:127.0.0.1` is 127.0.0.1.
    address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str, address: &str) -> &'static str {
        let request = Request::parse(head.as_bytes());
        request.map_or("not HTTP", |request| request.answer(address.parse().unwrap(), || Ok("page".into())).status)
    }

    #[test]
    fn each_request_gets_its_status() {
        for (head, expected) in [
            ("GET /metrics HTTP/1.1\r\nHost: localhost:1\r\n\r\n", OK),
            ("GET /metrics HTTP/1.0\r\n\r\n", OK),
            ("GET /metrics?name=x HTTP/1.1\nhOST:127.0.0.1\n\n", OK),
            ("HEAD /metrics HTTP/1.1\r\nHost: [::1]:1\r\n\r\n", OK),
            ("GET http://127.0.0.1:1/metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", OK),
            ("GET /runbooks HTTP/1.1\r\nHost: localhost:1\r\n\r\n", OK),
            ("POST /runbooks HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /runbooks HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403 Forbidden"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET http://127.0.0.1 HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("get /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n", "403 Forbidden"),
            ("GET http://evil.example/metrics HTTP/1.1\r\nHost: localhost\r\n\r\n", "403 Forbidden"),
            ("GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", "not HTTP"),
            ("GET /metrics\r\n\r\n", "not HTTP"),
            ("PRI * HTTP/2.0\r\n\r\n", "not HTTP"),
            ("GET /metrics HTTP/1.1 x\r\n\r\n", "not HTTP"),
            ("\r\n\r\n", "not HTTP"),
        ] {
            assert_eq!(status(head, "127.0.0.1:1"), expected, "{head}");
        }
        assert_eq!(Request::parse(b"GET /\xff HTTP/1.1\r\n\r\n"), None);
    }

    #[test]
    fn the_page_of_runbooks_names_the_file_and_the_commands() {
        let request = Request::parse(b"GET /runbooks HTTP/1.1\r\n\r\n").unwrap();
        let response = request.answer("127.0.0.1:1".parse().unwrap(), || Err("no metrics are collected for it"));
        assert_eq!((response.status, response.content_type), (OK, PLAIN));
        let doctor = format!("\n    volt-console doctor {}\n", std::process::id());
        assert!(response.body.contains("docs/alerts.md") && response.body.contains(&doctor), "{}", response.body);
    }

    #[test]
    fn an_address_for_other_machines_has_any_host_name() {
        let head = "GET /metrics HTTP/1.1\r\nHost: shop.example\r\n\r\n";
        assert_eq!(status(head, "0.0.0.0:1"), OK);
        assert_eq!(status(head, "[::ffff:127.0.0.1]:1"), "403 Forbidden", "the same as 127.0.0.1");
    }

    #[test]
    fn a_head_request_gets_the_length_without_the_body() {
        let request = Request::parse(b"HEAD /metrics HTTP/1.1\r\n\r\n").unwrap();
        let response = request.answer("127.0.0.1:1".parse().unwrap(), || Ok("page".into()));
        let text = response.encode(request.is_head());
        assert!(text.contains("\r\nContent-Length: 4\r\n") && text.ends_with("Connection: close\r\n\r\n"), "{text}");
        assert_eq!(response.encode(false), format!("{text}page"));
    }
}
