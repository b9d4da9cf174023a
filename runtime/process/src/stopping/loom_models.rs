//! loom models of a shutdown beside a start and beside an exit, and twins with one step in the
//! wrong order, in which loom must find an error.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, Mutex};

use super::*;

/// A system with one place for a process.
struct System {
    shard: Mutex<bool>,
    alive: AtomicUsize,
    stopping: Stopping,
}

impl System {
    fn new(is_alive: bool) -> Arc<Self> {
        let alive = AtomicUsize::new(usize::from(is_alive));
        Arc::new(Self { shard: Mutex::new(is_alive), alive, stopping: Stopping::new() })
    }
}

// ---- a shutdown beside a start ------------------------------------------------------------------

/// Returns whether the process starts.
fn start(system: &System) -> bool {
    let ((), is_refused) = system.stopping.start(|| *system.shard.lock() = true);
    !is_refused
}

/// Start (2) before (1).
fn start_checking_before(system: &System) -> bool {
    let may = !system.stopping.is_set();
    if may {
        *system.shard.lock() = true;
    }
    may
}

/// Returns whether the shutdown finds the process.
fn stop(system: &System) -> bool {
    system.stopping.stop(|| *system.shard.lock())
}

/// Stop (2) before (1).
fn stop_listing_before(system: &System) -> bool {
    let is_found = *system.shard.lock();
    system.stopping.stop(|| is_found)
}

/// Either the process is not started, or the shutdown finds it and cancels it.
fn starting(start: fn(&System) -> bool, stop: fn(&System) -> bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let system = System::new(false);
        let starter = thread::spawn({
            let system = system.clone();
            move || start(&system)
        });
        let shutdown = thread::spawn(move || stop(&system));
        let (is_started, is_found) = (starter.join().unwrap(), shutdown.join().unwrap());
        assert!(!is_started || is_found, "FOUND OR REFUSED");
    }
}

#[test]
fn a_process_that_starts_in_a_shutdown_is_found_or_refused() {
    holds(None, starting(start, stop));
}

#[test]
fn twin_a_start_that_checks_too_early_is_found() {
    breaks("FOUND OR REFUSED", None, starting(start_checking_before, stop));
}

#[test]
fn twin_a_shutdown_that_lists_before_it_stops_is_found() {
    breaks("FOUND OR REFUSED", None, starting(start, stop_listing_before));
}

// ---- a shutdown beside the last exit ------------------------------------------------------------

/// Returns whether the exit notifies the shutdown.
fn exit(system: &System) -> bool {
    remove(system.shard.lock(), &system.alive, |is_alive| *is_alive = false);
    system.stopping.is_set()
}

/// Exit (1) with the count after the lock.
fn exit_counting_late(system: &System) -> bool {
    *system.shard.lock() = false;
    system.alive.fetch_sub(1, Ordering::Relaxed);
    system.stopping.is_set()
}

/// Exit (2) before (1).
fn exit_checking_before(system: &System) -> bool {
    let notifies = system.stopping.is_set();
    remove(system.shard.lock(), &system.alive, |is_alive| *is_alive = false);
    notifies
}

/// Either the shutdown counts no live process, or the process that exits notifies it.
fn exiting(exit: fn(&System) -> bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let system = System::new(true);
        let process = thread::spawn({
            let system = system.clone();
            move || exit(&system)
        });
        let shutdown = thread::spawn(move || {
            stop(&system);
            // Stop (3)
            system.alive.load(Ordering::Relaxed) == 0
        });
        let (notifies, is_empty) = (process.join().unwrap(), shutdown.join().unwrap());
        assert!(notifies || is_empty, "LAST EXIT SEEN");
    }
}

#[test]
fn the_last_exit_reaches_the_shutdown() {
    holds(None, exiting(exit));
}

#[test]
fn twin_an_exit_that_is_counted_without_the_lock_is_found() {
    breaks("LAST EXIT SEEN", None, exiting(exit_counting_late));
}

#[test]
fn twin_an_exit_that_checks_too_early_is_found() {
    breaks("LAST EXIT SEEN", None, exiting(exit_checking_before));
}
