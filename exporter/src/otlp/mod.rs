//! Pushes the metrics to an OpenTelemetry collector: OTLP over HTTP, as protobuf.
//!
//! # Shape
//!
//! `settings` has the destination and the interval, which `environment` reads from variables.
//! `place` is a URL, and `tls` authenticates the collector. `message` encodes programs as one
//! request, and `post` sends one request and reads the response. This module has the loop around
//! them, a task on the exporter's runtime.
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
//! 5. If the collector is busy and has named a time, the next push is at that time.
//!
//! # Protocol of an end
//!
//! 1. [`Push::end`] closes the channel `stop`. The task notices that instead of the next interval.
//!    A push that is under way is cancelled: its numbers are part of the last one.
//! 2. The task pushes for the last time, so that counts since the last interval are not lost.
//! 3. `Push::end` waits for the task, for at most [`LAST_PUSH_MAX`]. Then the runtime is shut down,
//!    which cancels the task.
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
//! collector accepts HTTP); to retry a failed push before the next interval unless the collector
//! names a time (counts are cumulative, so the next push has everything).
//!
//! Source: OpenTelemetry Protocol 1.x, "OTLP/HTTP"; Metrics Data Model, "Temporality".

#[cfg(feature = "otlp-tls")]
mod tls;

mod environment;
mod place;

pub(crate) mod settings;

mod message;
mod post;

use std::sync::Arc;
use std::time::Duration;

use volt::Runtime;
use volt::sync::{Mutex, oneshot};
use volt::task::JoinHandle;
use volt::time::{MissedTickBehavior, interval, timeout};

use crate::routes::{self, Scope};
use message::Messages;
use post::{Failure, post};
use settings::Target;

/// How long the end of an exporter waits for its last push. Shorter than the 10 s and 30 s after
/// which Docker and Kubernetes kill a program that they have terminated.
const LAST_PUSH_MAX: Duration = Duration::from_secs(5);
/// The shortest pause before a retry, unless the interval is shorter: a collector that requests a
/// retry immediately must not cause a busy loop.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest pause that a collector can request.
const RETRY_MAX: Duration = Duration::from_secs(60 * 60);

/// A collector that metrics are pushed to.
#[derive(Debug)]
pub(crate) struct Push {
    /// Nothing is sent.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Push {
    /// Starts to push, on the exporter's `runtime`.
    pub(crate) fn start(runtime: &Runtime, scope: Arc<Mutex<Scope>>, target: Target) -> Self {
        let (stop, stopped) = oneshot::channel();
        let task = volt::task::Builder::new().name("push").spawn_on(push(scope, target, stopped), runtime.handle());
        Self { stop, task }
    }

    /// Pushes for the last time, and waits until that has succeeded or failed, for at most
    /// [`LAST_PUSH_MAX`].
    pub(crate) fn end(self, runtime: &Runtime) {
        drop(self.stop);
        match runtime.block_on(async { timeout(LAST_PUSH_MAX, self.task).await }) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::error!(%error, "the task that pushes metrics failed; the collector lacks the last counts");
            }
            Err(_elapsed) => tracing::warn!(
                "the last push of metrics did not end within {LAST_PUSH_MAX:?}; the collector may lack the last counts"
            ),
        }
    }
}

async fn push(scope: Arc<Mutex<Scope>>, target: Target, mut stopped: oneshot::Receiver<()>) {
    let mut pushes = Pushes { messages: Messages::new(target.service_name.clone()), scope, target, failures: 0 };
    let period = pushes.target.interval;
    let mut times = interval(period);
    // The first push, too, is after the period, which may be too long to be added to an instant.
    times.reset();
    // After a push that took long, the next one must not follow immediately.
    times.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let next = async {
            times.tick().await;
            pushes.push(pushes.target.timeout).await
        };
        let retry_after = volt::select! {
            _ = &mut stopped => break,
            retry_after = next => retry_after,
        };
        if let Some(pause) = retry_after {
            times.reset_after(pause.clamp(RETRY_MIN.min(period), RETRY_MAX));
        }
    }
    pushes.push(LAST_PUSH_MAX.min(pushes.target.timeout)).await;
}

/// The successive pushes to one collector.
struct Pushes {
    messages: Messages,
    scope: Arc<Mutex<Scope>>,
    target: Target,
    /// Failures since the last success.
    failures: u64,
}

impl Pushes {
    /// Pushes once. Returns how long the collector wants no push, if it has named a time.
    async fn push(&mut self, limit: Duration) -> Option<Duration> {
        let messages = &mut self.messages;
        // Both take milliseconds. `with` hands the worker to another thread for that time.
        let message = routes::with(&self.scope, |scope| messages.encode(&scope.collect())).await;
        let collector = &self.target.place.authority;
        match post(&self.target, message, limit).await {
            Ok(()) => {
                let failures = std::mem::take(&mut self.failures);
                if failures > 0 {
                    tracing::info!(%collector, failures, "the collector accepts metrics again");
                }
                None
            }
            Err(Failure { text: error, retry_after }) => {
                if self.failures == 0 {
                    tracing::warn!(%collector, error, "cannot push metrics; retrying at each interval, without a message until a push succeeds");
                }
                self.failures += 1;
                retry_after
            }
        }
    }
}
