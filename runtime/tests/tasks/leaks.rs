//! Nothing is left of a runtime that was shut down: neither threads nor descriptors nor memory. The
//! test runs in a separate program, since it counts the resources of the whole program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::future::{pending, poll_fn};
use std::panic;
use std::pin::pin;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::mpsc;
use std::task::Poll;
use std::time::Duration;

use volt::Runtime;
use volt::net::{TcpListener, TcpStream};
use volt::task::{self, JoinSet, LocalSet, yield_now};
use volt::telemetry::Snapshot;
use volt::time::{interval, sleep, timeout};

use crate::watchdog::{alone, builder, watched};

/// Runtimes that are created and dropped.
const RUNTIMES: usize = 10_000;
/// Allocations that may be left. One in 21 runtimes leaves everything behind, so a leak of each of
/// those is ten times the limit.
const SLACK: isize = RUNTIMES as isize / 21 / 10;
/// Some buffers are allocated when they are first needed and then kept, and the list of runtimes
/// keeps the capacity for the maximum at one time.
const SLACK_BYTES: isize = 256 * 1024;
const HOUR: Duration = Duration::from_secs(3600);

/// Counts what is allocated and was not freed.
struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);
static LIVE_BYTES: AtomicIsize = AtomicIsize::new(0);

/// Adds to `LIVE` and `LIVE_BYTES`.
fn count(allocations: isize, bytes: usize) {
    LIVE.fetch_add(allocations, Ordering::Relaxed);
    LIVE_BYTES.fetch_add(allocations * bytes as isize, Ordering::Relaxed);
}

// SAFETY: delegates to `System`; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size());
        // SAFETY: the caller's contract is System's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        count(-1, layout.size());
        // SAFETY: as above; `alloc` is System's too.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The resources of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    threads: usize,
    descriptors: usize,
    allocations: isize,
    bytes: isize,
}

impl Held {
    fn now() -> Self {
        let entries = |folder| std::fs::read_dir(folder).map(|entries| entries.count()).unwrap_or(0);
        let (threads, descriptors) = (entries("/proc/self/task"), entries("/proc/self/fd"));
        Self {
            threads,
            descriptors,
            allocations: LIVE.load(Ordering::Relaxed),
            bytes: LIVE_BYTES.load(Ordering::Relaxed),
        }
    }

    /// Reads them once no more than `threads` threads are left. Workers are joined, but a thread
    /// for blocking work disappears from the list a moment after it has ended.
    fn once_ended(threads: usize) -> Self {
        loop {
            let held = Self::now();
            if held.threads <= threads {
                return held;
            }
            std::thread::yield_now();
        }
    }
}

/// Builds a runtime with all its threads, including the sentinel's, and now and then with Tokio's
/// in addition.
fn runtime(round: usize) -> Runtime {
    let builder = builder(1 + round % 3).sentinel_interval(Some(Duration::from_millis(1)));
    builder.tokio_compat(round.is_multiple_of(4)).build().unwrap()
}

/// Leaves tasks in every state in which a shutdown may find them, with timers, sockets and wakers
/// in every place that stores them. The returned value outlives the runtime.
fn leave_everything_behind(runtime: &Runtime) -> impl Sized + use<> {
    let _entered = runtime.enter();
    let idle = volt::spawn(pending::<()>());
    volt::spawn(async {
        loop {
            yield_now().await;
        }
    });
    volt::spawn(async { timeout(HOUR, sleep(HOUR)).await });
    volt::spawn(async { interval(HOUR).tick().await });
    volt::spawn(async { volt::spawn(pending::<()>()).await });
    volt::spawn(task::shield(yield_now()));
    volt::spawn(async { panic::resume_unwind(Box::new("on purpose")) });
    volt::spawn(async {
        let mut tasks = JoinSet::new();
        (0..3).for_each(|_| drop(tasks.spawn(pending::<()>())));
        tasks.join_next().await
    });
    volt::spawn(task::scope::<(), (), _>(async |scope| {
        let within = scope.clone();
        let _value = scope.spawn(async move {
            let _scope = within;
            pending::<Result<(), ()>>().await
        });
        pending().await
    }));
    volt::spawn(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (_server, _peer) = listener.accept().await.unwrap();
        let (mut accept, mut readable) = (pin!(listener.accept()), pin!(client.readable()));
        poll_fn(|cx| {
            let _waits = (accept.as_mut().poll(cx).is_ready(), readable.as_mut().poll(cx).is_ready());
            Poll::<()>::Pending
        })
        .await;
    });
    task::spawn_blocking(|| volt::spawn(pending::<()>()));
    let tasks = LocalSet::new();
    tasks.spawn_local(async { sleep(HOUR).await });
    tasks.block_on(runtime, yield_now());

    let (wakers, waker) = mpsc::channel();
    let with_waker = volt::spawn(poll_fn(move |cx| {
        let _waker = wakers.send(cx.waker().clone());
        Poll::<()>::Pending
    }));
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let mut armed = Box::pin(sleep(HOUR));
    assert!(runtime.block_on(poll_fn(|cx| Poll::Ready(armed.as_mut().poll(cx).is_pending()))));
    let is_reached = |snapshot: Snapshot| snapshot.timers.armed >= 3 && snapshot.driver.registrations >= 4;
    // A pause, because one of the tasks never rests: this thread would compete with its worker.
    while !is_reached(runtime.handle().snapshot()) {
        std::thread::sleep(Duration::from_millis(1));
    }
    (idle.abort_handle(), idle, with_waker, waker.recv().unwrap(), waker, listener, armed, runtime.handle().clone())
}

/// The life of one runtime. It is shut down from outside, from a task or from one of its own jobs.
fn live(round: usize) {
    let runtime = runtime(round);
    let _outlives_it = round.is_multiple_of(21).then(|| leave_everything_behind(&runtime));
    let task = runtime.spawn(async {
        yield_now().await;
        task::spawn_blocking(|| 1).await
    });
    match round % 5 {
        0 => assert_eq!(runtime.block_on(task).unwrap().unwrap(), 1),
        1 => drop(runtime.handle().clone().spawn(async move { runtime.shutdown_background() })),
        2 => drop(runtime.handle().clone().spawn_blocking(move || drop(runtime))),
        3 => runtime.shutdown_background(),
        _ => drop(runtime),
    }
}

#[test]
fn thousands_of_runtimes_leak_no_threads_descriptors_or_memory() {
    alone(|| {
        watched(|| {
            let threads = Held::now().threads;
            // The first ones open what stays open, for example the standard library's random
            // source.
            (0..100).for_each(live);
            let before = Held::once_ended(threads);
            (0..RUNTIMES).for_each(live);
            let after = Held::once_ended(threads);
            println!("{before:?} before {RUNTIMES} runtimes, {after:?} after");
            assert_eq!((after.threads, after.descriptors), (before.threads, before.descriptors));
            assert!(after.allocations <= before.allocations + SLACK, "{after:?}, and before {before:?}");
            assert!(after.bytes <= before.bytes + SLACK_BYTES, "{after:?}, and before {before:?}");
        });
    });
}
