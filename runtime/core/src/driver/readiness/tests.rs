//! Tests of the readiness of one socket: ticks, closed directions, and the wake-ups of waiters.

use super::*;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::Wake;

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn notify(readiness: &Readiness, flags: Flags) {
    let mut wakers = Vec::new();
    readiness.set(flags, &mut wakers);
    wakers.into_iter().for_each(Waker::wake);
}

#[test]
fn a_flag_set_again_after_the_check_is_not_cleared() {
    let readiness = Readiness::new(Flags::READABLE);
    let seen = readiness.check(Direction::Read).unwrap().unwrap();
    for _ in 0..1 << 16 {
        notify(&readiness, Flags::READABLE);
    }
    readiness.clear(seen);
    assert!(readiness.check(Direction::Read).unwrap().is_some(), "an event was lost");
    let seen = readiness.check(Direction::Read).unwrap().unwrap();
    readiness.clear(seen);
    assert!(readiness.check(Direction::Read).unwrap().is_none());
}

#[test]
fn clearing_one_direction_keeps_the_other_and_closed_flags() {
    let readiness = Readiness::new(Flags::READABLE.and(Flags::WRITABLE));
    readiness.clear(readiness.check(Direction::Read).unwrap().unwrap());
    assert!(readiness.check(Direction::Read).unwrap().is_none());
    assert!(readiness.check(Direction::Write).unwrap().is_some());
    notify(&readiness, Flags::READ_CLOSED);
    readiness.clear(readiness.check(Direction::Read).unwrap().unwrap());
    assert!(readiness.check(Direction::Read).unwrap().is_some());
}

#[test]
fn only_a_one_way_attempt_that_would_block_refutes_closure() {
    let closed = Flags::READ_CLOSED.and(Flags::WRITE_CLOSED);
    let readiness = Readiness::new(closed);
    let both = Flags::from(Direction::Read).and(Direction::Write.into());
    assert!(!readiness.refute(readiness.check(both).unwrap().unwrap(), both));
    assert_eq!(readiness.check(both).unwrap().unwrap().found(), closed);
    let read = Direction::Read.into();
    let seen = readiness.check(read).unwrap().unwrap();
    assert!(readiness.refute(seen, read));
    assert_eq!(readiness.check(both).unwrap().unwrap().found(), Flags::WRITE_CLOSED);
    notify(&readiness, Flags::READ_CLOSED);
    readiness.refute(seen, read);
    assert!(readiness.check(read).unwrap().is_some(), "the event was reported again since");
}

#[test]
fn an_event_wakes_all_waiters_of_its_direction_only() {
    let readiness = Readiness::new(Flags::NONE);
    let (reads, writes) = (Arc::new(Count::default()), Arc::new(Count::default()));
    let (reader, writer) = (Waker::from(reads.clone()), Waker::from(writes.clone()));
    let (mut cx, mut write_cx) = (Context::from_waker(&reader), Context::from_waker(&writer));
    let mut first = pin!(readiness.ready(Direction::Read));
    let mut second = pin!(readiness.ready(Direction::Read));
    let mut third = pin!(readiness.ready(Direction::Write));
    assert!(first.as_mut().poll(&mut cx).is_pending());
    assert!(second.as_mut().poll(&mut cx).is_pending());
    assert!(third.as_mut().poll(&mut write_cx).is_pending());
    assert!(readiness.poll_ready(&mut cx, Direction::Read).is_pending());
    notify(&readiness, Flags::READABLE);
    assert_eq!((reads.0.load(Ordering::Relaxed), writes.0.load(Ordering::Relaxed)), (3, 0));
    assert!(first.as_mut().poll(&mut cx).is_ready());
    assert!(second.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn urgent_data_marks_a_tcp_stream_and_wakes_no_reader() {
    let wakes = Arc::new(Count::default());
    let waker = Waker::from(wakes.clone());
    let mut cx = Context::from_waker(&waker);
    let any = Flags::READABLE.and(Flags::PRIORITY).and(Flags::MARKED);
    for (begin, found) in [(Flags::MARKABLE, Flags::MARKED), (Flags::NONE, Flags::READABLE.and(Flags::PRIORITY))] {
        let readiness = Readiness::new(begin);
        assert!(readiness.poll_ready(&mut cx, Direction::Read).is_pending());
        notify(&readiness, Flags::WRITABLE.and(Flags::PRIORITY));
        assert_eq!(readiness.check_for_attempt(any).unwrap().found(), found);
        let is_woken = wakes.0.swap(0, Ordering::Relaxed) > 0;
        assert_eq!(is_woken, found.intersects(Flags::READABLE));
    }
}

#[test]
fn a_wait_that_is_dropped_leaves_no_waker_behind() {
    let readiness = Readiness::new(Flags::NONE);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    {
        let mut wait = pin!(readiness.ready(Direction::Write));
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert!(wait.as_mut().poll(&mut cx).is_pending());
        assert_eq!(Arc::strong_count(&count), 3);
    }
    assert_eq!(Arc::strong_count(&count), 2);
}

#[test]
fn the_slot_wakes_the_last_task_that_waited_in_it() {
    let readiness = Readiness::new(Flags::NONE);
    let (first, last) = (Arc::new(Count::default()), Arc::new(Count::default()));
    for count in [&first, &last] {
        let waker = Waker::from(count.clone());
        assert!(readiness.poll_ready(&mut Context::from_waker(&waker), Direction::Write).is_pending());
    }
    notify(&readiness, Flags::WRITE_CLOSED);
    assert_eq!((first.0.load(Ordering::Relaxed), last.0.load(Ordering::Relaxed)), (0, 1));
}

#[test]
fn shut_down_wakes_both_directions_and_fails_later_checks() {
    let readiness = Readiness::new(Flags::NONE);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut cx = Context::from_waker(&waker);
    let mut read = pin!(readiness.ready(Direction::Read));
    assert!(read.as_mut().poll(&mut cx).is_pending());
    assert!(readiness.poll_ready(&mut cx, Direction::Write).is_pending());
    let mut wakers = Vec::new();
    readiness.shut_down(&mut wakers);
    wakers.into_iter().for_each(Waker::wake);
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    assert!(matches!(read.as_mut().poll(&mut cx), Poll::Ready(Err(_))));
    assert!(readiness.check(Direction::Write).is_err());
}

#[test]
fn an_event_changes_one_cache_line_of_its_socket() {
    let readiness = Readiness::new(Flags::NONE);
    let begin = std::ptr::from_ref(&readiness).addr();
    assert!(begin.is_multiple_of(64) && size_of::<Readiness>().is_multiple_of(64), "sockets share a line");
    let waiters = readiness.waiters.lock();
    let end = |waker: &Option<Waker>| std::ptr::from_ref(waker).addr() + size_of_val(waker) - begin;
    assert!(end(&waiters.reader) <= 64 && end(&waiters.writer) <= 64, "the slots are in another line");
}
