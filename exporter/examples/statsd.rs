//! Sends Volt's metrics to a statsd server: `cargo run -p volt-exporter --example statsd --
//! [ADDRESS:PORT] [SECONDS]`.
//!
//! Without arguments, sends to 127.0.0.1:8125 for 10 seconds, once a second. Installs the recorder
//! of metrics-exporter-statsd, as an application does that uses statsd for its own metrics, and
//! publishes Volt's metrics into it. Meanwhile, a task wakes up every 10 ms.

use std::error::Error;
use std::time::Duration;

use metrics_exporter_statsd::StatsdBuilder;
use volt_exporter::{Histograms, Publisher};

const SERVER: &str = "127.0.0.1:8125";
const SECONDS: u64 = 10;
const INTERVAL: Duration = Duration::from_secs(1);
const NAP: Duration = Duration::from_millis(10);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next().unwrap_or_else(|| SERVER.into());
    let (host, port) = server.rsplit_once(':').ok_or_else(|| format!("{server:?} is not ADDRESS:PORT"))?;
    let port = port.parse().map_err(|error| format!("{server:?} has no valid port: {error}"))?;
    let seconds = match arguments.next() {
        Some(seconds) => seconds.parse().map_err(|error| format!("SECONDS: {seconds:?}: {error}"))?,
        None => SECONDS,
    };
    // The default queue has 256 places, and a full queue loses metrics.
    let recorder = StatsdBuilder::from(host, port).with_queue_size(10_000).with_buffer_size(1_400).build(None)?;
    metrics::set_global_recorder(recorder)?;
    let runtime = volt::Builder::new_multi_thread().name("example").build()?;
    let publisher = Publisher::builder().interval(INTERVAL).histograms(Histograms::Quantiles).start()?;
    runtime.block_on(async {
        let until = volt::time::Instant::now() + Duration::from_secs(seconds);
        while volt::time::Instant::now() < until {
            volt::spawn(volt::time::sleep(NAP)).await?;
            metrics::counter!("naps").increment(1);
        }
        Ok::<(), volt::task::JoinError>(())
    })?;
    // Outside async code, this waits for the last publication.
    drop(publisher);
    Ok(())
}
