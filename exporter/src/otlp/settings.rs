//! The settings of a push (destination, interval, headers), and the checks before anything is sent.

use std::time::Duration;

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::error::ServeError;

/// The path that OTLP defines for metrics.
const PATH: &str = "/v1/metrics";
/// The default time between two pushes, the same as OpenTelemetry's default.
const INTERVAL: Duration = Duration::from_secs(60);
/// The default time limit of a push, from the connection to the end of the response; the same as
/// OpenTelemetry's default.
const TIMEOUT: Duration = Duration::from_secs(10);

/// An OpenTelemetry collector, for [`Builder::otlp`](crate::Builder::otlp). The exporter pushes the
/// metrics of the catalog to it, as OTLP over HTTP.
///
/// The names are those of `docs/metrics.md` in OpenTelemetry's style: `volt.worker.polls` for
/// `volt_worker_polls_total`. Histograms stay histograms, and counts are cumulative. The resource
/// of a program has the attributes `service.name`, `service.instance.id`, `process.pid` and
/// `host.name`. Metrics that the application counts with the `metrics` macros are not pushed.
///
/// ```
/// use std::time::Duration;
/// use volt_exporter::{Exporter, Otlp};
///
/// let collector = Otlp::new("http://127.0.0.1:4318").interval(Duration::from_secs(15)).service_name("shop");
/// let _exporter = Exporter::builder().listen("127.0.0.1:0").otlp(collector).serve().unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Otlp {
    endpoint: String,
    interval: Duration,
    timeout: Duration,
    headers: Vec<(String, String)>,
    service_name: Option<String>,
}

impl Otlp {
    /// Creates a collector at `endpoint`, for example `http://127.0.0.1:4318`.
    ///
    /// An endpoint without a path gets the path of OTLP, `/v1/metrics`. A path in the endpoint is
    /// kept unchanged. The scheme must be `http`: for TLS, push to a collector on this machine that
    /// forwards the metrics.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            interval: INTERVAL,
            timeout: TIMEOUT,
            headers: Vec::new(),
            service_name: None,
        }
    }

    /// Sets the time between two pushes, and before the first. Default: 60 s.
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets how long a push may take before it is cancelled. Default: 10 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Adds a header to every push, such as a tenant's name.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sets the resource's `service.name`. Default: the name of the program.
    pub fn service_name(self, name: impl Into<String>) -> Self {
        Self { service_name: Some(name.into()), ..self }
    }

    pub(crate) fn check(self) -> Result<Target, ServeError> {
        let endpoint = &self.endpoint;
        let invalid = |text: String| ServeError::invalid("otlp", text);
        let remedy = "write it as http://127.0.0.1:4318";
        let uri: Uri =
            endpoint.parse().map_err(|error| invalid(format!("{endpoint:?} is not a URL ({error}): {remedy}")))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => {
                let text =
                    "needs TLS, which is not supported: push to a collector on this machine that forwards the metrics";
                return Err(invalid(format!("{endpoint:?} {text}")));
            }
            _ => return Err(invalid(format!("{endpoint:?} does not begin with http://: {remedy}"))),
        }
        let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority =
            authority.ok_or_else(|| invalid(format!("{endpoint:?} has no host, or has a password: {remedy}")))?;
        if self.interval.is_zero() || self.timeout.is_zero() {
            return Err(invalid("interval and timeout must be above 0; the defaults are 60 s and 10 s".into()));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let header = name.parse::<HeaderName>().ok().zip(HeaderValue::from_str(value).ok());
            let (name, value) = header.ok_or_else(|| {
                invalid(format!("{name:?} is not a valid header name, or its value is not plain ASCII"))
            })?;
            headers.insert(name, value);
        }
        let path = uri.path_and_query().map(|path| path.as_str()).filter(|path| *path != "/").unwrap_or(PATH);
        Ok(Target {
            host: authority.host().trim_matches(['[', ']']).into(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.as_str().into(),
            path: path.into(),
            headers,
            interval: self.interval,
            timeout: self.timeout,
            service_name: self.service_name,
        })
    }
}

/// A collector whose settings were checked.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as the user wrote them.
    pub(crate) authority: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) service_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(endpoint: &str) -> Target {
        Otlp::new(endpoint).check().unwrap()
    }

    #[test]
    fn an_endpoint_without_a_path_gets_that_of_otlp() {
        for endpoint in ["http://collector:4318", "http://collector:4318/"] {
            let Target { host, port, path, .. } = target(endpoint);
            assert_eq!((&*host, port, &*path), ("collector", 4318, "/v1/metrics"));
        }
        assert_eq!(target("http://collector/tenant/metrics?key=1").path, "/tenant/metrics?key=1");
        assert_eq!((target("http://[::1]:4318").host, target("http://collector").port), ("::1".into(), 80));
    }

    #[test]
    fn an_unsupported_url_is_an_error_with_a_remedy() {
        let refused = |otlp: Otlp| {
            let error = otlp.check().unwrap_err();
            assert!(error.is_invalid_setting());
            error.to_string()
        };
        for (endpoint, told) in [
            ("https://collector:4318", "needs TLS"),
            ("collector:4318", "does not begin with http://"),
            ("ftp://collector", "does not begin with http://"),
            ("http://user:password@collector", "has no host, or has a password"),
            ("not a url", "is not a URL"),
            ("", "is not a URL"),
        ] {
            let error = refused(Otlp::new(endpoint));
            assert!(error.starts_with("otlp: ") && error.contains(told), "{endpoint}: {error}");
        }
        assert!(refused(Otlp::new("http://c").interval(Duration::ZERO)).contains("above 0"));
        assert!(refused(Otlp::new("http://c").timeout(Duration::ZERO)).contains("above 0"));
        assert!(
            refused(Otlp::new("http://c").header("tenant", "a\nb")).contains("\"tenant\" is not a valid header name")
        );
    }
}
