//! Readings of all clocks at one moment, so that a recording can be aligned with other traces.

use std::time::SystemTime;

use volt_telemetry::recording::flush::Anchor;

use crate::clock;
use crate::clock::cycles::source;

/// How often the clocks are read; the readings closest together become the anchor.
const READINGS: usize = 5;

/// Reads all clocks several times and returns the readings that took the least time.
pub(super) fn anchor() -> Anchor {
    let reading = || {
        let (before_ns, cycles) = (clock::now_ns(), Some(source::cycles()).filter(|cycles| *cycles > 0));
        let (monotonic_ns, unix_ns) = (monotonic_ns(), unix_ns());
        let width_ns = clock::now_ns().saturating_sub(before_ns);
        Anchor { at_ns: before_ns + width_ns / 2, monotonic_ns, unix_ns, cycles, width_ns }
    };
    (1..READINGS).fold(reading(), |best, _| Some(reading()).filter(|new| new.width_ns < best.width_ns).unwrap_or(best))
}

fn unix_ns() -> Option<u64> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_nanos()).ok()
}

/// Reads the clock by which the kernel stamps its own traces.
fn monotonic_ns() -> Option<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    Some(seconds * 1_000_000_000 + ns)
}
