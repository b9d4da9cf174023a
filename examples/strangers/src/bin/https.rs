//! HTTPS with a self-signed certificate: `cargo run --release --bin https -- --certificate
//! certificate.pem`, then `curl --cacert certificate.pem https://localhost:PORT/`.

use std::path::PathBuf;

use clap::Parser;
use strangers::{tls, web};
use tokio::net::TcpListener;

/// Serve an axum application over TLS
#[derive(Parser)]
struct Arguments {
    /// File to write the certificate to
    #[arg(long)]
    certificate: PathBuf,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (acceptor, certificate) = tls::self_signed()?;
    std::fs::write(Arguments::parse().certificate, certificate)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(tls::serve(listener, acceptor, web::router()).await?)
}
