//! Sums over a worker's cells: the time in its phases, and its unparks.

use volt_telemetry::Phase;

use super::WorkerCells;
use super::phases::PHASES;
use crate::stats::numbers::Counter;

impl WorkerCells {
    /// Raises the floors to the time spent in each phase, and returns the present phase and for how
    /// long it has lasted.
    pub(super) fn times_above(&self, floor_ns: &mut [u64; PHASES.len()]) -> (Phase, u64) {
        let (phase, phase_for_ns, times_ns) = self.times().unwrap_or((Phase::Busy, 0, *floor_ns));
        for (floor_ns, time_ns) in floor_ns.iter_mut().zip(times_ns) {
            *floor_ns = time_ns.max(*floor_ns);
        }
        (phase, phase_for_ns)
    }

    /// Returns the time that the worker neither searched nor slept; see `read` for `floor_ns`.
    pub(crate) fn working_ns(&self, floor_ns: &mut [u64; PHASES.len()]) -> u64 {
        self.times_above(floor_ns);
        let [busy_ns, _searching, _parked, _driver, maintenance_ns] = *floor_ns;
        busy_ns + maintenance_ns
    }

    /// Returns how often the worker was unparked, for whatever reason.
    pub(crate) fn unparks(&self) -> u64 {
        self.unparks.iter().map(Counter::get).sum()
    }
}
