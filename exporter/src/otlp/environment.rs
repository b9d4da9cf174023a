//! The environment variables with which OpenTelemetry configures exporters.
//!
//! Each variable exists in two forms: one for all signals, and one for metrics, which comes first.
//! An empty variable counts as unset.
//!
//! Invariant *no secrets in errors*: an error names the variable and never contains its value.
//!
//! Source: OpenTelemetry Specification, "OpenTelemetry Protocol Exporter" and "Environment Variable
//! Specification"; W3C Baggage, "baggage-string".

use std::ffi::OsString;
use std::time::Duration;

use crate::error::ServeError;

/// The endpoint if no variable names one.
const ENDPOINT: &str = "http://localhost:4318";
/// The path of metrics, which is appended to an endpoint for all signals.
const PATH: &str = "v1/metrics";
/// The only protocol that the exporter has.
const PROTOCOL: &str = "http/protobuf";

/// The settings of a collector; `None` where no variable has one.
#[cfg_attr(test, derive(Debug))]
pub(super) struct Settings {
    pub(super) endpoint: String,
    /// Whether the endpoint has the whole path.
    pub(super) is_exact: bool,
    pub(super) interval: Option<Duration>,
    pub(super) timeout: Option<Duration>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) certificate: Option<String>,
    pub(super) service_name: Option<String>,
}

/// Returns the settings in the variables that `get` returns.
pub(super) fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Settings, ServeError> {
    let variables = Variables { get };
    if let Some((name, value)) = variables.otlp("PROTOCOL")?
        && value != PROTOCOL
    {
        return Err(invalid(
            &name,
            format_args!(
                "not supported: set OTEL_EXPORTER_OTLP_METRICS_PROTOCOL to {PROTOCOL}, and the endpoint to the \
                 collector's port for it, usually 4318"
            ),
        ));
    }
    let of_metrics = variables.one("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT")?;
    let of_all = variables.one("OTEL_EXPORTER_OTLP_ENDPOINT")?.unwrap_or(ENDPOINT.into());
    let is_exact = of_metrics.is_some();
    let milliseconds =
        |variable: Option<(String, String)>| variable.map(|(name, value)| milliseconds(&name, &value)).transpose();
    let interval = "OTEL_METRIC_EXPORT_INTERVAL";
    Ok(Settings {
        endpoint: of_metrics.unwrap_or_else(|| with_path(&of_all)),
        is_exact,
        interval: milliseconds(variables.one(interval)?.map(|value| (interval.into(), value)))?,
        timeout: milliseconds(variables.otlp("TIMEOUT")?)?,
        headers: variables.otlp("HEADERS")?.map_or(Ok(Vec::new()), |(name, value)| pairs(&name, &value))?,
        certificate: variables.otlp("CERTIFICATE")?.map(|(_, path)| path),
        service_name: variables.one("OTEL_SERVICE_NAME")?,
    })
}

/// Appends the path of metrics to an endpoint for all signals, which may have a query.
fn with_path(endpoint: &str) -> String {
    let (base, query) = endpoint.split_at(endpoint.find('?').unwrap_or(endpoint.len()));
    format!("{}/{PATH}{query}", base.trim_end_matches('/'))
}

struct Variables<F> {
    get: F,
}

impl<F: Fn(&str) -> Option<OsString>> Variables<F> {
    fn one(&self, name: &str) -> Result<Option<String>, ServeError> {
        match (self.get)(name).map(OsString::into_string) {
            Some(Err(_)) => Err(invalid(name, "not UTF-8: set it again, or unset it")),
            Some(Ok(value)) => Ok(Some(value.trim().to_string()).filter(|value| !value.is_empty())),
            None => Ok(None),
        }
    }

    /// Returns the variable of the exporter with this end, and its name.
    fn otlp(&self, end: &str) -> Result<Option<(String, String)>, ServeError> {
        for name in [format!("OTEL_EXPORTER_OTLP_METRICS_{end}"), format!("OTEL_EXPORTER_OTLP_{end}")] {
            if let Some(value) = self.one(&name)? {
                return Ok(Some((name, value)));
            }
        }
        Ok(None)
    }
}

fn invalid(name: &str, text: impl std::fmt::Display) -> ServeError {
    ServeError::invalid(name, text)
}

