//! Sends one request to the collector, over a new connection, and follows its redirects.
//!
//! # Invariants
//!
//! *Bounded*: the response is read up to [`ANSWER_BYTES_MAX`], and at most [`REDIRECTS_MAX`]
//! redirects are followed. Everything, including the name resolution, takes at most the time limit;
//! then the connection is closed, whatever the collector does. *The status decides*: the body of a
//! failure or of a redirect is not read, so a body that is too long, incomplete or slow hides
//! neither the status nor the headers. *No secrets in errors*: they name hosts, not URLs, and no
//! header.
//!
//! Source: RFC 9110, "Redirection 3xx", "Retry-After"; OTLP/HTTP, "Failures".

use std::time::{Duration, SystemTime};

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, LOCATION, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use volt::hyper::VoltIo;
use volt::net::TcpStream;
use volt::task::JoinSet;
use volt::time::timeout;

use crate::otlp::place::Place;
use crate::otlp::settings::Target;

/// The maximum size of a response in bytes. A collector's response has some tens.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of redirects of one push. A loop of redirects ends here.
const REDIRECTS_MAX: usize = 3;

/// Why a push failed.
#[derive(Debug)]
pub(super) struct Failure {
    /// For the log. Suggests what to check.
    pub(super) text: String,
    /// How long the collector wants no push.
    pub(super) retry_after: Option<Duration>,
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { text, retry_after: None }
    }
}

/// A response.
struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    /// Empty if the push failed.
    body: Bytes,
}

/// Sends `body`, within `limit`.
pub(super) async fn post(target: &Target, body: Vec<u8>, limit: Duration) -> Result<(), Failure> {
    match timeout(limit, follow(target, body.into())).await {
        Ok(done) => done,
        Err(_) => Err(format!("no response within {limit:?}: the collector may be overloaded").into()),
    }
}

async fn follow(target: &Target, body: Bytes) -> Result<(), Failure> {
    let mut place = target.place.clone();
    for _ in 0..=REDIRECTS_MAX {
        let answer = exchange(target, &place, body.clone()).await?;
        // These are the redirects after which a client sends the same request again.
        if !matches!(answer.status, StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
            return judge(&answer);
        }
        let location = answer.headers.get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
        place = place.moved(location).map_err(|text| format!("the collector returned {}: it {text}", answer.status))?;
    }
    Err(format!("the collector redirects more than {REDIRECTS_MAX} times: set the endpoint to the final address")
        .into())
}

async fn exchange(target: &Target, place: &Place, body: Bytes) -> Result<Answer, Failure> {
    let stream = TcpStream::connect((place.host.as_str(), place.port))
        .await
        .map_err(|error| format!("cannot connect: {error}: check that a collector listens there for OTLP over HTTP"))?;
    let mut request = Request::post(&place.path).body(Full::new(body)).map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    headers.extend(target.headers.clone());
    headers.insert(HOST, place.authority.parse().map_err(|_| "the host is not a valid header value".to_string())?);
    headers.insert(CONTENT_TYPE, "application/x-protobuf".parse().expect("plain ASCII"));
    headers.insert(USER_AGENT, concat!("volt-exporter/", env!("CARGO_PKG_VERSION")).parse().expect("plain ASCII"));
    #[cfg(feature = "otlp-tls")]
    if let Some(tls) = &target.tls {
        let stream = tls.connect(stream).await.map_err(|error| {
            format!(
                "TLS handshake failed: {error}: check that the collector has TLS at this port, and name its certificate \
                 authority with Otlp::certificate or OTEL_EXPORTER_OTLP_CERTIFICATE"
            )
        })?;
        return send(stream, request).await;
    }
    send(stream, request).await
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
) -> Result<Answer, Failure> {
    let failed = |what: &str, error: hyper::Error| {
        format!("{what}: {error}: check that a collector listens there for OTLP over HTTP")
    };
    let (mut sender, connection) =
        http1::handshake(VoltIo::new(stream)).await.map_err(|error| failed("HTTP handshake failed", error))?;
    // Dropping the set at the end of this call cancels its task.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let response = sender.send_request(request).await.map_err(|error| failed("no response", error))?;
    let (head, body) = response.into_parts();
    let mut answer = Answer { status: head.status, headers: head.headers, body: Bytes::new() };
    if answer.status.is_success() {
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        answer.body = body.map_err(|error| format!("incomplete response: {error}"))?.to_bytes();
    }
    Ok(answer)
}

fn judge(answer: &Answer) -> Result<(), Failure> {
    let status = answer.status;
    if status.is_success() {
        // A response that is not OTLP does not mean that data was rejected.
        let refused = ExportMetricsServiceResponse::decode(&*answer.body).ok().and_then(|body| body.partial_success);
        return match refused.filter(|refused| refused.rejected_data_points > 0) {
            Some(refused) => {
                let (count, why) = (refused.rejected_data_points, refused.error_message);
                Err(format!("the collector rejected {count} data points: {why}").into())
            }
            None => Ok(()),
        };
    }
    let is_busy = matches!(
        status,
        StatusCode::TOO_MANY_REQUESTS
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT
    );
    let remedy = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "check the credentials in its headers (Otlp::header or OTEL_EXPORTER_OTLP_HEADERS)"
        }
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => "check the path of the endpoint",
        status if status.is_redirection() => "set the endpoint to the address to which it redirects",
        _ if is_busy => "it is overloaded, or not available",
        _ => "see its log",
    };
    let retry_after = answer.headers.get(RETRY_AFTER).filter(|_| is_busy).and_then(|value| value.to_str().ok());
    Err(Failure {
        text: format!("the collector returned {status}: {remedy}"),
        retry_after: retry_after.and_then(|value| pause(value, SystemTime::now())),
    })
}

/// Parses `Retry-After`: seconds, or a date.
fn pause(value: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // A date that has passed means that the collector is ready.
    Some(httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, retry_after: &str) -> Answer {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        Answer { status: StatusCode::from_u16(status).unwrap(), headers, body: Bytes::new() }
    }

    #[test]
    fn only_a_busy_collector_delays_the_next_push() {
        for (status, retry_after) in [(429, Some(7)), (503, Some(7)), (400, None), (500, None), (401, None)] {
            let failure = judge(&answer(status, "7")).unwrap_err();
            assert_eq!(failure.retry_after, retry_after.map(Duration::from_secs), "{status}: {}", failure.text);
        }
        assert!(judge(&answer(200, "7")).is_ok());
    }

    #[test]
    fn a_retry_time_is_a_number_of_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let seconds = |value| pause(value, now).map(|pause| pause.as_secs());
        assert_eq!(seconds("120"), Some(120));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:50:37 GMT"), Some(60));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:48:37 GMT"), Some(0), "it has passed");
        for invalid in ["", "-1", "soon", "1.5"] {
            assert_eq!(seconds(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn each_refusal_has_its_remedy() {
        for (status, remedy) in [
            (401, "check the credentials"),
            (404, "check the path of the endpoint"),
            (302, "set the endpoint"),
            (503, "overloaded"),
            (400, "see its log"),
        ] {
            let text = judge(&answer(status, "")).unwrap_err().text;
            assert!(text.starts_with(&format!("the collector returned {status}")) && text.contains(remedy), "{text}");
        }
    }
}
