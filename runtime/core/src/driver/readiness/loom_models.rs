//! loom models of readiness, and of readiness with one step done wrong. Their structure is that of
//! the models of `queue::ring`.
//!
//! The kernel is a thread that puts items into a buffer and reports each of them once. The task
//! takes items until it has them all, and sleeps when it has to wait. A lost report leaves it
//! asleep, which loom detects.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc as StdArc;
use std::task::Wake;

use loom::thread;
use volt_explore::{breaks, holds};
use volt_shim::{Arc, AtomicUsize, Condvar};

use super::*;

/// The steps that a fault can replace.
trait Steps: 'static {
    fn set(readiness: &Readiness, flags: Flags, into: &mut Vec<Waker>) {
        readiness.set(flags, into);
    }

    fn clear(readiness: &Readiness, seen: Seen) {
        readiness.clear(seen);
    }

    fn poll_ready(readiness: &Readiness, cx: &mut Context<'_>) -> Poll<io::Result<Seen>> {
        readiness.poll_ready(cx, Direction::Read)
    }

    fn poll_queue(wait: Pin<&mut Ready<'_>>, cx: &mut Context<'_>) -> Poll<io::Result<(Seen, coop::Unit)>> {
        wait.poll(cx)
    }
}

struct AsBuilt;

impl Steps for AsBuilt {}

/// A thread that sleeps until its waker is called.
#[derive(Default)]
struct Sleeper {
    is_woken: Mutex<bool>,
    wakes: Condvar,
}

impl Sleeper {
    fn sleep(&self) {
        let mut is_woken = self.is_woken.lock();
        while !std::mem::take(&mut *is_woken) {
            is_woken = self.wakes.wait(is_woken).unwrap();
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: StdArc<Self>) {
        *self.is_woken.lock() = true;
        self.wakes.notify_one();
    }
}

struct Socket {
    readiness: Readiness,
    buffer: AtomicUsize,
}

impl Socket {
    /// Waits for one item in the slot and takes it.
    fn take_in_slot<S: Steps>(&self, sleeper: &StdArc<Sleeper>) {
        let waker = Waker::from(sleeper.clone());
        loop {
            match S::poll_ready(&self.readiness, &mut Context::from_waker(&waker)) {
                Poll::Ready(seen) if self.attempt() => return drop(seen),
                Poll::Ready(seen) => S::clear(&self.readiness, seen.unwrap()),
                Poll::Pending => sleeper.sleep(),
            }
        }
    }

    /// Waits for one item in the queue and takes it.
    fn take_in_queue<S: Steps>(&self, sleeper: &StdArc<Sleeper>) {
        let waker = Waker::from(sleeper.clone());
        loop {
            let mut wait = pin!(self.readiness.ready(Direction::Read));
            let (seen, _unit) = loop {
                match S::poll_queue(wait.as_mut(), &mut Context::from_waker(&waker)) {
                    Poll::Ready(ready) => break ready.unwrap(),
                    Poll::Pending => sleeper.sleep(),
                }
            };
            if self.attempt() {
                return;
            }
            S::clear(&self.readiness, seen);
        }
    }

    /// Stands in for `read`.
    fn attempt(&self) -> bool {
        self.buffer.fetch_update(Ordering::AcqRel, Ordering::Acquire, |items| items.checked_sub(1)).is_ok()
    }

