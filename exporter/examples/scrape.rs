//! Measures the duration and the size of a scrape while every worker is stuck: `cargo run --release
//! -p volt-exporter --example scrape -- [WORKERS]`.
//!
//! Builds a runtime of 64 workers (or `WORKERS`), each blocked in one endless poll, an exporter in
//! the same program, and a scraper over a real connection. Prints the median and the maximum of
//! many scrapes, as text and as OpenMetrics, of the snapshot as JSON, and of the liveness probe.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

const WORKERS: usize = 64;
/// The number of scrapes of each kind.
const SCRAPES: usize = 200;

fn main() -> Result<(), Box<dyn Error>> {
    let workers = match std::env::args().nth(1) {
        Some(workers) => workers.parse().map_err(|error| format!("WORKERS: {workers:?}: {error}"))?,
        None => WORKERS,
    };
    let runtime =
        volt::Builder::new_multi_thread().worker_threads(workers).max_spare_workers(0).name("stuck").build()?;
    let exporter = volt_exporter::serve("127.0.0.1:0")?;
    let (begun, has_begun) = mpsc::channel();
    let mut releases = Vec::new();
    for _ in 0..workers {
        let (begun, (release, released)) = (begun.clone(), mpsc::channel::<()>());
        releases.push(release);
        drop(runtime.spawn(async move {
            // `main` keeps the other ends for as long as this task runs.
            let _sent = begun.send(());
            let _ended = released.recv();
        }));
    }
    for _ in 0..workers {
        has_begun.recv()?;
    }
    let mut output = std::io::stdout().lock();
    writeln!(output, "{workers} workers, all of them stuck")?;
    for (path, accept) in [
        ("/metrics", "text/plain"),
        ("/metrics", "application/openmetrics-text;version=1.0.0"),
        ("/snapshot", "application/json"),
        ("/healthz", "text/plain"),
    ] {
        let mut times = Vec::with_capacity(SCRAPES);
        let mut bytes = 0;
        for _ in 0..SCRAPES {
            let (time, len) = scrape(exporter.local_addr(), path, accept)?;
            times.push(time);
            bytes = len;
        }
        times.sort_unstable();
        writeln!(
            output,
            "{path:<10} {accept:<45} {bytes:>8} bytes, median {:>6.2} ms, worst {:>6.2} ms",
            millis(times[SCRAPES / 2]),
            millis(times[SCRAPES - 1])
        )?;
    }
    drop(releases);
    runtime.shutdown_timeout(Duration::from_secs(5));
    Ok(())
}

/// Returns the time from before the connection to the end of the response, and the size of the
/// response in bytes.
fn scrape(address: SocketAddr, path: &str, accept: &str) -> Result<(Duration, usize), Box<dyn Error>> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        return Err(format!("the response to {path} is {}", String::from_utf8_lossy(&answer)).into());
    }
    Ok((began.elapsed(), answer.len()))
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
