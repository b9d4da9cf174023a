//! A simulated network: connections and datagrams in memory, with delays and faults that the seed
//! determines, and partitions that the test sets.
//!
//! A [`Net`] connects *hosts*, which are names. A host [listens](Net::listen), others
//! [connect](Net::connect) to it. The two ends of a connection are [`Stream`]s, which implement
//! [`AsyncRead`](crate::io::AsyncRead) and [`AsyncWrite`](crate::io::AsyncWrite). Code that is
//! generic over these traits runs unchanged on a [`TcpStream`](crate::net::TcpStream) in production
//! and on a `Stream` in a test.
//!
//! Like TCP, a connection delivers bytes in order and without loss, until it is reset. Each write
//! has its own random delay. So bytes of different connections, and of the two directions of one
//! connection, can overtake each other.
//!
//! A host can also [bind](Net::bind) a [`Socket`] for datagrams. These may be lost, duplicated, or
//! overtake each other, as with UDP.
//!
//! ```
//! use volt::io::{AsyncReadExt, AsyncWriteExt};
//! use volt::sim::net::Net;
//! use volt::time::Duration;
//!
//! volt::sim::check(0..20, || async {
//!     let net = Net::new().latency(Duration::from_millis(1)..=Duration::from_millis(50));
//!     let mut listener = net.listen("server").unwrap();
//!     volt::spawn(async move {
//!         let (mut stream, host) = listener.accept().await;
//!         stream.write_all(format!("hello, {host}").as_bytes()).await
//!     });
//!     let mut stream = net.connect("client", "server").await.unwrap();
//!     let mut text = String::new();
//!     stream.read_to_string(&mut text).await.unwrap();
//!     assert_eq!(text, "hello, client");
//! });
//! ```
//!
//! Delays and faults are drawn with [`random`](super::random), so connections and sockets must be
//! used inside a runtime with a [seed](crate::Builder::seed).

mod pipe;

mod mailbox;

mod socket;
mod stream;

pub use socket::Socket;
pub use stream::Stream;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use self::mailbox::Mailbox;
use self::pipe::{Connection, lock};
use crate::sync::{Notify, mpsc};
use crate::time::{Duration, sleep, timeout};

/// How long [`Net::connect`] waits for the end of a partition, on the simulated clock. Linux gives
/// up after about this time.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(127);
/// The most connections of a listener that wait to be accepted.
const BACKLOG: usize = 128;

/// A simulated network; see the [module documentation](self). Clones are handles to the same
/// network.
#[derive(Clone)]
pub struct Net {
    shared: Arc<Shared>,
}

struct Shared {
    settings: Mutex<Settings>,
    state: Mutex<State>,
    /// Notified at the end of a partition.
    healed: Notify,
}

#[derive(Clone)]
struct Settings {
    latency: RangeInclusive<Duration>,
    /// The probability of each fault.
    ratios: [f64; 3],
}

/// A fault that is drawn.
#[derive(Clone, Copy)]
enum Draw {
    Reset,
    Loss,
    Duplicate,
}

#[derive(Default)]
struct State {
    listeners: BTreeMap<String, mpsc::Sender<(Stream, String)>>,
    /// By host. Dropped ones are removed when another one is added.
    mailboxes: BTreeMap<String, Weak<Mailbox>>,
    /// Each pair in the order of the names.
    partitions: BTreeSet<(String, String)>,
    /// Those that were dropped are removed when another one is added.
    connections: Vec<Weak<Connection>>,
}

impl Net {
    /// Creates a network without delays and faults.
    #[allow(clippy::new_without_default, reason = "the settings follow")]
    pub fn new() -> Self {
        let settings = Mutex::new(Settings { latency: Duration::ZERO..=Duration::ZERO, ratios: [0.0; 3] });
        Self { shared: Arc::new(Shared { settings, state: Mutex::default(), healed: Notify::new() }) }
    }

    /// Sets the range of the time from a write until the other end can read its bytes, or from
    /// sending a datagram until it arrives. Each has a random delay in this range. The default is
    /// zero. Connecting takes one such delay, too.
    ///
    /// # Panics
    /// Panics if the range is empty.
    pub fn latency(self, latency: RangeInclusive<Duration>) -> Self {
        assert!(!latency.is_empty(), "the range of the latency is empty: {latency:?}");
        lock(&self.shared.settings).latency = latency;
        self
    }

