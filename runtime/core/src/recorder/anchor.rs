//! How all clocks stand at one moment, so that a recording can be laid beside others.

use std::time::SystemTime;

use volt_telemetry::recording::flush::Anchor;

use crate::clock;
use crate::clock::cycles::source;

/// Readings of the clocks of which the closest together is the anchor.
const READINGS: usize = 5;

/// How all clocks stand, from the reading in which the least time passed.
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

/// The clock that the kernel's own traces are stamped with.
fn monotonic_ns() -> Option<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, ns) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    Some(seconds * 1_000_000_000 + ns)
}
