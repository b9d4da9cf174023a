//! The state of a runtime's beginning and end: when it started, whether it is closed, and which
//! workers still run. `end` has the shutdown.

use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex};

use volt_shim::CachePadded;

use crate::clock;
use crate::driver::leases::Leases;

/// See the header of this file.
pub(in crate::scheduler) struct Lifecycle {
    pub(super) started_at_ns: u64,
    /// Set by the shutdown: no more tasks are accepted, and workers end when no task is left.
    pub(super) is_closed: AtomicBool,
    /// Set when the time limit of the shutdown has passed: shields protect no task any more.
    pub(super) have_shields_ended: AtomicBool,
    /// The leases by which tasks keep the runtime's memory alive.
    pub(in crate::scheduler) leases: CachePadded<Leases>,
    /// The workers that have a running thread; `shutdown` waits for `stopped` until there is none.
    pub(super) running: Mutex<Running>,
    pub(super) stopped: Condvar,
}

/// The workers that have a running thread.
#[derive(Default)]
pub(super) struct Running {
    pub(super) workers: usize,
    /// The threads that wait until there is none.
    pub(super) waiting: usize,
    /// The shutdown no longer waits for them.
    pub(super) is_given_up: bool,
}

impl Lifecycle {
    pub(super) fn new() -> Self {
        Self {
            started_at_ns: clock::now_ns(),
            is_closed: AtomicBool::new(false),
            have_shields_ended: AtomicBool::new(false),
            leases: CachePadded(Leases::new()),
            running: Mutex::default(),
            stopped: Condvar::new(),
        }
    }
}