    /// Stands in for the kernel and the thread in the driver turn.
    fn notify<S: Steps>(&self) {
        self.buffer.fetch_add(1, Ordering::AcqRel);
        let mut wakers = Vec::new();
        S::set(&self.readiness, Flags::READABLE, &mut wakers);
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// A task takes `items` items, each of which is reported once.
fn reports<S: Steps>(begin: Flags, items: usize, take: fn(&Socket, &StdArc<Sleeper>)) {
    let socket = Arc::new(Socket { readiness: Readiness::new(begin), buffer: AtomicUsize::new(0) });
    let kernel = socket.clone();
    let kernel = thread::spawn(move || (0..items).for_each(|_| kernel.notify::<S>()));
    let task = thread::spawn(move || {
        let sleeper = StdArc::new(Sleeper::default());
        (0..items).for_each(|_| take(&socket, &sleeper));
    });
    kernel.join().unwrap();
    task.join().unwrap();
}

#[test]
fn a_task_in_the_slot_misses_no_report() {
    holds(None, || reports::<AsBuilt>(Flags::NONE, 2, Socket::take_in_slot::<AsBuilt>));
}

#[test]
fn a_task_in_the_queue_misses_no_report() {
    holds(None, || reports::<AsBuilt>(Flags::NONE, 2, Socket::take_in_queue::<AsBuilt>));
}

#[test]
fn a_report_between_an_attempt_and_its_clear_is_kept() {
    holds(None, || reports::<AsBuilt>(Flags::READABLE, 2, Socket::take_in_slot::<AsBuilt>));
}

/// Two tasks in the queue, and two items.
fn two_tasks_in_the_queue<S: Steps>() {
    let socket = Arc::new(Socket { readiness: Readiness::new(Flags::NONE), buffer: AtomicUsize::new(0) });
    let tasks = [(); 2].map(|()| {
        let socket = socket.clone();
        thread::spawn(move || socket.take_in_queue::<S>(&StdArc::new(Sleeper::default())))
    });
    let kernel = thread::spawn(move || (0..2).for_each(|_| socket.notify::<S>()));
    kernel.join().unwrap();
    tasks.into_iter().for_each(|task| task.join().unwrap());
}

#[test]
fn two_tasks_in_the_queue_get_an_item_each() {
    holds(Some(2), two_tasks_in_the_queue::<AsBuilt>);
}

/// Fault: clears without comparing the tick.
struct ClearsAnyTick;

impl Steps for ClearsAnyTick {
    fn clear(readiness: &Readiness, seen: Seen) {
        readiness.word.fetch_and(!seen.found.within(Flags::CLEARED).0, Ordering::AcqRel);
    }
}

#[test]
fn clearing_without_the_tick_is_found() {
    breaks("deadlock", None, || reports::<ClearsAnyTick>(Flags::READABLE, 1, Socket::take_in_slot::<ClearsAnyTick>));
}

/// Fault: checks before it takes the lock, and not again.
struct ChecksUnlocked;

impl Steps for ChecksUnlocked {
    fn poll_ready(readiness: &Readiness, cx: &mut Context<'_>) -> Poll<io::Result<Seen>> {
        if let Some(seen) = readiness.check(Direction::Read)? {
            return Poll::Ready(Ok(seen));
        }
        readiness.waiters.lock().reader = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_queue(mut wait: Pin<&mut Ready<'_>>, cx: &mut Context<'_>) -> Poll<io::Result<(Seen, coop::Unit)>> {
        let unit = ready!(coop::poll_proceed(cx));
        let (readiness, awaited) = (wait.readiness, wait.awaited);
        if let Some(seen) = readiness.check(awaited)? {
            return Poll::Ready(Ok((seen, unit)));
        }
        let waker = Some(cx.waker().clone());
        let mut waiters = readiness.waiters.lock();
        match wait.queued {
            Some(key) => waiters.queue[key].waker = waker,
            None => wait.queued = Some(waiters.queue.insert(Waiter { awaited, waker })),
        }
        Poll::Pending
    }
}

#[test]
fn not_checking_again_under_the_lock_is_found() {
    breaks("deadlock", None, || reports::<ChecksUnlocked>(Flags::NONE, 1, Socket::take_in_slot::<ChecksUnlocked>));
}

#[test]
fn a_queue_that_does_not_check_again_under_the_lock_is_found() {
    breaks("deadlock", None, || reports::<ChecksUnlocked>(Flags::NONE, 1, Socket::take_in_queue::<ChecksUnlocked>));
}

/// Fault: takes the wakers before it sets the flags.
struct WakesFirst;

impl Steps for WakesFirst {
    fn set(readiness: &Readiness, flags: Flags, into: &mut Vec<Waker>) {
        let mut waiters = readiness.waiters.lock();
        into.extend(waiters.reader.take());
        into.extend(waiters.queue.iter_mut().filter_map(|(_, waiter)| waiter.waker.take()));
        drop(waiters);
        readiness.word.fetch_or(flags.0, Ordering::AcqRel);
        readiness.word.fetch_add(1 << TICK_SHIFT, Ordering::AcqRel);
    }
}

#[test]
fn taking_the_wakers_before_the_flags_are_set_is_found() {
    breaks("deadlock", None, || reports::<WakesFirst>(Flags::NONE, 1, Socket::take_in_slot::<WakesFirst>));
}

#[test]
fn taking_the_wakers_of_the_queue_too_early_is_found() {
    breaks("deadlock", None, || reports::<WakesFirst>(Flags::NONE, 1, Socket::take_in_queue::<WakesFirst>));
}

/// Fault: wakes only the task at the front of the queue.
struct WakesOne;

impl Steps for WakesOne {
    fn set(readiness: &Readiness, flags: Flags, into: &mut Vec<Waker>) {
        let notify = |word: u64| Some((word | flags.0).wrapping_add(1 << TICK_SHIFT));
        let _ = readiness.word.fetch_update(Ordering::Release, Ordering::Relaxed, notify);
        let mut waiters = readiness.waiters.lock();
        let front = waiters.queue.iter_mut().next();
        into.extend(front.and_then(|(_, waiter)| waiter.waker.take()));
    }
}

#[test]
fn a_report_that_wakes_one_task_of_the_queue_is_found() {
    breaks("deadlock", Some(2), two_tasks_in_the_queue::<WakesOne>);
}
