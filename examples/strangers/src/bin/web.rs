//! The same axum application on Volt or on Tokio: `cargo run --release --bin web -- --runtime tokio
//! --listen 127.0.0.1:8080`.

use std::io;
use std::net::SocketAddr;

use clap::{Parser, ValueEnum};
use strangers::web::router;

/// Serve an axum application on Volt or on Tokio
#[derive(Parser)]
struct Arguments {
    /// Runtime to use
    #[arg(long, value_enum, default_value = "volt")]
    runtime: Runtime,
    /// Number of worker threads
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Address to listen on, which is printed; port 0 chooses a free port
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

#[derive(Clone, Copy, ValueEnum)]
enum Runtime {
    Volt,
    Tokio,
}

fn main() -> io::Result<()> {
    tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(io::stderr).init();
    let Arguments { runtime, workers, listen } = Arguments::parse();
    let service = router().into_make_service_with_connect_info::<SocketAddr>();
    match runtime {
        Runtime::Volt => {
            let builder = volt::Builder::new_multi_thread().name("web").worker_threads(workers).tokio_compat(true);
            builder.build().map_err(io::Error::other)?.block_on(async {
                let listener = volt::net::TcpListener::bind(listen).await?;
                println!("{}", listener.local_addr()?);
                volt::axum::serve(listener, service).await
            })
        }
        Runtime::Tokio => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(workers).enable_all().build()?;
            runtime.block_on(async {
                use axum::serve::ListenerExt;
                let listener = tokio::net::TcpListener::bind(listen).await?;
                println!("{}", listener.local_addr()?);
                // `volt::axum::serve` sets this by default.
                let listener = listener.tap_io(|stream| _ = stream.set_nodelay(true));
                axum::serve(listener, service).await
            })
        }
    }
}
