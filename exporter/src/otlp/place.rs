//! The URL of a collector, in the parts that a request needs.
//!
//! Invariant *no secrets in errors*: a URL may contain a password or a key, so the errors of this
//! module name only the scheme, the host and the port.

use std::fmt;

use hyper::Uri;

/// The path that OTLP defines for metrics.
const PATH: &str = "/v1/metrics";
/// The remedy for most invalid URLs.
const EXAMPLE: &str = "write it as http://127.0.0.1:4318";

/// An address to which metrics are pushed.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) is_tls: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Host and port as the user wrote them.
    pub(crate) authority: String,
    /// With the query.
    pub(crate) path: String,
}

impl Place {
    /// Parses an endpoint. One without a path gets the path of OTLP, unless `is_exact`.
    pub(crate) fn parse(endpoint: &str, is_exact: bool) -> Result<Self, String> {
        let uri: Uri = endpoint.parse().map_err(|error| format!("the endpoint is not a URL ({error}): {EXAMPLE}"))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(format!("the endpoint does not begin with http:// or https://: {EXAMPLE}")),
        };
        let authority = uri.authority().ok_or_else(|| format!("the endpoint has no host: {EXAMPLE}"))?;
        if authority.as_str().contains('@') {
            return Err("the endpoint has a user or a password: pass them in the header `authorization`".into());
        }
        // The host is empty in `http://:4318`, for example if a variable in a script is not set.
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err(format!("the endpoint has no host: {EXAMPLE}"));
        }
        let after_host = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        if !after_host.is_empty() && authority.port_u16().is_none() {
            return Err(format!("the endpoint has no valid port after the host {}: {EXAMPLE}", authority.host()));
        }
        // Also `/` for a URL without a path, such as `http://collector?tenant=1`.
        let path = if uri.path() == "/" && !is_exact { PATH } else { uri.path() };
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        Ok(Self {
            is_tls,
            host: host.into(),
            port: authority.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority.as_str().into(),
            path: format!("{path}{query}"),
        })
    }

    /// Returns the place that the header `Location` of a redirect names. It must have the same
    /// scheme, host and port, because metrics and headers are sent to no host that the user has not
    /// chosen, and not without TLS if the user has chosen TLS.
    pub(crate) fn moved(&self, location: &str) -> Result<Self, String> {
        if location.starts_with('/') && !location.starts_with("//") {
            let uri = location.parse::<Uri>().map_err(|error| format!("redirects to an invalid path ({error})"))?;
            let path = uri.path_and_query().map_or("/", |path| path.as_str());
            return Ok(Self { path: path.into(), ..self.clone() });
        }
        let new = Self::parse(location, true).map_err(|_| {
            "redirects to a location that is neither a path nor a URL: set the endpoint to the final address"
                .to_string()
        })?;
        if (new.is_tls, &new.host, new.port) != (self.is_tls, &self.host, self.port) {
            return Err(format!(
                "redirects to {}, and redirects to another server are not followed: if you trust it, set the endpoint \
                 to its address",
                new.origin()
            ));
        }
        Ok(new)
    }

    /// Returns the scheme, host and port, for messages.
    pub(crate) fn origin(&self) -> String {
        format!("{}://{}", if self.is_tls { "https" } else { "http" }, self.authority)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.origin())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(endpoint: &str) -> Place {
        Place::parse(endpoint, false).unwrap()
    }

    #[test]
    fn an_endpoint_without_a_path_gets_that_of_otlp() {
        for endpoint in ["http://collector:4318", "http://collector:4318/"] {
            let Place { host, port, path, .. } = place(endpoint);
            assert_eq!((&*host, port, &*path), ("collector", 4318, "/v1/metrics"));
            assert_eq!(Place::parse(endpoint, true).unwrap().path, "/");
        }
        for endpoint in ["http://collector?key=1", "http://collector/?key=1"] {
            assert_eq!(place(endpoint).path, "/v1/metrics?key=1");
            assert_eq!(Place::parse(endpoint, true).unwrap().path, "/?key=1", "a path begins with `/`");
        }
        assert_eq!(place("http://collector/tenant/metrics?key=1").path, "/tenant/metrics?key=1");
        assert_eq!((place("http://[::1]:4318").host, place("http://collector").port), ("::1".into(), 80));
        assert_eq!((place("https://collector").port, place("https://collector").is_tls), (443, true));
    }

    #[test]
    fn an_unsupported_url_is_an_error_without_its_secrets() {
        for (endpoint, reported) in [
            ("collector:4318", "does not begin with http://"),
            ("ftp://collector", "does not begin with http://"),
            ("http://user:hunter2@collector", "header `authorization`"),
            ("http://collector:43180000/v1?key=hunter2", "no valid port after the host collector"),
            ("http://collector:/v1?key=hunter2", "no valid port after the host collector"),
            ("http://:4318/v1?key=hunter2", "has no host"),
            ("http://[]:4318/v1?key=hunter2", "has no host"),
            ("http://:/v1?key=hunter2", "has no host"),
            ("not a url?key=hunter2", "is not a URL"),
            ("", "is not a URL"),
        ] {
            let error = Place::parse(endpoint, false).unwrap_err();
            assert!(error.contains(reported) && !error.contains("hunter2"), "{endpoint}: {error}");
        }
    }

    #[test]
    fn a_redirect_stays_at_the_same_server() {
        let from = place("https://collector/v1/metrics");
        for (location, path) in [
            ("/v2?tenant=1", "/v2?tenant=1"),
            ("https://collector/v2", "/v2"),
            ("https://collector:443/", "/"),
            ("https://collector?x", "/?x"),
        ] {
            assert_eq!(from.moved(location).unwrap().path, path);
        }
        for (location, reported) in [
            ("http://collector/v2", "http://collector,"),
            ("https://other/v2?key=hunter2", "https://other,"),
            ("https://collector:444/v2", "https://collector:444,"),
            ("//other/v2", "neither a path nor a URL"),
            ("v2", "neither a path nor a URL"),
            ("", "neither a path nor a URL"),
        ] {
            let error = from.moved(location).unwrap_err();
            assert!(error.contains(reported) && !error.contains("hunter2"), "{location}: {error}");
        }
    }
}
