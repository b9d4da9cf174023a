//! A gRPC server. tonic's services are axum routers, and gRPC is HTTP/2, so `volt::axum::serve`
//! serves them (feature `http2`).
//!
//! Every request is a Volt task. tonic's own server requires Tokio, and is not needed.

use axum::Router;
use tonic::service::Routes;
use tonic_health::server::{HealthReporter, health_reporter};

/// Returns tonic's health service, and the reporter that sets the health of services.
pub fn router() -> (HealthReporter, Router) {
    let (reporter, service) = health_reporter();
    (reporter, Routes::new(service).into_axum_router())
}
