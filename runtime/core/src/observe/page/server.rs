//! The thread that serves the page.
//!
//! An ordinary case: Prometheus connects and sends `GET /metrics`. The thread sends the page, and
//! Prometheus closes the connection. All that took 2 ms of processor time, so the thread rests for
//! 8 ms before it accepts the next connection.
//!
//! Protocol of a connection:
//! 1. read the head of one request, until its empty line;
//! 2. if the request is for the page, take a snapshot of all runtimes and write its metrics;
//! 3. send the response, and read on until the client has received it and closes the connection:
//!    if bytes were unread at the end, the system would discard what it has not sent yet;
//! 4. rest in proportion to the processor time that the connection took.
//!
//! Invariants:
//! * *One connection at a time*. Others wait in the kernel's queue. A client delays them for at
//!   most [`Limits::read`] until its request is complete, for at most [`Limits::write`] until the
//!   response is sent, and for at most [`Limits::end`] until it closes the connection.
//! * *Cheap*: whatever clients request, the thread uses at most a fifth of one processor.
//! * *It never ends*: errors of a client end its connection, a panic in a page leads to an error
//!   response, and after an error of the listener it tries again.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use volt_diagnosis::exposition::{self, Origin, Samples};

use super::request::{Request, Response};
use crate::observe::cost::processor_time;
use crate::observe::registry;
use crate::observe::server::{ACCEPT_PAUSE, PANICKED, is_of_one_connection};

/// The limits of a connection.
#[derive(Clone, Copy, Debug)]
struct Limits {
    /// Maximum time until the head of the request is complete.
    read: Duration,
    /// Maximum time until the response is sent.
    write: Duration,
    /// Maximum time until the client has closed the connection.
    end: Duration,
    /// Maximum size of the head in bytes. Prometheus sends some 300.
    head_bytes: usize,
    /// Maximum number of bytes that are read after the response.
    rest_bytes: usize,
    /// How long the thread rests after a connection, as a multiple of the processor time that it
    /// took.
    rest: u32,
}

impl Limits {
    /// The sum of the times is less than the 10 s after which Prometheus cancels a scrape.
    const DEFAULT: Limits = Limits {
        read: Duration::from_secs(2),
        write: Duration::from_secs(5),
        end: Duration::from_secs(1),
        head_bytes: 8 * 1024,
        rest_bytes: 4 * 1024 * 1024,
        rest: 4,
    };
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    samples: Samples,
    limits: Limits,
}

impl Server {
    pub(super) fn new(listener: TcpListener, address: SocketAddr) -> Self {
        Self { listener, address, samples: Samples::default(), limits: Limits::DEFAULT }
    }

    /// The main function of the thread.
    pub(super) fn run(mut self) -> ! {
        loop {
            match self.listener.accept() {
                Ok((client, _)) => {
                    let began = processor_time();
                    // The client has disconnected, or is too slow: it gets no response.
                    let _ = self.serve(&client);
                    drop(client);
                    thread::sleep(processor_time().saturating_sub(began) * self.limits.rest);
                }
                Err(error) if matches!(error.raw_os_error(), Some(code) if is_of_one_connection(code)) => {}
                // Usually out of file descriptors.
                Err(_) => thread::sleep(ACCEPT_PAUSE),
            }
        }
    }

    fn serve(&mut self, client: &TcpStream) -> io::Result<()> {
        let deadline = Instant::now() + self.limits.read;
        let Some(head) = read_head(client, deadline, self.limits.head_bytes)? else {
            let text = format!("the head of a request has at most {} bytes", self.limits.head_bytes);
            let refusal = Response::refusal("431 Request Header Fields Too Large", &text);
            return self.send(client, &refusal, false);
        };
        let Some(request) = Request::parse(&head) else {
            return self.send(client, &Response::refusal("400 Bad Request", "not a request of HTTP/1"), false);
        };
        let response = request.answer(self.address, || page(&mut self.samples));
        self.send(client, &response, request.is_head())
    }

    fn send(&self, mut client: &TcpStream, response: &Response, is_head: bool) -> io::Result<()> {
        let deadline = Instant::now() + self.limits.write;
        let text = response.encode(is_head);
        let mut unsent = text.as_bytes();
        while !unsent.is_empty() {
            client.set_write_timeout(Some(time_until(deadline)?))?;
            match client.write(unsent) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => unsent = &unsent[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        client.shutdown(Shutdown::Write)?;
        let deadline = Instant::now() + self.limits.end;
        let (mut bytes, mut left) = ([0; 16 * 1024], self.limits.rest_bytes);
        while left > 0 {
            match read(client, deadline, &mut bytes)? {
                0 => break,
                count => left = left.saturating_sub(count),
            }
        }
        Ok(())
    }
}

/// Returns the text of the page.
fn page(samples: &mut Samples) -> Result<String, &'static str> {
    let program = registry::try_program().ok_or(PANICKED)?;
    // Unwind safe: after a panic, the samples are replaced.
    let page = catch_unwind(AssertUnwindSafe(|| {
        let mut page = String::new();
        let read = samples.read(&[(Origin::new(), Some(&program))]);
        exposition::write(&read, &mut page).expect("a String accepts every write");
        page
    }));
    page.map_err(|_| {
        *samples = Samples::default();
        PANICKED
    })
}

/// Reads until the head of a request is complete. Returns `None` if it is larger than `max_bytes`.
fn read_head(client: &TcpStream, deadline: Instant, max_bytes: usize) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        let count = read(client, deadline, &mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The empty line may begin in what was read before.
        let from = head.len().saturating_sub(3);
        head.extend_from_slice(&bytes[..count]);
        if let Some(end) = end_of_head(&head, from) {
            head.truncate(end);
            return Ok((end <= max_bytes).then_some(head));
        }
        if head.len() > max_bytes {
            return Ok(None);
        }
    }
}

/// Returns the index behind the first empty line that begins at `from` or later.
fn end_of_head(head: &[u8], from: usize) -> Option<usize> {
    let ends =
        |end: &[u8]| head[from..].windows(end.len()).position(|bytes| bytes == end).map(|at| from + at + end.len());
    ends(b"\r\n\r\n").into_iter().chain(ends(b"\n\n")).min()
}

/// Reads once. Fails if that lasts until `deadline`.
fn read(mut client: &TcpStream, deadline: Instant, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        client.set_read_timeout(Some(time_until(deadline)?))?;
        match client.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Fails if `deadline` has passed. A socket does not accept a time-out of 0.
fn time_until(deadline: Instant) -> io::Result<Duration> {
    let time = deadline.saturating_duration_since(Instant::now());
    if time.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(time) }
}
