//! Programs and libraries that nobody here wrote, run on Volt: what the programs in `src/bin`
//! serve, and the tests ask.
//!
//! | program | with | needs `tokio-compat` |
//! |---|---|---|
//! | `web` | axum, tower-http's trace, timeout and compression, server-sent events, WebSocket, HTTP/2 | for timers and WebSocket, which ask Tokio |
//! | `tls` | rustls under hyper | no |
//! | `grpc` | tonic, its health service, over `volt::axum` | for its client |
//! | `clients` | reqwest, sqlx with SQLite, redis | yes |
//! | `proxy`, `echo` | nothing but Volt | no |

pub mod grpc;
pub mod proxy;
pub mod tls;
pub mod web;
