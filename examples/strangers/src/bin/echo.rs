//! An echo server: `cargo run --release --bin echo`.

use std::io;

use strangers::proxy::{echo, raise_descriptor_limit};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> io::Result<()> {
    raise_descriptor_limit()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    echo(listener).await
}
