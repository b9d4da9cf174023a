//! loom models of leases: threads that hold a runtime, take leases of it, release it, and return
//! the leases; and the same with one step done wrong, which must fail. The `Arc` is modelled as a
//! separate count; the thread that removes the last count ends the runtime.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, AtomicBool};

use super::*;

/// The steps that a fault can replace.
trait Steps: 'static {
    fn take(leases: &Leases, count: usize) -> bool {
        leases.take(count)
    }

    fn give_back(leases: &Leases, count: usize) -> bool {
        leases.give_back(count)
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

struct Runtime {
    leases: Leases,
    /// The count of the `Arc`: one for each thread.
    count: AtomicUsize,
    is_dropped: AtomicBool,
}

impl Runtime {
    fn release(&self) {
        let before = self.count.fetch_sub(1, Ordering::AcqRel);
        assert_ne!(before, 0, "taken off more often than added");
        if before == 1 {
            self.is_dropped.store(true, Ordering::Relaxed);
        }
    }

    fn expect_here(&self) {
        assert!(!self.is_dropped.load(Ordering::Relaxed), "dropped while a lease is out");
    }
}

/// Each thread takes `counts[i]` leases, releases the runtime, and then returns the leases, in two
/// parts if there are several.
fn model<S: Steps>(counts: &'static [usize]) {
    let runtime =
        Runtime { leases: Leases::new(), count: AtomicUsize::new(counts.len()), is_dropped: AtomicBool::new(false) };
    let runtime = Arc::new(runtime);
    let threads = counts.iter().map(|&count| {
        let runtime = runtime.clone();
        thread::spawn(move || {
            if S::take(&runtime.leases, count) {
                runtime.count.fetch_add(1, Ordering::Relaxed);
            }
            runtime.release();
            for part in [count / 2, count - count / 2].into_iter().filter(|part| *part > 0) {
                runtime.expect_here();
                if S::give_back(&runtime.leases, part) {
                    runtime.release();
                }
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(runtime.is_dropped.load(Ordering::Relaxed), "never dropped");
}

#[test]
fn a_runtime_lives_as_long_as_its_leases_and_no_longer() {
    holds(None, || model::<AsBuilt>(&[2, 1]));
    holds(Some(2), || model::<AsBuilt>(&[1, 1, 1]));
}

/// Checks whether leases are out, and takes its own afterwards.
struct ChecksBeforeItTakes;

impl Steps for ChecksBeforeItTakes {
    fn take(leases: &Leases, count: usize) -> bool {
        let is_first = leases.0.load(Ordering::Acquire) == 0;
        let _ = leases.take(count);
        is_first
    }
}

#[test]
fn a_first_lease_that_depends_on_an_earlier_check_is_found() {
    breaks("dropped while a lease is out", None, || model::<ChecksBeforeItTakes>(&[1, 1]));
}

/// Returns its leases, and checks afterwards whether any are out.
struct ChecksAfterItGaveBack;

impl Steps for ChecksAfterItGaveBack {
    fn give_back(leases: &Leases, count: usize) -> bool {
        let _ = leases.give_back(count);
        leases.0.load(Ordering::Acquire) == 0
    }
}

#[test]
fn a_last_lease_that_depends_on_a_later_check_is_found() {
    breaks("never dropped", None, || model::<ChecksAfterItGaveBack>(&[1, 1]));
}
