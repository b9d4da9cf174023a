//! HTTPS: rustls on Volt's sockets, and hyper on rustls. It does not need Tokio's runtime, because
//! rustls' wrapper uses only Tokio's I/O traits.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::service::TowerToHyperService;
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{self, ServerConfig};
use volt::hyper::{VoltIo, VoltTimer};
use volt::net::{TcpListener, TcpStream};
use volt::time::timeout;

/// Time limit for the handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Creates a self-signed certificate for localhost, and the acceptor that uses it.
pub fn self_signed() -> Result<(TlsAcceptor, CertificateDer<'static>), Box<dyn std::error::Error + Send + Sync>> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key)?;
    Ok((TlsAcceptor::from(Arc::new(config)), cert.der().clone()))
}

/// Serves `router` over TLS. The handshake runs in the task of its connection, so a slow client
/// does not delay others.
pub async fn serve(listener: TcpListener, acceptor: TlsAcceptor, router: Router) -> io::Result<()> {
    loop {
        let (stream, peer) = listener.accept().await?;
        let (acceptor, router) = (acceptor.clone(), router.clone());
        volt::task::Builder::new().name(&format!("https {peer}")).spawn(async move {
            if let Err(error) = serve_connection(stream, acceptor, router).await {
                tracing::debug!(%peer, %error, "connection ended");
            }
        });
    }
}

async fn serve_connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    router: Router,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let stream = timeout(PATIENCE, acceptor.accept(stream)).await??;
    let connection = http1::Builder::new()
        .timer(VoltTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(VoltIo::new(stream), TowerToHyperService::new(router));
    Ok(connection.with_upgrades().await?)
}
