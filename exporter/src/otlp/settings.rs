//! The settings of a push (destination, interval, headers), and the checks before anything is sent.
//!
//! Invariant *no secrets in logs*: a header may contain a credential. The debug output of these
//! types, and the errors, have the names of headers and never their values.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use crate::error::ServeError;
use crate::otlp::environment;
use crate::otlp::place::Place;
#[cfg(feature = "otlp-tls")]
use crate::otlp::tls::Tls;

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
/// When the [`Exporter`](crate::Exporter) is dropped, it pushes for the last time. If a collector
/// is overloaded (status 429, 502, 503 or 504) and its response has the header `Retry-After`, the
/// next push is at that time, at most an hour later. Redirects with the status 307 or 308 are
/// followed if they stay at the same scheme, host and port.
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
    endpoint: Endpoint,
    interval: Duration,
    timeout: Duration,
    headers: Headers,
    #[cfg_attr(not(feature = "otlp-tls"), expect(dead_code, reason = "without TLS, nothing is trusted"))]
    certificate: Option<PathBuf>,
    service_name: Option<String>,
}

impl Otlp {
    /// Creates a collector at `endpoint`, for example `http://127.0.0.1:4318`.
    ///
    /// An endpoint without a path gets the path of OTLP, `/v1/metrics`. A path in the endpoint is
    /// kept unchanged. The scheme is `http`, or `https` with the feature `otlp-tls`.
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: Endpoint { url: endpoint.into(), is_exact: false },
            interval: INTERVAL,
            timeout: TIMEOUT,
            headers: Headers(Vec::new()),
            certificate: None,
            service_name: None,
        }
    }

    /// Creates a collector with the settings of OpenTelemetry's environment variables. Methods that
    /// are called later replace these settings.
    ///
    /// | variable | setting |
    /// |---|---|
    /// | `OTEL_EXPORTER_OTLP_ENDPOINT` | the URL without the path `/v1/metrics` |
    /// | `OTEL_EXPORTER_OTLP_HEADERS` | headers, as `name=value,name=value`, with percent-encoded values |
    /// | `OTEL_EXPORTER_OTLP_TIMEOUT` | [`timeout`](Self::timeout), in milliseconds |
    /// | `OTEL_EXPORTER_OTLP_CERTIFICATE` | [`certificate`](Self::certificate) |
    /// | `OTEL_METRIC_EXPORT_INTERVAL` | [`interval`](Self::interval), in milliseconds |
    /// | `OTEL_SERVICE_NAME` | [`service_name`](Self::service_name) |
    ///
    /// Without a variable for the endpoint, it is `http://localhost:4318`. A variable that begins
    /// with `OTEL_EXPORTER_OTLP_METRICS_` replaces the one that begins with `OTEL_EXPORTER_OTLP_`.
    /// The URL in `OTEL_EXPORTER_OTLP_METRICS_ENDPOINT` is used unchanged.
    /// The exporter does not compress requests and has no client certificates, so the variables for
    /// these have no effect.
    ///
    /// # Errors
    ///
    /// Returns an error if a variable is invalid, or if `OTEL_EXPORTER_OTLP_PROTOCOL` is set to
    /// another protocol than `http/protobuf`.
    ///
    /// ```
    /// # if std::env::vars_os().any(|(name, _)| name.to_string_lossy().starts_with("OTEL_")) { return Ok(()); }
    /// let collector = volt_exporter::Otlp::from_env()?.service_name("shop");
    /// # Ok::<(), volt_exporter::ServeError>(())
    /// ```
    pub fn from_env() -> Result<Self, ServeError> {
        let settings = environment::read(|name| std::env::var_os(name))?;
        Ok(Self {
            endpoint: Endpoint { url: settings.endpoint, is_exact: settings.is_exact },
            interval: settings.interval.unwrap_or(INTERVAL),
            timeout: settings.timeout.unwrap_or(TIMEOUT),
            headers: Headers(settings.headers),
            certificate: settings.certificate.map(PathBuf::from),
            service_name: settings.service_name,
        })
    }

    /// Sets the endpoint, as [`new`](Self::new) does.
    pub fn endpoint(self, endpoint: impl Into<String>) -> Self {
        Self { endpoint: Endpoint { url: endpoint.into(), is_exact: false }, ..self }
    }

    /// Sets the time between two pushes, and before the first push. Default: 60 s.
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval, ..self }
    }

    /// Sets how long a push may take before it is cancelled. Default: 10 s.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Adds a header to every push, such as a tenant's name or a credential. Its value appears in
    /// no log and no debug output. It replaces a header with the same name.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.0.push((name.into(), value.into()));
        self
    }

    /// Sets the PEM file with the certificate authorities that may sign the collector's
    /// certificate. Default: the authorities of the system.
    ///
    /// Used only for an endpoint with `https`. It is read by
    /// [`Builder::serve`](crate::Builder::serve).
    pub fn certificate(self, file: impl Into<PathBuf>) -> Self {
        Self { certificate: Some(file.into()), ..self }
    }

    /// Sets the resource's `service.name`. Default: the name of the program.
    pub fn service_name(self, name: impl Into<String>) -> Self {
        Self { service_name: Some(name.into()), ..self }
    }

    pub(crate) fn check(self) -> Result<Target, ServeError> {
        let invalid = |text: String| ServeError::invalid("otlp", text);
        let place = Place::parse(&self.endpoint.url, self.endpoint.is_exact).map_err(invalid)?;
        if self.interval.is_zero() || self.timeout.is_zero() {
            return Err(invalid("interval and timeout must be above 0; the defaults are 60 s and 10 s".into()));
        }
        let mut headers = HeaderMap::new();
        for (index, (name, value)) in self.headers.0.iter().enumerate() {
            // An invalid name may be a credential: the beginning of `authorization: Basic …=`.
            let name: HeaderName = name
                .parse()
                .map_err(|_| invalid(format!("header {} has no valid name: write it as name=value", index + 1)))?;
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| invalid(format!("the value of the header {name:?} is not plain ASCII")))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        #[cfg(not(feature = "otlp-tls"))]
        if place.is_tls {
            return Err(invalid(format!(
                "{} needs TLS: build volt-exporter with the feature otlp-tls, or push to a collector on this machine that \
                 forwards the metrics",
                place.origin()
            )));
        }
        Ok(Target {
            #[cfg(feature = "otlp-tls")]
            tls: place
                .is_tls
                .then(|| Tls::new(&place.host, self.certificate.as_deref()))
                .transpose()
                .map_err(invalid)?,
            place,
            headers,
            interval: self.interval,
            timeout: self.timeout,
            service_name: self.service_name,
        })
    }
}

