//! The operations whose cache lines are counted. Each is done by the workers in turn, one at a
//! time, so that the lines that two workers write move as often as they can.

use std::panic::Location;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::threads::{NOW_NS, TASKS, Threads, World};
use crate::driver::parker::Slept;
use crate::driver::readiness::{Direction, Flags};
use crate::scheduler::idle::parking::{self, Parks};
use crate::scheduler::worker::Worker;
use crate::scheduler::worker::park::SleptBy;
use crate::sleep::sleep;
use crate::task::control::yield_now::yield_now;

/// Longer than a case lasts: the clock stands still.
const LONG: Duration = Duration::from_secs(3600);

/// An operation.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Whether only the first worker does it, and not each of them in turn.
    is_for_one: bool,
    /// Whether it checks the queues of all workers, so that its cost grows with their number.
    pub(super) is_sweep: bool,
    /// Does it for one worker, and the next one if two are involved.
    pub(super) step: fn(&Threads, usize),
}

impl Case {
    /// Returns how many of the workers do it in a round.
    pub(super) fn per_round(&self, workers: usize) -> usize {
        if self.is_for_one { 1 } else { workers }
    }
}

const fn case(name: &'static str, step: fn(&Threads, usize)) -> Case {
    Case { name, is_for_one: false, is_sweep: false, step }
}

pub(super) const CASES: [Case; 15] = [
    case("spawn and end", |threads, worker| threads.on(worker, spawn_and_end)),
    case("wake and poll", |threads, worker| {
        threads.on(worker, |world, worker| wake_and_poll(world, worker, worker.index))
    }),
    case("spawn, yield once and end", |threads, worker| threads.on(worker, yield_once)),
    case("wake and poll a task of the previous worker", |threads, worker| {
        threads.on(worker, |world, worker| wake_and_poll(world, worker, 0));
    }),
    case("wake and poll tasks that one worker has spawned", |threads, worker| {
        threads.on(worker, |world, worker| {
            world.tasks.spawned_by_one[worker.index].get().expect("worker 0 has spawned it").wake_by_ref();
            poll_next(worker);
        });
    }),
    case("spawn and wait; end on the next worker", |threads, worker| {
        threads.on(worker, spawn_and_wait);
        threads.on(threads.next(worker), wake_and_end);
    }),
    Case { is_sweep: true, ..case("steal a task, which then returns", steal_and_return) },
    case("wake from outside", |threads, worker| {
        threads.outside(|world| world.waker(worker, 0).wake_by_ref());
        threads.on(worker, fetch_and_poll);
    }),
    case("spawn from outside", |threads, worker| {
        threads.outside(|world| drop(world.shared.spawn(async {}, None, Location::caller())));
        threads.on(worker, fetch_and_poll);
    }),
    Case { is_sweep: true, ..case("park; be woken from outside", park_and_wake) },
    Case { is_for_one: true, is_sweep: true, ..case("search in vain while the others work", search_in_vain) },
    case("create a timeout that does not wait", |threads, worker| threads.on(worker, |_, _| drop(sleep(LONG)))),
    case("arm and disarm a timer", |threads, worker| threads.on(worker, arm_and_disarm)),
    case("arm a timer; fire it on the next worker", |threads, worker| {
        threads.on(worker, |world, worker| {
            let waker = world.waker(worker.index, 0).clone();
            let _key = world.shared.workers.driver.arm_timer(NOW_NS, waker).expect("the runtime is not shut down");
        });
        threads.on(threads.next(worker), fire_and_poll);
    }),
    case("wait for a socket; be woken by the next worker", |threads, worker| {
        threads.on(worker, wait_for_socket);
        threads.on(threads.next(worker), report_event);
    }),
];

/// Spawns the waiting tasks of a worker.
pub(super) fn prepare(world: &World, worker: &Worker) {
    let tasks = world.tasks;
    let own = tasks.wakers[worker.index].iter();
    let of_all = tasks.spawned_by_one.iter().filter(|_| worker.index == 0);
    for waker in own.chain(of_all) {
        let wait = std::future::poll_fn(move |cx: &mut Context<'_>| {
            waker.get_or_init(|| cx.waker().clone());
            Poll::<()>::Pending
        });
        drop(world.shared.spawn(wait, None, Location::caller()));
        poll_next(worker);
    }
}

/// A turn of the worker with one poll, of the next task.
fn poll_next(worker: &Worker) {
    let mut tick = worker.begin_tick();
    let task = worker.next_task().expect("a task is queued");
    worker.poll_in(&mut tick, task);
    worker.end_tick(&mut tick);
}

