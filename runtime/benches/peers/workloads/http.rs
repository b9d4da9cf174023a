//! hyper serves requests on 64 persistent connections. The load comes from another program
//! (`http_load`), so that the processor time here is the server's.
//!
//! Protocol between the two, a line each:
//! 1. the child connects, runs for the warm-up, and sends "warm";
//! 2. the parent reads its processor time, and sends "go";
//! 3. the child runs for the counted time, and sends the number of answers, the elapsed time and
//!    their p99; no request is under way then;
//! 4. the parent reads its processor time again.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{self, SocketAddr};
use std::process::{Child, ChildStdin, ChildStdout};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use super::http_load::{CONNECTIONS, HELLO, LOAD};
use crate::child;
use crate::meter::{Meter, cpu_time};
use crate::runtimes::sockets::Sockets;

/// The counted part of a round, after a warm-up of a quarter of it.
const COUNTED: Duration = Duration::from_millis(400);
const QUICK_COUNTED: Duration = Duration::from_millis(120);

async fn hello(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(HELLO))))
}

/// Serves until the connection that measures the length of an answer, and those of the load, are
/// closed.
async fn serve<P: Sockets>(listener: net::TcpListener) -> io::Result<()> {
    let listener = P::listener(listener)?;
    let mut tasks = Vec::with_capacity(CONNECTIONS + 1);
    for _ in 0..=CONNECTIONS {
        let stream = P::accept(&listener).await?;
        tasks.push(P::spawn(async {
            // A connection that the client closes is not an error of the server.
            _ = http1::Builder::new().serve_connection(P::http(stream), service_fn(hello)).await;
        }));
    }
    for task in tasks {
        P::join(task).await;
    }
    Ok(())
}

/// The child, and this end of its pipes.
struct Load {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Load {
    fn start(address: SocketAddr, counted: Duration) -> io::Result<Self> {
        let counted_ms = counted.as_millis().to_string();
        let mut child = child::start(&[LOAD.to_owned(), address.to_string(), counted_ms]);
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (to, from) = pipes.expect("both pipes were requested");
        Ok(Self { child, to, from: BufReader::new(from) })
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.from.read_line(&mut line)? {
            0 => Err(io::Error::other("the load has ended before its time")),
            _ => Ok(line),
        }
    }
}

fn serve_and_load<P: Sockets>(meter: &Meter) -> io::Result<Vec<f64>> {
    let peer = P::start(meter.workers);
    let listener = net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    let server = peer.spawn_from_outside(serve::<P>(listener));
    let mut load = Load::start(address, if meter.is_quick { QUICK_COUNTED } else { COUNTED })?;
    load.line()?;
    let before = cpu_time();
    writeln!(load.to, "go")?;
    let report = load.line()?;
    let cpu = cpu_time() - before;
    load.child.wait()?;
    peer.block_on(P::join(server))?;
    let figures: Vec<f64> = report.split_whitespace().filter_map(|figure| figure.parse().ok()).collect();
    let [answers, took_ns, p99_us] = figures[..] else { return Err(ErrorKind::InvalidData.into()) };
    Ok(vec![cpu.as_nanos() as f64 / 1e3 / answers, took_ns / answers, p99_us])
}

/// Returns the server's processor time per request, µs; elapsed time, ns; p99 of an answer, µs.
pub(super) fn hello_64<P: Sockets>(meter: &Meter) -> Vec<f64> {
    serve_and_load::<P>(meter).expect("the loopback works, and hyper answers")
}
