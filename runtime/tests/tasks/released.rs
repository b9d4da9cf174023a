//! The runtime releases everything that it is given: timers, wakers, sockets, futures, outputs,
//! payloads of panics. Each is counted.

use crate::watchdog;
use std::future::{Future, pending, poll_fn};
use std::panic;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::watchdog::{watched, with_workers};
use volt::Runtime;
use volt::io::{AsyncRead, ErrorKind, ReadBuf};
use volt::net::{TcpListener, TcpStream};
use volt::task::{AbortHandle, JoinHandle, yield_now};
use volt::time::{Instant, interval, sleep, timeout};

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

/// A waker that belongs to no task, and counts.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Bell {
    fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Returns how many wakers of this bell exist.
fn wakers(bell: &Arc<Bell>) -> usize {
    Arc::strong_count(bell) - 1
}

/// Polls `future` once, with a waker of `bell`.
fn poll<F: Future>(future: Pin<&mut F>, bell: &Arc<Bell>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(bell.clone())))
}

/// Returns the numbers of armed timers and of registered sockets.
fn armed_and_registered(runtime: &Runtime) -> (u64, u64) {
    let snapshot = runtime.handle().snapshot();
    (snapshot.timers.armed, snapshot.driver.registrations)
}

/// Waits until no waker of `bell` exists: a thread that wakes one drops it a moment later.
fn wait_until_released(bell: &Arc<Bell>) {
    wait_until(|| wakers(bell) == 0);
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

fn connection(runtime: &Runtime) -> (TcpListener, TcpStream, TcpStream) {
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _peer) = listener.accept().await.unwrap();
        (listener, client, server)
    })
}

