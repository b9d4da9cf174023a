//! The phases of a worker (busy, searching, parked, …), as numbers that fit a cell.

use volt_telemetry::Phase;

/// The phases that a worker's time is accounted to, in the order of `WorkerCells::time_ns`.
pub(crate) const PHASES: [Phase; 5] = Phase::TIMED;

/// Returns `Phase` as a number for a cell; `Stopped` is none of [`PHASES`].
#[inline]
pub(super) fn phase_index(phase: Phase) -> u64 {
    match phase {
        Phase::Busy => 0,
        Phase::Searching => 1,
        Phase::Parked => 2,
        Phase::Driver => 3,
        Phase::Maintenance => 4,
        _ => PHASES.len() as u64,
    }
}
