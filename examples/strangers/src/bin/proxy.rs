//! A TCP proxy: `cargo run --release --bin proxy -- --listen 127.0.0.1:8000 --to 127.0.0.1:80`.

use std::io;
use std::net::SocketAddr;

use clap::Parser;
use strangers::proxy::{proxy, raise_descriptor_limit};
use volt::net::TcpListener;

/// Passes TCP connections on.
#[derive(Parser)]
struct Arguments {
    /// Where it listens; port 0 = any that is free. The address is printed.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where connections go.
    #[arg(long)]
    to: SocketAddr,
}

#[volt::main]
async fn main() -> io::Result<()> {
    let Arguments { listen, to } = Arguments::parse();
    raise_descriptor_limit()?;
    let listener = TcpListener::bind(listen).await?;
    println!("{}", listener.local_addr()?);
    proxy(listener, to).await
}
