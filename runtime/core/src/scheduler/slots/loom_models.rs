//! loom models of the handshake: a worker that returns while it is declared stuck, one that is
//! about to block then, spares that leave at the same time, a call concurrent with a spare whose
//! thread ends, a push after the worker was declared stuck. For each there is a twin with one step
//! done wrong, which the model must detect.

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, AtomicU64};

use super::*;
use crate::driver::parker::{Parker, Unparked};
use crate::queue::lifo::{LifoSlot, RawPointer};

/// Asserts COUNTED, when no thread is between two steps.
fn assert_counted(slots: &WorkerSlots) {
    let present = (0..slots.states.len()).filter(|slot| slots.is_present(*slot)).count();
    assert_eq!(slots.able(), present, "COUNTED");
}

fn spawn(slots: &Arc<WorkerSlots>, f: impl FnOnce(&WorkerSlots) + 'static) -> thread::JoinHandle<()> {
    let slots = slots.clone();
    thread::spawn(move || f(&slots))
}

// ---- a worker that returns while the sentinel declares it stuck ---------------------------------

type Replace = fn(&WorkerSlots, &AtomicU64);

/// Replace (1) to (3), for poll 1.
fn replace(slots: &WorkerSlots, poll_seq: &AtomicU64) {
    if slots.replace(0, || poll_seq.load(Ordering::Relaxed) == 1) {
        assert_eq!(slots.call(), Some(Called::Thread(1)));
    }
}

/// Replace (2) without checking whether the worker has already returned.
fn replace_counting_twice(slots: &WorkerSlots, poll_seq: &AtomicU64) {
    if slots.declare_stuck(0) {
        if poll_seq.load(Ordering::Relaxed) != 1 {
            slots.states[0].store(PRESENT, Ordering::Release);
            slots.raise_able();
            return;
        }
        assert_eq!(slots.call(), Some(Called::Thread(1)));
    }
}

fn a_worker_that_comes_back(replace: Replace) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (slots, poll_seq) = (Arc::new(WorkerSlots::new(1, 1)), Arc::new(AtomicU64::new(1)));
        let seen = poll_seq.clone();
        let sentinel = spawn(&slots, move |slots| replace(slots, &seen));
        let worker = spawn(&slots, move |slots| {
            // The poll ends.
            poll_seq.store(2, Ordering::Relaxed);
            if !slots.is_present(0) {
                slots.come_back(0);
            }
        });
        sentinel.join().unwrap();
        worker.join().unwrap();
        assert_counted(&slots);
        // The end of the next poll.
        if !slots.is_present(0) {
            slots.come_back(0);
        }
        assert_counted(&slots);
        if slots.is_present(1) {
            assert!(slots.leave(1), "one too many");
            slots.finish_leaving(1);
        }
        assert_eq!((slots.able(), slots.active_count()), (1, 1), "the requested number is active");
    }
}

#[test]
fn loom_a_returning_worker_declared_stuck_is_counted_once() {
    holds(None, a_worker_that_comes_back(replace));
}

#[test]
fn loom_twin_a_declaration_taken_back_by_a_store_is_found() {
    breaks("COUNTED", None, a_worker_that_comes_back(replace_counting_twice));
}

// ---- a worker that is about to block while the sentinel declares it stuck -----------------------

/// Block of a worker that was declared stuck, counted a second time.
fn begin_blocking_counting_twice(slots: &WorkerSlots, slot: usize) {
    while !slots.change(slot, PRESENT, BLOCKING) && !slots.change(slot, STUCK, BLOCKING) {}
    slots.lower_able();
}

fn a_worker_that_blocks(begin_blocking: fn(&WorkerSlots, usize)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let slots = Arc::new(WorkerSlots::new(2, 0));
        // Replace (2) finds another poll.
        let sentinel = spawn(&slots, |slots| assert!(!slots.replace(0, || false)));
        begin_blocking(&slots, 0);
        sentinel.join().unwrap();
        assert_eq!(slots.state(0), SlotState::Blocking);
        assert_counted(&slots);
        slots.come_back(0);
        assert_counted(&slots);
    }
}