/// As `poll_next`, when a check of the global queue is due.
fn fetch_and_poll(_: &World, worker: &Worker) {
    worker.core.borrow_mut().polls_since_check = u32::MAX - 1;
    poll_next(worker);
}

fn spawn_and_end(world: &World, worker: &Worker) {
    drop(world.shared.spawn(async {}, None, Location::caller()));
    poll_next(worker);
}

fn wake_and_poll(world: &World, worker: &Worker, owner: usize) {
    world.waker(owner, 0).wake_by_ref();
    poll_next(worker);
}

fn yield_once(world: &World, worker: &Worker) {
    drop(world.shared.spawn(yield_now(), None, Location::caller()));
    (0..2).for_each(|_| poll_next(worker));
}

fn spawn_and_wait(world: &World, worker: &Worker) {
    let tasks = world.tasks;
    let mut has_waited = false;
    let wait = std::future::poll_fn(move |cx| {
        if std::mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        let _none = tasks.pass(Some(cx.waker().clone()));
        Poll::Pending
    });
    drop(world.shared.spawn(wait, None, Location::caller()));
    poll_next(worker);
}

fn wake_and_end(world: &World, worker: &Worker) {
    world.tasks.pass(None).expect("a task waits").wake();
    poll_next(worker);
}

/// The first of three tasks that a worker has woken is stolen by the next worker.
fn steal_and_return(threads: &Threads, worker: usize) {
    let thief = threads.next(worker);
    if thief == worker {
        return;
    }
    threads.on(worker, |world, worker| (0..TASKS).for_each(|task| world.waker(worker.index, task).wake_by_ref()));
    threads.on(thief, |_, worker| {
        poll_next(worker);
        assert!(worker.core.borrow().ring.len() == 0, "half of two tasks is one");
    });
    threads.on(worker, |_, worker| (1..TASKS).for_each(|_| poll_next(worker)));
}

/// The driver turn is another worker's. The sleep itself is left out: the system call, and the
/// store of the worker to its own park word.
fn park_and_wake(threads: &Threads, worker: usize) {
    let driver = &threads.world.shared.workers.driver;
    let other = threads.next(worker);
    let _turn = (other != worker).then(|| driver.try_turn(other).expect("no worker has the turn"));
    threads.on(worker, |_, worker| {
        worker.begin_park();
        assert!(!worker.is_needed(), "there is no task");
        drop(parking::prepare_sleep(worker));
    });
    threads.outside(|world| world.waker(worker, 0).wake_by_ref());
    threads.on(worker, |_, worker| {
        let is_claimed = worker.retract();
        assert!(is_claimed, "it is the only worker that is parked");
        parking::finish_sleep(worker, &SleptBy::Futex(Slept::Woken), is_claimed);
        poll_next(worker);
    });
}

/// Each of the other workers has polled a task of its LIFO slot and one of its ring.
fn search_in_vain(threads: &Threads, worker: usize) {
    for other in (0..threads.workers()).filter(|other| *other != worker) {
        threads.on(other, |world, worker| {
            (0..2).for_each(|task| world.waker(worker.index, task).wake_by_ref());
            (0..2).for_each(|_| poll_next(worker));
        });
    }
    threads.on(worker, |_, worker| {
        let mut core = worker.core.borrow_mut();
        assert!(worker.steal(&mut core).is_none(), "there is no task");
    });
}

fn arm_and_disarm(_: &World, _: &Worker) {
    let mut sleep = pin!(sleep(LONG));
    assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

fn fire_and_poll(world: &World, worker: &Worker) {
    let mut wakers = Vec::new();
    world.shared.workers.driver.timers.fire(NOW_NS, &mut wakers);
    wakers.into_iter().for_each(Waker::wake);
    poll_next(worker);
}

/// The task of a worker finds that its socket is not ready, and leaves its waker there.
fn wait_for_socket(world: &World, worker: &Worker) {
    let socket = &world.tasks.sockets[worker.index];
    let mut cx = Context::from_waker(world.waker(worker.index, 0));
    while let Poll::Ready(seen) = socket.poll_ready(&mut cx, Direction::Read) {
        socket.clear(seen.expect("the runtime is not shut down"));
    }
}

/// The worker with the driver turn reports an event of the previous worker's socket, and polls the
/// task that waits for it.
fn report_event(world: &World, worker: &Worker) {
    let workers = world.tasks.sockets.len();
    let mut wakers = Vec::new();
    world.tasks.sockets[(worker.index + workers - 1) % workers].set(Flags::READABLE, &mut wakers);
    wakers.into_iter().for_each(Waker::wake);
    poll_next(worker);
}
