//! An echo server, under a client that is the same for all: one thread with epoll, each connection with one request under way.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::meter::{Meter, quantile};
use crate::runtimes::Peer;

/// A request, and its answer.
const MESSAGE: [u8; 64] = [7; 64];
const EVENTS: usize = 1024;
/// What is counted of a round, after a warm-up of a quarter of it.
const COUNTED: Duration = Duration::from_millis(400);
const QUICK_COUNTED: Duration = Duration::from_millis(120);

struct Connection {
    stream: TcpStream,
    asked_at: Instant,
    /// Bytes of the answer that have come.
    answered: usize,
}

impl Connection {
    fn ask(&mut self) -> io::Result<()> {
        self.asked_at = Instant::now();
        self.answered = 0;
        // One small message under way always fits the socket's buffer.
        self.stream.write_all(&MESSAGE)
    }

    /// Whether the whole answer is there.
    fn read(&mut self) -> io::Result<bool> {
        let mut buffer = [0; 2 * MESSAGE.len()];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.answered += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.answered == MESSAGE.len() {
                return Ok(true);
            }
        }
    }
}

struct Client {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
}

impl Client {
    fn connect(to: SocketAddr, count: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let connections = (0..count)
            .map(|index| {
                let stream = net::TcpStream::connect(to)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let mut stream = TcpStream::from_std(stream);
                poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
                Ok(Connection { stream, asked_at: Instant::now(), answered: 0 })
            })
            .collect::<io::Result<_>>()?;
        Ok(Self { poll, events: Events::with_capacity(EVENTS), connections })
    }

    /// Asks on every connection, again and again for `time`; the time each answer took, µs.
    fn run(&mut self, time: Duration) -> io::Result<Vec<f64>> {
        let began = Instant::now();
        let mut took_us = Vec::new();
        let mut asked = self.connections.len();
        self.connections.iter_mut().try_for_each(Connection::ask)?;
        while asked > 0 {
            self.poll.poll(&mut self.events, None)?;
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                if !connection.read()? {
                    continue;
                }
                took_us.push(connection.asked_at.elapsed().as_nanos() as f64 / 1e3);
                if began.elapsed() < time {
                    connection.ask()?;
                } else {
                    asked -= 1;
                }
            }
        }
        Ok(took_us)
    }
}

async fn serve<P: Peer>(listener: net::TcpListener, connections: usize) -> io::Result<()> {
    let listener = P::listener(listener)?;
    let mut tasks = Vec::with_capacity(connections);
    for _ in 0..connections {
        let mut stream = P::accept(&listener).await?;
        tasks.push(P::spawn(async move {
            let mut buffer = [0; 1024];
            loop {
                let count = P::read(&mut stream, &mut buffer).await?;
                if count == 0 {
                    return Ok(());
                }
                P::write_all(&mut stream, &buffer[..count]).await?;
            }
        }));
    }
    for task in tasks {
        P::join::<io::Result<()>>(task).await?;
    }
    Ok(())
}

fn echo<P: Peer>(meter: &Meter, connections: usize) -> io::Result<Vec<f64>> {
    let peer = P::start(meter.workers);
    let listener = net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let server = peer.spawn_from_outside(serve::<P>(listener, connections));
    let mut client = Client::connect(address, connections)?;
    let counted = if meter.is_quick { QUICK_COUNTED } else { COUNTED };
    client.run(counted / 4)?;
    let began = Instant::now();
    let mut took_us = client.run(counted)?;
    let cost_ns = began.elapsed().as_nanos() as f64 / took_us.len() as f64;
    drop(client);
    peer.block_on(P::join(server))?;
    Ok(vec![cost_ns, quantile(&mut took_us, 0.99)])
}

fn echo_or_panic<P: Peer>(meter: &Meter, connections: usize) -> Vec<f64> {
    echo::<P>(meter, connections).expect("the loopback works, and the limit of open files allows it")
}

/// One connection: the time that passes for a request.
pub(super) fn echo_1<P: Peer>(meter: &Meter) -> Vec<f64> {
    echo_or_panic::<P>(meter, 1)
}

/// 64 connections: the same divided by the requests of all.
pub(super) fn echo_64<P: Peer>(meter: &Meter) -> Vec<f64> {
    echo_or_panic::<P>(meter, 64)
}

/// 512 connections, and the time that the slowest hundredth of the answers took.
pub(super) fn echo_512<P: Peer>(meter: &Meter) -> Vec<f64> {
    echo_or_panic::<P>(meter, 512)
}
