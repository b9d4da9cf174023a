//! Routes whose handlers use clients: sqlx with SQLite and with PostgreSQL, redis, and reqwest.

use std::path::Path;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use redis::AsyncTypedCommands;
use redis::aio::MultiplexedConnection;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{PgPool, SqlitePool};

use crate::tls::{self, Error};

/// The number of items in each database, which are `item 0`, `item 1` and so on.
pub const ITEMS: i64 = 200;
/// The time limit for a lock of SQLite's.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The number of connections to each database.
const CONNECTIONS: u32 = 8;

/// Opens a SQLite database, which is created if it does not exist.
pub async fn sqlite(file: &Path) -> Result<SqlitePool, Error> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let options = options.busy_timeout(TIMEOUT).journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS).connect_with(options).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS item (id INTEGER PRIMARY KEY, name TEXT NOT NULL)").execute(&pool).await?;
    Ok(pool)
}

/// Connects to a PostgreSQL server.
pub async fn postgres(url: &str) -> Result<PgPool, Error> {
    let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS item (id BIGINT PRIMARY KEY, name TEXT NOT NULL)").execute(&pool).await?;
    Ok(pool)
}

/// Returns the route `/sqlite`, which reads an item from the database.
pub async fn sqlite_router(file: &Path) -> Result<Router, Error> {
    let pool = sqlite(file).await?;
    for id in 0..ITEMS {
        let insert = sqlx::query("INSERT OR IGNORE INTO item VALUES (?, ?)").bind(id).bind(format!("item {id}"));
        insert.execute(&pool).await?;
    }
    Ok(Router::new().route(
        "/sqlite",
        get(async move || answer(sqlx::query_scalar("SELECT name FROM item WHERE id = 7").fetch_one(&pool).await)),
    ))
}

/// Returns the route `/postgres`, which reads an item from the database.
pub async fn postgres_router(url: &str) -> Result<Router, Error> {
    let pool = postgres(url).await?;
    for id in 0..ITEMS {
        let insert = sqlx::query("INSERT INTO item VALUES ($1, $2) ON CONFLICT DO NOTHING");
        insert.bind(id).bind(format!("item {id}")).execute(&pool).await?;
    }
    Ok(Router::new().route(
        "/postgres",
        get(async move || answer(sqlx::query_scalar("SELECT name FROM item WHERE id = 7").fetch_one(&pool).await)),
    ))
}

/// Returns the route `/redis`, which reads a key. All requests share a connection.
pub async fn redis_router(url: &str) -> Result<Router, Error> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    connection.set("item", "item 7").await?;
    let read = async |mut connection: MultiplexedConnection| connection.get("item").await;
    Ok(Router::new().route("/redis", get(async move || answer(read(connection).await.map(Option::unwrap_or_default)))))
}

/// Returns the route `/fetch`, which sends a request to another server over TLS.
pub fn fetch_router(url: String, certificate: &Path) -> Result<Router, Error> {
    let client = tls::client(&std::fs::read_to_string(certificate)?)?;
    let fetch = async |client: reqwest::Client, url: String| client.get(url).send().await?.text().await;
    Ok(Router::new().route("/fetch", get(async move || answer(fetch(client, url).await))))
}

/// Returns the text, or the error with the code 500.
fn answer<E: std::fmt::Display>(result: Result<String, E>) -> Result<String, (StatusCode, String)> {
    result.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}
