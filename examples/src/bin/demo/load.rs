//! The load generator of the demo: connections over loopback, each of which sends a request, reads
//! the whole response, and sends the next.
//!
//! # Shape
//!
//! Each connection is a task with its own tally behind a lock, for which only the report contends.
//! Connections are kept alive. If a request fails, the next one uses a new connection.
//!
//! Invariants. *A request is counted once*, as answered or as an error, when it has completed. *No
//! request is cut off*: the stop is checked between two requests.
//!
//! This is a closed loop: a slow service gets fewer requests. That hides how long users would have
//! waited (coordinated omission), which is acceptable for a demo that must run anywhere, but not
//! for a benchmark.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use volt::Runtime;
use volt::hyper::VoltIo;
use volt::net::TcpStream;
use volt::task::JoinHandle;
use volt::time;
use volt_telemetry::Histogram;

use crate::stop::Stop;

/// The time after which a request counts as an error.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// The pause after an error, so that the loop does not spin while the service is down.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Time between two requests that block a worker: rare, and equally rare on fast and slow machines.
const BLOCK_INTERVAL: Duration = Duration::from_secs(1);

/// A handler of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    Fast,
    Fanout,
    Timer,
    Cpu,
    Block,
}

impl Handler {
    /// All handlers, in the order in which tallies are stored and reported.
    pub(crate) const ALL: [Handler; 5] = [Handler::Fast, Handler::Fanout, Handler::Timer, Handler::Cpu, Handler::Block];

    /// Returns the name in paths and metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Handler::Fast => "fast",
            Handler::Fanout => "fanout",
            Handler::Timer => "timer",
            Handler::Cpu => "cpu",
            Handler::Block => "block",
        }
    }

    /// Picks a handler at random; the ranges are percentages of the mix. Blocking requests are not
    /// included, because they are sent by the clock.
    fn pick(random: &mut Random) -> Self {
        match random.below(100) {
            0..60 => Handler::Fast,
            60..75 => Handler::Fanout,
            75..90 => Handler::Timer,
            _ => Handler::Cpu,
        }
    }

    fn path(self, random: &mut Random) -> String {
        match self {
            Handler::Timer => format!("/timer?ms={}", 5 + random.below(16)),
            other => format!("/{}", other.name()),
        }
    }
}

/// The settings of the load.
#[derive(Clone, Copy)]
pub(crate) struct Mix {
    pub(crate) connections: u32,
    /// Whether a worker is blocked now and then.
    pub(crate) with_blocking: bool,
}

/// The results of the requests, by handler in the order of [`Handler::ALL`].
#[derive(Clone, Default)]
pub(crate) struct Tally {
    by_handler: [Outcome; Handler::ALL.len()],
}

/// The results of the requests to one handler.
#[derive(Clone, Default)]
pub(crate) struct Outcome {
    /// Requests with the expected response.
    pub(crate) answered: u64,
    /// Requests that failed: no connection, a wrong status, or no response in time.
    pub(crate) errors: u64,
    /// The time from the request to the last byte of the response, for answered requests only.
    pub(crate) latency: Histogram,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: &Outcome) {
        self.answered += other.answered;
        self.errors += other.errors;
        self.latency.merge(&other.latency);
    }

    /// Returns the results after `earlier`.
    pub(crate) fn since(&self, earlier: &Outcome) -> Outcome {
        Outcome {
            answered: self.answered - earlier.answered,
            errors: self.errors - earlier.errors,
            latency: self.latency.since(&earlier.latency),
        }
    }
}

impl Tally {
    pub(crate) fn of(&self, handler: Handler) -> &Outcome {
        &self.by_handler[handler as usize]
    }

    /// Returns the sum over all handlers.
    pub(crate) fn whole(&self) -> Outcome {
        let mut whole = Outcome::default();
        self.by_handler.iter().for_each(|outcome| whole.add(outcome));
        whole
    }

    fn add(&mut self, other: &Tally) {
        self.by_handler.iter_mut().zip(&other.by_handler).for_each(|(sum, outcome)| sum.add(outcome));
    }

    pub(crate) fn record(&mut self, handler: Handler, latency: Option<Duration>) {
        let outcome = &mut self.by_handler[handler as usize];
        match latency {
            Some(latency) => {
                outcome.answered += 1;
                outcome.latency.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
            }
            None => outcome.errors += 1,
        }
    }
}

/// A running load.
pub(crate) struct Load {
    tallies: Vec<Arc<Mutex<Tally>>>,
    connections: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the load; it stops when `stop` is requested.
    pub(crate) fn start(runtime: &Runtime, service: SocketAddr, mix: Mix, stop: Arc<Stop>) -> Self {
        let tallies: Vec<_> = (0..mix.connections).map(|_| Arc::new(Mutex::new(Tally::default()))).collect();
        let connections = tallies.iter().zip(0_u64..).map(|(tally, index)| {
            // One connection also sends the blocking requests.
            let next_block = (mix.with_blocking && index == 0).then(|| Instant::now() + BLOCK_INTERVAL / 2);
            let client = Client {
                connection: Connection { service, sender: None },
                random: Random::new(index),
                next_block,
                tally: tally.clone(),
            };
            let requests = client.request_until(stop.clone());
            volt::task::Builder::new().name("load.client").spawn_on(requests, runtime.handle())
        });
        let connections = connections.collect();
        Self { tallies, connections }
    }

