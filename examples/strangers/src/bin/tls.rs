//! HTTPS on Volt with a self-signed certificate: `cargo run --release --bin tls`, then `curl
//! --insecure https://localhost:PORT/`.

use strangers::{tls, web};
use volt::net::TcpListener;

#[volt::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let (acceptor, _certificate) = tls::self_signed()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("https://localhost:{}", listener.local_addr()?.port());
    Ok(tls::serve(listener, acceptor, web::bare()).await?)
}
