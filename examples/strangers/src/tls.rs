//! HTTPS: rustls on Volt's sockets, hyper on rustls. Nothing in here asks for Tokio's runtime: its
//! I/O traits are all that rustls' wrapper needs.

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

/// Time for the handshake, and for the head of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// A certificate for localhost that nobody has signed, and the acceptor that shows it.
pub fn self_signed() -> Result<(TlsAcceptor, CertificateDer<'static>), Box<dyn std::error::Error + Send + Sync>> {
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()])?;
    let key = PrivateKeyDer::try_from(signing_key.serialize_der())?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key)?;
    Ok((TlsAcceptor::from(Arc::new(config)), cert.der().clone()))
}

/// Serves `router` to whoever connects. The handshake is each connection's own task's: one that
/// dawdles holds nobody up.
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
