//! The runtimes that are measured.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use volt_telemetry::{Incident, Snapshot};

use crate::load::{self, Felt, Load, Peer};

/// The measured delays, and what the runtime reported in the meantime.
pub(crate) struct Measured {
    pub(crate) felt: Felt,
    pub(crate) reading: Reading,
}

/// A runtime's report about its workers.
pub(crate) enum Reading {
    /// Volt: the last snapshot under load, and the first incident with a line of code.
    Volt { last: Box<Snapshot>, named: Option<Box<Named>> },
    /// Tokio: the share of time that its workers were busy, according to its metrics 200 ms
    /// after the first block began.
    BusyRatio(f64),
}

/// An incident in the first snapshot in which its line of code was known.
pub(crate) struct Named {
    pub(crate) incident: Incident,
    /// The time from the start of its poll until then.
    pub(crate) after: Duration,
}

/// How often a snapshot is taken until the line of code is known.
const SAMPLED_EVERY: Duration = Duration::from_millis(2);
/// When Tokio's metrics are read: how long the tasks have been blocking by then.
const SAMPLED_AFTER: Duration = Duration::from_millis(200);

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
    let is_over = Arc::new(AtomicBool::new(false));
    let sampler = std::thread::spawn({
        let (handle, is_over) = (runtime.handle().clone(), is_over.clone());
        move || first_named(&handle, &is_over)
    });
    let felt = load::run(&Volt(runtime.handle().clone()), load);
    is_over.store(true, Ordering::Relaxed);
    let named = sampler.join().map_err(|_panic| "the thread that requests incidents panicked")?;
    Ok(Measured {
        felt,
        reading: Reading::Volt { last: Box::new(runtime.handle().snapshot()), named: named.map(Box::new) },
    })
}

/// Returns the first incident whose line of code is known.
fn first_named(handle: &volt::Handle, is_over: &AtomicBool) -> Option<Named> {
    while !is_over.load(Ordering::Relaxed) {
        let snapshot = handle.snapshot();
        if let Some(incident) = snapshot.incidents.latest.iter().find(|incident| incident.guilty().is_some()) {
            let after = Duration::from_nanos(snapshot.at_ns.saturating_sub(incident.began_at_ns));
            return Some(Named { incident: incident.clone(), after });
        }
        std::thread::sleep(SAMPLED_EVERY);
    }
    None
}

pub(crate) fn on_tokio(load: &Load) -> Result<Measured, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(load.workers).enable_time().build()?;
    let sampler = std::thread::spawn({
        let (metrics, began) = (runtime.metrics(), Instant::now());
        move || {
            std::thread::sleep(SAMPLED_AFTER);
            let busy: Duration =
                (0..metrics.num_workers()).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
            busy.as_secs_f64() / (began.elapsed().as_secs_f64() * metrics.num_workers() as f64)
        }
    });
    let felt = load::run(&Tokio(runtime.handle().clone()), load);
    let busy_ratio = sampler.join().map_err(|_panic| "the thread that requests metrics panicked")?;
    runtime.shutdown_background();
    Ok(Measured { felt, reading: Reading::BusyRatio(busy_ratio) })
}
