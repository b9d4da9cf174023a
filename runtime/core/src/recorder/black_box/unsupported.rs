//! The black box where it is not supported: it can never be created.

use std::panic::Location;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use volt_telemetry::recording::black_box::Layout;
use volt_telemetry::snapshot::Snapshot;

use crate::stats::cells::WorkerCells;
use crate::stats::placed::Placed;

/// Has no values.
#[derive(Debug)]
pub(crate) enum BlackBox {}

impl BlackBox {
    pub(crate) fn create(_dir: &Path, _program: &str, _runtime: &str, _layout: Layout) -> Result<Arc<Self>, String> {
        Err("it is only supported on Linux".to_owned())
    }

    pub(crate) fn path(&self) -> &Path {
        match *self {}
    }

    pub(crate) fn cells(&self, _slot: usize) -> Placed<WorkerCells> {
        match *self {}
    }

    pub(crate) fn ring(&self, _lane: usize) -> Option<Placed<[AtomicU64]>> {
        match *self {}
    }

    pub(crate) fn beat(&self, _now_ns: u64, _in_flight: impl Iterator<Item = &'static Location<'static>>) {
        match *self {}
    }

    pub(crate) fn add_text(&self, _kind: u64, _number: u64, _text: &str) {
        match *self {}
    }

    pub(crate) fn generation(&self) -> u64 {
        match *self {}
    }

    pub(crate) fn write_sample(&self, _snapshot: Snapshot, _cut: impl FnMut(&mut Snapshot) -> bool) {
        match *self {}
    }

    pub(crate) fn sample_interval(&self) -> Duration {
        match *self {}
    }

    pub(crate) fn shut_down(&self) {
        match *self {}
    }
}
