//! The figures of a driver for telemetry.

use volt_shim::Ordering;

use super::{Driver, NATIVE};

impl Driver {
    /// Counts an `accept` that waits because the program has run out of descriptors or memory.
    pub fn count_accept_backoff(&self) {
        // ORDERING: Relaxed; an RMW, since any task may do it; read by telemetry only.
        self.counters.accept_backoffs.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the name of the kernel interface that reports ready I/O.
    pub(crate) fn backend_name(&self) -> &'static str {
        NATIVE.1
    }

    /// Returns the figures for telemetry.
    pub(crate) fn telemetry(&self, now_ns: u64) -> (volt_telemetry::Driver, volt_telemetry::Timers) {
        let owner = self.owner();
        let counters = &self.counters;
        let driver = volt_telemetry::Driver {
            owner: owner.map(|worker| worker as u32),
            // ORDERING: Relaxed; single-writer cells, each exact by itself.
            polls: counters.turns.load(Ordering::Relaxed),
            // ORDERING: Relaxed; as above.
            events: counters.events.load(Ordering::Relaxed),
            // ORDERING: Relaxed; as above.
            registrations: self.sockets.count.load(Ordering::Relaxed),
            // ORDERING: Relaxed; only the number counts.
            accept_backoffs: counters.accept_backoffs.load(Ordering::Relaxed),
            idle_ns: if owner.is_some() { 0 } else { now_ns.saturating_sub(self.last_turn_ns()) },
        };
        (driver, self.timers.telemetry(self.now_ns()))
    }
}
