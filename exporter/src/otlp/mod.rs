//! The same numbers pushed to a collector of OpenTelemetry's: OTLP over HTTP, as protobuf.
//!
//! Shape: `settings` (where to, how often), `message` (processes as one request), `post` (one
//! request and its answer), and here the loop around them, a task of the exporter's own runtime.
//!
//! Protocol of one push. (1) Wait until it is time. (2) Collect from the programs, as a page does.
//! (3) Make the request: what was counted since each runtime's start, so that a push that is lost
//! loses nothing but its moment. (4) Send it over a connection of its own, and wait for the answer,
//! [`Otlp::timeout`] at most.
//!
//! Invariants. *Bounded*: one request under way, nothing queued, an answer read up to a limit. *It
//! never stops the application*: the task is on the exporter's worker, and a collector that is down
//! costs one connection an interval. *Told once*: of a row of failures the log has the first, and
//! when it is over how many there were.
//!
//! Rejected: the instruments of opentelemetry_sdk (its histograms take single values and its data
//! has no public constructor, so counts that are ready-made cannot be handed to it; as for
//! `metrics::Histogram`, see [`page`](crate::page)); gRPC (tonic needs a Tokio runtime, and every
//! collector takes HTTP); TLS (a collector on the same machine or in the same pod is how
//! OpenTelemetry advises to do it).
//!
//! Source: OpenTelemetry Protocol 1.x, "OTLP/HTTP"; Metrics Data Model, "Temporality".

pub(crate) mod settings;

mod message;
mod post;

use std::sync::Arc;

use volt::sync::Mutex;
use volt::time::{Instant, MissedTickBehavior, interval_at};

use crate::routes::{self, Scope};
use message::Messages;
use settings::Target;

/// Pushes for as long as its runtime lives.
pub(crate) async fn push(scope: Arc<Mutex<Scope>>, target: Target) {
    let mut messages = Messages::new(target.service_name.clone());
    let mut times = interval_at(Instant::now() + target.interval, target.interval);
    // After one that took long, the next is not to come at once.
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0_u64;
    loop {
        times.tick().await;
        // Both take milliseconds, which is for how long the worker is handed on.
        let message = routes::with(&scope, |scope| messages.encode(&scope.collect())).await;
        match post::post(&target, message).await {
            Ok(()) if failures > 0 => {
                tracing::info!(collector = %target.authority, failures, "the collector accepts metrics again");
                failures = 0;
            }
            Ok(()) => {}
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(collector = %target.authority, error, "cannot push metrics; retrying at each interval, this message appears once");
                }
                failures += 1;
            }
        }
    }
}
