//! The client of servers with many connections, the same for all runtimes: one thread with epoll,
//! and one request under way per connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{self, SocketAddr};
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

const EVENTS: usize = 1024;
/// More than the size of any answer.
const BUFFER_BYTES: usize = 1024;

struct Connection {
    stream: TcpStream,
    sent_at: Instant,
    /// Bytes of the answer received so far.
    answered: usize,
}

impl Connection {
    fn send_request(&mut self, request: &[u8]) -> io::Result<()> {
        self.sent_at = Instant::now();
        self.answered = 0;
        // One small request under way always fits the socket's buffer.
        self.stream.write_all(request)
    }

    /// Returns whether the whole answer was received.
    fn read(&mut self, answer_bytes: usize) -> io::Result<bool> {
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.answered += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.answered >= answer_bytes {
                let is_whole = self.answered == answer_bytes;
                return is_whole.then_some(true).ok_or_else(|| ErrorKind::InvalidData.into());
            }
        }
    }
}

/// See the header of this file.
pub(super) struct Client {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    request: Vec<u8>,
    answer_bytes: usize,
}

impl Client {
    /// Connects `count` times. `request` is sent repeatedly on each connection; each answer has
    /// `answer_bytes`.
    pub(super) fn connect(to: SocketAddr, count: usize, request: &[u8], answer_bytes: usize) -> io::Result<Self> {
        let poll = Poll::new()?;
        let connections = (0..count)
            .map(|index| {
                let stream = net::TcpStream::connect(to)?;
                stream.set_nodelay(true)?;
                stream.set_nonblocking(true)?;
                let mut stream = TcpStream::from_std(stream);
                poll.registry().register(&mut stream, Token(index), Interest::READABLE)?;
                Ok(Connection { stream, sent_at: Instant::now(), answered: 0 })
            })
            .collect::<io::Result<_>>()?;
        let events = Events::with_capacity(EVENTS);
        Ok(Self { poll, events, connections, request: request.to_vec(), answer_bytes })
    }

    /// Sends requests on every connection for `time`. Returns the time of each answer, µs.
    pub(super) fn run(&mut self, time: Duration) -> io::Result<Vec<f64>> {
        let began = Instant::now();
        let mut took_us = Vec::new();
        let mut pending = self.connections.len();
        self.connections.iter_mut().try_for_each(|connection| connection.send_request(&self.request))?;
        while pending > 0 {
            self.poll.poll(&mut self.events, None)?;
            for event in &self.events {
                let connection = &mut self.connections[event.token().0];
                if !connection.read(self.answer_bytes)? {
                    continue;
                }
                took_us.push(connection.sent_at.elapsed().as_nanos() as f64 / 1e3);
                if began.elapsed() < time {
                    connection.send_request(&self.request)?;
                } else {
                    pending -= 1;
                }
            }
        }
        Ok(took_us)
    }
}
