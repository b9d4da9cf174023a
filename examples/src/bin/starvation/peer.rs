//! The runtimes.

use std::future::Future;
use std::time::{Duration, Instant};

use volt_telemetry::Snapshot;

use crate::load::{self, Felt, Load, Peer};

/// What was felt, and what the runtime had to say about it while it happened.
pub(crate) struct Measured {
    pub(crate) felt: Felt,
    pub(crate) said: Said,
}

/// What a runtime says about its workers.
pub(crate) enum Said {
    /// Volt: the last snapshot of the load.
    Snapshot(Box<Snapshot>),
    /// Tokio: the share of the time that its workers were busy, as its metrics say in the middle of the first block.
    BusyRatio(f64),
}

/// When the runtime is asked: the tasks have been blocking for this long.
const ASKED_AFTER: Duration = Duration::from_millis(200);

#[derive(Clone)]
struct Volt(volt::Handle);

impl Peer for Volt {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(task));
    }

    fn spawn_inside(task: impl Future<Output = ()> + Send + 'static) {
        drop(volt::spawn(task));
    }

    async fn sleep(time: Duration) {
        volt::time::sleep(time).await;
    }
}

#[derive(Clone)]
struct Tokio(tokio::runtime::Handle);

impl Peer for Tokio {
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.0.spawn(task));
    }

    fn spawn_inside(task: impl Future<Output = ()> + Send + 'static) {
        drop(tokio::spawn(task));
    }

    async fn sleep(time: Duration) {
        tokio::time::sleep(time).await;
    }
}

pub(crate) fn on_volt(load: &Load) -> Result<Measured, Box<dyn std::error::Error>> {
    let runtime = volt::Builder::new_multi_thread().name("starvation").worker_threads(load.workers).build()?;
    let felt = load::run(&Volt(runtime.handle().clone()), load);
    let said = Said::Snapshot(Box::new(runtime.handle().snapshot()));
    Ok(Measured { felt, said })
}

pub(crate) fn on_tokio(load: &Load) -> Result<Measured, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(load.workers).enable_time().build()?;
    let asked = std::thread::spawn({
        let (metrics, began) = (runtime.metrics(), Instant::now());
        move || {
            std::thread::sleep(ASKED_AFTER);
            let busy: Duration =
                (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
            busy.as_secs_f64() / (began.elapsed().as_secs_f64() * metrics.num_workers() as f64)
        }
    });
    let felt = load::run(&Tokio(runtime.handle().clone()), load);
    let busy_ratio = asked.join().map_err(|_panic| "the thread that asks for metrics panicked")?;
    runtime.shutdown_background();
    Ok(Measured { felt, said: Said::BusyRatio(busy_ratio) })
}
