//! TLS to a collector, with rustls.
//!
//! The certificate authorities are those of a file if the user names one, and otherwise those of
//! the system. They are read once, when the exporter starts, so a new file requires a restart.
//!
//! Source: RFC 8446 (TLS 1.3); RFC 9525, "Service Identity in TLS".

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use volt::net::TcpStream;

/// The connector and name that authenticate one collector.
#[derive(Clone)]
pub(crate) struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl Tls {
    /// Reads the certificate authorities. The error names the setting and the remedy.
    pub(crate) fn new(host: &str, certificate: Option<&Path>) -> Result<Self, String> {
        let name = ServerName::try_from(host.to_string()).map_err(|_| {
            format!("{host:?} is not a name that a certificate can have: use a DNS name or an IP address")
        })?;
        let roots = match certificate {
            Some(path) => read(path)?,
            None => of_system()?,
        };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { connector: Arc::new(config).into(), name })
    }

    /// Performs the handshake, which verifies the certificate of the collector.
    pub(crate) async fn connect(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.connector.connect(self.name.clone(), stream).await
    }
}

fn read(path: &Path) -> Result<RootCertStore, String> {
    let invalid = |what: String| {
        format!("the certificate file {}: {what}: name a PEM file with the certificates of authorities", path.display())
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| invalid(error.to_string()))? {
        let certificate = certificate.map_err(|error| invalid(error.to_string()))?;
        roots.add(certificate).map_err(|error| invalid(error.to_string()))?;
    }
    if roots.is_empty() { Err(invalid("no certificate".into())) } else { Ok(roots) }
}

fn of_system() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system may have certificates that rustls cannot read, and needs none of them.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let errors = found.errors.iter().map(|error| format!(" ({error})")).collect::<String>();
        return Err(format!(
            "the system has no certificate authorities{errors}: install the package ca-certificates, or name a file of \
             certificates with Otlp::certificate or OTEL_EXPORTER_OTLP_CERTIFICATE"
        ));
    }
    Ok(roots)
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("name", &self.name).finish_non_exhaustive()
    }
}
