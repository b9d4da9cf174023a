//! Whether the sentinel came late to a look since the machine held it up: then what it sees of others is the machine's doing as well.
//!
//! A look that is late by `PAUSE` is a pause, unless the sentinel's own thread was busy for most of the time; what held it up is told by two
//! looks at that thread (`kernel::cause::held_up`), the earlier of which is some looks old, since one takes 5 µs, and at the control groups
//! 20 µs a level more.
//!
//! Who writes: the sentinel's thread.

use std::time::Duration;

use volt_telemetry::incident::Cause;

use crate::clock;
use crate::config::PAUSE;
use crate::kernel::cause::held_up;
use crate::kernel::cgroup::{Cgroup, CgroupSample};
use crate::kernel::host;
use crate::kernel::thread::{ThreadProbe, ThreadSample, own_id};

/// Looks for which a look at the own thread is good.
const THREAD_LOOKS: u32 = 16;
/// The same for the control groups.
const CGROUP_LOOKS: u32 = 128;

/// See the header of this file.
pub(super) struct Lateness {
    own: Option<ThreadProbe>,
    thread: Option<ThreadSample>,
    cgroup: Option<CgroupSample>,
    looks: u32,
}

/// The machine held the sentinel up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pause {
    pub(super) late_ns: u64,
    /// `Unknown` where the kernel does not say.
    pub(super) cause: Cause,
}

impl Lateness {
    /// Of the thread that calls it, and will ask.
    pub(super) fn new() -> Self {
        let own = own_id().map(ThreadProbe::new);
        let thread = own.as_ref().and_then(ThreadProbe::sample);
        Self { own, thread, cgroup: host::cgroup().map(Cgroup::sample), looks: 0 }
    }

    /// What there is to be said of a sleep that was to last for `slept`, and after which `elapsed_ns` have passed since the look before it.
    pub(super) fn pause(&mut self, slept: Duration, elapsed_ns: u64) -> Option<Pause> {
        let slept_ns = clock::saturating_ns(slept);
        let late_ns = elapsed_ns.saturating_sub(slept_ns);
        if late_ns < clock::saturating_ns(PAUSE) {
            self.refresh();
            return None;
        }
        let after = self.own.as_ref().and_then(ThreadProbe::sample);
        let cgroup = host::cgroup().map(Cgroup::sample);
        let cause = match (&self.thread, &after) {
            (Some(before), Some(after)) => {
                held_up(slept_ns, elapsed_ns, before, after, self.cgroup.as_ref(), cgroup.as_ref())
            }
            _ => Some(Cause::Unknown),
        };
        (self.thread, self.cgroup, self.looks) = (after, cgroup, 0);
        cause.map(|cause| Pause { late_ns, cause })
    }

    fn refresh(&mut self) {
        self.looks = self.looks.wrapping_add(1);
        if self.looks.is_multiple_of(THREAD_LOOKS) {
            self.thread = self.own.as_ref().and_then(ThreadProbe::sample);
        }
        if self.looks.is_multiple_of(CGROUP_LOOKS) {
            self.cgroup = host::cgroup().map(Cgroup::sample);
        }
    }
}

#[cfg(all(test, target_os = "linux", not(miri)))]
mod tests {
    use std::thread;
    use std::time::Instant;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_comes_in_time_or_is_late_by_its_own_work_was_not_held_up() {
        let mut lateness = Lateness::new();
        let clock_ns = || ThreadProbe::new(own_id().unwrap()).times().unwrap().run_ns;
        for _ in 0..200 {
            assert_eq!(lateness.pause(10 * MS, 12_000_000), None);
        }
        let (began, busy_ns) = (Instant::now(), clock_ns());
        lateness.thread = lateness.own.as_ref().and_then(ThreadProbe::sample);
        while clock_ns() - busy_ns < 80_000_000 {}
        // On a machine that is busy, most of the time may not have been its own.
        let elapsed = began.elapsed();
        if elapsed < 140 * MS {
            assert_eq!(lateness.pause(MS, clock::saturating_ns(elapsed)), None);
        }
    }

    #[test]
    fn who_is_late_without_having_run_was_held_up_by_the_machine() {
        let mut lateness = Lateness::new();
        let began = Instant::now();
        thread::sleep(80 * MS);
        let elapsed_ns = clock::saturating_ns(began.elapsed());
        let pause = lateness.pause(MS, elapsed_ns).expect("it was late by 79 ms");
        assert_eq!(pause.late_ns, elapsed_ns - 1_000_000);
        assert!([Cause::Stopped, Cause::NotScheduled, Cause::Throttled].contains(&pause.cause), "{pause:?}");
    }

    #[test]
    fn where_the_kernel_says_nothing_the_clock_does() {
        let mut lateness = Lateness { own: None, thread: None, cgroup: None, looks: 0 };
        let pause = lateness.pause(MS, 300_000_000);
        assert_eq!(pause, Some(Pause { late_ns: 299_000_000, cause: Cause::Unknown }));
    }
}
