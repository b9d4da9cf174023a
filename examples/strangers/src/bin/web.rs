//! An axum application: `cargo run --release --bin web -- --listen 127.0.0.1:8080`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use axum::serve::ListenerExt;
use clap::Parser;
use strangers::stores;
use strangers::tls::Error;
use strangers::web::router;
use tokio::net::TcpListener;

/// Serve an axum application
#[derive(Parser)]
struct Arguments {
    /// Address to listen on, which is printed; port 0 chooses a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// SQLite database for the route /sqlite
    #[arg(long)]
    sqlite: Option<PathBuf>,
    /// PostgreSQL database for the route /postgres
    #[arg(long)]
    postgres: Option<String>,
    /// Redis server for the route /redis
    #[arg(long)]
    redis: Option<String>,
    /// URL for the route /fetch
    #[arg(long, requires = "certificate")]
    fetch: Option<String>,
    /// Certificate that /fetch trusts
    #[arg(long)]
    certificate: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(io::stderr).init();
    let arguments = Arguments::parse();
    let mut router = router();
    if let Some(file) = &arguments.sqlite {
        router = router.merge(stores::sqlite_router(file).await?);
    }
    if let Some(url) = &arguments.postgres {
        router = router.merge(stores::postgres_router(url).await?);
    }
    if let Some(url) = &arguments.redis {
        router = router.merge(stores::redis_router(url).await?);
    }
    if let (Some(url), Some(certificate)) = (arguments.fetch, &arguments.certificate) {
        router = router.merge(stores::fetch_router(url, certificate)?);
    }
    let listener = TcpListener::bind(arguments.listen).await?;
    println!("{}", listener.local_addr()?);
    let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
    Ok(axum::serve(listener, router.into_make_service_with_connect_info::<SocketAddr>()).await?)
}