    /// Sets the probability, 0 to 1, that a write resets its connection. Default 0.
    ///
    /// # Panics
    /// Panics if the number is not from 0 to 1.
    pub fn reset_ratio(self, reset_ratio: f64) -> Self {
        self.with_ratio(Draw::Reset, "reset_ratio", reset_ratio)
    }

    /// Sets the probability, 0 to 1, that a datagram is lost. Default 0.
    ///
    /// # Panics
    /// Panics if the number is not from 0 to 1.
    pub fn loss_ratio(self, loss_ratio: f64) -> Self {
        self.with_ratio(Draw::Loss, "loss_ratio", loss_ratio)
    }

    /// Sets the probability, 0 to 1, that a datagram arrives twice. Default 0.
    ///
    /// # Panics
    /// Panics if the number is not from 0 to 1.
    pub fn duplicate_ratio(self, duplicate_ratio: f64) -> Self {
        self.with_ratio(Draw::Duplicate, "duplicate_ratio", duplicate_ratio)
    }

    fn with_ratio(self, draw: Draw, name: &str, ratio: f64) -> Self {
        assert!((0.0..=1.0).contains(&ratio), "{name} is {ratio}: give 0 to 1");
        lock(&self.shared.settings).ratios[draw as usize] = ratio;
        self
    }

    /// Accepts connections to `host`, until the listener is dropped.
    ///
    /// # Errors
    /// Returns an error of kind [`AddrInUse`](io::ErrorKind::AddrInUse) if the host has a listener
    /// already.
    pub fn listen(&self, host: &str) -> io::Result<Listener> {
        let mut state = self.shared.state();
        if state.listeners.get(host).is_some_and(|listener| !listener.is_closed()) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{host} has a listener")));
        }
        let (sender, arrivals) = mpsc::channel(BACKLOG);
        state.listeners.insert(host.to_owned(), sender);
        Ok(Listener { arrivals })
    }

    /// Binds a socket for datagrams to `host`, until the socket is dropped. A host may have a
    /// listener and a socket.
    ///
    /// ```
    /// use volt::sim::net::Net;
    ///
    /// volt::sim::check(0..20, || async {
    ///     let net = Net::new().loss_ratio(0.2);
    ///     let (client, server) = (net.bind("client").unwrap(), net.bind("server").unwrap());
    ///     client.send_to(b"hello", "server").await.unwrap();
    ///     let mut buf = [0; 64];
    ///     let received = server.recv_from(&mut buf);
    ///     match volt::time::timeout(volt::time::Duration::from_secs(1), received).await {
    ///         Ok(datagram) => assert_eq!(datagram.unwrap(), (5, "client".to_owned())),
    ///         Err(_lost) => {}
    ///     }
    /// });
    /// ```
    ///
    /// # Errors
    /// Returns an error of kind [`AddrInUse`](io::ErrorKind::AddrInUse) if the host has a socket
    /// already.
    pub fn bind(&self, host: &str) -> io::Result<Socket> {
        let mut state = self.shared.state();
        if state.mailboxes.get(host).is_some_and(|mailbox| mailbox.strong_count() > 0) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{host} has a socket")));
        }
        state.mailboxes.retain(|_, mailbox| mailbox.strong_count() > 0);
        let socket = Socket::new(self.shared.clone(), host);
        state.mailboxes.insert(host.to_owned(), Arc::downgrade(socket.mailbox()));
        Ok(socket)
    }

    /// Connects the host `from` to the listener of the host `to`.
    ///
    /// # Errors
    /// Returns an error of kind [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) if `to` has
    /// no listener, or 128 connections wait there; and of kind
    /// [`TimedOut`](io::ErrorKind::TimedOut) if the two hosts are partitioned for 127 s.
    ///
    /// # Panics
    /// Panics if the future is polled outside the context of a runtime. If the
    /// [latency](Self::latency) varies, the runtime must have a [seed](crate::Builder::seed).
    ///
    /// # Cancel safety
    /// This method is cancel safe. If the future is dropped before it completes, the listener
    /// receives no connection.
    pub async fn connect(&self, from: &str, to: &str) -> io::Result<Stream> {
        let shared = &self.shared;
        loop {
            if timeout(CONNECT_TIMEOUT, shared.healed(from, to)).await.is_err() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{from} cannot reach {to}")));
            }
            sleep(shared.draw_latency()).await;
            // A partition that has begun meanwhile holds the request back, as it does bytes.
            if !shared.are_partitioned(from, to) {
                break;
            }
        }
        let refused = || io::Error::new(io::ErrorKind::ConnectionRefused, format!("{to} does not accept connections"));
        let listener = shared.state().listeners.get(to).cloned().ok_or_else(refused)?;
        let connection = Arc::new(Connection::new([from, to]));
        let [here, there] = [0, 1].map(|end| Stream::new(shared.clone(), connection.clone(), end));
        listener.try_send((there, from.to_owned())).map_err(|_| refused())?;
        let mut state = shared.state();
        state.connections.retain(|connection| connection.strong_count() > 0);
        state.connections.push(Arc::downgrade(&connection));
        Ok(here)
    }

    /// Cuts the network between two hosts, until [`heal`](Self::heal).
    ///
    /// Bytes in flight, and bytes that are written during the partition, arrive after its end. The
    /// same holds for requests to connect, and for the news that the other end of a connection was
    /// dropped. A connection survives a partition of any length. Datagrams that are sent during the
    /// partition are lost.
    pub fn partition(&self, one: &str, other: &str) {
        self.shared.state().partitions.insert(pair(one, other));
    }

    /// Ends a [partition](Self::partition). The delayed bytes arrive after another
    /// [delay](Self::latency).
    pub fn heal(&self, one: &str, other: &str) {
        if self.shared.state().partitions.remove(&pair(one, other)) {
            self.shared.healed.notify_waiters();
            for connection in self.shared.connections_between(one, other) {
                connection.delay_held(|| self.shared.draw_latency());
            }
        }
    }

    /// Resets all connections between two hosts. Both ends fail with
    /// [`ConnectionReset`](io::ErrorKind::ConnectionReset), and bytes that were not read are lost.
    pub fn reset(&self, one: &str, other: &str) {
        self.shared.connections_between(one, other).iter().for_each(|connection| connection.reset());
    }
}

