//! The programs that are compared, their arguments, their clients, and the libraries whose tasks
//! the console must show.

use std::net::SocketAddr;
use std::path::Path;

use clap::ValueEnum;
use futures_util::future::try_join_all;
use strangers::load::Client;
use strangers::servers::{Postgres, Redis};
use strangers::tls::Error;

use crate::program::Program;

/// A program and what its clients request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub enum Case {
    /// axum, a response of five bytes
    Axum,
    /// axum behind tower-http's trace, timeout and compression, a response of JSON
    TowerHttp,
    /// Messages of a WebSocket of axum's
    WebSocket,
    /// rustls under hyper, requests of reqwest
    Tls,
    /// tonic's health service
    Tonic,
    /// axum, each request sends one over TLS with reqwest
    Reqwest,
    /// axum, each request reads from SQLite with sqlx
    Sqlite,
    /// axum, each request reads from PostgreSQL with sqlx
    Postgres,
    /// axum, each request reads from Redis
    Redis,
    /// mini-redis, which is not changed
    MiniRedis,
}

/// The servers that programs use, which are the same on both runtimes.
pub struct Backends {
    pub postgres: Postgres,
    pub redis: Redis,
    _https: Program,
    https_address: SocketAddr,
}

impl Backends {
    /// Starts the servers; that of reqwest's requests is from `programs`. Waits until PostgreSQL
    /// and Redis accept connections.
    pub async fn start(programs: &Path, scratch: &Path) -> Result<Self, Error> {
        let mut https = Program::start(programs, "https", &["--certificate", &path(scratch, "backend.pem")], &[])?;
        let https_address = https.printed_address()?;
        let backends = Backends { postgres: Postgres::start(), redis: Redis::start(), _https: https, https_address };
        backends.postgres.connect().await?.close().await;
        let _connection = backends.redis.connect().await?;
        Ok(backends)
    }
}

fn path(scratch: &Path, name: &str) -> String {
    scratch.join(name).display().to_string()
}

impl Case {
    /// Starts the program with these variables of the environment. Returns it and its address.
    pub async fn start(
        self,
        programs: &Path,
        scratch: &Path,
        backends: &Backends,
        environment: &[(&str, &str)],
    ) -> Result<(Program, SocketAddr), Error> {
        let start = |name, arguments: &[&str]| Program::start(programs, name, arguments, environment);
        let mut program = match self {
            Case::Axum | Case::TowerHttp | Case::WebSocket => start("web", &[]),
            Case::Tls => start("https", &["--certificate", &path(scratch, "server.pem")]),
            Case::Tonic => start("grpc", &[]),
            Case::Reqwest => {
                let url = format!("https://localhost:{}/", backends.https_address.port());
                start("web", &["--fetch", &url, "--certificate", &path(scratch, "backend.pem")])
            }
            Case::Sqlite => start("web", &["--sqlite", &path(scratch, "items.sqlite")]),
            Case::Postgres => start("web", &["--postgres", &backends.postgres.url()]),
            Case::Redis => start("web", &["--redis", &backends.redis.url()]),
            Case::MiniRedis => start("mini-redis-server", &["--port", "0"]),
        }?;
        let address = match self {
            // It does not print its address.
            Case::MiniRedis => program.listener(None).await?,
            _ => program.printed_address()?,
        };
        Ok((program, address))
    }

    /// Connects this number of clients.
    pub async fn clients(self, address: SocketAddr, scratch: &Path, count: usize) -> Result<Vec<Client>, Error> {
        try_join_all((0..count).map(|_| self.client(address, scratch))).await
    }

    async fn client(self, address: SocketAddr, scratch: &Path) -> Result<Client, Error> {
        match self {
            Case::Axum => Client::http(address, "/").await,
            Case::TowerHttp => Client::http(address, "/api/item").await,
            Case::WebSocket => Client::websocket(address, "/echo").await,
            Case::Tls => Client::https(address, "/", &std::fs::read_to_string(scratch.join("server.pem"))?),
            Case::Tonic => Client::grpc(address).await,
            Case::Reqwest => Client::http(address, "/fetch").await,
            Case::Sqlite => Client::http(address, "/sqlite").await,
            Case::Postgres => Client::http(address, "/postgres").await,
            Case::Redis => Client::http(address, "/redis").await,
            Case::MiniRedis => Client::redis(address).await,
        }
    }

    /// Returns parts of the spawn locations that the console must show while there are clients.
    pub fn spawn_locations(self) -> &'static [&'static str] {
        match self {
            Case::Axum | Case::TowerHttp => &["axum-"],
            Case::WebSocket => &["axum-", "/src/extract/ws.rs"],
            Case::Tls => &["src/tls.rs"],
            Case::Tonic => &["tonic-"],
            Case::Reqwest => &["axum-", "hyper-util-"],
            Case::Sqlite | Case::Postgres => &["axum-", "sqlx-"],
            Case::Redis => &["axum-", "redis-"],
            Case::MiniRedis => &["src/server.rs"],
        }
    }

    /// Returns parts of the calls that a dump must show while there are clients: calls of this
    /// package, and of the library that it awaits.
    pub fn calls(self) -> &'static [&'static str] {
        match self {
            Case::Axum | Case::TowerHttp => &["/src/bin/web.rs", "hyper::server::conn::http1"],
            Case::WebSocket => &["strangers::web::echo_all", "axum::extract::ws::"],
            Case::Tls => &["/src/tls.rs", "hyper::server::conn::http1"],
            Case::Tonic => &["strangers::grpc::serve", "tonic::transport::server::"],
            Case::Reqwest => &["strangers::stores::fetch_router", "reqwest::"],
            Case::Sqlite => &["strangers::stores::sqlite_router", "sqlx_"],
            Case::Postgres => &["strangers::stores::postgres_router", "sqlx_"],
            Case::Redis => &["strangers::stores::redis_router", "redis::"],
            Case::MiniRedis => &["mini_redis::server::", "mini_redis::connection::"],
        }
    }

    /// Returns the routes that the metrics must have for the requests of the clients.
    pub fn routes(self) -> &'static [&'static str] {
        match self {
            Case::Axum => &["GET /"],
            Case::TowerHttp => &["GET /api/item"],
            Case::WebSocket => &["GET /echo"],
            Case::Tls => &["GET /"],
            // tonic adds each service to an axum router as one route.
            Case::Tonic => &["POST /grpc.health.v1.Health/{*rest}"],
            Case::Reqwest => &["GET /fetch"],
            Case::Sqlite => &["GET /sqlite"],
            Case::Postgres => &["GET /postgres"],
            Case::Redis => &["GET /redis"],
            // It does not use HTTP.
            Case::MiniRedis => &[],
        }
    }
}

/// Returns the name of a case in a table and on the command line.
impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.to_possible_value().expect("no case is skipped").get_name())
    }
}
