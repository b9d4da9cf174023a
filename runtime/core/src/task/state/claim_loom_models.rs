//! loom models of a task that a dump claims while the runtime closes.
//!
//! The dump finds the task in the registry, claims it and polls it (`scheduler::dump`, protocol
//! (3)). Meanwhile the registry is closed, which cancels the task (`task::registry`, `close`). The
//! registry is modelled by a lock around one slot. The transitions are those of the parent module.
//!
//! 1. Find: the dump copies the registry's reference, under its lock. So does the close.
//! 2. Claim, or cancel: the thread that makes the task SCHEDULED runs it.
//! 3. The runner polls the future, or drops it. It drops it if the cancellation came before the end
//!    of the poll; otherwise the thread that cancels the task is its next runner.
//! 4. The runner that drops the future removes the task from the registry, and completes it.
//!
//! Each twin has one incorrect step, and must fail with the message of the assertion that it
//! breaks.

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::Mutex;

use super::*;

/// A task that waits, without a JoinHandle.
struct Waiting {
    state: State,
    /// Whether the slot of the registry contains the task, and owns a reference to it.
    slot: Mutex<bool>,
    is_running: AtomicBool,
    is_dropped: AtomicBool,
    is_freed: AtomicBool,
}

/// The steps that a fault can replace.
trait Steps: 'static {
    /// (1)
    fn find(task: &Waiting) -> bool {
        let slot = task.slot.lock();
        if *slot {
            task.state.add_reference();
        }
        *slot
    }

    /// The end of the poll in (3).
    fn pause(state: &State) -> Pause {
        state.pause(false)
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

impl Waiting {
    fn new() -> Self {
        let state = State::new();
        // The registry's.
        state.add_reference();
        assert_eq!(state.start(), Start::Poll);
        assert_eq!(state.pause(false), Pause::Idle);
        assert_eq!(state.drop_join_interest(), DropJoin::Nothing { was_last_reference: false });
        let [is_running, is_dropped, is_freed] = [(); 3].map(|()| AtomicBool::new(false));
        Self { state, slot: Mutex::new(true), is_running, is_dropped, is_freed }
    }

    /// (3) and (4).
    fn run(&self, pause: fn(&State) -> Pause) {
        assert!(!self.is_running.swap(true, Ordering::Relaxed), "one runner");
        while self.state.start() == Start::Poll {
            self.is_running.store(false, Ordering::Relaxed);
            match pause(&self.state) {
                Pause::Idle => return,
                Pause::Reschedule => assert!(!self.is_running.swap(true, Ordering::Relaxed), "one runner"),
                Pause::Cancel => break,
            }
        }
        assert!(!self.is_dropped.swap(true, Ordering::Relaxed), "the future is dropped once");
        assert!(std::mem::replace(&mut *self.slot.lock(), false), "the task is removed once");
        // The reference of the slot, and that of the `Notified`.
        assert_eq!(self.state.complete(2), Complete::DropOutput);
        self.release(2);
    }

    fn release(&self, references: u64) {
        if self.state.drop_references(references) {
            assert!(!self.is_freed.swap(true, Ordering::Relaxed), "the task is freed once");
        }
    }
}

fn model<S: Steps>() {
    let task = Arc::new(Waiting::new());
    let dump = thread::spawn({
        let task = task.clone();
        move || {
            if !S::find(&task) {
                return;
            }
            if task.state.claim() {
                task.run(S::pause);
            }
            task.release(1);
        }
    });
    if AsBuilt::find(&task) {
        if task.state.cancel() == Wake::Submit {
            task.run(AsBuilt::pause);
        }
        task.release(1);
    }
    dump.join().unwrap();
    assert!(task.is_dropped.load(Ordering::Relaxed), "the close drops the future, claimed or not");
    assert!(task.is_freed.load(Ordering::Relaxed), "the task is freed");
}

#[test]
fn loom_a_claim_beside_a_close_drops_and_frees_the_task_once() {
    holds(None, model::<AsBuilt>);
}

#[test]
fn loom_twin_a_claimed_poll_that_ends_unchecked_loses_a_close() {
    struct PausesUnchecked;
    impl Steps for PausesUnchecked {
        fn pause(state: &State) -> Pause {
            state.transition(|now| (Word(now.0 - ONE_REFERENCE & !LIFECYCLE & !(NOTIFIED | CANCELLED)), Pause::Idle))
        }
    }
    breaks("the close drops the future, claimed or not", None, model::<PausesUnchecked>);
}

#[test]
fn loom_twin_a_reference_copied_outside_the_lock_frees_twice() {
    struct CopiesLate;
    impl Steps for CopiesLate {
        fn find(task: &Waiting) -> bool {
            let is_found = *task.slot.lock();
            if is_found {
                task.state.add_reference();
            }
            is_found
        }
    }
    breaks("the task is freed once", None, model::<CopiesLate>);
}
