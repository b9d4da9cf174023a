//! HTTPS: rustls on Tokio's sockets, hyper on rustls, and reqwest as the client.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// Time limit for the handshake, and for the head of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The error of a library.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Creates a self-signed certificate for localhost. Returns the acceptor that uses it, and the
/// certificate as PEM.
pub fn self_signed() -> Result<(TlsAcceptor, String), Error> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der())?;
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions()?.with_no_client_auth();
    let config = config.with_single_cert(vec![cert.der().clone()], key)?;
    Ok((TlsAcceptor::from(Arc::new(config)), cert.pem()))
}

/// Makes ring the provider of cryptography in this program. reqwest needs one, also without TLS.
pub fn install_provider() {
    // Only the first call has an effect, and all pass the same provider.
    let _installed = ring::default_provider().install_default();
}

/// Returns a client that trusts only this certificate.
pub fn client(certificate: &str) -> Result<reqwest::Client, Error> {
    install_provider();
    let certificate = reqwest::Certificate::from_pem(certificate.as_bytes())?;
    Ok(reqwest::Client::builder().tls_certs_only([certificate]).build()?)
}

/// Serves `router` over TLS. The handshake runs in the task of its connection, so a slow client
/// does not delay others.
pub async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router) -> io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            if let Err(error) = serve_connection(stream, acceptor, router).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
}

async fn serve_connection(stream: TcpStream, acceptor: TlsAcceptor, router: Router) -> Result<(), Error> {
    let stream = timeout(TIMEOUT, acceptor.accept(stream)).await??;
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    Ok(connection.with_upgrades().await?)
}