impl fmt::Debug for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Net").field("partitions", &self.shared.state().partitions).finish_non_exhaustive()
    }
}

/// Accepts the connections to a host. Created by [`Net::listen`].
#[derive(Debug)]
pub struct Listener {
    arrivals: mpsc::Receiver<(Stream, String)>,
}

impl Listener {
    /// Waits for a connection, and returns it with the name of the host that has connected.
    ///
    /// # Cancel safety
    /// This method is cancel safe: no connection is lost.
    pub async fn accept(&mut self) -> (Stream, String) {
        match self.arrivals.recv().await {
            Some(arrival) => arrival,
            // The network and all its handles were dropped, so no connection can arrive.
            None => std::future::pending().await,
        }
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn draw_latency(&self) -> Duration {
        let latency = lock(&self.settings).latency.clone();
        let span_ns = u64::try_from((*latency.end() - *latency.start()).as_nanos()).unwrap_or(u64::MAX);
        if span_ns == 0 {
            return *latency.start();
        }
        *latency.start() + Duration::from_nanos(super::below(span_ns.saturating_add(1)))
    }

    fn draws(&self, draw: Draw) -> bool {
        let ratio = lock(&self.settings).ratios[draw as usize];
        // 53 bits, the precision of the fraction.
        ratio > 0.0 && (super::random() >> 11) as f64 / ((1_u64 << 53) as f64) < ratio
    }

    fn are_partitioned(&self, one: &str, other: &str) -> bool {
        self.state().partitions.contains(&pair(one, other))
    }

    /// Waits until two hosts are not partitioned.
    async fn healed(&self, one: &str, other: &str) {
        loop {
            let healed = self.healed.notified();
            if !self.are_partitioned(one, other) {
                return;
            }
            healed.await;
        }
    }

    fn mailbox_of(&self, host: &str) -> Option<Arc<Mailbox>> {
        self.state().mailboxes.get(host)?.upgrade()
    }

    fn connections_between(&self, one: &str, other: &str) -> Vec<Arc<Connection>> {
        let connections: Vec<_> = self.state().connections.iter().filter_map(Weak::upgrade).collect();
        connections.into_iter().filter(|connection| connection.is_between(one, other)).collect()
    }
}

/// Returns two names in their order.
fn pair(one: &str, other: &str) -> (String, String) {
    let (first, second) = if one <= other { (one, other) } else { (other, one) };
    (first.to_owned(), second.to_owned())
}