/// Reads from a new stream, which starts as readable, until it is not. An event from the kernel in
/// the middle of an attempt allows one more attempt.
fn make_unready(stream: &TcpStream) {
    let is_unready = || pin!(stream.readable()).poll(&mut Context::from_waker(Waker::noop())).is_pending();
    wait_until(|| {
        assert_eq!(stream.try_read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
        is_unready()
    });
}

/// Reads once into nowhere, with a waker of `bell`, which stays in the stream's slot.
fn poll_read(stream: &mut TcpStream, bell: &Arc<Bell>) -> Poll<std::io::Result<()>> {
    let mut bytes = [0; 8];
    let waker = Waker::from(bell.clone());
    Pin::new(stream).poll_read(&mut Context::from_waker(&waker), &mut ReadBuf::new(&mut bytes))
}

#[test]
fn a_dropped_fired_or_repolled_sleep_keeps_no_old_waker() {
    with_workers(|runtime| {
        let _entered = runtime.enter();
        let (first, second) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        {
            let mut long = pin!(sleep(HOUR));
            assert!(poll(long.as_mut(), &first).is_pending() && wakers(&first) > 0);
            assert!(poll(long.as_mut(), &second).is_pending() && wakers(&second) > 0);
            assert_eq!(wakers(&first), 0, "the waker of the last poll counts");
            long.as_mut().reset(Instant::now() + 2 * HOUR);
            assert_eq!(armed_and_registered(&runtime), (1, 0));
        }
        assert_eq!((wakers(&second), armed_and_registered(&runtime)), (0, (0, 0)));

        // Long at first, since the thread may lose its processor before the poll.
        let mut short = pin!(sleep(HOUR));
        assert!(poll(short.as_mut(), &first).is_pending());
        short.as_mut().reset(Instant::now() + 2 * MS);
        wait_until(|| first.rung() == 1);
        assert_eq!(armed_and_registered(&runtime), (0, 0));
        wait_until(|| poll(short.as_mut(), &second).is_ready());
        wait_until_released(&first);
        assert_eq!(wakers(&second), 0, "though the sleep is still there");
        assert_eq!((first.rung(), second.rung()), (1, 0));
    });
}

#[test]
fn timers_that_come_and_go_in_crowds_leave_none_armed() {
    with_workers(|runtime| {
        let bell = Arc::new(Bell::default());
        let _entered = runtime.enter();
        for round in 0..20 {
            let mut crowd: Vec<_> = (0..1_000).map(|n| Box::pin(sleep(MS * (n * 7_919 % 100_000)))).collect();
            let waiting =
                crowd.iter_mut().filter_map(|sleep| poll(sleep.as_mut(), &bell).is_pending().then_some(())).count();
            assert!(waiting > 900);
            // Dropped in a different order from the one in which they were created. Some have fired
            // meanwhile, and some are moved before.
            (0..crowd.len()).rev().step_by(3).for_each(|n| crowd[n].as_mut().reset(Instant::now() + HOUR));
            (0..500).for_each(|n| drop(crowd.swap_remove(n * round % (1_000 - n))));
            drop(crowd);
            assert_eq!(armed_and_registered(&runtime), (0, 0));
            wait_until_released(&bell);
        }
        // Also those that tasks create on all workers, and that end in every way.
        let tasks = (0..1_000_u32).map(|n| {
            runtime.spawn(async move {
                match n % 4 {
                    0 => timeout(HOUR, yield_now()).await.unwrap(),
                    1 => timeout(MS, sleep(HOUR)).await.unwrap_err().to_string().clear(),
                    2 => sleep(MS * (n % 5)).await,
                    _ => drop(
                        timeout(3 * MS, async {
                            let mut ticks = interval(HOUR);
                            (ticks.tick().await, ticks.tick().await)
                        })
                        .await,
                    ),
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            runtime.block_on(task).unwrap();
        }
        let timers = runtime.handle().snapshot().timers;
        assert_eq!((timers.armed, timers.next_in_ns), (0, None));
    });
}

#[test]
fn a_handle_that_is_dropped_or_polled_by_another_keeps_no_waker() {
    with_workers(|runtime| {
        let (first, second) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let mut handle = runtime.spawn(pending::<()>());
        assert!(poll(Pin::new(&mut handle), &first).is_pending());
        assert!(poll(Pin::new(&mut handle), &second).is_pending());
        assert_eq!((wakers(&first), wakers(&second)), (0, 1));
        let abort = handle.abort_handle();
        drop(handle);
        assert_eq!(wakers(&second), 0, "though the task lives on");
        abort.abort();

        // Dropped while the task ends, before and after.
        for round in 0..500 {
            let mut handle = runtime.spawn(async move {
                for _ in 0..round % 5 {
                    yield_now().await;
                }
            });
            let _ended = poll(Pin::new(&mut handle), &first);
            (0..round).for_each(|_| std::hint::spin_loop());
            drop(handle);
        }
        wait_until(|| runtime.handle().snapshot().tasks.alive == 0);
        wait_until_released(&first);
    });
}

#[test]
fn dropping_a_socket_or_its_wait_releases_the_wakers() {
    with_workers(|runtime| {
        let bell = Arc::new(Bell::default());
        let (listener, mut client, server) = connection(&runtime);
        assert_eq!(armed_and_registered(&runtime), (0, 3));
        {
            let (mut accept, mut readable) = (pin!(listener.accept()), pin!(server.readable()));
            make_unready(&server);
            assert!(poll(accept.as_mut(), &bell).is_pending() && poll(readable.as_mut(), &bell).is_pending());
            assert_eq!(wakers(&bell), 2);
        }
        assert_eq!(wakers(&bell), 0);
        assert!(poll_read(&mut client, &bell).is_pending());
        assert_eq!(wakers(&bell), 1);
        drop((listener, client, server));
        assert_eq!((wakers(&bell), armed_and_registered(&runtime)), (0, (0, 0)));
    });
}

#[test]
fn a_shutdown_calls_every_waker_that_waits_and_keeps_none() {
    watched(|| {
        for workers in [1, 2, 4] {
            let runtime = watchdog::runtime(workers);
            let handle = runtime.handle().clone();
            let bells: [Arc<Bell>; 5] = Default::default();
            let [of_sleep, of_handle, of_accept, of_readable, of_read] = &bells;
            let (listener, mut client, server) = connection(&runtime);
            let mut long = Box::pin({
                let _entered = runtime.enter();
                sleep(HOUR)
            });
            let mut task = runtime.spawn(pending::<()>());
            let (mut accept, mut readable) = (Box::pin(listener.accept()), Box::pin(server.readable()));
            assert!(poll(long.as_mut(), of_sleep).is_pending());
            assert!(poll(Pin::new(&mut task), of_handle).is_pending());
            assert!(poll(accept.as_mut(), of_accept).is_pending());
            assert!(poll_read(&mut client, of_read).is_pending());
            make_unready(&server);
            assert!(poll(readable.as_mut(), of_readable).is_pending());

            drop(runtime);
            for (waiter, bell) in ["sleep", "handle", "accept", "readable", "read"].iter().zip(&bells) {
                assert_eq!(bell.rung(), 1, "{workers} workers: {waiter}");
            }
            assert_eq!(handle.snapshot().timers.armed, 0);
            drop((accept, readable, long, task));
            drop((listener, client, server));
            assert_eq!(bells.each_ref().map(wakers), [0; 5], "{workers} workers");
            assert_eq!(handle.snapshot().driver.registrations, 0);
        }
    });
}

#[test]
fn a_cancelled_task_drops_the_wakers_it_registered() {
    with_workers(|runtime| {
        let (bell, other) = (Arc::new(Bell::default()), Arc::new(Bell::default()));
        let (listener, _client, server) = connection(&runtime);
        let (waits, has_waited) = mpsc::channel();
        let inside = bell.clone();
        let task = runtime.spawn(async move {
            let mut joined = volt::spawn(pending::<()>());
            let (mut long, mut accept) = (pin!(sleep(HOUR)), pin!(listener.accept()));
            let mut readable = pin!(server.readable());
            poll_fn(|_| {
                // As futures do that poll others with their own wakers.
                assert!(poll(long.as_mut(), &inside).is_pending() && poll(accept.as_mut(), &inside).is_pending());
                assert!(poll(Pin::new(&mut joined), &inside).is_pending());
                make_unready(&server);
                assert!(poll(readable.as_mut(), &inside).is_pending());
                waits.send(joined.abort_handle()).unwrap();
                Poll::<()>::Pending
            })
            .await;
        });
        let joined: AbortHandle = has_waited.recv().unwrap();
        assert!(wakers(&bell) >= 5, "the task has one, and each of the four waits: {}", wakers(&bell));
        assert_eq!(armed_and_registered(&runtime), (1, 3));
        let mut task = task;
        assert!(poll(Pin::new(&mut task), &other).is_pending());
        task.abort();
        assert!(runtime.block_on(task).unwrap_err().is_cancelled());
        assert_eq!(wakers(&bell), 0);
        wait_until_released(&other);
        assert_eq!(armed_and_registered(&runtime), (0, 1), "the client is here");
        joined.abort();
    });
}

/// Counts values created and dropped.
#[derive(Default)]
struct Tally {
    made: AtomicUsize,
    dropped: AtomicUsize,
}

impl Tally {
    /// Returns the number created and not dropped. Fails if more were dropped than created.
    fn alive(&self) -> usize {
        let dropped = self.dropped.load(Ordering::SeqCst);
        self.made.load(Ordering::SeqCst).checked_sub(dropped).expect("nothing is dropped twice")
    }
}

struct Token(Arc<Tally>);

impl Token {
    fn new(tally: &Arc<Tally>) -> Self {
        tally.made.fetch_add(1, Ordering::SeqCst);
        Self(tally.clone())
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// How a task ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Completes,
    Panics,
    AbortedAtOnce,
    AbortedIdle,
    ShutDown,
}

/// The fate of its handle.
#[derive(Clone, Copy, Debug)]
enum Fate {
    DroppedAtOnce,
    DroppedAfterwards,
    Joined,
    OutlivesTheRuntime,
}

/// Spawns a task that has a token, sends its waker and ends as specified, with a token as its
/// output or its panic.
fn spawn(runtime: &Runtime, end: End, tally: &Arc<Tally>) -> (JoinHandle<Token>, mpsc::Receiver<Waker>) {
    let (tally, token) = (tally.clone(), Token::new(tally));
    let (wakers, waker) = mpsc::channel();
    let task = runtime.spawn(async move {
        let _token = token;
        poll_fn(|cx| Poll::Ready(wakers.send(cx.waker().clone()))).await.unwrap();
        yield_now().await;
        match end {
            End::Completes => Token::new(&tally),
            End::Panics => panic::resume_unwind(Box::new(Token::new(&tally))),
            _ => pending().await,
        }
    });
    (task, waker)
}

#[test]
fn future_output_and_payload_are_each_dropped_exactly_once() {
    use End::{AbortedAtOnce, AbortedIdle, Completes, Panics, ShutDown};
    use Fate::{DroppedAfterwards, DroppedAtOnce, Joined, OutlivesTheRuntime};
    watched(|| {
        for workers in [1, 2] {
            for end in [Completes, Panics, AbortedAtOnce, AbortedIdle, ShutDown] {
                for fate in [DroppedAtOnce, DroppedAfterwards, Joined, OutlivesTheRuntime] {
                    let tally = Arc::new(Tally::default());
                    let runtime = watchdog::runtime(workers);
                    let (task, waker) = spawn(&runtime, end, &tally);
                    let abort = task.abort_handle();
                    let mut task = Some(task);
                    if matches!(fate, DroppedAtOnce) {
                        task = None;
                    }
                    if matches!(end, AbortedAtOnce) {
                        abort.abort();
                    }
                    // It outlives the task, too. A task that was aborted may never have had one.
                    let waker = waker.recv().ok();
                    if matches!(end, AbortedIdle) {
                        abort.abort();
                    }
                    let case = || format!("{workers} workers, {end:?}, {fate:?}");
                    let mut runtime = Some(runtime);
                    if matches!(end, ShutDown) {
                        runtime = None;
                    }
                    wait_until(|| abort.is_finished());
                    if let Some(runtime) = &runtime {
                        wait_until(|| runtime.handle().snapshot().tasks.alive == 0);
                    }
                    // An output or a payload waits for the handle, if there is one. The future does
                    // not.
                    let waits = usize::from(task.is_some() && matches!(end, Completes | Panics));
                    assert_eq!(tally.alive(), waits, "{}", case());
                    match fate {
                        Joined => {
                            let joined = watchdog::runtime(1).block_on(task.take().unwrap());
                            assert_eq!(joined.is_ok(), matches!(end, Completes), "{}", case());
                            assert_eq!(tally.alive(), waits, "{}", case());
                        }
                        OutlivesTheRuntime => drop(runtime.take()),
                        DroppedAtOnce | DroppedAfterwards => {}
                    }
                    drop(task);
                    assert_eq!(tally.alive(), 0, "{}", case());
                    drop((waker, abort, runtime));
                    assert_eq!(tally.alive(), 0, "{}", case());
                    assert_eq!(Arc::strong_count(&tally), 1, "{}", case());
                }
            }
        }
    });
}
