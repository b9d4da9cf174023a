//! The service of the demo: one handler for each way in which a task can keep a runtime busy.
//!
//! | path | what it does |
//! |---|---|
//! | `/fast` | responds immediately |
//! | `/fanout?parts=8` | spawns that many tasks of some 20 µs each and joins them |
//! | `/timer?ms=10` | sleeps without blocking its worker |
//! | `/cpu?us=200` | computes |
//! | `/block?ms=20` | blocks its worker: the thread sleeps |

use std::future::Future;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use serde::Deserialize;
use volt::net::TcpListener;
use volt::task::JoinHandle;
use volt::{Runtime, time};

use crate::stop::Stop;

/// The largest number of parts, milliseconds or microseconds in a request.
const AMOUNT_MAX: u32 = 1_000;
/// The computing time of one part of a fan-out.
const PART_WORK: Duration = Duration::from_micros(20);

/// The running service.
pub(crate) struct Service {
    address: SocketAddr,
    /// Separate from the load's: the service must run until the load has received its last
    /// response.
    stop: Arc<Stop>,
    server: JoinHandle<io::Result<()>>,
}

impl Service {
    /// Listens on `address` and serves until [`finish`](Self::finish).
    ///
    /// # Errors
    ///
    /// Returns an error if the address cannot be listened on.
    pub(crate) fn start(runtime: &Runtime, address: SocketAddr) -> io::Result<Self> {
        let listener = runtime.block_on(TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let router = router(Pace::measure());
        let stop = Arc::new(Stop::default());
        let ending = stop.clone();
        let serving = async move {
            volt::axum::serve(listener, router).with_graceful_shutdown(async move { ending.requested().await }).await
        };
        let server = volt::task::Builder::new().name("service.accept").spawn_on(serving, runtime.handle());
        Ok(Self { address, stop, server })
    }

    /// Returns the address that it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops listening, and waits at most `limit` until the connections are closed. The remaining
    /// ones are dropped with the runtime.
    pub(crate) fn finish(self, runtime: &Runtime, limit: Duration) {
        self.stop.request();
        match runtime.block_on(async { time::timeout(limit, self.server).await }) {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::error!(%error, "the service ended with an error"),
            Ok(Err(error)) => tracing::error!(%error, "the service's task did not end by itself"),
            Err(_) => tracing::warn!(?limit, "connections were still open"),
        }
    }
}

fn router(pace: Pace) -> Router {
    metrics::describe_counter!("demo_requests_total", "Requests answered by the demo's service, by handler.");
    metrics::describe_histogram!(
        "demo_request_seconds",
        metrics::Unit::Seconds,
        "Time from a request's arrival in its handler to the answer, by handler."
    );
    Router::new()
        .route("/", get(async || "/fast  /fanout?parts=8  /timer?ms=10  /cpu?us=200  /block?ms=20\n"))
        .route("/fast", get(async || counted("fast", async { "fast\n".to_owned() }).await))
        .route("/fanout", get(async |query, pace| counted("fanout", fanout(query, pace)).await))
        .route("/timer", get(async |query| counted("timer", timer(query)).await))
        .route("/cpu", get(async |query, pace| counted("cpu", cpu(query, pace)).await))
        .route("/block", get(async |query| counted("block", block(query)).await))
        .with_state(pace)
}

/// Counts and times the responses of `handler`.
async fn counted<T>(handler: &'static str, answer: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let answer = answer.await;
    metrics::counter!("demo_requests_total", "handler" => handler).increment(1);
    metrics::histogram!("demo_request_seconds", "handler" => handler).record(begun.elapsed());
    answer
}

type Answer = Result<String, (StatusCode, String)>;

/// The query parameters of a request.
#[derive(Deserialize)]
struct Amounts {
    parts: Option<u32>,
    ms: Option<u32>,
    us: Option<u32>,
}

/// Returns the requested number, or `default`.
fn within_limit(number: Option<u32>, default: u32) -> Result<u32, (StatusCode, String)> {
    match number.unwrap_or(default) {
        number if number <= AMOUNT_MAX => Ok(number),
        number => Err((StatusCode::BAD_REQUEST, format!("{number} is more than {AMOUNT_MAX}\n"))),
    }
}

async fn fanout(Query(amounts): Query<Amounts>, State(pace): State<Pace>) -> Answer {
    let parts = within_limit(amounts.parts, 8)?;
    let tasks: Vec<_> = (0..u64::from(parts))
        .map(|part| volt::task::Builder::new().name("fanout.part").spawn(async move { pace.compute(PART_WORK, part) }))
        .collect();
    let mut sum = 0_u64;
    for task in tasks {
        let part = task.await.map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")))?;
        sum = sum.wrapping_add(part);
    }
    Ok(format!("{sum:016x}\n"))
}

async fn timer(Query(amounts): Query<Amounts>) -> Answer {
    let ms = within_limit(amounts.ms, 10)?;
    time::sleep(Duration::from_millis(ms.into())).await;
    Ok(format!("slept {ms} ms\n"))
}

async fn cpu(Query(amounts): Query<Amounts>, State(pace): State<Pace>) -> Answer {
    let us = within_limit(amounts.us, 200)?;
    Ok(format!("{:016x}\n", pace.compute(Duration::from_micros(us.into()), u64::from(us))))
}

async fn block(Query(amounts): Query<Amounts>) -> Answer {
    let ms = within_limit(amounts.ms, 20)?;
    tracing::warn!(ms, "this handler blocks its worker's thread");
    std::thread::sleep(Duration::from_millis(ms.into()));
    Ok(format!("blocked a worker for {ms} ms\n"))
}

/// The speed of this machine, so that 200 µs of work take about that long on any machine.
#[derive(Clone, Copy)]
struct Pace {
    rounds_per_ms: u64,
}

impl Pace {
    /// Measures the speed: the best of a few attempts, because the others were disturbed.
    fn measure() -> Self {
        const ROUNDS: u64 = 100_000;
        let fastest = (0..5).map(|seed| {
            let begun = Instant::now();
            black_box(mix(black_box(seed), ROUNDS));
            begun.elapsed()
        });
        let fastest_ns = fastest.min().map_or(1, |time| time.as_nanos().max(1));
        Self { rounds_per_ms: u64::try_from(u128::from(ROUNDS) * 1_000_000 / fastest_ns).unwrap_or(ROUNDS).max(1) }
    }

    /// Computes for about `time` on an undisturbed processor.
    fn compute(self, time: Duration, seed: u64) -> u64 {
        let rounds = u128::from(self.rounds_per_ms) * time.as_nanos() / 1_000_000;
        mix(seed, u64::try_from(rounds).unwrap_or(u64::MAX))
    }
}

/// Computes rounds of splitmix64, each of which depends on the previous one.
fn mix(seed: u64, rounds: u64) -> u64 {
    (0..rounds).fold(seed, |state, _| {
        let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_the_limit_is_a_bad_request() {
        assert_eq!(within_limit(Some(AMOUNT_MAX), 1), Ok(AMOUNT_MAX));
        assert_eq!(within_limit(None, 8), Ok(8));
        assert_eq!(within_limit(Some(AMOUNT_MAX + 1), 1).unwrap_err().0, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn computing_twice_as_long_does_twice_the_work() {
        let pace = Pace { rounds_per_ms: 4_000 };
        assert_eq!(pace.compute(Duration::from_micros(500), 7), mix(7, 2_000));
        assert_eq!(pace.compute(Duration::from_millis(1), 7), mix(mix(7, 2_000), 2_000));
    }
}