/// A URL, which may contain a password or a key.
#[derive(Clone)]
struct Endpoint {
    url: String,
    /// Whether a missing path stays missing.
    is_exact: bool,
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Place::parse(&self.url, self.is_exact) {
            Ok(place) => f.write_str(&place.origin()),
            Err(_) => f.write_str("an invalid URL"),
        }
    }
}

/// Names and values of headers.
#[derive(Clone)]
struct Headers(Vec<(String, String)>);

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            |name: &str| name.parse::<HeaderName>().map_or("an invalid name".to_owned(), |name| name.to_string());
        f.debug_list().entries(self.0.iter().map(|(text, _)| name(text))).finish()
    }
}

/// A collector whose settings were checked.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) place: Place,
    /// For an endpoint with `https`.
    #[cfg(feature = "otlp-tls")]
    pub(crate) tls: Option<Tls>,
    pub(crate) headers: HeaderMap,
    pub(crate) interval: Duration,
    pub(crate) timeout: Duration,
    pub(crate) service_name: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(otlp: Otlp) -> String {
        let error = otlp.check().unwrap_err();
        assert!(error.is_invalid_setting());
        error.to_string()
    }

    #[test]
    fn an_invalid_setting_is_an_error_with_a_remedy() {
        assert!(refused(Otlp::new("collector:4318")).starts_with("otlp: the endpoint does not begin with http://"));
        assert!(refused(Otlp::new("http://c").interval(Duration::ZERO)).contains("above 0"));
        assert!(refused(Otlp::new("http://c").timeout(Duration::ZERO)).contains("above 0"));
        assert!(refused(Otlp::new("http://c").header("tenant", "a\nb")).contains("the value of the header \"tenant\""));
    }

    #[test]
    fn secrets_are_in_no_debug_output_and_no_error() {
        let otlp = Otlp::new("http://collector/v1?key=hunter2").header("authorization", "hunter2");
        let debug = format!("{otlp:?} {:?}", otlp.clone().check().unwrap());
        assert!(debug.contains("http://collector") && debug.contains("authorization"), "{debug}");
        assert!(!debug.contains("hunter2"), "{debug}");
        assert!(!refused(otlp.clone().header("x-key", "hunter2\n")).contains("hunter2"));
        let no_name = otlp.header("authorization: Basic hunter2", "");
        assert!(!format!("{no_name:?}").contains("Basic"));
        let error = refused(no_name);
        assert!(error.contains("header 2 has no valid name") && !error.contains("hunter2"), "{error}");
    }

    #[cfg(not(feature = "otlp-tls"))]
    #[test]
    fn without_its_feature_tls_is_an_error_that_names_it() {
        assert!(
            refused(Otlp::new("https://collector:4318")).contains("needs TLS: build volt-exporter with the feature")
        );
    }

    #[cfg(feature = "otlp-tls")]
    #[test]
    fn a_certificate_file_without_certificates_is_an_error() {
        let none = refused(Otlp::new("https://collector").certificate("/nowhere/ca.pem"));
        assert!(none.contains("the certificate file /nowhere/ca.pem: ") && none.contains("name a PEM file"), "{none}");
        let empty = refused(Otlp::new("https://collector").certificate("/dev/null"));
        assert!(empty.contains("the certificate file /dev/null: no certificate"), "{empty}");
    }
}
