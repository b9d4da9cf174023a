//! Runs libraries that require Tokio in Volt tasks: `cargo run --release --bin clients -- --redis
//! redis://127.0.0.1/`.

use std::error::Error;

use clap::Parser;
use redis::AsyncTypedCommands;
use sqlx::sqlite::SqlitePoolOptions;
use strangers::web;
use volt::net::TcpListener;

/// Run reqwest, sqlx and redis on Volt
#[derive(Parser)]
struct Arguments {
    /// Redis server to use [default: skip redis]
    #[arg(long)]
    redis: Option<String>,
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let arguments = Arguments::parse();
    let runtime = volt::Builder::new_multi_thread().name("clients").tokio_compat(true).build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        volt::spawn(async move { volt::axum::serve(listener, web::bare()).await });
        let http = volt::spawn(async move { reqwest::get(format!("http://{address}/")).await?.text().await });
        println!("reqwest: {}", http.await??);

        let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
        let sum = volt::spawn(async move { sqlx::query_scalar::<_, i64>("SELECT 20 + 22").fetch_one(&pool).await });
        println!("sqlx:    {}", sum.await??);

        if let Some(url) = arguments.redis {
            let client = redis::Client::open(url)?;
            let answer = volt::spawn(async move {
                let mut connection = client.get_multiplexed_async_connection().await?;
                connection.set("volt:greeting", "hello").await?;
                connection.get("volt:greeting").await
            });
            println!("redis:   {}", answer.await??.unwrap_or_default());
        }
        Ok(())
    })
}
