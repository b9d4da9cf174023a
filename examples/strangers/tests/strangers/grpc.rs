//! Tests of tonic on both ends.

use std::time::Duration;

use crate::within::{listen, on_runtimes};
use futures_util::future::join_all;
use strangers::grpc::{self, SERVICE};
use tonic::Code;
use tonic::transport::Endpoint;
use tonic_health::ServingStatus;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus as Status;
use tonic_health::pb::health_client::HealthClient;

const LIMIT: Duration = Duration::from_secs(120);

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest { service: service.to_owned() }
}

#[test]
fn calls_streams_and_errors_go_through() {
    on_runtimes(LIMIT, async || {
        let (listener, address) = listen().await?;
        let (reporter, service) = grpc::health().await;
        tokio::spawn(grpc::serve(listener, service));
        let client = HealthClient::new(Endpoint::from_shared(format!("http://{address}"))?.connect().await?);

        // One call that the service rejects, then one that succeeds.
        assert_eq!(client.clone().check(about("unknown")).await.unwrap_err().code(), Code::NotFound);
        assert_eq!(client.clone().check(about(SERVICE)).await?.into_inner().status(), Status::Serving);

        // A stream from the server, which sends each change.
        let mut statuses = client.clone().watch(about(SERVICE)).await?.into_inner();
        assert_eq!(statuses.message().await?.ok_or("ended")?.status(), Status::Serving);
        reporter.set_service_status(SERVICE, ServingStatus::NotServing).await;
        assert_eq!(statuses.message().await?.ok_or("ended")?.status(), Status::NotServing);

        // Many calls at the same time on one connection.
        let answers = join_all((0..200).map(async |_| client.clone().check(about(SERVICE)).await)).await;
        assert!(
            answers
                .into_iter()
                .all(|answer| answer.is_ok_and(|answer| answer.into_inner().status() == Status::NotServing))
        );
        Ok(())
    });
}
