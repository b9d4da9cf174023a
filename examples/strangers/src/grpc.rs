//! A gRPC server: tonic's services are axum routers, and gRPC is HTTP/2, so `volt::axum::serve`
//! serves them (feature `http2`).
//!
//! Every request is a task of Volt's. tonic's own server is bound to Tokio's, and is not needed.

use axum::Router;
use tonic::service::Routes;
use tonic_health::server::{HealthReporter, health_reporter};

/// tonic's health service, and what says how things stand.
pub fn router() -> (HealthReporter, Router) {
    let (reporter, service) = health_reporter();
    (reporter, Routes::new(service).into_axum_router())
}
