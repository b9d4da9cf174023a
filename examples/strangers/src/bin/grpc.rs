//! A gRPC server: `cargo run --release --bin grpc`.

use std::error::Error;

use strangers::grpc;
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let (_reporter, service) = grpc::health().await;
    Ok(grpc::serve(listener, service).await?)
}
