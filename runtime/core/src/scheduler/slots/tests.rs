//! Tests of the slots: replacement, announced blocks, spares that stay or leave, and failed calls.

use super::*;

#[test]
fn a_stuck_worker_is_replaced_until_it_returns() {
    let slots = WorkerSlots::new(2, 2);
    assert_eq!((slots.able(), slots.active_count(), slots.in_use()), (2, 2, 2));
    assert!(slots.declare_stuck(0));
    assert!(!slots.declare_stuck(0), "once");
    assert_eq!(slots.call(), Some(Called::Thread(2)));
    assert_eq!((slots.able(), slots.active_count(), slots.in_use()), (2, 3, 3));
    assert!(!slots.leave(2), "it is needed");
    slots.come_back(0);
    assert!(slots.has_too_many() && slots.leave(2));
    slots.finish_leaving(2);
    assert_eq!((slots.able(), slots.active_count()), (2, 2));
    assert_eq!(slots.call(), Some(Called::Token(2)), "one that has a thread first");
    assert_eq!(slots.call(), Some(Called::Thread(3)));
    assert_eq!(slots.call(), None);
}

#[test]
fn a_spare_that_is_idle_for_long_exits_unless_it_is_needed() {
    let slots = WorkerSlots::new(1, 1);
    assert_eq!(slots.call(), Some(Called::Thread(1)));
    assert!(slots.leave(1));
    slots.finish_leaving(1);
    assert!(slots.end_thread(1));
    assert_eq!(slots.call(), Some(Called::Thread(1)));
    assert!(!slots.end_thread(1), "it was called");
    assert_eq!(slots.able(), 2);
}

#[test]
fn an_announced_block_is_counted_once() {
    let slots = WorkerSlots::new(2, 0);
    slots.begin_blocking(0);
    assert!(!slots.declare_stuck(0));
    assert_eq!((slots.able(), slots.state(0)), (1, SlotState::Blocking));
    slots.come_back(0);
    assert!(slots.declare_stuck(0));
    slots.begin_blocking(0);
    assert_eq!((slots.able(), slots.state(0)), (1, SlotState::Blocking));
    slots.take_back(0);
    assert_eq!(
        (slots.able(), slots.state(0)),
        (1, SlotState::Blocking),
        "it is not the sentinel's to take back any more"
    );
    slots.come_back(0);
    slots.come_back(0);
    assert_eq!((slots.able(), slots.state(0)), (2, SlotState::Present));
}

#[test]
fn spares_that_are_to_stay_stay() {
    let slots = WorkerSlots::new(1, 2);
    slots.set_keep(3);
    assert!(slots.call().is_some() && slots.call().is_some());
    assert!(!slots.has_too_many() && !slots.leave(1));
    slots.set_keep(0);
    assert!(slots.leave(1) && slots.leave(2));
    assert!(!slots.has_too_many(), "the workers stay in any case");
}

#[test]
fn a_call_that_found_no_thread_is_undone() {
    let slots = WorkerSlots::new(1, 1);
    assert_eq!(slots.call(), Some(Called::Thread(1)));
    slots.call_failed(1);
    assert_eq!((slots.able(), slots.active_count()), (1, 1));
}

#[test]
fn a_worker_that_is_in_another_poll_is_not_replaced() {
    let slots = WorkerSlots::new(1, 1);
    assert!(!slots.replace(0, || false));
    assert_eq!((slots.able(), slots.state(0)), (1, SlotState::Present));
    assert!(slots.replace(0, || true));
    assert!(!slots.replace(0, || unreachable!("it is stuck already")));
    assert_eq!((slots.able(), slots.state(0)), (0, SlotState::Stuck));
}
