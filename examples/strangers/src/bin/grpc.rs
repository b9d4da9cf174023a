//! A gRPC server on Volt, with requests from tonic's client: `cargo run --release --bin grpc`.

use std::error::Error;

use strangers::grpc;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use volt::net::TcpListener;

fn main() -> Result<(), Box<dyn Error>> {
    // The client needs Tokio; the server does not.
    let runtime = volt::Builder::new_multi_thread().name("grpc").tokio_compat(true).build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (reporter, router) = grpc::router();
        volt::spawn(async move { volt::axum::serve(listener, router).await });
        reporter.set_service_status("billing", ServingStatus::Serving).await;

        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let request = HealthCheckRequest { service: "billing".into() };
        let answer = HealthClient::new(channel).check(request).await?.into_inner();
        println!("billing: {:?}", answer.status());
        Ok(())
    })
}