#[test]
fn loom_a_blocking_worker_declared_stuck_is_counted_once() {
    holds(None, a_worker_that_blocks(WorkerSlots::begin_blocking));
}

#[test]
fn loom_twin_a_block_counted_twice_is_found() {
    breaks("COUNTED", None, a_worker_that_blocks(begin_blocking_counting_twice));
}

// ---- spares that leave at the same time ---------------------------------------------------------

type Leave = fn(&WorkerSlots, usize) -> bool;

/// Leave (2) in two steps instead of one read-modify-write.
fn leave_without_a_read_modify_write(slots: &WorkerSlots, slot: usize) -> bool {
    if !slots.change(slot, PRESENT, LEAVING) {
        slots.come_back(slot);
        return false;
    }
    let is_over = slots.has_too_many();
    if is_over {
        slots.lower_able();
    } else {
        slots.change(slot, LEAVING, PRESENT);
    }
    is_over
}

/// Leave without (1).
fn leave_without_excluding_the_sentinel(slots: &WorkerSlots, slot: usize) -> bool {
    let keep = slots.keep.load(Ordering::Relaxed);
    let is_over = slots.able.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |able| (able > keep).then(|| able - 1));
    if is_over.is_ok() {
        slots.states[slot].store(LEAVING, Ordering::Release);
    }
    is_over.is_ok()
}

/// Two spares, one of them needed.
fn spares_that_leave(leave: Leave) -> impl Fn() + Send + Sync + 'static {
    move || {
        let slots = Arc::new(WorkerSlots::new(1, 2));
        assert!(slots.call().is_some() && slots.call().is_some());
        assert!(slots.declare_stuck(0));
        let spares = [1, 2].map(|slot| {
            spawn(&slots, move |slots| {
                if leave(slots, slot) {
                    slots.finish_leaving(slot);
                }
            })
        });
        spares.into_iter().for_each(|spare| spare.join().unwrap());
        assert_counted(&slots);
        assert_eq!(slots.able(), 1, "ENOUGH");
    }
}

#[test]
fn loom_of_two_spares_that_leave_the_one_that_is_needed_stays() {
    holds(None, spares_that_leave(WorkerSlots::leave));
}

#[test]
fn loom_twin_spares_that_check_before_they_count_are_found() {
    breaks("ENOUGH", None, spares_that_leave(leave_without_a_read_modify_write));
}

/// A spare leaves while the sentinel, which saw it in a poll, declares it stuck.
fn a_spare_that_leaves_while_it_is_declared_stuck(leave: Leave) -> impl Fn() + Send + Sync + 'static {
    move || {
        let slots = Arc::new(WorkerSlots::new(1, 1));
        assert!(slots.call().is_some());
        let spare = spawn(&slots, move |slots| {
            if leave(slots, 1) {
                slots.finish_leaving(1);
            }
        });
        let sentinel = spawn(&slots, |slots| _ = slots.declare_stuck(1));
        spare.join().unwrap();
        sentinel.join().unwrap();
        assert_counted(&slots);
    }
}

#[test]
fn loom_a_spare_that_is_leaving_is_not_declared_stuck() {
    holds(None, a_spare_that_leaves_while_it_is_declared_stuck(WorkerSlots::leave));
}

#[test]
fn loom_twin_a_spare_that_leaves_without_marking_it_is_found() {
    let fault = leave_without_excluding_the_sentinel;
    breaks("only its own thread moves", None, a_spare_that_leaves_while_it_is_declared_stuck(fault));
}

// ---- a call concurrent with a spare whose thread ends -------------------------------------------

type EndThread = fn(&WorkerSlots, usize) -> bool;

/// Leave (5) without checking whether the spare was called.
fn end_thread_without_check(slots: &WorkerSlots, slot: usize) -> bool {
    slots.states[slot].swap(NO_THREAD, Ordering::AcqRel) == OFF
}