    /// Returns the results so far.
    pub(crate) fn tally(&self) -> Tally {
        let mut sum = Tally::default();
        self.tallies.iter().for_each(|tally| sum.add(&lock(tally)));
        sum
    }

    /// Waits until every connection has received its last response.
    ///
    /// # Errors
    ///
    /// Returns an error if a connection's task panicked, or if some connections have not finished
    /// after `limit` and the longest time of a request.
    pub(crate) fn finish(&mut self, runtime: &Runtime, limit: Duration) -> Result<(), String> {
        let connections = std::mem::take(&mut self.connections);
        let all = async {
            for connection in connections {
                connection.await.map_err(|error| format!("a connection's task failed: {error}"))?;
            }
            Ok(())
        };
        let limit = REQUEST_LIMIT + limit;
        let ended = runtime.block_on(async { time::timeout(limit, all).await });
        ended.unwrap_or_else(|_| Err(format!("connections were still busy {limit:?} after the stop")))
    }
}

fn lock(tally: &Mutex<Tally>) -> MutexGuard<'_, Tally> {
    tally.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The state of one connection's task.
struct Client {
    connection: Connection,
    random: Random,
    /// When the next blocking request is due; `None` for all connections except one.
    next_block: Option<Instant>,
    tally: Arc<Mutex<Tally>>,
}

impl Client {
    async fn request_until(mut self, stop: Arc<Stop>) {
        while !stop.is_requested() {
            let handler = self.choose();
            let path = handler.path(&mut self.random);
            let begun = Instant::now();
            let answered = match time::timeout(REQUEST_LIMIT, self.connection.get(&path)).await {
                Ok(answered) => answered,
                Err(_) => Err(format!("no answer within {REQUEST_LIMIT:?}").into()),
            };
            lock(&self.tally).record(handler, answered.is_ok().then(|| begun.elapsed()));
            if let Err(error) = answered {
                tracing::warn!(path, %error, "a request failed");
                // A late response on the old connection must not be taken for the next one.
                self.connection.sender = None;
                time::sleep(ERROR_PAUSE).await;
            }
        }
    }

    fn choose(&mut self) -> Handler {
        let now = Instant::now();
        match &mut self.next_block {
            Some(due) if *due <= now => {
                *due = now + BLOCK_INTERVAL;
                Handler::Block
            }
            _ => Handler::pick(&mut self.random),
        }
    }
}

/// A connection to the service, opened when it is first needed.
struct Connection {
    service: SocketAddr,
    sender: Option<SendRequest<Empty<Bytes>>>,
}

impl Connection {
    async fn get(&mut self, path: &str) -> Result<(), Box<dyn Error + Send + Sync>> {
        let request = Request::get(path).header(HOST, self.service.to_string()).body(Empty::new())?;
        let sender = match &mut self.sender {
            Some(sender) => sender,
            none => none.insert(open(self.service).await?),
        };
        sender.ready().await?;
        let response = sender.send_request(request).await?;
        let status = response.status();
        // The body is read to its end, so that the connection can be reused.
        response.into_body().collect().await?;
        match status {
            StatusCode::OK => Ok(()),
            other => Err(format!("the answer was {other}").into()),
        }
    }
}

async fn open(service: SocketAddr) -> Result<SendRequest<Empty<Bytes>>, Box<dyn Error + Send + Sync>> {
    let stream = TcpStream::connect(service).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = http1::handshake(VoltIo::new(stream)).await?;
    volt::task::Builder::new().name("load.connection").spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "a connection ended with an error");
        }
    });
    Ok(sender)
}

/// xorshift64: simple, and the same sequence in every run.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns a number below `bound`. The bias is negligible for small bounds.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_as_stated() {
        let mut random = Random::new(0);
        let mut counts = [0_u32; Handler::ALL.len()];
        (0..100_000).for_each(|_| counts[Handler::pick(&mut random) as usize] += 1);
        for (handler, expected) in Handler::ALL.into_iter().zip([60_000_u32, 15_000, 15_000, 10_000, 0]) {
            let count = counts[handler as usize];
            assert!(count.abs_diff(expected) < 1_000, "{handler:?}: {count}, not about {expected}");
        }
    }

    #[test]
    fn errors_are_counted_separately_and_not_timed() {
        let mut tally = Tally::default();
        tally.record(Handler::Cpu, Some(Duration::from_millis(1)));
        tally.record(Handler::Cpu, None);
        tally.record(Handler::Fast, Some(Duration::from_millis(3)));
        let cpu = tally.of(Handler::Cpu);
        assert_eq!((cpu.answered, cpu.errors, cpu.latency.count()), (1, 1, 1));
        let whole = tally.whole();
        assert_eq!((whole.answered, whole.errors, whole.latency.sum_ns()), (2, 1, 4_000_000));
        let since = whole.since(cpu);
        assert_eq!((since.answered, since.errors, since.latency.count()), (1, 0, 1));
    }

    #[test]
    fn only_a_connection_with_a_due_timer_sends_a_blocking_request() {
        let client = |next_block| Client {
            connection: Connection { service: SocketAddr::from(([127, 0, 0, 1], 1)), sender: None },
            random: Random::new(7),
            next_block,
            tally: Arc::default(),
        };
        let mut due = client(Some(Instant::now()));
        assert_eq!(due.choose(), Handler::Block);
        assert_ne!(due.choose(), Handler::Block, "the next one is a second away");
        assert_ne!(client(None).choose(), Handler::Block);
    }
}
