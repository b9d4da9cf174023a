//! The time in a worker's phases, its parks and unparks, and when its present poll began.

use volt_telemetry::Phase;

use super::WorkerCells;
use super::phases::PHASES;
use crate::stats::numbers::Counter;
use crate::stats::reasons::WakeReason;

impl WorkerCells {
    /// Returns when the poll in flight began, ns, if it is one of task `id`. Called by the worker's
    /// own thread.
    pub(crate) fn began_at_ns_of(&self, id: u64) -> Option<u64> {
        let is_polled = self.poll_seq() % 2 == 1 && self.task_id.get() == id;
        is_polled.then(|| self.poll_began_at_ns.get())
    }

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

    pub(crate) fn count_park(&self) {
        self.parks.add(1);
        let polls = self.polls();
        if self.polls_at_park.get() == polls {
            self.idle_parks.add(1);
        }
        self.polls_at_park.set(polls);
    }

    pub(crate) fn count_unpark(&self, reason: WakeReason) {
        self.unparks[reason as usize].add(1);
    }

    pub(crate) fn parks(&self) -> u64 {
        self.parks.get()
    }

    /// Returns how often the worker parked without having polled since the park before.
    pub(crate) fn idle_parks(&self) -> u64 {
        self.idle_parks.get()
    }

    /// Returns how often the worker was unparked, for whatever reason.
    pub(crate) fn unparks(&self) -> u64 {
        self.unparks.iter().map(Counter::get).sum()
    }
}
