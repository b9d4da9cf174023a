//! Tokio programs with libraries that require Tokio's runtime. Nothing here refers to Volt: `cargo
//! build` builds the programs on Tokio, and `cargo volt build` on Volt.
//!
//! | program | with |
//! |---|---|
//! | `web` | axum, tower-http's trace, timeout and compression, server-sent events, WebSocket, HTTP/2; sqlx with SQLite and PostgreSQL, redis, and reqwest with TLS |
//! | `https` | rustls under hyper |
//! | `grpc` | tonic, its health service |
//! | `proxy`, `echo` | only Tokio's sockets |
//! | `compare` | clients of the others; measures them on Tokio and on Volt, and checks the console's output about them |
//!
//! The tests run on both runtimes.

pub mod tls;

pub mod stores;

pub mod grpc;
pub mod load;
pub mod proxy;
pub mod servers;
pub mod web;