/// A spare that has slept for long, and one call: the spare becomes active exactly once.
fn a_call_beside_a_spare_that_goes(end_thread: EndThread) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (slots, parker) = (Arc::new(WorkerSlots::new(1, 1)), Arc::new(Parker::new()));
        let came = Arc::new(AtomicU64::new(0));
        assert!(slots.call().is_some() && slots.leave(1));
        slots.finish_leaving(1);
        let spare = spawn(&slots, {
            let (parker, came) = (parker.clone(), came.clone());
            move |slots| {
                if !end_thread(slots, 1) {
                    parker.wait_token();
                    came.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let caller = spawn(&slots, {
            let came = came.clone();
            move |slots| match slots.call() {
                Some(Called::Token(1)) => assert_eq!(parker.unpark(), Unparked::Done),
                Some(Called::Thread(1)) => _ = came.fetch_add(1, Ordering::Relaxed),
                other => panic!("{other:?}"),
            }
        });
        spare.join().unwrap();
        caller.join().unwrap();
        assert_eq!(came.load(Ordering::Relaxed), 1, "ONE-TOKEN");
        assert!(slots.is_present(1), "ONE-TOKEN");
        assert_counted(&slots);
    }
}

#[test]
fn loom_a_spare_that_is_called_while_it_goes_comes_once() {
    holds(None, a_call_beside_a_spare_that_goes(WorkerSlots::end_thread));
}

#[test]
fn loom_twin_a_spare_that_leaves_without_a_check_is_found() {
    breaks("ONE-TOKEN", None, a_call_beside_a_spare_that_goes(end_thread_without_check));
}

// ---- a push after the worker was declared stuck -------------------------------------------------

struct Item(Box<u32>);

impl RawPointer for Item {
    fn into_raw(self) -> std::ptr::NonNull<()> {
        std::ptr::NonNull::from(Box::leak(self.0)).cast()
    }

    unsafe fn from_raw(raw: std::ptr::NonNull<()>) -> Self {
        // SAFETY: the caller gives a pointer that `into_raw` made, once.
        Item(unsafe { Box::from_raw(raw.cast().as_ptr()) })
    }
}

/// A stuck poll wakes a task. If the worker sees that it is stuck, the task goes to the global
/// queue; otherwise it goes into the LIFO slot, which the sentinel empties at each check.
fn a_push_beside_the_sentinel(checks_again: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let (slots, slot) = (Arc::new(WorkerSlots::new(1, 1)), Arc::new(LifoSlot::<Item>::new()));
        let global = Arc::new(AtomicU64::new(0));
        let take = |slot: &LifoSlot<Item>, global: &AtomicU64| {
            if let Some(Item(item)) = slot.take() {
                global.fetch_add(u64::from(*item), Ordering::Relaxed);
            }
        };
        let worker = spawn(&slots, {
            let (slot, global) = (slot.clone(), global.clone());
            move |slots| {
                if slots.is_present(0) {
                    assert!(slot.put(Item(Box::new(1))).is_none());
                } else {
                    global.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let sentinel = spawn(&slots, {
            let (slot, global) = (slot.clone(), global.clone());
            move |slots| {
                assert!(slots.declare_stuck(0));
                take(&slot, &global);
            }
        });
        worker.join().unwrap();
        sentinel.join().unwrap();
        // The sentinel's next check, while the poll still goes on.
        if checks_again {
            take(&slot, &global);
        }
        let left = slot.take().is_some();
        assert_eq!((global.load(Ordering::Relaxed), left), (1, false), "stranded");
    }
}

#[test]
fn loom_a_push_by_a_worker_declared_stuck_is_transferred_once() {
    holds(None, a_push_beside_the_sentinel(true));
}

#[test]
fn loom_twin_a_sentinel_that_empties_the_slot_once_is_found() {
    breaks("stranded", None, a_push_beside_the_sentinel(false));
}
