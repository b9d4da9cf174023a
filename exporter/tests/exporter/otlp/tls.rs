//! Tests of pushes with TLS. The collector is a real TLS server, whose certificate is signed by an
//! authority that the test has made.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::*;

/// A certificate authority, and the file with its certificate, which is removed at the end.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    file: PathBuf,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Otherwise the certificates of two authorities would have the same issuer.
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let file = std::env::temp_dir().join(format!("volt-{name}-{}.pem", std::process::id()));
        std::fs::write(&file, issuer.pem()).unwrap();
        Self { issuer, file }
    }

    /// Returns the configuration of a server with a certificate for `host`.
    fn server(&self, host: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_string()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        Arc::new(config.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key).unwrap())
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.file);
    }
}

/// Starts a collector with TLS. It sends what it received over each connection: a push, or the
/// error of the handshake.
fn tls_collector(config: Arc<ServerConfig>) -> (SocketAddr, Receiver<Result<Pushed, String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, pushes) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut connection = ServerConnection::new(config.clone()).unwrap();
            let shaken = loop {
                match connection.complete_io(&mut stream) {
                    Err(error) => break Err(error.to_string()),
                    Ok(_) if !connection.is_handshaking() => break Ok(()),
                    Ok(_) => {}
                }
            };
            let pushed = shaken.map(|()| receive(StreamOwned::new(connection, stream), || ("200 OK", Vec::new())));
            if sender.send(pushed).is_err() {
                return;
            }
        }
    });
    (address, pushes)
}

fn push_with_tls_to(address: SocketAddr) -> Otlp {
    Otlp::new(format!("https://{address}")).interval(OFTEN).timeout(LONG)
}

#[test]
fn metrics_are_pushed_with_tls_to_a_trusted_collector() {
    let _watchdog = watchdog();
    let authority = Authority::new("trusted");
    let (address, pushes) = tls_collector(authority.server("127.0.0.1"));
    let otlp = push_with_tls_to(address).certificate(&authority.file).header("authorization", "Basic YTpi");
    let _exporter = Exporter::builder().listen("127.0.0.1:0").otlp(otlp).serve().unwrap();
    let pushed = pushes.recv_timeout(LONG).unwrap().expect("a handshake");
    assert_eq!(pushed.line, "POST /v1/metrics HTTP/1.1");
    assert_eq!((&*pushed.headers["host"], &*pushed.headers["authorization"]), (&*address.to_string(), "Basic YTpi"));
    assert!(!pushed.metrics().is_empty());
}

/// Pushes to a collector that must not be trusted, and returns the log message.
fn refused(config: Arc<ServerConfig>, configure: impl FnOnce(Otlp) -> Otlp) -> String {
    let log = log();
    let (address, pushes) = tls_collector(config);
    let otlp = configure(push_with_tls_to(address));
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(otlp).serve().unwrap();
    // When the second connection comes, the outcome of the first has been logged.
    for _ in 0..2 {
        assert!(pushes.recv_timeout(LONG).unwrap().is_err(), "metrics reached a collector that is not trusted");
    }
    drop(exporter);
    log.about(address).remove(0)
}

#[test]
fn a_collector_of_an_unknown_authority_gets_nothing() {
    let _watchdog = watchdog();
    let (authority, other) = (Authority::new("unknown"), Authority::new("other"));
    let reported = refused(authority.server("127.0.0.1"), |otlp| otlp.certificate(&other.file));
    assert!(reported.contains("TLS handshake failed") && reported.contains("UnknownIssuer"), "{reported}");
    assert!(reported.contains("name its certificate authority with Otlp::certificate"), "{reported}");
}

#[test]
fn a_certificate_for_another_host_is_refused() {
    let _watchdog = watchdog();
    let authority = Authority::new("host");
    let reported = refused(authority.server("collector.example"), |otlp| otlp.certificate(&authority.file));
    assert!(reported.contains("TLS handshake failed") && reported.contains("collector.example"), "{reported}");
}

#[test]
fn a_collector_without_tls_is_reported_with_the_remedy() {
    let _watchdog = watchdog();
    let log = log();
    let authority = Authority::new("plain");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let otlp = push_with_tls_to(address).certificate(&authority.file);
    let exporter = Exporter::builder().listen("127.0.0.1:0").otlp(otlp).serve().unwrap();
    for _ in 0..2 {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        let _closed = stream.read_to_end(&mut Vec::new());
    }
    drop(listener);
    drop(exporter);
    let reported = log.about(address).remove(0);
    assert!(reported.contains("check that the collector has TLS at this port"), "{reported}");
}