fn milliseconds(name: &str, value: &str) -> Result<Duration, ServeError> {
    let number = value.parse().ok().filter(|number| *number > 0);
    number
        .map(Duration::from_millis)
        .ok_or_else(|| invalid(name, "not a number of milliseconds above 0, such as 10000"))
}

/// Parses `name=value,name=value`, whose values are percent-encoded.
fn pairs(variable: &str, text: &str) -> Result<Vec<(String, String)>, ServeError> {
    let entries = text.split(',').map(str::trim).enumerate().filter(|(_, entry)| !entry.is_empty());
    let pair = |(index, entry): (usize, &str)| {
        let number = index + 1;
        let (name, value) = entry.split_once('=').ok_or_else(|| {
            invalid(variable, format_args!("entry {number} has no `=`: write it as name=value,name=value"))
        })?;
        let value = decode(value.trim()).ok_or_else(|| {
            invalid(variable, format_args!("entry {number} is not percent-encoded UTF-8: write `%` as %25"))
        })?;
        Ok((name.trim().to_string(), value))
    };
    entries.map(pair).collect()
}

/// Decodes percent-encoding. Returns `None` if it is malformed or not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        // `from_str_radix` accepts a sign.
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Settings, ServeError> {
        read(|name| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()))
    }

    #[test]
    fn the_path_of_metrics_is_appended_to_a_common_endpoint() {
        for (base, endpoint) in [
            ("", "http://localhost:4318/v1/metrics"),
            ("http://collector:1/", "http://collector:1/v1/metrics"),
            ("http://collector:1/tenant", "http://collector:1/tenant/v1/metrics"),
            ("http://collector:1/tenant/?key=x/y", "http://collector:1/tenant/v1/metrics?key=x/y"),
        ] {
            let settings = with(&[("OTEL_EXPORTER_OTLP_ENDPOINT", base)]).unwrap();
            assert_eq!((&*settings.endpoint, settings.is_exact), (endpoint, false));
        }
    }

    #[test]
    fn the_variables_of_metrics_come_first() {
        let all = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "1"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ];
        let metrics = [
            ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://metrics:2"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "b=2"),
            ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "2"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/protobuf"),
        ];
        let settings = with(&[all, metrics].concat()).unwrap();
        assert_eq!((&*settings.endpoint, settings.is_exact), ("http://metrics:2", true), "it is used as it is");
        assert_eq!(settings.timeout, Some(Duration::from_millis(2)));
        assert_eq!(settings.headers, [("b".to_string(), "2".to_string())]);
        let error = with(&all).unwrap_err().to_string();
        assert!(error.starts_with("OTEL_EXPORTER_OTLP_PROTOCOL: not supported"), "{error}");
    }

    #[test]
    fn header_values_are_percent_decoded() {
        let text = " authorization = Basic%20YTpi%3D , x-tenant=caf%C3%A9%2C%25,, empty= ";
        let decoded = pairs("V", text).unwrap();
        let decoded: Vec<_> = decoded.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(decoded, [("authorization", "Basic YTpi="), ("x-tenant", "café,%"), ("empty", "")]);
    }

    #[test]
    fn errors_name_the_variable_and_not_its_value() {
        for (name, value, reported) in [
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=1,hunter2", "entry 2 has no `=`"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%", "entry 1 is not percent-encoded"),
            ("OTEL_EXPORTER_OTLP_METRICS_HEADERS", "a=hunter2%+1", "entry 1 is not percent-encoded"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2%ff", "entry 1 is not percent-encoded"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "not a number of milliseconds"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "not a number of milliseconds"),
            ("OTEL_METRIC_EXPORT_INTERVAL", "-1", "not a number of milliseconds"),
        ] {
            let error = with(&[(name, value)]).unwrap_err();
            assert!(error.is_invalid_setting());
            let error = error.to_string();
            assert!(error.starts_with(&format!("{name}: ")) && error.contains(reported), "{error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn the_service_name_and_the_interval_are_read() {
        let settings = with(&[("OTEL_SERVICE_NAME", "shop"), ("OTEL_METRIC_EXPORT_INTERVAL", "1500")]).unwrap();
        assert_eq!(settings.service_name.as_deref(), Some("shop"));
        assert_eq!(settings.interval, Some(Duration::from_millis(1500)));
    }
}
