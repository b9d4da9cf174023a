//! Tests of duties: replacement, announced blocks, spares that stay or leave, and failed calls.

use super::*;

#[test]
fn a_stuck_worker_is_replaced_until_it_returns() {
    let staff = Staff::new(2, 2);
    assert_eq!((staff.able(), staff.on_duty(), staff.in_use()), (2, 2, 2));
    assert!(staff.declare_stuck(0));
    assert!(!staff.declare_stuck(0), "once");
    assert_eq!(staff.call(), Some(Called::Thread(2)));
    assert_eq!((staff.able(), staff.on_duty(), staff.in_use()), (2, 3, 3));
    assert!(!staff.leave(2), "it is needed");
    staff.come_back(0);
    assert!(staff.has_too_many() && staff.leave(2));
    staff.go_off(2);
    assert_eq!((staff.able(), staff.on_duty()), (2, 2));
    assert_eq!(staff.call(), Some(Called::Token(2)), "one that has a thread first");
    assert_eq!(staff.call(), Some(Called::Thread(3)));
    assert_eq!(staff.call(), None);
}

#[test]
fn a_spare_that_is_idle_for_long_exits_unless_it_is_needed() {
    let staff = Staff::new(1, 1);
    assert_eq!(staff.call(), Some(Called::Thread(1)));
    assert!(staff.leave(1));
    staff.go_off(1);
    assert!(staff.go(1));
    assert_eq!(staff.call(), Some(Called::Thread(1)));
    assert!(!staff.go(1), "it was called");
    assert_eq!(staff.able(), 2);
}

#[test]
fn an_announced_block_is_counted_once() {
    let staff = Staff::new(2, 0);
    staff.begin_blocking(0);
    assert!(!staff.declare_stuck(0));
    assert_eq!((staff.able(), staff.duty(0)), (1, Duty::Blocking));
    staff.come_back(0);
    assert!(staff.declare_stuck(0));
    staff.begin_blocking(0);
    assert_eq!((staff.able(), staff.duty(0)), (1, Duty::Blocking));
    staff.take_back(0);
    assert_eq!((staff.able(), staff.duty(0)), (1, Duty::Blocking), "it is not the sentinel's to take back any more");
    staff.come_back(0);
    staff.come_back(0);
    assert_eq!((staff.able(), staff.duty(0)), (2, Duty::Present));
}

#[test]
fn spares_that_are_to_stay_stay() {
    let staff = Staff::new(1, 2);
    staff.set_keep(3);
    assert!(staff.call().is_some() && staff.call().is_some());
    assert!(!staff.has_too_many() && !staff.leave(1));
    staff.set_keep(0);
    assert!(staff.leave(1) && staff.leave(2));
    assert!(!staff.has_too_many(), "the workers stay in any case");
}

#[test]
fn a_call_that_found_no_thread_is_undone() {
    let staff = Staff::new(1, 1);
    assert_eq!(staff.call(), Some(Called::Thread(1)));
    staff.call_failed(1);
    assert_eq!((staff.able(), staff.on_duty()), (1, 1));
}
