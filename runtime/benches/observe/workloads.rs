//! The workloads of the benchmark `peers` that do little but poll, wake and spawn, so that the
//! additional cost of a poll is visible.

use crate::sizes::{ALONE_TIMES, BATON_HOPS, CROWD, CROWD_TIMES, MANY, ONE_BY_ONE, PINGS};

/// See the header of this file.
pub(crate) struct Workload {
    /// Its name in `peers`.
    pub(crate) name: &'static str,
    /// Polls per operation.
    pub(crate) polls: f64,
    /// Operations per batch.
    pub(crate) operations: usize,
    /// Batches of the longer of the two runs whose instructions are counted; see `instructions`.
    pub(crate) batches: usize,
}

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload { name: "yield_now", polls: 1.0, operations: CROWD * CROWD_TIMES, batches: 8 },
    Workload { name: "wake_100x1000", polls: 1.0, operations: CROWD * CROWD_TIMES, batches: 8 },
    Workload { name: "wake_1x100000", polls: 1.0, operations: ALONE_TIMES, batches: 8 },
    // The new task's one poll, and that of the task that waited for it.
    Workload { name: "spawn_join_local", polls: 2.0, operations: ONE_BY_ONE, batches: 60 },
    // The new task's one poll, and a part of the poll that spawns and joins them all. With more
    // than one worker, tasks are spawned on one and end on another.
    Workload { name: "spawn_local", polls: 1.0, operations: MANY, batches: 8 },
    // The first task's poll until it waits, the second's, and the first's again.
    Workload { name: "ping_pong", polls: 3.0, operations: PINGS, batches: 60 },
    Workload { name: "baton_1", polls: 1.0, operations: 2 * BATON_HOPS, batches: 30 },
];
