//! Sends one request to the collector, over a new connection.
//!
//! Invariant *bounded*: the response is read up to [`ANSWER_BYTES_MAX`]. Everything, including the
//! name resolution, takes at most the target's timeout; then the connection is closed, whatever the
//! collector does.

use std::fmt::Display;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use prost::Message;
use volt::hyper::VoltIo;
use volt::net::TcpStream;
use volt::task::JoinSet;
use volt::time::timeout;

use crate::otlp::settings::Target;

/// The maximum size of a response in bytes. A collector's response has some tens.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Sends `body`. The error is a text for the log, which suggests what to check.
pub(super) async fn post(target: &Target, body: Vec<u8>) -> Result<(), String> {
    match timeout(target.timeout, exchange(target, body)).await {
        Ok(done) => done,
        Err(_) => Err(format!("no response within {:?}: the collector may be overloaded", target.timeout)),
    }
}

async fn exchange(target: &Target, body: Vec<u8>) -> Result<(), String> {
    let failed = |what: &'static str| {
        move |error: &dyn Display| format!("{what}: {error}: check that a collector listens there for OTLP over HTTP")
    };
    let stream = TcpStream::connect((target.host.as_str(), target.port))
        .await
        .map_err(|error| failed("cannot connect")(&error))?;
    let (mut sender, connection) =
        http1::handshake(VoltIo::new(stream)).await.map_err(|error| failed("HTTP handshake failed")(&error))?;
    // Dropping the set at the end of this call cancels its task.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let mut request =
        Request::post(&target.path).body(Full::new(Bytes::from(body))).map_err(|error| error.to_string())?;
    let headers = request.headers_mut();
    headers.extend(target.headers.clone());
    headers.insert(HOST, target.authority.parse().map_err(|_| "the host is not a valid header value".to_string())?);
    headers.insert(CONTENT_TYPE, "application/x-protobuf".parse().expect("plain ASCII"));
    headers.insert(USER_AGENT, concat!("volt-exporter/", env!("CARGO_PKG_VERSION")).parse().expect("plain ASCII"));
    let response = sender.send_request(request).await.map_err(|error| failed("no response")(&error))?;
    let status = response.status();
    let answer = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    let answer = answer.map_err(|error| failed("incomplete response")(&error))?.to_bytes();
    judge(status, &answer)
}

fn judge(status: StatusCode, answer: &[u8]) -> Result<(), String> {
    if !status.is_success() {
        return Err(format!("the collector returned {status}: see its log"));
    }
    // A response that is not OTLP does not mean that data was rejected.
    let refused = ExportMetricsServiceResponse::decode(answer).ok().and_then(|answer| answer.partial_success);
    match refused.filter(|refused| refused.rejected_data_points > 0) {
        Some(refused) => Err(format!(
            "the collector rejected {} data points: {}",
            refused.rejected_data_points, refused.error_message
        )),
        None => Ok(()),
    }
}
