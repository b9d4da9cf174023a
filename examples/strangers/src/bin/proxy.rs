//! A TCP proxy: `cargo run --release --bin proxy -- --listen 127.0.0.1:8000 --to 127.0.0.1:80`.

use std::io;
use std::net::SocketAddr;

use clap::Parser;
use strangers::proxy::{proxy, raise_descriptor_limit};
use tokio::net::TcpListener;

/// Forward TCP connections
#[derive(Parser)]
struct Arguments {
    /// Address to listen on, which is printed; port 0 chooses a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Address to forward connections to
    #[arg(long)]
    to: SocketAddr,
}

#[tokio::main]
async fn main() -> io::Result<()> {
    let Arguments { listen, to } = Arguments::parse();
    raise_descriptor_limit()?;
    let listener = TcpListener::bind(listen).await?;
    println!("{}", listener.local_addr()?);
    proxy(listener, to).await
}
