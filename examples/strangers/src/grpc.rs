//! A gRPC server.

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::{Error, Server};
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::server::{HealthReporter, health_reporter};

/// The service that is reported as healthy from the beginning.
pub const SERVICE: &str = "billing";

/// Returns tonic's health service, and the reporter that sets the health of services.
pub async fn health() -> (HealthReporter, HealthServer<impl Health>) {
    let (reporter, service) = health_reporter();
    reporter.set_service_status(SERVICE, ServingStatus::Serving).await;
    (reporter, service)
}

/// Serves the health service.
pub async fn serve(listener: TcpListener, service: HealthServer<impl Health>) -> Result<(), Error> {
    Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)).await
}
