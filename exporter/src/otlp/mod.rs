//! Pushes the metrics to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! # Shape
//!
//! `settings` has the destination and the interval, `message` encodes programs as one request, and
//! `post` sends one request and reads the response. This module has the loop around them, a task on
//! the exporter's runtime.
//!
//! An ordinary case: the collector is down at one push. The failure is logged, and the counts of
//! that interval are part of the next push, which succeeds.
//!
//! The race: a client requests a page during a collection for a push. Both use the same `Scope`,
//! and the page waits for its lock.
//!
//! # Protocol of one push
//!
//! 1. Wait until the interval has passed.
//! 2. Collect from the programs, as a page does.
//! 3. Encode the request. It has everything that was counted since each runtime started, so a lost
//!    push loses only one point in time, and no counts.
//! 4. Send it over a new connection, and wait for the response, for at most [`Otlp::timeout`].
//!
//! # Invariants
//!
//! *Bounded*: at most one request is under way, none are queued, and the response is read up to a
//! limit. *Never blocks the application*: the task runs on the exporter's worker, and a collector
//! that is down costs one connection per interval. *Logged once*: of a series of failures only the
//! first is logged, and when pushes succeed again, the log has the number of failures.
//!
//! Rejected: the instruments of opentelemetry_sdk (its histograms accept only single values, and
//! its data types have no public constructors, so existing counts cannot be passed to it; for
//! `metrics::Histogram` see [`page`](crate::page)); gRPC (tonic needs a Tokio runtime, and every
//! collector accepts HTTP); TLS (OpenTelemetry recommends a collector on the same machine or in the
//! same pod).
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

/// Pushes for as long as its runtime exists.
pub(crate) async fn push(scope: Arc<Mutex<Scope>>, target: Target) {
    let mut messages = Messages::new(target.service_name.clone());
    let mut times = interval_at(Instant::now() + target.interval, target.interval);
    // After a push that took long, the next one must not follow immediately.
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut failures = 0_u64;
    loop {
        times.tick().await;
        // Both take milliseconds. `with` hands the worker to another thread for that time.
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
