//! Third-party libraries that run on Volt. The programs in `src/bin` serve these applications, and
//! the tests send requests to them.
//!
//! | program | with | needs `tokio-compat` |
//! |---|---|---|
//! | `web` | axum, tower-http's trace, timeout and compression, server-sent events, WebSocket, HTTP/2 | for timers and WebSocket, which use Tokio |
//! | `tls` | rustls under hyper | no |
//! | `grpc` | tonic, its health service, over `volt::axum` | for its client |
//! | `clients` | reqwest, sqlx with SQLite, redis | yes |
//! | `proxy`, `echo` | only Volt | no |

pub mod grpc;
pub mod proxy;
pub mod tls;
pub mod web;
