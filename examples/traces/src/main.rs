//! Sends the spans of tasks to an OpenTelemetry collector, with `tracing-opentelemetry`.
//!
//! Each task with a name has a span `volt.task`. With `inherit_spans`, it is a child of the span in
//! which the task was spawned. So a collector shows in which request a task ran, how long it lived,
//! and which line spawned it.
//!
//! ```text
//! OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 cargo run
//! ```

use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::Instrument;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Reads the variables OTEL_EXPORTER_OTLP_*. A thread of the exporter sends batches of spans.
    let exporter = SpanExporter::builder().with_http().build()?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name("traces").build())
        .build();
    // Only these targets: the HTTP client of the exporter has spans, too, which would be sent.
    let targets =
        Targets::new().with_target("traces", tracing::Level::INFO).with_target("volt::task", tracing::Level::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("volt"));
    tracing_subscriber::registry().with(layer.with_filter(targets)).init();

    let runtime = volt::Builder::new_multi_thread().name("traces").inherit_spans(true).build()?;
    runtime.block_on(async {
        for order in 1..=3 {
            serve(order).instrument(tracing::info_span!("order", order)).await;
        }
    });
    // All tasks have completed, and so have their spans.
    drop(runtime);
    // Sends the spans that are left.
    provider.shutdown()?;
    Ok(())
}

/// Serves an order with two tasks that run concurrently.
async fn serve(order: u32) {
    let price = volt::task::Builder::new().name("price").spawn(async move {
        let lookup = tracing::info_span!("lookup", order);
        volt::time::sleep(Duration::from_millis(5)).instrument(lookup).await;
    });
    let stock = volt::task::Builder::new().name("stock").spawn(volt::time::sleep(Duration::from_millis(10)));
    price.await.expect("the task neither panics nor is cancelled");
    stock.await.expect("the task neither panics nor is cancelled");
}
